//! A run: steps until the last one or the end of the budget, with the score taken now and then.

pub use allot_allocation::Every;
use allot_allocation::{Run, Spent};
use allot_engine::Engine;
use serde::{Deserialize, Serialize};

use crate::step::{Decide, Ended, Stop, Watch, World, step};
use allot_judges::Reward;
use allot_record::{End, Line, StepEnd};

/// What goes along with a run: it takes the score, keeps what is to be kept, and may pause it.
pub trait Course<E: Engine, R, P>: Watch<E::Answer> {
    /// The score of the model as it is.
    fn score(&mut self, world: &mut World<E, R, P>) -> impl Future<Output = Result<Scores, Stop>>;

    /// A step ended, and is in the record.
    fn after(&mut self, world: &mut World<E, R, P>, end: &StepEnd) -> Result<Go, Stop>;
}

/// How good a model is on what is held out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    /// Share of right answers.
    pub accuracy: f64,
    /// Further numbers, by name.
    pub parts: Vec<(String, f64)>,
    /// What evaluation has spent so far, in a book of its own; none where it costs nothing.
    pub spent: Option<Spent>,
}

/// Whether a run goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Go {
    /// It does.
    On,
    /// It is saved, and can be taken up again.
    Pause,
}

/// How a run came to rest.
#[derive(Clone, Debug, PartialEq)]
pub enum Rest {
    /// It is over.
    Over(End),
    /// It was paused.
    Paused,
}

/// Runs all steps that are left. The score is taken every now and then, and at the end.
pub async fn run<E, R, P>(
    run: &Run,
    world: &mut World<E, R, P>,
    every: Every,
    course: &mut impl Course<E, R, P>,
) -> Result<Rest, Stop>
where
    E: Engine,
    R: Reward<E::Answer>,
    P: Decide,
{
    let mut reason = None;
    let mut scored: Option<(u32, Scores)> = None;
    while world.steps < run.steps && reason.is_none() {
        if world.books.exhausted() {
            reason = Some("the budget is spent");
            // What was paid for and is held may be trained on in one more step.
            if world.shelf.rollouts() == 0 {
                break;
            }
        }
        if world.pool.is_spent() && world.shelf.rollouts() == 0 {
            reason = Some("every prompt is evicted");
            break;
        }
        match turn(run, world, every, course, &mut scored).await {
            Ok(None) => reason = Some("the budget is spent"),
            // At the last step a pause is the end.
            Ok(Some(Go::Pause)) if reason.is_none() && world.steps < run.steps => return Ok(Rest::Paused),
            Ok(Some(_)) => {}
            Err(stop) => {
                // The reason for the stop matters more than a second failure of the record.
                let _ = world.record.write(&Line::End(end(world, &stop.to_string(), false, None)));
                return Err(stop);
            }
        }
    }
    let last = match scored {
        Some((at, scores)) if at == world.steps => scores,
        _ => taken(world, course).await?,
    };
    let end = end(world, reason.unwrap_or("all steps are done"), true, Some(last));
    world.record.write(&Line::End(end.clone()))?;
    Ok(Rest::Over(end))
}

/// One step, its score where that is due, and what goes along. None where the budget ended it.
async fn turn<E, R, P>(
    run: &Run,
    world: &mut World<E, R, P>,
    every: Every,
    course: &mut impl Course<E, R, P>,
    scored: &mut Option<(u32, Scores)>,
) -> Result<Option<Go>, Stop>
where
    E: Engine,
    R: Reward<E::Answer>,
    P: Decide,
{
    let before = world.books.spent();
    let Ended::Trained(mut end) = step(run, world, course).await? else { return Ok(None) };
    if every.due(world.steps, before, world.books.spent()) {
        let scores = taken(world, course).await?;
        end.accuracy = Some(scores.accuracy);
        end.scores.clone_from(&scores.parts);
        end.evaluated = scores.spent;
        *scored = Some((world.steps, scores));
    }
    world.record.write(&Line::Step(end.clone()))?;
    course.after(world, &end).map(Some)
}

/// Takes the score. What it computes and how long it takes is no part of the run's steps.
pub async fn taken<E: Engine, R, P>(
    world: &mut World<E, R, P>,
    course: &mut impl Course<E, R, P>,
) -> Result<Scores, Stop> {
    world.meter.start();
    let scores = course.score(world).await?;
    let _ = world.engine.computed();
    world.meter.scored(scores.spent);
    Ok(scores)
}

fn end<E: Engine, R, P>(world: &World<E, R, P>, reason: &str, normal: bool, scores: Option<Scores>) -> End {
    End {
        reason: reason.to_owned(),
        normal,
        steps: world.steps,
        spent: world.books.spent(),
        compute: world.meter.compute,
        accuracy: scores.as_ref().map(|s| s.accuracy),
        scores: scores.as_ref().map(|s| s.parts.clone()).unwrap_or_default(),
        evaluated: scores.and_then(|s| s.spent),
    }
}
