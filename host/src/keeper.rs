//! What goes along with a training run: its score, its tables and curves, its checkpoints, the screen.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use allot_allocation::{Outcome, PromptId, RolloutId, Settled, View};
use allot_engine::{Answer, Engine as _, Sample};

use crate::checkpoint::{self, Checkpoints, Manifest, State};
use crate::config::train::EngineConfig;
use crate::engines::AnyEngine;
use crate::evaluation::Evaluation;
use crate::outputs::metrics::Metrics;
use crate::outputs::rollouts::{Fate, Purpose, Row, Table};
use crate::outputs::tensorboard::Events;
use crate::progress::Progress;
use crate::reward::graded::Graded;
use crate::run::{Course, Go, Scores};
use crate::screen::Screen;
use crate::shadow::Decider;
use crate::step::{Learned, Stop, Watch};
use crate::summary::Totals;
use crate::tally::Tally;
use crate::training::{Prepared, Trained};
use crate::trouble::{Result, Trouble};
use allot_record::{Machine, Phase, Record, StepEnd, Time, Times, hex};

/// The keeper of a run's folder.
pub struct Keeper<'a, 's> {
    prepared: &'a Prepared<'a>,
    evaluation: Evaluation,
    checkpoints: Checkpoints,
    /// Of the checkpoints to come, without their files.
    manifest: Manifest,
    table: Table,
    times: Times,
    metrics: Metrics,
    events: Events,
    /// What the steps add up to.
    pub totals: Totals,
    /// The screen.
    pub progress: Progress<'a, 's>,
    /// Whether somebody wants the run to pause.
    stop: Arc<AtomicBool>,
    step: Tally,
    clock: Clock,
    /// The last score, and the steps finished by then.
    scored: Option<(u32, Scores)>,
    /// Whether the budget was spent before the step at hand, which is the last one then.
    spent: bool,
    /// The newest checkpoint.
    pub saved: Option<PathBuf>,
}

/// Where a run is kept, and by what name.
pub struct Place<'p> {
    /// Its folder.
    pub folder: &'p Path,
    /// The hash of its config.
    pub config: String,
    /// The hash of the weights that it began with.
    pub model: String,
}

/// How long things take, in seconds. No record holds them.
struct Clock {
    last: Instant,
    evaluating: f64,
}

impl<'a, 's> Keeper<'a, 's> {
    /// The keeper of a fresh run.
    pub fn fresh(
        prepared: &'a Prepared<'a>,
        evaluation: Evaluation,
        place: &Place<'_>,
        progress: Progress<'a, 's>,
        stop: Arc<AtomicBool>,
    ) -> Result<Self> {
        let folder = place.folder;
        let table = Table::create(&folder.join("rollouts"), &name(folder))?;
        let times = Times::create(&folder.join("times.jsonl"))?;
        let metrics = Metrics::create(&folder.join("metrics.jsonl"))?;
        let events = Events::create(&folder.join("tensorboard"))?;
        let totals = Totals::new(0.0);
        Ok(Self::of(prepared, evaluation, place, progress, stop, (table, times, metrics, events, totals)))
    }

    /// The keeper of a run that goes on from a checkpoint and its state. Also gives its record.
    pub fn resumed(
        prepared: &'a Prepared<'a>,
        evaluation: Evaluation,
        place: &Place<'_>,
        progress: Progress<'a, 's>,
        stop: Arc<AtomicBool>,
        (checkpoint, state): (PathBuf, State),
    ) -> Result<(Self, Record)> {
        let folder = place.folder;
        let record = Record::resume(&folder.join("record.jsonl"), state.record)?;
        let table = Table::resume(&folder.join("rollouts"), &name(folder), state.parts, state.pending)?;
        let mut times = Times::resume(&folder.join("times.jsonl"), state.times)?;
        times.write(&Time::Machine(machine(prepared)))?;
        let metrics = Metrics::resume(&folder.join("metrics.jsonl"), state.metrics)?;
        let events = Events::resume(&folder.join("tensorboard"), state.events)?;
        let kept = (table, times, metrics, events, state.totals);
        let keeper = Self::of(prepared, evaluation, place, progress, stop, kept);
        let spent = State::books(&state.books)?.exhausted();
        Ok((Self { scored: state.scored, spent, saved: Some(checkpoint), ..keeper }, record))
    }

    fn of(
        prepared: &'a Prepared<'a>,
        evaluation: Evaluation,
        place: &Place<'_>,
        progress: Progress<'a, 's>,
        stop: Arc<AtomicBool>,
        (table, times, metrics, events, totals): (Table, Times, Metrics, Events, Totals),
    ) -> Self {
        let manifest = Manifest {
            format: checkpoint::FORMAT,
            steps: 0,
            config: place.config.clone(),
            policy: prepared.policy.sha256().to_owned(),
            model: place.model.clone(),
            files: BTreeMap::new(),
        };
        Self {
            prepared,
            evaluation,
            checkpoints: Checkpoints::of(place.folder, prepared.config.checkpoint.keep),
            manifest,
            table,
            times,
            metrics,
            events,
            totals,
            progress,
            stop,
            step: Tally::default(),
            clock: Clock { last: Instant::now(), evaluating: 0.0 },
            scored: None,
            spent: false,
            saved: None,
        }
    }

    /// Takes down the score at the start.
    pub fn started(&mut self, world: &Trained<'_>, scores: &Scores) -> Result<()> {
        self.times.write(&Time::Machine(machine(self.prepared)))?;
        self.times.write(&Time::Step { steps: 0, seconds: world.meter.seconds })?;
        self.totals = Totals::new(scores.accuracy);
        self.progress.started(scores.accuracy);
        self.clock = Clock { last: Instant::now(), evaluating: 0.0 };
        Ok(())
    }

    /// Writes the last checkpoint of a run that is over, and ends its table. Gives what the closing table
    /// is made of, and the screen.
    pub fn finish(mut self, world: &Trained<'_>) -> Result<(Totals, &'a mut Screen<'s>)> {
        self.save(world)?;
        self.table.finish()?;
        self.progress.unjudged_in_all(world.reward.unjudged, world.reward.last_trouble.as_deref());
        Ok((self.totals, self.progress.screen))
    }

    /// Writes a checkpoint.
    pub fn save(&mut self, world: &Trained<'_>) -> Result<()> {
        if !world.engine.finite()? {
            return Err(broken(&format!("the weights after step {} are", world.steps)));
        }
        self.table.close_part()?;
        world.record.sync()?;
        world.policy.sync()?;
        self.times.sync()?;
        self.metrics.sync()?;
        self.events.sync()?;
        let mut samples: Vec<_> = world.samples.iter().map(|(id, s)| (*id, s.clone())).collect();
        samples.sort_by_key(|(id, _)| *id);
        let state = State {
            steps: world.steps,
            version: world.engine.version(),
            optimizer_steps: world.engine.optimizer_steps(),
            policy: hex(&world.state),
            pool: world.pool.clone(),
            shelf: world.shelf.clone(),
            samples,
            books: State::of_books(&world.books)?,
            measured: world.meter.measured(),
            evaluation: State::of_books(self.evaluation.books())?,
            totals: self.totals.clone(),
            scored: self.scored.clone(),
            record: world.record.bytes(),
            times: self.times.bytes(),
            metrics: self.metrics.bytes(),
            events: self.events.bytes(),
            parts: self.table.parts(),
            pending: self.table.pending().cloned().collect(),
        };
        let manifest = Manifest { steps: world.steps, ..self.manifest.clone() };
        let (tokens, shape) = (&self.prepared.tokens, &self.prepared.shape);
        let written =
            self.checkpoints.write(&state, manifest, |folder| world.engine.save(folder, tokens, shape))?;
        self.saved = Some(written);
        Ok(())
    }

    fn text(&self, sample: &Sample<Answer>) -> Option<String> {
        let wanted = self.prepared.config.checkpoint.text;
        wanted.then(|| self.prepared.tokens.decode(&sample.answer.tokens).ok()).flatten()
    }

    /// A step's numbers, by name.
    fn numbers(&mut self, end: &StepEnd) -> Vec<(String, f64)> {
        let seconds = self.clock.last.elapsed().as_secs_f64() - self.clock.evaluating;
        self.clock = Clock { last: Instant::now(), evaluating: 0.0 };
        let num_tokens = self.totals.prompt_tokens + end.spent.run_tokens;
        std::mem::take(&mut self.step).numbers(end, seconds, num_tokens)
    }
}

impl Watch<Answer> for Keeper<'_, '_> {
    fn sampled(
        &mut self,
        view: &View,
        first: RolloutId,
        samples: &[Sample<Answer>],
        outcomes: &[Outcome],
    ) -> Result<()> {
        if samples.iter().any(|s| !s.log_prob.is_finite()) {
            return Err(broken(&format!("probabilities in step {} are", view.step)));
        }
        let on_hand: std::collections::HashSet<PromptId> = view.groups.iter().map(|g| g.prompt).collect();
        for (i, (sample, outcome)) in samples.iter().zip(outcomes).enumerate() {
            self.step.add(outcome);
            self.totals.prompt_tokens +=
                self.prepared.problems.prompts[sample.prompt.0 as usize].len() as u64;
            let problem = &self.prepared.problems.all[sample.prompt.0 as usize];
            self.table.add(Row {
                step: view.step,
                round: Some(view.round),
                rollout: RolloutId(first.0 + i as u64),
                prompt: sample.prompt,
                problem: problem.id(),
                source: problem.source.clone(),
                purpose: if on_hand.contains(&sample.prompt) { Purpose::Commit } else { Purpose::Pilot },
                position: sample.position,
                version: sample.version,
                tokens: sample.tokens,
                truncated: sample.truncated,
                log_prob: Some(sample.log_prob),
                reward: outcome.reward,
                correct: outcome.correct,
                text: self.text(sample),
            })?;
        }
        Ok(())
    }

    fn settled(&mut self, settled: &Settled, learned: &[Learned]) -> Result<()> {
        for l in learned {
            self.table.settle(l.id, Fate::Trained { age: l.age, advantage: l.advantage })?;
        }
        settled.released.iter().try_for_each(|id| self.table.settle(*id, Fate::Released))?;
        settled.stale.iter().try_for_each(|id| self.table.settle(*id, Fate::Stale))
    }
}

impl<'p> Course<AnyEngine, Graded, Decider<'p>> for Keeper<'_, '_> {
    async fn score(&mut self, world: &mut Trained<'p>) -> std::result::Result<Scores, Stop> {
        // After a stop between a step and the run's end, or where no step came after the last score.
        if let Some((steps, scores)) = &self.scored
            && *steps == world.steps
        {
            return Ok(scores.clone());
        }
        let began = Instant::now();
        let (scores, answered) =
            self.evaluation.score(&mut world.engine, &mut world.reward, world.steps).await?;
        let mut number = 0;
        for (i, one) in answered.iter().enumerate() {
            number = if i > 0 && answered[i - 1].set == one.set { number + 1 } else { 0 };
            let row = self.evaluation.row(number, world.steps, self.text(&one.sample), one);
            self.table.add(row).map_err(Stop::Record)?;
        }
        self.clock.evaluating += began.elapsed().as_secs_f64();
        self.scored = Some((world.steps, scores.clone()));
        Ok(scores)
    }

    fn after(&mut self, world: &mut Trained<'p>, end: &StepEnd) -> std::result::Result<Go, Stop> {
        self.totals.add(end);
        let numbers = self.numbers(end);
        world.meter.start();
        // The step after the budget is the run's last one. Taken up from a checkpoint in between, a run
        // could not know that it is behind it.
        let last = std::mem::replace(&mut self.spent, world.books.exhausted());
        let mut keep = || -> Result<Go> {
            self.times.write(&Time::Step { steps: end.step + 1, seconds: world.meter.seconds })?;
            self.metrics.write(end.step + 1, &numbers)?;
            for (name, value) in &numbers {
                self.events.scalar(name, end.step + 1, *value)?;
            }
            self.progress.step(end, world.meter.measured());
            self.progress.unjudged(world.reward.unjudged, world.reward.last_trouble.as_deref());
            let pause = self.stop.load(Ordering::SeqCst);
            if !last && (pause || world.steps.is_multiple_of(self.prepared.config.checkpoint.every)) {
                self.save(world)?;
            }
            Ok(if pause { Go::Pause } else { Go::On })
        };
        let go = keep().map_err(Stop::Record)?;
        world.meter.lap(Phase::Saving);
        Ok(go)
    }
}

/// Writes what is missing from the table of a run that is over, where it was stopped just before.
pub fn complete(folder: &Path, state: State) -> Result<()> {
    let rollouts = folder.join("rollouts");
    let is_there = |part: u32| rollouts.join(format!("part-{part:05}.parquet")).exists();
    if state.pending.is_empty() || !is_there(state.parts) || is_there(state.parts + 1) {
        return Ok(());
    }
    Table::resume(&rollouts, &name(folder), state.parts, state.pending)?.finish()
}

/// This machine, for the run's times.
fn machine(prepared: &Prepared<'_>) -> Machine {
    let device = match prepared.config.engine {
        EngineConfig::Native => prepared.config.model.device.to_string(),
        EngineConfig::Tinker(_) => "tinker".to_owned(),
    };
    Machine::here(&device)
}

/// A model whose numbers have left all bounds.
fn broken(what: &str) -> Trouble {
    let trouble = Trouble::new(format!("{what} not finite: an earlier update has broken the model"));
    trouble.hint("lower `optimizer.learning_rate`, and begin from an earlier checkpoint's `model`")
}

/// What a run is called in its tables: its folder's name, however its path is written.
fn name(folder: &Path) -> String {
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    folder.file_name().map_or_else(|| "run".to_owned(), |n| n.to_string_lossy().into_owned())
}
