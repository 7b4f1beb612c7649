//! From a policy's project to a component, and views to try it on.
//!
//! [`language`] knows what a project in each language looks like and what one is started from; [`copy`] starts one from a
//! policy that ships; [`draft`] is what a policy in Python runs with before it is built; [`build`] calls a language's tools,
//! which are the author's; [`component`] makes a component of a core module; [`fixtures`] has the views
//! that a policy should have seen before a run meets them, and [`questions`] the answers that a grader should. Nothing of an
//! author is run here: that is the sandbox's.
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
