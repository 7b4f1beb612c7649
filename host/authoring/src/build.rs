//! Builds a component from a policy's or grader's project, with the tools of its language. The tools must
//! be installed; an error names the package of a missing tool.

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

/// Builds the component of a project's folder.
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
