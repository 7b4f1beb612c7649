//! Fixture views: corner cases to check a policy with before it runs.

use allot_allocation::seed::{self, Stream};
use allot_allocation::{
    Budget, Column, Columns, Group, GroupTurns, LENGTH, Origin, Past, Prompt, PromptId, Run, Stopped, Tally,
    Terms, TurnLength, Value, View,
};

/// A view and its special feature.
pub struct Fixture {
    /// The special feature, in a few words.
    pub title: String,
    /// The kind of check.
    pub kind: Kind,
    /// The view.
    pub view: View,
}

/// Kinds of views, in the order in which [`in_turn`] starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A corner case.
    Corner,
    /// An ordinary random view.
    Random,
    /// Thousands of buffered rollouts.
    ManyRollouts,
    /// A random view of a data set of [`MANY_PROMPTS`].
    ManyPrompts,
}

/// Prompts in a view's data set. A policy may request facts of all of them in each call, and an interpreter
/// takes milliseconds per 100,000 numbers.
pub const PROMPTS: u32 = 2_000;
/// Prompts in the data set of a few views, which has a realistic size.
pub const MANY_PROMPTS: u32 = 100_000;
/// The least number of buffered rollouts of [`Kind::ManyRollouts`].
const MANY_ROLLOUTS: usize = 2_000;
/// One of this many random views has a large data set.
const LARGE_DATA_SET: u32 = 75;

impl Kind {
    /// Returns the number of prompts in the data set of its views.
    pub fn prompts(self) -> u32 {
        if self == Self::ManyPrompts { MANY_PROMPTS } else { PROMPTS }
    }
}

/// The rewards of a generated group.
#[derive(Clone, Copy)]
enum Rewards {
    /// All equal to this value.
    All(f32),
    /// 1 with this probability, else 0.
    Binary(f64),
    /// Uniform between -1 and 1.
    Real,
}

const OPEN: Budget = Budget {
    rounds: 10,
    step_rollouts: u32::MAX,
    run_rollouts: 1_000_000,
    run_tokens: u64::MAX,
    run_flops: None,
};

/// Returns views of all corner cases, and `random` random ones. Each group has `signals` signals.
pub fn views(signals: usize, random: u32) -> Vec<Fixture> {
    let mut made = Vec::new();
    let mut add = |title: &str, view: View| {
        let rollouts: usize = view.groups.iter().map(Group::len).sum();
        let kind = if rollouts < MANY_ROLLOUTS { Kind::Corner } else { Kind::ManyRollouts };
        made.push(Fixture { title: title.to_owned(), kind, view });
    };
    let m = Maker { signals };

    add("a fresh step", m.view(64, &[], OPEN, 0));
    add("nothing at all", m.view(0, &[], OPEN, 0));
    add("one prompt", m.view(1, &[], OPEN, 0));
    add("an empty pool, one group", m.view(0, &[(8, Rewards::Binary(0.5))], OPEN, 1));
    add("one buffered rollout", m.view(16, &[(1, Rewards::All(1.0))], OPEN, 1));
    add("all rewards 1", m.view(32, &[(8, Rewards::All(1.0)); 8], OPEN, 1));
    add("all rewards 0", m.view(32, &[(8, Rewards::All(0.0)); 8], OPEN, 1));
    add("all rewards 0.1", m.view(32, &[(7, Rewards::All(0.1)); 8], OPEN, 1));
    add("huge rewards", m.view(32, &[(8, Rewards::All(f32::MAX)), (8, Rewards::All(f32::MIN))], OPEN, 1));
    add("tiny rewards", m.view(32, &[(8, Rewards::All(f32::MIN_POSITIVE)); 4], OPEN, 1));
    add("real rewards", m.view(32, &[(16, Rewards::Real); 16], OPEN, 2));
    add(
        "groups of many sizes",
        m.view(32, &(1..64).map(|n| (n, Rewards::Binary(0.4))).collect::<Vec<_>>(), OPEN, 2),
    );
    add("the last round", m.view(32, &[(8, Rewards::Binary(0.3)); 8], Budget { rounds: 0, ..OPEN }, 10));
    add(
        "the step's rollouts spent",
        m.view(32, &[(8, Rewards::Binary(0.3)); 8], Budget { step_rollouts: 0, ..OPEN }, 1),
    );
    add(
        "the run's rollouts spent",
        m.view(32, &[(8, Rewards::Binary(0.3)); 8], Budget { run_rollouts: 0, ..OPEN }, 1),
    );
    add(
        "everything spent, nothing buffered",
        m.view(
            32,
            &[],
            Budget { rounds: 0, step_rollouts: 0, run_rollouts: 0, run_tokens: 0, run_flops: Some(0.0) },
            0,
        ),
    );
    add(
        "one rollout left",
        m.view(32, &[(8, Rewards::Binary(0.3)); 2], Budget { run_rollouts: 1, ..OPEN }, 1),
    );
    let mut held = m.view(32, &[(8, Rewards::Binary(0.5)); 8], OPEN, 0);
    held.groups.iter_mut().enumerate().for_each(|(i, g)| g.ages.iter_mut().for_each(|age| *age = i as u32));
    add("held groups of many ages", held);
    add("100,000 buffered rollouts", m.view(384, &vec![(100, Rewards::Binary(0.4)); 1000], OPEN, 1));
    add("one group of 20,000", m.view(64, &[(20_000, Rewards::Real)], OPEN, 1));
    let mut late = m.view(64, &[(8, Rewards::Binary(0.5)); 4], OPEN, 1);
    late.step = u32::MAX - 1;
    late.pool.iter_mut().for_each(|p| p.epoch = u32::MAX);
    add("the last step of the longest run", late);

    for i in 0..random {
        let mut random = Stream::new(seed::world(0, 0, u64::from(i)));
        let groups: Vec<(usize, Rewards)> = (0..random.below(40))
            .map(|_| {
                let rewards = match random.below(4) {
                    0 => Rewards::All([0.0, 0.1, 1.0, -1.0][random.below(4)]),
                    1 | 2 => Rewards::Binary(random.unit()),
                    _ => Rewards::Real,
                };
                (1 + random.below(40), rewards)
            })
            .collect();
        let budget = Budget {
            rounds: random.below(12) as u32,
            step_rollouts: if random.below(3) == 0 { random.below(200) as u32 } else { u32::MAX },
            run_rollouts: if random.below(3) == 0 { random.below(500) as u32 } else { 100_000 },
            run_tokens: if random.below(3) == 0 { random.below(50_000) as u64 } else { u64::MAX },
            run_flops: (i % 3 == 0).then(|| f64::from(i) * 1e12),
        };
        let round = random.below(4) as u32;
        let mut view = m.view(random.below(200) as u32, &groups, budget, round);
        view.seed = random.bits() as u32;
        view.step = random.below(100) as u32;
        let kind = if i % LARGE_DATA_SET == LARGE_DATA_SET - 1 { Kind::ManyPrompts } else { Kind::Random };
        made.push(Fixture { title: format!("random view {i}"), kind, view });
    }
    made
}

/// Returns the views with one of each kind in turn, so that a shortened check covers all kinds.
pub fn in_turn(views: Vec<Fixture>) -> Vec<Fixture> {
    let mut tried = [0_usize; 4];
    let place = |fixture: Fixture| {
        let of_its_kind = &mut tried[fixture.kind as usize];
        *of_its_kind += 1;
        (*of_its_kind, fixture)
    };
    let mut placed: Vec<(usize, Fixture)> = views.into_iter().map(place).collect();
    placed.sort_by_key(|(turn, fixture)| (*turn, fixture.kind));
    placed.into_iter().map(|(_, fixture)| fixture).collect()
}

/// Returns a view at `times` the scale of Pilot-Commit's published 4B run: a pool of 384, 128 groups,
/// 18,432 buffered rollouts.
pub fn scale(times: usize, signals: usize) -> View {
    Maker { signals }.view(384 * times as u32, &vec![(144, Rewards::Binary(0.4)); 128 * times], OPEN, 1)
}

/// Returns the run of these views, with a data set of `prompts` prompts and these columns.
pub fn run(settings: Vec<(String, Value)>, columns: &[String], prompts: u32) -> Run {
    let columns = self::columns(columns, prompts);
    let terms = (!columns.is_empty()).then(|| Terms { columns, ..Terms::default() });
    Run { settings, prompts, steps: 200, groups: 16, rollouts: 8, pool: 64, max_age: 5, lag: 0, terms }
}

/// Returns columns with these names for `prompts` prompts: levels from 1 to 5, or the prompts' lengths.
pub fn columns(names: &[String], prompts: u32) -> Columns {
    let mut columns = Columns::default();
    for name in names {
        let number = |id: u32| if name == LENGTH { length(id) } else { 1 + id % 5 };
        columns.add(Column::of(name, (0..prompts).map(|id| number(id) as f32).collect()));
    }
    columns
}

fn length(id: u32) -> u32 {
    50 + id % 100
}

struct Maker {
    signals: usize,
}

impl Maker {
    /// Returns a view with a pool of `pool` prompts (half of them visited before), and these groups.
    fn view(&self, pool: u32, groups: &[(usize, Rewards)], budget: Budget, round: u32) -> View {
        let mut random = Stream::new(u64::from(pool) * 1000 + groups.len() as u64);
        let first_in_pool = groups.len() as u32;
        let offered: Vec<Prompt> = (0..pool).map(|i| prompt(first_in_pool + i, &mut random)).collect();
        // Unscored rollouts of the first group and, with more groups, of a prompt without other rollouts.
        let lost = [(0, 2), (first_in_pool + pool, 1)].map(|(prompt, rollouts)| (PromptId(prompt), rollouts));
        let lost = lost.into_iter().take(groups.len()).map(|(prompt, rollouts)| Tally { prompt, rollouts });
        let unscored = lost.collect();
        View {
            step: 5,
            round,
            seed: 12_345,
            budget,
            pool: offered.clone(),
            groups: groups
                .iter()
                .enumerate()
                .map(|(i, (n, rewards))| self.group(i as u32, *n, *rewards, &mut random))
                .collect(),
            unscored,
            history: offered.iter().filter_map(|prompt| Some((prompt.id, prompt.past?))).collect(),
        }
    }

    fn group(&self, prompt: u32, n: usize, rewards: Rewards, random: &mut Stream) -> Group {
        let mut draw = || match rewards {
            Rewards::All(r) => r,
            Rewards::Binary(p) => f32::from(random.unit() < p),
            Rewards::Real => (2.0 * random.unit() - 1.0) as f32,
        };
        let rewards: Vec<f32> = (0..n).map(|_| draw()).collect();
        let correct = rewards.iter().map(|r| *r > 0.5).collect();
        let tokens: Vec<u32> = (0..n).map(|_| 1 + random.below(500) as u32).collect();
        Group {
            prompt: PromptId(prompt),
            epoch: prompt % 3,
            turns: GroupTurns::default(),
            correct,
            tokens,
            ages: vec![0; n],
            truncated: (0..n).map(|_| random.below(20) == 0).collect(),
            signals: vec![rewards.clone(); self.signals],
            sampling: Vec::new(),
            trained: Vec::new(),
            rewards,
        }
    }
}

/// Makes a view's rollouts episodes, for a policy that looks at turns. For others it would only take time, as a view may
/// have 300,000 rollouts.
pub fn add_turns(view: &mut View) {
    view.groups.iter_mut().for_each(|group| group.turns = turns(&group.tokens));
}

/// Returns turns of these rollouts, of which the last continues the first if it can.
fn turns(tokens: &[u32]) -> GroupTurns {
    let of = |tokens: &u32| {
        let more = tokens % 4;
        let rest = (0..more.min(tokens - 1)).map(|_| TurnLength(7, 1));
        let first = TurnLength(0, tokens - rest.len() as u32);
        std::iter::once(first).chain(rest).collect::<Vec<_>>()
    };
    let lengths: Vec<Vec<TurnLength>> = tokens.iter().map(of).collect();
    let continued = lengths.len() > 1 && lengths[0].len() > 1;
    let last = lengths.len().saturating_sub(1);
    let origin = |i| (i == last).then_some(Origin { rollout: Some(0), turn: 0 });
    let origins = if continued { (0..lengths.len()).map(origin).collect() } else { Vec::new() };
    let stopped = tokens.iter().map(|n| if n % 9 == 0 { Stopped::MaxTurns } else { Stopped::Done });
    GroupTurns { stopped: stopped.collect(), lengths, origins }
}

fn prompt(id: u32, random: &mut Stream) -> Prompt {
    let past = id.is_multiple_of(2).then(|| {
        let rollouts = 1 + random.below(16) as u32;
        let correct = match random.below(3) {
            0 => 0,
            1 => rollouts,
            _ => random.below(rollouts as usize + 1) as u32,
        };
        let mean = correct as f32 / rollouts as f32;
        let flat = correct == 0 || correct == rollouts;
        Past {
            step: 3,
            visits: 4,
            rollouts,
            correct,
            mean,
            deviation: (mean * (1.0 - mean)).sqrt(),
            tokens: 120.5,
            streak: if flat { 1 + random.below(4) as u32 } else { 0 },
            total_rollouts: rollouts * 4,
            total_correct: correct * 4,
        }
    });
    Prompt { id: PromptId(id), epoch: 1, tokens: length(id), past }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_names_prompts_of_its_data_set_only() {
        for Fixture { title, kind, view } in views(1, 300) {
            let pool = view.pool.iter().map(|prompt| prompt.id);
            let groups = view.groups.iter().map(|group| group.prompt);
            let unscored = view.unscored.iter().map(|tally| tally.prompt);
            let last = pool.chain(groups).chain(unscored).max();
            assert!(last.is_none_or(|id| id.0 < kind.prompts()), "{title}: {last:?}");
        }
    }

    #[test]
    fn each_kind_has_its_turn() {
        let order: Vec<Kind> = in_turn(views(0, 300)).iter().map(|fixture| fixture.kind).collect();
        let kinds = [Kind::Corner, Kind::Random, Kind::ManyRollouts, Kind::ManyPrompts];
        assert_eq!(order.len(), 321);
        assert_eq!((&order[..4], &order[4..8]), (&kinds[..], &kinds[..]));
        let count = |kind| order.iter().filter(|other| **other == kind).count();
        assert_eq!(kinds.map(count), [18, 296, 3, 4]);
    }
}
