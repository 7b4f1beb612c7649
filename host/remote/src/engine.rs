//! The engine that samples and trains on a server.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;

use allot_allocation::{Compute, Geometry, Grant, GrantLine, PromptId};
use allot_engine::model::Shape;
use allot_engine::{
    Answer, Capabilities, Cost, Engine, EngineError, Example, Interrupt, Lengths, NativeConfig, Purpose,
    Report, Sample, Sampled, Whole, learning_flops,
};
use allot_settings::RemoteConfig;
use futures_util::StreamExt as _;
use futures_util::future::{self, LocalBoxFuture, MaybeDone};

use crate::address::Address;
use crate::client::{Client, Failure, told};
use crate::patience::patient;
use crate::sample::{self, wanted, wire_seed};
use crate::session::Session;
use crate::state::ServerState;
use crate::trainer::{Trainer, UpdateOutcome};

/// Signals that a policy may request for each rollout.
pub const SIGNALS: [&str; 1] = ["mean-log-prob"];

/// How many times in a row a server may lose a model before the run ends.
const LOSSES: u32 = 5;

/// An engine that samples and trains on a server.
pub struct Remote {
    trainer: Rc<Trainer>,
    state: ServerState,
    /// Whether a checkpoint names the current server state, which must then not be removed.
    kept: Cell<bool>,
    session: Option<Rc<Session>>,
    /// The next update, if it has begun.
    begun: Option<Begun>,
    /// Operations since the last report.
    computed: Compute,
}

/// An update that runs while rollouts are sampled: it makes progress whenever sampling is awaited.
struct Begun {
    /// The session that the update runs in.
    session: Rc<Session>,
    update: MaybeDone<LocalBoxFuture<'static, UpdateOutcome>>,
}

impl Remote {
    /// Returns an engine with a server's model and these prompts. `shape` is used to count operations.
    /// `notice` is called when the server becomes unavailable.
    pub fn new(
        server: &RemoteConfig,
        config: NativeConfig,
        shape: Shape,
        prompts: Vec<Vec<u32>>,
        notice: fn(&str),
    ) -> Result<Self, EngineError> {
        let client = Client::open(Address::trainer(server), notice)?;
        Ok(Self {
            trainer: Rc::new(Trainer { client, server: server.clone(), config, shape, prompts }),
            state: ServerState::default(),
            kept: Cell::new(true),
            session: None,
            begun: None,
            computed: Compute::default(),
        })
    }

    /// Returns the state for a checkpoint. The server must keep it from now on.
    pub fn keep(&self) -> &ServerState {
        self.kept.set(true);
        &self.state
    }

    /// Resumes from a checkpoint's state.
    pub fn restore(&mut self, state: ServerState) {
        self.state = state;
        self.kept.set(true);
        (self.session, self.begun) = (None, None);
    }

    /// Returns the number of optimizer steps.
    pub fn steps(&self) -> u32 {
        self.state.optimizer_steps
    }

    /// Creates the model on the server, or loads it, unless the server has it.
    async fn open(&mut self) -> Result<(), EngineError> {
        if self.session.is_none() {
            let Trainer { client, server, config, .. } = &*self.trainer;
            let opened = Session::open(client, server, config.seed, self.state.path.as_deref()).await;
            self.session = Some(Rc::new(opened.map_err(|failure| self.plain("create_model", failure))?));
        }
        Ok(())
    }

    /// Returns the error of a failure that can't be recovered from.
    fn plain(&self, verb: &str, failure: Failure) -> EngineError {
        match failure {
            Failure::Stop(error) | Failure::Away(error) => error,
            Failure::Refused { verb, status, detail } => self.trainer.client.refused(&verb, status, &detail),
            Failure::Lost(detail) => self.trainer.client.refused(verb, 404, &detail),
        }
    }

    /// Forgets a lost model so that the caller may retry; returns an error for any other failure.
    fn forget(&mut self, verb: &str, failure: Failure, losses: &mut u32) -> Result<(), EngineError> {
        let Failure::Lost(detail) = failure else { return Err(self.plain(verb, failure)) };
        let url = &self.trainer.server.url;
        *losses += 1;
        if *losses > LOSSES {
            let what = format!("the server at {url} lost the model {losses} times in a row: {detail}");
            return Err(told(what, "check its log: it may be out of memory, or end sessions too soon"));
        }
        let from = self.state.path.as_deref().unwrap_or("its first weights");
        self.trainer
            .client
            .notice(&format!("the server at {url} has lost the model; continuing from {from}"));
        self.session = None;
        Ok(())
    }

    /// Requests missing rollouts, several at a time, and stores them as they arrive.
    async fn ask(
        &self,
        session: &Session,
        (wanted, purpose): (&[sample::WantedRollouts], Purpose),
        came: &mut [Option<Vec<Sample<Answer>>>],
        whole: Whole<'_, Answer>,
        interrupt: &Interrupt,
    ) -> Result<(), Failure> {
        let version = self.state.version;
        let sampler = session.sampler(&self.trainer.client, version).await?;
        let places: Vec<usize> = wanted
            .iter()
            .scan(0, |next, w| Some(std::mem::replace(next, *next + w.count as usize)))
            .collect();
        let missing: Vec<usize> = (0..wanted.len()).filter(|i| came[*i].is_none()).collect();
        // After an interrupt nothing more is requested, but requests in progress may finish.
        let missing = missing.into_iter().take_while(|_| !interrupt.is_asked());
        let (sampler, trainer) = (sampler.as_str(), &*self.trainer);
        let one = |i: usize| async move {
            let w = wanted[i];
            let sampling = trainer.config.sampling(purpose);
            let seed = wire_seed(trainer.config.seed, w.prompt, version, w.first);
            let body = sample::body(trainer.prompt(w.prompt), w.count, seed, sampling, &trainer.config.stops);
            let sampled = session.sample(&trainer.client, sampler, body).await?;
            let over = (version, trainer.shape.vocabulary, sampling, &trainer.config.stops);
            Ok((i, sample::rollouts(&trainer.client, w, sampled, over, trainer.config.signals.len())?))
        };
        let mut stream = futures_util::stream::iter(missing).map(one).buffer_unordered(trainer.config.rows);
        while let Some(done) = stream.next().await {
            let (i, rollouts) = done?;
            (places[i]..).zip(&rollouts).for_each(|(place, sample)| whole(place, sample));
            came[i] = Some(rollouts);
        }
        Ok(())
    }

    /// Requests all rollouts, until they have arrived or the run is interrupted. A model that the server
    /// loses is created again.
    async fn all(
        &mut self,
        (wanted, purpose): (&[sample::WantedRollouts], Purpose),
        came: &mut [Option<Vec<Sample<Answer>>>],
        whole: Whole<'_, Answer>,
        interrupt: &Interrupt,
    ) -> Result<(), EngineError> {
        let mut losses = 0;
        while came.iter().any(Option::is_none) && !interrupt.is_asked() {
            self.open().await?;
            let before = came.iter().flatten().count();
            let failure = match &self.session {
                Some(session) => self.ask(session, (wanted, purpose), came, whole, interrupt).await.err(),
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

    /// Returns the future of an update on these examples, up to its saved state. Changes nothing locally.
    fn learning(
        &self,
        session: &Rc<Session>,
        batch: &[Example<'_, Answer>],
        geometry: Option<Geometry>,
    ) -> LocalBoxFuture<'static, UpdateOutcome> {
        let (trainer, session, state) = (Rc::clone(&self.trainer), Rc::clone(session), self.state.clone());
        let (lessons, update) =
            (self.trainer.lessons(batch, self.state.version), self.trainer.config.update.cut(geometry));
        Box::pin(async move { trainer.learn(&session, &state, &update, lessons).await })
    }

    /// Applies an update that the server has made and saved.
    async fn takes(&mut self, (report, computed, state): (Report, Compute, ServerState)) -> Report {
        let before = std::mem::replace(&mut self.state, state);
        let kept = self.kept.replace(false);
        if let Some(path) = before.path.filter(|_| !kept) {
            self.release(&path).await;
        }
        self.computed += computed;
        report
    }

    /// Removes a state that no checkpoint names from the server.
    async fn release(&self, path: &str) {
        if let Some((model, name)) = path.strip_prefix("tinker://").and_then(|p| p.split_once('/')) {
            self.trainer.client.remove(&format!("training_runs/{model}/checkpoints/{name}")).await;
        }
    }
}

/// Awaits some work, while an update in progress continues.
async fn beside<T>(begun: &mut Option<Begun>, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    std::future::poll_fn(|context| {
        if let Some(begun) = begun {
            // The result is kept until it is requested.
            let _ = Pin::new(&mut begun.update).poll(context);
        }
        work.as_mut().poll(context)
    })
    .await
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
        purpose: Purpose,
        whole: Whole<'_, Answer>,
        interrupt: &Interrupt,
    ) -> Result<Sampled<Answer>, EngineError> {
        let wanted = wanted(&grant, self.trainer.server.samples_per_request);
        let mut came: Vec<Option<Vec<Sample<Answer>>>> = vec![None; wanted.len()];
        let mut begun = self.begun.take();
        let all = patient(self.all((&wanted, purpose), &mut came, whole, interrupt), interrupt);
        let all = beside(&mut begun, all).await;
        self.begun = begun;
        all.unwrap_or(Ok(()))?;
        let one = |(came, wanted): (Option<Vec<_>>, &sample::WantedRollouts)| match came {
            Some(samples) => samples.into_iter().map(Some).collect(),
            None => vec![None; wanted.count as usize],
        };
        Ok(came.into_iter().zip(&wanted).flat_map(one).collect())
    }

    fn sampled(&self, lines: &[GrantLine], samples: &[Sample<Answer>]) -> Compute {
        self.trainer.shape.sampled(lines, samples, |prompt| self.trainer.prompt(prompt).len())
    }

    async fn update(
        &mut self,
        batch: &[Example<'_, Answer>],
        geometry: Option<Geometry>,
        interrupt: &Interrupt,
    ) -> Result<Report, EngineError> {
        let mut losses = 0;
        if let Some(Begun { session, mut update }) = self.begun.take() {
            let done = patient(&mut update, interrupt).await.is_some();
            // The session may have been replaced while sampling. The new one has not been trained.
            if !done || !self.session.as_ref().is_some_and(|now| Rc::ptr_eq(now, &session)) {
                self.session = None;
            }
            match Pin::new(&mut update).take_output() {
                Some(Ok(made)) => return Ok(self.takes(made).await),
                Some(Err(failure)) => self.forget("forward_backward", failure, &mut losses)?,
                None => return Err(EngineError::Interrupted),
            }
        }
        loop {
            self.open().await?;
            let Some(session) = &self.session else { continue };
            match patient(self.learning(session, batch, geometry), interrupt).await {
                Some(Ok(made)) => return Ok(self.takes(made).await),
                Some(Err(failure)) => self.forget("forward_backward", failure, &mut losses)?,
                // The update starts again from the previous state.
                None => {
                    self.session = None;
                    return Err(EngineError::Interrupted);
                }
            }
        }
    }

    /// Saves the current weights for sampling, then starts the update.
    async fn begin(
        &mut self,
        batch: &[Example<'_, Answer>],
        geometry: Option<Geometry>,
        interrupt: &Interrupt,
    ) -> Result<(), EngineError> {
        // Otherwise the update is made when its result is requested.
        if !self.trainer.server.server.keeps_samplers() {
            return Ok(());
        }
        let mut losses = 0;
        while !interrupt.is_asked() {
            self.open().await?;
            let Some(session) = &self.session else { continue };
            match patient(session.sampler(&self.trainer.client, self.state.version), interrupt).await {
                Some(Ok(_)) => {
                    let update = future::maybe_done(self.learning(session, batch, geometry));
                    self.begun = Some(Begun { session: Rc::clone(session), update });
                    return Ok(());
                }
                Some(Err(failure)) => self.forget("save_weights_for_sampler", failure, &mut losses)?,
                None => {}
            }
        }
        Ok(())
    }

    fn computed(&mut self) -> Compute {
        std::mem::take(&mut self.computed)
    }

    fn cost(&self, prompt: PromptId, tokens: u32) -> Cost {
        let (prompt, answer) = (self.trainer.prompt(prompt).len(), tokens as usize);
        let (shape, update) = (&self.trainer.shape, &self.trainer.config.update);
        let anew = update.old_log_probs.may_be_computed(false);
        Cost {
            reading: shape.prefill_flops(prompt),
            answering: shape.decode_flops(Lengths::of(prompt, answer)),
            learning: learning_flops(shape, true, update, Lengths::of(prompt, answer), anew),
        }
    }
}
