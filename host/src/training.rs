//! A training run: the real step loop over a language model, on this machine, on a server, or on both.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use allot_allocation::{Ledger, Pool, RolloutBuffer, Run, Terms, TokenCosts, shown};
use allot_config::settings;
use allot_config::train::{AlsoConfig, TrainConfig};
use allot_engine::core::Core;
use allot_engine::cpu::{Memory, Sampled, Setup};
use allot_engine::model::{By, Checkpoint, Shape};
use allot_engine::place;
use allot_engine::tensors::{self, DeviceName};
use allot_engine::{Engine as _, Interrupt, Native, NativeConfig, Sampling, Signal, Stops};
use allot_judges::component::ComponentConfig;
use allot_judges::config::RewardConfig;
use allot_judges::http::HttpConfig;
use allot_judges::sandboxed::PythonConfig;
use allot_loop::{Constants, Loop, Scores};
use allot_remote::rollouts::{self, Preflight, RolloutsConfig, Split};
use allot_remote::{Remote, RemoteConfig, preflight};
use allot_sandbox::{LogLine, Policy};
use candle_core::Device;

use crate::checkpoint::State;
use crate::engines::{self, AnyEngine};
use crate::evaluation::Evaluation;
use crate::memory;
use crate::problems::{Found, Problems};
use crate::run_dir;
use crate::shadow::Decider;
use crate::shipped;
use crate::world::{Clock, World};
use allot_error::{Error, Result, listed};
use allot_judges::graded::Graded;
use allot_judges::graders::{self, Graders};
use allot_judges::identity::GraderPreflight;
use allot_models;
use allot_models::tokens::Tokens;
use allot_record::{FORMAT, Head, Record, hex};

/// What to do about a prompt and an answer that are too long together.
const TOGETHER: &str = "a prompt and its answer must fit into the context together";

/// A training run's world.
pub type Trained<'a> = World<AnyEngine, Graded, Decider<'a>>;

/// All that can be known before the weights are loaded.
pub struct Prepared<'a> {
    /// The config in force.
    pub config: TrainConfig,
    /// Who decides.
    pub policy: &'a Policy,
    /// The run as the policy sees it.
    pub run: Run,
    /// The model's files.
    pub path: PathBuf,
    /// Its shape.
    pub shape: Shape,
    /// Its tokenizer.
    pub tokens: Rc<Tokens>,
    /// What ends an answer.
    pub stops: Stops,
    /// The problems.
    pub problems: Rc<Problems>,
    /// Who judges, where that is no part of this program.
    pub judges: Vec<Option<GraderPreflight>>,
    /// How the model is set up.
    pub setup: Setup,
    /// Where it is.
    device: Device,
    /// What the run will take.
    pub memory: Memory,
    /// What the server said that samples, if one does.
    pub sampler: Option<Preflight>,
    /// What the policy begins with.
    state: Vec<u8>,
    /// What it said as it began.
    pub log: Vec<LogLine>,
}

impl<'a> Prepared<'a> {
    /// Checks everything that can be checked without the weights.
    pub fn new(mut config: TrainConfig, policy: &'a Policy) -> Result<Self> {
        let description = policy.description();
        let settings = settings(description, &config.policy.settings)?;
        let (engine, signals) = match (config.engine.server(), &config.rollouts) {
            (Some(_), _) => ("tinker", &allot_remote::SIGNALS[..]),
            (None, Some(rollouts)) => (rollouts.kind.name(), &allot_remote::SIGNALS[..]),
            (None, None) => ("native", &Signal::NAMES[..]),
        };
        if let Some(missing) = description.signals.iter().find(|s| !signals.contains(&s.as_str())) {
            let name = &description.name;
            let what = format!(
                "policy `{name}` wants the signal `{missing}`, which engine `{engine}` can't measure"
            );
            return Err(Error::new(what).hint(format!("it measures {}", listed(signals.iter().copied()))));
        }
        // First of all: whatever else is wrong, without its device or its server there is no run.
        let device = config.model.device.open()?;
        if let Some(server) = config.engine.server() {
            engines::has_room("engine.connections", u64::from(server.connections))?;
            preflight(server)?;
        }
        let path = allot_models::find(&config.model.source)?;
        let shape = allot_models::shape(&path)?;
        let rollouts = config.rollouts.as_ref();
        if let Some(rollouts) = rollouts {
            // Each rollout is asked for by itself, and so many of each server.
            engines::has_room("model.rows", (config.model.rows * rollouts.url.all().len()) as u64)?;
        }
        let sampler = rollouts.map(|r| rollouts::preflight(r, &shape, &config.unusual())).transpose()?;
        // Side by side: with a real tokenizer and a data set each takes a tenth of a second.
        let (tokens, found) =
            rayon::join(|| Tokens::read(&path), || Found::load(&config, &description.columns));
        let tokens = tokens?;
        tokens.fits(shape.vocabulary)?;

        let stops = tokens.stops_and(&config.model.stop)?;
        let answer = config.rollout.max_tokens as usize;
        let by = if config.model.device == DeviceName::Cpu { By::Cpu } else { By::Kernels };
        let (most, limit) = shape.most(by);
        let room = most.checked_sub(answer).filter(|room| *room > 0).ok_or_else(|| {
            let what = format!("`rollout.max_tokens` is {answer}, and the model's {limit} has {most}");
            Error::new(what).hint(TOGETHER)
        })?;
        let longest = config.model.max_prompt_tokens.unwrap_or(room);
        if longest > room || longest == 0 {
            let what = format!("`model.max_prompt_tokens` is {longest}; it is from 1 to {room}");
            return Err(Error::new(what).hint(TOGETHER));
        }
        if let Some(date) = config.model.date {
            tokens.set_date(date);
        }
        let problems = Problems::of(found?, &config, &tokens, longest)?;
        // A run that goes on, or is repeated, asks the same.
        config.model.date = config.model.date.or(tokens.date());
        let judges = graders::check(&config.reward, &problems.all)?;
        let terms = Terms { columns: problems.columns.clone(), ..config.terms() };
        let run = policy.shown(config.run.run(problems.train as u32, settings), terms);
        let (state, cost) = policy.begin(&run).map_err(|fault| {
            let name = &description.name;
            Error::told(format!("policy `{name}` {fault}"), fault.hint())
        })?;
        let prompt = problems.prompts.iter().map(Vec::len).max().unwrap_or(0);
        let setup = Setup {
            precision: config.model.dtype,
            threads: config.model.threads.unwrap_or(1),
            longest: prompt + answer,
            lora: config.model.lora,
            reference: config.update.loss.kl > 0.0,
            seed: config.run.seed,
        };
        sampler.as_ref().map_or(Ok(()), |sampler| sampler.fits(setup.longest))?;
        let (u, m) = (&config.update, &config.model);
        let (rows, micro) = (m.rows, u.micro_batch_tokens);
        let memory: Memory = match m.device {
            DeviceName::Cpu => {
                // A policy that asks for fewer rollouts of a prompt has more prompts at a time.
                let together = config.run.rollouts.min(config.evaluation.rollouts) as usize;
                let sampled = Sampled { rows, answer, together };
                let memory = Memory::of(&shape, &setup, sampled, micro, u.recompute);
                if config.run.lag > 0 { memory.with_learner(m.dtype) } else { memory }
            }
            DeviceName::Cuda(_) => {
                shape
                    .has_kernels()
                    .map_err(|reason| Error::new(reason).hint("set `model.device` to \"cpu\""))?;
                tensors::memory(&shape, &setup, rows, micro, u.recompute)
            }
        };
        let (tokens, problems) = (Rc::new(tokens), Rc::new(problems));
        let log = cost.words().collect();
        Ok(Self {
            config,
            policy,
            run,
            path,
            shape,
            tokens,
            stops,
            problems,
            judges,
            setup,
            device,
            memory,
            sampler,
            state,
            log,
        })
    }

    /// Refuses a run that takes more memory than this machine has.
    pub fn has_room(&self) -> Result<()> {
        // Elsewhere it is a server's, or a GPU's.
        let here = self.config.engine.is_native() && self.config.model.device == DeviceName::Cpu;
        if here { memory::has_room(&self.memory) } else { Ok(()) }
    }

    /// What the policy begins with.
    pub fn first_state(&self) -> &[u8] {
        &self.state
    }

    /// Loads the weights and builds the world. It keeps no record yet. Also gives the evaluation and the
    /// hash of the weights.
    pub fn build(&self, log: fn(&LogLine)) -> Result<(Trained<'a>, Evaluation, String)> {
        let config = &self.config;
        let signal = |name: &String| {
            let what = format!("`{}` is no signal that can be measured", shown::name(name));
            Signal::of(name).ok_or_else(|| Error::new(what))
        };
        let signals = self.policy.description().signals.iter().map(signal).collect::<Result<Vec<_>>>()?;
        let native = NativeConfig {
            seed: config.run.seed,
            sampling: Sampling { keep_mask: config.update.keep_sampling_mask, ..config.rollout },
            evaluation: config.evaluation_samplings(),
            stops: self.stops.clone(),
            rows: config.model.rows,
            update: config.update,
            optimizer: config.optimizer,
            updates: config.run.steps,
            signals,
        };
        let prompts = self.problems.prompts.clone();
        let lengths: Vec<u32> = prompts[..self.problems.train].iter().map(|p| p.len() as u32).collect();
        let (engine, fingerprint) = match config.engine.server() {
            None => {
                let core = self.core()?;
                let fingerprint = {
                    let weights = core.weights()?;
                    self.finite(&weights)?;
                    allot_models::fingerprint(core.arena(), &weights)
                };
                let native = Native::new(core, native, prompts);
                let native = if config.run.lag > 0 { native.with_learner()? } else { native };
                (self.here(native)?, fingerprint)
            }
            Some(server) => {
                let remote = Remote::new(server, native, self.shape.clone(), prompts, run_dir::note)?;
                (AnyEngine::Remote(Box::new(remote)), allot_models::fingerprint_of_name(&server.base_model))
            }
        };

        let all = Rc::clone(&self.problems.all);
        let longest = config.rollout.max_tokens;
        let mut run = self.run.clone();
        if let Some(terms) = &mut run.terms {
            terms.costs = TokenCosts::over(&lengths, longest, |prompt, tokens| engine.cost(prompt, tokens));
        }
        let known = self.judges.iter().map(|met| met.as_ref().map(|met| met.identity.clone())).collect();
        let tokens = Rc::clone(&self.tokens);
        let graders = Graders::new(config.reward.clone(), &all, longest, known)?;
        let reward = Graded::new(tokens, Rc::clone(&all), graders).ending_at(self.stops.clone());
        let sets = self.problems.sets.clone();
        let (settings, unjudged) = (config.evaluation.settings(), config.evaluation.unjudged);
        let evaluation = Evaluation::new(sets, all, settings, unjudged, longest);
        let state = allot_loop::State::new(
            self.state.clone(),
            Pool::new(config.run.seed, config.run.order, self.run.pool, lengths),
            RolloutBuffer::new(self.policy.description().signals.len() + self.run.parts().len()),
            Ledger::new(config.budget.limits(longest)),
        );
        let constants = Constants {
            run,
            seed: config.run.seed,
            scale: config.advantage,
            bounds: config.policy.caps.bounds(),
            every: Some(config.evaluation.when("the config")?),
        };
        let world = World {
            run: Loop::new(constants, config.budget.ceilings(), state),
            engine,
            reward,
            policy: Decider::alone(self.policy),
            samples: HashMap::new(),
            paid: Vec::new(),
            record: Record::none(),
            log,
            interrupt: Interrupt::new(),
            clock: Clock::new(),
        };
        Ok((world, evaluation, fingerprint))
    }

    /// An engine that learns here, and samples here or on a server.
    fn here(&self, native: Native) -> Result<AnyEngine> {
        let Some(rollouts) = &self.config.rollouts else {
            return Ok(AnyEngine::Native(Box::new(native)));
        };
        let text = run_dir::text(&self.config)?;
        let handover = engines::handover(rollouts, Rc::clone(&self.tokens), &text);
        Ok(AnyEngine::Split(Box::new(Split::new(native, rollouts, handover, run_dir::note)?)))
    }

    /// Refuses weights of which some are no numbers: nothing could be sampled by them.
    fn finite(&self, weights: &[f32]) -> Result<()> {
        let broken = weights.iter().filter(|w| !w.is_finite()).count();
        if broken == 0 {
            return Ok(());
        }
        let (model, all) = (&self.config.model.source, weights.len());
        let what = format!(
            "the weights of `{model}` are not finite: {broken} of {all} are NaN or infinite in its files"
        );
        Err(Error::new(what).hint("take another copy of the model, or a checkpoint from before it broke"))
    }

    /// The model, with its weights.
    fn core(&self) -> Result<Box<dyn Core>> {
        let checkpoint = Checkpoint::load(&self.path, &Device::Cpu)?;
        Ok(place::core(&self.device, &checkpoint, self.setup)?)
    }

    /// The first line of the run's record.
    pub fn head(&self, world: &Trained<'_>, fingerprint: &str, scores: &Scores) -> Head {
        let (config, description) = (&self.config, self.policy.description());
        let train = self.problems.train;
        let mut reward = serde_json::json!(RewardConfig { graders: Vec::new(), ..config.reward.clone() });
        let mut judged =
            config.reward.each().iter().zip(&self.judges).map(|(one, met)| judged(one, met.as_ref()));
        if config.reward.graders.is_empty() {
            reward = judged.next().unwrap_or(reward);
        } else {
            reward["graders"] = judged.collect();
        }
        let mut training = serde_json::json!({
            "weights": fingerprint,
            "parameters": self.shape.parameters(),
            "trained": self.memory.trained,
            "device": config.model.device,
            "dtype": config.model.dtype,
            "threads": self.setup.threads,
            "lora": config.model.lora,
            "sampling": config.rollout,
            "update": config.update,
            "optimizer": config.optimizer,
            "reward": reward,
            "problems": { "train": train, "sha256": self.problems.hash(0..train) },
            "held_out": {
                "problems": self.problems.all.len() - train,
                "sha256": self.problems.hash(train..self.problems.all.len()),
                "rollouts": config.evaluation.rollouts,
                "unjudged": config.evaluation.unjudged,
                "sampling": config.evaluation_sampling(),
            },
        });
        if !config.evaluation.also.is_empty() {
            let also = |setting: &AlsoConfig| {
                let rollouts = setting.rollouts.unwrap_or(config.evaluation.rollouts);
                let sampling = config.sampling_as(setting.sampling);
                serde_json::json!({ "name": setting.name, "rollouts": rollouts, "sampling": sampling })
            };
            training["held_out"]["also"] = config.evaluation.also.iter().map(also).collect();
        }
        if let Some(growth) = config.evaluation.growth {
            // A rule of its own, where scores are not evenly apart.
            training["held_out"]["every_rollouts"] = serde_json::json!(config.evaluation.every_rollouts);
            training["held_out"]["growth"] = serde_json::json!(growth);
        }
        if let Some(date) = self.tokens.date() {
            training["date"] = serde_json::json!(date);
        }
        if let Some(server) = config.engine.server() {
            elsewhere(&mut training, server);
        }
        if let Some(rollouts) = &config.rollouts {
            training["rollouts"] = sampled_by(rollouts);
        }
        Head {
            format: FORMAT,
            name: config.run.name.clone(),
            allot: env!("CARGO_PKG_VERSION").to_owned(),
            policy: shipped::policy_stamp(self.policy),
            engine: world.engine.capabilities().name,
            signals: description.signals.clone(),
            seed: config.run.seed,
            order: config.run.order,
            run: world.run.of.run.clone(),
            limits: config.budget.limits(config.rollout.max_tokens),
            ceilings: config.budget.ceilings(),
            caps: shipped::stamp(config.policy.caps.caps()),
            state: hex(&world.run.state.policy),
            accuracy: Some(scores.accuracy),
            scores: scores.parts.clone(),
            advantage: Some(config.advantage),
            world: None,
            training: Some(training),
        }
    }

    /// Puts back the state of a checkpoint's folder.
    pub fn restore(&self, world: &mut Trained<'_>, folder: &Path, state: State) -> Result<()> {
        world.engine.restore(folder, &state)?;
        world.samples = state.samples.into_iter().collect();
        world.paid = state.paid;
        world.run = Loop::new(world.run.of.clone(), self.config.budget.ceilings(), state.run);
        Ok(())
    }
}

/// How a grader judges, and who the judge is in place of where it lies on this machine. Limits decide verdicts, whether
/// they were written down or not.
fn judged(one: &RewardConfig, met: Option<&GraderPreflight>) -> serde_json::Value {
    let python = one.sandboxed().then(|| PythonConfig {
        interpreter: None,
        wheels: None,
        ..one.python.clone().unwrap_or_default()
    });
    let http = one.http.as_ref().map(HttpConfig::identity);
    let component = one.component.as_ref().map(ComponentConfig::identity);
    let mut judged = serde_json::json!(RewardConfig { judge: None, python, http, component, ..one.clone() });
    if let Some(met) = met {
        judged["judge"] = serde_json::json!(met.identity);
    }
    judged
}

/// What a record says of a run that a server trains, in place of what it would say of this machine. Neither the
/// server's address nor its key: a run is the same wherever its server is.
fn elsewhere(training: &mut serde_json::Value, server: &RemoteConfig) {
    for here in ["trained", "device", "dtype", "threads"] {
        training[here] = serde_json::Value::Null;
    }
    training["server"] = serde_json::json!({
        "kind": server.server,
        "can": server.server.can(),
        "base_model": server.base_model,
        "lora_rank": server.lora_rank,
        "samples_per_request": server.samples_per_request,
    });
}

/// What a record says of the server that samples. Neither its address nor its key, nor where weights are handed over.
fn sampled_by(rollouts: &RolloutsConfig) -> serde_json::Value {
    serde_json::json!({
        "kind": rollouts.kind,
        "model": rollouts.model,
        "dtype": rollouts.dtype,
        "tolerance": rollouts.tolerance,
    })
}
