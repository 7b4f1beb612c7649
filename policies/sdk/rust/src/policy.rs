//! The trait that a policy implements, and the three calls of the contract made from it.

#[cfg(not(target_arch = "wasm32"))]
use crate::types::Action;
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
    // Of a component the host checks it.
    #[cfg(not(target_arch = "wasm32"))]
    lacking(&plan, P::NEEDS)?;
    plan.state = state.save();
    Ok(plan)
}

/// Refuses a plan that makes use of what its policy did not name, so that a test finds it.
#[cfg(not(target_arch = "wasm32"))]
fn lacking(plan: &Plan, needs: Needs) -> Result<(), Error> {
    let uses = match &plan.action {
        Action::Train(batch) => vec![("an `update`", batch.update.is_some(), Needs::UPDATING, "UPDATING")],
        Action::Sample(requests) => vec![
            (
                "a request with `until`",
                requests.iter().any(|r| r.until.is_some()),
                Needs::STOPPING,
                "STOPPING",
            ),
            (
                "a request with `sampling`",
                requests.iter().any(|r| r.sampling.is_some()),
                Needs::SAMPLING,
                "SAMPLING",
            ),
        ],
    };
    match uses.into_iter().find(|(_, used, need, _)| *used && !needs.contains(*need)) {
        Some((what, _, _, need)) => Err(Error::Other(format!(
            "the plan has {what}, for which the policy has to say `const NEEDS: Needs = Needs::{need}`"
        ))),
        None => Ok(()),
    }
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
    let sampling = |temperature, max_tokens| Sampling { temperature, max_tokens };
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
            default: sampling(1.0, 1024),
            least: sampling(0.0, 1),
            most: sampling(2.0, 1024),
        },
        update: Update { mini_batch: u32::MAX, passes: 4 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Request;

    struct Needless<const NEED: u8>;

    impl<const NEED: u8> Policy for Needless<NEED> {
        const NAME: &'static str = "needless";
        const VERSION: &'static str = "0.1.0";
        const SUMMARY: &'static str = "uses what it may not need";
        const NEEDS: Needs = Needs::from_bits_truncate(NEED);
        type Settings = ();
        type State = ();

        fn decide((): &(), run: &Run, (): &mut (), view: &View) -> Result<Plan, Error> {
            let request = || Request::new(1, 8);
            Ok(match view.step {
                0 => Plan::sample([request().until(1, 0, 4)]),
                1 => Plan::sample([request().sampling(run.sampling.default)]),
                _ => Plan::train([]).update(run.update),
            })
        }
    }

    #[test]
    fn a_need_that_is_not_named_is_told_with_how_to_name_it() {
        for (step, need) in ["STOPPING", "SAMPLING", "UPDATING"].into_iter().enumerate() {
            let view = View { step: step as u32, ..crate::made::view(0..9) };
            let run = run_with::<Needless<0>>(&[]);
            let Err(Error::Other(words)) = decide::<Needless<0>>(&run, &[], &view) else {
                panic!("step {step}")
            };
            assert!(words.ends_with(&format!("has to say `const NEEDS: Needs = Needs::{need}`")), "{words}");
            assert!(decide::<Needless<{ u8::MAX }>>(&run, &[], &view).is_ok());
        }
    }
}
