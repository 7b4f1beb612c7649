//! The run loop: call the policy, check its plan, sample within the budget, grade, call again, train.
//!
//! [`Loop`] is a state machine without I/O. [`next`](Loop::next) returns the next action, and a further
//! call takes its result. Its driver has the engine: the program, a simulation, the wheel, or a test. The
//! loop uses no files, clocks or models. It makes the record's lines for calls, rollouts, steps and the end.
//!
//! ```text
//! next() -> Decide(view) | Sample(grant) | Update(batch) | Evaluate | Step(end) | Over(end) | Wait
//!           decided(plan)  sampled(…)      updated(…)      evaluated(…)
//! ```
//!
//! In a run with a lag, `Update` is split in two: `Begin(batch)`, which has no result, and some steps later
//! `Finish(batch)`, whose result is passed to `finished(…)`.
//!
//! The [`State`] can be saved between any two of these calls. A loop restored from it repeats the pending
//! action, including a grant whose rollouts were not all sampled.
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
//! let constants = Constants { run, seed: 1, scale: Default::default(), bounds: Default::default(), every: None, retries: 0 };
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
