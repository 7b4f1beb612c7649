//! Errors of loading and calling a guest, worded for the guest's author.

use std::borrow::Cow;
use std::time::Duration;

use allot_allocation::{Need, shown};
use allot_component::TooLarge;
use thiserror::Error;
use wasmparser::{BinaryReaderError, Validator, WasmFeatures};

use crate::Kind;

/// Why a file can't be loaded as a component of the expected kind.
#[derive(Debug, Error)]
pub enum LoadError {
    // === Not a component ===
    /// The file is empty.
    #[error("the file is empty")]
    Empty,
    /// The file is larger than a component may be.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// Text in the Wasm text format.
    #[error("the file is Wasm text, not a binary component")]
    Text,
    /// Anything else that is not Wasm.
    #[error("the file is not a Wasm component: it does not begin with the Wasm magic number")]
    NotWasm,
    /// A core module.
    #[error("the file is a core Wasm module, not a component")]
    CoreModule,
    /// The file is truncated or corrupt.
    #[error("the component is damaged or cut off: {0}")]
    Damaged(String),
    /// The component uses a Wasm proposal that is not supported here.
    #[error("the component uses an unsupported part of Wasm: {0}")]
    Unsupported(String),
    /// Compiling the component would take too much time and memory.
    #[error("the component is too large to compile: {0}")]
    TooHeavy(String),

    // === A component with another contract ===
    /// No export belongs to the expected kind's contract.
    #[error("the component exports {exports}, but no `{}/{}`", kind.package(), kind.interface())]
    NoExport {
        /// The expected kind.
        kind: Kind,
        /// The component's exports, in words.
        exports: String,
        /// The kind that the component has instead, if known.
        is: Option<Kind>,
    },
    /// The component exports a contract version that is not supported here.
    #[error("this {} is built for {built_for}; this program knows {known}", kind.noun())]
    OtherVersion {
        /// The component's kind.
        kind: Kind,
        /// The component's contract version, with the contract's name.
        built_for: String,
        /// The supported versions, in words.
        known: String,
        /// Whether the component's version is newer than all supported versions.
        newer: bool,
    },
    /// The component imports something that its kind is not given.
    #[error("the component imports `{name}`, which is not available to a {}", kind.noun())]
    ForeignImport {
        /// The component's kind.
        kind: Kind,
        /// The import's name.
        name: String,
    },
    /// The names of exports match the contract, but their types do not.
    #[error("the component does not fit the contract {contract}: {why}")]
    Misfit {
        /// The contract, with its version.
        contract: String,
        /// The mismatch, in the Wasm engine's words.
        why: String,
    },

    // === Not the requested component ===
    /// The component's hash differs from the hash in the config.
    #[error("the component's sha256 is {found}; the config expects {expected}")]
    OtherHash {
        /// The file's hash.
        found: String,
        /// The config's hash.
        expected: String,
    },

    // === Failures of the component ===
    /// The component's `describe` failed.
    #[error("its `describe` failed: {0}")]
    Describe(Fault),
    /// The component's description can't be used.
    #[error("its description is unusable: {0}")]
    Description(String),
    /// The Wasm engine itself failed.
    #[error("the Wasm engine failed: {0}")]
    Engine(String),
}

impl LoadError {
    /// Returns the error for a file that the Wasm reader rejected.
    pub(crate) fn damaged(error: &BinaryReaderError) -> Self {
        Self::Damaged(line(&error.to_string()))
    }

    /// Returns the error of a compiler: `Unsupported` if a validator with all proposals accepts the file.
    pub(crate) fn uncompiled(bytes: &[u8], words: String) -> Self {
        let whole = Validator::new_with_features(WasmFeatures::all()).validate_all(bytes).is_ok();
        if whole { Self::Unsupported(words) } else { Self::Damaged(words) }
    }

    /// Returns a hint for fixing the error.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Text => Some("build it into a component: allot build FILE"),
            Self::CoreModule => Some("make it a component: allot build FILE"),
            Self::NoExport { is: Some(Kind::Grader), .. } => {
                Some("name it with `use` in [reward.component], with grader `component`: it is a grader")
            }
            Self::NoExport { is: Some(Kind::Policy), .. } => {
                Some("name it with `use` in [policy]: it is a policy")
            }
            Self::NoExport { kind: Kind::Policy, .. } => {
                Some("export the contract's interface: `allot new NAME` makes a policy that does")
            }
            Self::NoExport { kind: Kind::Grader, .. } => Some(
                "export the contract's interface: `allot new NAME --kind grader` makes a grader that does",
            ),
            Self::OtherVersion { newer: true, kind: Kind::Policy, .. } => {
                Some("use a newer version of this program, or build the policy with this one: allot build")
            }
            Self::OtherVersion { newer: true, kind: Kind::Grader, .. } => {
                Some("use a newer version of this program, or build the grader with this one: allot build")
            }
            Self::OtherVersion { .. } | Self::Misfit { .. } => {
                Some("build it again with this program: allot build")
            }
            Self::ForeignImport { kind: Kind::Policy, name } if name.starts_with("wasi:http") => {
                Some("build it without the http feature: a policy has no network")
            }
            Self::ForeignImport { kind: Kind::Policy, .. } => Some(
                "import only `rollout:allocation/log` and restricted WASI: a policy has no files and no \
                 network",
            ),
            Self::ForeignImport { kind: Kind::Grader, .. } => Some(
                "import only `rollout:reward/log` and restricted WASI: a grader has no files and no network",
            ),
            Self::OtherHash { .. } => Some("load the file that the config means, or change `sha256` in it"),
            Self::Damaged(_) => Some("copy or build it again"),
            Self::Unsupported(_) => Some(
                "build it without that feature: by default compilers use WebAssembly 2.0, which every engine \
                 runs",
            ),
            Self::TooHeavy(_) => Some(
                "split that function into smaller ones; compilers do not make functions like this from \
                 ordinary code",
            ),
            Self::Describe(fault) => fault.hint(),
            _ => None,
        }
    }
}

/// Why a call of a guest returned no answer. A plan that breaks a rule is not a fault: it is an answer.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum Fault {
    /// It executed more instructions than the limit. This repeats on any machine.
    #[error("ran out of fuel: more than {0} Wasm instructions in one call")]
    OutOfFuel(u64),
    /// It exceeded the time limit, which backs up the fuel limit.
    #[error("ran out of time: more than {} s in one call{}", limit.as_secs_f64(), place_words(place.as_deref()))]
    OutOfTime {
        /// The limit.
        limit: Duration,
        /// The function and line where it was interrupted. Only drafts report it.
        place: Option<String>,
    },
    /// It requested more memory than the limit.
    #[error("ran out of memory: it requested {wanted} bytes of at most {limit}")]
    OutOfMemory {
        /// The bytes that its memory would have grown to.
        wanted: usize,
        /// The limit.
        limit: usize,
    },
    /// It returned or logged more bytes at once than allowed.
    #[error("returned or logged too much: more than {0} bytes at once")]
    TooMuch(usize),
    /// `begin` returned a state larger than a record can hold.
    #[error("returned a state of {found} bytes; the limit of the record is {most}")]
    StateTooLarge {
        /// The state's size in bytes.
        found: usize,
        /// The limit in bytes.
        most: usize,
    },
    /// It aborted, or did something that Wasm forbids.
    #[error("trapped: {reason}{}", last_words(said))]
    Trapped {
        /// The trap, in the engine's words.
        reason: String,
        /// The guest's last output: lines that it printed, or logged as warnings or errors.
        said: String,
        /// The guest's stack, innermost frame first, if the component has function names.
        stack: Vec<String>,
    },
    /// It needs something that this run does not provide.
    #[error("needs `{0}`, which this run does not provide")]
    Lacking(Need),
    /// Its description names a column that this run does not have.
    #[error("wants the column `{0}`, which this run does not have")]
    WithoutColumn(String),
    /// It requested or used something that it may not.
    #[error("{0}")]
    Misused(Misuse),
    /// It returned an error of its own.
    #[error("{0}")]
    Refused(Refusal),
    /// The Wasm engine failed.
    #[error("could not be called: {0}")]
    Engine(String),
}

/// Something that a guest requested or used although its description or the run's size excludes it. Stops
/// the call at once.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("{what}")]
pub struct Misuse {
    /// What the guest did, and what is allowed.
    pub what: String,
    /// A hint for the guest's author.
    pub hint: Cow<'static, str>,
}

impl Misuse {
    pub(crate) fn new(what: String, hint: impl Into<Cow<'static, str>>) -> Self {
        Self { what, hint: hint.into() }
    }
}

/// A policy's own error.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum Refusal {
    /// A setting has a value that the policy rejects.
    #[error("refused its setting `{name}`: {reason}")]
    Setting {
        /// The setting's name.
        name: String,
        /// Why the policy rejects the value.
        reason: String,
    },
    /// The policy did not write this state.
    #[error("refused its state: {0}")]
    State(String),
    /// Anything else.
    #[error("gave up: {0}")]
    Other(String),
}

impl Refusal {
    pub(crate) fn setting(name: &str, reason: &str) -> Self {
        Self::Setting { name: line(name), reason: line(reason) }
    }

    pub(crate) fn state(reason: &str) -> Self {
        Self::State(line(reason))
    }

    pub(crate) fn other(reason: &str) -> Self {
        Self::Other(line(reason))
    }
}

/// Returns a guest's text as one line.
fn line(words: &str) -> String {
    shown::line(words, shown::LINE)
}

fn place_words(place: Option<&str>) -> String {
    place.map_or_else(String::new, |place| format!("; it was in {place}"))
}

fn last_words(words: &str) -> String {
    match words.lines().count() {
        0 => String::new(),
        1 => format!("; it said: {words}"),
        // Usually a stack trace.
        _ => words.lines().fold("; it said:".to_owned(), |text, line| text + "\n    " + line),
    }
}

impl Fault {
    /// Returns the hint, then the guest's stack.
    pub fn hints(&self) -> impl Iterator<Item = String> {
        self.hint().map(str::to_owned).into_iter().chain(self.stack())
    }

    /// Returns where the guest was.
    pub fn stack(&self) -> Option<String> {
        match self {
            // With output of the guest, the stack is left out: it may be an interpreter's.
            Self::Trapped { stack, said, .. } if !stack.is_empty() && said.is_empty() => {
                Some(format!("it was in {}", stack.join(" < ")))
            }
            _ => None,
        }
    }

    /// Returns a hint for the policy's author.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::OutOfFuel(_) => Some("look for an endless loop, or raise `fuel` under [policy.limits]"),
            Self::OutOfTime { .. } => {
                Some("look for an endless loop, or raise `seconds` under [policy.limits]")
            }
            Self::OutOfMemory { .. } => {
                Some("look for a list that only grows, or raise `memory` under [policy.limits]")
            }
            Self::TooMuch(_) => {
                Some("look for a list that only grows: a plan names each prompt once in a list")
            }
            Self::Lacking(Need::Parts) => Some(
                "name the parts of rewards in `[reward.weights]`, or give each a grader under [[reward.graders]]",
            ),
            Self::Lacking(Need::Updating) => {
                Some("set `update.by_policy = true`, or `update=` in a trainer in Python")
            }
            Self::Lacking(Need::Sampling) => Some(
                "set in `[requests]` what requests may choose, or `requests=` in a trainer in Python that samples as they say",
            ),
            Self::Lacking(Need::Replay) => Some(
                "use `allot train` or `simulate`: this trainer in Python discards what it has trained on",
            ),
            Self::Lacking(Need::Turns) => {
                Some("make rollouts episodes, with a section [environment]; a trainer in Python has none")
            }
            Self::Lacking(Need::Starting) => Some(
                "use an environment that replies alike to what it is told alike: `guess`, or a class with \
                 `environment.deterministic = true`",
            ),
            Self::WithoutColumn(_) => Some(
                "name a policy that needs only the columns of the run's own policy: the record has no others",
            ),
            Self::Misused(misuse) => Some(&misuse.hint),
            Self::StateTooLarge { .. } => Some("keep only what is not in every view"),
            Self::Refused(Refusal::State(_)) => Some("use the policy build that wrote the state"),
            _ => None,
        }
    }
}
