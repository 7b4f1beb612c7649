//! Who reads the record of a swapped run: replay, report, watch; and one whose swap is not where it was.

use allot_record::{Reader, Views};
use serde_json::Value;

use super::{lines, swapped, swaps, told, with};

#[test]
fn a_swapped_record_is_replayed_reported_and_watched() {
    let scratch = with("uniform");
    let run = swapped(&scratch, "out", 4, "pods");
    // Each policy answers as it did in its own time.
    for (policy, theirs) in [("uniform", 0..4), ("pods", 4..8)] {
        let done = scratch.command(&["replay", "out", policy, "--json"]).output().unwrap();
        let json: Value = serde_json::from_slice(&done.stdout).unwrap();
        assert_eq!((&json["swaps"], &json["ended"]), (&serde_json::json!([4]), &true.into()));
        let first = json["first"][0].as_u64().unwrap();
        assert_eq!(first, u64::from(theirs.start == 0) * 4, "{policy}: {json}");
        let said = told(&scratch, &["replay", "out", policy, "--show", "0"]);
        let told = format!("the record has another policy from step 4 on; {policy} started afresh there");
        assert!(said.contains(&told), "{said}");
        let (_, swap) = &swaps(&run)[0];
        assert_eq!(json["asked"] == swap.policy.sha256.as_str(), policy == "pods");
        for step in theirs {
            let text = scratch.allot(&["replay", "out", policy, "--at", &format!("{step}.1")]);
            assert!(text.contains("\nas recorded; ") && text.ends_with("exit code 0"), "{step}: {text}");
        }
    }

    // Runs that were swapped at different steps are of different arms.
    swapped(&scratch, "late", 6, "pods");
    let report = told(&scratch, &["report", "whole", "out", "late", "--out", "report", "--json"]);
    let json: Value = serde_json::from_str(report.lines().next().unwrap()).unwrap();
    let arms: Vec<&str> =
        json["arms"].as_array().unwrap().iter().map(|a| a["name"].as_str().unwrap()).collect();
    assert_eq!(arms, ["uniform", "uniform, pods from step 4", "uniform, pods from step 6"]);
    let seen =
        scratch.command(&["watch", "--once", "whole", "out"]).env("LC_ALL", "C.UTF-8").output().unwrap();
    let seen = String::from_utf8_lossy(&seen.stdout).into_owned();
    assert!(seen.contains("uniform, pods from step 4"), "{seen}");
}

#[test]
fn a_swap_that_was_moved_or_edited_is_refused() {
    let scratch = with("uniform");
    let run = swapped(&scratch, "out", 4, "pods");
    let (at, _) = swaps(&run)[0];
    let all = lines(&run);
    let moved = |to: usize| {
        let mut all = all.clone();
        let swap = all.remove(at);
        all.insert(to, swap);
        all
    };
    let edited = |from: &str, to: &str| {
        let mut all = all.clone();
        all[at] = all[at].replacen(from, to, 1);
        assert_ne!(all[at], lines(&run)[at]);
        all
    };
    let mut wrong = vec![edited("\"step\":4", "\"step\":5"), edited("\"step\":4", "\"step\":3")];
    // Anywhere but where it was, before the head and after the end included.
    wrong.extend((1..all.len()).filter(|to| *to != at).map(moved));
    let last = wrong.len() - 1;
    for (n, lines) in wrong.into_iter().enumerate() {
        scratch.write("out/record.jsonl", lines.join("\n") + "\n");
        if n > 12 && n < last - 4 {
            // The fold alone, which is what a report reads by.
            let (reader, head) = Reader::open(&run).unwrap();
            let mut views = Views::new(&head).unwrap();
            assert!(reader.into_iter().any(|line| views.take(&line.unwrap()).is_err()), "{n}");
            let history = allot_report::follow::read(&run, &mut |_| {}).unwrap();
            assert!(history.troubles[0].ends_with("the rest is left out"), "{n}");
            continue;
        }
        let said = told(&scratch, &["replay", "out", "uniform", "--show", "0"]);
        assert!(
            said.contains("do not fit those before them") && said.ends_with("exit code 2"),
            "{n}: {said}"
        );
        let said = told(&scratch, &["report", "out", "whole", "--out", "report"]);
        assert!(said.contains("note: `out`: ") && said.contains("the rest is left out"), "{n}: {said}");
    }
    scratch.write("out/record.jsonl", edited("\"policy\":{", "\"policy\":[").join("\n") + "\n");
    let said = told(&scratch, &["replay", "out", "uniform"]);
    assert!(said.contains("is not a line of a record"), "{said}");
}
