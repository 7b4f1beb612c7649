//! Calls the tools of a language: their versions, output and errors.

use std::process::{Command, Stdio};

use allot_base::{Error, Result};

/// Returns the first line of a program's version output, if the program works.
pub(crate) fn version(command: &mut Command) -> Option<String> {
    let said = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&said.stdout).lines().next().unwrap_or_default().trim().to_owned();
    said.status.success().then_some(text)
}

/// Runs a program. Returns its output if it fails.
pub(super) fn complaint(command: &mut Command) -> Result<Option<String>> {
    let program = command.get_program().to_string_lossy().into_owned();
    let done = command.stdin(Stdio::null()).output();
    let done = done.map_err(|e| Error::new(format!("could not run `{program}`: {e}")))?;
    let said = [done.stdout, done.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    Ok((!done.status.success()).then_some(said))
}

/// Runs a program and returns its standard output; its standard error goes to the terminal.
pub(super) fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let args: Vec<String> = command.get_args().take(2).map(|a| a.to_string_lossy().into_owned()).collect();
    let done = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).output();
    let done = done.map_err(|e| Error::new(format!("could not run `{program}`: {e}")))?;
    if !done.status.success() {
        return Err(Error::new(format!("`{program} {}` failed ({})", args.join(" "), done.status)));
    }
    String::from_utf8(done.stdout).map_err(|_| Error::new(format!("`{program}` did not print UTF-8")))
}
