//! A policy that makes use of all that contract 0.2 has beyond 0.1, in each language: `whole/LANGUAGE`, and here in
//! Rust. The same plans, and the same words where it uses what it does not describe.

use allot_allocation::{
    History, Need, PromptId, Run, SamplerRange, SamplerSettings, Terms, TokenCosts, Value, Visit,
};
use allot_authoring::fixtures;
use allot_authoring::language::Language;
use allot_policy::prelude::*;

use crate::{drafts, native, tools};

struct Whole;

#[derive(Settings)]
struct WholeSettings {
    /// What to use that is not described: nothing, until, sampling or update.
    #[setting(default = "")]
    beyond: String,
}

impl Policy for Whole {
    const NAME: &'static str = "whole";
    const VERSION: &'static str = "0.1.0";
    const SUMMARY: &'static str = "makes use of all that there is";
    const NEEDS: Needs = Needs::ANY_PROMPT;
    type Settings = WholeSettings;
    type State = ();

    fn decide(settings: &WholeSettings, run: &Run_, (): &mut (), view: &View) -> Result<Plan, Error> {
        let beyond = settings.beyond.as_str();
        let visits = facts::counts(Count::Visits, ..);
        let plan = if view.round == 0 && view.can_sample() {
            let least = *visits.iter().min().unwrap();
            let rarest = visits.iter().position(|n| *n == least).unwrap() as u32;
            let mut request = Request::new(rarest, 3);
            if beyond == "until" {
                request = request.until(1, 0, 2);
            }
            if beyond == "sampling" {
                request = request.sampling(Sampling { temperature: 0.5, ..run.sampling.default });
            }
            let others = view.pool.iter().map(|prompt| prompt.id).filter(|id| *id != rarest);
            Plan::sample([request]).defer(others.take(2))
        } else {
            let picks = view.groups.iter().map(|group| {
                let last = group.len() as u32 - 1;
                Pick::some(group.prompt, vec![0]).advantage(Advantage::Among(vec![last]))
            });
            let held = view.groups.iter().filter(|group| group.len() > 1);
            let plan = Plan::train(picks).hold_some(held.map(|group| (group.prompt, vec![1])));
            if beyond == "update" { plan.update(Update { mini_batch: 16, passes: 1 }) } else { plan }
        };
        let listed: Vec<PromptId_> = view.pool.iter().take(3).map(|prompt| prompt.id).collect();
        let sum = |numbers: Vec<f32>| numbers.into_iter().map(f64::from).sum::<f64>();
        let correct = facts::counts(Count::TotalCorrect, 2..9).into_iter().map(f64::from).sum::<f64>();
        Ok(plan
            .metric("correct", correct)
            .metric("std", sum(facts::measures(Measure::Std, listed)))
            .metric("mean-length", sum(facts::measures(Measure::MeanLength, 0..4)))
            .metric("learning", facts::costs().learning)
            .metric("unscored", view.unscored.iter().map(|lost| f64::from(lost.rollouts)).sum())
            .metric("lengths", view.groups.iter().flat_map(|g| &g.lengths).map(|n| f64::from(*n)).sum())
            .metric("epochs", view.groups.iter().map(|g| f64::from(g.epoch)).sum())
            .metric("past", view.pool.iter().filter_map(|p| p.past).map(|p| f64::from(p.std)).sum())
            .metric("flops", view.budget.run_flops)
            .metric("temperature", f64::from(run.sampling.most.temperature))
            .metric("passes", f64::from(run.update.passes)))
    }
}

type Run_ = allot_policy::types::Run;
type PromptId_ = allot_policy::types::PromptId;

fn a_run(beyond: &str) -> Run {
    let settings = vec![("beyond".to_owned(), Value::Text(beyond.to_owned()))];
    Run {
        settings,
        prompts: 100_000,
        steps: 50,
        groups: 6,
        rollouts: 8,
        pool: 64,
        max_age: 5,
        lag: 0,
        terms: None,
    }
}

/// The same where the run gives what is not described.
fn a_generous_run(beyond: &str) -> Run {
    let settings = |temperature, max_tokens| SamplerSettings { temperature, max_tokens, max_turns: 1 };
    let terms = Terms {
        temperature: 0.75,
        max_tokens: 500,
        requests: Some(SamplerRange { least: settings(0.25, 1), most: settings(1.25, 500) }),
        costs: TokenCosts { reading: 1e9, generating: 2e9, learning: 3.5e9 },
        needs: vec![Need::AnyPrompt, Need::Sampling, Need::Stopping, Need::Updating],
        ..Terms::default()
    };
    Run { terms: Some(terms), ..a_run(beyond) }
}

/// Most prompts were visited, some twice.
fn history() -> History {
    let mut history = History::default();
    for (step, every) in [(0, 1), (1, 3)] {
        let visit = |id: u32| Visit {
            prompt: PromptId(id),
            rollouts: 1 + id % 8,
            correct: id % (2 + id % 8),
            mean: (id % 9) as f32 / 8.0,
            deviation: (id % 5) as f32 / 7.0,
            tokens: 0.1 + id as f32,
            flat: id.is_multiple_of(5),
        };
        history.remember(step, &(0..900).step_by(every).map(visit).collect::<Vec<_>>());
    }
    history
}

in_each_language!(makes_use_of_all_that_there_is);

fn makes_use_of_all_that_there_is(language: Language) {
    if tools::missing(language) {
        return;
    }
    let (_, policy) = tools::loaded(&format!("tests/languages/whole/{}", crate::name(language)), language);
    plans_as_in_rust(&policy);
}

#[test]
fn a_draft_makes_use_of_all_that_there_is() {
    if let Some(draft) = drafts::loaded("tests/languages/whole/python") {
        plans_as_in_rust(&draft);
    }
}

fn plans_as_in_rust(policy: &allot_sandbox::Policy) {
    let native = native::of::<Whole>();
    assert_eq!(policy.description().needs, [Need::AnyPrompt]);
    let run = a_generous_run("");
    assert_eq!(policy.begin(&run).unwrap().0, (native.begin)(&run).unwrap());

    let mut sampled = None;
    for (i, made) in fixtures::views(0, 60).into_iter().enumerate() {
        let mut view = made.view;
        view.history = history();
        view.budget.run_flops = view.step.is_multiple_of(2).then_some(1e15);
        let beyond = ["", "until", "sampling", "update"][i % 4];
        for run in [a_run(""), a_generous_run(beyond)] {
            let ours = (native.decide)(&run, &[], &view).unwrap();
            let theirs = policy.decide(&run, &[], &view).unwrap().0;
            assert_eq!(theirs, ours, "{beyond} on {}", made.title);
            if matches!(ours.action, allot_allocation::Action::Sample(_)) {
                sampled = Some(view.clone());
            }
        }
    }

    let view = sampled.expect("it sampled");
    let trained = allot_allocation::View { round: 1, ..view.clone() };
    for (beyond, view, words) in [
        ("until", &view, "used `until` in a request, but its description does not have `stopping`"),
        ("sampling", &view, "used `sampling` in a request, but its description does not have `sampling`"),
        ("update", &trained, "used `update` in its batch, but its description does not have `updating`"),
    ] {
        let told = policy.decide(&a_run(beyond), &[], view).unwrap_err().to_string();
        assert!(told.contains(words), "{beyond}: {told}");
        let run = a_generous_run(beyond);
        let ours = (native.decide)(&run, &[], view).unwrap();
        assert_eq!(policy.decide(&run, &[], view).unwrap().0, ours, "{beyond}");
        let said = format!("{ours:?}");
        assert!(said.contains("Some("), "{beyond}: {said}");
    }
}
