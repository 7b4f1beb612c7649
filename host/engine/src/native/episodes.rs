//! Episodes of the native engine: which a grant has, and what follows an event in one. Turns are sampled here or, by
//! another sampler, elsewhere.

use std::sync::mpsc::Sender;

use allot_allocation::{Grant, PromptId, Start, seed};

use super::{Answer, Native, Place};
use crate::dialogue::{Dialogue, Followed, Kept};
use crate::environments::Replies;
use crate::episode::{EpisodeLimits, Opening};
use crate::talk::{Event, Next, NextTurn, Talk};
use crate::{EngineError, Environments, Interrupt, Purpose, Sample, Sampled, Whole};

/// The episodes of a grant, under way.
pub struct Episodes {
    /// Where events of the environments go.
    tell: Sender<Event>,
    places: Vec<Place>,
    /// By number; `None` once it has ended.
    dialogues: Vec<Option<Dialogue>>,
}

/// What follows an event of an episode, given by its number.
pub enum Following {
    /// A turn to sample.
    Turn(usize, NextTurn),
    /// Its end.
    End(usize, Sample<Answer>),
}

impl Episodes {
    /// Hands an event on to its episode.
    fn take(&mut self, event: Event, environments: &mut dyn Environments) -> Option<(usize, Followed)> {
        match event {
            Event::Lost => None,
            Event::Tick => {
                self.dialogues.iter().flatten().for_each(|dialogue| dialogue.overdue(&self.tell));
                None
            }
            Event::Turn(number, turn) => {
                self.dialogues.get_mut(number)?.as_mut()?.turn(turn, environments, &self.tell);
                None
            }
            // A reply may come after the end.
            Event::Reply(number, index, reply) => {
                let dialogue = self.dialogues.get_mut(number)?.as_mut()?;
                Some((number, dialogue.reply((index, reply), environments, &self.tell)?))
            }
        }
    }
}

impl Native {
    /// Returns the episodes of a grant, in its order, each with the seed of its draws.
    fn openings(&self, grant: &Grant, purpose: Purpose) -> Vec<(Place, Opening, u64, Kept)> {
        let run = self.config.seed;
        let mut all = Vec::new();
        for line in grant.lines() {
            // Held-out prompts start alike in each evaluation.
            let since =
                if purpose == Purpose::Training { self.version.saturating_sub(line.begun) } else { 0 };
            let start = seed::start(run, line.prompt, since);
            for (position, continued) in line.rollouts() {
                let opening = Opening { number: all.len(), prompt: line.prompt, start };
                let seed = seed::rollout(run, line.prompt, self.version, position);
                let kept = continued.map(|start| self.kept(line.prompt, start)).unwrap_or_default();
                all.push(((line.prompt, position, line.sampling), opening, seed, kept));
            }
        }
        all
    }

    /// Returns what a rollout keeps of the episode that it continues.
    fn kept(&self, prompt: PromptId, start: Start) -> Kept {
        let answer = self.held.get(&(prompt, start.rollout)).expect("a grant continues what is held");
        let episode = answer.episode.as_ref().expect("only episodes are continued");
        // Only environments that are stated to be deterministic are continued, and none of those has further rows.
        assert_eq!(episode.rows(), 1, "an episode of several training rows is not continued");
        let last = episode.kept.len() + start.turn as usize;
        Kept::of(episode.all_turns(&answer.tokens), last).expect("a turn follows the one that is kept")
    }

    /// Begins the episodes of a grant in their environments, which reply to `tell`.
    pub fn open(
        &self,
        environments: &mut dyn Environments,
        (grant, purpose): (&Grant, Purpose),
        tell: &Sender<Event>,
    ) -> Episodes {
        let (sampling, limits) = (self.config.sampling(purpose), environments.limits());
        let mut all = Episodes { tell: tell.clone(), places: Vec::new(), dialogues: Vec::new() };
        for (place, opening, seed, kept) in self.openings(grant, purpose) {
            let turns = place.2.map_or(limits.turns, |own| own.max_turns.min(limits.turns));
            let (own, limits) = (sampling.with(place.2), EpisodeLimits { turns, ..limits });
            all.dialogues.push(Some(Dialogue::new((opening, seed, kept), own, limits)));
            all.places.push(place);
            environments.begin(opening, &Replies::of(tell, opening.number, 0));
        }
        all
    }

    /// Returns what follows an event in one of the episodes, if anything does.
    pub fn follow(
        &self,
        episodes: &mut Episodes,
        environments: &mut dyn Environments,
        event: Event,
    ) -> Option<Following> {
        match episodes.take(event, environments)? {
            (number, Followed::Next(turn)) => Some(Following::Turn(number, turn)),
            (number, Followed::Ended(end)) => {
                let (answered, episode) = episodes.dialogues[number].take()?.finish(end);
                let sample = self.told(episodes.places[number], answered, Some(Box::new(episode)));
                Some(Following::End(number, sample))
            }
        }
    }

    /// Takes the environments out, for a sampler of its own. They must be put back.
    pub fn take_environments(&mut self) -> Option<Box<dyn Environments>> {
        self.environments.take()
    }

    /// Puts the environments back, after the episodes of a grant.
    ///
    /// # Errors
    ///
    /// An environment in which no episode can be played any more.
    pub fn put_environments(&mut self, mut environments: Box<dyn Environments>) -> Result<(), EngineError> {
        environments.abandon();
        self.held.clear();
        let failure = environments.failure();
        self.environments = Some(environments);
        failure.map_or(Ok(()), |what| Err(EngineError::Environment(what)))
    }

    /// Samples the episodes of a grant, with their environments.
    pub(super) fn play(
        &self,
        environments: &mut dyn Environments,
        (grant, purpose): (&Grant, Purpose),
        whole: Whole<'_, Answer>,
        interrupt: &Interrupt,
    ) -> Result<Sampled<Answer>, EngineError> {
        let channel = Talk::channel();
        let room = (self.config.sampling(purpose).max_tokens + environments.limits().read) as usize;
        let mut episodes = self.open(environments, (grant, purpose), &channel.0);
        let prompts: Vec<&[u32]> = episodes.places.iter().map(|place| self.prompt(place.0)).collect();
        let mut samples: Vec<Option<Sample<Answer>>> = vec![None; prompts.len()];
        let take = &mut |event| match self.follow(&mut episodes, environments, event)? {
            Following::Turn(number, turn) => Some(Next::Turn(number, turn)),
            Following::End(number, sample) => {
                whole(number, samples[number].insert(sample));
                Some(Next::End(number))
            }
        };
        let talk = &mut Talk::new(channel, take);
        self.core.converse(&prompts, &self.config.stops, self.config.rows, room, talk, interrupt)?;
        Ok(samples)
    }
}
