//! The parts of a step, each with a clock of its own: what a step does with pool, buffer and ledger is done once
//! more beside it, on twins of them. That the twins do the same is held by comparing every view.

use std::cell::RefCell;
use std::rc::Rc;

use allot::callbacks::{Callbacks, CameIn, Decide, Go};
use allot::stop::Stop;
use allot::world::World;
use allot_allocation::advantage::{self, Scale};
use allot_allocation::rules::{self, Bounds};
use allot_allocation::{Action, Batch, Ledger, Plan, Pool, RolloutBuffer, Run, Settled, View, seed};
use allot_loop::{Learned, Scores};
use allot_record::{Call, Line, Rollouts, Sampled, StateChange, StepEnd};
use allot_sandbox::{Fault, LogLine, Policy};
use serde::{Deserialize, Serialize};

use crate::clock;
use crate::fake::{EveryThird, Fake};

/// A part of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// The pool: topped up, prompts taken off, visits remembered.
    Pool,
    /// The view put together.
    View,
    /// The view copied into a guest that does nothing.
    Copied,
    /// The rest of the policy's call: its own reading, deciding and answering.
    Own,
    /// The plan checked.
    Rules,
    /// Granting and charging.
    Ledger,
    /// Rollouts put in the buffer, and settled.
    RolloutBuffer,
    /// Rewards into advantages.
    Advantages,
    /// The record's lines made.
    Lines,
}

impl Part {
    pub const ALL: [Self; 9] = [
        Self::Pool,
        Self::View,
        Self::Copied,
        Self::Own,
        Self::Rules,
        Self::Ledger,
        Self::RolloutBuffer,
        Self::Advantages,
        Self::Lines,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Pool => "pool",
            Self::View => "view",
            Self::Copied => "copied",
            Self::Own => "own",
            Self::Rules => "rules",
            Self::Ledger => "ledger",
            Self::RolloutBuffer => "buffer",
            Self::Advantages => "advant.",
            Self::Lines => "lines",
        }
    }
}

/// What a world has of its own, once more.
pub struct Twin {
    pool: Pool,
    buffer: RolloutBuffer,
    ledger: Ledger,
    scale: Scale,
    seed: u64,
    steps: u32,
    max_age: u32,
    batch: Batch,
    seconds: [f64; Part::ALL.len()],
}

impl Twin {
    pub fn of<P>(world: &World<Fake, EveryThird, P>, max_age: u32) -> Self {
        Self {
            pool: world.run.state.pool.clone(),
            buffer: world.run.state.buffer.clone(),
            ledger: Ledger::new(world.run.state.ledger.limits()),
            scale: world.run.of.scale,
            seed: world.run.of.seed,
            steps: world.run.state.steps,
            max_age,
            batch: Batch::default(),
            seconds: [0.0; Part::ALL.len()],
        }
    }

    /// Seconds of a part.
    pub fn seconds(&self, part: Part) -> f64 {
        self.seconds[part as usize]
    }

    /// Begins to count anew.
    pub fn forget(&mut self) {
        self.seconds.fill(0.0);
    }

    fn timed<T>(&mut self, part: Part, work: impl FnOnce(&mut Self) -> T) -> T {
        let began = clock::thread();
        let done = work(self);
        self.seconds[part as usize] += clock::thread() - began;
        done
    }

    /// The view of a round, made here.
    fn view(&mut self, round: u32) -> View {
        if round == 0 {
            self.ledger.open_step();
            self.buffer.open_step();
        }
        self.timed(Part::Pool, |twin| twin.pool.top_up(&twin.buffer));
        self.timed(Part::View, |twin| View {
            step: twin.steps,
            round,
            seed: seed::policy(twin.seed, twin.steps, round),
            budget: twin.ledger.budget(),
            pool: twin.pool.offered().to_vec(),
            groups: twin.buffer.groups(),
            unscored: twin.buffer.unscored(),
            history: twin.pool.history().clone(),
        })
    }

    /// What a plan does until the engine is asked.
    fn planned(&mut self, state: &[u8], view: &View, plan: &Plan) {
        self.timed(Part::Rules, |_| rules::check("", view, plan, Bounds::default())).unwrap();
        let offered = self.pool.newly_offered().to_vec();
        self.timed(Part::Pool, |twin| {
            twin.pool.evict(&plan.evict);
            twin.pool.take(plan.skip.iter().copied());
        });
        let granted = match &plan.action {
            Action::Sample(order) => {
                let grant = self.timed(Part::Ledger, |twin| {
                    twin.ledger.grant(order, |prompt| (twin.buffer.next_position(prompt), 0))
                });
                self.timed(Part::Pool, |twin| twin.pool.take(grant.lines().iter().map(|l| l.prompt)));
                grant.rollouts()
            }
            Action::Train(batch) => {
                self.timed(Part::Advantages, |twin| {
                    let groups: std::collections::HashMap<_, _> =
                        view.groups.iter().map(|g| (g.prompt, g)).collect();
                    for pick in &batch.picks {
                        std::hint::black_box(advantage::of_pick(pick, groups[&pick.prompt], twin.scale));
                    }
                });
                self.batch.clone_from(batch);
                0
            }
        };
        self.timed(Part::Lines, |_| {
            let changed = StateChange::of(state, &plan.state);
            line(&Line::Call(Box::new(Call::of(view, plan, changed, offered, granted))));
        });
    }
}

fn line(line: &Line) {
    std::hint::black_box(serde_json::to_vec(line).unwrap());
}

/// A policy that is asked, and a twin that does what the step around it does.
pub struct Watching<'a> {
    pub policy: &'a Policy,
    pub idle: &'a Policy,
    pub twin: Rc<RefCell<Twin>>,
}

impl Decide for Watching<'_> {
    fn name(&self) -> &str {
        &self.policy.description().name
    }

    fn decide(&mut self, run: &Run, state: &[u8], view: &View) -> Result<(Plan, Vec<LogLine>), Fault> {
        let mut twin = self.twin.borrow_mut();
        assert_eq!(twin.view(view.round), *view, "the twin sees another view");
        let began = clock::thread();
        let bare = Run { settings: Vec::new(), ..run.clone() };
        self.idle.decide(&bare, &[], view)?;
        let copied = clock::thread() - began;
        let began = clock::thread();
        let (plan, _) = self.policy.decide(run, state, view)?;
        let own = clock::thread() - began - copied;
        twin.seconds[Part::Copied as usize] += copied;
        twin.seconds[Part::Own as usize] += own;
        twin.planned(state, view, &plan);
        Ok((plan, Vec::new()))
    }
}

/// The same twin, shown what came of a plan.
pub struct Shown(pub Rc<RefCell<Twin>>);

impl<R, P> Callbacks<Fake, R, P> for Shown {
    async fn evaluate(&mut self, _: &mut World<Fake, R, P>) -> Result<Scores, Stop> {
        Ok(Scores::default())
    }

    fn after(&mut self, _: &mut World<Fake, R, P>, _: &StepEnd) -> Result<Go, Stop> {
        Ok(Go::Pause)
    }

    fn sampled(&mut self, came: CameIn<'_, ()>) -> Result<(), Stop> {
        let CameIn { round, outcomes, .. } = came;
        let mut twin = self.0.borrow_mut();
        let paid = outcomes.iter().map(|o| (o.prompt, o.position, o.tokens));
        twin.timed(Part::Ledger, |twin| twin.ledger.charge(paid)).unwrap();
        twin.timed(Part::RolloutBuffer, |twin| twin.buffer.add(outcomes.iter().cloned()));
        twin.timed(Part::Lines, |_| {
            let sampled = Sampled::of(outcomes, 0);
            line(&Line::Rollouts(Box::new(Rollouts {
                step: round.step,
                round: round.round,
                sampled,
                more: 0,
            })));
        });
        Ok(())
    }

    fn settled(&mut self, settled: &Settled, learned: &[Learned]) -> Result<(), Stop> {
        let mut twin = self.0.borrow_mut();
        let batch = std::mem::take(&mut twin.batch);
        let (updated, max_age, step) = (!learned.is_empty(), twin.max_age, twin.steps);
        let mine = twin.timed(Part::RolloutBuffer, |twin| twin.buffer.settle(&batch, updated, max_age));
        assert_eq!(mine, *settled, "the twin's buffer has other rollouts");
        twin.timed(Part::Pool, |twin| twin.pool.remember(step, &mine.visits));
        twin.steps += 1;
        Ok(())
    }
}
