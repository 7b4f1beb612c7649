//! The trait that a policy implements, and the three calls of the contract made from it.

use crate::types::{
    Column, Description, Error, Needs, Plan, Run, Sampling, SamplingRange, Update, Value, View,
};
use crate::{Settings, State};

/// One decision, and what it needs to be told apart from others.
///
/// A policy is a pure function: `decide` may rest on its arguments alone. Chance comes from
/// [`view.seed`](View::seed) (see [`Chance`](crate::chance::Chance)), memory from `state`.
pub trait Policy {
    /// Short and lower-case, as in a config: `pilot-commit`.
    const NAME: &'static str;
    /// The policy's own version; usually `env!("CARGO_PKG_VERSION")`.
    const VERSION: &'static str;
    /// One line for people.
    const SUMMARY: &'static str;
    /// Signals to show beside each rollout, by name.
    const SIGNALS: &'static [&'static str] = &[];
    /// Columns of the data set to ask [`facts`](crate::facts) for, by name.
    const COLUMNS: &'static [&'static str] = &[];
    /// What else the policy makes use of: `Needs::REPLAY`, `Needs::REPLAY.union(Needs::STOPPING)`.
    const NEEDS: Needs = Needs::empty();

    /// What a run may set.
    type Settings: Settings;
    /// What the policy remembers between calls; `()` for nothing.
    type State: State + Default;

    /// Checks settings against each other and the run, and gives the first state. A setting's own
    /// type is checked before this is called.
    fn begin(_settings: &Self::Settings, _run: &Run) -> Result<Self::State, Error> {
        Ok(Self::State::default())
    }

    /// Says what to do next. What is left in `state` comes back at the next call; `Plan::state` is
    /// filled from it and need not be set.
    fn decide(
        settings: &Self::Settings,
        run: &Run,
        state: &mut Self::State,
        view: &View,
    ) -> Result<Plan, Error>;
}

/// The contract's `describe` of a policy.
pub fn describe<P: Policy>() -> Description {
    Description {
        name: P::NAME.to_owned(),
        version: P::VERSION.to_owned(),
        summary: P::SUMMARY.to_owned(),
        settings: P::Settings::describe(),
        signals: P::SIGNALS.iter().map(|s| (*s).to_owned()).collect(),
        columns: P::COLUMNS.iter().map(|c| (*c).to_owned()).collect(),
        needs: P::NEEDS,
    }
}

/// The contract's `begin` of a policy.
pub fn begin<P: Policy>(run: &Run) -> Result<Vec<u8>, Error> {
    Ok(P::begin(&P::Settings::read(run)?, run)?.save())
}

/// The contract's `decide` of a policy.
pub fn decide<P: Policy>(run: &Run, state: &[u8], view: &View) -> Result<Plan, Error> {
    let settings = P::Settings::read(run)?;
    let mut state = P::State::load(state).map_err(Error::State)?;
    let mut plan = P::decide(&settings, run, &mut state, view)?;
    plan.state = state.save();
    Ok(plan)
}

/// A run for tests: the policy's default settings with some of them replaced by name, and its columns with one number
/// for each prompt.
///
/// # Panics
/// If the policy has no setting of that name.
pub fn run_with<P: Policy>(changes: &[(&str, Value)]) -> Run {
    let mut settings: Vec<(String, Value)> =
        P::Settings::describe().into_iter().map(|s| (s.name, s.default)).collect();
    for (name, value) in changes {
        let place = settings.iter_mut().find(|(n, _)| n == name);
        place.unwrap_or_else(|| panic!("`{}` has no setting `{name}`", P::NAME)).1 = value.clone();
    }
    let column = |name: &&str| Column { name: (*name).to_owned(), width: 1, categories: Vec::new() };
    let sampling = |temperature, max_tokens, max_turns| Sampling { temperature, max_tokens, max_turns };
    let plays = P::NEEDS.intersects(Needs::TURNS.union(Needs::STARTING));
    let turns = if plays { 8 } else { 1 };
    Run {
        settings,
        prompts: 1000,
        steps: 100,
        groups: 4,
        rollouts: 8,
        pool: 64,
        max_age: 8,
        lag: 0,
        columns: P::COLUMNS.iter().map(column).collect(),
        parts: Vec::new(),
        sampling: SamplingRange {
            default: sampling(1.0, 1024, turns),
            least: sampling(0.0, 1, 1),
            most: sampling(2.0, 1024, turns),
        },
        update: Update { mini_batch: u32::MAX, passes: 4 },
    }
}
