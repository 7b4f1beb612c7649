//! A run: steps until the last one or the end of the budget, with the score taken now and then.

use allot_allocation::Run;
use allot_engine::Engine;

use crate::record::{End, Line, StepEnd};
use crate::reward::Reward;
use crate::step::{Decide, Ended, Stop, World, step};

/// Runs all steps. `score` gives the held-out accuracy, taken after every so many steps and at the
/// end; `watch` sees each step as it ends.
pub async fn run<E, R, P>(
    run: &Run,
    world: &mut World<E, R, P>,
    every: u32,
    score: impl Fn(&E) -> f64,
    mut watch: impl FnMut(&StepEnd),
) -> Result<End, Stop>
where
    E: Engine,
    R: Reward<E::Answer>,
    P: Decide,
{
    let mut reason = None;
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
        match step(run, world).await {
            Ok(Ended::Trained(mut end)) => {
                end.accuracy = world.steps.is_multiple_of(every).then(|| score(&world.engine));
                world.record.write(&Line::Step(end.clone())).map_err(Stop::Record)?;
                watch(&end);
            }
            Ok(Ended::Spent) => reason = Some("the budget is spent"),
            Err(stop) => {
                // The reason for the stop matters more than a second failure of the record.
                let _ = world.record.write(&Line::End(end(world, &stop.to_string(), false, None)));
                return Err(stop);
            }
        }
    }
    let accuracy = score(&world.engine);
    let end = end(world, reason.unwrap_or("all steps are done"), true, Some(accuracy));
    world.record.write(&Line::End(end.clone())).map_err(Stop::Record)?;
    Ok(end)
}

fn end<E: Engine, R, P>(world: &World<E, R, P>, reason: &str, normal: bool, accuracy: Option<f64>) -> End {
    End { reason: reason.to_owned(), normal, steps: world.steps, spent: world.books.spent(), accuracy }
}
