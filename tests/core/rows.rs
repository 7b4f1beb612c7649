//! Episodes of several training rows: sampled to the byte as by the plain twin, each token learned from once in the row that
//! it was generated in, a rollout counted once, and no more spent than was granted.

use allot_allocation::GrantLine;
use allot_engine::episode::{Ended, EpisodeLimits, Opening, Reply, Stopped, Turn};
use allot_engine::talk::{History, NextTurn, Talk, from_the_start};
use allot_engine::{Environments, Replies, Said, TrainingRow};

use super::*;

const READ: u32 = 60;

/// What an environment says after these turns: the training row that goes on and what is read in it, or nothing at the end. A
/// function of all that was generated, so that a different token anywhere shows.
fn said(number: usize, turns: &[Turn], tokens: &[u32]) -> Option<(u32, Vec<u32>)> {
    let sum = tokens.iter().fold(number as u32 + 1, |sum, token| sum.wrapping_mul(31).wrapping_add(*token));
    let rows = turns.iter().map(|turn| turn.row + 1).max().unwrap_or(1);
    let row = match sum % 5 {
        0 if turns.len() > 3 => return None,
        1 | 2 => turns.last().map_or(0, |turn| turn.row),
        // An earlier one, or the next.
        _ => (sum / 5) % (rows + 1).min(4),
    };
    // A new row begins with what was said elsewhere, shorter or longer than the prompt.
    let least = u32::from(row == rows);
    Some((row, (0..least + sum % 7).map(|i| 8 + (sum / 7 + 3 * i) % 40).collect()))
}

/// The turns of an episode, with the answer of each.
#[derive(Clone, Debug, Default, PartialEq)]
struct Played {
    turns: Vec<Turn>,
    tokens: Vec<u32>,
    answers: Vec<Answered>,
}

/// Samples an episode of each prompt.
fn played(prompts: &[Vec<u32>], converse: impl FnOnce(&[&[u32]], &mut Talk<'_>)) -> Vec<Played> {
    let mut all = vec![Played::default(); prompts.len()];
    let next = &mut |number: usize, answered: Option<Answered>| {
        let episode: &mut Played = &mut all[number];
        let (row, read) = match answered {
            None => (0, vec![9; number % 3]),
            Some(answered) => {
                episode.turns.last_mut().unwrap().tokens = answered.tokens.len() as u32;
                episode.tokens.extend(&answered.tokens);
                episode.answers.push(answered);
                let goes_on = episode.turns.len() <= 7;
                goes_on.then(|| said(number, &episode.turns, &episode.tokens)).flatten()?
            }
        };
        let current = episode.turns.last().map_or(0, |turn| turn.row);
        episode.turns.push(Turn { row, read: read.clone(), tokens: 0 });
        let anew = (row != current).then(|| {
            let mut rows = TrainingRow::of_turns(&episode.turns, &episode.tokens);
            let TrainingRow { beginning, own, .. } = rows.swap_remove(row as usize);
            History { beginning, own }
        });
        let sampling = Sampling { max_tokens: 9, ..Sampling::default() };
        let seed = number as u64 * 100 + episode.turns.len() as u64;
        Some(NextTurn { read, anew, seed, sampling })
    };
    episodes::talked(prompts, next, converse);
    all
}

/// Kept caches are dropped where a row begins or another goes on, and nothing of them is left.
#[test]
fn rows_are_sampled_as_the_plain_twin_does_to_the_byte() {
    let never = Interrupt::new();
    for folder in folders() {
        let case = Case::read(&folder);
        let asked: Vec<Vec<u32>> =
            prompts().into_iter().flat_map(|prompt| std::iter::repeat_n(prompt, 5)).collect();
        for precision in [Precision::F32, Precision::Bf16] {
            let core = |threads| {
                let setup = Setup { precision, longest: 250, ..setup(threads) };
                Cpu::new(&case.checkpoint, setup).unwrap()
            };
            let one = core(1);
            let anew = played(&asked, |prompts, talk| {
                let sample: allot_engine::talk::Sampler<'_> =
                    &mut |requests, whole| one.sample(requests, &stops(), 4, whole, &never);
                from_the_start(prompts, sample, talk, &never).unwrap();
            });
            let rows = |episode: &Played| TrainingRow::of_turns(&episode.turns, &episode.tokens);
            let back = |episode: &Played| episode.turns.windows(2).any(|pair| pair[1].row < pair[0].row);
            assert!(anew.iter().filter(|episode| rows(episode).len() > 2).count() > 3, "{anew:?}");
            assert!(anew.iter().filter(|episode| back(episode)).count() > 3, "{anew:?}");
            for (threads, rows) in [(1, 1), (1, 64), (2, 7), (3, 64)] {
                let kept = core(threads);
                let ours = played(&asked, |prompts, talk| {
                    kept.converse(prompts, &stops(), rows, 200, talk, &never).unwrap();
                });
                let name = name(&folder);
                assert!(ours == anew, "{name} in {precision:?} with {threads} threads and {rows} rows");
            }
        }
    }
}

/// An environment that says what [`said`] does.
struct Rewrites(HashMap<usize, (Vec<Turn>, Vec<u32>)>);

impl Environments for Rewrites {
    fn limits(&self) -> EpisodeLimits {
        EpisodeLimits { turns: 7, read: READ, reply: None, whole: None }
    }

    fn begin(&mut self, opening: Opening, replies: &Replies) {
        let turn = Turn { row: 0, read: vec![9; (opening.start % 3) as usize], tokens: 0 };
        replies.send(Reply::Says(turn.read.clone()));
        self.0.insert(opening.number, (vec![turn], Vec::new()));
    }

    fn turn(&mut self, number: usize, turn: Said<'_>, stop: Option<Stopped>, replies: &Replies) {
        let (turns, tokens) = self.0.get_mut(&number).unwrap();
        tokens.extend(turn.tokens);
        if let Some(last) = turns.last_mut() {
            last.tokens = turn.tokens.len() as u32;
        }
        match said(number, turns, tokens).filter(|_| stop.is_none()) {
            None => replies.send(Reply::Ends(Ended::rewarded(tokens.len() as f32, Some(true)))),
            Some((row, read)) => {
                turns.push(Turn { row, read: read.clone(), tokens: 0 });
                replies.send(Reply::Elsewhere(row, read));
            }
        }
    }

    fn abandon(&mut self) {
        self.0.clear();
    }
}

fn engine(case: &Case, update: UpdateConfig) -> Native {
    let core = Box::new(Cpu::new(&case.checkpoint, Setup { longest: 250, ..setup(2) }).unwrap());
    let stops = Stops::from((0..1000).step_by(2).collect::<Vec<u32>>());
    Native::new(core, NativeConfig { stops, ..native(update) }, prompts())
        .with_environments(Box::new(Rewrites(HashMap::new())))
}

fn sampled(engine: &mut Native) -> Vec<Sample<Answer>> {
    let limits = Limits { rounds: 9, step_rollouts: None, run_rollouts: None, run_tokens: None, longest: 20 };
    let mut ledger = Ledger::new(limits);
    let order: Vec<_> = (0..4).map(|prompt| allot_allocation::Request::new(PromptId(prompt), 6)).collect();
    let grant = ledger.grant(&order, |_| (0, 0));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let sampled =
        runtime.block_on(engine.sample(grant, Purpose::Training, &mut |_, _| {}, &Interrupt::new()));
    let sampled: Vec<_> = sampled.unwrap().into_iter().flatten().collect();
    ledger.charge(sampled.iter().map(|s| (s.prompt, s.position, s.tokens))).unwrap();
    sampled
}

/// Each token is in one row, and has there the log-probability of a pass over the row. All rows together are within the limits
/// of an episode, and within its bound of operations.
#[test]
fn each_token_belongs_to_one_row_and_a_rollout_costs_no_more_than_it_was_granted() {
    let case = Case::read(&folders().swap_remove(0));
    let mut engine = engine(&case, UpdateConfig::default());
    let rollouts = sampled(&mut engine);
    assert!(sampled(&mut engine) == rollouts, "it is the same each time");
    assert!(rollouts.iter().filter(|sample| sample.answer.rows().len() > 2).count() > 3, "{rollouts:?}");
    let mut core = Cpu::new(&case.checkpoint, Setup { longest: 250, ..setup(1) }).unwrap();
    for sample in &rollouts {
        let answer = &sample.answer;
        let (prompt, episode) = (&prompts()[sample.prompt.0 as usize], answer.episode.as_ref().unwrap());
        assert!(episode.read() <= READ as usize && episode.turns.len() <= 7 && sample.tokens <= 20);
        let (mut generated, mut read) = (0, 0);
        for row in answer.rows() {
            let beginning = row.beginning.as_ref().unwrap_or(prompt);
            let at = beginning.len();
            let observed: Vec<_> = row.read.iter().map(|range| range.start + at..range.end + at).collect();
            let tokens = [&beginning[..], &row.own].concat();
            let sequence = Sequence { tokens: &tokens, prompt: at, observed: &observed, mask: None };
            assert_eq!(sequence.answer(), row.answer());
            let scored = core.score(&[sequence], PLAIN, false).unwrap();
            let scored: Vec<f32> = scored[0].iter().map(|t| t.log_prob).collect();
            assert_eq!(scored, row.gather(&answer.log_probs), "on the CPU to the last bit");
            generated += row.answer();
            read += row.own.len() - row.answer() + row.beginning.as_ref().map_or(0, Vec::len);
        }
        assert_eq!((generated, read), (answer.tokens.len(), answer.read()));
        let line = GrantLine {
            prompt: sample.prompt,
            first: 0,
            count: 1,
            sampling: None,
            begun: 0,
            starts: Vec::new(),
        };
        let (compute, cost) =
            (engine.sampled(&[line], std::slice::from_ref(sample)), engine.cost(sample.prompt, 20));
        assert_eq!(compute.read_tokens as usize, answer.read());
        assert!(compute.flops.decode <= cost.answering, "{} of {}", compute.flops.decode, cost.answering);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut learner = self::engine(&case, UpdateConfig::default());
        let example = Example { sample, advantage: 1.0, by_turn: &[] };
        runtime.block_on(learner.update(&[example], None, &Interrupt::new())).unwrap();
        let learned = learner.computed().flops.training;
        assert!(learned > 0.0 && learned <= cost.learning, "{learned} of {}", cost.learning);
    }
}

/// A rollout with these rows, each of its first tokens and its turns, all generated in turn.
fn rollout(prompt: u32, rows: &[(&[u32], &[u32])]) -> Sample<Answer> {
    let turn = |(row, (read, said)): (usize, &(&[u32], &[u32]))| Turn {
        row: row as u32,
        read: if row == 0 { Vec::new() } else { read.to_vec() },
        tokens: said.len() as u32,
    };
    let tokens: Vec<u32> = rows.iter().flat_map(|(_, said)| said.iter().copied()).collect();
    let episode = allot_engine::Episode {
        kept: Vec::new(),
        turns: rows.iter().enumerate().map(turn).collect(),
        stopped: Stopped::Done,
        end: Ended::rewarded(1.0, None),
    };
    Sample {
        prompt: PromptId(prompt),
        position: 0,
        version: 0,
        tokens: tokens.len() as u32,
        truncated: false,
        log_prob: 0.0,
        signals: Vec::new(),
        sampling: None,
        answer: Answer {
            log_probs: vec![0.0; tokens.len()],
            tokens,
            episode: Some(Box::new(episode)),
            ..Answer::default()
        },
    }
}

/// The weights after an update, and its metrics.
fn learned(
    case: &Case,
    (kind, rate): (LossKind, f64),
    cut: UpdateConfig,
    batch: &[(Sample<Answer>, f32)],
) -> (Vec<f32>, HashMap<&'static str, f64>) {
    let update = UpdateConfig { loss: LossConfig::of(kind), old_log_probs: Old::Recomputed, ..cut };
    let core = Box::new(Cpu::new(&case.checkpoint, setup(2)).unwrap());
    let prompts = vec![vec![8, 9, 10], vec![11, 12, 13, 14], vec![15, 16]];
    let optimizer = OptimizerConfig { learning_rate: rate, ..OptimizerConfig::default() };
    let mut engine = Native::new(core, NativeConfig { optimizer, ..native(update) }, prompts);
    let examples: Vec<_> = batch
        .iter()
        .map(|(sample, advantage)| Example { sample, advantage: *advantage, by_turn: &[] })
        .collect();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let report = runtime.block_on(engine.update(&examples, None, &Interrupt::new())).unwrap();
    let after = engine.core().checkpoint().unwrap();
    let tokens: Vec<u32> = (0..20).map(|i| 8 + (i * 7) % 40).collect();
    let sequence = Sequence { tokens: &tokens, prompt: 3, observed: &[], mask: None };
    let scored = Cpu::new(&after, setup(1)).unwrap().score(&[sequence], PLAIN, false).unwrap();
    (scored[0].iter().map(|t| t.log_prob).collect(), report.metrics.into_iter().collect())
}

/// Rows of one rollout teach as rollouts of their own would whose advantages make up for how losses count them.
#[test]
fn a_rollout_of_several_rows_counts_once_in_every_loss() {
    let case = Case::read(&folders().swap_remove(0));
    let (first, second, third): (&[u32], &[u32], &[u32]) = (&[20, 21], &[22], &[23, 24, 25]);
    let together = rollout(0, &[(&[8, 9, 10], first), (&[11, 12, 13, 14], second), (&[15, 16], third)]);
    let apart = [rollout(0, &[(&[], first)]), rollout(1, &[(&[], second)]), rollout(2, &[(&[], third)])];
    for kind in [LossKind::Grpo, LossKind::DrGrpo, LossKind::Dapo, LossKind::Cispo] {
        let (kind, whole_batch) = ((kind, 1e-4), UpdateConfig::default());
        let (whole, told) = learned(&case, kind, whole_batch, &[(together.clone(), 0.7)]);
        let weighed: Vec<(Sample<Answer>, f32)> = apart
            .iter()
            .map(|sample| {
                let advantage = match kind.0 {
                    // Of one rollout with six tokens, not of three with their own.
                    LossKind::Grpo => 0.7 * 3.0 * sample.tokens as f32 / 6.0,
                    LossKind::DrGrpo => 0.7 * 3.0,
                    _ => 0.7,
                };
                (sample.clone(), advantage)
            })
            .collect();
        let (parts, _) = learned(&case, kind, whole_batch, &weighed);
        let (plain, _) = learned(&case, kind, whole_batch, &[(apart[0].clone(), 0.7)]);
        let off = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(off(&whole, &parts) < 1e-4, "{kind:?}: {}", off(&whole, &parts));
        assert!(off(&whole, &plain) > 1e-3, "{kind:?}: its other rows teach, too: {}", off(&whole, &plain));
        assert_eq!(told["optimizer_steps"], 1.0);
    }
    // Mini-batches count rollouts, whatever rows they have.
    let batch: Vec<(Sample<Answer>, f32)> =
        [&together, &apart[1], &together].into_iter().map(|sample| (sample.clone(), 0.5)).collect();
    let steps = |cut: UpdateConfig| learned(&case, (LossKind::Grpo, 1e-4), cut, &batch).1["optimizer_steps"];
    assert_eq!(steps(UpdateConfig { mini_batch: 2, ..UpdateConfig::default() }), 2.0);
    // By tokens, too, a rollout is never split: they have six, one and six in all of their rows.
    for (mini_batch_tokens, expected) in [(13, 1.0), (7, 2.0), (6, 3.0), (2, 3.0)] {
        assert_eq!(steps(UpdateConfig { mini_batch_tokens, ..UpdateConfig::default() }), expected);
    }
}

/// Whatever neighbours a rollout is cut with by tokens, it counts as in one step of the whole batch. By rollouts, each step
/// is a mean of its own.
#[test]
fn in_mini_batches_by_tokens_a_rollout_counts_as_in_the_whole_batch() {
    let case = Case::read(&folders().swap_remove(0));
    let answers: [&[u32]; 5] = [&[20, 21], &[22], &[23, 24, 25, 26, 27, 28], &[29, 30], &[31]];
    let batch: Vec<(Sample<Answer>, f32)> = answers
        .iter()
        .zip([0.5, -1.5, 2.0, 0.0, 0.75])
        .enumerate()
        .map(|(i, (answer, advantage))| (rollout(i as u32 % 3, &[(&[], *answer)]), advantage))
        .collect();
    let loss = |kind, cut: UpdateConfig| {
        let (_, told) = learned(&case, (kind, 0.0), cut, &batch);
        (told["loss"], told["optimizer_steps"])
    };
    let kinds =
        [LossKind::Grpo, LossKind::DrGrpo, LossKind::Dapo, LossKind::Gspo, LossKind::Cispo, LossKind::Rloo];
    for kind in kinds {
        let (whole, _) = loss(kind, UpdateConfig::default());
        assert!(whole.abs() > 1e-3, "{kind:?}: {whole}");
        for (mini_batch_tokens, steps) in [(1, 5.0), (3, 3.0), (9, 2.0), (99, 1.0)] {
            let (parts, made) = loss(kind, UpdateConfig { mini_batch_tokens, ..UpdateConfig::default() });
            assert_eq!(made, steps, "{mini_batch_tokens}");
            assert!(
                (parts - whole).abs() < 1e-9,
                "{kind:?} by {mini_batch_tokens}: {parts} instead of {whole}"
            );
        }
        let (own_means, _) = loss(kind, UpdateConfig { mini_batch: 3, ..UpdateConfig::default() });
        assert!((own_means - whole).abs() > 1e-3, "{kind:?}: {own_means}");
    }
}
