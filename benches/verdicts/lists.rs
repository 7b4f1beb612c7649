//! Graders that are processes, asked about 1, 32 and 1,024 answers at a time, beside a plain Python process: one that has
//! the list in its memory, and one that gets it as a line of JSON and answers with one.

use std::time::Instant;

use crate::ours::Ours;
use crate::peer::Peer;
use crate::questions::Batch;
use crate::{median, shown};

/// Many short turns: what else runs on the machine then falls on all sides alike.
const ROUNDS: usize = 61;
/// Of each turn.
const SECONDS: f64 = 0.05;
const ANSWERS: [usize; 3] = [1, 32, 1024];

/// Prints the rows of one grader, with so many processes on all sides.
pub fn measure(grader: &str, on: &str, ours: &Ours, peer: &str, processes: usize, all: &Batch) {
    let mut questions = all.questions.clone();
    while questions.len() < ANSWERS[2] {
        questions.extend_from_within(..);
    }
    for answers in ANSWERS {
        let batch = Batch { timed: answers, told: all.told.clone(), ..Batch::of(questions.clone()) };
        let Some(mut memory) = Peer::start(peer, processes, &batch, false) else { return };
        let Some(mut piped) = Peer::start(peer, processes, &batch, false) else { return };
        let mut judging = ours.ready(processes, &batch);
        let asked = &batch.questions[..answers];
        assert_eq!(judging(answers), piped.ask(asked), "{grader}: the verdicts differ");
        let (mut here, mut ratios) = (Vec::new(), [Vec::new(), Vec::new()]);
        let mut there = [Vec::new(), Vec::new()];
        for round in 0..ROUNDS {
            // Whoever is first in one round is last in the next.
            let mut rates = [0.0; 3];
            for turn in 0..3 {
                let who = if round % 2 == 0 { turn } else { 2 - turn };
                rates[who] = match who {
                    0 => rate(answers, &mut || drop(std::hint::black_box(judging(answers)))),
                    1 => memory.rate(SECONDS),
                    _ => rate(answers, &mut || drop(std::hint::black_box(piped.ask(asked)))),
                };
            }
            here.push(rates[0]);
            for (i, rate) in rates[1..].iter().enumerate() {
                there[i].push(*rate);
                ratios[i].push(rates[0] / rate);
            }
        }
        let [memory, piped] = there.map(|rates| shown(median(rates)));
        let [of_memory, of_piped] = ratios.map(spread);
        println!(
            "| `{grader}` | {on} | {processes} | {answers} | {} | {memory} | {of_memory} | {piped} | {of_piped} |",
            shown(median(here))
        );
    }
}

fn rate(answers: usize, once: &mut dyn FnMut()) -> f64 {
    once();
    let (began, mut passes) = (Instant::now(), 0);
    while passes == 0 || began.elapsed().as_secs_f64() < SECONDS {
        once();
        passes += 1;
    }
    (passes * answers) as f64 / began.elapsed().as_secs_f64()
}

/// The median, and the quartiles.
fn spread(mut ratios: Vec<f64>) -> String {
    ratios.sort_by(f64::total_cmp);
    format!(
        "{} ({} to {})",
        shown(ratios[ROUNDS / 2]),
        shown(ratios[ROUNDS / 4]),
        shown(ratios[ROUNDS - 1 - ROUNDS / 4])
    )
}
