//! The parts of an engine that update and sampling share. They do not change in a run, so that an update
//! can continue beside the engine that began it.

use allot_allocation::{Compute, Flops, PromptId};
use allot_engine::model::Shape;
use allot_engine::{Answer, Example, Lengths, MASKED, NativeConfig, Report, UpdateConfig, learning_flops};
use allot_settings::RemoteConfig;

use crate::client::{Client, Failure};
use crate::learn::{self, Batch, TrainingSample, batches};
use crate::metrics::Metrics;
use crate::session::Session;
use crate::state::ServerState;

/// The immutable part of an engine.
pub(crate) struct Trainer {
    pub(crate) client: Client,
    pub(crate) server: RemoteConfig,
    pub(crate) config: NativeConfig,
    pub(crate) shape: Shape,
    /// The prompts, in tokens.
    pub(crate) prompts: Vec<Vec<u32>>,
}

/// An update's metrics, its operations, and the server's new state.
pub(crate) type UpdateOutcome = Result<(Report, Compute, ServerState), Failure>;

impl Trainer {
    pub(crate) fn prompt(&self, prompt: PromptId) -> &[u32] {
        &self.prompts[prompt.0 as usize]
    }

    /// Recomputes the old log-probabilities of samples with `anew` set, using the current weights.
    async fn rescore(&self, session: &Session, lessons: &mut [TrainingSample]) -> Result<(), Failure> {
        let anew: Vec<usize> =
            (0..lessons.len()).filter(|i| lessons[*i].anew && lessons[*i].advantage != 0.0).collect();
        let wanted: Vec<&TrainingSample> = anew.iter().map(|i| &lessons[*i]).collect();
        let mut scored = Vec::with_capacity(wanted.len());
        for part in self.parts(&wanted) {
            let data = part.iter().map(|l| learn::bare(l, true)).collect();
            let passed = session.pass(&self.client, data, None).await?;
            scored.extend(learn::log_probs(&self.client, "forward", &passed, part)?);
        }
        for (i, old) in anew.into_iter().zip(scored) {
            lessons[i].old = old;
        }
        Ok(())
    }

    /// Splits samples into requests of at most `micro_batch_tokens` tokens. A longer sample is sent alone.
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

    /// Makes one update from the current state, up to its saved state. Changes nothing on this side.
    pub(crate) async fn learn(
        &self,
        session: &Session,
        state: &ServerState,
        update: &UpdateConfig,
        mut lessons: Vec<TrainingSample>,
    ) -> UpdateOutcome {
        let (client, optimizer) = (&self.client, &self.config.optimizer);
        self.rescore(session, &mut lessons).await?;
        let masked = update.mask_truncated.then(|| lessons.iter().filter(|l| l.masked).count());
        let progress = f64::from(state.version) / f64::from(self.config.updates.max(1));
        let batches = batches(lessons, update, self.config.sampling.max_tokens as usize);
        let mut metrics = Metrics::default();
        for _ in 0..update.epochs {
            for batch in &batches {
                let value = self.add_gradients(session, update, batch, &mut metrics).await?;
                let rate = optimizer.rate(state.optimizer_steps + metrics.steps, progress);
                let adam = learn::adam(optimizer, rate, self.server.server.can().gradients);
                let norm = session.step(client, adam).await?.norm();
                if norm.is_some_and(|norm| !norm.is_finite()) {
                    return Err(client.mad("optim_step", "a gradient"));
                }
                metrics.step(value, norm, rate);
            }
        }
        let version = state.version + 1;
        let path = session.save(client, &format!("update-{version:06}")).await?;
        let saved =
            ServerState { version, optimizer_steps: state.optimizer_steps + metrics.steps, path: Some(path) };
        let lessons: Vec<&TrainingSample> = batches.iter().flat_map(|b| &b.lessons).collect();
        let computed = self.counted(update, &lessons, metrics.steps);
        let mut report = metrics.report();
        report.metrics.extend(masked.map(|masked| (MASKED, masked as f64)));
        Ok((report, computed, saved))
    }

    /// Accumulates the gradients of a batch on the server. Returns the batch's loss.
    async fn add_gradients(
        &self,
        session: &Session,
        update: &UpdateConfig,
        batch: &Batch,
        metrics: &mut Metrics,
    ) -> Result<f64, Failure> {
        let (client, can, verb) = (&self.client, self.server.server.can(), "forward_backward");
        let (loss, all): (_, Vec<&TrainingSample>) = (learn::loss(update), batch.lessons.iter().collect());
        let mut value = 0.0;
        for part in self.parts(&all) {
            let data = part.iter().map(|l| batch.datum(update, can, l)).collect();
            let passed = session.pass(client, data, Some(&loss)).await?;
            for (lesson, new) in part.iter().zip(learn::log_probs(client, verb, &passed, part)?) {
                // A sample without an advantage is sent only so that the step happens.
                if lesson.advantage != 0.0 {
                    let part = batch.part(update, lesson, &new);
                    value += part.value;
                    metrics.add(&part, lesson, &new);
                }
            }
        }
        if value.is_finite() { Ok(value) } else { Err(client.mad(verb, "a loss")) }
    }

    /// Returns the operations of an update on these samples, without the adapters' own products.
    fn counted(&self, update: &UpdateConfig, lessons: &[&TrainingSample], steps: u32) -> Compute {
        let epochs = update.epochs;
        let one = |lesson: &&TrainingSample| {
            let lengths = Lengths::of(lesson.prompt, lesson.tokens.len() - lesson.prompt);
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

    /// Returns rollouts as training samples; their old log-probabilities are those of sampling.
    pub(crate) fn lessons(&self, batch: &[Example<'_, Answer>], version: u32) -> Vec<TrainingSample> {
        let old = self.config.update.old_log_probs;
        let one = |example: &Example<'_, Answer>| {
            let (sample, prompt) = (example.sample, self.prompt(example.sample.prompt));
            let stale = sample.version != version;
            let masked = self.config.update.masks(sample.truncated);
            TrainingSample {
                tokens: [prompt, &sample.answer.tokens].concat(),
                prompt: prompt.len(),
                sampled: sample.answer.log_probs.clone(),
                old: sample.answer.log_probs.clone(),
                anew: old.is_computed(stale, false),
                stale,
                masked,
                advantage: if masked { 0.0 } else { example.advantage },
            }
        };
        batch.iter().map(one).collect()
    }
}
