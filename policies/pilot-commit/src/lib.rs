//! Pilot-Commit (arXiv 2605.26606): tries each prompt with a few rollouts, the pilots, and commits the
//! rest to prompts that pilots solve sometimes. Pilots and commits share a call: a round tries the next
//! prompts and commits to those that earlier rounds, or steps, tried.
//!
//! Upstream: databricks/pilot-commit 6def20e, `recipe/pc/pc_ray_trainer.py:427-857` (the loop) and
//! `recipe/pc/replay_buffer.py:106-278` (what to commit to). Departures:
//!
//! - Survivors and half-filled batches outlive the end of an epoch; upstream throws both away (:842-852).
//!   `epoch-end = "discard"` does too, and counts as a step without an update where rollouts are let go.
//! - Where the budget ends, the step trains on the groups it has; upstream raises (:679).
//! - A prompt is evicted at once, where upstream waits for the epoch's end: the same, as none comes
//!   twice in an epoch.
//! - `pilot-kept` works for any buffer; upstream's `n_effective` fails an assertion unless the buffer is
//!   over-full (:503), and crashes where pilots of one kind alone are drawn.
//! - `most-recent` is upstream's `most_recent` and its `least_recent`, which sort alike (:143-148).
//! - Variances are compared as k (n - k) / n², so that 3 of 10 and 7 of 10 tie.
//! - Pilots that no grader could judge are not there. A prompt is judged by those that are.

use allot_policy::prelude::*;

/// Tries each prompt with a few rollouts and commits the rest to those of middling difficulty.
pub struct PilotCommit;

/// What a run may set. The defaults are those of the README and scripts, not of the yaml.
#[derive(Settings)]
pub struct PilotCommitSettings {
    /// Rollouts to try a prompt with.
    #[setting(default = 8)]
    pilot: u32,
    /// Rollouts to add where the pilots were promising.
    #[setting(default = 24)]
    commit: u32,
    /// Prompts to try in each round; 0 for three times the groups in an update.
    #[setting(default = 0)]
    prompts: u32,
    /// Commit only where at least this share of the pilots is correct.
    #[setting(default = 0.125)]
    solved_at_least: f64,
    /// Commit only where at least this share of the pilots is wrong.
    #[setting(default = 0.25)]
    failed_at_least: f64,
    /// Never offer a prompt again when this share of its pilots is correct; above 1 for never.
    #[setting(default = 1.0)]
    evict_at: f64,
    /// Which to commit to first: random, max-variance or most-recent.
    #[setting(default = Sampling::Random)]
    sampling: Sampling,
    /// Pilots are held for further steps up to this age, in updates. They are a step older when used.
    #[setting(default = 4)]
    max_off: u32,
    /// Pilots of a committed prompt to train on, half of them correct if possible; 0 for all.
    #[setting(default = 0)]
    pilot_kept: u32,
    /// What becomes of rollouts on hand at the end of an epoch: keep or discard.
    #[setting(default = EpochEnd::Keep)]
    epoch_end: EpochEnd,
    /// Commits of a round are cut until its rollouts are a multiple of this: upstream's number of GPUs.
    #[setting(default = 1)]
    ranks: u32,
}

/// Which survivors to commit to.
#[derive(Choice, Clone, Copy, Debug, PartialEq)]
pub enum Sampling {
    /// Any.
    Random,
    /// Those closest to half correct, newer ones first.
    MaxVariance,
    /// The newest.
    MostRecent,
}

/// What becomes of rollouts on hand at the end of an epoch.
#[derive(Choice, Clone, Copy, Debug, PartialEq)]
pub enum EpochEnd {
    /// They stay.
    Keep,
    /// They are let go, with the rest of an epoch that is too short for a round.
    Discard,
}

/// Numbers of pilots that are looked at for one that can survive.
const LOOKED_AT: u32 = 1000;

/// What it remembers.
#[derive(Debug, Default, PartialEq, State)]
pub struct PilotCommitState {
    /// Prompts committed to in this step, in order of choice, each with its pilots on hand: as many as
    /// were asked for, unless the budget ended or some could not be judged.
    committed: Vec<(u32, u32)>,
    /// Prompts tried in the last round.
    fresh: Vec<u32>,
    /// The epoch that prompts are tried from.
    epoch: u32,
    /// Whether `epoch` is known.
    begun: bool,
}

impl Policy for PilotCommit {
    const NAME: &'static str = "pilot-commit";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str = "tries each prompt with a few rollouts and commits the rest where it pays";
    type Settings = PilotCommitSettings;
    type State = PilotCommitState;

    fn begin(settings: &PilotCommitSettings, run: &Run) -> Result<PilotCommitState, Error> {
        for (name, value) in
            [("pilot", settings.pilot), ("commit", settings.commit), ("ranks", settings.ranks)]
        {
            if value == 0 {
                return Err(bad_setting(name, "must be at least 1"));
            }
        }
        settings.survivable()?;
        if settings.pilot_kept > settings.pilot {
            return Err(bad_setting("pilot-kept", "there are not as many pilots"));
        }
        if run.pool < settings.prompts(run) {
            let reason = format!("the pool has {} prompts on offer, not {}", run.pool, settings.prompts(run));
            if settings.epoch_end == EpochEnd::Discard {
                return Err(bad_setting("prompts", reason));
            }
            log::warn(&reason);
        }
        if run.max_age <= settings.max_off {
            log::warn("the host's max-age lets pilots go before max-off does");
        }
        Ok(PilotCommitState::default())
    }

    fn decide(
        settings: &PilotCommitSettings,
        run: &Run,
        state: &mut PilotCommitState,
        view: &View,
    ) -> Result<Plan, Error> {
        let pilot = settings.pilot as usize;
        let mut chance = Chance::new(view.seed);
        if view.round == 0 {
            state.committed.clear();
            state.fresh.clear();
        }
        // By prompt, or time would grow with the square of the groups.
        let mut groups: Vec<&Group> = view.groups.iter().collect();
        groups.sort_unstable_by_key(|g| g.prompt);
        // A commit of which nothing came is a survivor again; of which a part came, done.
        state.committed.retain(|(p, pilots)| of(&groups, *p).is_some_and(|g| g.len() > *pilots as usize));
        let [mut committed, mut tried]: [Vec<PromptId>; 2] =
            [state.committed.iter().map(|(p, _)| *p).collect(), state.fresh.clone()];
        committed.sort_unstable();
        tried.sort_unstable();
        let survives =
            |g: &&Group| committed.binary_search(&g.prompt).is_err() && settings.passes(g.pass_rate());
        let survivors: Vec<&Group> = view.groups.iter().filter(survives).collect();
        let fresh: Vec<&Group> =
            view.groups.iter().filter(|g| tried.binary_search(&g.prompt).is_ok()).collect();
        // The budget may have cut the last one's pilots short: too few to evict it for good.
        let whole = fresh.len() - usize::from(fresh.last().is_some_and(|g| g.len() < pilot));
        let evict = settings.solved(&fresh[..whole]);

        let over = settings.epoch_over(run, state, view);
        let full = state.committed.len() >= run.groups as usize;
        if full || !view.budget.open() {
            let plan = settings.train(run, state, &groups, &survivors, over.is_none(), &mut chance);
            return Ok(plan.skip(over.unwrap_or_default()).evict(evict));
        }
        if let Some(rest) = over {
            let nothing = view.groups.is_empty() && !rest.is_empty();
            let plan = if nothing { Plan::sample([]) } else { Plan::train([]) };
            return Ok(plan.skip(rest).evict(evict));
        }

        let offered: Vec<PromptId> = view.offer(settings.prompts(run)).map(|p| p.id).collect();
        let size = survivors.len().min(run.groups as usize - state.committed.len());
        let size = gpu_cut(size, offered.len() * pilot, settings.commit as usize, settings.ranks as usize);
        let chosen = choose(settings.sampling, &survivors, size, &mut chance);
        if offered.is_empty() && chosen.is_empty() {
            let plan = settings.train(run, state, &groups, &survivors, true, &mut chance);
            return Ok(plan.evict(evict));
        }
        let pilots = offered.iter().map(|p| Request::new(*p, settings.pilot));
        let commits = chosen.iter().map(|g| Request::new(g.prompt, settings.commit));
        let plan = Plan::sample(pilots.chain(commits))
            .evict(evict)
            .metric("survivors", survivors.len() as f64)
            .metric("commits", chosen.len() as f64);
        state.committed.extend(chosen.iter().map(|g| (g.prompt, g.len() as u32)));
        state.fresh = offered;
        Ok(plan)
    }
}

impl PilotCommitSettings {
    fn prompts(&self, run: &Run) -> u32 {
        or_else(self.prompts, run.groups.saturating_mul(3))
    }

    /// Those that are not to be offered again.
    fn solved(&self, tried: &[&Group]) -> Vec<PromptId> {
        tried.iter().filter(|g| g.pass_rate() >= self.evict_at).map(|g| g.prompt).collect()
    }

    /// Whether pilots of this pass rate are promising: both ends count in (:308-315).
    pub fn passes(&self, rate: f64) -> bool {
        rate >= self.solved_at_least && rate <= 1.0 - self.failed_at_least
    }

    /// Refuses settings by which no prompt would ever be committed to.
    fn survivable(&self) -> Result<(), Error> {
        let passes = |pilot: &u32| {
            let first = (self.solved_at_least * f64::from(*pilot)).ceil().max(0.0) as u32;
            // Rounding may be off by one.
            (first.saturating_sub(1)..=first.saturating_add(1))
                .any(|k| k <= *pilot && self.passes(f64::from(k) / f64::from(*pilot)))
        };
        let least = (1..=LOOKED_AT).find(passes);
        if self.pilot > LOOKED_AT || least.is_some_and(|least| least <= self.pilot) {
            return Ok(());
        }
        let shares = format!(
            "can't be solved at least {} and failed at least {} of the time, so no prompt would ever be committed to",
            self.solved_at_least, self.failed_at_least
        );
        Err(match (self.pilot, least) {
            (_, None) => bad_setting("solved-at-least", format!("pilots {shares}")),
            (1, Some(least)) => bad_setting("pilot", format!("1 pilot {shares}; set {least} or more")),
            (n, Some(least)) => bad_setting("pilot", format!("{n} pilots {shares}; set {least} or more")),
        })
    }

    /// Trains on the committed groups, pilots and commits together, in order of choice.
    fn train(
        &self,
        run: &Run,
        state: &PilotCommitState,
        groups: &[&Group],
        survivors: &[&Group],
        holds: bool,
        chance: &mut Chance,
    ) -> Plan {
        let committed = state.committed.iter().filter_map(|(p, pilots)| Some((of(groups, *p)?, *pilots)));
        let mut picks: Vec<Pick> =
            committed.take(run.groups as usize).map(|(g, pilots)| self.pick(g, pilots, chance)).collect();
        // Nothing committed and nothing left to sample: pilots are better than no update.
        let spent = if picks.is_empty() { survivors.len().min(run.groups as usize) } else { 0 };
        picks.extend(survivors[..spent].iter().map(|g| Pick::all(g.prompt)));
        let hold = survivors[spent..].iter().filter(|g| holds && g.age() <= self.max_off).map(|g| g.prompt);
        Plan::train(picks).hold(hold).metric("survivors", survivors.len() as f64)
    }

    /// The rollouts of a committed group to train on; the first `pilots` are its pilots.
    fn pick(&self, group: &Group, pilots: u32, chance: &mut Chance) -> Pick {
        if self.pilot_kept == 0 {
            return Pick::all(group.prompt);
        }
        let mut kept = downsample(&group.correct[..pilots as usize], self.pilot_kept as usize, chance);
        kept.extend(pilots..group.len() as u32);
        Pick::some(group.prompt, kept)
    }

    /// Where epochs end for good and too few prompts of this one are on offer for a round: those few.
    /// Upstream's loader drops them (`drop_last`).
    fn epoch_over(&self, run: &Run, state: &mut PilotCommitState, view: &View) -> Option<Vec<PromptId>> {
        if self.epoch_end == EpochEnd::Keep {
            return None;
        }
        if let Some(first) = view.pool.first()
            && (!state.begun || (view.groups.is_empty() && first.epoch > state.epoch))
        {
            (state.epoch, state.begun) = (first.epoch, true);
        }
        let rest: Vec<PromptId> = view.pool.iter().filter(|p| p.epoch <= state.epoch).map(|p| p.id).collect();
        (rest.len() < self.prompts(run) as usize).then_some(rest)
    }
}

/// A prompt's group, of groups in the order of prompts.
fn of<'a>(groups: &[&'a Group], prompt: PromptId) -> Option<&'a Group> {
    groups.binary_search_by_key(&prompt, |g| g.prompt).ok().map(|i| groups[i])
}

/// `size` of the survivors, in order of choice. All of them, as they stand, if there are no more.
pub fn choose<'a>(
    sampling: Sampling,
    survivors: &[&'a Group],
    size: usize,
    chance: &mut Chance,
) -> Vec<&'a Group> {
    let mut chosen = survivors.to_vec();
    if chosen.len() <= size {
        return chosen;
    }
    match sampling {
        Sampling::Random => return chance.draw(chosen.len(), size).iter().map(|i| survivors[*i]).collect(),
        Sampling::MaxVariance => {
            chosen.sort_by(|a, b| variance(b).total_cmp(&variance(a)).then(newest(a).cmp(&newest(b))));
        }
        Sampling::MostRecent => chosen.sort_by_key(|g| newest(g)),
    }
    chosen.truncate(size);
    chosen
}

/// The variance of right and wrong: k (n - k) / n², rounded once, so that equal ones tie.
fn variance(group: &Group) -> f64 {
    let (k, n) = (group.solved() as f64, group.len() as f64);
    k * (n - k) / (n * n)
}

fn newest(group: &Group) -> u32 {
    group.ages.iter().copied().min().unwrap_or(0)
}

/// Commits of a round, cut so that all its rollouts are a multiple of `ranks` (:242-285).
pub fn gpu_cut(size: usize, pilots: usize, commit: usize, ranks: usize) -> usize {
    let ranks = ranks.max(1);
    if (pilots + size * commit).is_multiple_of(ranks) {
        return size;
    }
    if pilots.is_multiple_of(ranks) {
        // Down to a multiple of lcm(ranks, commit) rollouts, which is this many commits.
        let unit = ranks / gcd(ranks, commit);
        return size - size % unit;
    }
    (0..size).rev().find(|size| (pilots + size * commit).is_multiple_of(ranks)).unwrap_or(0)
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Positions of `m` pilots of largest variance: half of them correct, those first, then the others;
/// where one kind is short the other fills up. Which of a kind is drawn.
pub fn downsample(correct: &[bool], m: usize, chance: &mut Chance) -> Vec<u32> {
    let (ones, zeros): (Vec<u32>, Vec<u32>) = (0..correct.len() as u32).partition(|i| correct[*i as usize]);
    let m = m.min(correct.len());
    let right = (m / 2).min(ones.len()).max(m.saturating_sub(zeros.len()));
    let mut kept: Vec<u32> = chance.draw(ones.len(), right).into_iter().map(|i| ones[i]).collect();
    kept.extend(chance.draw(zeros.len(), m - right).into_iter().map(|i| zeros[i]));
    kept
}

allot_policy::export!(PilotCommit);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use allot_policy::types::Value;
    use allot_policy::{begin, decide, made, run_with};

    /// Two groups of 4 + 4 rollouts, three prompts a round.
    fn run(changes: &[(&str, Value)]) -> Run {
        let mut all = vec![
            ("pilot", Value::Integer(4)),
            ("commit", Value::Integer(4)),
            ("prompts", Value::Integer(3)),
            ("sampling", Value::Text("max-variance".into())),
        ];
        all.extend_from_slice(changes);
        Run { groups: 2, ..run_with::<PilotCommit>(&all) }
    }

    #[test]
    fn pilots_that_can_never_survive_are_refused() {
        let refused =
            |changes: &[(&str, Value)]| match begin::<PilotCommit>(&run_with::<PilotCommit>(changes)) {
                Err(Error::Setting(bad)) => Some((bad.name, bad.reason)),
                other => other.map(|_| None).unwrap(),
            };
        let set = |pilot, solved, failed| {
            refused(&[
                ("pilot", Value::Integer(pilot)),
                ("solved-at-least", Value::Number(solved)),
                ("failed-at-least", Value::Number(failed)),
            ])
        };
        let never = "so no prompt would ever be committed to";
        let because = |name: &str, reason: String| Some((name.to_owned(), reason));
        let words =
            format!("1 pilot can't be solved at least 0.125 and failed at least 0.25 of the time, {never}");
        assert_eq!(set(1, 0.125, 0.25), because("pilot", format!("{words}; set 2 or more")));
        let words =
            format!("2 pilots can't be solved at least 0.7 and failed at least 0.2 of the time, {never}");
        assert_eq!(set(2, 0.7, 0.2), because("pilot", format!("{words}; set 4 or more")));
        let words =
            format!("pilots can't be solved at least 0.7 and failed at least 0.7 of the time, {never}");
        assert_eq!(set(8, 0.7, 0.7), because("solved-at-least", words));
        // The smallest that can, and one pilot where any may survive.
        for (pilot, solved, failed) in [(2, 0.125, 0.25), (4, 0.7, 0.2), (1, 0.0, 0.25), (1, 0.125, 0.0)] {
            assert_eq!(set(pilot, solved, failed), None, "{pilot} {solved} {failed}");
        }
        assert!(set(8, f64::NAN, 0.25).is_some());
        assert_eq!(set(100_000, 0.5, 0.5), None);
    }

    fn requests(plan: &Plan) -> Vec<(PromptId, u32)> {
        let Action::Sample(requests) = &plan.action else { panic!("trains: {plan:?}") };
        requests.iter().map(|r| (r.prompt, r.count)).collect()
    }

    fn batch(plan: &Plan) -> (Vec<PromptId>, Vec<PromptId>) {
        let Action::Train(batch) = &plan.action else { panic!("samples: {plan:?}") };
        (batch.picks.iter().map(|p| p.prompt).collect(), batch.hold.iter().map(|h| h.prompt).collect())
    }

    #[test]
    fn pilots_and_commits_share_a_round() {
        let run = run(&[]);
        let mut view = made::view(0..9);
        let plan = decide::<PilotCommit>(&run, &begin::<PilotCommit>(&run).unwrap(), &view).unwrap();
        assert_eq!(requests(&plan), [(0, 4), (1, 4), (2, 4)]);

        (view.round, view.pool) = (1, made::view(3..9).pool);
        view.groups =
            vec![made::group(0, &[1, 1, 1, 1]), made::group(1, &[0, 1, 0, 0]), made::group(2, &[0; 4])];
        let plan = decide::<PilotCommit>(&run, &plan.state, &view).unwrap();
        assert_eq!(requests(&plan), [(3, 4), (4, 4), (5, 4), (1, 4)]);
        assert_eq!(plan.evict, [0]);

        (view.round, view.pool) = (2, made::view(6..9).pool);
        view.groups[1] = made::group(1, &[0, 1, 0, 0, 1, 1, 1, 1]);
        view.groups.extend([
            made::group(3, &[0, 1, 0, 0]),
            made::group(4, &[0, 1, 0, 1]),
            made::group(5, &[0; 4]),
        ]);
        let plan = decide::<PilotCommit>(&run, &plan.state, &view).unwrap();
        assert_eq!(requests(&plan), [(6, 4), (7, 4), (8, 4), (4, 4)], "half solved goes first");
        assert_eq!(plan.evict, [0; 0], "once is enough");

        (view.round, view.pool) = (3, Vec::new());
        view.groups[4] = made::group(4, &[0, 1, 0, 1, 1, 1, 1, 1]);
        let plan = decide::<PilotCommit>(&run, &plan.state, &view).unwrap();
        assert_eq!(batch(&plan), (vec![1, 4], vec![3]), "the survivor is held");
    }

    #[test]
    fn old_pilots_are_let_go() {
        let run = run(&[("max-off", Value::Integer(1))]);
        let mut view = made::view(0..0);
        view.budget.rounds = 0;
        view.groups = (0..5).map(|p| made::group(p, &[1, 0, 0, 1])).collect();
        view.groups[0].ages = vec![2; 4];
        view.groups[3].ages = vec![2; 4];
        view.groups[4].ages = vec![1; 4];
        let plan = decide::<PilotCommit>(&run, &begin::<PilotCommit>(&run).unwrap(), &view).unwrap();
        assert_eq!(batch(&plan), (vec![0, 1], vec![2, 4]), "trained on rather than lost");
    }

    #[test]
    fn a_commit_cut_by_the_budget_counts_if_anything_came() {
        let run = run(&[]);
        let state =
            PilotCommitState { committed: vec![(7, 4), (8, 4)], ..PilotCommitState::default() }.save();
        let mut view = made::view(0..9);
        view.round = 1;
        view.groups = vec![made::group(7, &[1, 0, 1, 0]), made::group(8, &[1, 0, 1, 0, 1])];
        view.budget.run_rollouts = 0;
        let plan = decide::<PilotCommit>(&run, &state, &view).unwrap();
        assert_eq!(batch(&plan), (vec![8], vec![7]));
    }

    #[test]
    fn pilots_that_could_not_be_judged_are_not_missed() {
        let run = run(&[("pilot-kept", Value::Integer(2))]);
        let mut view = made::view(0..9);
        let plan = decide::<PilotCommit>(&run, &begin::<PilotCommit>(&run).unwrap(), &view).unwrap();

        // Of three times four pilots these were judged: 1 of 3 right, all of 3, 1 of 2.
        (view.round, view.pool) = (1, made::view(3..9).pool);
        view.groups = vec![made::group(0, &[0, 1, 0]), made::group(1, &[1, 1, 1]), made::group(2, &[0, 1])];
        let plan = decide::<PilotCommit>(&run, &plan.state, &view).unwrap();
        assert_eq!(requests(&plan), [(3, 4), (4, 4), (5, 4), (0, 4), (2, 4)]);
        assert_eq!(plan.evict, [1]);

        // Three of four commits were judged, and one of four, which makes as many rollouts as pilots were asked for.
        (view.round, view.pool) = (2, Vec::new());
        view.groups[0] = made::group(0, &[0, 1, 0, 1, 1, 1]);
        view.groups[2] = made::group(2, &[0, 1, 0]);
        let plan = decide::<PilotCommit>(&run, &plan.state, &view).unwrap();
        assert_eq!(batch(&plan), (vec![0, 2], vec![]));
        let Action::Train(batch) = plan.action else { panic!("trains") };
        let kept: Vec<usize> = batch.picks.iter().map(|p| p.rollouts.as_ref().unwrap().len()).collect();
        assert_eq!(kept, [2 + 3, 2 + 1], "two pilots each, and all of the rest");
    }

    #[test]
    fn pilots_cut_short_by_the_budget_evict_nobody() {
        let run = run(&[]);
        let mut view = made::view(0..9);
        let plan = decide::<PilotCommit>(&run, &begin::<PilotCommit>(&run).unwrap(), &view).unwrap();
        view.round = 1;
        view.groups = vec![made::group(0, &[1, 1, 1]), made::group(1, &[1])];
        let plan = decide::<PilotCommit>(&run, &plan.state, &view).unwrap();
        assert_eq!(plan.evict, [0], "what came after it shows that its pilots are whole");
    }

    #[test]
    fn an_epoch_may_end_for_good() {
        let run = run(&[("epoch-end", Value::Text("discard".into()))]);
        let mut view = made::view(0..2);
        view.pool.extend((2..6).map(|id| Prompt { epoch: 1, ..made::prompt(id) }));
        view.round = 1;
        let state = PilotCommitState { begun: true, ..PilotCommitState::default() }.save();
        view.groups = vec![made::group(9, &[1, 0, 1, 0])];
        let plan = decide::<PilotCommit>(&run, &state, &view).unwrap();
        assert_eq!(batch(&plan), (vec![], vec![]), "all is let go");
        assert_eq!(plan.skip, [0, 1], "too few for a round");

        (view.round, view.groups) = (0, Vec::new());
        view.pool.drain(..2);
        let plan = decide::<PilotCommit>(&run, &plan.state, &view).unwrap();
        assert_eq!(requests(&plan), [(2, 4), (3, 4), (4, 4)]);
    }

    #[test]
    fn pilots_can_be_thinned_out() {
        let mut chance = Chance::new(1);
        let kept = downsample(&[true, false, true, true, false], 3, &mut chance);
        assert!([0, 2, 3].contains(&kept[0]));
        assert_eq!(
            {
                let mut zeros = kept[1..].to_vec();
                zeros.sort_unstable();
                zeros
            },
            [1, 4]
        );
        assert_eq!(downsample(&[false; 3], 2, &mut chance).len(), 2);
        assert_eq!(downsample(&[true], 4, &mut chance), [0]);

        let run = run(&[("pilot-kept", Value::Integer(2))]);
        let state = PilotCommitState { committed: vec![(7, 4)], ..PilotCommitState::default() }.save();
        let mut view = made::view(0..9);
        (view.round, view.budget.rounds) = (1, 0);
        view.groups = vec![made::group(7, &[1, 0, 0, 0, 1, 1])];
        let Action::Train(batch) = decide::<PilotCommit>(&run, &state, &view).unwrap().action else {
            panic!()
        };
        let kept = batch.picks[0].rollouts.clone().unwrap();
        assert_eq!((kept.len(), kept[0], &kept[2..]), (4, 0, &[4, 5][..]));
    }

    #[test]
    fn rounds_fit_the_gpus() {
        assert_eq!(gpu_cut(3, 24, 4, 1), 3);
        assert_eq!(gpu_cut(3, 24, 4, 8), 2, "commits in pairs");
        assert_eq!(gpu_cut(3, 21, 3, 2), 3);
        assert_eq!(gpu_cut(4, 21, 3, 2), 3);
        assert_eq!(gpu_cut(3, 1, 2, 2), 0);
    }
}
