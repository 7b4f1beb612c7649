//! From a project of a policy or a grader to a component, with the tools of its language. The tools are the author's; where
//! one is missing, the message says which package has it.

mod bench;
mod c;
mod go;
mod javascript;
mod python;
mod rust;
pub(crate) mod tool;

use std::path::Path;

use allot_base::Result;

use bench::Bench;
pub use bench::Built;
pub use rust::sources_hash;

use crate::language::Language;

/// The component of a project's folder.
pub fn project(folder: &Path, tell: &mut dyn FnMut(&str)) -> Result<Built> {
    let (language, kind) = Language::of(folder)?;
    let bench = || Bench::new(folder, language, kind);
    match language {
        Language::Rust => rust::component(folder, tell),
        Language::Python => python::component(&bench()?, tell),
        Language::Js => javascript::component(&bench()?, tell),
        Language::C => c::component(&bench()?, tell),
        Language::Go => go::component(&bench()?, tell),
    }
}
