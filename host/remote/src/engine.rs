//! The two verbs on a server.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;

use allot_allocation::{Compute, Geometry, Grant, GrantLine, PromptId};
use allot_engine::model::Shape;
use allot_engine::{
    Answer, Capabilities, Cost, Engine, EngineError, Example, Interrupt, NativeConfig, Purpose, Report,
    Sample, Sampled, Whole, learning_flops,
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

/// What a policy may ask to be measured for each rollout.
pub const SIGNALS: [&str; 1] = ["mean-log-prob"];

/// How often in a row a server may lose a model before it is no longer believed in.
const LOSSES: u32 = 5;

/// The engine.
pub struct Remote {
    trainer: Rc<Trainer>,
    state: ServerState,
    /// Whether a checkpoint names the server's state of now, so that it must stay.
    kept: Cell<bool>,
    session: Option<Rc<Session>>,
    /// The next update, where it was begun.
    begun: Option<Begun>,
    /// Since it was told of last.
    computed: Compute,
}

/// An update that is made while rollouts are sampled: it goes on whenever these are waited for.
struct Begun {
    /// The model that it is made on.
    session: Rc<Session>,
    update: MaybeDone<LocalBoxFuture<'static, UpdateOutcome>>,
}

impl Remote {
    /// An engine over a server's model and our prompts. `shape` is for counting operations. `notice` is told when the
    /// server is away.
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

    /// The state that a checkpoint keeps. The server has to keep it too, from now on.
    pub fn keep(&self) -> &ServerState {
        self.kept.set(true);
        &self.state
    }

    /// Takes up training where a checkpoint left it.
    pub fn restore(&mut self, state: ServerState) {
        self.state = state;
        self.kept.set(true);
        (self.session, self.begun) = (None, None);
    }

    /// Steps of the optimizer made.
    pub fn steps(&self) -> u32 {
        self.state.optimizer_steps
    }

    /// The model, made or loaded where the server does not have it.
    async fn open(&mut self) -> Result<(), EngineError> {
        if self.session.is_none() {
            let Trainer { client, server, config, .. } = &*self.trainer;
            let opened = Session::open(client, server, config.seed, self.state.path.as_deref()).await;
            self.session = Some(Rc::new(opened.map_err(|failure| self.plain("create_model", failure))?));
        }
        Ok(())
    }

    /// What is left of a failure when nothing can be done about it.
    fn plain(&self, verb: &str, failure: Failure) -> EngineError {
        match failure {
            Failure::Stop(error) | Failure::Away(error) => error,
            Failure::Refused { verb, status, detail } => self.trainer.client.refused(&verb, status, &detail),
            Failure::Lost(detail) => self.trainer.client.refused(verb, 404, &detail),
        }
    }

    /// After a failure: whether the same may be done again, on a model that is made anew.
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

    /// Asks for what has not come yet, some at a time, and takes it as it comes.
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
        // What is under way may come, and nothing more is asked for.
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

    /// Asks for all rollouts, until they have come or the run is interrupted. A model that the server loses is created
    /// again.
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

    /// An update on these examples from the state of now, up to its saved state. Changes nothing here.
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

    /// The server has made an update, and saved it.
    async fn takes(&mut self, (report, computed, state): (Report, Compute, ServerState)) -> Report {
        let before = std::mem::replace(&mut self.state, state);
        let kept = self.kept.replace(false);
        if let Some(path) = before.path.filter(|_| !kept) {
            self.release(&path).await;
        }
        self.computed += computed;
        report
    }

    /// Lets the server remove a state that no checkpoint names.
    async fn release(&self, path: &str) {
        if let Some((model, name)) = path.strip_prefix("tinker://").and_then(|p| p.split_once('/')) {
            self.trainer.client.remove(&format!("training_runs/{model}/checkpoints/{name}")).await;
        }
    }
}

/// Waits for some work, while an update that was begun goes on.
async fn beside<T>(begun: &mut Option<Begun>, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    std::future::poll_fn(|context| {
        if let Some(begun) = begun {
            // What comes of it waits until it is asked for.
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
            // The model may have been made anew since, for what is sampled: that one was not trained.
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
                // Whatever the server has begun is begun anew, from the state before.
                None => {
                    self.session = None;
                    return Err(EngineError::Interrupted);
                }
            }
        }
    }

    /// The weights of now are saved for sampling first.
    async fn begin(
        &mut self,
        batch: &[Example<'_, Answer>],
        geometry: Option<Geometry>,
        interrupt: &Interrupt,
    ) -> Result<(), EngineError> {
        // The update is then made when it is asked for.
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
            answering: shape.decode_flops(prompt, answer),
            learning: learning_flops(shape, true, update, (prompt, answer), anew),
        }
    }
}
