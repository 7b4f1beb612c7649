//! MoPPS (arXiv 2507.04632): keeps a Beta posterior over each prompt's pass rate, draws a rate from it for many
//! prompts (Thompson sampling), and samples those whose draw is closest to one half. Prompts are chosen before a
//! rollout is spent on them.
//!
//! Upstream: thu-rllab/MoPPS a883f51, `recipe/ours/mopps.py:29-83` (`PosteriorSampler`; `topk`, the published
//! strategy). Departures:
//!
//! - Candidates are drawn from the whole data set, anew in each step; upstream's are its loader's batches, sixteen
//!   times as large, whose order runs through the data set.
//! - The posterior counts the rollouts that were judged, upstream the config's number. With one rollout a prompt
//!   upstream sets both counts to 8, by the precedence of its `else`; here the rollout counts.
//! - Of equal distances the prompt drawn first is taken. Upstream's `argsort` is not stable.

use allot_policy::prelude::*;

/// Samples the prompts whose pass rate, drawn from what is known, is closest to one half.
pub struct Mopps;

/// What a run may set. The defaults are those of the scripts.
#[derive(Settings)]
pub struct MoppsSettings {
    /// Candidates for each prompt of a step; 0 for the whole data set.
    #[setting(default = 16)]
    candidates: u32,
    /// The pass rate to come close to.
    #[setting(default = 0.5)]
    target: f64,
    /// How much of what is known each visit leaves.
    #[setting(default = 1.0)]
    decay: f64,
    /// Correct and incorrect rollouts that a posterior starts with, each.
    #[setting(default = 1.0)]
    prior: f64,
}

/// What it remembers.
#[derive(Debug, Default, PartialEq, State)]
pub struct MoppsState {
    /// Correct and incorrect rollouts of prompts, as far as they still count, without the prior.
    known: Vec<(u32, (f64, f64))>,
}

impl Policy for Mopps {
    const NAME: &'static str = "mopps";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str =
        "the prompts whose pass rate, drawn from a posterior, is closest to one half";
    const NEEDS: Needs = Needs::ANY_PROMPT;
    type Settings = MoppsSettings;
    type State = MoppsState;

    fn begin(settings: &MoppsSettings, run: &Run) -> Result<MoppsState, Error> {
        for (name, value) in [("target", settings.target), ("decay", settings.decay)] {
            if !(0.0..=1.0).contains(&value) {
                return Err(bad_setting(name, "must be between 0 and 1"));
            }
        }
        if !(settings.prior > 0.0 && settings.prior <= 1e6) {
            return Err(bad_setting("prior", "must be above 0 and at most a million"));
        }
        needs_two(None, run)?;
        Ok(MoppsState::default())
    }

    fn decide(
        settings: &MoppsSettings,
        run: &Run,
        state: &mut MoppsState,
        view: &View,
    ) -> Result<Plan, Error> {
        if view.round > 0 || !view.budget.open() {
            view.groups.iter().for_each(|g| settings.learn(state, g));
            return Ok(Plan::train(view.groups.iter().map(|g| Pick::all(g.prompt))));
        }
        let mut chance = Chance::new(view.seed);
        let all = run.prompts as usize;
        let count = (settings.candidates as usize).saturating_mul(run.groups as usize);
        let candidates: Vec<u32> =
            chance.draw(all, if count == 0 { all } else { count }).into_iter().map(|i| i as u32).collect();
        let posteriors = settings.posteriors(state, &candidates);
        let draws: Vec<f64> = posteriors.iter().map(|(a, b)| beta(*a, *b, &mut chance)).collect();
        let chosen = closest(&draws, settings.target, run.groups as usize);
        let mean = chosen.iter().map(|i| draws[*i]).sum::<f64>() / chosen.len().max(1) as f64;
        let requests = chosen.iter().map(|i| Request::new(candidates[*i], run.rollouts));
        Ok(Plan::sample(requests).metric("drawn", mean))
    }
}

impl MoppsSettings {
    /// The posterior of each prompt. Where nothing is forgotten, the host has the counts.
    pub fn posteriors(&self, state: &MoppsState, prompts: &[PromptId]) -> Vec<(f64, f64)> {
        if self.decay >= 1.0 {
            let rollouts = facts::counts(Count::TotalRollouts, prompts);
            let correct = facts::counts(Count::TotalCorrect, prompts);
            let posterior = |(n, k): (u32, u32)| (self.prior + f64::from(k), self.prior + f64::from(n - k));
            return rollouts.into_iter().zip(correct).map(posterior).collect();
        }
        let known = |prompt: &PromptId| {
            let at = state.known.binary_search_by_key(prompt, |(p, _)| *p);
            at.map_or((0.0, 0.0), |i| state.known[i].1)
        };
        prompts.iter().map(known).map(|(right, wrong)| (self.prior + right, self.prior + wrong)).collect()
    }

    /// Takes a visit into what is known of its prompt.
    pub fn learn(&self, state: &mut MoppsState, group: &Group) {
        if self.decay >= 1.0 {
            return;
        }
        let at = state.known.binary_search_by_key(&group.prompt, |(p, _)| *p).unwrap_or_else(|at| {
            state.known.insert(at, (group.prompt, (0.0, 0.0)));
            at
        });
        let (right, wrong) = &mut state.known[at].1;
        *right = *right * self.decay + group.solved() as f64;
        *wrong = *wrong * self.decay + (group.len() - group.solved()) as f64;
    }
}

/// Positions of the `k` numbers closest to a target, closest first.
pub fn closest(numbers: &[f64], target: f64, k: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..numbers.len()).collect();
    order.sort_by(|i, j| (numbers[*i] - target).powi(2).total_cmp(&(numbers[*j] - target).powi(2)));
    order.truncate(k);
    order
}

/// A draw from Beta(a, b): the share of the first of two Gamma draws.
fn beta(a: f64, b: f64, chance: &mut Chance) -> f64 {
    let (x, y) = (gamma(a, chance), gamma(b, chance));
    if x + y > 0.0 { x / (x + y) } else { a / (a + b) }
}

/// A draw from Gamma(shape, 1), by Marsaglia and Tsang (2000).
fn gamma(shape: f64, chance: &mut Chance) -> f64 {
    if shape < 1.0 {
        return gamma(shape + 1.0, chance) * libm::pow(1.0 - chance.unit(), 1.0 / shape);
    }
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = normal(chance);
        let v = (1.0 + c * x).powi(3);
        if v > 0.0 && libm::log(1.0 - chance.unit()) < 0.5 * x * x + d - d * v + d * libm::log(v) {
            return d * v;
        }
    }
}

/// A draw from the normal distribution, by Marsaglia's polar method.
fn normal(chance: &mut Chance) -> f64 {
    loop {
        let (x, y) = (2.0 * chance.unit() - 1.0, 2.0 * chance.unit() - 1.0);
        let square = x * x + y * y;
        if square > 0.0 && square < 1.0 {
            return x * (-2.0 * libm::log(square) / square).sqrt();
        }
    }
}

allot_policy::export!(Mopps);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use allot_policy::types::Value;
    use allot_policy::{begin, decide, made, run_with};

    fn asked(plan: &Plan) -> Vec<PromptId> {
        let Action::Sample(requests) = &plan.action else { panic!("trains: {plan:?}") };
        assert!(requests.iter().all(|r| r.count == 8));
        requests.iter().map(|r| r.prompt).collect()
    }

    #[test]
    fn draws_have_the_mean_and_spread_of_their_posterior() {
        let mut chance = Chance::new(3);
        for (a, b) in [(1.0, 1.0), (0.3, 0.7), (9.0, 1.0), (40.0, 60.0)] {
            let draws: Vec<f64> = (0..20_000).map(|_| beta(a, b, &mut chance)).collect();
            let mean = draws.iter().sum::<f64>() / 20_000.0;
            let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 20_000.0;
            let expected = a * b / ((a + b).powi(2) * (a + b + 1.0));
            assert!((mean - a / (a + b)).abs() < 0.01, "{a} {b}: {mean}");
            assert!((variance / expected - 1.0).abs() < 0.05, "{a} {b}: {variance}, not {expected}");
        }
    }

    #[test]
    fn prompts_at_one_half_are_chosen_wherever_they_are() {
        let run = Run { prompts: 100, ..run_with::<Mopps>(&[("candidates", Value::Integer(0))]) };
        let mut facts = made::Facts::of(100);
        for prompt in 0..100 {
            let correct = if prompt % 25 == 7 { 400 } else { 0 };
            facts = facts.visited(prompt, made::past(correct, 800));
        }
        facts.tell();
        let plan = decide::<Mopps>(&run, &begin::<Mopps>(&run).unwrap(), &made::view(0..9)).unwrap();
        let mut chosen = asked(&plan);
        chosen.sort_unstable();
        assert_eq!(chosen, [7, 32, 57, 82]);
    }

    #[test]
    fn a_step_looks_at_its_candidates_alone() {
        let run = Run { prompts: 9, groups: 4, ..run_with::<Mopps>(&[("candidates", Value::Integer(1))]) };
        made::Facts::of(9).tell();
        let view = made::view([]);
        let chosen = asked(&decide::<Mopps>(&run, &begin::<Mopps>(&run).unwrap(), &view).unwrap());
        let mut distinct = chosen.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!((chosen.len(), distinct.len()), (4, 4), "even with nothing on offer");
    }

    #[test]
    fn what_is_known_fades() {
        let run = run_with::<Mopps>(&[("decay", Value::Number(0.5))]);
        let mut view = made::view([]);
        (view.round, view.groups) = (1, vec![made::group(5, &[1, 1, 1, 0])]);
        let plan = decide::<Mopps>(&run, &begin::<Mopps>(&run).unwrap(), &view).unwrap();
        let plan = decide::<Mopps>(&run, &plan.state, &view).unwrap();
        let settings = MoppsSettings::read(&run).unwrap();
        let state = MoppsState::load(&plan.state).unwrap();
        assert_eq!(settings.posteriors(&state, &[5, 6]), [(5.5, 2.5), (1.0, 1.0)]);
    }
}
