//! Memory is kept from one call to the next and reset: no call sees what another left, many calls at a time are all
//! answered, and a component that has more than there is room for works all the same.

use allot_allocation::{Action, Plan};
use allot_authoring::{component, fixtures};
use allot_sandbox::{Caps, LoadError, Policy, Sandbox};

use crate::scratch;

/// The text of a guest that asks for a rollout more than it finds bytes changed in fresh memory, and changes them: at its start,
/// among its data, within the part that is kept, and above it. `more` is what its module has besides.
fn text(more: &str) -> String {
    // The byte at 16 begins its name, `guest`.
    let found = |at: u32, fresh: u8| format!("(i32.ne (i32.load8_u (i32.const {at})) (i32.const {fresh}))");
    let (near, far) = (13 << 20, 25 << 20);
    let counts = "(i32.store (i32.const 96) (i32.add (i32.load (i32.const 96)) (i32.const 1)))";
    let looks = format!(
        "(drop (memory.grow (i32.const 400)))
         (i32.store (i32.const 96) (i32.add (i32.add (i32.const 1) (i32.load (i32.const 96)))
           (i32.add {} (i32.add {} {}))))
         (i32.store8 (i32.const 16) (i32.const 0))
         (memory.fill (i32.const {near}) (i32.const 1) (i32.const 4096))
         (memory.fill (i32.const {far}) (i32.const 1) (i32.const 4096))",
        found(16, b'g'),
        found(near, 0),
        found(far, 0)
    );
    let text = scratch::guest_text("counts").replacen(counts, &looks, 1);
    let text = text.replacen("(global $top", &format!("{more}\n(global $top"), 1);
    assert!(text.contains("memory.fill") && text.contains(more));
    text
}

fn loaded(sandbox: Result<Sandbox, LoadError>, text: &str) -> Policy {
    let bytes = component::of_module(text.as_bytes(), "counts").unwrap();
    sandbox.unwrap().load(&bytes, None).unwrap()
}

fn policy(more: &str) -> Policy {
    loaded(Sandbox::new(Caps::default(), None), &text(more))
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
    for more in
        ["(table 1 funcref)\n".repeat(12), "(memory 1)\n".repeat(3), "(table 30_000_000 funcref)".to_owned()]
    {
        let policy = policy(&more);
        assert!((0..3).all(|_| is_first(&decided(&policy))), "{more}");
    }
}

#[test]
fn a_table_that_grows_too_far_is_told_alike_where_no_memory_is_kept() {
    let grows = text("(table $t 1 funcref)").replacen(
        "(drop (memory.grow (i32.const 400)))",
        "(drop (table.grow $t (ref.null func) (i32.const 100_000_000)))",
        1,
    );
    let run = fixtures::run(Vec::new(), &[], 400);
    let said = |sandbox| {
        let policy = loaded(sandbox, &grows);
        policy.decide(&run, &[], &fixtures::scale(1, 0)).unwrap_err().to_string()
    };
    let kept = said(Sandbox::new(Caps::default(), None));
    assert!(kept.contains("memory"), "{kept}");
    assert_eq!(kept, said(Sandbox::embedded(Caps::default(), None)));
}
