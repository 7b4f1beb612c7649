//! Loads a policy: the name of a shipped one, the path of a component, or an address in a registry.

use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use allot_allocation::Run;
use allot_allocation::shown;
use allot_authoring::draft::{self, Draft};
use allot_base::{Error, Result, cache, did_you_mean, is_registry_address, listed, turn};
use allot_component::Kind;
use allot_judges::component;
use allot_remote::registry::Reference;
use allot_sandbox::{Caps, Cost, Description, Fault, Grader, Interpreter, LoadError, Policy, Sandbox};
use allot_settings::RewardConfig;

use crate::screen::Screen;
use crate::shipped;

/// Components of at least this many bytes are compiled with a message on the screen. Compiling smaller ones
/// takes less time than reading it.
const LARGE: usize = 1 << 20;

/// Returns a sandbox with these limits, which caches compiled code in the user's cache folder.
pub fn sandbox(caps: Caps) -> Result<Sandbox> {
    Sandbox::new(caps, cache("wasm").as_deref()).map_err(|e| Error::new(e.to_string()))
}

/// Loads a policy for `simulate`, `check` and `replay`: a component as in [`load`], or a draft.
pub fn load_or_draft(sandbox: &Sandbox, source: &str, screen: &mut Screen<'_>) -> Result<Policy> {
    if is_draft(source) { draft(source, sandbox.caps()) } else { load(sandbox, source, None, screen) }
}

/// Returns whether a source is a draft: a Python file, or the folder of a policy in Python.
pub fn is_draft(source: &str) -> bool {
    !is_registry_address(source) && shipped::component(source).is_none() && draft::is_one(Path::new(source))
}

/// Returns the limits of a draft's call: a component's memory and time, but one minute instead of the
/// default time. A component's endless loop runs out of fuel, which a draft does not have.
pub fn draft_caps(caps: Caps) -> Caps {
    let time = if caps.time == Caps::default().time { Duration::from_mins(1) } else { caps.time };
    Caps { time, ..caps }
}

/// Loads a draft with the time and memory limits in `caps`.
pub fn draft(source: &str, caps: Caps) -> Result<Policy> {
    of_draft(Draft::of(Path::new(source))?, source, caps)
}

/// Loads a policy from a draft. Errors call it `source`.
pub fn of_draft(draft: Draft, source: &str, caps: Caps) -> Result<Policy> {
    let Draft { python, sdk, folder, sources, scratch } = draft;
    let mut all = Vec::new();
    for (name, bytes) in &sources {
        all.extend_from_slice(format!("{name} {}\n", bytes.len()).as_bytes());
        all.extend_from_slice(bytes);
    }
    let size = sources.iter().map(|(_, bytes)| bytes.len() as u64).sum();
    let held = scratch.map(|scratch| Box::new(scratch) as Box<_>);
    let caps = draft_caps(caps);
    let draft = allot_sandbox::Draft::new(Interpreter { python, sdk, folder, caps, held });
    Policy::draft(draft, allot_sandbox::sha256(&all), size).map_err(|e| match e {
        LoadError::Describe(Fault::Trapped { said, .. }) => {
            let start = format!("`{source}` does not load as a policy; Python says:");
            let what = said.lines().fold(start, |text, line| text + "\n    " + line);
            Error::new(what).hints(missing_module(&said))
        }
        e => Error::told(format!("could not load the draft `{source}`: {e}"), e.hint()),
    })
}

/// Returns a hint for a module that Python did not find, if that is the error.
fn missing_module(said: &str) -> Option<String> {
    let last = said.lines().last()?.strip_prefix("ModuleNotFoundError: No module named '")?;
    let module = last.split(['.', '\'']).next()?;
    Some(format!(
        "copy `{module}` beside `policy.py` if it is pure Python; a component cannot contain compiled packages, such as numpy"
    ))
}

/// Loads a policy by the name of a shipped one, by the path of a component, or by its address in a
/// registry. Other text with a slash or a file extension is a path.
pub fn load(
    sandbox: &Sandbox,
    source: &str,
    sha256: Option<&str>,
    screen: &mut Screen<'_>,
) -> Result<Policy> {
    let bytes = bytes(source, screen)?;
    of_bytes(sandbox, &bytes, sha256, source, screen)
}

/// Loads a policy from a component's bytes.
pub fn of_bytes(
    sandbox: &Sandbox,
    bytes: &[u8],
    sha256: Option<&str>,
    source: &str,
    screen: &mut Screen<'_>,
) -> Result<Policy> {
    compiled(sandbox, bytes, sha256, source, screen)
        .map_err(|e| Error::told(format!("could not load policy `{source}`: {e}"), e.hint()))
}

/// Returns a component's bytes.
pub fn bytes(source: &str, screen: &mut Screen<'_>) -> Result<Vec<u8>> {
    if is_registry_address(source) {
        let reference = Reference::parse(source)?;
        screen.draw(format_args!("fetching {source}"));
        let fetched = allot_remote::registry::fetch(&reference, cache("policies").as_deref());
        screen.draw("");
        return fetched;
    }
    let path = Path::new(source);
    if is_draft(source) {
        let folder = if path.is_dir() { path } else { path.parent().unwrap_or(path) };
        let what = format!("`{source}` is a draft: only `simulate`, `check` and `replay` run drafts");
        let hint = format!("build the component, and give its path: `allot build {}`", shown::path(folder));
        return Err(Error::new(what).hint(hint));
    }
    if source.contains(['/', '\\']) || path.extension().is_some() {
        return allot_component::read(path, Kind::Policy);
    }
    if let Some(bytes) = shipped::component(source) {
        return Ok(bytes.to_owned());
    }
    let near = did_you_mean(source, shipped::names());
    let own = "give your own component by its path, as in `./mine.wasm`";
    Err(Error::new(format!("no policy is called `{source}`")).hint(near).hint(own))
}

/// Calls a policy's `begin`. Returns its first state and the call's cost. Errors call the policy `role`.
pub fn begun(policy: &Policy, run: &Run, role: &str) -> Result<(Vec<u8>, Cost)> {
    policy.begin(run).map_err(|fault| {
        let name = &policy.description().name;
        Error::told(format!("{role} `{name}` {fault}"), fault.hint())
    })
}

/// Fails if a policy needs a signal that this engine does not measure.
pub fn measurable(policy: &Description, engine: &str, signals: &[impl AsRef<str>]) -> Result<()> {
    let all = || signals.iter().map(AsRef::as_ref);
    let Some(missing) = policy.signals.iter().find(|wanted| !all().any(|one| one == *wanted)) else {
        return Ok(());
    };
    let name = &policy.name;
    let what = format!("policy `{name}` wants the signal `{missing}`, which engine `{engine}` can't measure");
    Err(Error::new(what).hint(format!("use signals that it measures: {}", listed(all()))))
}

/// Compiles a policy's component, or uses the cache.
pub fn compiled(
    sandbox: &Sandbox,
    bytes: &[u8],
    sha256: Option<&str>,
    name: &str,
    screen: &mut Screen<'_>,
) -> std::result::Result<Policy, LoadError> {
    patiently(bytes, name, screen, || sandbox.load(bytes, sha256))
}

/// Compiles a grader's component, or uses the cache.
pub fn grader(
    sandbox: &Sandbox,
    bytes: &[u8],
    name: &str,
    screen: &mut Screen<'_>,
) -> std::result::Result<Grader, LoadError> {
    patiently(bytes, name, screen, || sandbox.load_grader(bytes, None))
}

/// Compiles large graders early, while the screen can show it. Errors are reported when they are loaded.
pub fn compile_graders(reward: &RewardConfig, screen: &mut Screen<'_>) {
    for component in reward.each().iter().filter_map(|one| one.component.as_ref()) {
        let bytes = component::bytes(component).unwrap_or_default();
        if let (true, Ok(sandbox)) = (bytes.len() >= LARGE, sandbox(component.caps())) {
            let _ = grader(&sandbox, &bytes, &component.source, screen);
        }
    }
}

/// Loads a component. The first time, an interpreter takes most of a minute, which the screen shows.
fn patiently<T: Send>(
    bytes: &[u8],
    name: &str,
    screen: &mut Screen<'_>,
    load: impl FnOnce() -> std::result::Result<T, LoadError> + Send,
) -> std::result::Result<T, LoadError> {
    if bytes.len() < LARGE {
        return load();
    }
    std::thread::scope(|scope| {
        let (send, receive) = mpsc::channel();
        let work = scope.spawn(move || {
            let _turn = turn(&allot_sandbox::sha256(bytes));
            let _ = send.send(load());
        });
        let began = Instant::now();
        let mut told = false;
        loop {
            match receive.recv_timeout(Duration::from_millis(250)) {
                Ok(loaded) => {
                    screen.draw("");
                    return loaded;
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let panic = work.join().err().unwrap_or_else(|| Box::new("the compiler went away"));
                    std::panic::resume_unwind(panic);
                }
                Err(RecvTimeoutError::Timeout) if began.elapsed() < Duration::from_secs(1) => {}
                Err(RecvTimeoutError::Timeout) => {
                    if !told {
                        let size = bytes.len() as f64 / 1e6;
                        screen.tell(format_args!(
                            "compiling `{name}`, {size:.1} MB, for this machine; the result is cached"
                        ));
                        told = true;
                    }
                    screen.draw(format_args!("{} s", began.elapsed().as_secs()));
                }
            }
        }
    })
}
