//! The trainer's turns: it requests an order, reports rollouts, and ends a batch.

use allot_allocation::{Cost, Grant, GrantLine, PromptId, Settled, View, seed};
use allot_loop::{At, Learned, Next, Round};
use allot_record::{Line, Record, StepEnd};
use allot_sandbox::LogLine;

use super::Allocator;
use super::order::{Draw, Order};
use super::told::Told;
use crate::exception::{Exception, Result};

/// Returns no cost: operations are not limited for a trainer.
fn free(_: PromptId, _: u32) -> Cost {
    Cost::default()
}

impl Allocator {
    /// Queries the policy until there is an order for the trainer.
    pub fn order(&mut self, log: &mut Vec<LogLine>) -> Result<Order> {
        if let Some(reason) = &self.failed {
            return Ok(Order::Over { reason: reason.clone() });
        }
        self.begin()?;
        loop {
            match self.run.next(&free) {
                Next::Decide(view) => self.decide(&view, log)?,
                Next::Sample(grant, round) => return Ok(self.sampling(&grant, &round)),
                Next::Update(rollouts, _) => return Ok(self.training(&rollouts)),
                Next::Over(end) => {
                    if !self.ended {
                        self.record.write(&Line::End(*end))?;
                        self.ended = true;
                    }
                    return Ok(Order::Over { reason: self.run.reason().to_string() });
                }
                Next::Wait => return Err(self.awaited()),
                // `settle` handles both at the end of a step.
                Next::Evaluate | Next::Step(_) => {}
                Next::Begin(..) | Next::Finish(..) => unreachable!("a trainer samples and learns in turns"),
            }
        }
    }

    /// Writes the record's first line, before anything else.
    fn begin(&mut self) -> Result<()> {
        let Some(head) = self.head.take() else { return Ok(()) };
        if let Some(folder) = &self.folder {
            std::fs::create_dir_all(folder).map_err(|e| Exception::file("make", folder, &e))?;
            match Record::create(&folder.join("record.jsonl")) {
                Ok(record) => self.record = record,
                Err(error) => {
                    self.head = Some(head);
                    return Err(error.into());
                }
            }
        }
        Ok(self.record.begin(head)?)
    }

    fn decide(&mut self, view: &View, log: &mut Vec<LogLine>) -> Result<()> {
        let plan = self.policy.ask(&self.run.of.run, &self.run.state.policy, view, log)?;
        let decided = self.run.decided(self.policy.name(), &plan, &free)?;
        self.asked = decided.call.asked;
        Ok(self.record.write(&Line::Call(decided.call))?)
    }

    fn sampling(&self, grant: &Grant, round: &Round) -> Order {
        let (of, version) = (self.of.seed, self.run.state.version);
        let draw = |line: &GrantLine| {
            let seed = |i| seed::rollout(of, line.prompt, version, line.first + i);
            let GrantLine { prompt, count, sampling, .. } = *line;
            Draw { prompt, count, seeds: (0..count).map(seed).collect(), sampling }
        };
        let draws = grant.lines().iter().map(draw).collect();
        Order::Sample { step: round.step, round: round.round, draws, asked: self.asked }
    }

    fn training(&self, rollouts: &[Learned]) -> Order {
        let At::Updating(step, update) = &self.run.state.at else {
            unreachable!("an update is asked for while none is made")
        };
        Order::Train {
            step: self.run.state.steps,
            round: step.round,
            rollouts: rollouts.to_vec(),
            hold: update.batch.hold.iter().map(|hold| hold.prompt).collect(),
            update: update.batch.update,
        }
    }

    /// Returns the error of a trainer that requests an order before it has finished the previous one.
    fn awaited(&self) -> Exception {
        if let At::Updating(_, update) = &self.run.state.at {
            let n = update.rollouts.len();
            return Exception::new(format!("a batch of {n} rollouts was given, and nothing was said of it"))
                .hint("say that it is done with trained(…), then ask again");
        }
        let n: u32 = self.run.state.ledger.open().iter().map(|line| line.count).sum();
        Exception::new(format!("{n} rollouts were granted, and nothing was said of them"))
            .hint("hand them in with sampled(…), then ask again")
    }

    /// Puts rollouts into the buffer. All checks come before anything is charged.
    pub fn take(&mut self, told: Vec<Told>) -> Result<(u64, Vec<bool>)> {
        let At::Sampling(_) = self.run.state.at else {
            return Err(Exception::new("rollouts were handed in, and none were granted")
                .hint("next() says when to sample, and how often"));
        };
        let signals = self.policy.policy.description().signals.len();
        let ledger = &self.run.state.ledger;
        let outcomes = Told::outcomes(told, ledger.open(), signals, ledger.limits().longest)?;
        let took =
            self.run.sampled(&outcomes, &[], &free).map_err(|fault| Exception::new(fault.to_string()))?;
        self.asked = took.asked;
        if let Some(rollouts) = took.rollouts {
            self.record.write(&Line::Rollouts(rollouts))?;
        }
        Ok((took.first.0, outcomes.iter().map(|o| o.reward.is_some()).collect()))
    }

    /// Settles the buffer and ends the step.
    pub fn settle(
        &mut self,
        updated: bool,
        metrics: Vec<(String, f64)>,
        accuracy: Option<f64>,
    ) -> Result<(Settled, StepEnd)> {
        let At::Updating(..) = self.run.state.at else {
            return Err(Exception::new("a batch is said to be done, and none was given")
                .hint("next() gives one when the policy is done sampling"));
        };
        if let Some((name, value)) = metrics.iter().find(|(_, value)| !value.is_finite()) {
            let step = self.run.state.steps;
            let what = format!("the update of step {step} was refused: {name} is {value}");
            return Err(
                Exception::new(what).hint("go on from the last checkpoint, with a smaller learning rate")
            );
        }
        let settled = self.run.updated(updated, metrics, &free);
        let Next::Step(mut end) = self.run.next(&free) else {
            unreachable!("a step is over once it is settled")
        };
        end.accuracy = accuracy;
        self.record.write(&Line::Step(end.clone()))?;
        if self.run.is_at_end() {
            self.order(&mut Vec::new())?;
        }
        Ok((settled, *end))
    }

    /// Ends the run after a broken rule or a fault within a step; it can only be resumed from a state.
    pub fn stopped(&mut self, exception: &Exception) {
        if matches!(self.run.state.at, At::Asking(_)) {
            // The reason for the end matters more than a second failure of the record.
            let _ = self.record.write(&Line::End(*self.run.end(exception.what().to_owned(), false)));
            self.failed = Some(exception.what().to_owned());
        }
    }
}
