//! One rollout of each prompt, from the sources of the data whose outcomes vary most, each measured against the mean of its
//! source. Our own, not a published method: `prospect` for data that say where each prompt comes from.
//!
//! **The source.** Most data sets are mixed of several, or have levels: the column `source` says which. A source is seen
//! again and again where its prompts are seen once, so its pass rate is known when a prompt's can't be.
//!
//! **How many of each.** A prompt of a source with pass rate p is drawn in proportion to sqrt(p (1 - p)), the deviation of its
//! outcome: Neyman's allocation between strata (1934), as VIP (arXiv 2602.01601) has it between prompts. What is never
//! solved, or always, keeps the share `explore` of the best: it may change, and a form that has to be learned first looks
//! like it.
//!
//! **What is learned.** As in `prospect`: of a source whose rarer outcome is rare enough that outcome alone, of others both,
//! measured against the source's mean.

use allot_policy::prelude::*;

/// One rollout of each prompt, from the sources whose outcomes vary most.
pub struct Strata;

/// What a run may set.
#[derive(Settings)]
pub struct StrataSettings {
    /// Prompts in a step; 0 for as many as a uniform policy has rollouts.
    #[setting(default = 0)]
    prompts: u32,
    /// Rollouts that make a source's mean: those before them fade.
    #[setting(default = 200.0)]
    window: f64,
    /// The least chance of a prompt to be drawn, as a share of that of the best source's prompts; 1 draws all alike.
    #[setting(default = 0.1)]
    explore: f64,
    /// Measure each answer against the mean of its source, and not of all rollouts of late.
    #[setting(default = true)]
    apart: bool,
    /// Learn from the commoner outcome, too, however rare the other is.
    #[setting(default = false)]
    both: bool,
}

/// What it remembers.
#[derive(Debug, Default, PartialEq, State)]
pub struct StrataState {
    /// Rewards and rollouts of late, by source: in the order of the column's words, or of its numbers.
    sources: Vec<(f64, f64)>,
    /// The same of all of them together.
    all: (f64, f64),
    /// A reward was neither 0 nor 1: there are no two outcomes to tell apart.
    graded: bool,
}

/// Half a reward in one rollout: soon outweighed.
const UNKNOWN: (f64, f64) = (0.5, 1.0);
/// The column.
const SOURCE: &str = "source";
/// Different numbers that a column may have. Words have a limit of their own.
const MOST: usize = 4096;

impl Policy for Strata {
    const NAME: &'static str = "strata";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str = "one rollout of each prompt, from the sources whose outcomes vary most; learns from the rarer outcome";
    const COLUMNS: &'static [&'static str] = &[SOURCE];
    const NEEDS: Needs = Needs::ANY_PROMPT;
    type Settings = StrataSettings;
    type State = StrataState;

    fn begin(settings: &StrataSettings, run: &Run) -> Result<StrataState, Error> {
        if !(settings.window >= 1.0 && settings.window <= 1e9) {
            return Err(bad_setting("window", "must be at least 1 and at most a billion"));
        }
        if !(settings.explore > 0.0 && settings.explore <= 1.0) {
            return Err(bad_setting("explore", "must be above 0 and at most 1"));
        }
        if run.columns.iter().any(|column| column.width != 1) {
            return Err(Error::Other("the column `source` must have one word or number a prompt".to_owned()));
        }
        Ok(StrataState { all: UNKNOWN, ..StrataState::default() })
    }

    fn decide(
        settings: &StrataSettings,
        run: &Run,
        state: &mut StrataState,
        view: &View,
    ) -> Result<Plan, Error> {
        let column = facts::column(SOURCE, ..);
        let places = Places::of(run, &column)?;
        state.sources.resize(places.count(), UNKNOWN);
        if view.round == 0 && view.budget.open() {
            let count = settings.prompts(run).min(run.prompts) as usize;
            let members = places.members(&column);
            let sizes: Vec<usize> = members.iter().map(Vec::len).collect();
            let mut chance = Chance::new(view.seed);
            let shares = settings.shares(state, &sizes, count, &mut chance);
            let visits = facts::counts(Count::Visits, ..);
            let chosen = members.iter().zip(shares).flat_map(|(m, n)| freshest(m, &visits, n, &mut chance));
            return Ok(Plan::sample(chosen.map(|p| Request::new(p, 1)).collect::<Vec<_>>()));
        }
        state.graded |= view.groups.iter().flat_map(|g| &g.rewards).any(|r| *r != 0.0 && *r != 1.0);
        let rare = (!settings.both && !state.graded).then(|| threshold(&facts::costs()));
        let from: Vec<usize> = view.groups.iter().map(|g| places.at(column[g.prompt as usize])).collect();
        let expected = |place| if settings.apart { state.value(place) } else { mean(state.all) };
        let pick = |(group, place): (&Group, &usize)| pick(group, expected(*place), rare);
        let picks: Vec<Pick> = view.groups.iter().zip(&from).filter_map(pick).collect();
        let learned = picks.len() as f64;
        for (group, place) in view.groups.iter().zip(from) {
            group.rewards.iter().for_each(|reward| settings.remember(state, place, f64::from(*reward)));
        }
        Ok(Plan::train(picks).metric("learned", learned))
    }
}

/// Where the sources of a column are in the state.
enum Places {
    /// Words are told by their positions.
    Words(usize),
    /// Numbers by their order: these are there.
    Numbers(Vec<f32>),
}

impl Places {
    fn of(run: &Run, column: &[f32]) -> Result<Self, Error> {
        let words = run.columns.first().map_or(0, |column| column.categories.len());
        if words > 0 {
            return Ok(Self::Words(words));
        }
        let mut numbers = column.to_vec();
        numbers.sort_unstable_by(f32::total_cmp);
        numbers.dedup();
        if numbers.len() > MOST {
            let n = numbers.len();
            return Err(Error::Other(format!(
                "the column `source` has {n} different numbers, {MOST} at most"
            )));
        }
        Ok(Self::Numbers(numbers))
    }

    fn count(&self) -> usize {
        match self {
            Self::Words(n) => *n,
            Self::Numbers(all) => all.len(),
        }
    }

    fn at(&self, number: f32) -> usize {
        match self {
            Self::Words(_) => number as usize,
            Self::Numbers(all) => all.partition_point(|other| *other < number),
        }
    }

    /// The prompts of each source.
    fn members(&self, column: &[f32]) -> Vec<Vec<PromptId>> {
        let mut members = vec![Vec::new(); self.count()];
        (0..).zip(column).for_each(|(prompt, number)| members[self.at(*number)].push(prompt));
        members
    }
}

impl StrataSettings {
    fn prompts(&self, run: &Run) -> u32 {
        or_else(self.prompts, run.groups.saturating_mul(run.rollouts))
    }

    /// How many prompts of each source a step takes: drawn one by one, by the deviation of its outcomes.
    fn shares(&self, state: &StrataState, sizes: &[usize], count: usize, chance: &mut Chance) -> Vec<usize> {
        let deviation = |place| state.spread(place).sqrt();
        let best = (0..sizes.len()).map(deviation).fold(f64::MIN_POSITIVE, f64::max);
        let weight = |place: usize| (deviation(place) / best).max(self.explore);
        let mut shares = vec![0; sizes.len()];
        for _ in 0..count {
            // A source that has no prompts left in this step has no weight.
            let left = |place: usize| (sizes[place] - shares[place]) as f64 * weight(place);
            let all: f64 = (0..sizes.len()).map(left).sum();
            let mut at = chance.unit() * all;
            let drawn = (0..sizes.len()).filter(|place| sizes[*place] > shares[*place]).find(|place| {
                at -= left(*place);
                at < 0.0
            });
            // Rounding may leave a last bit.
            let last = || (0..sizes.len()).rfind(|place| sizes[*place] > shares[*place]);
            if let Some(place) = drawn.or_else(last) {
                shares[place] += 1;
            }
        }
        shares
    }

    /// Takes a reward into the mean of its source.
    fn remember(&self, state: &mut StrataState, place: usize, reward: f64) {
        let keep = 1.0 - 1.0 / self.window;
        for (rewards, rollouts) in [&mut state.sources[place], &mut state.all] {
            (*rewards, *rollouts) = (*rewards * keep + reward, *rollouts * keep + 1.0);
        }
    }
}

impl StrataState {
    /// The reward expected of a source's prompts.
    fn value(&self, place: usize) -> f64 {
        mean(self.sources[place])
    }

    /// The variance of an outcome; of rewards beyond 0 and 1 there is none to know it by.
    fn spread(&self, place: usize) -> f64 {
        let value = self.value(place);
        if self.graded { 0.25 } else { (value * (1.0 - value)).max(0.0) }
    }
}

fn mean((rewards, rollouts): (f64, f64)) -> f64 {
    rewards / rollouts
}

/// `n` of these prompts, of those with the fewest visits, by chance among equals.
fn freshest(members: &[PromptId], visits: &[u32], n: usize, chance: &mut Chance) -> Vec<PromptId> {
    let mut chosen = Vec::with_capacity(n);
    let mut above = 0;
    while chosen.len() < n {
        let level = members.iter().map(|p| visits[*p as usize]).filter(|v| *v >= above).min();
        let Some(level) = level else { break };
        let alike: Vec<PromptId> = members.iter().copied().filter(|p| visits[*p as usize] == level).collect();
        let wanted = (n - chosen.len()).min(alike.len());
        chosen.extend(chance.draw(alike.len(), wanted).into_iter().map(|i| alike[i]));
        above = level.saturating_add(1);
        if level == u32::MAX {
            break;
        }
    }
    chosen
}

/// The share below which an outcome is learned from alone: where noise times cost is the same, as `prospect` derives it.
/// Nothing is computed in a simulation: there, learning takes three times what sampling does.
pub fn threshold(costs: &facts::TokenCosts) -> f64 {
    match (costs.generating, costs.learning) {
        (0.0, 0.0) => 3.0 / 7.0,
        (sampling, learning) => learning / (2.0 * learning + sampling),
    }
}

/// What is learned from a prompt's rollouts, if anything.
fn pick(group: &Group, value: f64, rare: Option<f64>) -> Option<Pick> {
    let measured = match rare {
        Some(rare) if value < rare => 0.0,
        Some(rare) if value > 1.0 - rare => 1.0,
        _ => value,
    };
    // An advantage has bounds; rewards have none.
    let advantage = |r: &f32| (f64::from(*r) - measured).clamp(-1e6, 1e6) as f32;
    let given: Vec<f32> = group.rewards.iter().map(advantage).collect();
    given.iter().any(|a| *a != 0.0).then(|| Pick::all(group.prompt).advantage(Advantage::Given(given)))
}

allot_policy::export!(Strata);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use allot_policy::types::{Column, Value};
    use allot_policy::{begin, decide, made, run_with};

    /// A run whose 100 prompts are of two sources: `a` has the first 50.
    fn run(settings: &[(&str, Value)]) -> Run {
        let column = Column { name: SOURCE.into(), width: 1, categories: vec!["a".into(), "b".into()] };
        Run { prompts: 100, columns: vec![column], ..run_with::<Strata>(settings) }
    }

    fn facts() -> made::Facts {
        let column: Vec<f32> = (0u8..100).map(|i| f32::from(i / 50)).collect();
        made::Facts::of(100).costs(1.0, 1.0, 3.0).column(SOURCE, &column)
    }

    /// Trains on one rollout of each of these prompts.
    fn learn(run: &Run, state: &[u8], outcomes: &[(PromptId, u8)]) -> (Vec<(PromptId, Vec<f32>)>, Vec<u8>) {
        facts().tell();
        let mut view = made::view(0..0);
        (view.round, view.groups) = (1, outcomes.iter().map(|(p, mark)| made::group(*p, &[*mark])).collect());
        let plan = decide::<Strata>(run, state, &view).unwrap();
        let Action::Train(batch) = plan.action else { panic!("trains") };
        let picks = batch.picks.into_iter().map(|pick| match pick.advantage {
            Advantage::Given(given) => (pick.prompt, given),
            other => panic!("{other:?}"),
        });
        (picks.collect(), plan.state)
    }

    fn asked(run: &Run, state: &[u8], seed: u32) -> Vec<PromptId> {
        let view = View { seed, ..made::view(0..0) };
        let Action::Sample(requests) = decide::<Strata>(run, state, &view).unwrap().action else {
            panic!("samples")
        };
        assert!(requests.iter().all(|r| r.count == 1));
        requests.iter().map(|r| r.prompt).collect()
    }

    fn both_known(run: &Run) -> Vec<u8> {
        let fresh = begin::<Strata>(run).unwrap();
        // Of `a` every other one is right, of `b` none.
        let outcomes: Vec<(PromptId, u8)> = (0..100).map(|p| (p, u8::from(p < 50 && p % 2 == 0))).collect();
        learn(run, &fresh, &outcomes).1
    }

    #[test]
    fn a_source_whose_outcomes_do_not_vary_is_sampled_seldom_and_not_never() {
        let run = run(&[("prompts", Value::Integer(20))]);
        let state = both_known(&run);
        let (mut of_a, mut of_b) = (0, 0);
        for seed in 0..50 {
            facts().tell();
            let prompts = asked(&run, &state, seed);
            assert_eq!(prompts.len(), 20);
            of_a += prompts.iter().filter(|p| **p < 50).count();
            of_b += prompts.iter().filter(|p| **p >= 50).count();
        }
        // `b` was solved half a time in 51: sqrt(0.0098 · 0.99) is a fifth of the deviation of `a`.
        let share = of_b as f64 / (of_a + of_b) as f64;
        assert!((share - 0.197 / 1.197).abs() < 0.04, "{share}");
        let alike = StrataSettings { explore: 1.0, ..StrataSettings::read(&run).unwrap() };
        let state = StrataState::load(&state).unwrap();
        let mut chance = Chance::new(1);
        let shares = alike.shares(&state, &[50, 50], 100, &mut chance);
        assert_eq!(shares, [50, 50], "all that there are");
    }

    #[test]
    fn prompts_with_the_fewest_visits_come_first() {
        let mut visits = vec![2; 10];
        (visits[3], visits[7]) = (0, 1);
        let mut chosen = freshest(&[1, 3, 5, 7, 9], &visits, 3, &mut Chance::new(7));
        assert_eq!(&chosen[..2], [3, 7]);
        chosen.sort_unstable();
        chosen.dedup();
        assert_eq!(chosen.len(), 3);
        assert_eq!(freshest(&[1, 3], &visits, 9, &mut Chance::new(7)).len(), 2, "no more than there are");
    }

    #[test]
    fn each_source_has_a_mean_and_a_rarer_outcome_of_its_own() {
        let run = run(&[]);
        let state = both_known(&run);
        let (picks, _) = learn(&run, &state, &[(0, 0), (1, 1), (60, 0), (61, 1)]);
        let of = |prompt| picks.iter().find(|(p, _)| *p == prompt).map(|(_, given)| f64::from(given[0]));
        assert!((of(0).unwrap() + 0.5).abs() < 0.02 && (of(1).unwrap() - 0.5).abs() < 0.02, "{picks:?}");
        assert_eq!((of(60), of(61)), (None, Some(1.0)), "a right answer of `b` is rare");
        let graded = learn(&run, &state, &[(0, 0)]).1;
        assert!(!StrataState::load(&graded).unwrap().graded);
    }

    #[test]
    fn rewards_below_nothing_are_measured_against_their_mean() {
        let run = run(&[]);
        let mut view = made::view(0..0);
        (view.round, view.groups) = (1, vec![made::rewarded(0, &[-1.0; 100])]);
        facts().tell();
        let state = decide::<Strata>(&run, &begin::<Strata>(&run).unwrap(), &view).unwrap().state;
        let plan = decide::<Strata>(&run, &state, &view).unwrap();
        let Action::Train(batch) = plan.action else { panic!("trains") };
        let Advantage::Given(given) = &batch.picks[0].advantage else { panic!("given") };
        assert!(given[0] > -0.1, "wrong answers, as expected: {}", given[0]);
    }

    #[test]
    fn numbers_are_sources_too() {
        let column = Column { name: SOURCE.into(), width: 1, categories: Vec::new() };
        let run = Run { prompts: 4, columns: vec![column], ..run_with::<Strata>(&[]) };
        let places = Places::of(&run, &[3.0, 1.0, 3.0, 2.5]).unwrap();
        assert_eq!(places.members(&[3.0, 1.0, 3.0, 2.5]), [vec![1], vec![3], vec![0, 2]]);
        let many: Vec<f32> = (0u16..5000).map(f32::from).collect();
        assert!(Places::of(&run, &many).is_err(), "an embedding is no source");
    }
}
