//! The one door to the policies. What goes through it is kept, so that the same questions can be put to
//! their components, and every plan is held against the contract's rules.

use std::collections::BTreeSet;
use std::sync::Mutex;

use allot_policy::types::{Action, Advantage, Plan, Run, View};
use allot_policy::{Policy, begin, decide};
use greso::Greso;

/// A question put to a policy, and what it answers natively.
#[allow(dead_code, reason = "kept for a replay")]
#[derive(Clone, Debug)]
pub struct Asked {
    pub policy: &'static str,
    pub run: Run,
    pub state: Vec<u8>,
    pub view: View,
    pub plan: Plan,
}

static ASKED: Mutex<Vec<Asked>> = Mutex::new(Vec::new());

/// Everything asked so far.
pub fn asked() -> Vec<Asked> {
    ASKED.lock().unwrap().clone()
}

/// The first state.
pub fn first<P: Policy>(run: &Run) -> Vec<u8> {
    begin::<P>(run).unwrap_or_else(|error| panic!("{} refuses the run: {error:?}", P::NAME))
}

/// Puts a view to a policy.
pub fn ask<P: Policy>(run: &Run, state: &[u8], view: &View) -> Plan {
    let plan = decide::<P>(run, state, view).unwrap_or_else(|error| panic!("{} fails: {error:?}", P::NAME));
    legal(view, &plan).unwrap_or_else(|rule| panic!("{}: {rule}: {plan:?}", P::NAME));
    let (run, state, view) = (run.clone(), state.to_vec(), view.clone());
    ASKED.lock().unwrap().push(Asked { policy: P::NAME, run, state, view, plan: plan.clone() });
    plan
}

/// Puts a view to GRESO with given uniforms in place of its own. Its own answer is kept as well.
pub fn ask_greso(run: &Run, state: &[u8], view: &View, uniform: &mut dyn FnMut() -> f64) -> Plan {
    ask::<Greso>(run, state, view);
    let settings = allot_policy::Settings::read(run).unwrap();
    let mut memory = allot_policy::State::load(state).unwrap();
    let plan = greso::decide_with(&settings, run, &mut memory, view, uniform);
    legal(view, &plan).unwrap_or_else(|rule| panic!("greso: {rule}: {plan:?}"));
    Plan { state: allot_policy::State::save(&memory), ..plan }
}

/// The contract's rules for plans.
fn legal(view: &View, plan: &Plan) -> Result<(), &'static str> {
    let rule = |holds: bool, rule: &'static str| if holds { Ok(()) } else { Err(rule) };
    let pool: BTreeSet<u32> = view.pool.iter().map(|p| p.id).collect();
    let hand: BTreeSet<u32> = view.groups.iter().map(|g| g.prompt).collect();
    let skips: BTreeSet<u32> = plan.skip.iter().copied().collect();
    rule(pool.len() == view.pool.len() && hand.len() == view.groups.len(), "the view names a prompt twice")?;
    rule(pool.is_disjoint(&hand), "the view offers a prompt that is on hand")?;
    rule(skips.is_subset(&pool), "skips are of the pool")?;
    rule(plan.evict.iter().all(|p| pool.contains(p) || hand.contains(p)), "evicts a prompt it can't see")?;
    rule(plan.metrics.iter().all(|(_, value)| value.is_finite()), "metrics are finite")?;
    let names: BTreeSet<&String> = plan.metrics.iter().map(|(name, _)| name).collect();
    rule(names.len() == plan.metrics.len(), "a metric's name comes once")?;
    match &plan.action {
        Action::Sample(requests) => {
            let asked: BTreeSet<u32> = requests.iter().map(|r| r.prompt).collect();
            rule(view.budget.open(), "only `train` is taken")?;
            rule(asked.len() == requests.len(), "a prompt is asked for once")?;
            rule(requests.iter().all(|r| r.count > 0), "at least one rollout")?;
            rule(
                asked.iter().all(|p| pool.contains(p) || hand.contains(p)),
                "asks for a prompt it can't see",
            )?;
            rule(asked.is_disjoint(&skips), "samples what it skips")?;
            rule(
                !requests.is_empty() || !plan.skip.is_empty() || !plan.evict.is_empty(),
                "no request without a skip or evict",
            )
        }
        Action::Train(batch) => {
            let picked: BTreeSet<u32> = batch.picks.iter().map(|p| p.prompt).collect();
            rule(picked.len() == batch.picks.len(), "one pick a prompt")?;
            rule(batch.hold.iter().all(|p| hand.contains(p)), "holds what is not on hand")?;
            for pick in &batch.picks {
                let n = view.group(pick.prompt).ok_or("picks what is not on hand")?.len();
                let positions = pick.rollouts.clone().unwrap_or_else(|| (0..n as u32).collect());
                let distinct: BTreeSet<u32> = positions.iter().copied().collect();
                rule(distinct.len() == positions.len() && !positions.is_empty(), "positions, each once")?;
                rule(positions.iter().all(|p| (*p as usize) < n), "a position beyond the group")?;
                rule(pick.weight.is_finite() && pick.weight >= 0.0, "weights are finite and not negative")?;
                if let Advantage::Given(own) = &pick.advantage {
                    rule(own.len() == positions.len(), "an advantage for each rollout")?;
                    rule(own.iter().all(|a| a.is_finite()), "advantages are finite")?;
                }
            }
            Ok(())
        }
    }
}
