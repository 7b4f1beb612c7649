//! Memory is kept from one call to the next and reset: no call sees what another left, many calls at a time are all
//! answered, and a component that has more than there is room for works all the same.

use allot_allocation::{Action, Plan};
use allot_authoring::{component, fixtures};
use allot_sandbox::{Caps, Policy, Sandbox};

use crate::scratch;

/// A guest that asks for a rollout more than it finds bytes set in fresh memory, and sets them: at its start, within the
/// part that is kept, and above it. `more` is what its module has besides.
fn policy(more: &str) -> Policy {
    let found = |at: u32| format!("(i32.load8_u (i32.const {at}))");
    let (near, far) = (13 << 20, 25 << 20);
    let counts = "(i32.store (i32.const 96) (i32.add (i32.load (i32.const 96)) (i32.const 1)))";
    let looks = format!(
        "(drop (memory.grow (i32.const 400)))
         (i32.store (i32.const 96) (i32.add (i32.const 1) (i32.add (i32.load (i32.const 96)) (i32.add {} {}))))
         (memory.fill (i32.const {near}) (i32.const 1) (i32.const 4096))
         (memory.fill (i32.const {far}) (i32.const 1) (i32.const 4096))",
        found(near),
        found(far)
    );
    let text = scratch::guest_text("counts").replacen(counts, &looks, 1);
    let text = text.replacen("(memory", &format!("{more}\n(memory"), 1);
    assert!(text.contains("memory.fill") && text.contains(more));
    let bytes = component::of_module(text.as_bytes(), "counts").unwrap();
    Sandbox::new(Caps::default(), None).unwrap().load(&bytes, None).unwrap()
}

fn decided(policy: &Policy) -> Plan {
    let run = fixtures::run(Vec::new(), &[], 400);
    policy.decide(&run, &[], &fixtures::scale(1, 0)).unwrap().0
}

/// What a call in fresh memory asks for.
fn is_first(plan: &Plan) -> bool {
    matches!(&plan.action, Action::Sample(requests) if requests[0].count == 1)
}

#[test]
fn no_call_sees_what_another_left() {
    let policy = policy("");
    for call in 0..200 {
        let plan = decided(&policy);
        assert!(is_first(&plan), "call {call}: {:?}", plan.action);
    }
}

#[test]
fn many_calls_at_a_time_are_all_answered() {
    let policy = policy("");
    std::thread::scope(|scope| {
        // More than there is room for on any machine.
        let calls: Vec<_> = (0..300).map(|_| scope.spawn(|| decided(&policy))).collect();
        assert!(calls.into_iter().all(|call| is_first(&call.join().unwrap())));
    });
}

#[test]
fn a_component_with_more_than_there_is_room_for_works_all_the_same() {
    for more in ["(table 1 funcref)\n".repeat(12), "(table 30_000_000 funcref)".to_owned()] {
        let policy = policy(&more);
        assert!((0..3).all(|_| is_first(&decided(&policy))), "{more}");
    }
}
