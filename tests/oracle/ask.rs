//! The one door to the policies. What goes through it is kept, so that the same questions can be put to
//! their components, and every plan is held against the contract's rules.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Mutex;

use allot_allocation::rules::{self, Bounds};
use allot_policy::types::{Plan, Run, View};
use allot_policy::{Policy, begin, decide};
use allot_sandbox::{Caps, Sandbox};
use greso::Greso;

use crate::native;

/// A question put to a policy, and what it answers natively.
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

/// The contract's rules for plans, and for the views that this test makes.
fn legal(view: &View, plan: &Plan) -> Result<(), String> {
    let pool: BTreeSet<u32> = view.pool.iter().map(|p| p.id).collect();
    let hand: BTreeSet<u32> = view.groups.iter().map(|g| g.prompt).collect();
    if pool.len() != view.pool.len() || hand.len() != view.groups.len() || !pool.is_disjoint(&hand) {
        return Err("the view names a prompt twice".to_owned());
    }
    let (view, plan) = (native::our_view(view), native::plan_of(plan.clone()));
    rules::check("the policy", &view, &plan, Bounds::default()).map_err(|broken| broken.to_string())
}

/// Puts everything asked so far to the components in `folder`, and gives how many questions those
/// were. Their plans are those of their native twins.
pub fn replay(folder: &Path) -> usize {
    let sandbox = Sandbox::new(Caps::default(), None).unwrap();
    let mut policies = BTreeMap::new();
    let asked = asked();
    for Asked { policy, run, state, view, plan } in &asked {
        let component = policies.entry(*policy).or_insert_with(|| {
            let bytes = std::fs::read(folder.join(format!("{policy}.wasm"))).unwrap();
            sandbox.load(&bytes, None).unwrap()
        });
        let (run, view) = (native::our_run(run), native::our_view(view));
        let answer = component.decide(&run, state, &view).unwrap().0;
        assert_eq!(
            answer,
            native::plan_of(plan.clone()),
            "{policy} at step {}, round {}",
            view.step,
            view.round
        );
    }
    asked.len()
}
