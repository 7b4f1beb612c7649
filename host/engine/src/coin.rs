//! The coin-flip world: an engine whose model is one pass rate per prompt.
//!
//! It tests policies in seconds. All of its assumptions:
//!
//! - An answer is right or wrong. Prompt `i` is answered right with probability
//!   `p_i = sigmoid(ability + skill_i - difficulty_i)`. `difficulty_i` is normal and fixed by
//!   the world's seed.
//! - Training is the exact policy gradient of this model. For a batch of n examples with nonzero
//!   advantages `A_j`, the gradient at prompt i's logit is `g_i = Σ_j A_j (y_j - p_i) / n` (`y_j` is
//!   1 for right, 0 for wrong). `skill_i` moves by `memory · signal · g_i`. `ability`, shared by all
//!   prompts and held-out problems, moves by `transfer · signal · Σ_i g_i · (1 - ability / ceiling)`.
//!   An update is one such step, unless a policy's geometry cuts it into several.
//! - An optimizer such as Adam makes steps of constant length. Zero-variance groups do not shorten them.
//!   The fewer rollouts a noisy gradient averages over, the less of a step goes along the true gradient.
//!   Hence `signal = 1 / √(1 + noise / n)`; `noise` is the gradient noise scale (McCandlish et al. 2018,
//!   arXiv 1812.06162) in rollouts. A real model's grows as it learns; here it is constant.
//! - `noise`, `ceiling` and the form of both follow measured curves of the default model:
//!   `docs/archive/2026-11-22-coin.md`.
//! - Stale rollouts count like fresh ones: no importance correction.
//! - An answer's length is log-normal, the same for right and wrong, cut at the limit.
//! - Exponentials come from a library, not the system, so that a run gives the same bytes on every machine.
//! - Sampling takes no time and no operations, so the world says nothing about seconds or FLOPs.

pub use allot_settings::CoinConfig;

use allot_allocation::{
    Column, Compute, Geometry, Grant, GrantLine, LENGTH, PromptId, SOURCE, SamplerSettings, seed,
};

use crate::{Capabilities, Engine, EngineError, Example, Interrupt, Purpose, Report, Sample, Sampled, Whole};

/// Maximum number of prompts and of held-out problems: about 0.5 GB of odds.
const MOST: u32 = 20_000_000;

/// The coin-flip engine.
#[derive(Clone, Debug)]
pub struct Coin {
    config: CoinConfig,
    run_seed: u64,
    version: u32,
    ability: f64,
    skill: Vec<f64>,
    difficulty: Vec<f64>,
    held_out: Vec<f64>,
    /// Compute of updates since `computed` was last called.
    computed: Compute,
}

impl Coin {
    /// Returns an untrained model. `run_seed` fixes the world and every draw.
    pub fn new(config: CoinConfig, run_seed: u64) -> Result<Self, EngineError> {
        let check = |ok: bool, key, value: String, rule| {
            if ok { Ok(()) } else { Err(EngineError::Setting { key, value, rule }) }
        };
        for (key, n) in [("world.prompts", config.prompts), ("world.held_out", config.held_out)] {
            check((1..=MOST).contains(&n), key, n.to_string(), "it is from 1 to 20,000,000")?;
        }
        check(
            config.longest > 0,
            "world.longest",
            config.longest.to_string(),
            "an answer has at least 1 token",
        )?;
        for (key, value, least) in [
            ("world.difficulty", config.difficulty, f64::MIN),
            ("world.spread", config.spread, 0.0),
            ("world.transfer", config.transfer, 0.0),
            ("world.memory", config.memory, 0.0),
            ("world.noise", config.noise, 0.0),
            ("world.tokens", config.tokens, 1.0),
        ] {
            let rule = if least == 1.0 {
                "it is 1 at least"
            } else {
                "it is finite, and negative for a difficulty alone"
            };
            check(value.is_finite() && value >= least, key, value.to_string(), rule)?;
        }
        let (ceiling, rule) = (config.ceiling, "it is finite and more than 0");
        check(ceiling.is_finite() && ceiling > 0.0, "world.ceiling", ceiling.to_string(), rule)?;
        let draw = |part: u64, n: u32| -> Vec<f64> {
            let one = |i| normal(&mut seed::Stream::new(seed::world(run_seed, part, i)));
            (0..u64::from(n)).map(|i| config.difficulty + config.spread * one(i)).collect()
        };
        Ok(Self {
            run_seed,
            version: 0,
            ability: 0.0,
            skill: vec![0.0; config.prompts as usize],
            difficulty: draw(0, config.prompts),
            held_out: draw(1, config.held_out),
            computed: Compute::default(),
            config,
        })
    }

    /// The world's settings.
    pub fn config(&self) -> &CoinConfig {
        &self.config
    }

    /// Returns the exact expected accuracy on the held-out problems, without sampling.
    pub fn accuracy(&self) -> f64 {
        let right: f64 = self.held_out.iter().map(|d| sigmoid(self.ability - d)).sum();
        right / self.held_out.len() as f64
    }

    /// Returns the lengths of the prompts, in tokens.
    pub fn prompt_lengths(&self) -> Vec<u32> {
        (0..u64::from(self.config.prompts))
            .map(|i| 20 + (seed::world(self.run_seed, 2, i) % 100) as u32)
            .collect()
    }

    /// Returns the column that a policy calls `name`, if the world has it. `difficulty` is each
    /// prompt's difficulty in logits. `level` is a coarse label like those of data sets: 1 to 5,
    /// each for a fifth of the distribution. The source column equals `level`.
    pub fn column(&self, name: &str) -> Option<Column> {
        // Quintiles of the standard normal distribution.
        const FIFTHS: [f64; 4] = [
            -0.841_621_233_572_914_2,
            -0.253_347_103_135_799_7,
            0.253_347_103_135_799_7,
            0.841_621_233_572_914_2,
        ];
        let CoinConfig { difficulty: mean, spread, .. } = self.config;
        let level = |d: &f64| 1 + FIFTHS.iter().filter(|end| *d > mean + spread * **end).count();
        let all = self.difficulty.iter();
        Some(Column::of(
            name,
            match self.config.columns.get(name).map_or(name, String::as_str) {
                "difficulty" => all.map(|d| *d as f32).collect(),
                "level" | SOURCE => all.map(|d| level(d) as f32).collect(),
                LENGTH => self.prompt_lengths().into_iter().map(|length| length as f32).collect(),
                _ => return None,
            },
        ))
    }

    /// Returns the probability of a right answer.
    pub fn pass_rate(&self, prompt: PromptId) -> f64 {
        sigmoid(self.logit(prompt))
    }

    /// Returns the pass rate at a temperature, which divides the logit.
    fn pass_rate_at(&self, prompt: PromptId, sampling: Option<SamplerSettings>) -> f64 {
        let logit = self.logit(prompt);
        sigmoid(sampling.map_or(logit, |own| logit / f64::from(own.temperature)))
    }

    /// Returns the logit of a right answer at temperature 1.
    fn logit(&self, prompt: PromptId) -> f64 {
        let i = prompt.0 as usize;
        self.ability + self.skill[i] - self.difficulty[i]
    }

    fn flip(&self, prompt: PromptId, position: u32, sampling: Option<SamplerSettings>) -> Sample<bool> {
        let mut stream = seed::Stream::new(seed::rollout(self.run_seed, prompt, self.version, position));
        let p = self.pass_rate_at(prompt, sampling);
        let right = stream.unit() < p;
        let wanted = (self.config.tokens * libm::exp(0.5 * normal(&mut stream))).max(1.0);
        let longest = sampling.map_or(self.config.longest, |own| own.max_tokens.min(self.config.longest));
        let longest = f64::from(longest);
        Sample {
            prompt,
            position,
            version: self.version,
            answer: right,
            tokens: wanted.min(longest) as u32,
            truncated: wanted > longest,
            log_prob: log_prob(p, right),
            signals: self.config.signals.iter().map(|_| stream.unit() as f32).collect(),
            sampling,
        }
    }
}

impl Engine for Coin {
    type Answer = bool;

    fn capabilities(&self) -> Capabilities {
        Capabilities { name: "coin".to_owned(), signals: self.config.signals.clone() }
    }

    fn version(&self) -> u32 {
        self.version
    }

    async fn sample(
        &mut self,
        grant: Grant,
        _: Purpose,
        whole: Whole<'_, bool>,
        interrupt: &Interrupt,
    ) -> Result<Sampled<bool>, EngineError> {
        let places = grant.lines().iter().flat_map(|l| (0..l.count).map(move |i| (l, l.first + i)));
        let one = |(place, (line, position)): (usize, (&GrantLine, u32))| {
            (!interrupt.is_asked())
                .then(|| self.flip(line.prompt, position, line.sampling))
                .inspect(|sample| whole(place, sample))
        };
        Ok(places.enumerate().map(one).collect())
    }

    async fn update(
        &mut self,
        batch: &[Example<'_, bool>],
        geometry: Option<Geometry>,
        interrupt: &Interrupt,
    ) -> Result<Report, EngineError> {
        if interrupt.is_asked() {
            return Err(EngineError::Interrupted);
        }
        let (mut gradient, mut signal, mut steps) = (0.0, 0.0, 0.0);
        let Geometry { mini_batch, passes } =
            geometry.unwrap_or(Geometry { mini_batch: u32::MAX, passes: 1 });
        for _ in 0..passes {
            for batch in batch.chunks(mini_batch as usize) {
                let (shared, of) = self.step(batch)?;
                (gradient, signal, steps) = (gradient + shared, signal + of, steps + 1.0);
            }
        }
        self.version += 1;
        let metrics = vec![("gradient", gradient), ("signal", signal / steps), ("ability", self.ability)];
        Ok(Report { metrics })
    }

    fn computed(&mut self) -> Compute {
        std::mem::take(&mut self.computed)
    }
}

impl Coin {
    /// Makes one optimizer step. Returns the gradient shared by all prompts, and the share of it
    /// that noise leaves.
    fn step(&mut self, batch: &[Example<'_, bool>]) -> Result<(f64, f64), EngineError> {
        self.computed.optimizer_steps += 1;
        let learned = || batch.iter().filter(|e| e.advantage != 0.0);
        self.computed.trained_tokens += learned().map(|e| u64::from(e.sample.tokens)).sum::<u64>();
        // If no rollout has an advantage, the gradient is 0.
        let n = learned().count().max(1) as f64;
        let signal = 1.0 / (1.0 + self.config.noise / n).sqrt();
        let mut shared = 0.0;
        let mut own: Vec<(usize, f64)> = Vec::with_capacity(batch.len());
        for example in batch {
            let y = if example.sample.answer { 1.0 } else { 0.0 };
            let Sample { prompt, sampling, .. } = *example.sample;
            let mut g = signal * f64::from(example.advantage) * (y - self.pass_rate_at(prompt, sampling)) / n;
            if let Some(own) = sampling {
                g /= f64::from(own.temperature);
            }
            shared += g;
            own.push((example.sample.prompt.0 as usize, g));
        }
        let left = (1.0 - self.ability / self.config.ceiling).max(0.0);
        let ability = self.ability + self.config.transfer * shared * left;
        if !ability.is_finite() || own.iter().any(|(_, g)| !(self.config.memory * g).is_finite()) {
            return Err(EngineError::NotFinite("the gradient"));
        }
        self.ability = ability;
        for (prompt, g) in own {
            self.skill[prompt] += self.config.memory * g;
        }
        Ok((shared, signal))
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + libm::exp(-x))
}

/// Returns a standard normal draw (Box–Muller), the same on every machine.
pub fn normal(stream: &mut seed::Stream) -> f64 {
    let radius = (-2.0 * libm::log(1.0 - stream.unit())).sqrt();
    radius * libm::cos(std::f64::consts::TAU * stream.unit())
}

fn log_prob(p: f64, right: bool) -> f64 {
    libm::log(if right { p } else { 1.0 - p })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_that_makes_no_sense_is_refused_by_name() {
        let refused = |change: fn(&mut CoinConfig)| {
            let mut config = CoinConfig::default();
            change(&mut config);
            Coin::new(config, 1).expect_err("it makes no sense").to_string()
        };
        assert_eq!(refused(|c| c.prompts = 0), "`world.prompts` is 0; it is from 1 to 20,000,000");
        assert_eq!(
            refused(|c| c.spread = f64::NAN),
            "`world.spread` is NaN; it is finite, and negative for a difficulty alone"
        );
    }

    /// Returns the ability gained by an update on this many rollouts of one prompt, half of them right.
    fn taught(noise: f64, rollouts: u32) -> f64 {
        let mut coin =
            Coin::new(CoinConfig { noise, ..CoinConfig::default() }, 5).expect("a config that is fine");
        let samples: Vec<Sample<bool>> =
            (0..rollouts).map(|i| Sample { answer: i % 2 == 0, ..coin.flip(PromptId(7), i, None) }).collect();
        let advantage = |s: &Sample<bool>| if s.answer { 1.0 } else { -1.0 };
        let batch: Vec<Example<'_, bool>> = samples
            .iter()
            .map(|sample| Example { sample, advantage: advantage(sample), by_turn: &[] })
            .collect();
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let never = Interrupt::new();
        let mut update = Box::pin(coin.update(&batch, None, &never));
        assert!(update.as_mut().poll(&mut context).is_ready(), "it waits for nothing");
        drop(update);
        coin.ability
    }

    #[test]
    fn an_update_teaches_the_less_the_fewer_rollouts_it_averages_over() {
        let whole = taught(0.0, 2);
        assert!((taught(0.0, 1000) - whole).abs() < 1e-12, "without noise all updates teach alike");
        for rollouts in [2_u32, 100, 500, 10_000] {
            let share = taught(500.0, rollouts) / whole;
            let expected = (f64::from(rollouts) / (f64::from(rollouts) + 500.0)).sqrt();
            assert!((share - expected).abs() < 1e-12, "{rollouts}: {share}");
        }
    }

    #[test]
    fn a_draw_depends_on_prompt_version_and_position_alone() {
        let coin = Coin::new(CoinConfig::default(), 5).expect("the default config is fine");
        let one = coin.flip(PromptId(7), 3, None);
        coin.flip(PromptId(8), 0, None);
        assert_eq!(coin.flip(PromptId(7), 3, None), one);
        let rate = (0..4000).filter(|i| coin.flip(PromptId(7), *i, None).answer).count() as f64 / 4000.0;
        assert!((rate - coin.pass_rate(PromptId(7))).abs() < 0.03, "{rate}");
    }
}
