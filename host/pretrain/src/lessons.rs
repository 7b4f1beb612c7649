//! The demonstrated problems of each level, and the held-out problems for measuring.

use allot_allocation::seed::Stream;
use allot_base::{Error, Result};
use allot_tasks::generate::{Split, TaskKind, generate};
use allot_tasks::{Ask, Problem};

use super::{Alphabet, Example, Exercise, Mistake, Recipe, play};

/// All lessons of a recipe.
#[derive(Clone, Debug)]
pub struct Lessons {
    /// The levels of all tasks, in the recipe's order.
    pub levels: Vec<Level>,
    /// Levels with fewer problems than requested, in words.
    pub short: Vec<String>,
    alphabet: Alphabet,
    context: usize,
}

/// A level of a task.
#[derive(Clone, Debug)]
pub struct Level {
    /// The source name of its problems.
    pub source: String,
    /// Problems to demonstrate.
    pub train: Vec<Exercise>,
    /// Held-out problems, which are never demonstrated; as many as are measured.
    pub held_out: Vec<Exercise>,
    weight: f64,
    slip: f64,
    mistake: Mistake,
    played: bool,
}

/// How carefully a problem is demonstrated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Care {
    /// Without a mistake.
    Full,
    /// With the level's slips.
    Usual,
}

impl Lessons {
    /// Draws the problems of a recipe.
    pub fn new(recipe: &Recipe, alphabet: Alphabet) -> Result<Self> {
        let (mut levels, mut short) = (Vec::new(), Vec::new());
        for lesson in &recipe.lessons {
            let drawn = |split| generate(&lesson.task, split).map_err(|e| Error::new(e.to_string()));
            let (train, held_out) = (drawn(Split::Train)?, drawn(Split::HeldOut)?);
            short.extend(train.short.iter().map(ToString::to_string));
            let name = lesson.task.name.clone().unwrap_or_else(|| lesson.task.kind.to_string());
            for (at, (weight, slip)) in lesson.weights.iter().zip(&lesson.slips).enumerate() {
                let source = format!("{name}/{}", at + 1);
                let of = |problems: &[Problem]| -> Result<Vec<Exercise>> {
                    let own = problems.iter().filter(|p| p.source == source);
                    own.map(|problem| exercise(problem, lesson.task.kind, &alphabet)).collect()
                };
                let (train, mut held_out) = (of(&train.problems)?, of(&held_out.problems)?);
                held_out.truncate(lesson.measured[at]);
                let (mistake, played) = (lesson.mistake, lesson.task.kind.is_played());
                let level = Level { source, train, held_out, weight: *weight, slip: *slip, mistake, played };
                level.check()?;
                levels.push(level);
            }
        }
        let lessons = Self { levels, short, alphabet, context: recipe.model.context };
        lessons.fits(lessons.longest_question() + lessons.longest_answer())?;
        Ok(lessons)
    }

    /// Draws a demonstration.
    pub fn draw(&self, care: Care, stream: &mut Stream) -> Result<Example> {
        let total: f64 = self.levels.iter().map(|level| level.weight).sum();
        let mut point = stream.unit() * total;
        let past = |level: &&Level| {
            point -= level.weight;
            level.weight > 0.0 && point < 0.0
        };
        // If rounding leaves the point past the end, the last level with a weight is used.
        let mut weighted = self.levels.iter().rev().filter(|level| level.weight > 0.0);
        let level = self.levels.iter().find(past).or_else(|| weighted.next());
        let level = level.ok_or_else(|| Error::new("nothing is demonstrated"))?;
        let exercise = &level.train[stream.below(level.train.len())];
        let slip = if care == Care::Full { 0.0 } else { level.slip };
        let example = if level.is_played() {
            play::demonstration(exercise, slip, &self.alphabet, stream)?
        } else {
            let answer = level.answer(exercise, slip, stream)?;
            let mut tokens = exercise.prompt.clone();
            tokens.extend(self.alphabet.encode(&answer)?);
            tokens.push(Alphabet::END);
            Example { tokens, prompt: exercise.prompt.len(), observed: Vec::new() }
        };
        // A wrong answer can be longer than the right one.
        self.fits(example.tokens.len())?;
        Ok(example)
    }

    /// Returns the length of the longest right answer in tokens, with its end. Of an episode it is that of all turns.
    pub fn longest_answer(&self) -> usize {
        let of = |level: &Level, e: &Exercise| {
            if level.is_played() { play::longest(e).0 } else { e.gold.chars().count() + 1 }
        };
        let all = self.levels.iter().flat_map(|level| {
            level.train.iter().chain(&level.held_out).map(move |exercise| of(level, exercise))
        });
        all.max().unwrap_or(1)
    }

    /// Returns the length of the longest question, in tokens.
    pub fn longest_question(&self) -> usize {
        self.exercises().map(|e| e.prompt.len()).max().unwrap_or(0)
    }

    fn fits(&self, tokens: usize) -> Result<()> {
        if tokens <= self.context {
            return Ok(());
        }
        let context = self.context;
        Err(Error::new(format!("an example has {tokens} tokens, and `model.context` is {context}")))
    }

    fn exercises(&self) -> impl Iterator<Item = &Exercise> {
        self.levels.iter().flat_map(|level| level.train.iter().chain(&level.held_out))
    }
}

impl Level {
    /// Returns whether its problems are episodes.
    pub fn is_played(&self) -> bool {
        self.played
    }

    fn answer(&self, exercise: &Exercise, slip: f64, stream: &mut Stream) -> Result<String> {
        let Exercise { question, gold, .. } = exercise;
        self.mistake.answer(question, gold, slip, stream).ok_or_else(|| {
            let what = format!(
                "`{}`: in `{question}` there is nothing to make the lesson's mistake in",
                self.source
            );
            Error::new(what).hint(
                "`mistake = \"carry\"` is for terse sums, and chains of + and -; `mistake = \"careless\"` is for guesses and \
                 calculators",
            )
        })
    }

    fn check(&self) -> Result<()> {
        if self.weight > 0.0 && self.train.is_empty() {
            return Err(Error::new(format!("`{}` has a weight and no problem to demonstrate", self.source)));
        }
        // Checked before training starts rather than minutes later.
        if self.is_played() && self.mistake != Mistake::Careless {
            let what =
                format!("`{}` is played in turns, but its lesson's mistake is not `careless`", self.source);
            return Err(Error::new(what).hint("set `mistake = \"careless\"`"));
        }
        if self.is_played() {
            return self.train.iter().chain(&self.held_out).try_for_each(|e| play::open(e, 0).map(|_| ()));
        }
        self.train.iter().try_for_each(|e| self.answer(e, self.slip, &mut Stream::new(0)).map(|_| ()))
    }
}

fn exercise(problem: &Problem, kind: TaskKind, alphabet: &Alphabet) -> Result<Exercise> {
    let Ask::Text(question) = &problem.ask else {
        return Err(Error::new(format!(
            "`{}` asks messages; this model is asked plain text",
            problem.source
        )));
    };
    let gold = problem.gold.first().cloned().unwrap_or_default();
    let (prompt, environment) = (alphabet.encode(question)?, kind.environment());
    Ok(Exercise { question: question.clone(), prompt, gold, environment })
}
