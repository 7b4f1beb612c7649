//! A grader that consists of equal processes. Each answer goes to one of them, under a time limit. A process that takes
//! lists is asked about a portion of answers in one line, and has the next portion before it has answered this one. If a
//! process fails, another one starts: an answer of a portion is then asked about by itself, and one by itself is unscorable.
//! So it does not matter which process graded an answer, and with which others.
//!
//! Answers that take a process less than a portion's time are kept until there is a portion of them. What is kept at the
//! end of a round, one answer perhaps, is sent and waited for by the run's own thread, as no other thread has to wake then.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use allot_base::Result;
use allot_remote::runtime;
use allot_settings::reward::Compares;

pub use super::command::GraderCommand;
use super::identity::GraderPreflight;
use super::portions::{Next, Portions};
use super::process::Process;
use super::program::Failure;
use super::protocol::{Lists, Opinion, Question};
use super::workers::{Batch, Groups, Workers};

/// How many processes may fail at the greeting before the run ends.
const TRIES: u32 = 3;

/// Opinions, with the places of their answers.
type Told = Vec<(usize, Opinion)>;

/// A grader that consists of processes. They start when they are needed, and end with it.
pub struct Processes {
    shared: Arc<Shared>,
    workers: Workers<Arc<Portions>, Told>,
    /// What waits for a process in this round.
    waiting: Arc<Portions>,
    /// Answers that are kept until there is a portion of them, with the process that judges them if the round ends before.
    kept: Option<(Process, Batch)>,
    /// Answers whose group is not complete, if groups are asked about.
    groups: Groups,
}

/// The state that all workers share.
struct Shared {
    command: GraderCommand,
    /// Processes that wait for a question. The lock is never held across an await.
    idle: Mutex<Vec<Process>>,
}

impl Processes {
    /// Returns a grader with this command. Starts nothing yet.
    pub fn new(command: GraderCommand) -> Self {
        let processes = command.processes;
        let shared = Arc::new(Shared { command, idle: Mutex::default() });
        let asked = Arc::clone(&shared);
        let workers = Workers::waiting(processes, move |waiting: Arc<Portions>| {
            let shared = Arc::clone(&asked);
            async move { shared.work(&waiting).await }
        });
        let waiting = Arc::new(Portions::new(processes));
        Self { shared, workers, waiting, kept: None, groups: Groups::default() }
    }

    /// Returns whether answers are compared.
    pub fn compare(&self) -> bool {
        self.shared.command.compares.is_some()
    }

    /// Starts a process, sends it the greeting and ends it. Must not be called from async code.
    pub fn check(&self) -> Result<GraderPreflight> {
        runtime()?.block_on(async {
            let (process, preflight) = self.shared.command.start(1).await?;
            process.end().await;
            Ok(preflight)
        })
    }

    /// Asks a question without waiting for the opinion. If answers are compared, it waits for the others.
    pub fn begin(&mut self, place: usize, question: Question) {
        match self.shared.command.compares {
            Some(Compares::Group) => self.groups.add(question.group, place, question),
            Some(Compares::Round) => self.groups.add(0, place, question),
            None => self.keep(place, question),
        }
    }

    /// Keeps a question until there is a portion for each process, if an idle one is quick and none is at work. Otherwise
    /// workers ask about it.
    fn keep(&mut self, place: usize, question: Question) {
        if self.kept.is_none() && self.waiting.is_unattended() {
            self.kept = self.shared.quick().map(|process| (process, Batch::new()));
        }
        let processes = self.shared.command.processes;
        match self.kept.take() {
            Some((process, mut batch)) => {
                batch.push((place, question));
                if batch.len() * processes < process.portion() {
                    self.kept = Some((process, batch));
                    return;
                }
                self.shared.idle().push(process);
                for (place, question) in batch {
                    self.hand_out(place, question);
                }
            }
            None => self.hand_out(place, question),
        }
    }

    fn hand_out(&mut self, place: usize, question: Question) {
        if self.waiting.add(place, question) {
            self.workers.begin(Arc::clone(&self.waiting));
        }
    }

    /// Returns the opinions on all questions, by place, in any order: no group gets further answers. Fails if no process
    /// can be started.
    pub async fn finish(&mut self) -> Result<Told> {
        let fresh = Arc::new(Portions::new(self.shared.command.processes));
        let waiting = std::mem::replace(&mut self.waiting, fresh);
        for group in self.groups.complete() {
            if waiting.add_whole(group) {
                self.workers.begin(Arc::clone(&waiting));
            }
        }
        let mut told = Told::new();
        if let Some((process, batch)) = self.kept.take() {
            self.shared.here(process, batch, &waiting, &mut told).await;
            while waiting.lacks_worker() {
                self.workers.begin(Arc::clone(&waiting));
            }
        }
        told.extend(self.workers.finish().await?.into_iter().flatten());
        Ok(told)
    }
}

impl Shared {
    fn idle(&self) -> MutexGuard<'_, Vec<Process>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an idle process that judges several answers in a portion's time, for each process that there may be. It may have
    /// ended: its answers are then asked about again.
    fn quick(&self) -> Option<Process> {
        let mut idle = self.idle();
        let is_quick = idle.last().is_some_and(|process| process.portion() > self.command.processes);
        if is_quick { idle.pop() } else { None }
    }

    /// Asks a process about a portion in this thread. What fails is asked about by workers.
    async fn here(&self, mut process: Process, portion: Batch, waiting: &Portions, told: &mut Told) {
        let sent = process.send(questions(&portion), self.command.limit).await;
        if sent.is_ok() {
            process.linger(self.command.limit);
        }
        let last = self.portions(process, portion, sent, waiting, told).await;
        self.idle().extend(last);
    }

    /// Asks a process about what waits, until nothing does. Fails if none can be started.
    async fn work(&self, waiting: &Portions) -> Result<Told> {
        let (mut told, mut last) = (Told::new(), None);
        while let Some(next) = waiting.next(last.as_ref().map_or(1, Process::portion)).await {
            let (process, fresh) = self.ready(last.take()).await?;
            last = match next {
                Next::Portion(first) if process.greeting().lists != Lists::No => {
                    let mut process = process;
                    let sent = process.send(questions(&first), self.command.limit).await;
                    self.portions(process, first, sent, waiting, &mut told).await
                }
                // The one that it was cut for took lists, and has ended.
                Next::Portion(several) if several.len() > 1 => {
                    waiting.apart(several);
                    Some(process)
                }
                Next::Portion(batch) | Next::Whole(batch) => {
                    self.whole(process, fresh, batch, &mut told).await?
                }
            };
        }
        self.idle().extend(last);
        Ok(told)
    }

    /// Returns this process, an idle one or a new one, and whether it is new. A process that ended after its last answer
    /// is replaced; its end says nothing about the next answer. Fails if none can be started.
    async fn ready(&self, last: Option<Process>) -> Result<(Process, bool)> {
        let waiting = last.or_else(|| self.idle().pop());
        match waiting.map(|mut process| (process.runs(), process)) {
            Some((true, process)) => Ok((process, false)),
            _ => Ok((self.command.start(TRIES).await?.0, true)),
        }
    }

    /// Asks a process about one portion after the other, of which it was sent the first, and sends each while the one before
    /// is judged. Returns the process, unless it failed: then nothing is said of the portion that it had.
    async fn portions(
        &self,
        mut process: Process,
        first: Batch,
        mut sent: std::result::Result<(), Failure>,
        waiting: &Portions,
        told: &mut Told,
    ) -> Option<Process> {
        let (limit, mut current) = (self.command.limit, first);
        loop {
            // Of slow answers none waits behind another, where a further worker might take it.
            let size = process.portion();
            let next = if size > 1 { waiting.further(size) } else { None };
            let answered = match sent {
                Ok(()) => process.advance(next.as_deref().map(questions), current.len(), limit).await,
                Err(failure) => Err(failure),
            };
            match (answered, next) {
                (Ok(opinions), next) => {
                    match opinions {
                        Ok(opinions) => told.extend(judged(&current, opinions)),
                        Err(why) if current.len() == 1 => told.extend(judged(&current, vec![Err(why)])),
                        // Which answer it is of is not said, and the others are not to suffer from where the portion was cut.
                        Err(_) => waiting.apart(current),
                    }
                    match next {
                        Some(next) => (current, sent) = (next, Ok(())),
                        None => return Some(process),
                    }
                }
                (Err(failure), next) => {
                    // One whose pipes another process holds is silent, as if it were slow.
                    let has_ended = matches!(failure, Failure::Ended(_)) || !process.runs();
                    process.end().await;
                    if let Some(next) = next {
                        waiting.back(next);
                    }
                    // One that ended may have done so before this answer.
                    if has_ended || current.len() > 1 {
                        waiting.apart(current);
                    } else {
                        told.extend(failed(&failure, &current));
                    }
                    return None;
                }
            }
        }
    }

    /// Asks a process about one answer, or about all of a group. Returns the process, unless it failed: then none of them has
    /// a verdict. Fails if none can be started.
    async fn whole(
        &self,
        mut process: Process,
        mut fresh: bool,
        batch: Batch,
        told: &mut Told,
    ) -> Result<Option<Process>> {
        let limit = self.command.limit;
        let answered = loop {
            let asked = match &batch[..] {
                [(_, question)] if self.command.compares.is_none() => {
                    process.ask(question, limit).await.map(|opinion| vec![opinion])
                }
                group => process.ask_group(questions(group), group.len(), limit).await,
            };
            match asked {
                // The previous answer may have ended the process. A new process is asked; its failure is
                // attributed to this answer.
                Err(Failure::Ended(_)) if !fresh => {
                    process.end().await;
                    (process, fresh) = (self.command.start(TRIES).await?.0, true);
                }
                answered => break answered,
            }
        };
        match answered {
            Ok(opinions) => {
                told.extend(judged(&batch, opinions));
                Ok(Some(process))
            }
            Err(failure) => {
                process.end().await;
                told.extend(failed(&failure, &batch));
                Ok(None)
            }
        }
    }
}

fn questions(batch: &[(usize, Question)]) -> impl Iterator<Item = &Question> {
    batch.iter().map(|(_, question)| question)
}

/// Returns a process's opinions as the run is told them.
fn judged(batch: &[(usize, Question)], opinions: Vec<Opinion>) -> impl Iterator<Item = (usize, Opinion)> {
    let said = |opinion: Opinion| opinion.map_err(|why| format!("the grader says: {why}"));
    batch.iter().zip(opinions).map(move |((place, _), opinion)| (*place, said(opinion)))
}

/// Returns that none of these answers has a verdict.
fn failed(failure: &Failure, batch: &[(usize, Question)]) -> impl Iterator<Item = (usize, Opinion)> {
    batch.iter().map(move |(place, _)| (*place, Err(format!("the grader {failure}"))))
}
