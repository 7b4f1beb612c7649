//! The recorder of a training run: its evaluations, tables, curves and checkpoints, and the screen.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::Instant;

use allot_allocation::{Plan, RolloutId, Settled, View};
use allot_config::train::EngineConfig;
use allot_engine::{Answer, Engine as _, Sample};
use allot_loop::{At, Clipped, Learned, Scores};
use allot_outputs::log::Log;
use allot_outputs::metrics::Metrics;
use allot_outputs::problems;
use allot_outputs::rollouts::{Fate, Purpose, RolloutRow, Table};
use allot_outputs::tensorboard::Events;

use crate::callbacks::{Callbacks, CameIn, Go};
use crate::checkpoint::{self, Checkpoints, Manifest, RunState};
use crate::engines::AnyEngine;
use crate::evaluation::{Evaluation, played};
use crate::prepared::Prepared;
use crate::progress::{Clips, Progress, Scoring};
use crate::screen::Screen;
use crate::shadow::Decider;
use crate::stop::Stop;
use crate::summary::Totals;
use crate::tally::{StepTally, Waiting};
use crate::training::Trained;
use crate::until::{Means, Until};
use crate::world::World;
use allot_base::Result;
use allot_judges::graded::Graded;
use allot_record::{Kept, Machine, Phase, Record, StepEnd, Time, Times};
use allot_report::Costs;
use allot_sandbox::LogLine;

/// The recorder of a run's folder.
pub struct RunRecorder<'a, 's> {
    prepared: &'a Prepared<'a>,
    evaluation: Evaluation,
    checkpoints: Checkpoints,
    /// The manifest of the next checkpoint, without its files.
    manifest: Manifest,
    files: Files,
    /// Totals of the steps.
    pub totals: Totals,
    /// The screen.
    pub progress: Progress<'a, 's>,
    /// Whether the run pauses after the current step.
    pub until_next_step: bool,
    /// Further conditions for a pause.
    pub until: Until,
    step: StepTally,
    /// Tallies of steps that are decided and wait for their updates.
    waiting: VecDeque<Waiting>,
    clips: Clips,
    clock: Clock,
    /// Number of finished steps at the last evaluation on the curves.
    drawn: Option<u32>,
    /// The newest checkpoint.
    pub saved: Option<PathBuf>,
    /// Number of finished steps at the last checkpoint that was written after a step.
    kept: Option<u32>,
}

/// The files that a recorder writes.
struct Files {
    table: Table,
    times: Times,
    metrics: Metrics,
    events: Events,
    log: Log,
}

/// The folder and identity of a run.
pub struct RunIdentity<'p> {
    /// Its folder.
    pub folder: &'p Path,
    /// The hash of its config.
    pub config: String,
    /// The hash of its initial weights.
    pub model: String,
    /// The policy's component.
    pub component: &'p [u8],
}

/// Measures phases, in seconds. Records contain no times.
struct Clock {
    last: Instant,
    evaluating: f64,
}

impl<'a, 's> RunRecorder<'a, 's> {
    /// Returns the recorder of a new run.
    pub fn fresh(
        prepared: &'a Prepared<'a>,
        evaluation: Evaluation,
        place: &RunIdentity<'_>,
        progress: Progress<'a, 's>,
    ) -> Result<Self> {
        let folder = place.folder;
        let (asked, set) = (prepared.problems.asked(), |prompt| prepared.problems.set_of(prompt));
        problems::write(&folder.join("problems.parquet"), asked, set, |ids| prepared.tokens.decode(ids))?;
        let table = Table::create(&folder.join("rollouts"), &name(folder))?;
        let times = Times::create(&folder.join("times.jsonl"))?;
        let metrics = Metrics::create(&folder.join("metrics.jsonl"))?;
        let events = Events::create(&folder.join("tensorboard"))?;
        let mut log = Log::create(&folder.join("log.jsonl"))?;
        log.write(None, &prepared.log)?;
        let files = Files { table, times, metrics, events, log };
        Ok(Self::of(prepared, evaluation, place, progress, (files, Totals::new(0.0))))
    }

    /// Returns the recorder and the record of a run that resumes from a checkpoint and its state.
    pub fn resumed(
        prepared: &'a Prepared<'a>,
        evaluation: Evaluation,
        place: &RunIdentity<'_>,
        progress: Progress<'a, 's>,
        (checkpoint, state): (PathBuf, &mut RunState<'_>),
    ) -> Result<(Self, Record)> {
        let folder = place.folder;
        // All files are checked before the first one is truncated.
        let record = Kept::open(&folder.join("record.jsonl"), &state.record)?;
        let times = Kept::open(&folder.join("times.jsonl"), &state.times)?;
        let metrics = Kept::open(&folder.join("metrics.jsonl"), &state.metrics)?;
        let events = Events::kept(&folder.join("tensorboard"), &state.events)?;
        let log = Kept::open(&folder.join("log.jsonl"), &state.log)?;
        let table = Table::resume(
            &folder.join("rollouts"),
            &name(folder),
            std::mem::take(&mut state.parts),
            state.take_pending(),
        )?;
        let record = Record::resume(record)?;
        let mut times = Times::resume(times)?;
        times.write(&Time::Machine(machine(prepared)))?;
        let (metrics, events) = (Metrics::resume(metrics)?, Events::resume(events)?);
        let files = Files { table, times, metrics, events, log: Log::resume(log)? };
        let recorder = Self::of(prepared, evaluation, place, progress, (files, state.totals.clone()));
        // A checkpoint is written after the curves.
        let drawn = state.run.scored.as_ref().map(|(steps, _)| *steps);
        let (step, waiting) = (std::mem::take(&mut state.tally), std::mem::take(&mut state.waiting));
        Ok((Self { step, waiting, drawn, saved: Some(checkpoint), ..recorder }, record))
    }

    fn of(
        prepared: &'a Prepared<'a>,
        evaluation: Evaluation,
        place: &RunIdentity<'_>,
        progress: Progress<'a, 's>,
        (files, totals): (Files, Totals),
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
            files,
            totals,
            progress,
            until_next_step: false,
            until: Until::default(),
            step: StepTally::default(),
            waiting: VecDeque::new(),
            clips: Clips::default(),
            clock: Clock { last: Instant::now(), evaluating: 0.0 },
            drawn: None,
            saved: None,
            kept: None,
        }
    }

    /// Records the evaluation at the start.
    pub fn started(&mut self, world: &Trained<'_>, scores: &Scores) -> Result<()> {
        self.files.times.write(&Time::Machine(machine(self.prepared)))?;
        self.files.times.write(&Time::Step { steps: 0, seconds: world.run.state.measured.seconds })?;
        self.totals = Totals::new(scores.accuracy);
        self.draw(world.run.state.steps, Some(scores))?;
        self.progress.started(scores.accuracy);
        self.clock = Clock { last: Instant::now(), evaluating: 0.0 };
        Ok(())
    }

    /// Writes the last checkpoint of a finished run, and ends its table. Returns the totals for the closing
    /// table, and the screen.
    pub fn finish(mut self, world: &Trained<'_>) -> std::result::Result<(Totals, &'a mut Screen<'s>), Stop> {
        let state = &world.run.state;
        let last = state.scored.as_ref().filter(|(at, _)| *at == state.finished()).map(|(_, scores)| scores);
        self.draw(state.finished(), last).map_err(Stop::Outputs)?;
        self.save(world)?;
        self.files.table.finish().map_err(Stop::Outputs)?;
        self.progress.unjudged_in_all(world.reward.unjudged, world.reward.last_trouble.as_deref());
        Ok((self.totals, self.progress.screen))
    }

    /// Writes a checkpoint. Fails if weights are not finite.
    pub fn save(&mut self, world: &Trained<'_>) -> std::result::Result<(), Stop> {
        let finite = world.engine.finite().map_err(Stop::Outputs)?;
        if !finite {
            let what = format!("the weights after step {} are", world.run.state.finished());
            return Err(Stop::NotFinite { what, updates: world.engine.version() });
        }
        self.write(world).map_err(Stop::Outputs)
    }

    fn write(&mut self, world: &Trained<'_>) -> Result<()> {
        self.files.table.close_part()?;
        world.record.sync()?;
        world.policy.sync()?;
        self.files.times.sync()?;
        self.files.metrics.sync()?;
        self.files.events.sync()?;
        self.files.log.sync()?;
        let mut samples: Vec<_> = world.samples.iter().map(|(id, s)| (*id, Cow::Borrowed(s))).collect();
        samples.sort_by_key(|(id, _)| *id);
        let state = RunState {
            run: &world.run.state,
            optimizer_steps: world.engine.optimizer_steps(),
            samples,
            paid: Cow::Borrowed(&world.paid),
            evaluation: self.evaluation.spent(),
            tally: self.step.clone(),
            waiting: self.waiting.clone(),
            totals: self.totals.clone(),
            record: world.record.mark(),
            times: self.files.times.mark(),
            metrics: self.files.metrics.mark(),
            events: self.files.events.mark(),
            log: self.files.log.mark(),
            shadows: world.policy.marks(),
            parts: self.files.table.parts().to_vec(),
            pending: self.files.table.pending().map(Cow::Borrowed).collect(),
        };
        let manifest = Manifest { steps: world.run.state.finished(), ..self.manifest.clone() };
        let (tokens, shape) = (&self.prepared.tokens, &self.prepared.shape);
        let written =
            self.checkpoints.write(&state, manifest, |folder| world.engine.save(folder, tokens, shape))?;
        self.saved = Some(written);
        Ok(())
    }

    fn text(&self, sample: &Sample<Answer>) -> Option<String> {
        let wanted = self.prepared.config.checkpoint.text;
        let text = || self.prepared.tokens.said(&sample.answer, &self.prepared.stops).ok();
        wanted.then(text).flatten()
    }

    /// Records that rollouts which were trained on have left the buffer.
    pub fn finished(&mut self, rollouts: &[RolloutId]) -> Result<()> {
        rollouts.iter().try_for_each(|id| self.files.table.settle(*id, Fate::Trained))
    }

    /// Records the log lines of another policy's `begin`.
    pub fn begun(&mut self) -> Result<()> {
        self.files.log.write(None, &self.prepared.log)
    }

    /// Adds the last evaluation to the curves, if it was made after this many steps and is not part of a
    /// step: at the start, and after the last step.
    fn draw(&mut self, steps: u32, scores: Option<&Scores>) -> Result<()> {
        let Some(scores) = scores.filter(|_| self.drawn != Some(steps)) else { return Ok(()) };
        let accuracy = ("accuracy".to_owned(), scores.accuracy);
        let numbers: Vec<_> = std::iter::once(accuracy).chain(scores.parts.iter().cloned()).collect();
        self.curves(steps, &numbers)?;
        self.drawn = Some(steps);
        Ok(())
    }

    /// Writes metrics as a line and as events.
    fn curves(&mut self, steps: u32, numbers: &[(String, f64)]) -> Result<()> {
        self.files.metrics.write(steps, numbers)?;
        numbers.iter().try_for_each(|(name, value)| self.files.events.scalar(name, steps, *value))
    }

    /// Returns whether a resumed run has already reached its pause, as another process may have done.
    pub fn is_there(&self, world: &Trained<'_>) -> bool {
        let (config, state) = (&self.prepared.config, &world.run.state);
        let means = Means { budget: config.budget, steps: config.run.steps };
        let seconds = Some(state.measured.seconds.of_steps());
        let (spent, compute) = state.costs();
        let (costs, steps) = (Costs { spent, compute, seconds }, state.finished());
        let scored = state.scored.as_ref().filter(|(at, _)| *at == steps);
        let accuracy = scored.map(|(_, scores)| scores.accuracy);
        state.at == At::Between && steps > 0 && self.until.is_met(&means, steps, &costs, accuracy)
    }

    /// Returns whether the run pauses after a step.
    fn pauses(&self, end: &StepEnd, seconds: f64) -> bool {
        let config = &self.prepared.config;
        let means = Means { budget: config.budget, steps: config.run.steps };
        let costs = Costs { spent: end.spent, compute: end.compute, seconds: Some(seconds) };
        self.until.is_met(&means, end.step + 1, &costs, end.accuracy)
    }

    /// Ends the tally of the current step, which only waits for its update.
    fn close(&mut self) -> Waiting {
        Waiting { tally: std::mem::take(&mut self.step), prompt_tokens: self.totals.prompt_tokens }
    }

    /// Returns a step's metrics, by name.
    fn numbers(&mut self, end: &StepEnd) -> Vec<(String, f64)> {
        let seconds = self.clock.last.elapsed().as_secs_f64() - self.clock.evaluating;
        self.clock = Clock { last: Instant::now(), evaluating: 0.0 };
        let Waiting { tally, prompt_tokens } = match self.waiting.pop_front() {
            Some(waiting) => waiting,
            None => self.close(),
        };
        tally.numbers(end, seconds, prompt_tokens + end.spent.run_tokens)
    }
}

impl<'p> Callbacks<AnyEngine, Graded, Decider<'p>> for RunRecorder<'_, '_> {
    fn decided(&mut self, view: &View, plan: &Plan, said: &[LogLine]) -> std::result::Result<(), Stop> {
        self.step.plan(plan);
        self.totals.decided(view, plan);
        self.files.log.write(Some((view.step, view.round)), said).map_err(Stop::Outputs)
    }

    fn clipped(&mut self, clipped: &Clipped) {
        self.step.add_clipped(clipped.asked - clipped.granted);
        if let Some(words) = self.clips.add(clipped) {
            self.progress.tell(words);
        }
    }

    fn sampled(&mut self, came: CameIn<'_, Answer>) -> std::result::Result<(), Stop> {
        let CameIn { round, first, samples, outcomes, parts, certain } = came;
        if let Some(sample) = samples.iter().find(|s| !s.log_prob.is_finite()) {
            let what = format!("probabilities in step {} are", round.step);
            return Err(Stop::NotFinite { what, updates: sample.version });
        }
        self.totals.sampled(outcomes);
        self.step.add_certain(certain);
        for (i, (sample, outcome)) in samples.iter().zip(outcomes).enumerate() {
            self.step.add(outcome);
            self.totals.prompt_tokens +=
                self.prepared.problems.prompts[sample.prompt.0 as usize].len() as u64;
            let problem = &self.prepared.problems.all[sample.prompt.0 as usize];
            let purpose =
                if round.buffered.contains(&sample.prompt) { Purpose::Commit } else { Purpose::Pilot };
            let row = RolloutRow {
                step: round.step,
                round: Some(round.round),
                rollout: RolloutId(first.0 + i as u64),
                prompt: sample.prompt,
                problem: problem.id(),
                source: problem.source.clone(),
                purpose,
                position: sample.position,
                version: sample.version,
                tokens: sample.tokens,
                truncated: sample.truncated,
                log_prob: Some(sample.log_prob),
                reward: outcome.reward,
                rewards: parts[i].clone(),
                correct: outcome.correct,
                played: played(&sample.answer),
                text: self.text(sample),
                learned: None,
            };
            self.files.table.add(row).map_err(Stop::Outputs)?;
        }
        Ok(())
    }

    fn settled(&mut self, settled: &Settled, learned: &[Learned]) -> std::result::Result<(), Stop> {
        let mut each = learned.iter();
        each.try_for_each(|l| self.files.table.train(l.id, l.age, l.advantage)).map_err(Stop::Outputs)?;
        let finished = settled.finished.iter().map(|id| (*id, Fate::Trained));
        let released = settled.released.iter().map(|id| (*id, Fate::Released));
        let stale = settled.stale.iter().map(|id| (*id, Fate::Stale));
        let mut fates = finished.chain(released).chain(stale);
        fates.try_for_each(|(id, fate)| self.files.table.settle(id, fate)).map_err(Stop::Outputs)?;
        if self.prepared.config.run.lag > 0 {
            let waiting = self.close();
            self.waiting.push_back(waiting);
        }
        Ok(())
    }

    async fn evaluate(
        &mut self,
        world: &mut World<AnyEngine, Graded, Decider<'p>>,
    ) -> std::result::Result<Scores, Stop> {
        let began = Instant::now();
        let (steps, stop) = (world.run.state.finished(), world.interrupt.clone());
        let mut reward = Scoring::new(&mut world.reward, &mut self.progress, self.evaluation.answers());
        let (scores, answered) = self.evaluation.score(&mut world.engine, &mut reward, steps, &stop).await?;
        drop(reward);
        let mut number = 0;
        for (i, one) in answered.iter().enumerate() {
            number = if i > 0 && answered[i - 1].set == one.set { number + 1 } else { 0 };
            let row = self.evaluation.row(number, steps, self.text(&one.sample), one);
            self.files.table.add(row).map_err(Stop::Outputs)?;
        }
        self.clock.evaluating += began.elapsed().as_secs_f64();
        Ok(scores)
    }

    fn after(&mut self, world: &mut Trained<'p>, end: &StepEnd) -> std::result::Result<Go, Stop> {
        self.totals.add(end);
        let numbers = self.numbers(end);
        world.clock.start();
        let measured = world.run.state.measured;
        let mut keep = || -> Result<()> {
            self.files.times.write(&Time::Step { steps: end.step + 1, seconds: measured.seconds })?;
            self.curves(end.step + 1, &numbers)?;
            if end.accuracy.is_some() {
                self.drawn = Some(end.step + 1);
            }
            self.progress.step(end, measured);
            self.progress.unjudged(world.reward.unjudged, world.reward.last_trouble.as_deref());
            Ok(())
        };
        keep().map_err(Stop::Outputs)?;
        self.totals.warning().into_iter().for_each(|words| self.progress.tell(words));
        let due = world.run.state.finished().is_multiple_of(self.prepared.config.checkpoint.every);
        let pauses = self.until_next_step || self.pauses(end, measured.seconds.of_steps());
        // At its end, a run is saved anyway.
        if !world.run.is_at_end() && (due || pauses) {
            self.save(world)?;
            self.kept = Some(world.run.state.finished());
        }
        world.lap(Phase::Saving);
        Ok(if pauses { Go::Pause } else { Go::On })
    }

    fn pause(&mut self, world: &mut Trained<'p>) -> std::result::Result<(), Stop> {
        self.progress.screen.draw("");
        // Between two steps, the state may already have been saved.
        let between = world.run.state.at == At::Between && self.kept == Some(world.run.state.finished());
        if between { Ok(()) } else { self.save(world) }
    }
}

/// Writes the missing part of a finished run's table, if the run was stopped just before that.
pub fn complete(folder: &Path, mut state: RunState<'_>) -> Result<()> {
    let rollouts = folder.join("rollouts");
    let is_there = |part: u32| rollouts.join(format!("part-{part:05}.parquet")).exists();
    let parts = state.parts.len() as u32;
    if state.pending.is_empty() || !is_there(parts) || is_there(parts + 1) {
        return Ok(());
    }
    let pending = state.take_pending();
    Table::resume(&rollouts, &name(folder), state.parts, pending)?.finish()
}

/// Returns a description of this machine, for the run's times.
fn machine(prepared: &Prepared<'_>) -> Machine {
    let device = match prepared.config.engine {
        EngineConfig::Native => prepared.config.model.device.to_string(),
        EngineConfig::Tinker(_) => "tinker".to_owned(),
    };
    Machine::here(&device)
}

/// Returns a run's name in its tables: its folder's name.
fn name(folder: &Path) -> String {
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    folder.file_name().map_or_else(|| "run".to_owned(), |n| n.to_string_lossy().into_owned())
}
