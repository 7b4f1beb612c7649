//! The config of a training run.

use std::path::{Path, PathBuf};

use allot_allocation::advantage::Scale;
use allot_allocation::{
    Columns, Every, Geometry, Need, SamplerRange, SamplerSettings, Terms, TokenCosts, shown,
};
use allot_base::{Error, Result, absolute, looks_like_a_path};
use allot_settings::loss::LossKind;
use allot_settings::{
    AnyEnvironment, AnyGrader, Date, DeviceName, EnvironmentSettings, LoraConfig, OptimizerConfig, Precision,
    RemoteConfig, RewardConfig, RolloutsConfig, Sampling, UpdateConfig, hub,
};
use allot_tasks::dataset::{DatasetConfig, Files, Package};
use allot_tasks::generate::TaskConfig;
use serde::{Deserialize, Serialize};

use super::compare::CompareConfig;
use super::requests::RequestsConfig;
use super::{BudgetConfig, PolicyConfig, RunConfig, Tree};

/// A training run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainConfig {
    /// Seed, steps and group geometry.
    pub run: RunConfig,
    /// The budget.
    pub budget: BudgetConfig,
    /// The policy.
    pub policy: PolicyConfig,
    /// How rewards become advantages.
    #[serde(default)]
    pub advantage: Scale,
    /// The engine that trains. By default this program.
    #[serde(default, skip_serializing_if = "EngineConfig::is_native")]
    pub engine: EngineConfig,
    /// The inference servers that sample, if this program does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout_server: Option<RolloutsConfig>,
    /// The model.
    pub model: ModelConfig,
    /// Sampling settings of rollouts.
    #[serde(default)]
    pub sampling: Sampling,
    /// The sampling settings that a policy may choose by request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<RequestsConfig>,
    /// Settings of updates.
    #[serde(default)]
    pub update: UpdateConfig,
    /// The optimizer.
    #[serde(default)]
    pub optimizer: OptimizerConfig,
    /// The environment of rollouts of several turns, and their limits. Without it, a rollout is one answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<EnvironmentSettings>,
    /// The graders.
    pub reward: RewardConfig,
    /// When and how held-out accuracy is measured.
    #[serde(default)]
    pub evaluation: EvaluationConfig,
    /// When checkpoints are written.
    #[serde(default)]
    pub checkpoint: CheckpointConfig,
    /// Problems from files.
    #[serde(default)]
    pub data: Vec<DatasetConfig>,
    /// Problems from generators.
    #[serde(default)]
    pub tasks: Vec<TaskConfig>,
    /// The comparison, for `allot compare`; ignored by a single run.
    #[serde(default, skip_serializing)]
    pub compare: Option<CompareConfig>,
}

/// The engine that trains.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "use", rename_all = "lowercase", deny_unknown_fields)]
pub enum EngineConfig {
    /// This program, on this machine.
    #[default]
    Native,
    /// A server with the Tinker protocol, which holds the weights. `[model]` names tokenizer and template.
    Tinker(RemoteConfig),
}

impl EngineConfig {
    /// Returns whether this program trains.
    pub fn is_native(&self) -> bool {
        *self == Self::Native
    }

    /// Returns the server, if one trains.
    pub fn server(&self) -> Option<&RemoteConfig> {
        match self {
            Self::Native => None,
            Self::Tinker(server) => Some(server),
        }
    }
}

/// The model, and the device that it is trained on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// The name of a built-in model, the path of a folder in Hugging Face layout or of a GGUF file, or a
    /// hub id such as `hub:HuggingFaceTB/SmolLM2-135M-Instruct`.
    #[serde(rename = "use")]
    pub source: String,
    /// The device: `cpu`, `cuda` or, for one of several GPUs, `cuda:1`.
    #[serde(default)]
    pub device: DeviceName,
    /// Number format of matrix products: `f32`, or `bf16` with weights and moments kept in float32.
    #[serde(default)]
    pub dtype: Precision,
    /// Low-rank adapters to train instead of all weights.
    pub lora: Option<LoraConfig>,
    /// Threads. By default one per core. Results are bit-identical for the same number of threads, so the
    /// number is stored when a run starts.
    pub threads: Option<usize>,
    /// Answers sampled concurrently. On a server, concurrent requests.
    #[serde(default = "rows")]
    pub rows: usize,
    /// Texts that end an answer, in addition to the model's own end tokens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// The date that the chat template prints, if it prints one. By default the date of the run's start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub date: Option<Date>,
    /// Length limit of a prompt, in tokens. Longer prompts are left out and reported. By default the
    /// model's context minus the length limit of an answer.
    pub max_prompt_tokens: Option<usize>,
}

/// When and how held-out accuracy is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EvaluationConfig {
    /// Steps between evaluations, by default ten. The start and the end are always evaluated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<u32>,
    /// Instead: rollouts between evaluations. Evaluates policies of any step size equally often.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every_rollouts: Option<u64>,
    /// Instead: generated tokens between evaluations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every_tokens: Option<u64>,
    /// With `every_rollouts`: the next evaluation is after this share of the rollouts so far, if more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub growth: Option<f64>,
    /// Rollouts of each held-out problem.
    pub rollouts: u32,
    /// Maximum number of held-out problems of each set.
    pub problems: usize,
    /// Sampling settings that differ from `[sampling]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling: Option<EvaluationSampling>,
    /// How an unscorable answer counts.
    pub unjudged: Unjudged,
    /// Further sampling settings for evaluating the same problems.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<AlsoConfig>,
    /// Further sets. All their problems are held out.
    pub sets: Vec<DatasetConfig>,
}

/// A further sampling setting for held-out problems. Targets do not use its accuracy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlsoConfig {
    /// The suffix of its metrics' names.
    pub name: String,
    /// Rollouts of each problem. By default as in the first setting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollouts: Option<u32>,
    /// Sampling settings that differ from `[sampling]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling: Option<EvaluationSampling>,
}

/// A sampling setting for held-out problems: its name (`None` for the first) and rollouts per problem.
pub type Setting = (Option<String>, u32);

/// How an unscorable held-out answer counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unjudged {
    /// As incorrect, so that a failing grader cannot raise accuracy.
    #[default]
    Wrong,
    /// Not at all: accuracy is over answers with a verdict, and problems without one are left out.
    LeaveOut,
}

/// Sampling settings of held-out answers. By default those of `[sampling]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EvaluationSampling {
    /// Divisor of the logits. At 0, the most likely token is taken.
    pub temperature: Option<f32>,
    /// Sample from this many of the most likely tokens; 0 for all.
    pub top_k: Option<usize>,
    /// Sample from the most likely tokens that together have this probability; 1 for all.
    pub top_p: Option<f32>,
    /// Length limit of an answer, in tokens.
    pub max_tokens: Option<u32>,
}

impl EvaluationConfig {
    /// Returns when accuracy is measured. `name` names the config in an error.
    pub fn when(&self, name: &str) -> Result<Every> {
        super::every(name, self.every, self.every_rollouts, self.every_tokens, self.growth)
    }

    /// Returns the sampling settings for evaluating problems. The first one gives the accuracy.
    pub fn settings(&self) -> Vec<Setting> {
        let also = self.also.iter();
        let also = also.map(|s| (Some(s.name.clone()), s.rollouts.unwrap_or(self.rollouts)));
        std::iter::once((None, self.rollouts)).chain(also).collect()
    }

    /// Returns an error in the further settings, if there is one.
    fn wrong(&self) -> Option<(String, String)> {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        for (i, setting) in self.also.iter().enumerate() {
            let name = &setting.name;
            if name.is_empty() || name.len() > 64 || !name.chars().all(fits) {
                let rule =
                    "expected 1 to 64 letters, digits, `-`, `_` and `.`, because metric names contain it";
                return Some((format!("`evaluation.also.name` is `{}`", shown::name(name)), rule.to_owned()));
            }
            if self.also[..i].iter().any(|other| other.name == *name) {
                let what = format!("two of `evaluation.also` are called `{name}`");
                return Some((what, "expected a different name for each".to_owned()));
            }
        }
        None
    }
}

impl Default for EvaluationConfig {
    fn default() -> Self {
        Self {
            every: None,
            every_rollouts: None,
            every_tokens: None,
            growth: None,
            rollouts: 1,
            problems: 500,
            sampling: None,
            unjudged: Unjudged::default(),
            also: Vec::new(),
            sets: Vec::new(),
        }
    }
}

/// When checkpoints are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CheckpointConfig {
    /// Steps between checkpoints. The end always has one.
    pub every: u32,
    /// Number of checkpoints kept.
    pub keep: u32,
    /// Whether the table of rollouts has their texts.
    pub text: bool,
}

impl Default for CheckpointConfig {
    fn default() -> Self {
        Self { every: 20, keep: 2, text: true }
    }
}

/// Maximum number of threads. Far more would exhaust a machine.
pub const MOST_THREADS: u64 = 1024;

/// Maximum number of answers of one problem, or sampled concurrently.
const MOST_ANSWERS: u64 = 1 << 16;

/// Maximum rank of adapters: the width of the widest models.
const MOST_RANK: u64 = 1 << 14;

/// Maximum number of epochs over a batch.
const MOST_EPOCHS: u64 = 10_000;

/// Maximum number of turns of an episode.
const MOST_TURNS: u64 = 10_000;

/// Maximum `top_k` with kept sampling masks. Each answer token takes four bytes per kept token.
const MOST_KEPT: usize = 4096;

/// Maximum number of tokens in a micro-batch.
const MOST_TOKENS: u64 = 1 << 24;

fn rows() -> usize {
    64
}

/// Checks that mini-batches are limited by rollouts or by tokens, not both.
fn one_limit(update: &UpdateConfig, name: &str) -> Result<()> {
    let UpdateConfig { mini_batch, mini_batch_tokens, .. } = *update;
    if mini_batch == 0 || mini_batch_tokens == 0 {
        return Ok(());
    }
    let what = format!(
        "`{name}`: `update.mini_batch` is {mini_batch} and `update.mini_batch_tokens` {mini_batch_tokens}; a mini-batch \
         has one limit"
    );
    Err(Error::new(what).hint("set one of them to 0, or leave it out"))
}

/// Refuses a data set that has neither files nor an environment, or both.
fn of_one_kind(data: &DatasetConfig, name: &str) -> Result<()> {
    if data.files.all().iter().any(|file| file.as_os_str().is_empty()) {
        let error = Error::new(format!("`{name}` has a data set with an empty file name"));
        return Err(error.hint("set `files` to a path or a list of paths"));
    }
    match (&data.environment, data.files.is_none()) {
        (None, false) => Ok(()),
        (Some(environment), true) => match environment.wrong() {
            None => Ok(()),
            Some((key, rule)) => Err(Error::new(format!("`{name}`: `data.environment.{key}`: {rule}"))),
        },
        (None, true) => {
            let error = Error::new(format!("`{name}` has a data set without `files`"));
            Err(error.hint("write files = \"…\", or [data.environment] with `use` and `tasks`"))
        }
        (Some(_), false) => {
            let what = format!("`{name}` has a data set with both `files` and `environment`");
            Err(Error::new(what).hint("leave one of them out, or write two data sets"))
        }
    }
}

/// Returns whether a data set's file has the form of a hub name and does not exist locally.
pub fn is_of_the_hub(path: &Path) -> bool {
    path.to_str().is_some_and(hub::is_name) && path.extension().is_none() && !path.exists()
}

impl TrainConfig {
    /// Reads and checks a config. `name` names it in errors.
    pub fn parse(text: &str, name: &str) -> Result<Self> {
        Self::of(&Tree::parse(text, name, &[])?)
    }

    /// Returns the terms of sampling, rewards and training, as far as they are known without a model.
    pub fn terms(&self) -> Terms {
        let rollouts = u32::try_from(self.update.mini_batch).unwrap_or(u32::MAX);
        Terms {
            temperature: self.sampling.temperature,
            max_tokens: self.sampling.max_tokens,
            max_turns: self.samplers().max_turns,
            requests: self.requestable(),
            // In the config, 0 means one step for the whole batch.
            update: Geometry {
                mini_batch: if rollouts == 0 { u32::MAX } else { rollouts },
                passes: self.update.epochs,
            },
            costs: TokenCosts::default(),
            columns: Columns::default(),
            parts: self.reward.parts(),
            needs: [
                (Need::AnyPrompt, true),
                (Need::Replay, true),
                (Need::Stopping, true),
                (Need::Sampling, self.requests.is_some()),
                (Need::Parts, !self.reward.parts().is_empty()),
                (Need::Updating, self.update.by_policy),
                (Need::Turns, self.environment.is_some()),
                (
                    Need::Starting,
                    self.environment.as_ref().is_some_and(EnvironmentSettings::is_deterministic),
                ),
            ]
            .into_iter()
            .filter_map(|(need, given)| given.then_some(need))
            .collect(),
        }
    }

    /// Reads a config from its tree and checks it.
    pub fn of(tree: &Tree) -> Result<Self> {
        let (mut config, name): (Self, _) = (tree.config()?, tree.name());
        config.budget.settle(&config.run);
        let any = u64::from(u32::MAX);
        let episode = config.environment.as_ref();
        let process = episode.and_then(|e| e.process.as_ref());
        let more = [
            ("evaluation.rollouts", u64::from(config.evaluation.rollouts), MOST_ANSWERS),
            ("checkpoint.every", u64::from(config.checkpoint.every), any),
            ("checkpoint.keep", u64::from(config.checkpoint.keep), any),
            ("model.rows", config.model.rows as u64, MOST_ANSWERS),
            ("model.threads", config.model.threads.map_or(1, |t| t as u64), MOST_THREADS),
            ("model.lora.rank", config.model.lora.map_or(1, |l| l.rank as u64), MOST_RANK),
            ("sampling.max_tokens", u64::from(config.sampling.max_tokens), any),
            ("environment.max_turns", episode.map_or(1, |e| u64::from(e.max_turns)), MOST_TURNS),
            ("environment.max_read_tokens", episode.map_or(1, |e| e.max_read_tokens.max(1).into()), any),
            ("environment.max_rows", episode.map_or(1, |e| e.max_rows.into()), MOST_TURNS),
            ("environment.max_open", episode.and_then(|e| e.max_open).map_or(1, u64::from), any),
            ("environment.process.processes", process.map_or(1, |p| p.processes as u64), MOST_THREADS),
            ("environment.process.threads", process.map_or(1, |p| p.threads as u64), MOST_THREADS),
            ("evaluation.sampling.max_tokens", u64::from(config.evaluation_sampling().max_tokens), any),
            ("evaluation.problems", config.evaluation.problems as u64, u64::MAX),
            ("update.epochs", u64::from(config.update.epochs), MOST_EPOCHS),
            ("update.micro_batch_tokens", config.update.micro_batch_tokens as u64, MOST_TOKENS),
            ("update.mini_batch_tokens", config.update.mini_batch_tokens.max(1) as u64, any),
        ];
        let also = config.evaluation.also.iter().filter_map(|s| s.rollouts);
        let also = also.map(|rollouts| ("evaluation.also.rollouts", u64::from(rollouts), MOST_ANSWERS));
        let more: Vec<_> = more.into_iter().chain(also).collect();
        super::check(name, &config.run, &config.budget, &config.policy, config.advantage, &more)?;
        config.evaluation.when(name)?;
        config.compare.as_ref().map_or(Ok(()), |compare| compare.check(name))?;
        config.check(name)?;
        Ok(config)
    }

    fn check(&self, name: &str) -> Result<()> {
        if self.data.is_empty() && self.tasks.is_empty() {
            let error = Error::new(format!("`{name}` has no problems to train on"));
            return Err(error.hint("add a [[tasks]] or a [[data]] section"));
        }
        self.data.iter().chain(&self.evaluation.sets).try_for_each(|data| of_one_kind(data, name))?;
        let wrong = |key: String, value: f64, rule: &str| {
            Err(Error::new(format!("`{name}`: `{key}` is {value}; {rule}")))
        };
        if let Some((key, value, rule)) = self.optimizer.wrong() {
            return wrong(format!("optimizer.{key}"), value, rule);
        }
        one_limit(&self.update, name)?;
        if let Some((key, value, rule)) = self.update.loss.wrong() {
            return wrong(format!("update.loss.{key}"), value, rule);
        }
        if !(self.update.correction.is_finite() && self.update.correction > 0.0) {
            return wrong("update.correction".to_owned(), self.update.correction, "expected more than 0");
        }
        if let Some((what, rule)) = self.evaluation.wrong() {
            return Err(Error::new(format!("`{name}`: {what}; {rule}")));
        }
        let also = self.evaluation.also.iter();
        let also =
            also.map(|s| (format!("evaluation.also.{}.sampling", s.name), self.sampling_as(s.sampling)));
        let sections = [
            ("sampling", self.sampling),
            ("evaluation.sampling", self.sampling_as(self.evaluation.sampling)),
        ];
        for (section, s) in sections.map(|(key, s)| (key.to_owned(), s)).into_iter().chain(also) {
            // As written in the config: the f32 value 0.1 has many digits as f64.
            let plain = |x: f32| x.to_string().parse().unwrap_or(f64::from(x));
            let (t, p): (f64, f64) = (plain(s.temperature), plain(s.top_p));
            if !(t.is_finite() && t >= 0.0) {
                return wrong(format!("{section}.temperature"), t, "expected 0 or more");
            }
            if !(p > 0.0 && p <= 1.0) {
                return wrong(format!("{section}.top_p"), p, "expected more than 0 and at most 1");
            }
            if s.max_tokens > self.sampling.max_tokens {
                let rule = "expected at most `sampling.max_tokens`";
                return wrong(format!("{section}.max_tokens"), f64::from(s.max_tokens), rule);
            }
        }
        self.requests.map_or(Ok(()), |requests| self.check_requests(name, requests))?;
        self.reward.check(name, self.sampling.max_tokens)?;
        self.rollout_server.as_ref().map_or(Ok(()), |rollouts| self.check_rollouts(name, rollouts))?;
        self.engine.server().map_or(Ok(()), |server| self.check_server(name, server))?;
        self.check_mask(name)?;
        self.check_episodes(name)?;
        if let Some(lora) = self.model.lora
            && !(lora.alpha.is_finite() && lora.alpha > 0.0)
        {
            return wrong("model.lora.alpha".to_owned(), f64::from(lora.alpha), "expected more than 0");
        }
        Ok(())
    }

    /// Refuses sampling masks except on this machine's CPU.
    fn check_mask(&self, name: &str) -> Result<()> {
        if !self.update.keep_sampling_mask {
            return Ok(());
        }
        let refused = |why: &str, hint: &str| {
            Err(Error::new(format!("`{name}`: `update.keep_sampling_mask` is true; {why}")).hint(hint))
        };
        let Sampling { temperature, top_k, top_p, .. } = self.sampling;
        if self.rollout_server.is_some() || !self.engine.is_native() {
            return refused(
                "a server does not report which tokens it sampled from",
                "leave it out, or sample on this machine",
            );
        }
        if self.model.device != DeviceName::Cpu {
            return refused(
                "GPU kernels do not report which tokens they sampled from",
                "leave it out, or use the CPU",
            );
        }
        if top_k == 0 && top_p >= 1.0 || temperature == 0.0 {
            let what = format!(
                "rollouts are sampled from all tokens: `sampling.top_k` is {top_k}, `sampling.top_p` {top_p} and \
                 `sampling.temperature` {temperature}"
            );
            return refused(&what, "leave it out");
        }
        if top_k == 0 || top_k > MOST_KEPT {
            let what =
                format!("`sampling.top_k` is {top_k}, so each token would keep as many as `top_p` leaves");
            return refused(&what, &format!("set `sampling.top_k` from 1 to {MOST_KEPT}"));
        }
        Ok(())
    }

    /// Refuses an environment where rollouts can't be episodes, and a grader or tasks without the environment that
    /// they need.
    fn check_episodes(&self, name: &str) -> Result<()> {
        let refused = |what: String, hint: &str| Err(Error::new(format!("`{name}` {what}")).hint(hint));
        let graded = self.reward.each().iter().any(|one| one.grader == Some(AnyGrader::Episode));
        let played = self.tasks.iter().find(|task| task.kind.is_played());
        let Some(environment) = &self.environment else {
            if graded {
                let hint = "add a section [environment], as in `use = \"guess\"`";
                return refused("has grader `episode` but no section [environment]".to_owned(), hint);
            }
            return played.map_or(Ok(()), |task| {
                let hint = format!("add a section [environment] with `use = \"{}\"`", task.kind);
                refused(
                    format!("has tasks of kind `{}`, which are played in an environment", task.kind),
                    &hint,
                )
            });
        };
        if !graded {
            let what = "has a section [environment], but no grader that takes its rewards".to_owned();
            return refused(what, "set `grader = \"episode\"` under [reward], or leave out [environment]");
        }
        if !self.engine.is_native() {
            let what = "has a section [environment], but a server trains".to_owned();
            return refused(what, "leave out `[engine]`; `[rollout_server]` may sample the turns");
        }
        environment.check(name)?;
        let by_answer = match self.update.loss.kind {
            LossKind::Gspo => Some("gspo"),
            LossKind::Rloo => Some("rloo"),
            _ => None,
        };
        if let Some(loss) = by_answer.filter(|_| environment.max_rows > 1) {
            let what = format!(
                "has several training rows of an episode, and loss `{loss}`, whose ratio is a whole rollout's"
            );
            return refused(what, "use another loss, or leave out `environment.max_rows`");
        }
        let own = environment.environment.name();
        let embedded = environment.environment.embedded();
        if let Some(other) = self.tasks.iter().find(|task| task.kind.is_played() != embedded.is_some()) {
            let what = format!("has tasks of kind `{}` in the environment `{own}`", other.kind);
            return refused(what, "use tasks of the environment's kind, or leave out [environment]");
        }
        let verifiers = environment.environment == AnyEnvironment::Verifiers;
        let sets = self.data.iter().chain(&self.evaluation.sets);
        let made = |data: &DatasetConfig| {
            data.environment.as_ref().is_some_and(|made| made.package == Package::Verifiers)
        };
        if verifiers && (!self.tasks.is_empty() || sets.clone().any(|data| !made(data))) {
            let what = "has environment `verifiers`, and data that are not of its task sets".to_owned();
            return refused(what, "write, under [data.environment], use = \"verifiers\" and tasks = [\"…\"]");
        }
        if !verifiers && sets.clone().any(made) {
            let what = format!("has task sets of verifiers in the environment `{own}`");
            return refused(what, "set `use = \"verifiers\"` under [environment], or leave it out");
        }
        Ok(())
    }

    /// Refuses ranges of requests that the engine does not support.
    fn check_requests(&self, name: &str, requests: RequestsConfig) -> Result<()> {
        requests.check(name, self.samplers(), ["sampling.max_tokens", "environment.max_turns"])?;
        if !self.engine.is_native() {
            let what = format!("`{name}`: `[requests]` needs updates on this machine, but a server trains");
            return Err(Error::new(what).hint("leave it out: all requests are sampled as `[sampling]` says"));
        }
        for own in self.requestable().into_iter().flat_map(|range| [range.least, range.most]) {
            let rollout = self.sampling.with(Some(own));
            if let Some(why) = self.rollout_server.as_ref().and_then(|rollouts| rollouts.cannot(&rollout)) {
                let temperature = own.temperature;
                let what = format!("`{name}`: `requests.temperature` has {temperature}; {why}");
                return Err(Error::new(what));
            }
        }
        Ok(())
    }

    /// Refuses settings that the training server does not support.
    fn check_server(&self, name: &str, server: &RemoteConfig) -> Result<()> {
        if let Some((key, value, rule)) = server.wrong() {
            return Err(Error::new(format!("`{name}`: `engine.{key}` is {value}; {rule}")));
        }
        let here = [
            ("lora", self.model.lora.is_some(), "set the adapters' rank in `engine.lora_rank`"),
            ("device", self.model.device != DeviceName::Cpu, "leave it out"),
            ("dtype", self.model.dtype != Precision::F32, "leave it out"),
            ("threads", self.model.threads.is_some(), "leave it out"),
        ];
        if let Some((key, _, hint)) = here.into_iter().find(|(_, given, _)| *given) {
            let what = format!("`{name}`: `model.{key}` applies to this machine, but a server trains");
            return Err(Error::new(what).hint(hint));
        }
        match server.server.cannot(&self.update, &self.optimizer, &self.sampling) {
            Some((key, value, why, hint)) => {
                Err(Error::new(format!("`{name}`: `{key}` is {value}; {why}")).hint(hint))
            }
            None => Ok(()),
        }
    }

    /// Refuses settings that the inference server does not support.
    fn check_rollouts(&self, name: &str, rollouts: &RolloutsConfig) -> Result<()> {
        if !self.engine.is_native() {
            let what =
                format!("`{name}`: `[rollout_server]` needs updates on this machine, but a server trains");
            return Err(Error::new(what).hint("leave out `[rollout_server]`, or `[engine]`"));
        }
        if let Some((key, value, rule)) = rollouts.wrong() {
            return Err(Error::new(format!("`{name}`: `rollout_server.{key}` is {value}; {rule}")));
        }
        match rollouts.cannot(&self.sampling) {
            Some(why) => {
                let temperature = self.sampling.temperature;
                Err(Error::new(format!("`{name}`: `sampling.temperature` is {temperature}; {why}")))
            }
            None => Ok(()),
        }
    }

    /// Pins models and data sets on the hub to a commit, so that a resumed run uses the same files. `model`
    /// and `files` return a model's name and a data set's address with the commit.
    pub fn pin(
        &mut self,
        model: impl FnOnce(&str) -> Result<String>,
        files: impl Fn(&Path) -> Result<PathBuf>,
    ) -> Result<()> {
        self.model.source = model(&self.model.source)?;
        for file in self.files() {
            *file = files(file)?;
        }
        Ok(())
    }

    /// Copies the date of a pinned config, and its commits if the names are the same.
    pub fn pin_as(&mut self, kept: &Self) {
        self.model.date = self.model.date.or(kept.model.date);
        if hub::is_pinned_model(&kept.model.source, &self.model.source) {
            self.model.source.clone_from(&kept.model.source);
        }
        let mut kept = kept.clone();
        for (file, kept) in self.files().into_iter().zip(kept.files()) {
            if hub::are_pinned_files(kept, file) {
                file.clone_from(kept);
            }
        }
    }

    /// Returns the files of the config's data sets.
    fn files(&mut self) -> Vec<&mut PathBuf> {
        let all = self.data.iter_mut().chain(&mut self.evaluation.sets);
        all.flat_map(|data| match &mut data.files {
            Files::One(file) => std::slice::from_mut(file),
            Files::Many(files) => files,
        })
        .collect()
    }

    /// Makes paths absolute and fills in values that depend on this machine, so that a copy of the config
    /// has the same meaning elsewhere.
    pub fn settle(&mut self) -> Result<()> {
        let whole = |path: &Path| {
            if hub::is_address(path) || is_of_the_hub(path) {
                return Ok(path.to_owned());
            }
            absolute(path)
        };
        for data in self.data.iter_mut().chain(&mut self.evaluation.sets) {
            data.files = Files::Many(match &data.files {
                Files::One(file) => vec![whole(file)?],
                Files::Many(files) => files.iter().map(|f| whole(f)).collect::<Result<Vec<PathBuf>>>()?,
            });
        }
        // A hub name that does not exist as a local path stays as written.
        let missing = hub::is_name(&self.model.source) && !Path::new(&self.model.source).exists();
        if looks_like_a_path(&self.model.source) && !missing {
            self.model.source = whole(Path::new(&self.model.source))?.display().to_string();
        }
        if let Some(rollouts) = &mut self.rollout_server {
            rollouts.weights = whole(Path::new(&rollouts.weights))?.display().to_string();
        }
        self.policy.settle()?;
        self.reward.settle()?;
        self.environment.as_mut().map_or(Ok(()), EnvironmentSettings::settle)?;
        if self.engine.is_native() {
            let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
            self.model.threads.get_or_insert(cores);
        }
        Ok(())
    }

    /// Returns the range of sampling settings that a request may choose, if requests may choose.
    fn requestable(&self) -> Option<SamplerRange> {
        self.requests.map(|requests| requests.range(self.samplers()))
    }

    /// Returns the sampling settings of requests that choose none.
    fn samplers(&self) -> SamplerSettings {
        let max_turns = self.environment.as_ref().map_or(1, |environment| environment.max_turns);
        SamplerSettings { max_turns, ..self.sampling.settings() }
    }

    /// Returns the sampling settings that are hardest for a server: a temperature other than 1, if allowed.
    pub fn unusual(&self) -> Sampling {
        let own = self.requestable().into_iter().flat_map(|range| [range.most, range.least]);
        let own = own.into_iter().find(|own| own.temperature != 1.0);
        Sampling {
            temperature: own.map_or(self.sampling.temperature, |own| own.temperature),
            ..self.sampling
        }
    }

    /// Returns the sampling settings of held-out answers.
    pub fn evaluation_sampling(&self) -> Sampling {
        self.sampling_as(self.evaluation.sampling)
    }

    /// Returns the sampling of each evaluation setting, in the order of [`EvaluationConfig::settings`].
    pub fn evaluation_samplings(&self) -> Vec<Sampling> {
        let also = self.evaluation.also.iter().map(|setting| setting.sampling);
        std::iter::once(self.evaluation.sampling).chain(also).map(|own| self.sampling_as(own)).collect()
    }

    /// Returns the run's sampling settings, overridden by these.
    pub fn sampling_as(&self, own: Option<EvaluationSampling>) -> Sampling {
        let (own, run) = (own.unwrap_or_default(), self.sampling);
        Sampling {
            temperature: own.temperature.unwrap_or(run.temperature),
            top_k: own.top_k.unwrap_or(run.top_k),
            top_p: own.top_p.unwrap_or(run.top_p),
            max_tokens: own.max_tokens.unwrap_or(run.max_tokens),
            ..Sampling::default()
        }
    }
}
