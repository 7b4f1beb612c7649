//! The rules that a plan must keep. A plan that breaks a rule ends the run with an error that names the
//! policy, the step, the round and the prompt.

mod episodes;

use std::collections::{HashMap, HashSet};
use std::fmt;

use crate::{
    Action, Advantage, Batch, Enough, Geometry, Group, Need, Pick, Plan, PromptId, Request, Run,
    SamplerRange, SamplerSettings, View, run::naming, shown,
};

/// The largest weight and the largest given advantage. A value near the limit of f32 would turn into an
/// infinity in the update, and its cause would be hard to find.
pub const LARGEST: f32 = 1e6;

/// The characters of a metric's name, for messages. Names appear in tables, terminals and TensorBoard tags.
const METRIC_NAME: &str = "ASCII letters, digits and `-`, `_`, `.`, `/`, a letter or digit first";

/// Returns whether a metric may have this name. Does not check the length.
fn is_metric_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./".contains(&b))
}

/// Limits on a plan, and on its data in the record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// Maximum size of the state, in bytes.
    pub state: usize,
    /// Maximum size in the record of all state changes of a run, in bytes: see [`check_record`].
    pub states: u64,
    /// Maximum number of metrics.
    pub metrics: usize,
    /// Maximum length of a metric's name, in bytes.
    pub metric_name: usize,
    /// Number of prompts in the data set, if a plan may request any of them.
    pub any_prompt: Option<u32>,
    /// Maximum number of passes over a batch with its own update geometry.
    pub passes: u32,
    /// The range of sampler settings that a request may choose, if it may choose.
    pub sampling: Option<SamplerRange>,
    /// Whether a plan may hold rollouts that it picks.
    pub replay: bool,
}

impl Bounds {
    /// Returns these bounds with the limits of a run filled in.
    pub fn within(self, run: &Run) -> Self {
        let (any_prompt, passes, sampling) = (run.any_prompt(), run.most_passes(), run.requests());
        Self { any_prompt, passes, sampling, replay: run.gives(Need::Replay), ..self }
    }
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            state: 16 << 20,
            states: 1 << 30,
            metrics: 64,
            metric_name: 64,
            any_prompt: None,
            passes: 1,
            sampling: None,
            replay: false,
        }
    }
}

/// A broken rule, with the place where it was broken.
#[derive(Clone, Debug, PartialEq)]
pub struct Broken {
    /// The policy's name.
    pub policy: String,
    /// The step.
    pub step: u32,
    /// The round.
    pub round: u32,
    /// The rule.
    pub rule: Rule,
}

/// How a plan uses the rollouts that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// The plan trains on them.
    Picked,
    /// The plan computes a pick's advantages relative to them.
    MeasuredAgainst,
    /// The plan holds them.
    Held,
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Picked => "picked",
            Self::MeasuredAgainst => "measured against",
            Self::Held => "held",
        })
    }
}

/// Defines the rules from a table. An entry has the variant, the rule's name, the behavior of a legal plan,
/// the violation (as the rest of a sentence), and a hint for the policy's author.
macro_rules! rules {
    ($(
        $rule:ident $(($($field:ident: $type:ty),+))? = $name:literal, $kept:literal;
            [$($broken:tt)+]
            $hint:expr;
    )+) => {
        /// The rules. Each variant describes a violation.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Rule {
            $(#[doc = concat!("`", $name, "`: a plan that keeps it ", $kept, ".")] $rule $(($($type),+))?,)+
        }

        impl Rule {
            /// Every rule's name and description, in the order of the variants.
            pub const ALL: [(&str, &str); [$($name),+].len()] = [$(($name, $kept)),+];

            /// Returns the rule's name, as in [`Rule::ALL`].
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$rule { .. } => $name,)+
                }
            }

            /// Returns a hint for the policy's author.
            #[expect(unused_variables, reason = "few hints depend on what a rule was broken with")]
            pub fn hint(&self) -> &'static str {
                match self {
                    $(Self::$rule $(($($field),+))? => $hint,)+
                }
            }
        }

        impl fmt::Display for Rule {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$rule $(($($field),+))? => write!(f, $($broken)+),)+
                }
            }
        }
    };
}

rules! {
    // === Sampling ===
    NoRoundLeft = "no-round-left", "samples only while the step has rounds left";
        ["asked to sample, but the step has no round of sampling left"]
        NOTHING_LEFT;
    NoStepRolloutLeft = "no-step-rollout-left", "samples only while the step has rollouts left";
        ["asked to sample, but the step has no rollout left"]
        NOTHING_LEFT;
    NothingAsked = "nothing-asked", "a plan that samples asks for, skips, defers or evicts something";
        ["asked for no rollouts, skipped nothing and evicted nothing"]
        "answer `train` when there is nothing to sample; its picks may be empty";
    UnknownRequest(p: PromptId) = "unknown-request", "samples only prompts in the pool or buffered";
        ["asked for rollouts of prompt `{p}`, which is neither in the pool nor buffered"]
        naming!(
            "take ids from `view.pool` or `view.groups` of the same call; to request any prompt, name the need",
            "any-prompt",
            "ANY_PROMPT",
            "AnyPrompt"
        );
    NoSuchPrompt(p: PromptId, prompts: u32) = "no-such-prompt", "samples only prompts of the data set";
        [
            "asked for rollouts of prompt `{p}`; the data set has {prompts} prompts (0 to {})",
            prompts.saturating_sub(1)
        ]
        "prompts are numbered from 0 up to `run.prompts`, without it";
    RequestedTwice(p: PromptId) = "requested-twice", "asks for a prompt once in a plan";
        ["asked for prompt `{p}` twice in one plan"]
        "add the counts up in one request";
    NoCount(p: PromptId) = "no-count", "asks for at least one rollout in a request";
        ["asked for 0 rollouts of prompt `{p}`; a request is for at least 1"]
        "leave the request out";
    SmallPortion(p: PromptId, portion: u32, least: u32) = "small-portion",
        "asks for portions of at least 1 rollout, and of a 256th of the request";
        ["asked for rollouts of prompt `{p}` in portions of {portion}; the smallest is {least}"]
        "between two portions nothing else is sampled; take a larger one";
    Temperature(p: PromptId, temperature: f32, low: f32, high: f32) = "temperature",
        "asks for temperatures that the run takes";
        ["asked for rollouts of prompt `{p}` at temperature {temperature}; the run takes {low} to {high}"]
        WITHIN_SAMPLING;
    MaxTokens(p: PromptId, tokens: u32, least: u32, most: u32) = "max-tokens",
        "asks for length limits that the run takes";
        ["asked for rollouts of prompt `{p}` of at most {tokens} tokens; the run takes {least} to {most}"]
        WITHIN_SAMPLING;
    MaxTurns(p: PromptId, turns: u32, least: u32, most: u32) = "max-turns",
        "asks for limits of turns that the run takes";
        ["asked for rollouts of prompt `{p}` of at most {turns} turns; the run takes {least} to {most}"]
        WITHIN_SAMPLING;
    StartsCount(p: PromptId, starts: usize, count: u32) = "starts-count",
        "says for each rollout of a request what it continues, or for none";
        ["asked for {count} rollouts of prompt `{p}` with {starts} `starts`"]
        "give one entry for each rollout of the request, none where it begins with the prompt";
    NoSuchStart(p: PromptId, rollout: u32, len: usize) = "no-such-start", "continues only buffered rollouts of the prompt";
        ["continued rollout {rollout} of prompt `{p}`, which has {len} buffered"]
        "take positions from the prompt's group in `view.groups` of the same call";
    NoTurnAfter(p: PromptId, rollout: u32, turn: u32, turns: u32) = "no-turn-after",
        "continues a rollout after a turn that was not its last";
        ["continued rollout {rollout} of prompt `{p}` after turn {turn}, counted from 0; its turns number {turns}"]
        "the last turn ended the rollout, so nothing can follow it: keep an earlier one";
    RequestedAndSkipped(p: PromptId) = "requested-and-skipped", "does not skip what it samples";
        ["both asked for rollouts of prompt `{p}` and skipped it"]
        "do one of the two; `evict` may go together with a request";

    // === Skipping, deferring, evicting ===
    SkipNotInPool(p: PromptId) = "skip-not-in-pool", "skips only prompts in the pool";
        ["skipped prompt `{p}`, which is not in the pool"]
        "skip only ids of `view.pool`; to pass over a prompt for good, evict it";
    SkippedTwice(p: PromptId) = "skipped-twice", "skips a prompt once in a plan";
        ["skipped prompt `{p}` twice in one plan"]
        ONCE;
    DeferNotInPool(p: PromptId) = "defer-not-in-pool", "defers only prompts in the pool";
        ["deferred prompt `{p}`, which is not in the pool"]
        "defer only ids of `view.pool`; what is not on offer need not be put back";
    DeferredTwice(p: PromptId) = "deferred-twice", "defers a prompt once in a plan";
        ["deferred prompt `{p}` twice in one plan"]
        ONCE;
    DeferredAndUsed(p: PromptId) = "deferred-and-used", "defers no prompt that it samples or skips";
        ["deferred prompt `{p}`, which the same plan samples or skips"]
        "do one of the three; what is not sampled or skipped stays on offer";
    UnknownEviction(p: PromptId) = "unknown-eviction", "evicts only prompts in the pool or buffered";
        ["evicted prompt `{p}`, which is neither in the pool nor buffered"]
        "take ids from `view.pool` or `view.groups` of the same call; both change between calls";
    EvictedTwice(p: PromptId) = "evicted-twice", "evicts a prompt once in a plan";
        ["evicted prompt `{p}` twice in one plan"]
        ONCE;

    // === Training ===
    UnknownPick(p: PromptId) = "unknown-pick", "picks only buffered prompts";
        ["picked prompt `{p}`, which has no buffered rollouts"]
        FROM_GROUPS;
    PickedTwice(p: PromptId) = "picked-twice", "picks a prompt once in a batch";
        ["picked prompt `{p}` twice in one batch"]
        "put all positions of a prompt into one pick";
    EmptyPick(verb: Verb, p: PromptId) = "empty-pick", "picks at least one rollout of a group";
        ["{verb} none of the rollouts of prompt `{p}`"]
        "leave the pick out, or give no list at all for every rollout";
    NoSuchPosition(verb: Verb, p: PromptId, position: u32, len: usize) = "no-such-position",
        "picks positions that the group has";
        ["{verb} rollout {position} of prompt `{p}`, which has {len} buffered (0 to {})", len - 1]
        POSITIONS;
    PositionTwice(verb: Verb, p: PromptId, position: u32) = "position-twice", "picks a position once";
        ["{verb} rollout {position} of prompt `{p}` twice"]
        POSITIONS;
    BadWeight(p: PromptId, weight: f32) = "bad-weight", "gives weights from 0 to 1,000,000";
        [
            "gave prompt `{p}` the {}weight {weight}; a weight is from 0 to {LARGEST}",
            if *weight < 0.0 { "negative " } else { "" }
        ]
        if weight.is_finite() && *weight < 0.0 {
            "give a weight of 0 or more; to train away from answers, give advantages of your own"
        } else {
            out_of_bounds(*weight)
        };
    GivenCount(p: PromptId, given: usize, picked: usize) = "given-count",
        "gives one advantage for each rollout picked";
        ["gave {given} advantages for the {picked} rollouts picked of prompt `{p}`"]
        "give one advantage for each rollout picked, in the order of the pick";
    BadGiven(p: PromptId, index: usize, value: f32) = "bad-given",
        "gives advantages from -1,000,000 to 1,000,000";
        ["gave prompt `{p}` the advantage {value} at index {index}; one is from -{LARGEST} to {LARGEST}"]
        out_of_bounds(*value);
    ByTurnCount(p: PromptId, position: usize, given: usize, turns: u32) = "by-turn-count",
        "gives one advantage for each turn of a rollout picked";
        ["gave {given} advantages for rollout {position} of prompt `{p}`, whose turns number {turns}"]
        "give one advantage for each of `group.turns`, in order";
    BadByTurn(p: PromptId, position: usize, turn: usize, value: f32) = "bad-by-turn",
        "gives advantages by turn from -1,000,000 to 1,000,000";
        ["gave turn {turn} of rollout {position} of prompt `{p}` the advantage {value}; one is from -{LARGEST} to {LARGEST}"]
        out_of_bounds(*value);
    UnknownHold(p: PromptId) = "unknown-hold", "holds only buffered prompts";
        ["held prompt `{p}`, which has no buffered rollouts"]
        FROM_GROUPS;
    HeldTwice(p: PromptId) = "held-twice", "holds a prompt once in a batch";
        ["held prompt `{p}` twice in one batch"]
        ONCE;
    HeldAndPicked(p: PromptId, position: u32) = "held-and-picked",
        "holds no rollout by position that it picks, unless it needs `replay`";
        ["held rollout {position} of prompt `{p}`, which it also picked, and has no `replay` among its needs"]
        naming!("hold only rollouts that are not picked, or name the need", "replay", "REPLAY", "Replay");
    EmptyMiniBatch = "empty-mini-batch", "makes optimizer steps of at least one rollout";
        ["asked for mini-batches of 0 rollouts; one has at least 1"]
        "leave `update` out for the run's own way";
    BadPasses(passes: u32, most: u32) = "bad-passes",
        "makes at least one pass over a batch, and no more than the run's config does";
        ["asked for {passes} passes over its batch; there are 1 to {most} in this run"]
        "look at `run.update`: a run's own passes are the most that there may be";

    // === State and metrics ===
    StateTooLarge(bytes: usize, bound: usize) = "state-too-large", "keeps its state within the record's bound";
        ["returned a state of {bytes} bytes; the limit of the record is {bound}"]
        "past visits and held rollouts come with every view; remember only what does not";
    StatesTooLarge(bytes: u64, left: u64) = "states-too-large",
        "changes its state within what the run's record takes in all";
        ["changed its state by {bytes} bytes; for such changes the run's record takes {left} bytes more"]
        "return the state as it came where nothing is to be remembered, or raise `policy.limits.states`";
    TooManyMetrics(count: usize, bound: usize) = "too-many-metrics",
        "logs no more metrics than the record takes";
        ["returned {count} metrics; the record takes {bound} at most"]
        METRICS;
    MetricName(name: String, bound: usize) = "metric-name", "names its metrics, shortly and in plain letters";
        [
            "named a metric `{}`, of {} bytes; a name has 1 to {bound}, {METRIC_NAME}",
            shown::name(name),
            name.len()
        ]
        METRICS;
    MetricTwice(name: String) = "metric-twice", "logs a metric once";
        ["returned the metric `{name}` twice"]
        METRICS;
    MetricNotFinite(name: String) = "metric-not-finite", "logs finite metrics";
        ["returned the metric `{name}` with a value that is not finite"]
        NOT_FINITE;
}

// Hints shared by several rules.
const NOTHING_LEFT: &str = "look at `view.budget`: when `rounds` or `step-rollouts` is 0, answer `train`";
const WITHIN_SAMPLING: &str =
    "keep within `run.sampling`, or let the run take more in its config's `[requests]`";
const ONCE: &str = "give each id once";
const FROM_GROUPS: &str = "take ids from `view.groups` of the same call";
const POSITIONS: &str = "positions index the group's lists, from 0, each once";
const METRICS: &str = "metrics are a few short names, each once";
const NOT_FINITE: &str = "look for a division by zero";

/// Returns the hint for a weight or an advantage that is not finite or is too large.
fn out_of_bounds(value: f32) -> &'static str {
    if value.is_finite() {
        "scale it down; the run's learning rate sets how large an update is"
    } else {
        NOT_FINITE
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "policy `{}` {} (step {}, round {})", self.policy, self.rule, self.step, self.round)
    }
}

impl std::error::Error for Broken {}

/// Checks a policy's plan against the view that it answers.
pub fn check(policy: &str, view: &View, plan: &Plan, bounds: Bounds) -> Result<(), Broken> {
    let broken = |rule| Broken { policy: policy.to_owned(), step: view.step, round: view.round, rule };
    check_plan(view, plan, bounds).map_err(broken)
}

/// Checks that the record has room for a change of the policy's state: `bytes` of the `left` bytes.
pub fn check_record(policy: &str, view: &View, bytes: u64, left: u64) -> Result<(), Broken> {
    if bytes <= left {
        return Ok(());
    }
    let rule = Rule::StatesTooLarge(bytes, left);
    Err(Broken { policy: policy.to_owned(), step: view.step, round: view.round, rule })
}

fn check_plan(view: &View, plan: &Plan, bounds: Bounds) -> Result<(), Rule> {
    let requests = match &plan.action {
        Action::Sample(requests) => &requests[..],
        Action::Train(_) => &[],
    };
    // Keep only pool prompts that the plan names: the pool may have a million prompts.
    let named: HashSet<PromptId> = requests.iter().map(|r| r.prompt).chain(passed_over(plan)).collect();
    let pool: HashSet<PromptId> = view.pool.iter().map(|p| p.id).filter(|p| named.contains(p)).collect();
    let buffered: Buffered<'_> = view.groups.iter().map(|g| (g.prompt, g)).collect();

    check_memory(plan, bounds)?;
    let skipped: HashSet<PromptId> = plan.skip.iter().copied().collect();
    if let Some(p) = plan.skip.iter().find(|p| !pool.contains(p)) {
        return Err(Rule::SkipNotInPool(*p));
    }
    twice(&plan.skip).map_or(Ok(()), |p| Err(Rule::SkippedTwice(p)))?;
    if let Some(p) = plan.defer.iter().find(|p| !pool.contains(p)) {
        return Err(Rule::DeferNotInPool(*p));
    }
    twice(&plan.defer).map_or(Ok(()), |p| Err(Rule::DeferredTwice(p)))?;
    let deferred: HashSet<PromptId> = plan.defer.iter().copied().collect();
    let used = requests.iter().map(|request| request.prompt).chain(plan.skip.iter().copied());
    if let Some(p) = used.into_iter().find(|p| deferred.contains(p)) {
        return Err(Rule::DeferredAndUsed(p));
    }
    if let Some(p) = plan.evict.iter().find(|p| !pool.contains(p) && !buffered.contains_key(p)) {
        return Err(Rule::UnknownEviction(*p));
    }
    twice(&plan.evict).map_or(Ok(()), |p| Err(Rule::EvictedTwice(p)))?;
    match &plan.action {
        Action::Sample(requests) => {
            if view.budget.rounds == 0 {
                return Err(Rule::NoRoundLeft);
            }
            if view.budget.step_rollouts == 0 {
                return Err(Rule::NoStepRolloutLeft);
            }
            if requests.is_empty() && passed_over(plan).next().is_none() {
                return Err(Rule::NothingAsked);
            }
            check_requests(requests, &pool, &buffered, &skipped, bounds)
        }
        Action::Train(batch) => {
            check_update(batch.update, bounds.passes)?;
            check_batch(batch, &buffered, bounds.replay)
        }
    }
}

/// The groups of a view, by prompt.
type Buffered<'v> = HashMap<PromptId, &'v Group>;

/// Returns the prompts that a plan removes from the pool without sampling them.
fn passed_over(plan: &Plan) -> impl Iterator<Item = PromptId> {
    plan.skip.iter().chain(&plan.defer).chain(&plan.evict).copied()
}

fn check_update(update: Option<Geometry>, most: u32) -> Result<(), Rule> {
    match update {
        Some(Geometry { mini_batch: 0, .. }) => Err(Rule::EmptyMiniBatch),
        Some(Geometry { passes, .. }) if passes == 0 || passes > most => Err(Rule::BadPasses(passes, most)),
        _ => Ok(()),
    }
}

fn check_requests(
    requests: &[Request],
    pool: &HashSet<PromptId>,
    buffered: &Buffered<'_>,
    skipped: &HashSet<PromptId>,
    bounds: Bounds,
) -> Result<(), Rule> {
    let mut seen = HashSet::new();
    for request in requests {
        let p = request.prompt;
        match bounds.any_prompt {
            Some(prompts) if p.0 >= prompts => return Err(Rule::NoSuchPrompt(p, prompts)),
            None if !pool.contains(&p) && !buffered.contains_key(&p) => return Err(Rule::UnknownRequest(p)),
            _ => {}
        }
        if !seen.insert(p) {
            return Err(Rule::RequestedTwice(p));
        }
        if request.count == 0 {
            return Err(Rule::NoCount(p));
        }
        if let Some(until) = request.until {
            let least = Enough::least(request.count);
            if until.portion < least {
                return Err(Rule::SmallPortion(p, until.portion, least));
            }
        }
        if let (Some(own), Some(range)) = (request.sampling, bounds.sampling) {
            check_sampling(p, own, range)?;
        }
        episodes::check_starts(request, buffered.get(&p).copied())?;
        if skipped.contains(&p) {
            return Err(Rule::RequestedAndSkipped(p));
        }
    }
    Ok(())
}

fn check_sampling(p: PromptId, own: SamplerSettings, range: SamplerRange) -> Result<(), Rule> {
    let SamplerRange { least, most } = range;
    if !(least.temperature..=most.temperature).contains(&own.temperature) {
        return Err(Rule::Temperature(p, own.temperature, least.temperature, most.temperature));
    }
    if !(least.max_tokens..=most.max_tokens).contains(&own.max_tokens) {
        return Err(Rule::MaxTokens(p, own.max_tokens, least.max_tokens, most.max_tokens));
    }
    if !(least.max_turns..=most.max_turns).contains(&own.max_turns) {
        return Err(Rule::MaxTurns(p, own.max_turns, least.max_turns, most.max_turns));
    }
    Ok(())
}

fn check_batch(batch: &Batch, buffered: &Buffered<'_>, replay: bool) -> Result<(), Rule> {
    let mut seen = HashSet::new();
    for pick in &batch.picks {
        let group = *buffered.get(&pick.prompt).ok_or(Rule::UnknownPick(pick.prompt))?;
        if !seen.insert(pick.prompt) {
            return Err(Rule::PickedTwice(pick.prompt));
        }
        check_pick(pick, group)?;
    }
    check_holds(batch, buffered, replay)
}

fn check_holds(batch: &Batch, buffered: &Buffered<'_>, replay: bool) -> Result<(), Rule> {
    let picks: HashMap<PromptId, &Pick> = batch.picks.iter().map(|pick| (pick.prompt, pick)).collect();
    for hold in &batch.hold {
        let len = buffered.get(&hold.prompt).ok_or(Rule::UnknownHold(hold.prompt))?.len();
        let Some(positions) = &hold.rollouts else { continue };
        check_positions(Verb::Held, hold.prompt, positions, len)?;
        if replay {
            continue;
        }
        let picked: HashSet<usize> = picks
            .get(&hold.prompt)
            .map_or_else(HashSet::new, |pick| pick.positions(len).into_iter().collect());
        if let Some(position) = positions.iter().find(|position| picked.contains(&(**position as usize))) {
            return Err(Rule::HeldAndPicked(hold.prompt, *position));
        }
    }
    let held: Vec<PromptId> = batch.hold.iter().map(|hold| hold.prompt).collect();
    twice(&held).map_or(Ok(()), |p| Err(Rule::HeldTwice(p)))
}

/// Returns the first prompt that occurs a second time.
fn twice(prompts: &[PromptId]) -> Option<PromptId> {
    let mut seen = HashSet::new();
    prompts.iter().copied().find(|p| !seen.insert(*p))
}

fn check_pick(pick: &Pick, group: &Group) -> Result<(), Rule> {
    let (p, len) = (pick.prompt, group.len());
    if let Some(positions) = &pick.rollouts {
        check_positions(Verb::Picked, p, positions, len)?;
    }
    if let Advantage::Among(positions) = &pick.advantage {
        check_positions(Verb::MeasuredAgainst, p, positions, len)?;
    }
    if !(0.0..=LARGEST).contains(&pick.weight) {
        return Err(Rule::BadWeight(p, pick.weight));
    }
    if let Advantage::Given(own) = &pick.advantage {
        let picked = pick.count(len);
        if own.len() != picked {
            return Err(Rule::GivenCount(p, own.len(), picked));
        }
        if let Some(index) = own.iter().position(|a| !(-LARGEST..=LARGEST).contains(a)) {
            return Err(Rule::BadGiven(p, index, own[index]));
        }
    }
    if let Advantage::ByTurn(own) = &pick.advantage {
        episodes::check_by_turn(pick, own, group)?;
    }
    Ok(())
}

/// Checks positions in a group of `len`: at least one, all in range, none twice.
fn check_positions(verb: Verb, p: PromptId, positions: &[u32], len: usize) -> Result<(), Rule> {
    if positions.is_empty() {
        return Err(Rule::EmptyPick(verb, p));
    }
    let mut taken = vec![false; len];
    for position in positions {
        let place = taken.get_mut(*position as usize);
        let place = place.ok_or(Rule::NoSuchPosition(verb, p, *position, len))?;
        if std::mem::replace(place, true) {
            return Err(Rule::PositionTwice(verb, p, *position));
        }
    }
    Ok(())
}

fn check_memory(plan: &Plan, bounds: Bounds) -> Result<(), Rule> {
    if plan.state.len() > bounds.state {
        return Err(Rule::StateTooLarge(plan.state.len(), bounds.state));
    }
    if plan.metrics.len() > bounds.metrics {
        return Err(Rule::TooManyMetrics(plan.metrics.len(), bounds.metrics));
    }
    let mut seen = HashSet::new();
    for (name, value) in &plan.metrics {
        if name.len() > bounds.metric_name || !is_metric_name(name) {
            return Err(Rule::MetricName(name.clone(), bounds.metric_name));
        }
        if !seen.insert(name) {
            return Err(Rule::MetricTwice(name.clone()));
        }
        if !value.is_finite() {
            return Err(Rule::MetricNotFinite(name.clone()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_about_a_number_is_for_that_number() {
        let p = PromptId(1);
        let negative = Rule::BadWeight(p, -1.0);
        assert_eq!(
            negative.to_string(),
            "gave prompt `1` the negative weight -1; a weight is from 0 to 1000000"
        );
        let cases = [
            (negative, "give a weight of 0 or more"),
            (Rule::BadWeight(p, f32::NEG_INFINITY), "look for a division by zero"),
            (Rule::BadWeight(p, f32::NAN), "look for a division by zero"),
            (Rule::BadWeight(p, 2e6), "scale it down"),
            (Rule::BadGiven(p, 0, -2e6), "scale it down"),
            (Rule::BadGiven(p, 0, f32::INFINITY), "look for a division by zero"),
            (Rule::MetricNotFinite("x".to_owned()), "look for a division by zero"),
        ];
        for (rule, hint) in cases {
            assert!(rule.hint().starts_with(hint), "{rule}: {}", rule.hint());
        }
    }

    #[test]
    fn a_need_is_named_in_each_language() {
        let all =
            [Need::AnyPrompt, Need::Replay, Need::Sampling, Need::Stopping, Need::Updating, Need::Parts];
        for need in all.into_iter().chain([Need::Turns, Need::Starting]) {
            let (name, hint) = (need.to_string(), need.hint());
            let upper = name.replace('-', "_").to_uppercase();
            for word in [
                format!("Python `needs = [\"{name}\"]`"),
                format!("JavaScript `export const needs = [\"{name}\"]`"),
                format!("Needs::{upper}`"),
                format!("`allot_needs(self, ALLOT_{upper})`"),
                format!("allot.Need{need:?}`"),
            ] {
                assert!(hint.contains(&word), "{hint}");
            }
        }
        assert!(Rule::UnknownRequest(PromptId(1)).hint().contains("ALLOT_ANY_PROMPT"));
    }
}
