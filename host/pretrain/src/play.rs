//! Episodes: a game is demonstrated by a good player, who is careless now and then, and measured by playing it.

use allot_allocation::seed::{self, Stream};
use allot_base::{Error, Result};
use allot_engine::core::{Answered, Core};
use allot_engine::episode::Reply;
use allot_engine::talk::{Event, Next, NextTurn, Talk};
use allot_engine::{Interrupt, Sampling, Stops};
use allot_tasks::environment::{Game, Most, Step};

use super::{Alphabet, Example, Exercise, told};

/// Number of concurrent answers or turns.
pub const ROWS: usize = 256;

/// Opens an exercise's game.
pub fn open(exercise: &Exercise, start: u64) -> Result<Box<dyn Game>> {
    let game = exercise.environment.ok_or_else(|| "it has one answer".to_owned());
    game.and_then(|game| game.open(&exercise.gold, start))
        .map_err(|why| Error::new(format!("`{}` can't be played: {why}", exercise.question)))
}

/// Returns the most tokens of an exercise's episode after its question, and of one of its turns.
pub fn longest(exercise: &Exercise) -> (usize, usize) {
    let Ok(game) = open(exercise, 0) else { return (0, 0) };
    let Most { replies, reply, turn } = game.most();
    // The end, and some room for what is no move.
    let (replies, turn) = (replies as usize, turn + 3);
    ((replies + 1) * turn + replies * reply.len(), turn)
}

/// Returns an episode in which each turn is a careless player's with the slip's probability.
pub fn demonstration(
    exercise: &Exercise,
    slip: f64,
    alphabet: &Alphabet,
    stream: &mut Stream,
) -> Result<Example> {
    let mut game = open(exercise, stream.bits())?;
    let mut example =
        Example { tokens: exercise.prompt.clone(), prompt: exercise.prompt.len(), observed: Vec::new() };
    loop {
        let said = game.careless(slip, stream).unwrap_or_else(|| game.best());
        example.tokens.extend(alphabet.encode(&said)?);
        example.tokens.push(Alphabet::END);
        let Step::Says(reply) = game.turn(&said) else { return Ok(example) };
        let from = example.tokens.len();
        example.tokens.extend(alphabet.encode(&reply)?);
        example.observed.push(from..example.tokens.len());
    }
}

/// Plays each exercise `each.0` times, and once with the likeliest tokens. Returns how many the latter solved, and how
/// often each was solved by the former. `each.1` seeds the games.
pub fn measure(
    core: &dyn Core,
    exercises: &[Exercise],
    alphabet: &Alphabet,
    (sampled, likeliest): (Sampling, Sampling),
    each: (usize, u64),
) -> Result<(usize, Vec<u32>)> {
    let (samples, run) = each;
    let (mut games, mut prompts) = (Vec::new(), Vec::new());
    for (number, exercise) in (0..).zip(exercises) {
        for _ in 0..=samples {
            games.push((open(exercise, seed::turn(run, number + 1))?, 0_u32, false));
            prompts.push(exercise.prompt.as_slice());
        }
    }
    let longest: Vec<(usize, usize)> = exercises.iter().map(longest).collect();
    let sampling = |number: usize| {
        let max_tokens = longest[number / (samples + 1)].1 as u32;
        Sampling { max_tokens, ..if number % (samples + 1) < samples { sampled } else { likeliest } }
    };
    let channel = Talk::channel();
    for number in 0..games.len() {
        // The channel is open: its other end is here.
        let _ = channel.0.send(Event::Reply(number, 0, Reply::Says(Vec::new())));
    }
    let mut failed = None;
    let take = &mut |event| {
        let (number, read) = match event {
            Event::Tick | Event::Lost => return None,
            Event::Reply(number, ..) => (number, Vec::new()),
            Event::Turn(number, Answered { tokens, .. }) => {
                match games[number].0.turn(&alphabet.decode(&tokens)) {
                    Step::Says(text) => match alphabet.encode(&text) {
                        Ok(read) => (number, read),
                        Err(error) => {
                            failed = Some(error);
                            return Some(Next::End(number));
                        }
                    },
                    Step::Ends { correct, .. } => {
                        games[number].2 = correct;
                        return Some(Next::End(number));
                    }
                }
            }
        };
        games[number].1 += 1;
        let seed = seed::turn(seed::world(run, 3, number as u64), games[number].1);
        Some(Next::Turn(number, NextTurn { read, anew: None, seed, sampling: sampling(number) }))
    };
    let room = longest.iter().map(|(all, _)| *all).max().unwrap_or(0);
    let talk = &mut Talk::new(channel, take);
    let stops = Stops::from([Alphabet::END]);
    core.converse(&prompts, &stops, ROWS, room, talk, &Interrupt::new()).map_err(|e| told(&e))?;
    if let Some(error) = failed {
        return Err(error);
    }
    let solved: Vec<u32> = games.iter().map(|(_, _, correct)| u32::from(*correct)).collect();
    Ok(counted(&solved, samples))
}

/// Returns how many exercises the likeliest tokens solved, and how often each was solved by the others.
fn counted(solved: &[u32], samples: usize) -> (usize, Vec<u32>) {
    let of_each = solved.chunks_exact(samples + 1);
    let greedy = of_each.clone().map(|of_one| of_one[samples]).sum::<u32>() as usize;
    (greedy, of_each.map(|of_one| of_one[..samples].iter().sum()).collect())
}
