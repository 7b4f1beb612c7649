//! The spread of difficulty: a model's accuracy on held-out problems, level by level.

use std::fmt;

use allot_allocation::{PromptId, seed};
use allot_base::Result;
use allot_engine::core::{Answered, Core, Request};
use allot_engine::{Sampling, Stops};

use super::{Alphabet, Lessons, SpreadConfig, play, told};

/// A model's spread of difficulty.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread {
    /// One row per level.
    pub rows: Vec<LevelRow>,
    /// Answers sampled for each problem.
    pub samples: u32,
}

/// A model's results at a level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelRow {
    /// The level.
    pub level: String,
    /// Number of problems answered correctly with greedy decoding.
    pub greedy: usize,
    /// For each problem, the number of correct sampled answers.
    pub right: Vec<u32>,
}

/// Measures a model on the held-out problems.
pub fn measure(
    core: &dyn Core,
    lessons: &Lessons,
    alphabet: &Alphabet,
    config: SpreadConfig,
    run: u64,
) -> Result<Spread> {
    let max_tokens = lessons.longest_answer() as u32;
    let sampled = Sampling { max_tokens, ..Sampling::default() };
    let likeliest = Sampling { temperature: 0.0, ..sampled };
    let stops = Stops::from([Alphabet::END]);
    let (mut rows, mut prompt) = (Vec::new(), 0);
    for level in &lessons.levels {
        if level.is_played() {
            let each = (config.samples as usize, seed::rollout(run, PromptId(prompt), 0, 0));
            let (greedy, right) = play::measure(core, &level.held_out, alphabet, (sampled, likeliest), each)?;
            rows.push(LevelRow { level: level.source.clone(), greedy, right });
            prompt += level.held_out.len() as u32;
            continue;
        }
        // All problems of a level at once, since a GPU takes as long for one as for all.
        let mut requests = Vec::new();
        for exercise in &level.held_out {
            let request = |sampling, position| Request {
                prompt: &exercise.prompt,
                history: &[],
                seed: seed::rollout(run, PromptId(prompt), 0, position),
                sampling,
            };
            requests.extend((0..config.samples).map(|j| request(sampled, j)));
            requests.push(request(likeliest, 0));
            prompt += 1;
        }
        let answers = core.answers(&requests, &stops, play::ROWS).map_err(|e| told(&e))?;
        let (mut greedy, mut right) = (0, Vec::with_capacity(level.held_out.len()));
        let of_each = answers.chunks_exact(config.samples as usize + 1);
        for (exercise, answers) in level.held_out.iter().zip(of_each) {
            let mut gold = alphabet.encode(&exercise.gold)?;
            gold.push(Alphabet::END);
            let is_right = |answer: &&Answered| answer.tokens == gold;
            let (of_sampling, of_likeliest) = answers.split_at(answers.len() - 1);
            right.push(of_sampling.iter().filter(is_right).count() as u32);
            greedy += of_likeliest.iter().filter(is_right).count();
        }
        rows.push(LevelRow { level: level.source.clone(), greedy, right });
    }
    Ok(Spread { rows, samples: config.samples })
}

impl Spread {
    /// Returns one row for all levels, in which each problem counts once.
    pub fn total(&self) -> LevelRow {
        LevelRow {
            level: "all".to_owned(),
            greedy: self.rows.iter().map(|row| row.greedy).sum(),
            right: self.rows.iter().flat_map(|row| &row.right).copied().collect(),
        }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let samples = self.samples;
        write!(
            f,
            "{:<12}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}",
            "level", "problems", "greedy", "sampled", "always", "between", "never"
        )?;
        for row in self.rows.iter().chain([&self.total()]) {
            let problems = row.right.len();
            let percent = |part: f64| if problems == 0 { 0.0 } else { 100.0 * part / problems as f64 };
            let share =
                |is: &dyn Fn(u32) -> bool| percent(row.right.iter().filter(|n| is(**n)).count() as f64);
            let sampled = percent(row.right.iter().map(|n| f64::from(*n)).sum::<f64>() / f64::from(samples));
            write!(
                f,
                "\n{:<12}{problems:>9}{:>9.1}{sampled:>9.1}{:>9.1}{:>9.1}{:>9.1}",
                row.level,
                percent(row.greedy as f64),
                share(&|n| n == samples),
                share(&|n| n > 0 && n < samples),
                share(&|n| n == 0),
            )?;
        }
        write!(
            f,
            "\nin % of held-out problems; all but greedy: of {samples} sampled answers each, at temperature 1"
        )
    }
}
