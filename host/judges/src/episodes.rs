//! Embedded environments, between text and tokens: what a model said becomes text, what the game says becomes tokens.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use allot_allocation::shown;
use allot_base::{Error, Result};
use allot_engine::episode::{Ended, EpisodeLimits, Opening, Reply, Stopped};
use allot_engine::{Environments, Replies, Said, Stops};
use allot_models::tokens::Tokens;
use allot_settings::EnvironmentSettings;
use allot_tasks::environment::{Embedded, Game, Step};
use allot_tasks::{Ask, Problem};

/// A reply, or why there is none.
type Replied = std::result::Result<Reply, String>;

/// The embedded environments of a run.
pub struct Episodes {
    embedded: Embedded,
    limits: EpisodeLimits,
    tokens: Arc<Tokens>,
    stops: Stops,
    /// The problem of each prompt, by prompt id.
    problems: Arc<Vec<Problem>>,
    /// The games under way, by number.
    open: Vec<Option<Open>>,
}

/// Returns the limits of a run's episodes.
pub(crate) fn limits(settings: &EnvironmentSettings) -> EpisodeLimits {
    let whole = settings.max_seconds.map(Duration::from_secs_f64);
    EpisodeLimits { turns: settings.max_turns, read: settings.max_read_tokens, reply: None, whole }
}

struct Open {
    game: Box<dyn Game>,
    /// Whether the model is spoken to in messages.
    chat: bool,
}

impl Episodes {
    /// Checks that each problem can be played, and that the model's chat template can be continued if it is needed.
    /// Returns notes on limits that end games early.
    ///
    /// # Errors
    ///
    /// A problem that describes no game, or a template that refuses or changes what is said.
    pub fn check(
        settings: &EnvironmentSettings,
        embedded: Embedded,
        tokens: &Tokens,
        problems: &[Problem],
    ) -> Result<Vec<String>> {
        let &EnvironmentSettings { max_turns, max_read_tokens, .. } = settings;
        let (mut turns, mut read) = (Vec::new(), Vec::new());
        // Many games have the same longest reply; rendering and encoding it is what takes time.
        let mut lengths: HashMap<(String, bool), u64> = HashMap::new();
        for problem in problems {
            let gold = problem.gold.first().map_or("", String::as_str);
            let most = embedded.most(gold).map_err(|why| {
                let (name, question) = (embedded.name(), shown::name(&problem.question));
                let error = Error::new(format!("environment `{name}` can't play `{question}`: {why}"));
                error.hint(format!("use [[tasks]] of kind `{name}`"))
            })?;
            let chat = matches!(problem.ask, Ask::Chat(_));
            let length = match lengths.entry((most.reply, chat)) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(new) => {
                    let length = tokens.reply(&new.key().0, chat, None)?.len() as u64;
                    *new.insert(length)
                }
            };
            turns.push(u64::from(most.replies) + 1);
            read.push(u64::from(most.replies) * length);
        }
        let over = |what: &str, key: &str, limit: u32, of_each: &[u64]| {
            let (longest, games) =
                (of_each.iter().max()?, of_each.iter().filter(|n| **n > limit.into()).count());
            (games > 0).then(|| {
                format!("{games} games can take up to {longest} {what}, and `environment.{key}` ends them after {limit}")
            })
        };
        let notes = [
            over("turns", "max_turns", max_turns, &turns),
            over("tokens of their environment", "max_read_tokens", max_read_tokens, &read),
        ];
        Ok(notes.into_iter().flatten().collect())
    }

    /// Returns the environments for these problems.
    pub fn new(
        settings: &EnvironmentSettings,
        embedded: Embedded,
        (tokens, stops): (Arc<Tokens>, Stops),
        problems: Arc<Vec<Problem>>,
    ) -> Self {
        Self { embedded, limits: limits(settings), tokens, stops, problems, open: Vec::new() }
    }

    fn opened(&self, opening: Opening) -> std::result::Result<Open, String> {
        let problem = &self.problems[opening.prompt.0 as usize];
        let gold = problem.gold.first().map_or("", String::as_str);
        let game = self.embedded.open(gold, opening.start)?;
        Ok(Open { game, chat: matches!(problem.ask, Ask::Chat(_)) })
    }

    /// Returns the reply to the tokens of a turn.
    fn reply(&mut self, number: usize, tokens: &[u32], stop: Option<Stopped>) -> Replied {
        let Some(open) = &mut self.open[number] else { return Err("the episode is over".to_owned()) };
        if stop.is_some() {
            // A limit came before the game's own end: it is not solved.
            self.open[number] = None;
            return Ok(Reply::Ends(Ended::rewarded(0.0, Some(false))));
        }
        let said = self.tokens.answer(tokens, &self.stops).map_err(|e| e.what)?;
        match open.game.turn(&said) {
            Step::Says(text) => {
                let ended = tokens.last().copied();
                let read = self.tokens.reply(&text, open.chat, ended).map_err(|e| e.what)?;
                Ok(Reply::Says(read))
            }
            Step::Ends { reward, correct } => {
                self.open[number] = None;
                Ok(Reply::Ends(Ended::rewarded(reward, Some(correct))))
            }
        }
    }
}

impl Environments for Episodes {
    fn limits(&self) -> EpisodeLimits {
        self.limits
    }

    fn begin(&mut self, opening: Opening, replies: &Replies) {
        if self.open.len() <= opening.number {
            self.open.resize_with(opening.number + 1, || None);
        }
        let reply = match self.opened(opening) {
            Ok(open) => {
                self.open[opening.number] = Some(open);
                Reply::Says(Vec::new())
            }
            Err(why) => Reply::Ends(Ended::failed(why)),
        };
        replies.send(reply);
    }

    fn turn(&mut self, number: usize, said: Said<'_>, stop: Option<Stopped>, replies: &Replies) {
        let reply =
            self.reply(number, said.tokens, stop).unwrap_or_else(|why| Reply::Ends(Ended::failed(why)));
        replies.send(reply);
    }

    fn abandon(&mut self) {
        self.open.clear();
    }
}
