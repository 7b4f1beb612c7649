//! Episodes whose turns are sampled on servers: each turn is a request of all tokens so far, to any server.

use std::cell::RefCell;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use allot_engine::core::Answered;
use allot_engine::talk::{Event, History};
use allot_engine::{Answer, Environments, Episodes, Following, Interrupt, Native, Sample};
use tokio::sync::Notify;

use super::sampler::{Missed, Sampler};
use crate::sample::RolloutKey;

/// The interval at which replies of environments are looked for.
const LOOK: Duration = Duration::from_millis(5);

/// The episodes of a grant, of which several wait for a server, and several for their environments.
pub(super) struct Table<'a> {
    native: &'a Native,
    under_way: RefCell<(Episodes, &'a mut dyn Environments)>,
    told: Receiver<Event>,
    seats: Vec<Seat>,
}

/// An episode's place.
#[derive(Default)]
struct Seat {
    /// All tokens of the training row in which its next turn is.
    history: RefCell<History>,
    /// What follows. A turn stays here until it is sampled, so that another server can take it over.
    next: RefCell<Option<Following>>,
    changed: Notify,
}

impl<'a> Table<'a> {
    /// Returns the table of so many episodes, which have begun.
    pub(super) fn new(
        native: &'a Native,
        (episodes, environments): (Episodes, &'a mut dyn Environments),
        told: Receiver<Event>,
        number: usize,
    ) -> Self {
        let seats = (0..number).map(|_| Seat::default()).collect();
        Self { native, under_way: RefCell::new((episodes, environments)), told, seats }
    }

    /// Hands replies of environments on, until an interrupt.
    pub(super) async fn attend(&self, interrupt: &Interrupt) {
        while !interrupt.is_asked() {
            self.hear();
            self.take(Event::Tick);
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Hands on the replies that are there.
    fn hear(&self) {
        while let Ok(event) = self.told.try_recv() {
            self.take(event);
        }
    }

    fn take(&self, event: Event) {
        let mut under_way = self.under_way.borrow_mut();
        let (episodes, environments) = &mut *under_way;
        let Some(following) = self.native.follow(episodes, *environments, event) else { return };
        let (Following::Turn(number, _) | Following::End(number, _)) = &following;
        let seat = &self.seats[*number];
        if let Following::Turn(_, turn) = &following {
            seat.history.borrow_mut().read(turn);
        }
        *seat.next.borrow_mut() = Some(following);
        seat.changed.notify_one();
    }

    /// Plays an episode to its end. Begun again after a failure, it goes on from its last whole turn.
    pub(super) async fn play(
        &self,
        (sampler, label): (&Sampler, &str),
        number: usize,
        place: RolloutKey,
    ) -> Result<Sample<Answer>, Missed> {
        let seat = &self.seats[number];
        loop {
            let next = seat.next.borrow_mut().take();
            match next {
                None => seat.changed.notified().await,
                Some(Following::End(_, sample)) => return Ok(sample),
                Some(Following::Turn(_, turn)) => {
                    // Back in its place before the server is asked: the request may fail, or be given up.
                    *seat.next.borrow_mut() = Some(Following::Turn(number, turn.clone()));
                    let whole = {
                        let history = seat.history.borrow();
                        let (beginning, own) = history.after(self.native.prompt(place.prompt));
                        [beginning, own].concat()
                    };
                    let asked = (whole.as_slice(), turn.seed, turn.sampling);
                    let sample = sampler.ask(self.native, asked, place, label).await?;
                    *seat.next.borrow_mut() = None;
                    let Sample { answer, truncated, .. } = sample;
                    seat.history.borrow_mut().said(&answer.tokens);
                    let Answer { tokens, log_probs, .. } = answer;
                    let answered = Answered { tokens, log_probs, truncated, ..Answered::default() };
                    self.take(Event::Turn(number, answered));
                    // An environment within this program has replied by now.
                    self.hear();
                }
            }
        }
    }
}
