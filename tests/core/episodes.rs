//! Episodes: kept caches against reading anew, to the byte; what is learned from them, and what is not.

use std::time::Duration;

use allot_allocation::Start;
use allot_engine::episode::{Ended, EpisodeLimits, Opening, Reply, Stopped};
use allot_engine::talk::{Event, Next, NextTurn, Talk, from_the_start};
use allot_engine::{Environments, Replies, Said, TrainingRow};

use super::*;

const MOST: u32 = 12;
const READ: u32 = 24;

/// What an environment says after a turn: some tokens, or the end. A function of what was said before, so that a
/// different token anywhere shows.
fn said(number: usize, so_far: &[u32]) -> Option<Vec<u32>> {
    let sum = so_far.iter().fold(number as u32, |sum, token| sum.wrapping_mul(31).wrapping_add(*token));
    (so_far.len() < 30 && sum % 7 != 0).then(|| (0..sum % 5).map(|i| 8 + (sum / 5 + 3 * i) % 40).collect())
}

/// Samples an episode of each prompt. `next` says what follows in it, at first and after each turn: another turn, or the end.
pub fn talked(
    prompts: &[Vec<u32>],
    next: &mut dyn FnMut(usize, Option<Answered>) -> Option<NextTurn>,
    converse: impl FnOnce(&[&[u32]], &mut Talk<'_>),
) {
    let channel = Talk::channel();
    for number in 0..prompts.len() {
        channel.0.send(Event::Reply(number, 0, Reply::Says(Vec::new()))).unwrap();
    }
    let take = &mut |event| {
        let (number, answered) = match event {
            Event::Reply(number, ..) => (number, None),
            Event::Turn(number, answered) => (number, Some(answered)),
            Event::Tick | Event::Lost => return None,
        };
        Some(next(number, answered).map_or(Next::End(number), |turn| Next::Turn(number, turn)))
    };
    let asked: Vec<&[u32]> = prompts.iter().map(Vec::as_slice).collect();
    converse(&asked, &mut Talk::new(channel, take));
}

/// Samples an episode of each prompt. Returns each one's tokens, log-probabilities and entropies by turn.
fn played(
    prompts: &[Vec<u32>],
    rows: usize,
    converse: impl FnOnce(&[&[u32]], &mut Talk<'_>, usize),
) -> Vec<Vec<(Vec<u32>, Answered)>> {
    let mut episodes: Vec<Vec<(Vec<u32>, Answered)>> = vec![Vec::new(); prompts.len()];
    let mut so_far: Vec<Vec<u32>> = vec![Vec::new(); prompts.len()];
    let next = &mut |number: usize, answered: Option<Answered>| {
        let read = match answered {
            None => vec![9; number % 3],
            Some(answered) => {
                so_far[number].extend(&answered.tokens);
                episodes[number].last_mut().unwrap().1 = answered;
                said(number, &so_far[number])?
            }
        };
        so_far[number].extend(&read);
        let turn = episodes[number].len();
        episodes[number].push((read.clone(), Answered::default()));
        let sampling = Sampling {
            temperature: 1.0 + 0.2 * (number % 2) as f32,
            max_tokens: MOST,
            ..Sampling::default()
        };
        let seed = number as u64 * 100 + turn as u64;
        Some(NextTurn { read, anew: None, seed, sampling })
    };
    talked(prompts, next, |prompts, talk| converse(prompts, talk, rows));
    episodes
}

/// Five rollouts of each of some prompts, in every family and both number formats.
#[test]
fn kept_caches_give_what_reading_anew_gives_to_the_byte() {
    let never = Interrupt::new();
    for folder in folders() {
        let case = Case::read(&folder);
        let asked: Vec<Vec<u32>> =
            prompts().into_iter().flat_map(|prompt| std::iter::repeat_n(prompt, 5)).collect();
        for precision in [Precision::F32, Precision::Bf16] {
            let core = |threads| {
                let setup = Setup { precision, longest: 200, ..setup(threads) };
                Cpu::new(&case.checkpoint, setup).unwrap()
            };
            let one = core(1);
            let anew = played(&asked, 4, |prompts, talk, rows| {
                let sample: allot_engine::talk::Sampler<'_> =
                    &mut |requests, whole| one.sample(requests, &stops(), rows, whole, &never);
                from_the_start(prompts, sample, talk, &never).unwrap();
            });
            let turns: usize = anew.iter().map(Vec::len).sum();
            assert!(turns > 2 * asked.len(), "{turns} turns");
            for (threads, rows) in [(1, 1), (1, 64), (2, 7), (3, 64)] {
                let kept = core(threads);
                let ours = played(&asked, rows, |prompts, talk, rows| {
                    kept.converse(prompts, &stops(), rows, 200, talk, &never).unwrap();
                });
                let name = name(&folder);
                assert!(ours == anew, "{name} in {precision:?} with {threads} threads and {rows} rows");
            }
        }
    }
}

/// An environment in threads of its own, each of which waits before it replies; some never do as they should.
struct Threads {
    so_far: HashMap<usize, Vec<u32>>,
    /// What each episode's replies depend on, beside what was said: its number, or its prompt.
    keys: HashMap<usize, usize>,
    by_prompt: bool,
    lies: bool,
}

impl Environments for Threads {
    fn limits(&self) -> EpisodeLimits {
        EpisodeLimits { turns: 6, read: READ, reply: None, whole: None }
    }

    fn begin(&mut self, opening: Opening, replies: &Replies) {
        self.so_far.insert(opening.number, Vec::new());
        let key = if self.by_prompt { opening.prompt.0 as usize } else { opening.number };
        self.keys.insert(opening.number, key);
        replies.send(Reply::Says(vec![9; (opening.start % 3) as usize]));
    }

    fn turn(&mut self, number: usize, turn: Said<'_>, stop: Option<Stopped>, replies: &Replies) {
        let so_far = self.so_far.get_mut(&number).unwrap();
        so_far.extend(turn.tokens);
        let end = Ended::rewarded(so_far.len() as f32, Some(true));
        let reply = match said(self.keys[&number], so_far).filter(|_| stop.is_none()) {
            None => Reply::Ends(end),
            Some(read) => Reply::Says(read),
        };
        let flood = Reply::Says(vec![9; 10_000]);
        let replies = replies.clone();
        let (lies, wait) = (self.lies, Duration::from_millis(number as u64 % 4));
        std::thread::spawn(move || {
            std::thread::sleep(wait);
            match number % 5 {
                // More than fits, and on after the end.
                1 if lies => replies.send(flood),
                // Twice.
                2 if lies => {
                    replies.send(reply.clone());
                    replies.send(reply);
                }
                _ => replies.send(reply),
            }
        });
    }

    fn abandon(&mut self) {
        self.so_far.clear();
    }
}

fn engine(case: &Case, lies: bool) -> Native {
    engine_of(case, lies, false)
}

fn engine_of(case: &Case, lies: bool, by_prompt: bool) -> Native {
    let core = Box::new(Cpu::new(&case.checkpoint, Setup { longest: 200, ..setup(2) }).unwrap());
    let environments = Box::new(Threads { so_far: HashMap::new(), keys: HashMap::new(), by_prompt, lies });
    // A fifth of all tokens ends a turn, as the models are not trained to.
    let stops = Stops::from((0..1000).step_by(5).collect::<Vec<u32>>());
    let config = NativeConfig { stops, ..native(UpdateConfig::default()) };
    Native::new(core, config, prompts()).with_environments(environments)
}

fn episodes(engine: &mut Native, count: u32) -> Vec<Sample<Answer>> {
    let order: Vec<_> =
        (0..4).map(|prompt| allot_allocation::Request::new(PromptId(prompt), count)).collect();
    sampled(engine, &order, 0)
}

/// Samples these requests, from this position on.
fn sampled(engine: &mut Native, order: &[allot_allocation::Request], first: u32) -> Vec<Sample<Answer>> {
    let limits = Limits { rounds: 9, step_rollouts: None, run_rollouts: None, run_tokens: None, longest: 20 };
    let mut ledger = Ledger::new(limits);
    let grant = ledger.grant(order, |_| (first, 0));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let sampled =
        runtime.block_on(engine.sample(grant, Purpose::Training, &mut |_, _| {}, &Interrupt::new()));
    let sampled: Vec<_> = sampled.unwrap().into_iter().flatten().collect();
    ledger.charge(sampled.iter().map(|s| (s.prompt, s.position, s.tokens))).unwrap();
    sampled
}

/// The order in which environments reply changes nothing, and each token's log-probability is that of a pass over the
/// whole episode.
#[test]
fn an_episode_is_the_same_whenever_its_environment_replies() {
    let case = Case::read(&folders().swap_remove(0));
    let first = episodes(&mut engine(&case, false), 6);
    let mut reasons = HashMap::new();
    for _ in 0..3 {
        assert!(episodes(&mut engine(&case, false), 6) == first);
    }
    let mut core = Cpu::new(&case.checkpoint, Setup { longest: 200, ..setup(1) }).unwrap();
    for sample in &first {
        let episode = sample.answer.episode.as_ref().unwrap();
        *reasons.entry(episode.stopped.name()).or_insert(0) += 1;
        let prompt = &prompts()[sample.prompt.0 as usize];
        let TrainingRow { own, read, .. } = sample.answer.rows().remove(0);
        let observed: Vec<_> = read.iter().map(|r| r.start + prompt.len()..r.end + prompt.len()).collect();
        let tokens = [&prompt[..], &own].concat();
        let sequence = Sequence { tokens: &tokens, prompt: prompt.len(), observed: &observed, mask: None };
        assert_eq!(sequence.answer(), sample.tokens as usize);
        assert_eq!(own.len() - sample.answer.tokens.len(), sample.answer.read());
        let scored = core.score(&[sequence], PLAIN, false).unwrap();
        let scored: Vec<f32> = scored[0].iter().map(|t| t.log_prob).collect();
        assert_eq!(scored, sample.answer.log_probs, "on the CPU to the last bit");
        assert!(episode.read() <= READ as usize && episode.turns.len() <= 6 && sample.tokens <= 20);
        assert_eq!(sample.truncated, matches!(episode.stopped, Stopped::MaxTokens | Stopped::MaxReadTokens));
    }
    assert!(reasons.len() >= 3, "{reasons:?}");
}

/// What an episode continues, and the episode.
type Continued = (Start, Sample<Answer>);

/// The episodes of each prompt, and those that continue them: of each that can be continued, each turn.
fn continued(engine: &mut Native) -> (Vec<Sample<Answer>>, Vec<Continued>) {
    let first = episodes(engine, 6);
    let (mut order, mut held, mut all) = (Vec::new(), HashMap::new(), Vec::new());
    for sample in &first {
        held.insert((sample.prompt, sample.position), sample.answer.clone());
        let turns = sample.answer.episode.as_ref().unwrap().turns.len() as u32;
        all.extend(
            (1..turns).map(|next| (sample.prompt, Start { rollout: sample.position, turn: next - 1 })),
        );
    }
    for prompt in (0..4).map(PromptId) {
        let starts: Vec<_> = all.iter().filter(|(of, _)| *of == prompt).map(|(_, s)| Some(*s)).collect();
        let request = allot_allocation::Request::new(prompt, starts.len() as u32);
        order.extend((!starts.is_empty()).then_some(allot_allocation::Request { starts, ..request }));
    }
    engine.hold(held);
    (first, all.into_iter().map(|(_, start)| start).zip(sampled(engine, &order, 6)).collect())
}

/// What is continued keeps all up to its turn, is told what that episode was told, goes on by draws of its own, and has
/// the log-probabilities of a pass over the whole of it.
#[test]
fn an_episode_continues_another_from_a_turn_on() {
    let case = Case::read(&folders().swap_remove(0));
    let (first, others) = continued(&mut engine_of(&case, false, true));
    assert!(others.len() > 20, "{}", others.len());
    assert!(continued(&mut engine_of(&case, false, true)).1 == others, "it is the same each time");
    let mut core = Cpu::new(&case.checkpoint, Setup { longest: 200, ..setup(1) }).unwrap();
    let (mut elsewhere, mut deep) = (0, 0);
    for (Start { rollout, turn }, sample) in &others {
        let source = first.iter().find(|s| (s.prompt, s.position) == (sample.prompt, *rollout)).unwrap();
        let old = source.answer.episode.as_ref().unwrap().all_turns(&source.answer.tokens);
        let episode = sample.answer.episode.as_ref().unwrap();
        assert_ne!(episode.stopped, Stopped::EnvironmentError, "{episode:?}");
        let new = episode.all_turns(&sample.answer.tokens);
        let kept = *turn as usize + 1;
        assert_eq!((episode.kept.len(), new.len()), (kept, kept + episode.turns.len()));
        assert_eq!(new[..kept], old[..kept]);
        assert_eq!(new[kept].0, old[kept].0, "the reply to what is kept");
        elsewhere += u32::from(new[kept].1 != old[kept].1);
        // Limits are those of the whole episode; what is kept was generated elsewhere.
        let generated: usize = new.iter().map(|(_, said)| said.len()).sum();
        let before: usize = old[..kept].iter().map(|(_, said)| said.len()).sum();
        let read: usize = new.iter().map(|(read, _)| read.len()).sum();
        assert_eq!(sample.tokens as usize, generated - before);
        assert!(generated <= 20 && read <= READ as usize && new.len() <= 6, "{new:?}");
        deep += u32::from(kept > 1);
        let prompt = &prompts()[sample.prompt.0 as usize];
        let TrainingRow { own, read: observed, .. } = sample.answer.rows().remove(0);
        let observed: Vec<_> =
            observed.iter().map(|r| r.start + prompt.len()..r.end + prompt.len()).collect();
        let tokens = [&prompt[..], &own].concat();
        let sequence = Sequence { tokens: &tokens, prompt: prompt.len(), observed: &observed, mask: None };
        assert_eq!(sequence.answer(), sample.tokens as usize, "what is kept is not learned from again");
        let scored = core.score(&[sequence], PLAIN, false).unwrap();
        let scored: Vec<f32> = scored[0].iter().map(|t| t.log_prob).collect();
        assert_eq!(scored, sample.answer.log_probs, "on the CPU to the last bit");
    }
    assert!(elsewhere > 10 && deep > 5, "{elsewhere} {deep}");
}

/// An environment that is not deterministic costs its own rollouts, and says so.
#[test]
fn an_environment_that_replies_otherwise_can_not_be_continued() {
    let case = Case::read(&folders().swap_remove(0));
    let (_, others) = continued(&mut engine_of(&case, false, false));
    let failed: Vec<_> = others
        .iter()
        .map(|(_, sample)| sample.answer.episode.as_ref().unwrap())
        .filter(|episode| episode.stopped == Stopped::EnvironmentError)
        .collect();
    assert!(failed.len() > 5, "{}", failed.len());
    for episode in failed {
        assert!(episode.turns.is_empty() && episode.kept.is_empty() && episode.end.reward.is_none());
        assert!(episode.end.trouble.as_ref().unwrap().contains("did not reply as it did"), "{episode:?}");
    }
}

/// An environment that says too much, goes on after the end, or replies twice costs its own rollout.
#[test]
fn an_environment_that_lies_costs_its_own_rollouts() {
    let case = Case::read(&folders().swap_remove(0));
    let honest = episodes(&mut engine(&case, false), 5);
    let lied = episodes(&mut engine(&case, true), 5);
    for (number, (lied, honest)) in lied.iter().zip(&honest).enumerate() {
        if number % 5 != 1 {
            assert!(lied == honest, "{number}");
            continue;
        }
        let episode = lied.answer.episode.as_ref().unwrap();
        assert_eq!((episode.stopped, episode.end.reward), (Stopped::EnvironmentError, None));
        assert!(episode.end.trouble.as_ref().unwrap().contains("went on"), "{:?}", episode.end);
        assert_eq!(lied.tokens, episode.turns[0].tokens, "what was sampled is paid for");
    }
}

/// On every core: what is sampled turn by turn has the log-probabilities that a pass over the whole episode gives.
#[test]
fn each_core_says_of_an_episode_what_it_says_of_a_pass_over_it() {
    let never = Interrupt::new();
    for kind in cores() {
        for folder in folders() {
            let case = Case::read(&folder);
            let mut core = (kind.make)(&case.checkpoint, Setup { longest: 200, ..setup(2) });
            let asked = prompts();
            let episodes = played(&asked, 3, |prompts, talk, rows| {
                core.converse(prompts, &stops(), rows, 180, talk, &never).unwrap();
            });
            let mut furthest = 0.0_f32;
            for (number, (prompt, turns)) in asked.iter().zip(&episodes).enumerate() {
                let (mut tokens, mut observed) = (prompt.clone(), Vec::new());
                for (read, answered) in turns {
                    observed.extend((!read.is_empty()).then(|| tokens.len()..tokens.len() + read.len()));
                    tokens.extend(read);
                    tokens.extend(&answered.tokens);
                }
                let sequence =
                    Sequence { tokens: &tokens, prompt: prompt.len(), observed: &observed, mask: None };
                let temperature = 1.0 + 0.2 * (number % 2) as f32;
                let scored = core.score(&[sequence], PassOptions { temperature, ..PLAIN }, false).unwrap();
                let said: Vec<f32> = turns.iter().flat_map(|(_, turn)| turn.log_probs.clone()).collect();
                assert_eq!(scored[0].len(), said.len());
                for (scored, said) in scored[0].iter().zip(said) {
                    furthest = furthest.max((scored.log_prob - said).abs());
                }
            }
            // A device reads the turns so far as one prompt, in products of other shapes, which bf16 rounds otherwise.
            let most = if kind.exact || kind.sampled == 0.0 { kind.sampled } else { kind.log_prob };
            assert!(furthest <= most, "{} {}: {furthest:e}", kind.name, name(&folder));
        }
    }
}

/// A thread that panics ends sampling with its panic, and nothing waits for its turns.
#[test]
fn a_panic_among_episodes_is_a_panic() {
    let case = Case::read(&folders().swap_remove(0));
    for threads in [1, 3] {
        let core = Cpu::new(&case.checkpoint, Setup { longest: 200, ..setup(threads) }).unwrap();
        // A token that the model does not have.
        let broken = [vec![8, 9], vec![u32::MAX - 1]];
        let asked: Vec<Vec<u32>> = (0..20).map(|i| broken[usize::from(i == 11)].clone()).collect();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            played(&asked, 8, |prompts, talk, rows| {
                core.converse(prompts, &stops(), rows, 200, talk, &Interrupt::new()).unwrap();
            })
        }));
        assert!(panicked.is_err());
    }
}

/// The gradient of an episode is that of a plain answer whose other tokens count nothing.
#[test]
fn nothing_is_learned_from_what_an_environment_said() {
    for (kind, folder) in cores()
        .into_iter()
        .filter(|kind| kind.exact)
        .flat_map(|kind| folders().into_iter().map(move |f| (kind, f)))
    {
        let case = Case::read(&folder);
        let tokens: Vec<u32> = (0..30).map(|i| 8 + (i * 7) % 40).collect();
        let observed = [9..12, 20..21];
        let hidden = |place: usize| observed.iter().any(|range| range.contains(&place));
        let gathered = |observed: &[std::ops::Range<usize>]| {
            let mut core = (kind.make)(&case.checkpoint, setup(2));
            let sequence = Sequence { tokens: &tokens, prompt: 5, observed, mask: None };
            let places: Vec<usize> = sequence.generated().collect();
            let loss = |_: usize, statistics: &[TokenStatistics]| -> TokenGradients {
                assert_eq!(statistics.len(), places.len());
                places.iter().map(|place| if hidden(*place) { 0.0 } else { coefficient(1, *place) }).collect()
            };
            core.learn(&[sequence], PLAIN, &loss).unwrap();
            let scored = core.score(&[sequence], PLAIN, false).unwrap().swap_remove(0);
            let scored = scored.into_iter().zip(places).filter(|(_, place)| !hidden(*place));
            (core.gathered().unwrap(), scored.map(|(t, _)| t.log_prob).collect::<Vec<_>>())
        };
        let ((episode, scored), (plain, scored_plain)) = (gathered(&observed), gathered(&[]));
        let apart = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        let largest = plain.iter().copied().fold(0.0, |most: f32, g| most.max(g.abs()));
        let name = name(&folder);
        assert!(
            apart(&episode, &plain) <= 1e-5 * largest,
            "{name} {}: {:e} of {largest:e}",
            kind.name,
            apart(&episode, &plain)
        );
        assert!(apart(&scored, &scored_plain) < 1e-5, "{name} {}", kind.name);
    }
}

/// An environment that does as its draws say: crashes, never replies, says far too much, replies to others' turns, to old
/// ones, several times or after the end, and gives rewards that are no numbers.
struct Liar {
    draws: allot_allocation::seed::Stream,
    old: Vec<Replies>,
    hangs: u32,
}

impl Liar {
    fn lie(&mut self, replies: &Replies, over: bool) {
        let end = |reward: Option<f32>| Reply::Ends(Ended { reward, ..Ended::rewarded(0.0, Some(false)) });
        let some = vec![9; self.draws.below(5)];
        let own = match self.draws.below(40) {
            0 => Reply::Ends(Ended::failed("it crashed")),
            1 => end(Some(f32::NAN)),
            2 => end(None),
            3 => Reply::Says(vec![9; 100_000]),
            // As slow as its patience is long: few, or the test takes as long.
            4 if self.hangs > 0 => {
                self.hangs -= 1;
                return;
            }
            5..14 => end(Some(1.0)),
            // In another training row, or in one that there is not.
            14..18 => Reply::Elsewhere(self.draws.below(4) as u32, some),
            _ if over && self.draws.below(4) > 0 => end(Some(0.5)),
            _ => Reply::Says(some),
        };
        if self.draws.below(6) == 0 && !self.old.is_empty() {
            let old = self.draws.below(self.old.len());
            self.old[old].send(Reply::Says(vec![11; self.draws.below(9)]));
            self.old[old].send(end(Some(7.0)));
        }
        for _ in 0..=self.draws.below(8) / 7 {
            replies.send(own.clone());
        }
        // The reply that is awaited has come, so this one is old from now on.
        if self.draws.below(20) == 0 {
            self.old.push(replies.clone());
        }
    }
}

impl Environments for Liar {
    fn limits(&self) -> EpisodeLimits {
        EpisodeLimits { turns: 4, read: 9, reply: Some(Duration::from_millis(200)), whole: None }
    }

    fn begin(&mut self, _: Opening, replies: &Replies) {
        self.lie(replies, false);
    }

    fn turn(&mut self, _: usize, _: Said<'_>, stop: Option<Stopped>, replies: &Replies) {
        self.lie(replies, stop.is_some());
    }

    fn abandon(&mut self) {}
}

/// Granted is sampled is charged, and within every limit, whatever environments do.
#[test]
fn a_hundred_thousand_episodes_of_liars_cost_what_was_granted() {
    let case = Case::read(&folders().swap_remove(0));
    let limits = Limits {
        rounds: u32::MAX,
        step_rollouts: None,
        run_rollouts: None,
        run_tokens: Some(1_000_000),
        longest: 7,
    };
    let core = Box::new(Cpu::new(&case.checkpoint, setup(2)).unwrap());
    let stops = Stops::from((0..1000).step_by(2).collect::<Vec<u32>>());
    let config = NativeConfig { stops, rows: 256, ..native(UpdateConfig::default()) };
    let config = NativeConfig { sampling: Sampling { max_tokens: 7, ..config.sampling }, ..config };
    let draws = allot_allocation::seed::Stream::new(5);
    let liar = Box::new(Liar { draws, old: Vec::new(), hangs: 60 });
    let mut engine = Native::new(core, config, prompts()).with_environments(liar);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (mut ledger, mut reasons, mut all) = (Ledger::new(limits), HashMap::new(), 0_u64);
    while all < 100_000 {
        let order: Vec<_> =
            (0..4).map(|prompt| allot_allocation::Request::new(PromptId(prompt), 2500)).collect();
        let grant = ledger.grant(&order, |_| (0, 0));
        let granted = grant.rollouts();
        if granted == 0 {
            break;
        }
        let whole = &mut HashMap::new();
        let told = &mut |place: usize, _: &Sample<Answer>| *whole.entry(place).or_insert(0) += 1;
        let sampled = runtime.block_on(engine.sample(grant, Purpose::Training, told, &Interrupt::new()));
        let sampled: Vec<_> = sampled.unwrap().into_iter().flatten().collect();
        assert_eq!(sampled.len() as u64, granted);
        assert!(
            whole.len() as u64 == granted && whole.values().all(|times| *times == 1),
            "each is told once"
        );
        for sample in &sampled {
            let episode = sample.answer.episode.as_ref().unwrap();
            let generated: u32 = episode.turns.iter().map(|turn| turn.tokens).sum();
            assert_eq!((generated, sample.answer.log_probs.len() as u32), (sample.tokens, sample.tokens));
            assert!(sample.tokens <= 7 && episode.turns.len() <= 4 && episode.read() <= 9, "{episode:?}");
            assert!(episode.turns.iter().all(|turn| turn.tokens > 0), "{episode:?}");
            // What old replies say is nowhere.
            assert!(
                episode.end.reward != Some(7.0) && episode.turns.iter().all(|turn| !turn.read.contains(&11))
            );
            *reasons.entry(episode.stopped.name()).or_insert(0) += 1;
        }
        ledger.charge(sampled.iter().map(|s| (s.prompt, s.position, s.tokens))).unwrap();
        all += granted;
    }
    assert!(ledger.spent().run_tokens <= 1_000_000);
    assert_eq!(reasons.len(), 5, "{reasons:?}");
    println!("{all} episodes, {} tokens, {reasons:?}", ledger.spent().run_tokens);
}
