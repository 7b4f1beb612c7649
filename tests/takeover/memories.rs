//! A policy with a state of kilobytes, of which a call changes a part: its record tells that part, and is as good as if it
//! told the whole.

use allot_record::{Line, Reader, StateChange, Views};

use super::{Scratch, adds_up, config, fs, ran, stopped, told};

#[test]
fn of_a_large_state_a_record_tells_what_changed_and_a_stop_changes_nothing() {
    let scratch = Scratch::new();
    scratch.write("run.toml", config().replace("count = 60", "count = 2000"));
    let of = ["--policy", "spo", "--shadow", "spo,prior=0.4"];
    ran(&scratch, &[&["run.toml", "--out", "whole"][..], &of].concat());
    let whole = scratch.path().join("whole");

    let (reader, head) = Reader::open(&whole).unwrap();
    let mut views = Views::new(&head).unwrap();
    let (mut all, mut told_in, mut pieces) = (0, 0, 0);
    for line in reader {
        let line = line.unwrap();
        let state = views.take(&line).unwrap().map(|asked| asked.plan.state);
        if let (Line::Call(call), Some(state)) = (&line, state) {
            let Some(changed) = &call.state else { continue };
            pieces += usize::from(matches!(changed, StateChange::Pieces(_)));
            (all, told_in) = (all + state.len() as u64, told_in + changed.bytes());
        }
    }
    // Every prompt of this run is a new one, which is what makes a state change most.
    assert!(pieces >= 4 && told_in * 2 < all, "{pieces} in pieces, {told_in} bytes of {all}");
    adds_up(&whole);
    let replayed = told(&scratch, &["replay", "whole"]);
    assert!(replayed.contains("no difference") && replayed.ends_with("exit code 0"), "{replayed}");

    let resumed = [&["--resume", "out"][..], &of[2..]].concat();
    for steps in [3, 6] {
        let run = stopped(&scratch, "whole", "out", steps);
        ran(&scratch, &resumed);
        for file in ["record.jsonl", "shadows/spo.jsonl"] {
            assert!(
                fs::read(run.join(file)).unwrap() == fs::read(whole.join(file)).unwrap(),
                "{steps}, {file}"
            );
        }
    }

    // A piece of bytes that the state before has not.
    let record = scratch.read("whole/record.jsonl");
    let state = record.rfind("\"state\":[").unwrap();
    let offset = state + record[state..].find(",[").unwrap() + ",[".len();
    let damaged = format!("{}999999{}", &record[..offset], &record[offset..]);
    fs::write(whole.join("record.jsonl"), damaged).unwrap();
    insta::assert_snapshot!(told(&scratch, &["replay", "whole"]), @"
    error: the record's lines of step 7, round 1 do not fit those before them

    hint: the record was edited or damaged
    exit code 2
    ");
}
