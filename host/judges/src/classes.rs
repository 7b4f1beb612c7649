//! Episodes with Python classes of TRL's form: `reset` begins one, public methods are tools that the model calls, and
//! `get_reward` ends it. The objects live in processes beside this program; what they return becomes tokens here.
//!
//! As TRL 1.16 does it (`grpo_trainer.py`, `_tool_call_loop`): a turn without a call ends the episode, and so does the
//! limit of turns, before the calls of the last one are made. An exception of a tool is a text that the model reads.

mod toolbox;

use std::sync::Arc;

use allot_base::{Error, Result};
use allot_engine::episode::{Ended, EpisodeLimits, Opening, Reply, Stopped};
use allot_engine::{Environments, Replies, Said, Stops};
use allot_models::chat::calls::{ToolCall, calls};
use allot_models::tokens::{BYTES_A_TOKEN, Tokens};
use allot_settings::EnvironmentSettings;
use allot_tasks::{Message, Problem};
use serde_json::{Map, Value, json};

use crate::episodes::limits;
use crate::gate::Gate;
use crate::sidecar::{Call, Part, Sidecar, Take};
pub use toolbox::Toolbox;
use toolbox::messages;

/// Seeds are below this: numpy takes no larger ones.
const SEEDS: u64 = 1 << 32;

/// The environments of a run.
pub struct Classes {
    settings: EnvironmentSettings,
    toolbox: Arc<Toolbox>,
    told: Arc<Told>,
    /// The problem of each prompt, by prompt id.
    problems: Arc<Vec<Problem>>,
    /// Each prompt's tokens.
    prompts: Vec<Vec<u32>>,
    stops: Stops,
    /// Number of processes.
    processes: usize,
    /// The processes; none until episodes begin.
    sidecars: Vec<Sidecar>,
    /// The episodes that are open, by number.
    open: Vec<Option<Open>>,
    gate: Arc<Gate>,
}

/// What makes tokens of texts, on other threads than the one that samples.
struct Told {
    tokens: Arc<Tokens>,
    /// The most tokens that an episode reads.
    most: u32,
}

/// An episode under way.
#[derive(Clone, Copy, Default)]
struct Open {
    turns: u32,
    calls: u32,
}

impl Classes {
    /// Returns the environments for these problems and their prompts.
    pub fn new(
        settings: EnvironmentSettings,
        toolbox: Arc<Toolbox>,
        (tokens, stops): (Arc<Tokens>, Stops),
        (problems, prompts): (Arc<Vec<Problem>>, Vec<Vec<u32>>),
    ) -> Self {
        let told = Arc::new(Told { tokens, most: settings.max_read_tokens });
        let processes = settings.process.clone().unwrap_or_default().processes;
        let (sidecars, open, gate) = (Vec::new(), Vec::new(), Arc::default());
        Self { settings, toolbox, told, problems, prompts, stops, processes, sidecars, open, gate }
    }

    /// Sends a request to the process that has an episode. `read` makes the reply of its answer.
    fn ask(
        &mut self,
        (number, part): (usize, Part),
        fields: Value,
        replies: &Replies,
        read: impl FnOnce(Map<String, Value>) -> Result<Reply> + Send + 'static,
    ) {
        let sidecar = match self.sidecar(number) {
            Ok(sidecar) => sidecar,
            // The first episode did not begin.
            Err(error) => return replies.send(Reply::Ends(Ended::failed(error.what))),
        };
        let mut owed = self.owed(replies);
        let take: Take = Box::new(move |answer| {
            let reply = answer.and_then(|fields| read(fields).map_err(|e| e.what));
            owed.send(reply.unwrap_or_else(|why| Reply::Ends(Ended::failed(why))));
        });
        let call = Call { slot: number, part, fields, sent: None, take };
        if part == Part::Begin {
            let most = self.settings.max_open.map_or(usize::MAX, |most| most as usize);
            self.gate.enter(most, Box::new(move || sidecar.call(call)));
        } else {
            sidecar.call(call);
        }
    }

    /// Returns the process of an episode: by its number, so that a run that is repeated gives it to the same one.
    fn sidecar(&mut self, number: usize) -> Result<Sidecar> {
        while self.sidecars.len() < self.processes {
            self.sidecars.push(Sidecar::new(Arc::clone(&self.toolbox.command))?);
        }
        Ok(self.sidecars[number % self.processes].clone())
    }

    fn owed(&self, replies: &Replies) -> Owed {
        Owed { replies: Some(replies.clone()), gate: Arc::clone(&self.gate) }
    }

    /// Opens an episode: asks for what the environment says first.
    fn opened(&mut self, opening: Opening, replies: &Replies) -> Result<()> {
        let Opening { number, prompt, start } = opening;
        let (toolbox, problems) = (Arc::clone(&self.toolbox), Arc::clone(&self.problems));
        let problem = &problems[prompt.0 as usize];
        let chosen = toolbox.of(problem)?;
        let fields = json!({ "do": "begin", "slot": number, "key": chosen.key, "row": chosen.row, "seed": start % SEEDS });
        let (told, tools) = (Arc::clone(&self.told), chosen.tools.clone());
        let messages: Vec<Message> = messages(problem)?.to_vec();
        let before = self.prompts[prompt.0 as usize].clone();
        self.ask((number, Part::Begin), fields, replies, move |answer| {
            let first = answer.get("said").and_then(Value::as_str).unwrap_or_default();
            match told.read(first.len(), |tokens| tokens.first(&messages, first, &tools, &before))? {
                Reply::Says(tokens) if tokens.len() <= told.most as usize => Ok(Reply::Says(tokens)),
                _ => Err(Error::new("it began with more tokens than `max_read_tokens`")),
            }
        });
        Ok(())
    }

    fn reward(&mut self, number: usize, limit: Option<Stopped>, replies: &Replies) {
        self.open[number] = None;
        let fields = json!({ "do": "reward", "slot": number });
        self.ask((number, Part::End), fields, replies, move |answer| {
            let end = match answer.get("reward").and_then(Value::as_f64) {
                Some(reward) => Ended::rewarded(reward as f32, None),
                None => Ended::failed("`get_reward` gave none"),
            };
            Ok(Reply::Ends(Ended { limit, ..end }))
        });
    }

    fn called(&mut self, number: usize, calls: Vec<ToolCall>, ended: Option<u32>, replies: &Replies) {
        let calls: Vec<Value> =
            calls.into_iter().map(|call| json!({ "name": call.name, "arguments": call.arguments })).collect();
        let fields = json!({ "do": "call", "slot": number, "calls": calls });
        let told = Arc::clone(&self.told);
        self.ask((number, Part::Turn), fields, replies, move |mut answer| {
            let said = answer.remove("said").unwrap_or_default();
            let results: Vec<(String, String)> =
                serde_json::from_value(said).map_err(|e| Error::new(e.to_string()))?;
            let bytes = results.iter().map(|(_, said)| said.len()).sum();
            told.read(bytes, |tokens| tokens.results(&results, ended))
        });
    }
}

/// A reply that is owed, whatever becomes of the thread that makes it.
struct Owed {
    replies: Option<Replies>,
    gate: Arc<Gate>,
}

impl Owed {
    fn send(&mut self, reply: Reply) {
        let Some(replies) = self.replies.take() else { return };
        if matches!(reply, Reply::Ends(_)) {
            // First, since this reply may lead to the end of all episodes.
            self.gate.leave();
        }
        replies.send(reply);
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        self.send(Reply::Ends(Ended::failed("its process is gone")));
    }
}

impl Told {
    /// Returns the reply of these tokens. A text of so many bytes that it has more than the limit is not tokenized.
    fn read(&self, bytes: usize, tokens: impl FnOnce(&Tokens) -> Result<Vec<u32>>) -> Result<Reply> {
        if bytes / BYTES_A_TOKEN > self.most as usize {
            return Ok(Reply::TooLong);
        }
        tokens(&self.tokens).map(Reply::Says)
    }
}

impl Environments for Classes {
    fn limits(&self) -> EpisodeLimits {
        // A process has a time limit for each request of its own, which does not count the wait for others.
        limits(&self.settings)
    }

    fn begin(&mut self, opening: Opening, replies: &Replies) {
        if self.open.len() <= opening.number {
            self.open.resize(opening.number + 1, None);
        }
        self.open[opening.number] = Some(Open::default());
        if let Err(why) = self.opened(opening, replies) {
            replies.send(Reply::Ends(Ended::failed(why.what)));
        }
    }

    fn turn(&mut self, number: usize, said: Said<'_>, stop: Option<Stopped>, replies: &Replies) {
        let tokens = said.tokens;
        let Some(mut open) = self.open.get(number).copied().flatten() else {
            return replies.send(Reply::Ends(Ended::failed("the episode is over")));
        };
        if stop.is_some() {
            return self.reward(number, None, replies);
        }
        let calls = match self.told.tokens.answer(tokens, &self.stops) {
            Ok(said) => calls(self.toolbox.format, &said),
            Err(error) => return self.owed(replies).send(Reply::Ends(Ended::failed(error.what))),
        };
        open.turns += 1;
        open.calls += calls.len() as u32;
        if calls.is_empty() {
            return self.reward(number, None, replies);
        }
        if self.settings.max_tool_calls.is_some_and(|most| open.calls > most) {
            return self.reward(number, Some(Stopped::MaxToolCalls), replies);
        }
        self.open[number] = Some(open);
        if open.turns >= self.settings.max_turns {
            // As in TRL: nothing would read the results. The engine finds the limit and asks for the reward.
            return replies.send(Reply::Says(Vec::new()));
        }
        self.called(number, calls, tokens.last().copied(), replies);
    }

    fn abandon(&mut self) {
        if self.gate.is_passed() {
            // After an interrupt. The processes end with their episodes.
            self.gate.close();
            self.gate = Arc::default();
            self.sidecars.clear();
        }
        self.open.clear();
    }

    fn failure(&self) -> Option<String> {
        self.toolbox.command.failure()
    }
}
