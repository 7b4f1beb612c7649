//! The two verbs on a server.

use std::cell::Cell;

use allot_allocation::{Compute, Flops, Geometry, Grant, GrantLine, PromptId};
use allot_engine::model::Shape;
use allot_engine::{
    Answer, Capabilities, Cost, Engine, EngineError, Example, Interrupt, NativeConfig, Old, Report, Sample,
    Sampled, Sampling, UpdateConfig, Whole, learning_flops,
};
use futures_util::StreamExt as _;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::client::{Client, Failure, told};
use crate::config::RemoteConfig;
use crate::learn::{self, Passed, Stepped, TrainingSample, batches};
use crate::metrics::Metrics;
use crate::patience::patient;
use crate::sample::{self, wanted, wire_seed};
use crate::session::Session;

/// What a policy may ask to be measured for each rollout.
pub const SIGNALS: [&str; 1] = ["mean-log-prob"];

/// How often in a row a server may lose a model before it is no longer believed in.
const LOSSES: u32 = 5;

/// The engine.
pub struct Remote {
    client: Client,
    server: RemoteConfig,
    config: NativeConfig,
    shape: Shape,
    /// The prompts to train on, then those held out, in tokens.
    prompts: Vec<Vec<u32>>,
    trained_on: usize,
    state: State,
    /// Whether a checkpoint names the server's state of now, so that it must stay.
    kept: Cell<bool>,
    session: Option<Session>,
    /// Since it was told of last.
    computed: Compute,
}

/// How far the model is, and where the server has it: what a checkpoint keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Model updates made.
    pub version: u32,
    /// Steps of the optimizer made.
    pub optimizer_steps: u32,
    /// The server's path to weights and optimizer. None before the first update.
    pub path: Option<String>,
}

impl Remote {
    /// An engine over a server's model and our prompts: those to train on, then those held out. `shape` is for
    /// counting operations. `notice` is told when the server is away.
    pub fn new(
        server: &RemoteConfig,
        config: NativeConfig,
        shape: Shape,
        train: Vec<Vec<u32>>,
        held_out: Vec<Vec<u32>>,
        notice: fn(&str),
    ) -> Result<Self, EngineError> {
        let trained_on = train.len();
        let mut prompts = train;
        prompts.extend(held_out);
        Ok(Self {
            client: Client::open(server.address(), notice)?,
            server: server.clone(),
            config,
            shape,
            prompts,
            trained_on,
            state: State::default(),
            kept: Cell::new(true),
            session: None,
            computed: Compute::default(),
        })
    }

    /// The state that a checkpoint keeps. The server has to keep it too, from now on.
    pub fn keep(&self) -> &State {
        self.kept.set(true);
        &self.state
    }

    /// Takes up training where a checkpoint left it.
    pub fn restore(&mut self, state: State) {
        self.state = state;
        self.kept.set(true);
        self.session = None;
    }

    /// Steps of the optimizer made.
    pub fn steps(&self) -> u32 {
        self.state.optimizer_steps
    }

    fn sampling(&self, prompt: PromptId) -> Sampling {
        if (prompt.0 as usize) < self.trained_on { self.config.sampling } else { self.config.evaluation }
    }

    fn prompt(&self, prompt: PromptId) -> &[u32] {
        &self.prompts[prompt.0 as usize]
    }

    /// The model, made or loaded where the server does not have it.
    async fn open(&mut self) -> Result<(), EngineError> {
        if self.session.is_none() {
            let opened =
                Session::open(&self.client, &self.server, self.config.seed, self.state.path.as_deref());
            let opened = opened.await;
            self.session = Some(opened.map_err(|failure| self.plain("create_model", failure))?);
        }
        Ok(())
    }

    /// What is left of a failure when nothing can be done about it.
    fn plain(&self, verb: &str, failure: Failure) -> EngineError {
        match failure {
            Failure::Stop(error) | Failure::Away(error) => error,
            Failure::Refused { verb, status, detail } => self.client.refused(&verb, status, &detail),
            Failure::Lost(detail) => self.client.refused(verb, 404, &detail),
        }
    }

    /// After a failure: whether the same may be done again, on a model that is made anew.
    fn forget(&mut self, verb: &str, failure: Failure, losses: &mut u32) -> Result<(), EngineError> {
        let Failure::Lost(detail) = failure else { return Err(self.plain(verb, failure)) };
        let url = &self.server.url;
        *losses += 1;
        if *losses > LOSSES {
            let what = format!("the server at {url} lost the model {losses} times in a row: {detail}");
            return Err(told(what, "it may be out of memory, or let sessions go too soon; see its own log"));
        }
        let from = self.state.path.as_deref().unwrap_or("its first weights");
        self.client.notice(&format!("the server at {url} has lost the model; it goes on from {from}"));
        self.session = None;
        Ok(())
    }

    /// Asks for what has not come yet, some at a time, and takes it as it comes.
    async fn ask(
        &self,
        session: &Session,
        wanted: &[sample::Wanted],
        came: &mut [Option<Vec<Sample<Answer>>>],
        whole: Whole<'_, Answer>,
        interrupt: &Interrupt,
    ) -> Result<(), Failure> {
        let version = self.state.version;
        let sampler = session.sampler(&self.client, version).await?;
        let places: Vec<usize> = wanted
            .iter()
            .scan(0, |next, w| Some(std::mem::replace(next, *next + w.count as usize)))
            .collect();
        let missing: Vec<usize> = (0..wanted.len()).filter(|i| came[*i].is_none()).collect();
        // What is under way may come, and nothing more is asked for.
        let missing = missing.into_iter().take_while(|_| !interrupt.is_asked());
        let (sampler, seed) = (sampler.as_str(), self.config.seed);
        let one = |i: usize| async move {
            let w = wanted[i];
            let sampling = self.sampling(w.prompt);
            let seed = wire_seed(seed, w.prompt, version, w.first);
            let body = sample::body(self.prompt(w.prompt), w.count, seed, sampling, &self.config.stops);
            let sampled: sample::Sampled = session.sample(&self.client, sampler, body).await?;
            let over = (version, self.shape.vocabulary, sampling);
            Ok((i, sample::rollouts(&self.client, w, sampled, over, self.config.signals.len())?))
        };
        let mut stream = futures_util::stream::iter(missing).map(one).buffer_unordered(self.config.rows);
        while let Some(done) = stream.next().await {
            let (i, rollouts) = done?;
            (places[i]..).zip(&rollouts).for_each(|(place, sample)| whole(place, sample));
            came[i] = Some(rollouts);
        }
        Ok(())
    }

    /// The same, on a model that is made anew where the server loses it, until all have come or somebody asks to stop.
    async fn all(
        &mut self,
        wanted: &[sample::Wanted],
        came: &mut [Option<Vec<Sample<Answer>>>],
        whole: Whole<'_, Answer>,
        interrupt: &Interrupt,
    ) -> Result<(), EngineError> {
        let mut losses = 0;
        while came.iter().any(Option::is_none) && !interrupt.is_asked() {
            self.open().await?;
            let before = came.iter().flatten().count();
            let failure = match &self.session {
                Some(session) => self.ask(session, wanted, came, whole, interrupt).await.err(),
                None => None,
            };
            if came.iter().flatten().count() > before {
                losses = 0;
            }
            if let Some(failure) = failure {
                self.forget("asample", failure, &mut losses)?;
            }
        }
        Ok(())
    }

    /// Rollouts as lessons, their old log-probabilities those of sampling.
    fn lessons(&self, batch: &[Example<'_, Answer>]) -> Vec<TrainingSample> {
        let recomputed = self.config.update.old_log_probs == Old::Recomputed;
        let one = |example: &Example<'_, Answer>| {
            let (sample, prompt) = (example.sample, self.prompt(example.sample.prompt));
            TrainingSample {
                tokens: [prompt, &sample.answer.tokens].concat(),
                prompt: prompt.len(),
                sampled: sample.answer.log_probs.clone(),
                old: sample.answer.log_probs.clone(),
                anew: recomputed || sample.version != self.state.version,
                advantage: example.advantage,
            }
        };
        batch.iter().map(one).collect()
    }

    /// Log-probabilities under the weights of now.
    async fn look(&self, session: &Session, lessons: &[&TrainingSample]) -> Result<Vec<Vec<f32>>, Failure> {
        let mut all = Vec::with_capacity(lessons.len());
        for part in self.parts(lessons) {
            let data: Vec<Value> = part.iter().map(|l| learn::bare(l, true)).collect();
            let input = json!({ "data": data, "loss_fn": "cross_entropy" });
            let passed: Passed = session.train(&self.client, "forward", "forward_input", input).await?;
            all.extend(learn::log_probs(&self.client, "forward", &passed, part)?);
        }
        Ok(all)
    }

    /// Lessons in requests of so many tokens, or of one lesson that is longer.
    fn parts<'a, 'l>(&self, lessons: &'a [&'l TrainingSample]) -> Vec<&'a [&'l TrainingSample]> {
        let most = self.config.update.micro_batch_tokens;
        let (mut all, mut from, mut tokens) = (Vec::new(), 0, 0);
        for (i, lesson) in lessons.iter().enumerate() {
            if i > from && tokens + lesson.tokens.len() > most {
                all.push(&lessons[from..i]);
                (from, tokens) = (i, 0);
            }
            tokens += lesson.tokens.len();
        }
        if from < lessons.len() {
            all.push(&lessons[from..]);
        }
        all
    }

    /// One update from the state of now, up to its saved state. Changes nothing here.
    async fn learn(
        &self,
        session: &Session,
        update: &UpdateConfig,
        mut lessons: Vec<TrainingSample>,
    ) -> Result<(Report, Compute, State), Failure> {
        let optimizer = &self.config.optimizer;
        let (can, client) = (self.server.server.can(), &self.client);
        let anew: Vec<usize> =
            (0..lessons.len()).filter(|i| lessons[*i].anew && lessons[*i].advantage != 0.0).collect();
        if !anew.is_empty() {
            let wanted: Vec<&TrainingSample> = anew.iter().map(|i| &lessons[*i]).collect();
            let scored = self.look(session, &wanted).await?;
            for (i, old) in anew.into_iter().zip(scored) {
                lessons[i].old = old;
            }
        }
        let progress = f64::from(self.state.version) / f64::from(self.config.updates.max(1));
        let batches = batches(lessons, update, self.config.sampling.max_tokens as usize);
        let (name, numbers) = learn::loss(update);
        let mut metrics = Metrics::default();
        for _ in 0..update.epochs {
            for batch in &batches {
                let all: Vec<&TrainingSample> = batch.lessons.iter().collect();
                let mut value = 0.0;
                for part in self.parts(&all) {
                    let data: Vec<Value> = part.iter().map(|l| batch.datum(update, can, l)).collect();
                    let input = json!({ "data": data, "loss_fn": name, "loss_fn_config": numbers });
                    let verb = "forward_backward";
                    let passed: Passed = session.train(client, verb, "forward_backward_input", input).await?;
                    for (lesson, new) in part.iter().zip(learn::log_probs(client, verb, &passed, part)?) {
                        // One without is sent for the step alone.
                        if lesson.advantage != 0.0 {
                            let part = batch.part(update, lesson, &new);
                            value += part.value;
                            metrics.add(&part, lesson, &new);
                        }
                    }
                }
                if !value.is_finite() {
                    return Err(client.mad("forward_backward", "a loss"));
                }
                let rate = optimizer.rate(self.state.optimizer_steps + metrics.steps, progress);
                let adam = learn::adam(optimizer, rate, can.gradients);
                let stepped: Stepped = session.train(client, "optim_step", "adam_params", adam).await?;
                let norm = stepped.norm();
                if norm.is_some_and(|norm| !norm.is_finite()) {
                    return Err(client.mad("optim_step", "a gradient"));
                }
                metrics.step(value, norm, rate);
            }
        }
        let version = self.state.version + 1;
        let path = session.save(client, &format!("update-{version:06}")).await?;
        let state =
            State { version, optimizer_steps: self.state.optimizer_steps + metrics.steps, path: Some(path) };
        let lessons: Vec<&TrainingSample> = batches.iter().flat_map(|b| &b.lessons).collect();
        let computed = self.counted(update, &lessons, metrics.steps);
        Ok((metrics.report(), computed, state))
    }

    /// What an update over these lessons computed, adapters' own products left out as everywhere.
    fn counted(&self, update: &UpdateConfig, lessons: &[&TrainingSample], steps: u32) -> Compute {
        let epochs = update.epochs;
        let one = |lesson: &&TrainingSample| {
            let lengths = (lesson.prompt, lesson.tokens.len() - lesson.prompt);
            learning_flops(&self.shape, true, update, lengths, lesson.anew)
        };
        let counting = lessons.iter().filter(|l| l.advantage != 0.0);
        Compute {
            trained_tokens: counting.clone().map(|l| l.sampled.len() as u64).sum::<u64>() * u64::from(epochs),
            optimizer_steps: u64::from(steps),
            flops: Flops { training: counting.map(one).sum(), ..Flops::default() },
            ..Compute::default()
        }
    }

    /// Lets the server remove a state that no checkpoint names.
    async fn release(&self, path: &str) {
        if let Some((model, name)) = path.strip_prefix("tinker://").and_then(|p| p.split_once('/')) {
            self.client.remove(&format!("training_runs/{model}/checkpoints/{name}")).await;
        }
    }
}

impl Engine for Remote {
    type Answer = Answer;

    fn capabilities(&self) -> Capabilities {
        Capabilities { name: "tinker".to_owned(), signals: SIGNALS.iter().map(|s| (*s).to_owned()).collect() }
    }

    fn version(&self) -> u32 {
        self.state.version
    }

    async fn sample(
        &mut self,
        grant: Grant,
        whole: Whole<'_, Answer>,
        interrupt: &Interrupt,
    ) -> Result<Sampled<Answer>, EngineError> {
        let wanted = wanted(&grant, self.server.samples_per_request);
        let mut came: Vec<Option<Vec<Sample<Answer>>>> = vec![None; wanted.len()];
        let all = patient(self.all(&wanted, &mut came, whole, interrupt), interrupt).await;
        all.unwrap_or(Ok(()))?;
        let one = |(came, wanted): (Option<Vec<_>>, &sample::Wanted)| match came {
            Some(samples) => samples.into_iter().map(Some).collect(),
            None => vec![None; wanted.count as usize],
        };
        Ok(came.into_iter().zip(&wanted).flat_map(one).collect())
    }

    fn sampled(&self, lines: &[GrantLine], samples: &[Sample<Answer>]) -> Compute {
        self.shape.sampled(lines, samples, |prompt| self.prompt(prompt).len())
    }

    async fn update(
        &mut self,
        batch: &[Example<'_, Answer>],
        geometry: Option<Geometry>,
        interrupt: &Interrupt,
    ) -> Result<Report, EngineError> {
        let (lessons, mut losses) = (self.lessons(batch), 0);
        let update = self.config.update.cut(geometry);
        loop {
            self.open().await?;
            let Some(session) = &self.session else { continue };
            match patient(self.learn(session, &update, lessons.clone()), interrupt).await {
                Some(Ok((report, computed, state))) => {
                    let before = std::mem::replace(&mut self.state, state);
                    let kept = self.kept.replace(false);
                    if let Some(path) = before.path.filter(|_| !kept) {
                        self.release(&path).await;
                    }
                    self.computed += computed;
                    return Ok(report);
                }
                Some(Err(failure)) => self.forget("forward_backward", failure, &mut losses)?,
                // Whatever the server has begun is begun anew, from the state before.
                None => {
                    self.session = None;
                    return Err(EngineError::Interrupted);
                }
            }
        }
    }

    fn computed(&mut self) -> Compute {
        std::mem::take(&mut self.computed)
    }

    fn cost(&self, prompt: PromptId, tokens: u32) -> Cost {
        let (prompt, answer) = (self.prompt(prompt).len(), tokens as usize);
        Cost {
            reading: self.shape.prefill_flops(prompt),
            answering: self.shape.decode_flops(prompt, answer),
            learning: learning_flops(&self.shape, true, &self.config.update, (prompt, answer), true),
        }
    }
}
