//! The parts of a run that a bench of the host fakes: a model and a reward.
//! Neither takes time.

use allot::meter::Meter;
use allot::step::{Decide, World};
use allot_allocation::advantage::Scale;
use allot_allocation::rules::Bounds;
use allot_allocation::{Books, Ceilings, Compute, Grant, Limits, Order, Pool, Shelf};
use allot_engine::{Capabilities, Engine, EngineError, Example, Report, Sample, Whole};
use allot_judges::{Reward, Verdict};
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

    async fn sample(&mut self, grant: Grant, whole: Whole<'_, ()>) -> Result<Vec<Sample<()>>, EngineError> {
        let one = |prompt, position| Sample {
            prompt,
            position,
            version: 0,
            answer: (),
            tokens: 200 + position % 7,
            truncated: false,
            log_prob: 0.0,
            signals: Vec::new(),
        };
        let lines = grant.lines().iter();
        let samples: Vec<Sample<()>> =
            lines.flat_map(|l| (l.first..l.first + l.count).map(|i| one(l.prompt, i))).collect();
        samples.iter().enumerate().for_each(|(place, sample)| whole(place, sample));
        Ok(samples)
    }

    async fn score(&mut self, samples: &[&Sample<()>]) -> Result<Vec<f64>, EngineError> {
        Ok(vec![0.0; samples.len()])
    }

    async fn update(&mut self, _batch: &[Example<'_, ()>]) -> Result<Report, EngineError> {
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
    async fn score(&mut self, samples: &[Sample<()>]) -> Result<Vec<Verdict>, allot_error::Trouble> {
        let verdicts = samples
            .iter()
            .map(|s| {
                let correct = (s.prompt.0 + s.position).is_multiple_of(3);
                Verdict::plain(f32::from(correct), correct)
            })
            .collect();
        Ok(verdicts)
    }
}

/// A world of these parts, and of whoever decides.
pub fn world<P: Decide>(policy: P, prompts: u32, pool: u32, record: Record) -> World<Fake, EveryThird, P> {
    let limits =
        Limits { rounds: 9, step_rollouts: None, run_rollouts: None, run_tokens: None, longest: 1000 };
    World {
        engine: Fake { version: 0 },
        reward: EveryThird,
        policy,
        state: Vec::new(),
        pool: Pool::new(1, Order::Shuffled, pool, vec![100; prompts as usize]),
        shelf: Shelf::new(0),
        samples: std::collections::HashMap::new(),
        books: Books::new(limits),
        meter: Meter::new(Ceilings::default()),
        record,
        log: |_| {},
        scale: Scale::default(),
        bounds: Bounds::default(),
        seed: 1,
        steps: 0,
    }
}
