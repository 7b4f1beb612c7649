//! Episodes with task sets of verifiers: its environment server runs beside this program and calls an endpoint of this
//! program for each turn of its model.

mod task_sets;

use std::sync::Arc;
use std::time::Duration;

use allot_base::Result;
use allot_engine::episode::{Ended, EpisodeLimits, Opening, Reply, Stopped};
use allot_engine::{Environments, Replies, Said};
use allot_remote::runtime;
use allot_settings::EnvironmentSettings;
use allot_tasks::Problem;
use serde_json::{Map, Value, json};
use tokio::task::JoinHandle;

use crate::endpoint::{Endpoint, secret};
use crate::episodes::limits;
use crate::gate::Gate;
use crate::sessions::Sessions;
use crate::sidecar::{Call, Part, Sidecar, Take};
pub use task_sets::TaskSets;

/// Seeds are below this: numpy takes no larger ones.
const SEEDS: u64 = 1 << 32;
/// How often episodes are looked for whose environment is late.
const LOOK: Duration = Duration::from_millis(100);

/// The environments of a run.
pub struct Verifiers {
    settings: EnvironmentSettings,
    task_sets: Arc<TaskSets>,
    /// The problem of each prompt, by prompt id.
    problems: Arc<Vec<Problem>>,
    /// Each prompt's tokens.
    prompts: Vec<Vec<u32>>,
    /// What is told of requests that are refused.
    note: fn(&str),
    /// What runs once an episode has begun.
    running: Option<Running>,
    /// The secret name of each episode, by number.
    names: Vec<String>,
    /// Number of episodes so far: those of an earlier step may still end in their processes.
    begun: usize,
}

/// The endpoint, and the processes whose environments call it.
struct Running {
    endpoint: Endpoint,
    sessions: Arc<Sessions>,
    sidecars: Vec<Sidecar>,
    gate: Arc<Gate>,
    watch: JoinHandle<()>,
}

impl Verifiers {
    /// Returns the environments for these problems and their prompts.
    pub fn new(
        settings: EnvironmentSettings,
        task_sets: Arc<TaskSets>,
        (problems, prompts): (Arc<Vec<Problem>>, Vec<Vec<u32>>),
        note: fn(&str),
    ) -> Self {
        Self { settings, task_sets, problems, prompts, note, running: None, names: Vec::new(), begun: 0 }
    }

    fn running(&mut self) -> Result<&Running> {
        let running = match self.running.take() {
            Some(running) => running,
            None => self.start()?,
        };
        Ok(self.running.insert(running))
    }

    fn start(&self) -> Result<Running> {
        let process = self.settings.process.clone().unwrap_or_default();
        let (most, rows) = (self.settings.max_read_tokens as usize, self.settings.max_rows as usize);
        let sessions = Arc::new(Sessions::new(most, rows, self.task_sets.vocabulary));
        let gate = Arc::<Gate>::default();
        let endpoint = Endpoint::open(Arc::clone(&sessions), self.note)?;
        let start = |_| Sidecar::new(Arc::clone(&self.task_sets.command));
        let sidecars = (0..process.processes).map(start).collect::<Result<Vec<Sidecar>>>()?;
        let most = Duration::from_secs_f64(process.seconds);
        let watch = watch(most, Arc::clone(&sessions), sidecars.clone());
        Ok(Running { endpoint, sessions, sidecars, gate, watch: runtime()?.spawn(watch) })
    }

    fn opened(&mut self, opening: Opening, replies: &Replies) -> Result<()> {
        let Opening { number, prompt, start } = opening;
        let (process, slot) =
            (number % self.settings.process.clone().unwrap_or_default().processes, self.begun);
        self.begun += 1;
        let name = format!("{}-{process}-{slot}", secret()?);
        if self.names.len() <= number {
            self.names.resize(number + 1, String::new());
        }
        self.names[number].clone_from(&name);
        let problems = Arc::clone(&self.problems);
        let mut fields = task_sets::asked(&problems[prompt.0 as usize])?;
        let (tokens, most) = (self.prompts[prompt.0 as usize].clone(), self.settings.max_open);
        let running = self.running()?;
        fields.extend([
            ("do".to_owned(), "begin".into()),
            ("session".to_owned(), name.clone().into()),
            ("seed".to_owned(), (start % SEEDS).into()),
            ("url".to_owned(), running.endpoint.url.clone().into()),
            ("key".to_owned(), running.endpoint.key.clone().into()),
        ]);
        running.sessions.open(name.clone(), tokens, replies.clone());
        let (sessions, gate) = (Arc::clone(&running.sessions), Arc::clone(&running.gate));
        let ended = name.clone();
        let take: Take = Box::new(move |answer| {
            // First, since this end may be that of all episodes.
            gate.leave();
            sessions.ended(&ended, end(answer));
        });
        let begun = Arc::clone(&running.sessions);
        let sent: Option<Box<dyn FnOnce() + Send>> = Some(Box::new(move || begun.begun(&name)));
        let call = Call { slot, part: Part::Begin, fields: Value::Object(fields), sent, take };
        let sidecar = running.sidecars[process].clone();
        let most = most.map_or(usize::MAX, |most| most as usize);
        running.gate.enter(most, Box::new(move || sidecar.call(call)));
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.watch.abort();
        self.gate.close();
        self.sessions.clear();
    }
}

/// Ends episodes whose environment is late, and has their runs cancelled.
async fn watch(most: Duration, sessions: Arc<Sessions>, sidecars: Vec<Sidecar>) {
    loop {
        tokio::time::sleep(LOOK).await;
        for name in sessions.overdue(most) {
            let mut numbers = name.split('-').skip(1).map_while(|number| number.parse::<usize>().ok());
            let (Some(process), Some(slot)) = (numbers.next(), numbers.next()) else { continue };
            let fields = json!({ "do": "cancel", "session": name });
            // A process that does not answer this within the time limit is ended.
            let call = Call { slot, part: Part::Turn, fields, sent: None, take: Box::new(|_| {}) };
            sidecars[process].call(call);
        }
    }
}

/// Returns the end of an episode that a sidecar tells of.
fn end(answer: std::result::Result<Map<String, Value>, String>) -> Ended {
    let fields = match answer {
        Ok(fields) => fields,
        Err(why) => return Ended::failed(why),
    };
    let reward = |(name, reward): (&String, &Value)| Some((name.clone(), reward.as_f64()? as f32));
    let rewards = fields.get("rewards").and_then(Value::as_object);
    let parts: Option<Vec<(String, f32)>> = rewards.and_then(|all| all.iter().map(reward).collect());
    let limit =
        (fields.get("stop").and_then(Value::as_str) == Some("max_turns")).then_some(Stopped::MaxTurns);
    match parts.as_deref() {
        None | Some([]) => Ended::failed("its process told no rewards"),
        Some([(_, reward)]) => Ended { limit, ..Ended::rewarded(*reward, None) },
        Some(parts) => {
            let (reward, parts) = (None, parts.to_vec());
            Ended { reward, correct: None, parts, trouble: None, limit }
        }
    }
}

impl Environments for Verifiers {
    fn limits(&self) -> EpisodeLimits {
        // An environment's time counts from when it has the move, which waiting for others is not.
        limits(&self.settings)
    }

    fn begin(&mut self, opening: Opening, replies: &Replies) {
        if let Err(why) = self.opened(opening, replies) {
            replies.send(Reply::Ends(Ended::failed(why.what)));
        }
    }

    fn turn(&mut self, number: usize, said: Said<'_>, stop: Option<Stopped>, replies: &Replies) {
        match (&self.running, self.names.get(number)) {
            (Some(running), Some(name)) => running.sessions.said(name, said, stop, replies),
            _ => replies.send(Reply::Ends(Ended::failed("the episode is over"))),
        }
    }

    fn abandon(&mut self) {
        if self.running.as_ref().is_some_and(|running| running.sessions.are_open()) {
            // After an interrupt. The processes end with their episodes.
            self.running = None;
        }
        self.names.clear();
    }

    fn failure(&self) -> Option<String> {
        self.task_sets.command.failure()
    }
}
