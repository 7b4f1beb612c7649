//! Builds components from policies' projects, and provides views to try them on.
//!
//! [`language`] describes the projects of each language and their templates. [`copy`] starts a project from
//! a shipped policy. [`draft`] finds what runs a policy in Python before it is built. [`build`] calls a
//! language's tools, which the author installs. [`component`] makes a component of a core module.
//! [`fixtures`] has views to check a policy with, and [`questions`] answers to check a grader with.
//! Policies do not run in this crate, but in the sandbox.
//!
//! ```
//! use allot_authoring::fixtures;
//!
//! // A view as large as those of the published 4B run, and the corner cases that `allot check` tries.
//! assert_eq!(fixtures::scale(1, 0).pool.len(), 384);
//! assert!(fixtures::views(0, 10).len() > 10);
//! ```

pub mod build;
pub mod component;
pub mod copy;
pub mod draft;
pub mod fixtures;
pub mod language;
pub mod questions;

mod preview1;
