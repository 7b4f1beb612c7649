//! Episodes beside waiting environments: 64 episodes of three turns on a random model of SmolLM2-135M's shape, with an
//! environment that replies at once and one that takes 50 ms, by turns. Then 1,000 episodes, and the most memory.
//!
//! `cargo bench --workspace --bench episodes -- [ROUNDS [ROWS]]`. It needs Linux, which tells memory.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use std::path::Path;
use std::time::{Duration, Instant};

use allot_engine::core::Core;
use allot_engine::cpu::Setup;
use allot_engine::episode::Reply;
use allot_engine::model::{Precision, Shape};
use allot_engine::talk::{Event, Next, NextTurn, Talk};
use allot_engine::{Interrupt, Sampling, Stops, place};
use candle_core::Device;

const TURNS: usize = 3;
/// Tokens of a turn, of a reply, and of a prompt.
const TOKENS: u32 = 16;
const WAIT: Duration = Duration::from_millis(50);

fn main() {
    let given: Vec<usize> = std::env::args().filter_map(|arg| arg.parse().ok()).collect();
    let (rounds, rows) = (given.first().copied().unwrap_or(3), given.get(1).copied().unwrap_or(32));
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/cuda/smollm2-135m/config.json");
    let checkpoint = allot_bench::random(&Shape::read(&config).unwrap()).unwrap();
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let longest = (2 * TURNS as u32 * TOKENS + TOKENS) as usize;
    let setup = Setup { precision: Precision::F32, threads, longest, lora: None, reference: false, seed: 1 };
    let core = place::core(&Device::Cpu, &checkpoint, setup).unwrap();
    drop(checkpoint);

    println!("64 episodes of {TURNS} turns, {rows} rows, {threads} threads");
    let (mut at_once, mut later) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        at_once.push(rate(core.as_ref(), 64, rows, Duration::ZERO));
        later.push(rate(core.as_ref(), 64, rows, WAIT));
    }
    let median = |rates: &mut Vec<f64>| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    };
    let (at_once, later) = (median(&mut at_once), median(&mut later));
    println!("at once    {at_once:>8.1} tokens a second");
    println!("after 50 ms {later:>7.1} tokens a second, {:.0} %", 100.0 * later / at_once);
    println!("before 1,000 episodes: {} MB at most", peak() / 1000);
    println!("1,000 episodes {:.1} tokens a second", rate(core.as_ref(), 1000, rows, WAIT));
    println!("after them: {} MB at most", peak() / 1000);
}

/// Plays episodes whose environment waits so long before each reply. Returns generated tokens a second.
fn rate(core: &dyn Core, episodes: usize, rows: usize, wait: Duration) -> f64 {
    let prompts: Vec<Vec<u32>> =
        (0..episodes as u32).map(|i| (0..TOKENS).map(|t| 100 + i + 7 * t).collect()).collect();
    let channel = Talk::channel();
    let tell = channel.0.clone();
    let reply = |number: usize, index: u32, length: u32| {
        let tell = tell.clone();
        let reply = Event::Reply(number, index, Reply::Says((0..length).map(|t| 500 + t).collect()));
        if wait.is_zero() {
            tell.send(reply).unwrap();
            return;
        }
        std::thread::spawn(move || {
            std::thread::sleep(wait);
            // The receiver is gone after an interrupt.
            let _ = tell.send(reply);
        });
    };
    (0..episodes).for_each(|number| reply(number, 0, 0));
    let (mut turns, mut generated) = (vec![0; episodes], 0);
    let take = &mut |event| {
        let (number, read) = match event {
            Event::Reply(number, _, Reply::Says(read)) => (number, read),
            Event::Turn(number, answered) => {
                generated += answered.tokens.len();
                if turns[number] == TURNS {
                    return Some(Next::End(number));
                }
                reply(number, turns[number] as u32, TOKENS);
                return None;
            }
            _ => return None,
        };
        turns[number] += 1;
        let sampling = Sampling { max_tokens: TOKENS, ..Sampling::default() };
        let seed = (number * TURNS + turns[number]) as u64;
        Some(Next::Turn(number, NextTurn { read, anew: None, seed, sampling }))
    };
    let asked: Vec<&[u32]> = prompts.iter().map(Vec::as_slice).collect();
    let (talk, room) = (&mut Talk::new(channel, take), 2 * TURNS * TOKENS as usize);
    let began = Instant::now();
    core.converse(&asked, &Stops::default(), rows, room, talk, &Interrupt::new()).unwrap();
    generated as f64 / began.elapsed().as_secs_f64()
}

/// The most memory that this process had, in kB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
