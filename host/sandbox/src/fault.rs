//! What can go wrong with a guest, in words for its author.

use std::borrow::Cow;
use std::time::Duration;

use allot_allocation::{Need, shown};
use allot_component::TooLarge;
use thiserror::Error;
use wasmparser::{BinaryReaderError, Validator, WasmFeatures};

use crate::Kind;

/// Why a file is no policy that this program can run. Found before anything of it runs.
#[derive(Debug, Error)]
pub enum LoadError {
    // === Not a component ===
    /// Nothing in it.
    #[error("the file is empty")]
    Empty,
    /// More than anyone means to load.
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
    /// Cut off, or broken inside.
    #[error("the component is damaged or cut off: {0}")]
    Damaged(String),
    /// A proposal to Wasm that is not run here.
    #[error("the component uses an unsupported part of Wasm: {0}")]
    Unsupported(String),
    /// More than a program needs, and than is compiled in reasonable time and memory.
    #[error("the component is too large to compile: {0}")]
    TooHeavy(String),

    // === A component of another world ===
    /// Nothing of its kind among its exports.
    #[error("the component exports {exports}, but no `{}/{}`", kind.package(), kind.interface())]
    NoExport {
        /// What it was taken for.
        kind: Kind,
        /// What it exports.
        exports: String,
        /// What it is instead.
        is: Option<Kind>,
    },
    /// An export of a contract version unknown here.
    #[error("this {} is built for {built_for}; this program knows {known}", kind.noun())]
    OtherVersion {
        /// What it is.
        kind: Kind,
        /// The version, with the contract's name.
        built_for: String,
        /// The versions known here, in words.
        known: String,
        /// Whether it came after those.
        newer: bool,
    },
    /// An import that no component of its kind is given.
    #[error("the component imports `{name}`, which is not available to a {}", kind.noun())]
    ForeignImport {
        /// What it is.
        kind: Kind,
        /// The import.
        name: String,
    },
    /// The names fit, the types do not.
    #[error("the component does not fit the contract {contract}: {why}")]
    Misfit {
        /// The contract, with its version.
        contract: String,
        /// What does not fit.
        why: String,
    },

    // === Not the one that was asked for ===
    /// Another hash than the config demands.
    #[error("the component's sha256 is {found}; the config expects {expected}")]
    OtherHash {
        /// The hash of the file.
        found: String,
        /// The hash demanded.
        expected: String,
    },

    // === Its own fault ===
    /// `describe` did not come back.
    #[error("its `describe` failed: {0}")]
    Describe(Fault),
    /// A description that no config could use.
    #[error("its description is unusable: {0}")]
    Description(String),
    /// The Wasm engine itself failed.
    #[error("the Wasm engine failed: {0}")]
    Engine(String),
}

impl LoadError {
    /// What a reader of Wasm says of a file.
    pub(crate) fn damaged(error: &BinaryReaderError) -> Self {
        Self::Damaged(line(&error.to_string()))
    }

    /// A file that the compiler refused, in its words: whole, if a reader that knows every proposal takes it.
    pub(crate) fn uncompiled(bytes: &[u8], words: String) -> Self {
        let whole = Validator::new_with_features(WasmFeatures::all()).validate_all(bytes).is_ok();
        if whole { Self::Unsupported(words) } else { Self::Damaged(words) }
    }

    /// What to do about it.
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

/// Why a call of a policy did not give an answer. Different things, never one for another; a plan that
/// breaks a rule is none of them, for it is an answer.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum Fault {
    /// It worked for longer than it may, counted in instructions: repeats on any machine.
    #[error("ran out of fuel: more than {0} Wasm instructions in one call")]
    OutOfFuel(u64),
    /// It took longer than it may on the clock: the backstop behind the fuel.
    #[error("ran out of time: more than {} s in one call{}", limit.as_secs_f64(), place_words(place.as_deref()))]
    OutOfTime {
        /// The limit.
        limit: Duration,
        /// The function and the line that it was in; only drafts report it.
        place: Option<String>,
    },
    /// It wanted more memory than it may have.
    #[error("ran out of memory: it requested {wanted} bytes of at most {limit}")]
    OutOfMemory {
        /// What its memory would have grown to.
        wanted: usize,
        /// The limit.
        limit: usize,
    },
    /// It handed over more than an answer can hold.
    #[error("returned or logged too much: more than {0} bytes at once")]
    TooMuch(usize),
    /// It began with a state that no record takes.
    #[error("returned a state of {found} bytes; the limit of the record is {most}")]
    StateTooLarge {
        /// Its bytes.
        found: usize,
        /// The bound.
        most: usize,
    },
    /// It stopped itself, or did what Wasm forbids.
    #[error("trapped: {reason}{}", last_words(said))]
    Trapped {
        /// The trap, in the engine's words.
        reason: String,
        /// The guest's last words: what it logged or printed.
        said: String,
        /// Its stack, innermost first, where the component names its functions.
        stack: Vec<String>,
    },
    /// It needs what this run can't give.
    #[error("needs `{0}`, which this run does not provide")]
    Lacking(Need),
    /// It is to be shown a column that this run does not have.
    #[error("wants the column `{0}`, which this run does not have")]
    WithoutColumn(String),
    /// It asked for or made use of what it may not.
    #[error("{0}")]
    Misused(Misuse),
    /// It returned its own error.
    #[error("{0}")]
    Refused(Refusal),
    /// The Wasm engine failed around it.
    #[error("could not be called: {0}")]
    Engine(String),
}

/// What a guest asked for or made use of, though its description or the run's size says otherwise. Stops it on the
/// spot.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("{what}")]
pub struct Misuse {
    /// What it did, and what it may do.
    pub what: String,
    /// What its author can do about it.
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
    /// A setting has a value that it can't work with.
    #[error("refused its setting `{name}`: {reason}")]
    Setting {
        /// The setting.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The state is none that it has written.
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

/// Returns a guest's words in one line.
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
        // A stack, most often.
        _ => words.lines().fold("; it said:".to_owned(), |text, line| text + "\n    " + line),
    }
}

impl Fault {
    /// All there is to say beside the sentence: what to do, and where the guest was.
    pub fn hints(&self) -> impl Iterator<Item = String> {
        self.hint().map(str::to_owned).into_iter().chain(self.stack())
    }

    /// Where the guest was.
    pub fn stack(&self) -> Option<String> {
        match self {
            // Below a guest's own words there is the stack of what runs it, an interpreter maybe.
            Self::Trapped { stack, said, .. } if !stack.is_empty() && said.is_empty() => {
                Some(format!("it was in {}", stack.join(" < ")))
            }
            _ => None,
        }
    }

    /// What the policy's author can do about it.
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
                "set in `[requests]` what requests may choose; a trainer in Python does not support this yet",
            ),
            Self::Lacking(Need::Replay) => {
                Some("use `allot train` or `simulate`: a trainer in Python discards what it has trained on")
            }
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
