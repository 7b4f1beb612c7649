//! Workers for all graders that do not answer at once. They work while the run's own thread samples. A
//! round of questions ends when all are answered.

use std::collections::{BTreeMap, HashMap};
use std::future::pending;
use std::num::NonZero;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;

use allot_base::{Error, Result};
use allot_remote::runtime;
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, spawn_blocking};

use super::protocol::{Opinion, Question};

/// Answers questions concurrently, each as a task of the program's runtime. The number of waiting questions
/// is limited only by the number of a step's rollouts.
pub(crate) struct Workers<Q, A> {
    work: Arc<dyn Fn(Q) -> Work<A> + Send + Sync>,
    most: usize,
    /// One permit for each concurrent question, given out in the order of the questions. An error closes
    /// the semaphore; the next round gets a new one.
    turns: Arc<Semaphore>,
    /// Dropped with this and with the future of [`Self::finish`]; both stop the work.
    round: JoinSet<Result<A>>,
    failed: Option<Error>,
}

type Work<A> = Pin<Box<dyn Future<Output = Result<A>> + Send>>;

impl<Q: Send + 'static, A: Send + 'static> Workers<Q, A> {
    /// Returns workers that wait for a process or server, at most `most` concurrently.
    pub fn waiting<F>(most: usize, work: impl Fn(Q) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<A>> + Send + 'static,
    {
        let work = Arc::new(move |question| -> Work<A> { Box::pin(work(question)) });
        Self { work, most, turns: Arc::new(Semaphore::new(most)), round: JoinSet::new(), failed: None }
    }

    /// Returns workers that compute, one on each core.
    pub fn computing(work: impl Fn(Q) -> A + Send + Sync + 'static) -> Self {
        let work = Arc::new(work);
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        Self::waiting(cores, move |question| {
            let work = Arc::clone(&work);
            async move {
                let answered = spawn_blocking(move || work(question)).await;
                Ok(answered.unwrap_or_else(|error| resume_unwind(error.into_panic())))
            }
        })
    }

    /// Starts work on a question without waiting for its answer.
    pub fn begin(&mut self, question: Q) {
        let (work, turns) = (Arc::clone(&self.work), Arc::clone(&self.turns));
        let answer = async move {
            // Closed by an error: nothing more starts, and `finish` drops this task.
            let Ok(_turn) = turns.acquire().await else { return pending().await };
            let answered = work(question).await;
            if answered.is_err() {
                turns.close();
            }
            answered
        };
        match runtime() {
            Ok(runtime) => _ = self.round.spawn_on(answer, runtime.handle()),
            Err(error) => self.failed = Some(error.into()),
        }
    }

    /// Returns the answers to all questions since the last round, in any order.
    ///
    /// # Errors
    ///
    /// The first error of a worker; the others then stop.
    pub async fn finish(&mut self) -> Result<Vec<A>> {
        let mut round = std::mem::take(&mut self.round);
        self.turns = Arc::new(Semaphore::new(self.most));
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let mut answers = Vec::with_capacity(round.len());
        while let Some(answered) = round.join_next().await {
            answers.push(answered.map_err(|e| Error::new(format!("grading was interrupted: {e}")))??);
        }
        Ok(answers)
    }
}

/// Questions that are asked together, with the places of their answers.
pub(crate) type Batch = Vec<(usize, Question)>;

/// A round's questions by group, for graders that compare answers. A group has a number.
#[derive(Default)]
pub(crate) struct Groups(BTreeMap<u32, Batch>);

impl Groups {
    /// Adds a question to its group.
    pub fn add(&mut self, group: u32, place: usize, question: Question) {
        self.0.entry(group).or_default().push((place, question));
    }

    /// Takes all groups, each in the order of sampling, whichever answer was complete first.
    pub fn complete(&mut self) -> impl Iterator<Item = Batch> + use<> {
        std::mem::take(&mut self.0).into_values().map(|mut group| {
            group.sort_by_key(|(place, _)| *place);
            group
        })
    }
}

/// The places of a round's answers, by key. Equal answers are graded once.
#[derive(Default)]
pub(crate) struct Places(HashMap<String, Vec<usize>>);

impl Places {
    /// Adds the place of an answer. Returns whether it is the first with this key.
    pub fn add(&mut self, key: &str, place: usize) -> bool {
        if let Some(places) = self.0.get_mut(key) {
            places.push(place);
            return false;
        }
        self.0.insert(key.to_owned(), vec![place]);
        true
    }

    /// Returns the opinion on each answer, by its place.
    pub fn opinions(self, of: impl Fn(&str) -> Option<Opinion>) -> Vec<(usize, Opinion)> {
        let answered = self.0.into_iter().filter_map(|(key, places)| Some((of(&key)?, places)));
        answered
            .flat_map(|(opinion, places)| places.into_iter().map(move |place| (place, opinion.clone())))
            .collect()
    }
}
