//! The pages of `docs/` as a book: each is in its contents, every link leads somewhere, what pages and comments name is
//! there, and the reference says what the program takes.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "book/links.rs"]
mod links;
#[path = "book/pages.rs"]
mod pages;
#[path = "book/reference.rs"]
mod reference;
mod scratch;
