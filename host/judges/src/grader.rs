//! Checks whether a grader can read a gold answer.

use crate::python::trial::Trial;
use allot_settings::AnyGrader;

use crate::environment;

/// Returns whether a grader can read a gold answer; always true for processes and servers.
pub fn reads(grader: AnyGrader, gold: &str) -> bool {
    match grader {
        AnyGrader::Native(grader) => grader.reads(gold),
        AnyGrader::Python => Trial::of(gold).is_ok(),
        AnyGrader::Environment => environment::reads(gold),
        AnyGrader::MathVerify
        | AnyGrader::Command
        | AnyGrader::Functions
        | AnyGrader::Http
        | AnyGrader::Component
        | AnyGrader::Pattern
        | AnyGrader::Episode => true,
    }
}
