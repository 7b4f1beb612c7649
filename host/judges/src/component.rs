//! Graders that are components, asked by threads in batches. What an answer comes to depends on nothing but the answer, its
//! problem, the settings and the limits: a batch that fails is asked about again, one answer at a time.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use allot_allocation::{Value, shown};
use allot_error::panics::caught;
use allot_error::{Error, Result};
use allot_files::{cache, is_registry_address, turn};
use allot_registry::Reference;
use allot_sandbox::{Asked, Fault, Grader, Kind, LoadError, Sandbox, Score};
use allot_settings::ComponentConfig;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::identity::{Identity, Preflight};
use super::protocol::{Hello, Judgement, Opinion, Question};

/// Answers of a batch. It is the same on every machine, so that even a grader that remembers what it should not is asked
/// the same. Larger ones spare an interpreter little more, and leave cores idle at the end of a round.
pub const BATCH: usize = 16;
/// Settings that are longer than this stand in a record as their hash.
const LONG: usize = 1024;
/// Bytes of why a grader failed: a traceback, at most.
const TROUBLE: usize = 8 << 10;

/// The component, compiled, and its settings in force.
///
/// # Errors
///
/// A component that is not there, is no grader, or has no such settings.
pub fn open(config: &ComponentConfig) -> Result<(Grader, Vec<(String, Value)>)> {
    let bytes = bytes(config)?;
    let sandbox =
        Sandbox::new(config.caps(), cache("wasm").as_deref()).map_err(|e| Error::new(e.to_string()))?;
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

/// The component's bytes.
///
/// # Errors
///
/// A component that is not there, or is too large.
pub fn bytes(config: &ComponentConfig) -> Result<Vec<u8>> {
    let source = &config.source;
    if is_registry_address(source) {
        return allot_registry::fetch(&Reference::parse(source)?, cache("policies").as_deref());
    }
    let path = Path::new(source);
    allot_component::read(path, Kind::Grader).map_err(|error| {
        let hint = "`use` in [reward.component] is the path of a component, or its address in a registry";
        if path.exists() { error } else { error.hint(hint) }
    })
}

/// A grader and its settings.
struct Judge {
    grader: Grader,
    settings: Vec<(String, Value)>,
}

/// Answers and their places.
type Batch = Vec<(usize, Question)>;

/// Threads that ask a grader.
pub struct Components {
    ask: Sender<Batch>,
    told: UnboundedReceiver<Vec<(usize, Opinion)>>,
    /// What waits for a batch to be full.
    waiting: Batch,
    /// How many are being judged.
    open: usize,
}

impl Components {
    /// As many threads as there are cores. `known` is who judged when the run began.
    ///
    /// # Errors
    ///
    /// A component that cannot be loaded, or is another one by now.
    pub fn new(config: &ComponentConfig, known: Option<&Identity>) -> Result<Self> {
        let judge = Arc::new(Judge::open(config)?);
        let (identity, words) = (judge.identity(), words(config));
        if let Some(how) = known.and_then(|known| identity.apart(known, &words)) {
            return Err(Error::new(format!("the grader is another one than when the run began: {how}")));
        }
        let (ask, asked) = channel();
        let (tell, told) = unbounded_channel();
        let asked = Arc::new(Mutex::new(asked));
        for _ in 0..std::thread::available_parallelism().map_or(1, NonZero::get) {
            let (asked, tell, judge) = (Arc::clone(&asked), tell.clone(), Arc::clone(&judge));
            std::thread::spawn(move || work(&asked, &tell, &judge));
        }
        Ok(Self { ask, told, waiting: Vec::new(), open: 0 })
    }

    /// Loads the component, lets it begin with its settings and judge an answer; gives who judges. `weights` are those that
    /// the config has for parts of rewards.
    ///
    /// # Errors
    ///
    /// A component that cannot be loaded, refuses its settings, or has not these parts.
    pub fn check(
        config: &ComponentConfig,
        weights: &BTreeMap<String, f32>,
        greeting: &Question,
    ) -> Result<Preflight> {
        let judge = Judge::open(config)?;
        let description = judge.grader.description();
        let name = &description.name;
        let (parts, weighs) = (&description.parts, |part: &&String| weights.contains_key(part.as_str()));
        if let Some(other) = weights.keys().find(|weight| !parts.contains(weight)) {
            let has = allot_error::listed(parts.iter().map(String::as_str));
            let has = if parts.is_empty() {
                "its rewards have no parts".to_owned()
            } else {
                format!("it has {has}")
            };
            let what = format!("grader `{name}` has no part `{other}`, which `reward.weights` has");
            return Err(Error::new(what).hint(has));
        }
        if let Some(part) = parts.iter().find(|part| !weights.is_empty() && !weighs(part)) {
            let what = format!("grader `{name}` has a part `{part}`, which `reward.weights` has not");
            return Err(Error::new(what).hint("weigh it, with 0 if it is not to count"));
        }
        judge.grader.begin(&judge.settings).map_err(|fault| {
            let hints = limit(&fault).map(str::to_owned).into_iter().chain(fault.stack());
            Error::new(format!("grader `{name}` {fault}")).hints(hints)
        })?;
        let opinion = judge.opinions(std::slice::from_ref(greeting)).remove(0);
        Ok(Preflight { identity: judge.identity(), words: words(config), opinion })
    }

    /// Begins to judge an answer: with its batch, once that is full.
    pub fn begin(&mut self, place: usize, question: Question) {
        self.waiting.push((place, question));
        if self.waiting.len() == BATCH {
            self.send();
        }
    }

    fn send(&mut self) {
        let batch = std::mem::take(&mut self.waiting);
        if batch.is_empty() {
            return;
        }
        let answers = batch.len();
        // Threads end only when this does.
        if self.ask.send(batch).is_ok() {
            self.open += answers;
        }
    }

    /// All that was begun, in any order.
    pub async fn finish(&mut self) -> Vec<(usize, Opinion)> {
        self.send();
        let mut all = Vec::with_capacity(self.open);
        while self.open > 0 {
            let Some(told) = self.told.recv().await else { break };
            self.open -= told.len();
            all.extend(told);
        }
        all
    }
}

fn work(asked: &Mutex<Receiver<Batch>>, tell: &UnboundedSender<Vec<(usize, Opinion)>>, judge: &Judge) {
    loop {
        let next = asked.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(batch) = next else { return };
        let (places, questions): (Vec<usize>, Vec<Question>) = batch.into_iter().unzip();
        // The Wasm engine is not ours: whoever waits for these answers hears of them, whatever happens in it.
        let opinions = caught(|| judge.opinions(&questions)).unwrap_or_else(|why| {
            let name = &judge.grader.description().name;
            vec![Err(format!("grader `{name}` could not be called: {why}")); questions.len()]
        });
        if tell.send(places.into_iter().zip(opinions).collect()).is_err() {
            return;
        }
    }
}

impl Judge {
    fn open(config: &ComponentConfig) -> Result<Self> {
        let (grader, settings) = open(config)?;
        Ok(Self { grader, settings })
    }

    fn settings(&self) -> String {
        let settings = self.settings.iter().map(|(name, value)| (name.clone(), serde_json::json!(value)));
        serde_json::Value::Object(settings.collect()).to_string()
    }

    /// Who judges: the component's content, its settings in force, and what it says of itself.
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
            told: Hello { name: Some(d.name.clone()), version: Some(d.version.clone()) },
        }
    }

    /// A verdict on each answer, as if each had been asked about alone: all of a batch share the limits of one, and
    /// where the batch fails, each is asked about alone.
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
        let alone = |asked: &Asked<'_>| {
            let told = together(std::slice::from_ref(asked)).map(|mut one| one.remove(0));
            told.unwrap_or_else(|fault| {
                Err(format!("grader `{name}` {}", shown::lines(&fault.to_string(), TROUBLE)))
            })
        };
        if let [_, _, ..] = batch[..]
            && let Ok(all) = together(&batch)
        {
            return all;
        }
        batch.iter().map(alone).collect()
    }
}

/// What to do about a grader that is not loaded.
pub fn hint(error: &LoadError) -> Option<&str> {
    match error {
        LoadError::Describe(fault) => limit(fault),
        other => other.hint(),
    }
}

/// What to do about a grader that used up a limit.
fn limit(fault: &Fault) -> Option<&str> {
    match fault {
        Fault::OutOfFuel(_) => Some("look for an endless loop, or raise `fuel` under [reward.component]"),
        Fault::OutOfTime(_) => Some("look for an endless loop, or raise `seconds` under [reward.component]"),
        Fault::OutOfMemory { .. } => {
            Some("look for what only grows, or raise `memory` under [reward.component]")
        }
        _ => None,
    }
}

/// What a message calls the words of a grader's identity.
fn words(config: &ComponentConfig) -> Vec<String> {
    vec!["contract".to_owned(), config.source.clone(), "settings".to_owned()]
}

fn asked(question: &Question) -> Asked<'_> {
    let Question { gold, answer, prompt, source } = question;
    Asked { prompt, source, gold, answer }
}

fn judgement(score: Score) -> Judgement {
    let Score { correct, reward, parts } = score;
    Judgement { correct, reward, parts, share: None }
}
