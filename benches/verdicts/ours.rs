//! Our side: each grader as a run has it, but for the number of threads, which is given.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use allot_allocation::PromptId;
use allot_engine::{Answer, Sample};
use allot_judges::Reward as _;
use allot_judges::component::Components;
use allot_judges::graded::Graded;
use allot_judges::graders::Graders;
use allot_judges::http::Http;
use allot_judges::processes::{GraderCommand, Processes};
use allot_judges::protocol::{Opinion, Question};
use allot_judges::python::math::Math;
use allot_judges::python::trial::Trial;
use allot_judges::python::{Interpreter, Limits};
use allot_models::tokens::Tokens;
use allot_settings::ComponentConfig;
use allot_settings::HttpConfig;
use allot_settings::PythonConfig;
use allot_settings::reward::{PatternConfig, RewardConfig};
use allot_tasks::grader::Grader;
use allot_tasks::{Ask, Key, Problem};
use tokio::runtime::{Builder, Runtime};

use crate::questions::Batch;

/// Whether an answer is right, or nothing where that could not be said.
pub type Verdict = Option<bool>;

/// Who judges.
pub enum Ours {
    Native(Grader),
    Pattern(&'static str),
    Python(Rc<Interpreter>, Limits),
    Math(Rc<Math>),
    Processes(GraderCommand),
    Http(HttpConfig),
    /// On as many threads as there are cores.
    Component(ComponentConfig),
    /// A reward of several parts, of tokens.
    Parts(Box<RewardConfig>, PathBuf),
}

/// Someone who judges the first so many questions of a batch.
pub type Judging<'b> = Box<dyn FnMut(usize) -> Vec<Verdict> + 'b>;

impl Ours {
    /// Ready to judge on so many threads, by so many processes or over so many connections.
    pub fn ready<'b>(&'b self, threads: usize, batch: &'b Batch) -> Judging<'b> {
        let all = &batch.questions;
        match self {
            Self::Native(grader) => {
                let judge = |q: &Question| grader.grade_any(&q.gold, &q.answer).ok();
                Box::new(move |n| spread(threads, &all[..n], judge))
            }
            Self::Pattern(regex) => {
                let regex = PatternConfig { regex: (*regex).to_owned() }.compiled().unwrap();
                Box::new(move |n| spread(threads, &all[..n], |q| Some(regex.is_match(&q.answer))))
            }
            Self::Python(python, limits) => {
                let (python, limits) = (&**python, *limits);
                let judge = move |q: &Question| {
                    let trial = Trial::of(&q.gold[0]).unwrap();
                    Some(trial.judge(python, &q.answer, limits).ok()?.is_right())
                };
                Box::new(move |n| spread(threads, &all[..n], judge))
            }
            Self::Math(math) => {
                let math = &**math;
                let judge = |q: &Question| verdict(math.judge(&q.gold, &q.answer, limits()));
                Box::new(move |n| {
                    // Within a turn it knows what it was asked about, as in a run; not from one turn to the next.
                    math.forget();
                    spread(threads, &all[..n], judge)
                })
            }
            Self::Processes(judge) => {
                let mut pool = Processes::new(GraderCommand { processes: threads, ..judge.clone() });
                let runtime = runtime();
                Box::new(move |n| {
                    all[..n].iter().enumerate().for_each(|(place, q)| pool.begin(place, q.clone()));
                    in_order(runtime.block_on(pool.finish()).unwrap())
                })
            }
            Self::Http(config) => {
                let runtime = runtime();
                let config = HttpConfig { connections: threads as u32, ..config.clone() };
                Box::new(move |n| {
                    // A new one each time: what it has asked once it does not ask again.
                    let mut http = Http::new(&config, Question::default(), None);
                    all[..n].iter().enumerate().for_each(|(place, q)| http.begin(place, q));
                    in_order(runtime.block_on(http.finish()).unwrap())
                })
            }
            Self::Component(config) => {
                let mut components = Components::new(config, None).unwrap();
                let runtime = runtime();
                Box::new(move |n| {
                    all[..n].iter().enumerate().for_each(|(place, q)| components.begin(place, q.clone()));
                    in_order(runtime.block_on(components.finish()).unwrap())
                })
            }
            Self::Parts(config, folder) => {
                let (mut graded, samples) = graded(config, folder, batch);
                let runtime = runtime();
                Box::new(move |n| {
                    let asked: Vec<_> = samples[..n].iter().enumerate().collect();
                    let said = runtime.block_on(graded.score(&asked)).unwrap();
                    said.into_iter().map(|said| said.reward.map(|_| said.correct)).collect()
                })
            }
        }
    }
}

/// What the sandbox has by default.
pub fn limits() -> Limits {
    let PythonConfig { fuel, memory, .. } = PythonConfig::default();
    Limits { fuel, memory }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn in_order(mut said: Vec<(usize, Opinion)>) -> Vec<Verdict> {
    said.sort_by_key(|(place, _)| *place);
    said.into_iter().map(|(_, opinion)| verdict(opinion)).collect()
}

fn verdict(opinion: Opinion) -> Verdict {
    let judgement = opinion.ok()?;
    judgement.correct.or_else(|| Some(judgement.reward? >= 1.0))
}

/// Judges on threads, each of which takes the next few questions when it is through with its own.
fn spread(
    threads: usize,
    questions: &[Question],
    judge: impl Fn(&Question) -> Verdict + Sync,
) -> Vec<Verdict> {
    if threads == 1 {
        return questions.iter().map(judge).collect();
    }
    let size = (questions.len() / (16 * threads)).clamp(1, 32);
    let parts: Vec<&[Question]> = questions.chunks(size).collect();
    let (next, said) = (AtomicUsize::new(0), Mutex::new(vec![Vec::new(); parts.len()]));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(part) = parts.get(at) else { return };
                    let verdicts = part.iter().map(&judge).collect();
                    said.lock().unwrap()[at] = verdicts;
                }
            });
        }
    });
    said.into_inner().unwrap().concat()
}

fn graded(config: &RewardConfig, folder: &Path, batch: &Batch) -> (Graded, Vec<Sample<Answer>>) {
    let problem = |q: &Question| Problem {
        ask: Ask::Text(String::new()),
        gold: q.gold.clone(),
        source: "gsm8k".to_owned(),
        question: String::new(),
        key: Key::of(&[&q.gold[0]]),
        place: None,
        columns: Vec::new(),
    };
    let sample = |(prompt, tokens): (usize, &Vec<u32>)| Sample {
        prompt: PromptId(prompt as u32),
        position: 0,
        version: 0,
        answer: Answer { log_probs: vec![0.0; tokens.len()], tokens: tokens.clone(), ..Answer::default() },
        tokens: tokens.len() as u32,
        truncated: false,
        log_prob: 0.0,
        signals: Vec::new(),
        sampling: None,
    };
    let problems: Arc<Vec<Problem>> = Arc::new(batch.questions.iter().map(problem).collect());
    let tokens = Arc::new(Tokens::read(folder).unwrap());
    let graders = Graders::new(config.clone(), &problems, 1 << 20, Vec::new()).unwrap();
    let graded = Graded::new(tokens, problems, graders);
    (graded, batch.tokens.iter().enumerate().map(sample).collect())
}
