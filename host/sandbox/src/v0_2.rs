//! The adapter for contract version 0.2. It converts between the host's and the component's types.
//!
//! Lists are lent to the guest without a copy on the host.

use allot_allocation as ours;
use allot_allocation::{Need, Past, PromptId};

use wasmtime::Store;

use self::rollout::allocation::{facts, log, types};
use crate::Description;
use crate::calls::Answer;
use crate::facts::{COUNTS, Facts, MEASURES, Prompts};
use crate::fault::Misuse;
use crate::guest::GuestState;

wasmtime::component::bindgen!({
    world: "policy",
    path: "../../wit/0.2/allocation.wit",
    ownership: Borrowing { duplicate_if_necessary: true },
    imports: { "rollout:allocation/facts": trappable },
    additional_derives: [serde::Serialize],
});

// Serde is derived for all records. Only a description has flags, and no description is serialized.
impl serde::Serialize for types::Needs {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{self:?}"))
    }
}

crate::adapter::conversions!();
crate::adapter::policies!();

fn decide(
    policy: &Policy,
    store: &mut Store<GuestState>,
    run: &ours::Run,
    state: &[u8],
    view: &ours::View,
) -> Answer<ours::Plan> {
    let allocator = policy.rollout_allocation_allocator();
    store.data_mut().facts = Some(Facts::of(run, view));
    let answer =
        with_run_and_view(run, view, |run, view| allocator.call_decide(&mut *store, run, state, view));
    store.data_mut().facts = None;
    Ok(match answer? {
        Ok(answer) => {
            let plan = plan(answer);
            uses_what_it_described(&plan, run)?;
            Ok(plan)
        }
        Err(error) => Err(refusal(error)),
    })
}

// === Requests of the guest ===

impl facts::Host for GuestState {
    fn counts(&mut self, what: facts::Count, of: facts::Prompts) -> wasmtime::Result<Vec<u32>> {
        self.numbers(of, COUNTS[what as usize].1)
    }

    fn measures(&mut self, what: facts::Measure, of: facts::Prompts) -> wasmtime::Result<Vec<f32>> {
        self.numbers(of, MEASURES[what as usize].1)
    }

    fn column(&mut self, name: String, of: facts::Prompts) -> wasmtime::Result<Vec<f32>> {
        Ok(self.facts()?.column(&name, &prompts(of))?)
    }

    fn costs(&mut self) -> wasmtime::Result<facts::TokenCosts> {
        let ours::TokenCosts { reading, generating, learning } = self.facts()?.costs();
        Ok(facts::TokenCosts { reading, generating, learning })
    }
}

impl GuestState {
    fn numbers<T: Clone + Default>(
        &mut self,
        of: facts::Prompts,
        number: impl Fn(&Past) -> T,
    ) -> wasmtime::Result<Vec<T>> {
        Ok(self.facts()?.numbers(&prompts(of), number)?)
    }

    fn facts(&mut self) -> wasmtime::Result<&mut Facts> {
        match &mut self.facts {
            Some(facts) => Ok(facts),
            None => {
                misuse("asked for facts, which only `decide` may do".to_owned(), "ask for them in `decide`")
            }
        }
    }
}

fn prompts(of: facts::Prompts) -> Prompts {
    match of {
        facts::Prompts::All => Prompts::All,
        facts::Prompts::Between((first, end)) => Prompts::Between(first, end),
        facts::Prompts::Listed(prompts) => Prompts::Listed(prompts),
    }
}

// === To the guest ===

/// Lends a run's constants and a view to `call`.
pub(crate) fn with_run_and_view<T>(
    run: &ours::Run,
    view: &ours::View,
    call: impl FnOnce(types::Run<'_>, types::View<'_>) -> T,
) -> T {
    let sampling = run.terms.as_ref().filter(|_| run.gives(Need::Sampling));
    let shown = Shown {
        parts: run.parts().len(),
        with_parts: run.gives(Need::Parts),
        trained: run.gives(Need::Replay),
        sampling: sampling.map(|terms| settings_of(terms.sampling())),
    };
    with_run(run, |run| with_view(view, shown, |view| call(run, view)))
}

/// Lends a run's constants to `call`.
pub(crate) fn with_run<T>(run: &ours::Run, call: impl FnOnce(types::Run<'_>) -> T) -> T {
    let settings = lend_settings(&run.settings);
    // Records of runs under a policy of an older contract have no terms.
    let terms = run.terms.clone().unwrap_or_default();
    let parts = terms.parts.iter().filter(|_| run.gives(Need::Parts));
    let parts: Vec<&str> = parts.map(String::as_str).collect();
    let categories: Vec<Vec<&str>> =
        terms.columns.iter().map(|column| column.categories.iter().map(String::as_str).collect()).collect();
    let columns = terms.columns.iter().zip(&categories);
    let columns: Vec<types::Column<'_>> = columns
        .map(|(column, categories)| types::Column { name: &column.name, width: column.width, categories })
        .collect();
    let sampling = settings_of(terms.sampling());
    call(types::Run {
        settings: &settings,
        prompts: run.prompts,
        steps: run.steps,
        groups: run.groups,
        rollouts: run.rollouts,
        pool: run.pool,
        max_age: run.max_age,
        lag: run.lag,
        columns: &columns,
        parts: &parts,
        sampling: types::SamplingRange {
            default: sampling,
            least: run.requests().map_or(sampling, |range| settings_of(range.least)),
            most: run.requests().map_or(sampling, |range| settings_of(range.most)),
        },
        update: types::Update { mini_batch: terms.update.mini_batch, passes: terms.update.passes },
    })
}

fn settings_of(settings: ours::SamplerSettings) -> types::Sampling {
    types::Sampling { temperature: settings.temperature, max_tokens: settings.max_tokens }
}

/// Which data of a rollout the policy sees.
#[derive(Clone, Copy)]
struct Shown {
    /// How many of a rollout's last signals are parts of its reward.
    parts: usize,
    /// Whether the policy sees these parts.
    with_parts: bool,
    /// Whether the policy sees how often a rollout was trained on.
    trained: bool,
    /// The run's own sampling settings, if the policy sees how rollouts were sampled.
    sampling: Option<types::Sampling>,
}

/// Lends a view to `call`.
fn with_view<T>(view: &ours::View, shown: Shown, call: impl FnOnce(types::View<'_>) -> T) -> T {
    let pool: Vec<types::Prompt> = view.pool.iter().map(prompt).collect();
    let lists: Vec<Vec<&[f32]>> =
        view.groups.iter().map(|g| g.signals.iter().map(Vec::as_slice).collect()).collect();
    let sampled: Vec<Vec<types::Sampling>> = view.groups.iter().map(|g| sampled(g, shown.sampling)).collect();
    // Groups keep no such list for rollouts that were never trained on.
    let most = view.groups.iter().map(ours::Group::len).max().filter(|_| shown.trained);
    let never = vec![0; most.unwrap_or(0)];
    let groups: Vec<types::Group<'_>> = view
        .groups
        .iter()
        .zip(lists.iter().zip(&sampled))
        .map(|(g, (lists, sampling))| {
            let (signals, parts) = lists.split_at(lists.len().saturating_sub(shown.parts));
            let parts = if shown.with_parts { parts } else { &[] };
            let trained: &[u32] = match shown.trained {
                true if g.trained.len() == g.len() => &g.trained,
                true => &never[..g.len()],
                false => &[],
            };
            types::Group {
                prompt: g.prompt.0,
                epoch: g.epoch,
                rewards: &g.rewards,
                correct: &g.correct,
                lengths: &g.tokens,
                ages: &g.ages,
                truncated: &g.truncated,
                signals,
                parts,
                trained,
                sampling,
            }
        })
        .collect();
    let unscored: Vec<types::Tally> = view.unscored.iter().copied().map(tally).collect();
    call(types::View {
        step: view.step,
        round: view.round,
        seed: view.seed,
        budget: types::Budget {
            rounds: view.budget.rounds,
            step_rollouts: view.budget.step_rollouts,
            run_rollouts: view.budget.run_rollouts,
            run_tokens: view.budget.run_tokens,
            run_flops: view.budget.run_flops.unwrap_or(f64::MAX),
        },
        pool: &pool,
        groups: &groups,
        unscored: &unscored,
        under_way: &[],
    })
}

/// Returns the settings of each rollout, by default the run's; empty if the policy does not see them.
fn sampled(group: &ours::Group, run: Option<types::Sampling>) -> Vec<types::Sampling> {
    let Some(run) = run else { return Vec::new() };
    let own = group.sampling.iter().copied().chain(std::iter::repeat(None));
    own.take(group.len()).map(|own| own.map_or(run, settings_of)).collect()
}

fn prompt(p: &ours::Prompt) -> types::Prompt {
    let past = p.past.map(|past| types::Past {
        step: past.step,
        visits: past.visits,
        rollouts: past.rollouts,
        correct: past.correct,
        mean: past.mean,
        std: past.std(),
        mean_length: past.tokens,
        streak: past.streak,
        total_rollouts: past.total_rollouts,
        total_correct: past.total_correct,
    });
    types::Prompt { id: p.id.0, epoch: p.epoch, length: p.tokens, past }
}

fn tally(tally: ours::Tally) -> types::Tally {
    types::Tally { prompt: tally.prompt.0, rollouts: tally.rollouts }
}

// === From the guest ===

/// Converts a guest's description.
fn description(d: types::Description) -> Description {
    Description {
        name: d.name,
        version: d.version,
        summary: d.summary,
        settings: settings(d.settings),
        signals: d.signals,
        columns: d.columns,
        needs: needs(d.needs),
    }
}

fn needs(needs: types::Needs) -> Vec<Need> {
    let named = [
        (types::Needs::ANY_PROMPT, Need::AnyPrompt),
        (types::Needs::REPLAY, Need::Replay),
        (types::Needs::SAMPLING, Need::Sampling),
        (types::Needs::STOPPING, Need::Stopping),
        (types::Needs::UPDATING, Need::Updating),
        (types::Needs::PARTS, Need::Parts),
    ];
    named.into_iter().filter(|(flag, _)| needs.contains(*flag)).map(|(_, need)| need).collect()
}

/// Converts a guest's plan.
fn plan(p: types::Plan) -> ours::Plan {
    let action = match p.action {
        types::Action::Sample(requests) => ours::Action::Sample(requests.into_iter().map(request).collect()),
        types::Action::Train(batch) => ours::Action::Train(ours::Batch {
            picks: batch.picks.into_iter().map(pick).collect(),
            hold: batch.hold.into_iter().map(hold).collect(),
            update: batch.update.map(geometry),
        }),
    };
    ours::Plan {
        action,
        skip: ids(p.skip),
        defer: ids(p.defer),
        evict: ids(p.evict),
        state: p.state,
        metrics: p.metrics,
    }
}

fn request(r: types::Request) -> ours::Request {
    let until = r.until.map(|enough| ours::Enough {
        correct: enough.correct,
        wrong: enough.wrong,
        portion: enough.portion,
    });
    let sampling = r
        .sampling
        .map(|own| ours::SamplerSettings { temperature: own.temperature, max_tokens: own.max_tokens });
    ours::Request { until, sampling, ..ours::Request::new(PromptId(r.prompt), r.count) }
}

fn pick(p: types::Pick) -> ours::Pick {
    ours::Pick {
        prompt: PromptId(p.prompt),
        rollouts: p.rollouts,
        advantage: match p.advantage {
            types::Advantage::Picked => ours::Advantage::Picked,
            types::Advantage::Group => ours::Advantage::Group,
            types::Advantage::Among(positions) => ours::Advantage::Among(positions),
            types::Advantage::Given(own) => ours::Advantage::Given(own),
        },
        weight: p.weight,
    }
}

fn hold(h: types::Hold) -> ours::Hold {
    ours::Hold { prompt: PromptId(h.prompt), rollouts: h.rollouts }
}

fn geometry(update: types::Update) -> ours::Geometry {
    ours::Geometry { mini_batch: update.mini_batch, passes: update.passes }
}

/// Rejects a plan that uses a feature that its policy did not describe as a need.
pub(crate) fn uses_what_it_described(plan: &ours::Plan, run: &ours::Run) -> Result<(), Misuse> {
    let uses: &[(bool, Need, &str)] = match &plan.action {
        ours::Action::Sample(requests) => &[
            (requests.iter().any(|r| r.until.is_some()), Need::Stopping, "`until` in a request"),
            (requests.iter().any(|r| r.sampling.is_some()), Need::Sampling, "`sampling` in a request"),
        ],
        ours::Action::Train(batch) => &[(batch.update.is_some(), Need::Updating, "`update` in its batch")],
    };
    match uses.iter().find(|(used, need, _)| *used && !run.gives(*need)) {
        Some((_, need, what)) => {
            let what = format!("used {what}, but its description does not have `{need}` among its needs");
            Err(Misuse::new(what, need.hint()))
        }
        None => Ok(()),
    }
}

fn misuse<T>(what: String, hint: &'static str) -> wasmtime::Result<T> {
    Err(Misuse::new(what, hint).into())
}
