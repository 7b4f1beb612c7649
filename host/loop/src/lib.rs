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
//! In a run with a lag `Update` comes in two: `Begin(batch)`, to which nothing is answered, and some steps later
//! `Finish(batch)`, answered by `finished(…)`.
//!
//! Its [`State`] can be kept between any two of these calls, and a loop that goes on from it asks for the same again:
//! also for rollouts that were granted and had not all come.
//!
//! ```
//! use allot_allocation::{Action, Ledger, Ceilings, Cost, Limits, Order, Plan, Pool, PromptId, Request, Run, RolloutBuffer};
//! use allot_loop::{Constants, Loop, Next, State};
//!
//! let run = Run { settings: vec![], prompts: 20, steps: 6, groups: 4, rollouts: 8, pool: 8, max_age: 2, lag: 0, terms: None };
//! let limits =
//!     Limits { rounds: 4, step_rollouts: None, run_rollouts: Some(100), run_tokens: None, longest: 64 };
//! let pool = Pool::new(1, Order::Shuffled, run.pool, vec![5; 20]);
//! let state = State::new(vec![], pool, RolloutBuffer::new(0), Ledger::new(limits));
//! let constants = Constants { run, seed: 1, scale: Default::default(), bounds: Default::default(), every: None };
//! let mut run = Loop::new(constants, Ceilings { flops: None, seconds: None }, state);
//!
//! let costs = |_prompt: PromptId, _tokens: u32| Cost { reading: 0.0, answering: 0.0, learning: 0.0 };
//! let Next::Decide(view) = run.next(&costs) else { panic!("a run begins with a decision") };
//! let order = vec![Request::new(view.pool[0].id, 8)];
//! run.decided("mine", &Plan::of(Action::Sample(order)), &costs)?;
//! assert!(matches!(run.next(&costs), Next::Sample(grant, _) if grant.rollouts() == 8));
//! # Ok::<(), allot_allocation::rules::Broken>(())
//! ```

mod evaluation;
mod machine;
mod meter;
mod pending;
mod state;

pub use allot_allocation::Every;
pub use evaluation::Scores;
pub use machine::{Clipped, Constants, Costs, Decided, Loop, Next, Round, Took};
pub use meter::{Left, Measured, Meter};
pub use pending::Pending;
pub use state::{At, Learned, Mean, Reason, State, Step, Update};
