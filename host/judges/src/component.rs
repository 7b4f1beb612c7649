//! Graders that are components, called in batches on all cores. An opinion depends only on the answer, its
//! problem, the settings and the limits: a batch that fails is graded again, one answer at a time. If a grader compares
//! answers, a batch is a group, and an opinion depends on the group, too.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use allot_allocation::{Value, shown};
use allot_base::{Error, Result, cache, is_registry_address, panics::caught, turn};
use allot_remote::registry::Reference;
use allot_sandbox::{Asked, Fault, Grader, Kind, LoadError, Sandbox, Score};
use allot_settings::ComponentConfig;

use super::identity::{GraderPreflight, Identity};
use super::protocol::{Hello, Judgement, Opinion, Question};
use super::workers::{Batch, Groups, Workers};

/// Answers of a batch. The number is the same on every machine, so that even a grader with hidden state
/// gets the same calls. Larger batches save little, and leave cores idle at the end of a round.
pub const BATCH: usize = 16;
/// Settings longer than this are recorded as their hash.
const LONG: usize = 1024;
/// The most bytes of a failure's description, such as a traceback.
const TROUBLE: usize = 8 << 10;

/// Returns the compiled component, and its settings with defaults filled in. Compiled code is cached in `folder`, if given.
///
/// # Errors
///
/// A component that is missing, is not a grader, or does not have these settings.
pub fn open(config: &ComponentConfig, folder: Option<&Path>) -> Result<(Grader, Vec<(String, Value)>)> {
    let bytes = bytes(config)?;
    let sandbox = Sandbox::new(config.caps(), folder).map_err(|e| Error::new(e.to_string()))?;
    let loaded = {
        let _turn = turn(&allot_component::sha256(&bytes));
        sandbox.load_grader(&bytes, config.sha256.as_deref())
    };
    let source = &config.source;
    let grader =
        loaded.map_err(|e| Error::told(format!("could not load grader `{source}`: {e}"), hint(&e)))?;
    let description = grader.description();
    let owner = format!("grader `{}`", description.name);
    let settings = allot_component::settings(&owner, &description.settings, &config.settings)?;
    Ok((grader, settings))
}

/// Returns the component's bytes.
///
/// # Errors
///
/// A component that is missing or too large.
pub fn bytes(config: &ComponentConfig) -> Result<Vec<u8>> {
    let source = &config.source;
    if is_registry_address(source) {
        return allot_remote::registry::fetch(&Reference::parse(source)?, cache("policies").as_deref());
    }
    let path = Path::new(source);
    allot_component::read(path, Kind::Grader).map_err(|error| {
        let hint = "set `use` in [reward.component] to the path of a component, or its address in a registry";
        if path.exists() { error } else { error.hint(hint) }
    })
}

/// A grader and its settings.
struct Loaded {
    grader: Grader,
    settings: Vec<(String, Value)>,
}

/// A grader that is a component.
pub struct Components {
    loaded: Arc<Loaded>,
    workers: Workers<Batch, Vec<(usize, Opinion)>>,
    /// Answers that wait for a full batch.
    waiting: Batch,
    /// Answers whose group is not complete, if they are compared.
    groups: Groups,
}

impl Components {
    /// Returns a grader with one batch per core at a time. `known` is its identity when the run began.
    ///
    /// # Errors
    ///
    /// A component that cannot be loaded, or has changed since.
    pub fn new(config: &ComponentConfig, known: Option<&Identity>) -> Result<Self> {
        Self::cached(config, known, cache("wasm").as_deref())
    }

    /// As [`Components::new`], with compiled code cached in `folder`, if given, and not in this user's cache.
    ///
    /// # Errors
    ///
    /// A component that cannot be loaded, or has changed since.
    pub fn cached(config: &ComponentConfig, known: Option<&Identity>, folder: Option<&Path>) -> Result<Self> {
        let loaded = Arc::new(Loaded::open(config, folder)?);
        let (identity, words) = (loaded.identity(), words(config));
        if let Some(how) = known.and_then(|known| identity.apart(known, &words)) {
            return Err(Error::new(format!("the grader has changed since the run began: {how}")));
        }
        let judge = Arc::clone(&loaded);
        let workers = Workers::computing(move |batch: Batch| {
            let (places, questions): (Vec<usize>, Vec<Question>) = batch.into_iter().unzip();
            // A panic in the Wasm engine is turned into an opinion.
            let opinions = caught(|| judge.opinions(&questions)).unwrap_or_else(|why| {
                let name = &judge.grader.description().name;
                vec![Err(format!("grader `{name}` could not be called: {why}")); questions.len()]
            });
            places.into_iter().zip(opinions).collect()
        });
        Ok(Self { loaded, workers, waiting: Vec::new(), groups: Groups::default() })
    }

    /// Returns whether the grader compares the answers of a group.
    pub fn compare(&self) -> bool {
        self.loaded.grader.description().compares
    }

    /// Loads the component, passes it its settings and grades an answer. Returns its identity. `weights`
    /// are the config's weights of reward parts.
    ///
    /// # Errors
    ///
    /// A component that cannot be loaded, rejects its settings, or has other parts than `weights`.
    pub fn check(
        config: &ComponentConfig,
        weights: &BTreeMap<String, f32>,
        greeting: &Question,
    ) -> Result<GraderPreflight> {
        let loaded = Loaded::open(config, cache("wasm").as_deref())?;
        let description = loaded.grader.description();
        let name = &description.name;
        let (parts, weighs) = (&description.parts, |part: &&String| weights.contains_key(part.as_str()));
        if let Some(other) = weights.keys().find(|weight| !parts.contains(weight)) {
            let has = allot_base::listed(parts.iter().map(String::as_str));
            let has = if parts.is_empty() {
                "its rewards have no parts".to_owned()
            } else {
                format!("it has {has}")
            };
            let what = format!("grader `{name}` has no part `{other}`, which `reward.weights` has");
            return Err(Error::new(what).hint(has));
        }
        if let Some(part) = parts.iter().find(|part| !weights.is_empty() && !weighs(part)) {
            let what = format!("grader `{name}` has a part `{part}`, which `reward.weights` does not have");
            return Err(Error::new(what).hint("give it a weight, 0 if it should not count"));
        }
        loaded.grader.begin(&loaded.settings).map_err(|fault| {
            let hints = limit(&fault).map(str::to_owned).into_iter().chain(fault.stack());
            Error::new(format!("grader `{name}` {fault}")).hints(hints)
        })?;
        let opinion = loaded.opinions(std::slice::from_ref(greeting)).remove(0);
        let compares = loaded.grader.description().compares;
        Ok(GraderPreflight { identity: loaded.identity(), words: words(config), opinion, compares })
    }

    /// Starts grading an answer, as soon as its batch is full. An answer that is compared waits for its group.
    pub fn begin(&mut self, place: usize, question: Question) {
        if self.compare() {
            return self.groups.add(question.group, place, question);
        }
        self.waiting.push((place, question));
        if self.waiting.len() == BATCH {
            self.workers.begin(std::mem::take(&mut self.waiting));
        }
    }

    /// Returns the opinions on all answers since the last call, with their places, in any order: no group gets further
    /// answers.
    ///
    /// # Errors
    ///
    /// The system provides no thread.
    pub async fn finish(&mut self) -> Result<Vec<(usize, Opinion)>> {
        if !self.waiting.is_empty() {
            self.workers.begin(std::mem::take(&mut self.waiting));
        }
        for group in self.groups.complete() {
            self.workers.begin(group);
        }
        Ok(self.workers.finish().await?.into_iter().flatten().collect())
    }
}

impl Loaded {
    fn open(config: &ComponentConfig, folder: Option<&Path>) -> Result<Self> {
        let (grader, settings) = open(config, folder)?;
        Ok(Self { grader, settings })
    }

    fn settings(&self) -> String {
        let settings = self.settings.iter().map(|(name, value)| (name.clone(), serde_json::json!(value)));
        serde_json::Value::Object(settings.collect()).to_string()
    }

    /// Returns the identity: the component's content, its effective settings, and its name and version.
    fn identity(&self) -> Identity {
        let d = self.grader.description();
        let settings = self.settings();
        let settings = if settings.len() > LONG {
            format!("sha256:{}", allot_component::sha256(&settings))
        } else {
            settings
        };
        let component = format!("sha256:{}", self.grader.sha256());
        let contract = format!("{}@{}", Kind::Grader.package(), self.grader.contract());
        Identity {
            command: vec![contract, component, settings],
            hello: Hello { name: Some(d.name.clone()), version: Some(d.version.clone()) },
        }
    }

    /// Returns an opinion on each answer, as if each had been graded alone. A batch shares the limits of
    /// one call. If the batch fails, each answer is graded alone; but a group that fails has no verdict.
    fn opinions(&self, questions: &[Question]) -> Vec<Opinion> {
        let name = &self.grader.description().name;
        let batch: Vec<Asked<'_>> = questions.iter().map(asked).collect();
        let opinion = |judged: allot_sandbox::Judged| {
            judged.map(judgement).map_err(|why| format!("grader `{name}` {why}"))
        };
        let together = |batch: &[Asked<'_>]| -> std::result::Result<Vec<Opinion>, Fault> {
            let (verdicts, _) = self.grader.grade(&self.settings, batch)?;
            Ok(verdicts.into_iter().map(opinion).collect())
        };
        let or_failed = |batch: &[Asked<'_>]| {
            together(batch).unwrap_or_else(|fault| {
                let why = format!("grader `{name}` {}", shown::lines(&fault.to_string(), TROUBLE));
                vec![Err(why); batch.len()]
            })
        };
        if self.grader.description().compares {
            return or_failed(&batch);
        }
        if let [_, _, ..] = batch[..]
            && let Ok(all) = together(&batch)
        {
            return all;
        }
        batch.iter().flat_map(|asked| or_failed(std::slice::from_ref(asked))).collect()
    }
}

/// Returns a hint for a grader that can't be loaded.
pub fn hint(error: &LoadError) -> Option<&str> {
    match error {
        LoadError::Describe(fault) => limit(fault),
        other => other.hint(),
    }
}

/// Returns a hint for a grader that reached a limit.
fn limit(fault: &Fault) -> Option<&str> {
    match fault {
        Fault::OutOfFuel(_) => Some("look for an endless loop, or raise `fuel` under [reward.component]"),
        Fault::OutOfTime { .. } => {
            Some("look for an endless loop, or raise `seconds` under [reward.component]")
        }
        Fault::OutOfMemory { .. } => {
            Some("look for a list that only grows, or raise `memory` under [reward.component]")
        }
        _ => None,
    }
}

/// Returns the names of the identity's words in messages.
fn words(config: &ComponentConfig) -> Vec<String> {
    vec!["contract".to_owned(), config.source.clone(), "settings".to_owned()]
}

fn asked(question: &Question) -> Asked<'_> {
    let Question { gold, answer, prompt, source, .. } = question;
    Asked { prompt, source, gold, answer }
}

fn judgement(score: Score) -> Judgement {
    let Score { correct, reward, parts } = score;
    Judgement { correct, reward, parts, ..Judgement::default() }
}
