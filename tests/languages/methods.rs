//! Methods that need more than contract 0.1, in Python: the same plans as in Rust, as components and as drafts.

use allot_allocation::{Action, Need, Plan, Run, Terms};
use allot_authoring::fixtures;
use allot_authoring::language::Language;
use allot_sandbox::Policy;

use crate::{drafts, native, tools};

#[test]
fn methods_in_python_plan_as_in_rust() {
    if tools::missing(Language::Python) {
        return;
    }
    plan_as_in_rust(|folder| Some(tools::loaded(folder, Language::Python).1));
}

#[test]
fn methods_as_drafts_plan_as_in_rust() {
    plan_as_in_rust(drafts::loaded);
}

fn plan_as_in_rust(loaded: impl Fn(&str) -> Option<Policy>) {
    for name in ["ar3po", "info-steps"] {
        let Some(policy) = loaded(&format!("policies/{name}/python")) else { return };
        let native = native::all().into_iter().find(|native| native.name == name).unwrap();
        let run = Run { groups: 6, ..native::run(name) };
        let needs = vec![Need::Replay, Need::Stopping, Need::Updating];
        let run = policy.shown(run, Terms { needs, ..Terms::default() });
        // Each remembers the same in its own bytes.
        let first = ((native.begin)(&run).unwrap(), policy.begin(&run).unwrap().0);
        let mut sampled = 0;
        for made in fixtures::views(0, 40) {
            let (mut native_state, mut state) = first.clone();
            for _ in 0..2 {
                let ours = (native.decide)(&run, &native_state, &made.view).unwrap();
                let theirs = policy.decide(&run, &state, &made.view).unwrap().0;
                (native_state, state) = (ours.state.clone(), theirs.state.clone());
                sampled += usize::from(matches!(ours.action, Action::Sample(_)));
                let stateless = |plan: Plan| Plan { state: Vec::new(), ..plan };
                assert_eq!(stateless(theirs), stateless(ours), "{name} on {}", made.title);
            }
        }
        assert!(sampled > 10, "{name}: {sampled}");
    }
}
