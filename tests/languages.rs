//! Policies in Python, JavaScript, C and Go, as a user meets them: the same plans as in Rust, templates that
//! work as they come, faults told in the words of their language, and a page whose commands run. And the commands of all
//! other pages.
//!
//! A test whose tools are missing says so on standard error and stops; see `tests/skip.rs`.
//! `.ci/toolchains FOLDER` gets all the tools.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use allot_authoring::language::Language;

/// A test of each of these functions for each language but Rust, by its name.
macro_rules! in_each_language {
    ($($test:ident),+) => {
        in_each_language!(@ python Python: $($test),+);
        in_each_language!(@ js Js: $($test),+);
        in_each_language!(@ c C: $($test),+);
        in_each_language!(@ go Go: $($test),+);
    };
    (@ $module:ident $language:ident: $($test:ident),+) => {
        mod $module {
            $(#[test]
            fn $test() {
                super::$test(allot_authoring::language::Language::$language);
            })+
        }
    };
}

#[path = "languages/any.rs"]
mod any;
#[path = "languages/drafts.rs"]
mod drafts;
#[path = "languages/faults.rs"]
mod faults;
#[path = "languages/graders.rs"]
mod graders;
#[path = "languages/like.rs"]
mod like;
#[path = "languages/methods.rs"]
mod methods;
#[path = "languages/mistakes.rs"]
mod mistakes;
mod native;
#[path = "languages/page.rs"]
mod page;
#[path = "languages/pages.rs"]
mod pages;
mod scratch;
mod skip;
#[path = "languages/templates.rs"]
mod templates;
#[path = "languages/tools.rs"]
mod tools;
#[path = "languages/twins.rs"]
mod twins;
#[path = "languages/units.rs"]
mod units;
#[path = "languages/whole.rs"]
mod whole;

/// A language's name, as `--lang` and folders have it.
fn name(language: Language) -> &'static str {
    match language {
        Language::Rust => "rust",
        Language::Python => "python",
        Language::Js => "js",
        Language::C => "c",
        Language::Go => "go",
    }
}
