//! The policies that ship, as plain native functions on the host's types, as contract 0.3 turns them.

#![allow(dead_code, reason = "each test uses a part of it")]

use allot_allocation as ours;
use allot_authoring::fixtures;
use allot_policy::{Policy, made, types as theirs};
use ours::{Need, PromptId};

/// A policy's three calls, natively.
pub struct Native {
    pub name: &'static str,
    /// How many signals it is shown.
    pub signals: usize,
    /// Whether it makes use of nothing that a run must give first.
    pub plain: bool,
    /// The columns that it asks for.
    pub columns: &'static [&'static str],
    pub begin: fn(&ours::Run) -> Result<Vec<u8>, String>,
    pub decide: fn(&ours::Run, &[u8], &ours::View) -> Result<ours::Plan, String>,
    /// The same, without turning the host's types into the policy's first.
    pub bare: fn(&theirs::Run, &[u8], &theirs::View) -> Result<theirs::Plan, theirs::Error>,
}

impl Native {
    /// All that a policy which ships may need, in a run over so many prompts.
    pub fn everything(&self, prompts: u32) -> ours::Terms {
        let columns: Vec<String> = self.columns.iter().map(|name| (*name).to_owned()).collect();
        let columns = fixtures::columns(&columns, prompts);
        let needs = vec![
            Need::AnyPrompt,
            Need::Replay,
            Need::Sampling,
            Need::Stopping,
            Need::Updating,
            Need::Turns,
            Need::Starting,
        ];
        // As the simulations of the tests: longer than the answers of made views.
        let own = ours::SamplerSettings { temperature: 1.0, max_tokens: 1024, max_turns: 3 };
        let requests = Some(ours::SamplerRange::around(own, None, Some(16), None));
        ours::Terms { needs, columns, max_tokens: 1024, max_turns: 3, requests, ..ours::Terms::default() }
    }
}

/// All policies that ship.
pub fn all() -> Vec<Native> {
    vec![
        of::<adarft::AdaRft>(),
        of::<advantage_replay::AdvantageReplay>(),
        of::<aero::Aero>(),
        of::<ar3po::Ar3po>(),
        of::<uniform::Uniform>(),
        of::<dapo::Dapo>(),
        of::<greso::Greso>(),
        of::<pods::Pods>(),
        of::<pilot_commit::PilotCommit>(),
        of::<reinforce_ada::ReinforceAda>(),
        of::<knapsack::Knapsack>(),
        of::<c_grpo::CGrpo>(),
        of::<cero::Cero>(),
        of::<coba_rl::CobaRl>(),
        of::<info_steps::InfoSteps>(),
        of::<length_limit::LengthLimit>(),
        of::<lilo::Lilo>(),
        of::<mopps::Mopps>(),
        of::<prefix_sampling::PrefixSampling>(),
        of::<prospect::Prospect>(),
        of::<repo::RePo>(),
        of::<rl_zvp::RlZvp>(),
        of::<sagc::Sagc>(),
        of::<sgpo::Sgpo>(),
        of::<spo::Spo>(),
        of::<strata::Strata>(),
        of::<tree_grpo::TreeGrpo>(),
        of::<vip::Vip>(),
    ]
}

/// A policy's calls.
pub fn of<P: Policy>() -> Native {
    Native {
        name: P::NAME,
        signals: P::SIGNALS.len(),
        plain: P::NEEDS.is_empty() && P::COLUMNS.is_empty(),
        columns: P::COLUMNS,
        begin: |run| allot_policy::begin::<P>(&run_of(run)).map_err(|e| format!("{e:?}")),
        decide: |run, state, view| {
            facts_of(run, view).tell();
            let plan = allot_policy::decide::<P>(&run_of(run), state, &view_of(view, run));
            plan.map(plan_of).map_err(|e| format!("{e:?}"))
        },
        bare: allot_policy::decide::<P>,
    }
}

pub fn run_of(run: &ours::Run) -> theirs::Run {
    let value = |v: &ours::Value| match v {
        ours::Value::Flag(v) => theirs::Value::Flag(*v),
        ours::Value::Integer(v) => theirs::Value::Integer(*v),
        ours::Value::Number(v) => theirs::Value::Number(*v),
        ours::Value::Text(v) => theirs::Value::Text(v.clone()),
    };
    let terms = run.terms.clone().unwrap_or_default();
    let sampling = sampling_of(terms.sampling());
    theirs::Run {
        settings: run.settings.iter().map(|(name, v)| (name.clone(), value(v))).collect(),
        prompts: run.prompts,
        steps: run.steps,
        groups: run.groups,
        rollouts: run.rollouts,
        pool: run.pool,
        max_age: run.max_age,
        lag: run.lag,
        columns: run.columns().iter().map(|c| column_of(c)).collect(),
        parts: if run.gives(Need::Parts) { terms.parts } else { Vec::new() },
        sampling: theirs::SamplingRange {
            default: sampling,
            least: run.requests().map_or(sampling, |range| sampling_of(range.least)),
            most: run.requests().map_or(sampling, |range| sampling_of(range.most)),
        },
        update: theirs::Update { mini_batch: terms.update.mini_batch, passes: terms.update.passes },
    }
}

fn sampling_of(sampling: ours::SamplerSettings) -> theirs::Sampling {
    let ours::SamplerSettings { temperature, max_tokens, max_turns } = sampling;
    theirs::Sampling { temperature, max_tokens, max_turns }
}

fn column_of(column: &ours::Column) -> theirs::Column {
    let ours::Column { name, width, categories, .. } = column.clone();
    theirs::Column { name, width, categories }
}

/// What a policy may ask while it is shown this view.
fn facts_of(run: &ours::Run, view: &ours::View) -> made::Facts {
    let costs = run.terms.as_ref().map_or_else(Default::default, |terms| terms.costs);
    let of = made::Facts::of(run.prompts).costs(costs.reading, costs.generating, costs.learning);
    let past = |id| view.history.of(PromptId(id)).map(|past| (id, past_of(past)));
    let columns = run.columns().iter().map(|c| (c.name.clone(), c.numbers.clone())).collect();
    made::Facts { past: (0..run.prompts).filter_map(past).collect(), columns, ..of }
}

fn past_of(p: ours::Past) -> theirs::Past {
    theirs::Past {
        step: p.step,
        visits: p.visits,
        rollouts: p.rollouts,
        correct: p.correct,
        mean: p.mean,
        std: p.std(),
        mean_length: p.tokens,
        streak: p.streak,
        total_rollouts: p.total_rollouts,
        total_correct: p.total_correct,
    }
}

/// A run of a native policy with its defaults, over 1,000 prompts.
pub fn run(native: &str) -> ours::Run {
    ours::Run {
        settings: defaults(native),
        prompts: 1000,
        steps: 50,
        groups: 16,
        rollouts: 8,
        pool: 64,
        max_age: 5,
        lag: 0,
        terms: None,
    }
}

/// The settings of a native policy, with their defaults, on the host's types.
pub fn defaults(native: &str) -> Vec<(String, ours::Value)> {
    fn settings<P: Policy>() -> Vec<(String, ours::Value)> {
        let value = |v| match v {
            theirs::Value::Flag(v) => ours::Value::Flag(v),
            theirs::Value::Integer(v) => ours::Value::Integer(v),
            theirs::Value::Number(v) => ours::Value::Number(v),
            theirs::Value::Text(v) => ours::Value::Text(v),
        };
        allot_policy::describe::<P>().settings.into_iter().map(|s| (s.name, value(s.default))).collect()
    }
    match native {
        "adarft" => settings::<adarft::AdaRft>(),
        "advantage-replay" => settings::<advantage_replay::AdvantageReplay>(),
        "aero" => settings::<aero::Aero>(),
        "ar3po" => settings::<ar3po::Ar3po>(),
        "info-steps" => settings::<info_steps::InfoSteps>(),
        "prospect" => settings::<prospect::Prospect>(),
        "repo" => settings::<repo::RePo>(),
        "uniform" => settings::<uniform::Uniform>(),
        "dapo" => settings::<dapo::Dapo>(),
        "greso" => settings::<greso::Greso>(),
        "pods" => settings::<pods::Pods>(),
        "pilot-commit" => settings::<pilot_commit::PilotCommit>(),
        "reinforce-ada" => settings::<reinforce_ada::ReinforceAda>(),
        "prefix-sampling" => settings::<prefix_sampling::PrefixSampling>(),
        "knapsack" => settings::<knapsack::Knapsack>(),
        "c-grpo" => settings::<c_grpo::CGrpo>(),
        "cero" => settings::<cero::Cero>(),
        "coba-rl" => settings::<coba_rl::CobaRl>(),
        "length-limit" => settings::<length_limit::LengthLimit>(),
        "lilo" => settings::<lilo::Lilo>(),
        "mopps" => settings::<mopps::Mopps>(),
        "rl-zvp" => settings::<rl_zvp::RlZvp>(),
        "sagc" => settings::<sagc::Sagc>(),
        "sgpo" => settings::<sgpo::Sgpo>(),
        "spo" => settings::<spo::Spo>(),
        "strata" => settings::<strata::Strata>(),
        "tree-grpo" => settings::<tree_grpo::TreeGrpo>(),
        "vip" => settings::<vip::Vip>(),
        other => panic!("`{other}` is none of the policies that ship"),
    }
}

pub fn view_of(view: &ours::View, run: &ours::Run) -> theirs::View {
    let prompt = |p: &ours::Prompt| theirs::Prompt {
        id: p.id.0,
        epoch: p.epoch,
        length: p.tokens,
        past: p.past.map(past_of),
    };
    let group = |g: &ours::Group| {
        let (signals, parts) = g.signals.split_at(g.signals.len().saturating_sub(run.parts().len()));
        theirs::Group {
            prompt: g.prompt.0,
            epoch: g.epoch,
            rewards: g.rewards.clone(),
            correct: g.correct.clone(),
            lengths: g.tokens.clone(),
            ages: g.ages.clone(),
            truncated: g.truncated.clone(),
            signals: signals.to_vec(),
            parts: if run.gives(Need::Parts) { parts.to_vec() } else { Vec::new() },
            trained: trained_of(g, run),
            sampling: sampled_of(g, run),
            turns: turns_of(g, run),
            stopped: stopped_of(g, run),
            origins: origins_of(g, run),
        }
    };
    let tally = |t: &ours::Tally| theirs::Tally { prompt: t.prompt.0, rollouts: t.rollouts };
    theirs::View {
        step: view.step,
        round: view.round,
        seed: view.seed,
        budget: theirs::Budget {
            rounds: view.budget.rounds,
            step_rollouts: view.budget.step_rollouts,
            run_rollouts: view.budget.run_rollouts,
            run_tokens: view.budget.run_tokens,
            run_flops: view.budget.run_flops.unwrap_or(f64::MAX),
        },
        pool: view.pool.iter().map(prompt).collect(),
        groups: view.groups.iter().map(group).collect(),
        unscored: view.unscored.iter().map(tally).collect(),
        under_way: Vec::new(),
    }
}

/// How often an update was made on each rollout, if the policy is shown that.
fn trained_of(group: &ours::Group, run: &ours::Run) -> Vec<u32> {
    let shown = if run.gives(Need::Replay) { group.len() } else { 0 };
    (0..shown).map(|i| group.trained.get(i).copied().unwrap_or(0)).collect()
}

/// The turns of each rollout, if the policy is shown them.
fn turns_of(group: &ours::Group, run: &ours::Run) -> Vec<Vec<theirs::Turn>> {
    let turn = |turn: &ours::TurnLength| theirs::Turn { read: turn.0, tokens: turn.1 };
    let shown = if run.gives(Need::Turns) { group.len() } else { 0 };
    let of =
        |i: usize| group.turns.lengths.get(i).map_or_else(Vec::new, |all| all.iter().map(turn).collect());
    (0..shown).map(of).collect()
}

/// Why each rollout stopped, if the policy is shown that.
fn stopped_of(group: &ours::Group, run: &ours::Run) -> Vec<theirs::Stopped> {
    let shown = if run.gives(Need::Turns) { group.len() } else { 0 };
    let of = |i: usize| match group.turns.stopped.get(i) {
        None | Some(ours::Stopped::Done | ours::Stopped::EnvironmentError) => theirs::Stopped::Done,
        Some(ours::Stopped::MaxTurns) => theirs::Stopped::MaxTurns,
        Some(ours::Stopped::MaxTokens) => theirs::Stopped::MaxTokens,
        Some(ours::Stopped::MaxReadTokens) => theirs::Stopped::MaxReadTokens,
        Some(ours::Stopped::MaxToolCalls) => theirs::Stopped::MaxToolCalls,
        Some(ours::Stopped::MaxSeconds) => theirs::Stopped::MaxSeconds,
    };
    (0..shown).map(of).collect()
}

/// What each rollout continues, if the policy is shown that.
fn origins_of(group: &ours::Group, run: &ours::Run) -> Vec<Option<theirs::Origin>> {
    let shown = if run.gives(Need::Starting) { group.len() } else { 0 };
    let origin = |origin: ours::Origin| theirs::Origin { rollout: origin.rollout, turn: origin.turn };
    (0..shown).map(|i| group.turns.origins.get(i).copied().flatten().map(origin)).collect()
}

/// How each rollout was sampled, if the policy is shown that.
fn sampled_of(group: &ours::Group, run: &ours::Run) -> Vec<theirs::Sampling> {
    let Some(terms) = run.terms.as_ref().filter(|_| run.gives(Need::Sampling)) else { return Vec::new() };
    let own = terms.sampling();
    let settings = (0..group.len()).map(|i| group.sampling.get(i).copied().flatten().unwrap_or(own));
    settings.map(sampling_of).collect()
}

fn start_of(start: theirs::Start) -> ours::Start {
    ours::Start { rollout: start.rollout, turn: start.turn }
}

pub fn plan_of(plan: theirs::Plan) -> ours::Plan {
    let ids = |ids: Vec<u32>| ids.into_iter().map(PromptId).collect::<Vec<_>>();
    let pick = |p: theirs::Pick| ours::Pick {
        prompt: PromptId(p.prompt),
        rollouts: p.rollouts,
        advantage: match p.advantage {
            theirs::Advantage::Picked => ours::Advantage::Picked,
            theirs::Advantage::Group => ours::Advantage::Group,
            theirs::Advantage::Among(positions) => ours::Advantage::Among(positions),
            theirs::Advantage::Given(own) => ours::Advantage::Given(own),
            theirs::Advantage::ByTurn(own) => ours::Advantage::ByTurn(own),
        },
        weight: p.weight,
    };
    let enough = |e: theirs::Enough| ours::Enough { correct: e.correct, wrong: e.wrong, portion: e.portion };
    let request = |r: theirs::Request| ours::Request {
        until: r.until.map(enough),
        sampling: r.sampling.map(|own| ours::SamplerSettings {
            temperature: own.temperature,
            max_tokens: own.max_tokens,
            max_turns: own.max_turns,
        }),
        starts: r.starts.into_iter().map(|start| start.map(start_of)).collect(),
        ..ours::Request::new(PromptId(r.prompt), r.count)
    };
    let geometry = |u: theirs::Update| ours::Geometry { mini_batch: u.mini_batch, passes: u.passes };
    let hold = |h: theirs::Hold| ours::Hold { prompt: PromptId(h.prompt), rollouts: h.rollouts };
    let action = match plan.action {
        theirs::Action::Sample(requests) => ours::Action::Sample(requests.into_iter().map(request).collect()),
        theirs::Action::Train(batch) => ours::Action::Train(ours::Batch {
            picks: batch.picks.into_iter().map(pick).collect(),
            hold: batch.hold.into_iter().map(hold).collect(),
            update: batch.update.map(geometry),
        }),
    };
    ours::Plan {
        action,
        skip: ids(plan.skip),
        defer: ids(plan.defer),
        evict: ids(plan.evict),
        state: plan.state,
        metrics: plan.metrics,
    }
}

// === And back ===

pub fn our_run(run: &theirs::Run) -> ours::Run {
    let value = |v: &theirs::Value| match v {
        theirs::Value::Flag(v) => ours::Value::Flag(*v),
        theirs::Value::Integer(v) => ours::Value::Integer(*v),
        theirs::Value::Number(v) => ours::Value::Number(*v),
        theirs::Value::Text(v) => ours::Value::Text(v.clone()),
    };
    ours::Run {
        settings: run.settings.iter().map(|(name, v)| (name.clone(), value(v))).collect(),
        prompts: run.prompts,
        steps: run.steps,
        groups: run.groups,
        rollouts: run.rollouts,
        pool: run.pool,
        max_age: run.max_age,
        lag: run.lag,
        terms: None,
    }
}

pub fn our_view(view: &theirs::View) -> ours::View {
    let past = |p: theirs::Past| ours::Past {
        step: p.step,
        visits: p.visits,
        rollouts: p.rollouts,
        correct: p.correct,
        mean: p.mean,
        deviation: p.deviation(),
        tokens: p.mean_length,
        streak: p.streak,
        total_rollouts: p.total_rollouts,
        total_correct: p.total_correct,
    };
    let prompt = |p: &theirs::Prompt| ours::Prompt {
        id: PromptId(p.id),
        epoch: p.epoch,
        tokens: p.length,
        past: p.past.map(past),
    };
    let group = |g: &theirs::Group| ours::Group {
        sampling: Vec::new(),
        prompt: PromptId(g.prompt),
        epoch: g.epoch,
        rewards: g.rewards.clone(),
        correct: g.correct.clone(),
        tokens: g.lengths.clone(),
        ages: g.ages.clone(),
        truncated: g.truncated.clone(),
        signals: g.signals.clone(),
        trained: Vec::new(),
        turns: ours::GroupTurns::default(),
    };
    ours::View {
        step: view.step,
        round: view.round,
        seed: view.seed,
        budget: ours::Budget {
            rounds: view.budget.rounds,
            step_rollouts: view.budget.step_rollouts,
            run_rollouts: view.budget.run_rollouts,
            run_tokens: view.budget.run_tokens,
            run_flops: None,
        },
        pool: view.pool.iter().map(prompt).collect(),
        groups: view.groups.iter().map(group).collect(),
        unscored: Vec::new(),
        history: ours::History::default(),
    }
}
