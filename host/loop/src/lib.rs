//! The run loop: ask the policy, keep the rules, spend, sample, judge, ask again, train.
//!
//! [`Loop`] is a state machine without I/O. It says what to do [`next`](Loop::next), and is told what came of it. Whoever
//! has an engine drives it: the program, a simulation, the wheel, a test. It knows neither files nor clocks nor models,
//! and every line of a run's record that is not its head comes from it.
//!
//! ```text
//! next() -> Decide(view) | Sample(grant) | Update(batch) | Evaluate | Step(end) | Over(end) | Wait
//!           decided(plan)  sampled(…)      updated(…)      evaluated(…)
//! ```
//!
//! Its [`State`] can be kept between any two of these calls, and a loop that goes on from it asks for the same again:
//! also for rollouts that were granted and had not all come.

mod evaluation;
mod machine;
mod meter;
mod state;

pub use allot_allocation::Every;
pub use evaluation::Scores;
pub use machine::{Constants, Costs, Decided, Loop, Next, Round, Took};
pub use meter::{Left, Measured, Meter};
pub use state::{At, Learned, Mean, Reason, State, Step, Update};
