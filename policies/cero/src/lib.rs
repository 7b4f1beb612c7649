//! CERO (arXiv 2606.05606), after its abstract: one budget for all epochs, spent where a prompt's outcome is
//! uncertain and few rollouts were spent so far. Not faithful: the paper's body could not be read and no code was
//! found, so the utility, the size of a step and the bounds are ours.
//!
//! From the abstract: a Beta posterior over each prompt's pass rate; its expected Bernoulli variance
//! v = E[p (1 - p)] as the worth of rollouts; a utility of all of a prompt's rollouts X that is concave and
//! saturates; a price on each prompt and one on the budget, from the Fenchel dual, both moved by projected
//! gradient steps. Ours: the utility v s X / (s + X). A prompt whose own price is above the budget's gets the
//! most rollouts, one below it the fewest. Its price falls while it gets more than the share that this price
//! pays for; the budget's rises while steps spend more than the run's own number a prompt.

use allot_policy::prelude::*;
use allot_policy::types::Past;

/// Prices rollouts by what they are worth over all epochs.
pub struct Cero;

/// What a run may set.
#[derive(Settings)]
pub struct CeroSettings {
    /// Fewest rollouts of a prompt.
    #[setting(default = 2)]
    least: u32,
    /// Most rollouts of a prompt; 0 for four times the run's number.
    #[setting(default = 0)]
    most: u32,
    /// Correct and incorrect rollouts that the posterior starts with, each.
    #[setting(default = 1.0)]
    prior: f64,
    /// Visits of each prompt to plan for; 0 for those that the run's steps allow.
    #[setting(default = 0)]
    visits: u32,
    /// Rollouts at which a prompt's utility is half of what it can become; 0 for twice those planned for it.
    #[setting(default = 0)]
    saturation: u32,
    /// How far prices move, in first prices for each of the run's number of rollouts too many.
    #[setting(default = 0.1)]
    rate: f64,
}

/// What it remembers.
#[derive(Debug, Default, PartialEq, State)]
pub struct CeroState {
    /// The price of the budget.
    budget: f64,
    /// Prices of prompts, by prompt and the visits they were made after.
    prompts: Vec<((u32, u32), f64)>,
}

impl Policy for Cero {
    const NAME: &'static str = "cero";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str =
        "one budget over all epochs, by price; not faithful: after the abstract alone";
    type Settings = CeroSettings;
    type State = CeroState;

    fn begin(settings: &CeroSettings, run: &Run) -> Result<CeroState, Error> {
        if settings.least == 0 || settings.least > run.rollouts || settings.most(run) < run.rollouts {
            let name = if settings.most(run) < run.rollouts { "most" } else { "least" };
            return Err(bad_setting(name, "the run's number of rollouts must be between least and most"));
        }
        if settings.most(run) < 2 {
            let reason = "must be at least 2: an advantage is measured against the prompt's other rollouts";
            return Err(bad_setting("most", reason));
        }
        if !(settings.prior > 0.0 && settings.prior <= 1e6) {
            return Err(bad_setting("prior", "must be above 0 and at most a million"));
        }
        if !(settings.rate > 0.0 && settings.rate <= 1.0) {
            return Err(bad_setting("rate", "must be above 0 and at most 1"));
        }
        let market = Market::of(settings, run);
        Ok(CeroState { budget: market.first(settings.worth(None)), prompts: Vec::new() })
    }

    fn decide(settings: &CeroSettings, run: &Run, state: &mut CeroState, view: &View) -> Result<Plan, Error> {
        let market = Market::of(settings, run);
        let step = settings.rate * market.first(settings.worth(None)) / market.share;
        if view.round > 0 || !view.can_sample() {
            if !view.groups.is_empty() {
                let spent: usize = view.groups.iter().map(Group::len).sum();
                let over = spent as f64 / view.groups.len() as f64 - market.share;
                state.budget = (state.budget + step * over).max(0.0);
            }
            let picks = view.groups.iter().map(|g| Pick::all(g.prompt));
            return Ok(Plan::train(picks).metric("price", state.budget));
        }
        let request = |p: &Prompt| {
            let Some(past) = &p.past else { return Request::new(p.id, run.rollouts) };
            let price = state.price(p.id, past, settings.worth(Some(past)), &market, step);
            let count = if price > state.budget { settings.most(run) } else { settings.least };
            Request::new(p.id, count)
        };
        Ok(Plan::sample(view.offer(run.groups).map(request).collect::<Vec<_>>()))
    }
}

impl CeroSettings {
    fn most(&self, run: &Run) -> u32 {
        or_else(self.most, run.rollouts.saturating_mul(4))
    }

    /// The expected variance of an outcome, under the posterior of all visits.
    pub fn worth(&self, past: Option<&Past>) -> f64 {
        let (correct, rollouts) = past.map_or((0, 0), |p| (p.total_correct, p.total_rollouts));
        let right = self.prior + f64::from(correct);
        let wrong = self.prior + f64::from(rollouts.saturating_sub(correct));
        right * wrong / ((right + wrong) * (right + wrong + 1.0))
    }
}

impl CeroState {
    /// A prompt's price, moved by a gradient step for the visit that ended since it was made.
    fn price(&mut self, prompt: PromptId, past: &Past, worth: f64, market: &Market, step: f64) -> f64 {
        match self.prompts.binary_search_by_key(&prompt, |((p, _), _)| *p) {
            Err(at) => {
                let price = market.first(worth);
                self.prompts.insert(at, ((prompt, past.visits), price));
                price
            }
            Ok(at) => {
                let ((_, visits), price) = &mut self.prompts[at];
                if *visits != past.visits {
                    let paid = market.bought(worth, *price) / market.visits;
                    let moved = *price - step * (f64::from(past.rollouts) - paid);
                    (*visits, *price) = (past.visits, moved.clamp(worth * 1e-6, worth));
                }
                *price
            }
        }
    }
}

/// How rollouts turn into utility.
pub struct Market {
    /// Rollouts of a prompt in each visit, if all get the same.
    share: f64,
    /// Visits planned for each prompt.
    visits: f64,
    /// Rollouts at which a prompt's utility is half of what it can become.
    saturation: f64,
}

impl Market {
    /// The market of a run.
    pub fn of(settings: &CeroSettings, run: &Run) -> Self {
        let planned = u64::from(run.steps) * u64::from(run.groups) / u64::from(run.prompts.max(1));
        let visits = f64::from(or_else(settings.visits, planned.clamp(1, 1_000_000) as u32));
        let share = f64::from(run.rollouts.max(1));
        let given = f64::from(settings.saturation);
        Self { share, visits, saturation: if given > 0.0 { given } else { 2.0 * share * visits } }
    }

    /// What the last rollout of an even share of all epochs is worth.
    pub fn first(&self, worth: f64) -> f64 {
        worth * (self.saturation / (self.saturation + self.share * self.visits)).powi(2)
    }

    /// Rollouts, over all epochs, up to which one is worth this price.
    pub fn bought(&self, worth: f64, price: f64) -> f64 {
        self.saturation * ((worth / price).sqrt() - 1.0).max(0.0)
    }
}

allot_policy::export!(Cero);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use allot_policy::{begin, decide, made, run_with};

    fn run() -> Run {
        Run { prompts: 40, steps: 100, ..run_with::<Cero>(&[]) }
    }

    fn counts(plan: &Plan) -> Vec<u32> {
        let Action::Sample(requests) = &plan.action else { panic!("trains: {plan:?}") };
        requests.iter().map(|r| r.count).collect()
    }

    #[test]
    fn the_first_visit_is_uniform_and_then_uncertain_prompts_get_more() {
        let (run, mut view) = (run(), made::view(0..4));
        let first = begin::<Cero>(&run).unwrap();
        assert_eq!(counts(&decide::<Cero>(&run, &first, &view).unwrap()), [8; 4]);
        for (prompt, correct) in view.pool.iter_mut().zip([0, 2, 4, 8]) {
            prompt.past = Some(made::past(correct, 8));
        }
        assert_eq!(counts(&decide::<Cero>(&run, &first, &view).unwrap()), [2, 32, 32, 2]);
    }

    #[test]
    fn prices_know_what_they_buy() {
        let market = Market::of(&CeroSettings::read(&run()).unwrap(), &run());
        assert_eq!((market.share, market.visits, market.saturation), (8.0, 10.0, 160.0));
        let price = market.first(0.25);
        assert!((market.bought(0.25, price) - 80.0).abs() < 1e-9, "an even share of all epochs");
    }

    #[test]
    fn a_prompt_that_got_much_gets_cheaper_and_the_budget_dearer() {
        let run = run();
        let mut view = made::view(0..1);
        let mut state = begin::<Cero>(&run).unwrap();
        let mut given = Vec::new();
        for visits in 1..60 {
            let n = given.last().copied().unwrap_or(8);
            let (total_rollouts, total_correct) = (8 * visits, 4 * visits);
            view.pool[0].past = Some(Past { visits, total_rollouts, total_correct, ..made::past(n / 2, n) });
            let plan = decide::<Cero>(&run, &state, &view).unwrap();
            given.push(counts(&plan)[0]);
            let group = made::group(0, &vec![1; given[given.len() - 1] as usize]);
            let after = View { round: 1, groups: vec![group], ..view.clone() };
            state = decide::<Cero>(&run, &plan.state, &after).unwrap().state;
        }
        assert_eq!(given[0], 32);
        let mean = f64::from(given.iter().sum::<u32>()) / given.len() as f64;
        assert!((mean - 8.0).abs() < 4.0, "it is paced to the run's number: {mean}, {given:?}");
    }

    #[test]
    fn a_prompt_that_was_not_served_keeps_its_price() {
        let run = run();
        let mut view = made::view(0..1);
        view.pool[0].past = Some(made::past(4, 8));
        let plan = decide::<Cero>(&run, &begin::<Cero>(&run).unwrap(), &view).unwrap();
        assert_eq!(decide::<Cero>(&run, &plan.state, &view).unwrap(), plan);
    }
}
