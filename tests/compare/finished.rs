//! `allot compare --runs`: finished runs, of a trainer too, as the arms of a comparison.

use serde_json::{Value, json};

use super::{SIMULATED, said, with};
use crate::scratch::Scratch;

/// A comparison of three policies with four seeds, as folders of finished runs.
fn finished() -> Scratch {
    let scratch = with(SIMULATED);
    let text = said(&scratch, &["compare", "compare.toml", "--out", "out"]);
    assert!(text.ends_with("exit code 0"), "{text}");
    scratch
}

/// Writes a run of these as the record of a trainer in Python: a name for its software, and the lengths of its prompts.
fn trained(scratch: &Scratch, run: &str, to: &str, change: impl FnOnce(&mut Value)) {
    let record = scratch.read(&format!("out/runs/{run}/record.jsonl"));
    let (head, rest) = record.split_once('\n').unwrap();
    let mut head: Value = serde_json::from_str(head).unwrap();
    head.as_object_mut().unwrap().remove("world");
    head["engine"] = json!("trl");
    head["lengths"] = json!("of the prompts");
    change(&mut head);
    std::fs::create_dir_all(scratch.path().join(to)).unwrap();
    scratch.write(&format!("{to}/record.jsonl"), format!("{head}\n{rest}"));
}

/// Four runs each of two policies, with these seeds for those of the second.
fn two_policies(seeds: [u64; 4]) -> Scratch {
    let scratch = finished();
    for (seed, other) in (3..7).zip(seeds) {
        trained(&scratch, &format!("uniform/seed-{seed:04}"), &format!("trl/uniform-{seed}"), |_| {});
        let to = format!("trl/dapo-{seed}");
        trained(&scratch, &format!("dapo/seed-{seed:04}"), &to, |head| head["seed"] = json!(other));
    }
    scratch
}

fn report(scratch: &Scratch) -> Value {
    serde_json::from_str(&scratch.read("compared/report/report.json")).unwrap()
}

const COMPARE: [&str; 5] = ["compare", "--out", "compared", "--target", "0.6"];

fn compared(scratch: &Scratch, more: &[&str]) -> String {
    said(scratch, &[&COMPARE, more].concat())
}

#[test]
fn runs_with_seeds_in_common_are_compared_as_a_comparison_compares_them() {
    let scratch = finished();
    let text =
        compared(&scratch, &["--runs", "out/runs/uniform", "out/runs/dapo", "out/runs/pilot-commit-2+6"]);
    assert!(text.ends_with("exit code 0"), "{text}");
    let whole: Value = serde_json::from_str(&scratch.read("out/report/report.json")).unwrap();
    for key in ["differences", "finals", "verdicts"] {
        assert_eq!(report(&scratch)[key], whole[key], "{key}");
    }
    // The targets were set beforehand, so a report made later has them, too, and shows the same.
    let again = said(&scratch, &["report", "compared"]);
    assert_eq!(again.replace("compared/report", ""), text.replace("compared/report", ""));
    assert_eq!(scratch.read("compared/looks.jsonl").lines().count(), 1);
}

#[test]
fn runs_without_a_seed_in_common_are_two_samples() {
    let text = compared(&two_policies([13, 14, 15, 16]), &["--runs", "trl"]);
    insta::assert_snapshot!(text);
}

#[test]
fn runs_of_one_seed_that_differ_are_all_there() {
    let scratch = two_policies([3, 3, 3, 3]);
    let text = compared(&scratch, &["--runs", "trl", "--baseline", "uniform"]);
    assert!(text.contains("`dapo` has several runs of one seed"), "{text}");
    assert!(
        text.contains("note: runs of one seed differ only by what the trainer leaves to chance"),
        "{text}"
    );
    let row = report(&scratch)["differences"][0].clone();
    assert_eq!((&row["seeds"], &row["unpaired"], &row["flip"]), (&json!(4), &json!(true), &Value::Null));
    let (p, mean) = (row["p"].as_f64().unwrap(), &row["mean"]);
    assert!(p < 0.01 && mean["high"].as_f64().unwrap() < 0.0, "{row}");
}

#[test]
fn what_a_report_leaves_out_or_warns_of_is_refused() {
    let scratch = two_policies([3, 4, 5, 6]);
    // The same training, though it was evaluated again.
    trained(&scratch, "dapo/seed-0003", "more/copy", |head| head["accuracy"] = json!(0.3));
    trained(&scratch, "dapo/seed-0004", "more/data", |head| head["lengths"] = json!("of others"));
    trained(&scratch, "dapo/seed-0005", "more/groups", |head| {
        head["seed"] = json!(9);
        head["run"]["groups"] = json!(5);
        head["run"]["pool"] = json!(20);
    });
    let whole = scratch.read("trl/dapo-6/record.jsonl");
    std::fs::create_dir_all(scratch.path().join("more/cut")).unwrap();
    let end = whole.trim_end().rfind('\n').unwrap();
    scratch.write("more/cut/record.jsonl", &whole[..=end]);
    insta::assert_snapshot!(compared(&scratch, &["--runs", "trl", "more"]));
    assert!(!scratch.path().join("compared").exists());
    // One policy is no comparison.
    let alone = compared(&scratch, &["--runs", "trl/dapo-3", "trl/dapo-4"]);
    assert!(alone.contains("all runs are of one arm, `dapo`"), "{alone}");
    // A key that may differ is named, and the report warns of it.
    let named = ["--runs", "trl", "more/groups", "--ignore", "run.groups"];
    let text = compared(&scratch, &named);
    assert!(text.contains("warning: runs differ in `run.groups`, which was to be ignored"), "{text}");
    let text = said(&scratch, &["compare", "compare.toml", "--target", "0.5"]);
    assert!(text.contains("error: --baseline, --target and --axis are for --runs"), "{text}");
    let text = said(&scratch, &["compare", "--runs", "out"]);
    assert!(text.contains("error: `out` is a comparison, and not a finished run"), "{text}");
}

#[test]
fn what_a_policy_warned_of_in_its_runs_is_told() {
    let scratch = two_policies([3, 4, 5, 6]);
    let line = |level: &str, text: &str| {
        format!("{}\n", json!({ "step": null, "round": null, "level": level, "text": text }))
    };
    let few = line("warn", "the pool has 64 prompts on offer, a step takes 128");
    scratch.write("trl/dapo-3/log.jsonl", line("warn", "only here") + &few + &few + &line("info", "hello"));
    scratch.write("trl/dapo-4/log.jsonl", &few);
    scratch.write("trl/uniform-3/log.jsonl", line("info", "hello"));
    let text = compared(&scratch, &["--runs", "trl"]);
    let expected = "warning: the policy of `dapo` warned in 2 of 4 runs: the pool has 64 prompts on offer, a step takes 128 (and one other warning)";
    assert!(text.contains(expected) && !text.contains("the policy of `uniform`"), "{text}");
    scratch.write("trl/uniform-4/log.jsonl", "{}\n");
    let text = said(&scratch, &["report", "compared"]);
    assert!(text.contains("what its policy logged can't be read"), "{text}");
}

#[test]
fn a_comparison_of_finished_runs_grows_and_counts_the_looks() {
    let scratch = two_policies([3, 4, 5, 6]);
    let first = ["--runs", "trl/uniform-3", "trl/uniform-4", "trl/dapo-3", "trl/dapo-4"];
    let text = compared(&scratch, &first);
    assert!(text.ends_with("exit code 0"), "{text}");
    // One more run of one arm is growth, too. The baseline stays, whatever comes first.
    let text = compared(&scratch, &[&first[..], &["trl/dapo-5"]].concat());
    assert!(text.contains("warning: looked at with 4 runs before it grew to 5"), "{text}");
    let text = compared(&scratch, &["--runs", "trl"]);
    assert!(text.contains("warning: looked at with 4 and 5 runs before it grew to 8"), "{text}");
    assert!(text.contains("the 3 fresh runs alone"), "{text}");
    let made = report(&scratch);
    assert_eq!(made["arms"][made["baseline"].as_u64().unwrap() as usize]["name"], "uniform");
    // Nothing is taken out of it again, and no target chosen anew.
    let text = compared(&scratch, &first);
    let left_out = "error: `compared` compares `[scratch]/trl/dapo-5`, which is not among these runs\n\nhint: name it too, as \
                    leaving runs out changes what p-values say; or name another folder";
    assert!(text.contains(left_out), "{text}");
    let text = said(&scratch, &["compare", "--out", "compared", "--target", "0.7", "--runs", "trl"]);
    assert!(text.contains("error: `compared` has the target [0.6], not [0.7]"), "{text}");
    let text = compared(&scratch, &["--runs", "trl", "--baseline", "dapo"]);
    assert!(text.contains("error: `compared` has the baseline uniform, not dapo"), "{text}");
    let text = said(&scratch, &["compare", "--out", "wrong", "--baseline", "unform", "--runs", "trl"]);
    assert!(text.contains("error: no run belongs to the baseline `unform`"), "{text}");
    assert!(!scratch.path().join("wrong").exists());
    let text = said(&scratch, &["compare", "--out", "out", "--runs", "trl"]);
    assert!(
        text.contains(
            "error: `out` has files, and is no comparison of finished runs\n\nhint: a comparison grows"
        ),
        "{text}"
    );
    assert_eq!(report(&scratch)["looks"]["seeds"], json!([4, 5]));
}
