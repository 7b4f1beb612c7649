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
//! - With `turns`, a rollout is an episode: a chain of flips. A prompt's chains have from one turn to so many, fixed by
//!   the world's seed; each flip is right with probability `p_i^(1/n)`, so that all n are with `p_i`, and a wrong one
//!   can't be made good. Training is the gradient of the chain's own flips, each with its turn's advantage.
//! - An answer's length is log-normal, the same for right and wrong, cut at the limit.
//! - Exponentials come from a library, not the system, so that a run gives the same bytes on every machine.
//! - Sampling takes no time and no operations, so the world says nothing about seconds or FLOPs.

mod chain;

use std::collections::HashMap;

pub use allot_settings::CoinConfig;

use allot_allocation::{
    Column, Compute, Geometry, Grant, GrantLine, LENGTH, PromptId, SOURCE, SamplerSettings, Start, Stopped,
    TurnLength, seed,
};

pub use self::chain::{Chain, Flip};
use self::chain::{Course, Link};

use crate::{Capabilities, Engine, EngineError, Example, Interrupt, Purpose, Report, Sample, Sampled, Whole};

/// Maximum number of prompts and of held-out problems: about 0.5 GB of odds.
const MOST: u32 = 20_000_000;
/// Maximum number of turns.
const MOST_TURNS: u32 = 1000;

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
    /// The episodes that the next grant continues, by prompt and position.
    held: HashMap<(PromptId, u32), Flip>,
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
        let turns = (1..=MOST_TURNS).contains(&config.turns);
        check(turns, "world.turns", config.turns.to_string(), "it is from 1 to 1000")?;
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
            held: HashMap::new(),
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

    /// Returns the number of turns of a prompt's episodes: with `turns` in the config, one to so many.
    fn turns_of(&self, prompt: PromptId) -> u32 {
        1 + (seed::world(self.run_seed, 3, u64::from(prompt.0)) % u64::from(self.config.turns)) as u32
    }

    /// Returns the probability that a flip of a chain is right, where the whole is with probability `p`.
    fn link(&self, prompt: PromptId, p: f64) -> f64 {
        match self.turns_of(prompt) {
            1 => p,
            turns => libm::pow(p, 1.0 / f64::from(turns)),
        }
    }

    fn flip(
        &self,
        (prompt, position): (PromptId, u32),
        sampling: Option<SamplerSettings>,
        kept: Vec<Link>,
    ) -> Sample<Flip> {
        let mut stream = seed::Stream::new(seed::rollout(self.run_seed, prompt, self.version, position));
        let p = self.pass_rate_at(prompt, sampling);
        let first = stream.unit() < p;
        let wanted = (self.config.tokens * libm::exp(0.5 * normal(&mut stream))).max(1.0);
        let longest = sampling.map_or(self.config.longest, |own| own.max_tokens.min(self.config.longest));
        let mut sample = Sample {
            prompt,
            position,
            version: self.version,
            answer: Flip::from(first),
            tokens: wanted.min(f64::from(longest)) as u32,
            truncated: wanted > f64::from(longest),
            log_prob: log_prob(p, first),
            signals: self.config.signals.iter().map(|_| stream.unit() as f32).collect(),
            sampling,
        };
        if self.config.turns > 1 {
            let (turns, q) = (self.turns_of(prompt), self.link(prompt, p));
            let most = sampling.map_or(self.config.turns, |own| own.max_turns.min(self.config.turns));
            let each = (wanted / f64::from(turns)).max(1.0).min(f64::from(u32::MAX)) as u32;
            let chain = Chain::flip(kept, Course { turns, most, each, longest }, || stream.unit() < q);
            sample.tokens = chain.own.iter().map(|link| link.tokens).sum();
            sample.truncated = chain.stopped == Stopped::MaxTokens;
            sample.log_prob = chain.own.iter().map(|link| log_prob(q, link.right)).sum();
            sample.answer = Flip { right: chain.is_right(), chain: Some(Box::new(chain)) };
        }
        sample
    }

    /// Returns what a rollout keeps of the episode that it continues.
    fn kept(&self, prompt: PromptId, start: Option<Start>) -> Vec<Link> {
        let source = start.and_then(|start| Some((self.held.get(&(prompt, start.rollout))?, start.turn)));
        source.map_or_else(Vec::new, |(flip, turn)| flip.keep(turn))
    }

    /// Returns the gradient of a rollout's log-probability by its prompt's logit at its temperature, with each turn
    /// weighed by its advantage times `signal`.
    fn gradient(&self, example: &Example<'_, Flip>, signal: f64) -> f64 {
        let Sample { prompt, sampling, answer, .. } = example.sample;
        let p = self.pass_rate_at(*prompt, *sampling);
        let Some(chain) = &answer.chain else {
            let y = if answer.right { 1.0 } else { 0.0 };
            return signal * f64::from(example.advantage) * (y - p);
        };
        let (q, turns) = (self.link(*prompt, p), f64::from(self.turns_of(*prompt)));
        // The derivative of q by the logit is q (1 - p) / n; a q of 1 comes from a p of 1.
        let wrong = if q < 1.0 { q * (1.0 - p) / (1.0 - q) / turns } else { 1.0 };
        let each = chain.own.iter().enumerate().map(|(turn, link)| {
            let advantage = example.by_turn.get(turn).copied().unwrap_or(example.advantage);
            signal * f64::from(advantage) * if link.right { (1.0 - p) / turns } else { -wrong }
        });
        each.sum()
    }
}

impl Engine for Coin {
    type Answer = Flip;

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
        whole: Whole<'_, Flip>,
        interrupt: &Interrupt,
    ) -> Result<Sampled<Flip>, EngineError> {
        let places = grant.lines().iter().flat_map(|line| line.rollouts().map(move |place| (line, place)));
        let one = |(place, (line, (position, start))): (usize, (&GrantLine, (u32, Option<Start>)))| {
            (!interrupt.is_asked())
                .then(|| self.flip((line.prompt, position), line.sampling, self.kept(line.prompt, start)))
                .inspect(|sample| whole(place, sample))
        };
        Ok(places.enumerate().map(one).collect())
    }

    fn hold(&mut self, rollouts: HashMap<(PromptId, u32), Flip>) {
        self.held = rollouts;
    }

    fn turns(answer: &Flip) -> Option<(Vec<TurnLength>, Stopped)> {
        answer.chain.as_ref().map(|chain| (chain.lengths(), chain.stopped))
    }

    async fn update(
        &mut self,
        batch: &[Example<'_, Flip>],
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
    fn step(&mut self, batch: &[Example<'_, Flip>]) -> Result<(f64, f64), EngineError> {
        self.computed.optimizer_steps += 1;
        let learned = || {
            batch.iter().filter(|e| e.advantage != 0.0 || e.by_turn.iter().any(|advantage| *advantage != 0.0))
        };
        self.computed.trained_tokens += learned().map(|e| u64::from(e.sample.tokens)).sum::<u64>();
        // If no rollout has an advantage, the gradient is 0.
        let n = learned().count().max(1) as f64;
        let signal = 1.0 / (1.0 + self.config.noise / n).sqrt();
        let mut shared = 0.0;
        let mut own: Vec<(usize, f64)> = Vec::with_capacity(batch.len());
        for example in batch {
            let mut g = self.gradient(example, signal) / n;
            if let Some(own) = example.sample.sampling {
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

    fn flip(coin: &Coin, prompt: u32, position: u32) -> Sample<Flip> {
        coin.flip((PromptId(prompt), position), None, Vec::new())
    }

    /// Returns the ability gained by an update on this many rollouts of one prompt, half of them right.
    fn taught(noise: f64, rollouts: u32) -> f64 {
        let mut coin =
            Coin::new(CoinConfig { noise, ..CoinConfig::default() }, 5).expect("a config that is fine");
        let samples: Vec<Sample<Flip>> =
            (0..rollouts).map(|i| Sample { answer: (i % 2 == 0).into(), ..flip(&coin, 7, i) }).collect();
        let advantage = |s: &Sample<Flip>| if s.answer.right { 1.0 } else { -1.0 };
        let batch: Vec<Example<'_, Flip>> = samples
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

    fn played(turns: u32) -> Coin {
        Coin::new(CoinConfig { turns, ..CoinConfig::default() }, 5).expect("a config that is fine")
    }

    #[test]
    fn an_episode_is_right_as_often_as_one_flip_and_more_often_from_a_right_beginning() {
        let coin = played(6);
        let prompt = (0..200).find(|i| coin.turns_of(PromptId(*i)) == 4).expect("some prompts have 4 turns");
        let all: Vec<Sample<Flip>> = (0..4000).map(|i| flip(&coin, prompt, i)).collect();
        let rate = |all: &[Sample<Flip>]| {
            all.iter().filter(|sample| sample.answer.right).count() as f64 / all.len() as f64
        };
        let p = coin.pass_rate(PromptId(prompt));
        assert!((rate(&all) - p).abs() < 0.03, "{} {p}", rate(&all));
        // Of 4 turns 2 are kept: right ones leave two flips, and a wrong one can't be made good.
        for (right, expected) in [(true, p.powf(0.5)), (false, 0.0)] {
            let kept = all.iter().map(|sample| sample.answer.keep(1));
            let mut kept = kept.filter(|kept| kept.iter().all(|link| link.right) == right);
            let kept = kept.next().expect("there are both");
            let from: Vec<Sample<Flip>> =
                (0..4000).map(|i| coin.flip((PromptId(prompt), 5000 + i), None, kept.clone())).collect();
            assert!((rate(&from) - expected).abs() < 0.03, "{} {expected}", rate(&from));
        }
    }

    #[test]
    fn the_gradient_is_that_of_the_flips_log_probability() {
        let coin = played(6);
        for prompt in 0..20 {
            let sample = flip(&coin, prompt, 0);
            let log_prob = |by: f64| {
                let moved = Coin { ability: by, ..coin.clone() };
                let q = moved.link(PromptId(prompt), moved.pass_rate(PromptId(prompt)));
                let chain = sample.answer.chain.as_ref().expect("it is an episode");
                chain.own.iter().map(|link| log_prob(q, link.right)).sum::<f64>()
            };
            let slope = (log_prob(1e-5) - log_prob(-1e-5)) / 2e-5;
            let ours = coin.gradient(&Example { sample: &sample, advantage: 1.0, by_turn: &[] }, 1.0);
            assert!((slope - ours).abs() < 1e-5 * (1.0 + slope.abs()), "{prompt}: {slope} {ours}");
            // Turns with an advantage of 0 teach nothing.
            let none = vec![0.0; 6];
            assert_eq!(coin.gradient(&Example { sample: &sample, advantage: 1.0, by_turn: &none }, 1.0), 0.0);
        }
    }

    #[test]
    fn a_draw_depends_on_prompt_version_and_position_alone() {
        let coin = Coin::new(CoinConfig::default(), 5).expect("the default config is fine");
        let one = flip(&coin, 7, 3);
        flip(&coin, 8, 0);
        assert_eq!(flip(&coin, 7, 3), one);
        let rate = (0..4000).filter(|i| flip(&coin, 7, *i).answer.right).count() as f64 / 4000.0;
        assert!((rate - coin.pass_rate(PromptId(7))).abs() < 0.03, "{rate}");
    }
}
