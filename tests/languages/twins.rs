//! A policy that ships and the same in another language: the same plans, metrics included, each with its own
//! state. What a state looks like in bytes is a language's own affair.

use allot::callbacks::Decide;
use allot::run::Rest;
use allot::simulation::Simulation;
use allot::{run, shipped};
use allot_allocation::seed::Stream;
use allot_allocation::{Action, Budget, Group, History, Plan, Prompt, PromptId, Run, Value, View};
use allot_authoring::fixtures;
use allot_authoring::language::Language;
use allot_config::simulate::SimulateConfig;
use allot_loop::Every;
use allot_sandbox::{Caps, Fault, LogLine, Policy, Sandbox};

use crate::scratch::{self, Scratch};
use crate::{native, tools};

/// Settings of a run: those that are not as the policy has them.
type Changes = &'static [(&'static str, Setting)];

#[derive(Clone, Copy)]
enum Setting {
    Count(i32),
    Share(f64),
    Word(&'static str),
}

use Setting::{Count, Share, Word};

/// Settings that lead through each way of a policy.
fn ways(policy: &str) -> &'static [Changes] {
    match policy {
        "uniform" => &[&[], &[("rollouts", Count(3))]],
        "pods" => &[
            &[],
            &[("keep", Count(2))],
            &[("keep", Count(5)), ("generate", Count(13))],
            &[("keep", Count(4)), ("rule", Word("max-reward"))],
            &[("keep", Count(4)), ("rule", Word("random"))],
            &[("keep", Count(i32::MAX))],
        ],
        "pilot-commit" => &[
            &[],
            &[("pilot", Count(4)), ("commit", Count(4)), ("sampling", Word("max-variance"))],
            &[("pilot", Count(4)), ("commit", Count(3)), ("sampling", Word("most-recent"))],
            &[("pilot", Count(4)), ("pilot-kept", Count(3)), ("prompts", Count(5))],
            &[("pilot", Count(4)), ("ranks", Count(8)), ("commit", Count(6)), ("prompts", Count(3))],
            &[
                ("pilot", Count(4)),
                ("epoch-end", Word("discard")),
                ("prompts", Count(6)),
                ("max-off", Count(1)),
            ],
            &[("pilot", Count(4)), ("evict-at", Share(0.5)), ("solved-at-least", Share(0.0))],
            &[("pilot", Count(1)), ("failed-at-least", Share(-0.25)), ("max-off", Count(0))],
        ],
        other => panic!("`{other}` has no twin"),
    }
}

/// Settings that a policy refuses, as a user types them.
fn refused(policy: &str) -> &'static [&'static str] {
    match policy {
        "uniform" => &["rollouts=-1", "rollouts=1"],
        "pods" => &["keep=0", "keep=1", "generate=1", "rule=best", "generate=-5"],
        "pilot-commit" => &[
            "pilot=1",
            "solved-at-least=0.9",
            "pilot=0",
            "commit=0",
            "ranks=0",
            "pilot-kept=9",
            "sampling=any",
            "max-off=-1",
        ],
        other => panic!("`{other}` has no twin"),
    }
}

struct Twin {
    native: native::Native,
    bytes: Vec<u8>,
    policy: Policy,
}

/// The twins in a language, if its tools are here.
fn twins(language: Language) -> Vec<Twin> {
    let names: &[&str] = match language {
        Language::Python | Language::Js => &["pilot-commit", "pods"],
        Language::C | Language::Go => &["uniform"],
        Language::Rust => &[],
    };
    if tools::missing(language) {
        return Vec::new();
    }
    let load = |name: &&str| {
        let (bytes, policy) = tools::loaded(&format!("policies/{name}/{}", crate::name(language)), language);
        let native = native::all().into_iter().find(|native| native.name == *name).unwrap();
        Twin { native, bytes, policy }
    };
    names.iter().map(load).collect()
}

/// A run under these settings.
fn a_run(policy: &str, changes: Changes) -> Run {
    let mut settings = native::defaults(policy);
    for (name, change) in changes {
        let setting = settings.iter_mut().find(|(known, _)| known == name).unwrap();
        setting.1 = match change {
            Count(count) => Value::Integer(*count),
            Share(share) => Value::Number(*share),
            Word(word) => Value::Text((*word).to_owned()),
        };
    }
    Run {
        settings,
        prompts: 1000,
        steps: 50,
        groups: 6,
        rollouts: 8,
        pool: 64,
        max_age: 5,
        lag: 0,
        terms: None,
    }
}

/// The same settings, as a user types them.
fn typed(changes: Changes) -> Vec<String> {
    let set = |(name, change): &(&str, Setting)| {
        let value = match change {
            Count(count) => count.to_string(),
            Share(share) => format!("{share:?}"),
            Word(word) => (*word).to_owned(),
        };
        format!("--set={name}={value}")
    };
    changes.iter().map(set).collect()
}

/// All of a plan but its state, to the bit: `-0.0` is not `0.0` here.
fn seen(plan: &Plan) -> String {
    format!("{:?}", Plan { state: Vec::new(), ..plan.clone() })
}

in_each_language!(
    describes_itself_as_the_one_that_ships,
    refuses_what_the_one_that_ships_refuses,
    plans_the_same_on_made_views,
    plans_the_same_on_telling_views,
    plans_the_same_over_whole_runs,
    a_recorded_run_is_replayed_without_a_difference
);

fn describes_itself_as_the_one_that_ships(language: Language) {
    let sandbox = Sandbox::new(Caps::default(), None).unwrap();
    for twin in twins(language) {
        let ships = sandbox.load(shipped::component(twin.native.name).unwrap(), None).unwrap();
        assert_eq!(twin.policy.description(), ships.description());
    }
}

fn refuses_what_the_one_that_ships_refuses(language: Language) {
    for twin in twins(language) {
        let scratch = Scratch::new();
        scratch.write("twin.wasm", &twin.bytes);
        scratch.write("run.toml", CONFIG);
        for setting in refused(twin.native.name) {
            let ask = |policy| scratch.allot(&["simulate", "run.toml", "--policy", policy, "--set", setting]);
            // Which setting; what is wrong with it a language's SDK may say in words of its own.
            let [ships, twins] = [ask(twin.native.name), ask("./twin.wasm")];
            let (which, _) = ships.split_once("`: ").unwrap_or_else(|| panic!("{setting}: {ships}"));
            assert!(
                which.starts_with("error: policy `") && which.contains("` refused its setting `"),
                "{ships}"
            );
            assert!(twins.starts_with(&format!("{which}`: ")) && twins.ends_with("exit code 2"), "{twins}");
        }
    }
}

/// Both are asked about a view, and then about what would come of the plan; each has its own state.
fn both_agree(twin: &Twin, run: &Run, view: &View, title: &str) -> usize {
    let name = twin.native.name;
    let mut ours = (twin.native.begin)(run).unwrap();
    let mut theirs = twin.policy.begin(run).unwrap().0;
    let mut view = view.clone();
    for call in 0..2 {
        let native = (twin.native.decide)(run, &ours, &view).unwrap();
        let told = || format!("{name} with {:?} on {title}, call {call}", run.settings);
        let plan =
            twin.policy.decide(run, &theirs, &view).unwrap_or_else(|fault| panic!("{}: {fault}", told())).0;
        assert!(seen(&plan) == seen(&native), "{}:\n{}\n{}", told(), seen(&plan), seen(&native));
        (ours, theirs) = (native.state.clone(), plan.state);
        view = after(view, native);
    }
    2
}

fn plans_the_same_on_made_views(language: Language) {
    for twin in twins(language) {
        let ways = ways(twin.native.name);
        let mut calls = 0;
        for (i, made) in fixtures::views(0, 500).into_iter().enumerate() {
            let corner = !made.title.starts_with("random");
            let rollouts: usize = made.view.groups.iter().map(|group| group.rewards.len()).sum();
            for (k, way) in ways.iter().enumerate() {
                // Each corner in each way, the very large ones in one; the others take turns.
                if i % ways.len() == k || (corner && rollouts < 10_000) {
                    calls += both_agree(&twin, &a_run(twin.native.name, way), &made.view, &made.title);
                }
            }
        }
        assert!(calls > 1000, "{calls}");
    }
}

fn plans_the_same_on_telling_views(language: Language) {
    for twin in twins(language) {
        let ways = ways(twin.native.name);
        for i in 0..550 {
            let run = a_run(twin.native.name, ways[i % ways.len()]);
            let whole = |name: &str| match run.settings.iter().find(|(known, _)| known == name) {
                Some((_, Value::Integer(count))) => *count as usize,
                _ => 8,
            };
            let view = telling(i as u64, whole("pilot"), whole("commit"));
            both_agree(&twin, &run, &view, &format!("telling view {i}"));
        }
    }
}

/// Rewards that a language could take for others: ties, both zeros, what rounds, what is huge or tiny.
const REWARDS: [f32; 18] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.1,
    0.100_000_01,
    1.0 / 3.0,
    1e-45,
    -1e-40,
    f32::MIN_POSITIVE,
    1e30,
    -1e30,
    f32::MAX,
    f32::MIN,
    16_777_216.0,
    1000.1,
    1000.2,
    f32::EPSILON,
];

/// A view in the middle of a step: groups as large as pilots, or as pilots with commits; rewards of a few
/// kinds; ages that differ; prompts of two epochs.
fn telling(i: u64, pilot: usize, commit: usize) -> View {
    let mut chance = Stream::new(i);
    let count = chance.below(20);
    let groups: Vec<Group> = (0..count)
        .map(|prompt| {
            let n = match chance.below(6) {
                0..3 => pilot,
                3 => pilot + commit,
                4 => pilot + chance.below(commit + 1),
                _ => 1 + chance.below(40),
            };
            let mut group = group(PromptId(prompt as u32), n, &mut chance);
            let oldest = chance.below(7) as u32;
            group.ages = (0..n).map(|_| chance.below(oldest as usize + 1) as u32).collect();
            group
        })
        .collect();
    let turn = chance.below(40) as u32;
    let pool = (0..chance.below(40) as u32).map(|k| Prompt {
        id: PromptId(count as u32 + k),
        epoch: 1 + u32::from(k > turn),
        tokens: 50,
        past: None,
    });
    View {
        step: 5,
        round: chance.below(3) as u32,
        seed: chance.bits() as u32,
        budget: Budget {
            rounds: chance.below(4) as u32,
            step_rollouts: u32::MAX,
            run_rollouts: [0, 100, 10_000][chance.below(3)],
            run_tokens: u64::MAX,
            run_flops: None,
        },
        pool: pool.collect(),
        groups,
        unscored: Vec::new(),
        history: History::default(),
    }
}

/// New rollouts of a prompt.
fn group(prompt: PromptId, n: usize, chance: &mut Stream) -> Group {
    let few: Vec<f32> = (0..=chance.below(4)).map(|_| REWARDS[chance.below(REWARDS.len())]).collect();
    let (real, right) = (chance.below(3) == 0, chance.unit());
    let mut reward = || if real { (4.0 * chance.unit() - 2.0) as f32 } else { few[chance.below(few.len())] };
    let rewards = (0..n).map(|_| reward()).collect();
    Group {
        prompt,
        epoch: 0,
        rewards,
        correct: (0..n).map(|_| chance.unit() < right).collect(),
        tokens: (0..n).map(|_| 1 + chance.below(500) as u32).collect(),
        ages: vec![0; n],
        truncated: vec![false; n],
        signals: Vec::new(),
        sampling: Vec::new(),
        trained: Vec::new(),
        turns: allot_allocation::GroupTurns::default(),
    }
}

/// What a policy is shown next: more rollouts, or a new step with what is held.
fn after(mut view: View, plan: Plan) -> View {
    let mut chance = Stream::new(u64::from(view.seed));
    view.pool.retain(|prompt| !plan.skip.contains(&prompt.id) && !plan.evict.contains(&prompt.id));
    match plan.action {
        Action::Sample(requests) => {
            view.round += 1;
            view.budget.rounds = view.budget.rounds.saturating_sub(1);
            for request in requests {
                let more = group(request.prompt, request.count.min(64) as usize, &mut chance);
                view.pool.retain(|prompt| prompt.id != request.prompt);
                match view.groups.iter_mut().find(|group| group.prompt == request.prompt) {
                    None => view.groups.push(more),
                    Some(known) => {
                        known.rewards.extend(more.rewards);
                        known.correct.extend(more.correct);
                        known.tokens.extend(more.tokens);
                        known.ages.extend(more.ages);
                        known.truncated.extend(more.truncated);
                    }
                }
            }
        }
        Action::Train(batch) => {
            (view.round, view.budget.rounds) = (0, 10);
            view.step = view.step.saturating_add(1);
            view.groups.retain(|group| batch.hold.contains(&group.prompt.into()));
            view.groups.iter_mut().flat_map(|group| &mut group.ages).for_each(|age| *age += 1);
        }
    }
    view.seed = chance.bits() as u32;
    view
}

/// Asks both, each with its own state, and insists that they agree.
struct Both<'a> {
    twin: &'a Twin,
    state: Vec<u8>,
    calls: usize,
}

impl Decide for Both<'_> {
    fn name(&self) -> &str {
        self.twin.native.name
    }

    fn decide(&mut self, run: &Run, state: &[u8], view: &View) -> Result<(Plan, Vec<LogLine>), Fault> {
        let (plan, cost) = self.twin.policy.decide(run, &self.state, view)?;
        let native = (self.twin.native.decide)(run, state, view).unwrap();
        assert_eq!(seen(&plan), seen(&native), "{} at {}.{}", self.name(), view.step, view.round);
        self.state = plan.state;
        self.calls += 1;
        Ok((native, cost.log))
    }
}

fn plans_the_same_over_whole_runs(language: Language) {
    let config = std::fs::read_to_string(scratch::root().join("configs/simulate.toml")).unwrap();
    let mut config = SimulateConfig::parse(&config, "configs/simulate.toml").unwrap();
    config.budget.rollouts = Some(10_000);
    config.world.prompts = 300;
    config.policy.settings.clear();
    for twin in twins(language) {
        for (seed, way) in ways(twin.native.name).iter().enumerate() {
            config.run.seed = seed as u64;
            let run = config.run.run(config.world.prompts, a_run(twin.native.name, way).settings);
            let ours = (twin.native.begin)(&run).unwrap();
            let both = Both { twin: &twin, state: twin.policy.begin(&run).unwrap().0, calls: 0 };
            let mut simulation = Simulation::with(&config, run, both, ours).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let mut nobody = ();
            simulation.world.run.of.every = Some(Every::Steps(1000));
            let end = run::run(&mut simulation.world, &mut nobody);
            let Rest::Over(end) = runtime.block_on(end).unwrap() else { panic!("it was paused") };
            assert!(end.normal && simulation.world.policy.calls > 10, "{}: {end:?}", twin.native.name);
        }
    }
}

const CONFIG: &str = r#"
[run]
seed = 3
steps = 12
groups = 4
rollouts = 8
[budget]
rollouts = 2000
[policy]
use = "uniform"
[world]
prompts = 100
held_out = 50
"#;

fn a_recorded_run_is_replayed_without_a_difference(language: Language) {
    for twin in twins(language) {
        let scratch = Scratch::new();
        scratch.write("twin.wasm", &twin.bytes);
        scratch.write("run.toml", CONFIG);
        for (i, way) in ways(twin.native.name).iter().enumerate() {
            let (out, typed) = (format!("out-{i}"), typed(way));
            let mut args = vec!["simulate", "run.toml", "--policy", twin.native.name, "--out", &out];
            args.extend(typed.iter().map(String::as_str));
            let ran = scratch.allot(&args);
            assert!(ran.ends_with("exit code 0"), "{ran}");
            let told = scratch.allot(&["replay", &out, "./twin.wasm", "--json"]);
            let json: serde_json::Value = serde_json::from_str(told.lines().next().unwrap()).unwrap();
            assert_eq!(json["differ"], 0, "{typed:?}: {told}");
            assert!(json["calls"].as_u64().unwrap() > 10 && json["ended"] == true, "{typed:?}: {told}");
        }
    }
}
