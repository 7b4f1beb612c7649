//! GRESO (arXiv 2506.02177): prompts that lately taught nothing are likely to teach nothing again, so
//! most of them are skipped before any rollout is spent. How many is steered towards a target share of
//! flat groups, for easy and hard prompts apart.
//!
//! Upstream: Infini-AI-Lab/GRESO b277843, `verl/trainer/ttis/presampling_selector.py:100-255` (skip),
//! `verl/trainer/ppo/ray_trainer.py:1006-1016, 1149-1177` (sizes), `:1200-1219` (steering). Departures:
//!
//! - Easy and hard are classes (all rewards equal, and all correct or none), where upstream asks for
//!   mean rewards >= 0.98 and <= 0.11, and counts groups of exactly 1 and exactly 0.1: true of its own
//!   rewards {0, 0.1, 1} alone. `literal` brings the numbers back.
//! - Groups have the length they have, and count alike however many of their rollouts could be judged;
//!   upstream cuts its statistics into rows of eight, whatever n is.
//! - A round without a mixed group is followed by a full one; upstream divides by zero (:1156).
//! - Where prompts on offer end before enough are kept, those kept are sampled; upstream goes on into
//!   the next epoch. Offer enough prompts (`pool`), and it is the same.

use allot_policy::prelude::*;
use allot_policy::types::Past;

/// Skips prompts that are likely to teach nothing.
pub struct Greso;

/// What a run may set. The defaults are those of the published scripts.
#[derive(Settings)]
pub struct GresoSettings {
    /// Prompts to sample in a full round; 0 for one and a half times the groups in an update.
    #[setting(default = 0)]
    sampling: u32,
    /// Fewest prompts to ask for in a further round; 0 for a quarter of the groups in an update.
    #[setting(default = 0)]
    floor: u32,
    /// Rollouts of each prompt; 0 for the run's own number.
    #[setting(default = 0)]
    rollouts: u32,
    /// Prompts to look at before counting again whether enough are kept: upstream's loader batch.
    #[setting(default = 32)]
    chunk: u32,
    /// Prompts of a round are cut to a multiple of this: upstream's number of GPUs.
    #[setting(default = 1)]
    ranks: u32,
    /// Every round has exactly `sampling` prompts.
    #[setting(default = false)]
    full_sampling: bool,
    /// How likely a prompt that was easy at its last visit is sampled again, at first.
    #[setting(default = 0.5)]
    p_easy: f64,
    /// How likely a prompt that was hard at its last visit is sampled again, at first.
    #[setting(default = 0.5)]
    p_hard: f64,
    /// How far the two move after each update.
    #[setting(default = 0.01)]
    step: f64,
    /// The lowest they get.
    #[setting(default = 0.05)]
    min_p: f64,
    /// The highest they get.
    #[setting(default = 0.95)]
    max_p: f64,
    /// How likely any prompt is sampled at least.
    #[setting(default = 0.01)]
    min_keep: f64,
    /// Share of flat groups to aim at: a third of it easy, two thirds hard.
    #[setting(default = 0.25)]
    target: f64,
    /// A further round asks for this many times what seems to be missing.
    #[setting(default = 1.25)]
    oversample: f64,
    /// Tell easy and hard by upstream's literal rewards.
    #[setting(default = false)]
    literal: bool,
}

/// What it remembers.
#[derive(Debug, Default, PartialEq, State)]
pub struct GresoState {
    /// How likely an easy prompt is sampled again.
    pub p_easy: f64,
    /// How likely a hard prompt is sampled again.
    pub p_hard: f64,
    /// Easy groups since the last update.
    easy: u32,
    /// Hard groups since the last update.
    hard: u32,
    /// Groups since the last update.
    total: u32,
    /// Prompts to ask for in the next round.
    pub size: u32,
    /// Whether the next round is the step's last, however many groups it makes.
    last: bool,
    /// The epoch of the prompts looked at last.
    epoch: u32,
    /// Groups on hand that are counted already.
    seen: u32,
}

impl Policy for Greso {
    const NAME: &'static str = "greso";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const SUMMARY: &'static str = "skips prompts that lately taught nothing, before sampling them";
    type Settings = GresoSettings;
    type State = GresoState;

    fn begin(settings: &GresoSettings, run: &Run) -> Result<GresoState, Error> {
        let shares = [
            ("p-easy", settings.p_easy),
            ("p-hard", settings.p_hard),
            ("step", settings.step),
            ("min-p", settings.min_p),
            ("max-p", settings.max_p),
            ("min-keep", settings.min_keep),
            ("target", settings.target),
        ];
        if let Some((name, _)) = shares.iter().find(|(_, value)| !(0.0..=1.0).contains(value)) {
            return Err(bad_setting(name, "must be between 0 and 1"));
        }
        if settings.chunk == 0 || settings.ranks == 0 {
            return Err(bad_setting(
                if settings.chunk == 0 { "chunk" } else { "ranks" },
                "must be at least 1",
            ));
        }
        needs_two(Some(("rollouts", settings.rollouts)), run)?;
        Ok(GresoState { p_easy: settings.p_easy, p_hard: settings.p_hard, ..GresoState::default() })
    }

    fn decide(
        settings: &GresoSettings,
        run: &Run,
        state: &mut GresoState,
        view: &View,
    ) -> Result<Plan, Error> {
        let mut chance = Chance::new(view.seed);
        Ok(decide_with(settings, run, state, view, &mut || chance.unit()))
    }
}

/// `decide`, with uniforms from where the caller likes.
pub fn decide_with(
    settings: &GresoSettings,
    run: &Run,
    state: &mut GresoState,
    view: &View,
    uniform: &mut dyn FnMut() -> f64,
) -> Plan {
    let rounds = Rounds::of(settings, run);
    if view.round == 0 {
        (state.size, state.last, state.seen) = (rounds.sampling, false, 0);
    }
    let fresh = view.groups.get(state.seen as usize..).unwrap_or_default();
    state.seen = view.groups.len() as u32;
    let mixed: Vec<&Group> = view.groups.iter().filter(|g| !g.flat()).collect();
    let mut done = mixed.len() >= run.groups as usize;
    if !fresh.is_empty() {
        count(settings, state, fresh);
        done |= state.last;
        let flat = fresh.iter().filter(|g| g.flat()).count();
        // In f32, as upstream's statistics: it moves the size by one now and then.
        let next = rounds.next(mixed.len() as u32, f64::from(flat as f32 / fresh.len() as f32));
        (state.size, state.last) = (next.size, next.last);
    }
    if done || !view.can_sample() {
        let counted = [state.easy, state.hard, state.total].map(f64::from);
        [state.p_easy, state.p_hard] = settings.steer([state.p_easy, state.p_hard], state.epoch, counted);
        (state.easy, state.hard, state.total, state.seen) = (0, 0, 0, 0);
        return Plan::train(mixed.iter().take(run.groups as usize).map(|g| Pick::all(g.prompt)))
            .metric("mixed", mixed.len() as f64)
            .metric("p-easy", state.p_easy)
            .metric("p-hard", state.p_hard);
    }

    let (kept, skipped) = filter(settings, state, &view.pool, uniform);
    let rollouts = or_else(settings.rollouts, run.rollouts);
    Plan::sample(kept.iter().map(|id| Request::new(*id, rollouts)))
        .metric("skipped", skipped.len() as f64)
        .skip(skipped)
}

/// The prompts of the pool to sample and those to skip, up to where enough are kept.
fn filter(
    settings: &GresoSettings,
    state: &mut GresoState,
    pool: &[Prompt],
    uniform: &mut dyn FnMut() -> f64,
) -> (Vec<PromptId>, Vec<PromptId>) {
    let (mut kept, mut skipped) = (Vec::new(), Vec::new());
    let enough = state.size.max(1) as usize;
    // The loader's batches never reach over the end of an epoch.
    for epoch in pool.chunk_by(|a, b| a.epoch == b.epoch) {
        for chunk in epoch.chunks(settings.chunk.max(1) as usize) {
            if kept.len() >= enough {
                break;
            }
            state.epoch = chunk[0].epoch;
            for prompt in chunk {
                let keeps = settings.keeps(state, prompt.past.as_ref(), uniform);
                if keeps { &mut kept } else { &mut skipped }.push(prompt.id);
            }
        }
    }
    let ranks = settings.ranks.max(1) as usize;
    let most = if settings.full_sampling { enough } else { kept.len() - kept.len() % ranks };
    // The rest is lost for this epoch, as upstream; but not all of it where the prompts on offer end.
    if most > 0 {
        skipped.extend(kept.drain(most.min(kept.len())..));
    }
    (kept, skipped)
}

impl GresoSettings {
    /// Whether to sample a prompt. A uniform is drawn for every prompt with a past, and one more if it
    /// passes as not too easy and was hard.
    fn keeps(&self, state: &GresoState, past: Option<&Past>, uniform: &mut dyn FnMut() -> f64) -> bool {
        let Some(past) = past else { return true };
        let (easy, hard) = if self.literal { literal_runs(past) } else { runs(past) };
        if uniform() < 1.0 - keep_probability(state.p_easy, easy, self.min_keep) {
            return false;
        }
        hard == 0 || uniform() >= 1.0 - keep_probability(state.p_hard, hard, self.min_keep)
    }

    /// Moves the two probabilities, of easy and of hard prompts, one step: down where flat groups are too
    /// many. `counted` are easy, hard and all groups. Nothing is known before the second epoch.
    pub fn steer(&self, p: [f64; 2], epoch: u32, counted: [f64; 3]) -> [f64; 2] {
        let [easy, hard, all] = counted;
        if epoch == 0 || all == 0.0 {
            return p;
        }
        let down = [easy / all >= self.target / 3.0, hard / all >= self.target * 2.0 / 3.0];
        [0, 1].map(|i| {
            if down[i] { (p[i] - self.step).max(self.min_p) } else { (p[i] + self.step).min(self.max_p) }
        })
    }
}

/// How likely a prompt is sampled that was flat in the same way at its last `run` visits.
pub fn keep_probability(p: f64, run: u32, min_keep: f64) -> f64 {
    p.powi(run.min(i32::MAX.cast_unsigned()).cast_signed()).max(min_keep)
}

/// How many visits in a row, up to the last, were easy, and how many hard.
pub fn runs(past: &Past) -> (u32, u32) {
    match past.correct {
        _ if past.streak == 0 => (0, 0),
        0 => (0, past.streak),
        all if all == past.rollouts => (past.streak, 0),
        _ => (0, 0),
    }
}

/// The same by upstream's thresholds (`presampling_selector.py:111, 131`). Only the last mean is
/// known: earlier visits count where they were flat in the same way.
pub fn literal_runs(past: &Past) -> (u32, u32) {
    let (easy, hard) = literal_classes(f64::from(past.mean));
    let run = past.streak.max(1);
    (if easy { run } else { 0 }, if hard { run } else { 0 })
}

/// Whether a mean reward is easy or hard by upstream's thresholds.
pub fn literal_classes(mean: f64) -> (bool, bool) {
    (mean >= 0.98, mean <= 0.11)
}

/// Adds new groups to the counts that steer.
fn count(settings: &GresoSettings, state: &mut GresoState, fresh: &[Group]) {
    for group in fresh {
        let (easy, hard) = if settings.literal { literal_kind(group) } else { kind(group) };
        state.easy = state.easy.saturating_add(u32::from(easy));
        state.hard = state.hard.saturating_add(u32::from(hard));
        state.total = state.total.saturating_add(1);
    }
}

/// Whether a group is easy, and whether it is hard.
pub fn kind(group: &Group) -> (bool, bool) {
    let flat = group.flat();
    (flat && group.solved() == group.len(), flat && group.solved() == 0)
}

/// The same by upstream's rewards (`metric_utils.py:171-214`).
pub fn literal_kind(group: &Group) -> (bool, bool) {
    (group.rewards.iter().all(|r| *r == 1.0), group.rewards.iter().all(|r| *r == 0.1))
}

/// How large rounds are.
pub struct Rounds {
    /// Groups in an update.
    pub groups: u32,
    /// Rollouts of a prompt.
    pub rollouts: u32,
    /// Prompts in a full round.
    pub sampling: u32,
    /// Fewest prompts in a further one.
    pub floor: u32,
    /// How much more to ask for than is missing.
    pub oversample: f64,
    /// Every round is full.
    pub full: bool,
}

/// The round to come.
#[derive(Debug, PartialEq)]
pub struct Next {
    /// Prompts that seem to be needed; none where no group was mixed.
    pub estimated: Option<u64>,
    /// Prompts to ask for.
    pub size: u32,
    /// Whether the step trains after it in any case.
    pub last: bool,
}

impl Rounds {
    fn of(settings: &GresoSettings, run: &Run) -> Self {
        Self {
            groups: run.groups,
            rollouts: or_else(settings.rollouts, run.rollouts).max(1),
            sampling: or_else(settings.sampling, run.groups.saturating_add(run.groups / 2)).max(1),
            floor: or_else(settings.floor, (run.groups / 4).max(1)),
            oversample: settings.oversample,
            full: settings.full_sampling,
        }
    }

    /// The round after one with this share of flat groups, with `mixed` groups on hand.
    pub fn next(&self, mixed: u32, flat: f64) -> Next {
        if flat >= 1.0 {
            return Next { estimated: None, size: self.sampling, last: false };
        }
        let n = f64::from(self.rollouts);
        let missing = f64::from(self.groups.saturating_sub(mixed)) * n;
        // In upstream's order of operations (:1156).
        let estimated = (missing / (1.0 - flat) / n * self.oversample) as u64;
        if self.full {
            return Next { estimated: Some(estimated), size: self.sampling, last: false };
        }
        let size = estimated.min(u64::from(self.sampling)) as u32;
        let last = estimated <= u64::from(self.sampling);
        // The floor may be above a full round, as upstream (:1162).
        Next { estimated: Some(estimated), size: size.max(self.floor), last }
    }
}

allot_policy::export!(Greso);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use allot_policy::types::Value;
    use allot_policy::{begin, decide, made, run_with};

    fn run(changes: &[(&str, Value)]) -> Run {
        Run { groups: 4, ..run_with::<Greso>(changes) }
    }

    fn load(state: &[u8]) -> GresoState {
        GresoState::load(state).unwrap()
    }

    #[test]
    fn an_unseen_prompt_is_never_skipped() {
        let run = run(&[]);
        let plan = decide::<Greso>(&run, &begin::<Greso>(&run).unwrap(), &made::view(0..64)).unwrap();
        // Asked for 6, in chunks of 32.
        assert_eq!(plan.action, Plan::sample((0..32).map(|p| Request::new(p, 8))).action);
        assert!(plan.skip.is_empty());
    }

    #[test]
    fn flat_prompts_are_skipped_by_their_streak() {
        let run = run(&[("p-easy", Value::Number(0.2)), ("p-hard", Value::Number(0.9))]);
        let mut view = made::view(0..1);
        let skips = |view: &mut View| {
            (0..4000)
                .filter(|seed| {
                    view.seed = *seed;
                    !decide::<Greso>(&run, &begin::<Greso>(&run).unwrap(), view).unwrap().skip.is_empty()
                })
                .count()
        };
        view.pool[0].past = Some(Past { streak: 2, ..made::past(8, 8) });
        assert!(skips(&mut view).abs_diff(3840) < 60, "keeps 0.2 squared");
        view.pool[0].past = Some(made::past(0, 8));
        assert!(skips(&mut view).abs_diff(400) < 100, "keeps 0.9");
        view.pool[0].past = Some(made::past(4, 8));
        assert_eq!(skips(&mut view), 0);
    }

    #[test]
    fn rounds_shrink_to_what_is_missing() {
        let rounds =
            Rounds { groups: 256, rollouts: 8, sampling: 384, floor: 64, oversample: 1.25, full: false };
        assert_eq!(rounds.next(156, 0.5), Next { estimated: Some(250), size: 250, last: true });
        assert_eq!(rounds.next(250, 0.5), Next { estimated: Some(15), size: 64, last: true });
        assert_eq!(rounds.next(0, 0.5), Next { estimated: Some(640), size: 384, last: false });
        assert_eq!(rounds.next(0, 1.0), Next { estimated: None, size: 384, last: false });
    }

    #[test]
    fn it_steers_from_the_second_epoch_on() {
        let run = run(&[]);
        let mut view = made::view(0..64);
        view.pool.iter_mut().for_each(|p| p.epoch = 1);
        let plan = decide::<Greso>(&run, &begin::<Greso>(&run).unwrap(), &view).unwrap();
        view.round = 1;
        view.groups =
            (100..104).map(|p| made::group(p, &[0, 1])).chain([made::group(104, &[1, 1])]).collect();
        let plan = decide::<Greso>(&run, &plan.state, &view).unwrap();
        assert!(matches!(&plan.action, Action::Train(batch) if batch.picks.len() == 4));
        let state = load(&plan.state);
        assert_eq!((state.p_easy, state.p_hard), (0.49, 0.51), "a fifth easy, none hard");
    }

    #[test]
    fn a_round_of_nothing_but_flat_groups_is_followed_by_a_full_one() {
        let run = run(&[("chunk", Value::Integer(1))]);
        let mut view = made::view(0..64);
        let plan = decide::<Greso>(&run, &begin::<Greso>(&run).unwrap(), &view).unwrap();
        view.round = 1;
        view.groups = vec![made::group(100, &[1, 1])];
        let plan = decide::<Greso>(&run, &plan.state, &view).unwrap();
        assert!(matches!(&plan.action, Action::Sample(requests) if requests.len() == 6));
    }
}
