//! A training run before its weights are loaded: the checks that need no weights, and the run's memory.

use std::path::PathBuf;
use std::sync::Arc;

use allot_allocation::{Run, Terms};
use allot_base::{Error, Result};
use allot_config::settings;
use allot_config::train::TrainConfig;
use allot_engine::cpu::{Memory, OPEN, Sampled, Setup};
use allot_engine::model::{By, Shape};
use allot_engine::tensors::{self, DeviceName};
use allot_engine::{Signal, Stops};
use allot_judges::episodes::Episodes;
use allot_judges::graders;
use allot_judges::identity::GraderPreflight;
use allot_models::tokens::Tokens;
use allot_remote::preflight;
use allot_remote::rollouts::{self, Preflight as Sampler};
use allot_sandbox::{LogLine, Policy};
use candle_core::Device;

use crate::outside::Outside;
use crate::problems::{Asking, Found, Problems};
use crate::{engines, memory, policy_loader};

/// The hint for a prompt and an answer that are too long together.
const TOGETHER: &str = "lower one of them: prompt and answer must fit into the context together";

/// Everything about a run that is known before the weights are loaded.
pub struct Prepared<'a> {
    /// The run's config, with the date in its prompts.
    pub config: TrainConfig,
    /// The policy.
    pub policy: &'a Policy,
    /// The run as the policy sees it.
    pub run: Run,
    /// The model's files.
    pub path: PathBuf,
    /// The model's shape.
    pub shape: Shape,
    /// The model's tokenizer.
    pub tokens: Arc<Tokens>,
    /// Tokens and texts that end an answer.
    pub stops: Stops,
    /// The problems.
    pub problems: Arc<Problems>,
    /// The preflights of graders outside this program.
    pub judges: Vec<Option<GraderPreflight>>,
    /// The environment, if it is outside of this program.
    pub outside: Option<Outside>,
    /// The setup of the model.
    pub setup: Setup,
    /// The model's device.
    pub device: Device,
    /// Memory that the run needs.
    pub memory: Memory,
    /// The rollout server's description of itself, if there is a rollout server.
    pub sampler: Option<Sampler>,
    /// The policy's first state.
    pub state: Vec<u8>,
    /// Log lines written by the policy's `begin`.
    pub log: Vec<LogLine>,
}

impl<'a> Prepared<'a> {
    /// Makes all checks that need no weights: quick ones first, and of those the essential ones.
    pub fn new(mut config: TrainConfig, policy: &'a Policy) -> Result<Self> {
        let description = policy.description();
        let settings = settings(description, &config.policy.settings)?;
        let (engine, signals) = signals(&config);
        policy_loader::measurable(description, engine, signals)?;
        let device = tensors::open(config.model.device)?;
        if let Some(server) = config.engine.server() {
            engines::has_room("engine.connections", u64::from(server.connections))?;
            preflight(server)?;
        }
        let path = allot_models::find(&config.model.source)?;
        let shape = allot_models::shape(&path)?;
        let sampler = sampler(&config, &shape)?;
        // In parallel: with a real tokenizer and data set, each takes a tenth of a second.
        let (tokens, found) =
            rayon::join(|| Tokens::read(&path), || Found::load(&config, &description.columns));
        let (tokens, found) = (tokens?, found?);
        tokens.fits(shape.vocabulary)?;

        let stops = tokens.stops_and(&config.model.stop)?;
        let longest = longest_prompt(&config, &shape)?;
        if let Some(date) = config.model.date {
            tokens.set_date(date);
        }
        let outside =
            Outside::check(config.environment.as_ref(), (&path, &tokens), &config.model.stop, found.each())?;
        let asking = Asking { tokens: &tokens, outside: outside.as_ref() };
        let mut problems = Problems::of(found, &config, asking, longest)?;
        // A run that is resumed or repeated uses the same date.
        config.model.date = config.model.date.or(tokens.date());
        if let Some(environment) = &config.environment
            && let Some(embedded) = environment.environment.embedded()
        {
            problems.notes.extend(Episodes::check(environment, embedded, &tokens, &problems.all)?);
        }
        let judges = graders::check(&config.reward, &problems.all)?;
        if problems.all.len() > problems.train {
            judges.iter().flatten().try_for_each(|judge| judges_alone(judge, &config))?;
        }
        let terms = Terms { columns: problems.columns.clone(), ..config.terms() };
        let run = policy.shown(config.run.run(problems.train as u32, settings), terms);
        let (state, cost) = policy_loader::begun(policy, &run, "policy")?;
        let setup = setup(&config, &problems);
        sampler.as_ref().map_or(Ok(()), |sampler| sampler.fits(setup.longest))?;
        let memory = memory(&config, &shape, &setup)?;
        Ok(Self {
            config,
            policy,
            run,
            path,
            shape,
            tokens: Arc::new(tokens),
            stops,
            problems: Arc::new(problems),
            outside,
            judges,
            setup,
            device,
            memory,
            sampler,
            state,
            log: cost.words().collect(),
        })
    }

    /// Returns notes about the problems and the rollout server.
    pub fn notes(&self) -> impl Iterator<Item = &String> {
        let sampler = self.sampler.iter().flat_map(|sampler| &sampler.notes);
        self.problems.notes.iter().chain(sampler)
    }

    /// Fails if the run needs more memory than this machine has.
    pub fn has_room(&self) -> Result<()> {
        // The memory of a server or of a GPU is not known here.
        let here = self.config.engine.is_native() && self.config.model.device == DeviceName::Cpu;
        if here { memory::has_room(&self.memory) } else { Ok(()) }
    }
}

/// Refuses a grader that compares answers and has no verdict on a lone one, if held-out problems get one answer each: their
/// accuracy would be that of no verdicts.
fn judges_alone(judge: &GraderPreflight, config: &TrainConfig) -> Result<()> {
    match &judge.opinion {
        Err(why) if judge.compares && config.evaluation.rollouts == 1 => {
            let what = format!("held-out problems get one answer each, on which there is no verdict: {why}");
            Err(Error::new(what)
                .hint("set `evaluation.rollouts` to 2 or more, or give a lone answer a verdict"))
        }
        _ => Ok(()),
    }
}

/// Returns the engine's name and its signals.
fn signals(config: &TrainConfig) -> (&'static str, &'static [&'static str]) {
    match (config.engine.server(), &config.rollout_server) {
        (Some(_), _) => ("tinker", &allot_remote::SIGNALS[..]),
        (None, Some(rollouts)) => (rollouts.kind.name(), &allot_remote::SIGNALS[..]),
        (None, None) => ("native", &Signal::NAMES[..]),
    }
}

/// Queries the rollout server, if there is one.
fn sampler(config: &TrainConfig, shape: &Shape) -> Result<Option<Sampler>> {
    let Some(rollouts) = &config.rollout_server else { return Ok(None) };
    // Each rollout is a separate request, and each server gets this many at a time.
    engines::has_room("model.rows", (config.model.rows * rollouts.url.all().len()) as u64)?;
    Ok(Some(rollouts::preflight(rollouts, shape, &config.unusual())?))
}

/// Returns the most tokens that a prompt may have.
fn longest_prompt(config: &TrainConfig, shape: &Shape) -> Result<usize> {
    let answer = after_prompt(config);
    let by = if config.model.device == DeviceName::Cpu { By::Cpu } else { By::Kernels };
    let (most, limit) = shape.most(by);
    let room = most.checked_sub(answer).filter(|room| *room > 0).ok_or_else(|| {
        let keys = match &config.environment {
            None => "`sampling.max_tokens` is",
            Some(_) => "`sampling.max_tokens` and `environment.max_read_tokens` are together",
        };
        let what = format!("{keys} {answer}, but the model's {limit} has {most}");
        Error::new(what).hint(TOGETHER)
    })?;
    let longest = config.model.max_prompt_tokens.unwrap_or(room);
    if longest > room || longest == 0 {
        let what = format!("`model.max_prompt_tokens` is {longest}; expected 1 to {room}");
        return Err(Error::new(what).hint(TOGETHER));
    }
    Ok(longest)
}

/// Returns the most tokens after a prompt: of an answer, or of an episode with all that its environment says.
fn after_prompt(config: &TrainConfig) -> usize {
    let read = config.environment.as_ref().map_or(0, |environment| environment.max_read_tokens);
    config.sampling.max_tokens as usize + read as usize
}

/// Returns the setup of the model for these problems.
fn setup(config: &TrainConfig, problems: &Problems) -> Setup {
    let prompt = problems.prompts.iter().map(Vec::len).max().unwrap_or(0);
    Setup {
        precision: config.model.dtype,
        threads: config.model.threads.unwrap_or(1),
        longest: prompt + after_prompt(config),
        lora: config.model.lora,
        reference: config.update.loss.kl > 0.0,
        seed: config.run.seed,
    }
}

/// Returns the memory that a run needs. Fails if the device can't run the model.
fn memory(config: &TrainConfig, shape: &Shape, setup: &Setup) -> Result<Memory> {
    let (update, model) = (&config.update, &config.model);
    let (rows, micro) = (model.rows, update.micro_batch_tokens);
    match model.device {
        DeviceName::Cpu => {
            // A policy that requests fewer rollouts per prompt has more prompts at a time.
            let together = config.run.rollouts.min(config.evaluation.rollouts) as usize;
            // Episodes that wait for their environments keep their keys and values, too.
            let rows = if config.environment.is_some() { rows.saturating_mul(OPEN) } else { rows };
            // What an environment says is read at once; where a training row goes on after another, all of it.
            let read = config.environment.as_ref().map_or(0, |environment| {
                let all = environment.max_rows > 1;
                if all { after_prompt(config) } else { environment.max_read_tokens as usize }
            });
            let sampled = Sampled { rows, answer: after_prompt(config), together, read };
            let memory = Memory::of(shape, setup, sampled, micro, update.recompute);
            Ok(if config.run.lag > 0 { memory.with_learner(model.dtype) } else { memory })
        }
        DeviceName::Cuda(_) => {
            let kernels = shape.has_kernels();
            kernels.map_err(|reason| Error::new(reason).hint("set `model.device` to \"cpu\""))?;
            Ok(tensors::memory(shape, setup, rows, micro, update.recompute))
        }
    }
}
