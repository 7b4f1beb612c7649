//! From a policy's project to a component, and made views to try it on.
//!
//! [`language`] knows what a project in each language looks like and what one is started from; [`build`] calls that
//! language's tools, which are the author's; [`component`] makes a component of a core module; [`made`] has the views
//! that a policy should have seen before a run meets them. No policy is run here: that is the sandbox's.

pub mod build;
pub mod component;
pub mod language;
pub mod made;

mod preview1;
