//! Tries each prompt with a few rollouts, and spends the rest where the answers vary.
//!
//! Change `decide` to your own rule. A policy is a pure function: all it knows is in its arguments.

use allot_policy::prelude::*;

/// The policy.
pub struct MyPolicy;

/// What a run may set.
#[derive(Settings)]
pub struct MySettings {
    /// Rollouts to try each prompt with.
    #[setting(default = 4)]
    pilot: u32,
    /// Rollouts to add where the first ones vary.
    #[setting(default = 12)]
    commit: u32,
}

impl Policy for MyPolicy {
    const NAME: &'static str = "{{name}}";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str = "tries each prompt, and commits where answers vary";
    type Settings = MySettings;
    type State = ();

    fn begin(settings: &MySettings, _run: &Run) -> Result<(), Error> {
        if settings.pilot < 2 {
            return Err(bad_setting("pilot", "it takes at least 2 rollouts to see whether answers vary"));
        }
        Ok(())
    }

    fn decide(settings: &MySettings, run: &Run, (): &mut (), view: &View) -> Result<Plan, Error> {
        let varied: Vec<&Group> = view.groups.iter().filter(|g| !g.flat()).collect();

        if view.budget.open() && view.round == 0 {
            let prompts = view.pool.iter().take(2 * run.groups as usize);
            let pilots = prompts.map(|p| Request::new(p.id, settings.pilot)).collect::<Vec<_>>();
            if !pilots.is_empty() {
                return Ok(Plan::sample(pilots));
            }
        }
        let tried = varied.iter().take(run.groups as usize);
        let commits: Vec<Request> = tried.map(|g| Request::new(g.prompt, settings.commit.max(1))).collect();
        if view.budget.open() && view.round == 1 && !commits.is_empty() {
            return Ok(Plan::sample(commits));
        }
        Ok(Plan::train(varied.iter().map(|g| Pick::all(g.prompt))))
    }
}

allot_policy::export!(MyPolicy);

#[cfg(test)]
mod tests {
    use super::*;
    use allot_policy::{decide, made, run_with};

    #[test]
    fn commits_only_where_the_pilots_vary() {
        let groups = vec![made::group(1, &[1, 0, 1, 1]), made::group(2, &[0; 4])];
        let view = View { round: 1, groups, ..made::view(0..0) };
        let plan = decide::<MyPolicy>(&run_with::<MyPolicy>(&[]), &[], &view).expect("a plan");
        assert_eq!(plan.action, Action::Sample(vec![Request::new(1, 12)]));
    }
}
