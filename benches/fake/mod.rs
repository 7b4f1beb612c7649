//! The parts of a run that a bench of the host fakes: a model and a reward.
//! Neither takes time.

use allot::callbacks::{Callbacks, Decide};
use allot::run::{Rest, run};
use allot::stop::Stop;
use allot::world::World;
use allot_allocation::advantage::Scale;
use allot_allocation::rules::Bounds;
use allot_allocation::{Ceilings, Compute, Geometry, Grant, Ledger, Limits, Order, Pool, RolloutBuffer, Run};
use allot_engine::{
    Capabilities, Engine, EngineError, Example, Interrupt, Purpose, Report, Sample, Sampled, Whole,
};
use allot_judges::{Reward, Verdict};
use allot_loop::{Constants, Loop, State};
use allot_record::Record;

/// Samples and learns in no time.
pub struct Fake {
    version: u32,
}

impl Engine for Fake {
    type Answer = ();

    fn capabilities(&self) -> Capabilities {
        Capabilities { name: "fake".to_owned(), signals: Vec::new() }
    }

    fn version(&self) -> u32 {
        self.version
    }

    async fn sample(
        &mut self,
        grant: Grant,
        _: Purpose,
        whole: Whole<'_, ()>,
        _: &Interrupt,
    ) -> Result<Sampled<()>, EngineError> {
        let one = |prompt, position| Sample {
            prompt,
            position,
            version: 0,
            answer: (),
            tokens: 200 + position % 7,
            truncated: false,
            log_prob: 0.0,
            signals: Vec::new(),
            sampling: None,
        };
        let lines = grant.lines().iter();
        let samples: Vec<Sample<()>> =
            lines.flat_map(|l| (l.first..l.first + l.count).map(|i| one(l.prompt, i))).collect();
        samples.iter().enumerate().for_each(|(place, sample)| whole(place, sample));
        Ok(samples.into_iter().map(Some).collect())
    }

    async fn update(
        &mut self,
        _: &[Example<'_, ()>],
        _: Option<Geometry>,
        _: &Interrupt,
    ) -> Result<Report, EngineError> {
        self.version += 1;
        Ok(Report::default())
    }

    fn computed(&mut self) -> Compute {
        Compute::default()
    }
}

/// A third of all answers are right.
pub struct EveryThird;

impl Reward<()> for EveryThird {
    async fn score(&mut self, samples: &[(usize, &Sample<()>)]) -> Result<Vec<Verdict>, allot_base::Error> {
        let verdicts = samples
            .iter()
            .map(|(_, s)| {
                let correct = (s.prompt.0 + s.position).is_multiple_of(3);
                Verdict::plain(f32::from(correct), correct)
            })
            .collect();
        Ok(verdicts)
    }
}

/// A run of these parts, under a policy with this first state.
pub fn world<P: Decide>(policy: P, state: Vec<u8>, run: &Run, record: Record) -> World<Fake, EveryThird, P> {
    let limits =
        Limits { rounds: 9, step_rollouts: None, run_rollouts: None, run_tokens: None, longest: 1000 };
    let pool = Pool::new(1, Order::Shuffled, run.pool, vec![100; run.prompts as usize]);
    let state = State::new(state, pool, RolloutBuffer::new(0), Ledger::new(limits));
    let (scale, bounds) = (Scale::default(), Bounds::default());
    let constants = Constants { run: run.clone(), seed: 1, scale, bounds, every: None, retries: 0 };
    let run = Loop::new(constants, Ceilings::default(), state);
    World { record, ..World::new(run, Fake { version: 0 }, EveryThird, policy) }
}

/// One step.
pub async fn step<P: Decide>(
    world: &mut World<Fake, EveryThird, P>,
    callbacks: &mut impl Callbacks<Fake, EveryThird, P>,
) -> Result<(), Stop> {
    match run(world, callbacks).await? {
        Rest::Paused => Ok(()),
        Rest::Over(_) => panic!("the budget has no end"),
    }
}
