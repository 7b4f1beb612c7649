//! From a policy's project to a component, with the tools of its language. The tools are the author's; where
//! one is missing, the message says which package has it.

mod bench;
mod c;
mod go;
mod javascript;
mod python;
mod rust;
mod tool;

use std::path::Path;

use allot_error::Result;

use bench::Bench;
pub use bench::Built;
pub use rust::sources_hash;

use crate::language::Language;

/// The component of a project's folder.
pub fn project(folder: &Path, tell: &mut dyn FnMut(&str)) -> Result<Built> {
    match Language::of(folder)? {
        Language::Rust => rust::component(folder, tell),
        Language::Python => python::component(&Bench::new(folder, Language::Python)?, tell),
        Language::Js => javascript::component(&Bench::new(folder, Language::Js)?, tell),
        Language::C => c::component(&Bench::new(folder, Language::C)?, tell),
        Language::Go => go::component(&Bench::new(folder, Language::Go)?, tell),
    }
}
