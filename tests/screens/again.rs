//! One call of a run asked again, and policies packed for others.

use super::{CONFIG, Scratch};
use crate::scratch;

/// A scratch folder with a simulated run as `out`.
fn simulated() -> Scratch {
    let scratch = Scratch::new();
    scratch.write("run.toml", CONFIG);
    scratch.allot(&["simulate", "run.toml", "--out", "out"]);
    scratch
}

/// What is said, the scratch folder's path left out.
fn told(scratch: &Scratch, args: &[&str]) -> String {
    scratch.allot(args).replace(&scratch.path().display().to_string(), "[scratch]")
}

/// The same without what the call cost.
fn costless(text: &str) -> String {
    let lines = text.lines().map(|line| match line.rsplit_once("; ") {
        Some((before, cost)) if cost.contains(" Wasm instructions, ") => before,
        _ => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_recorded_call_is_asked_again() {
    let scratch = simulated();
    let at = |args: &[&str]| costless(&told(&scratch, &[&["replay", "out"], args].concat()));
    insta::assert_snapshot!(at(&["--at", "2.1"]), @"
    train on 4 groups
      all rollouts of prompt 12, baseline: the picked rollouts
      all rollouts of prompt 98, baseline: the picked rollouts
      all rollouts of prompt 34, baseline: the picked rollouts
      all rollouts of prompt 60, baseline: the picked rollouts
    as recorded
    exit code 0
    ");
    insta::assert_snapshot!(at(&["--at", "0.0", "--set", "rollouts=7"]), @"
    sample 4 prompts
      7 rollouts of prompt 46
      7 rollouts of prompt 88
      7 rollouts of prompt 64
      7 rollouts of prompt 28
    the record has another plan; replay without --at to see how they differ
    exit code 1
    ");
    // Another policy is led through all calls before.
    insta::assert_snapshot!(at(&["pilot-commit", "--at", "1.0"]), @r#"
    sample 12 prompts
      8 rollouts of prompt 55
      8 rollouts of prompt 77
      8 rollouts of prompt 95
      8 rollouts of prompt 65
      8 rollouts of prompt 12
      8 rollouts of prompt 98
      8 rollouts of prompt 34
      8 rollouts of prompt 60
      8 rollouts of prompt 53
      8 rollouts of prompt 72
      8 rollouts of prompt 38
      8 rollouts of prompt 0
    metric survivors = 0
    metric commits = 0
    not in the record, set to the defaults: pilot = 8, commit = 24, prompts = 0, solved-at-least = 0.125, failed-at-least = 0.25, evict-at = 1.0, sampling = "random", max-off = 4, pilot-kept = 0, epoch-end = "keep", ranks = 1
    in the record, but not settings of `pilot-commit`: rollouts
    the record has another plan; replay without --at to see how they differ
    exit code 1
    "#);

    let done = scratch.command(&["replay", "out", "--at", "2.1", "--json"]).output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!((&json["step"], &json["round"], &json["same"]), (&2.into(), &1.into(), &true.into()));
    assert_eq!(json["plan"], json["recorded"]);
    assert_eq!(json["view"]["groups"].as_array().unwrap().len(), 4);
    assert!(json["fuel"].as_u64().unwrap() > 0 && json["memory"].as_u64().unwrap() > 0, "{json}");
    assert_eq!((&json["log"], &json["printed"]), (&serde_json::json!([]), &"".into()));
    assert!(done.stderr.is_empty());
}

#[test]
fn a_call_that_failed_is_asked_again() {
    // In a simulated run and in a trained one; where the guest gave no plan, and where it broke a rule.
    let trained = include_str!("../cases/training/short.toml");
    for (command, config) in [("simulate", CONFIG), ("train", trained)] {
        for guest in ["traps", "asks_twice"] {
            let scratch = Scratch::new();
            scratch.write("run.toml", config.replace("\"uniform\"", "\"./guest.wasm\""));
            scratch.write("guest.wasm", scratch::guest(guest));
            let said = told(&scratch, &[command, "run.toml", "--out", "out"]);
            let again = "to repeat the call: allot replay out --at 0.0\n";
            assert!(said.contains(again) && said.ends_with("exit code 2"), "{said}");
            let at = ["replay", "out", "--at", "0.0"];
            insta::assert_snapshot!(format!("{command}_{guest}_again"), told(&scratch, &at));
            let json = told(&scratch, &[&at[..], &["--json"]].concat());
            assert!(json.starts_with("error: ") && json.ends_with("exit code 2"), "{json}");
            // Mended. The run has kept what failed, so the other build is named.
            scratch.write("guest.wasm", scratch::guest("trains_on_nothing"));
            let kept = told(&scratch, &at);
            assert!(kept.contains("note: ") && kept.ends_with("exit code 2"), "{kept}");
            let at = ["replay", "out", "./guest.wasm", "--at", "0.0"];
            let text = costless(&told(&scratch, &at));
            assert_eq!(
                text,
                "train on 0 groups\nthe run stopped at this call; now it has a plan\nexit code 0"
            );
            let json = scratch.command(&[&at[..], &["--json"]].concat()).output().unwrap();
            let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
            assert!(json["recorded"].is_null() && json["same"].is_null(), "{json}");
            // Another policy can be asked it, too.
            let text = told(&scratch, &["replay", "out", "uniform", "--at", "0.0"]);
            assert!(text.starts_with("sample ") && text.ends_with("exit code 0"), "{text}");
        }
    }
}

#[test]
fn what_can_not_be_asked_again_is_told() {
    let scratch = simulated();
    for (name, at) in [("step_alone", "3"), ("no_numbers", "three.one")] {
        insta::assert_snapshot!(name, told(&scratch, &["replay", "out", "--at", at]));
    }
    insta::assert_snapshot!(told(&scratch, &["replay", "out", "--at", "30.0"]), @"
    error: the record has no step 30, round 0

    hint: count steps and rounds from 0
    exit code 2
    ");
    insta::assert_snapshot!(told(&scratch, &["replay", "out", "--at", "0.2"]), @"
    error: the record has no step 0, round 2

    hint: count steps and rounds from 0
    exit code 2
    ");
    scratch.write("out/view-0.2.json", "{}");
    insta::assert_snapshot!(told(&scratch, &["replay", "out", "--at", "0.2"]), @"
    error: `out/view-0.2.json` is not a valid saved view: missing field `state` at line 1 column 2
    exit code 2
    ");
    // A record alone names no policy.
    scratch.write("alone.jsonl", scratch.read("out/record.jsonl"));
    insta::assert_snapshot!(told(&scratch, &["replay", "alone.jsonl", "--at", "0.1"]), @"
    error: there is no config beside `alone.jsonl` to name the policy

    hint: name the policy: allot replay RECORD POLICY
    exit code 2
    ");
    insta::assert_snapshot!(told(&scratch, &["replay", "alone.jsonl"]), @"
    error: there is no config beside `alone.jsonl` to name the policy

    hint: name the policy: allot replay RECORD POLICY
    exit code 2
    ");
    let text = told(&scratch, &["replay", "alone.jsonl", "uniform", "--at", "0.1"]);
    assert!(text.contains("\nas recorded; "), "{text}");
}

// ---- a policy for others

#[test]
fn a_policy_is_packed() {
    let scratch = Scratch::new();
    let packed = scratch.allot(&["pack", "uniform"]);
    // Its size changes with every build.
    let sizeless: Vec<&str> = packed.lines().filter(|line| !line.starts_with("size ")).collect();
    insta::assert_snapshot!(sizeless.join("\n"));
    assert_eq!(packed.lines().count(), sizeless.len() + 1);

    let component = std::fs::read(scratch::root().join("policies/prebuilt/uniform.wasm")).unwrap();
    scratch.write("it's \"mine\".wasm", &component);
    let done = scratch.command(&["pack", "./it's \"mine\".wasm"]).output().unwrap();
    let text = String::from_utf8(done.stdout).unwrap();
    assert!(text.contains(&format!("size      {} bytes\n", component.len())), "{text}");
    // The lines that it gives are a config's, whatever the path.
    let lines: toml::Table = toml::from_str(&text[text.find("[policy]").unwrap()..]).unwrap();
    assert_eq!(lines["policy"]["use"].as_str(), Some("./it's \"mine\".wasm"));
    let json = scratch.command(&["pack", "uniform", "--json"]).output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["sha256"].as_str(), lines["policy"]["sha256"].as_str());
    assert_eq!((&json["name"], &json["bytes"]), (&"uniform".into(), &component.len().into()));
    assert!(json.get("pushed").is_none());
    // That very one is taken, and no other.
    let config = |sha256: &str| {
        let policy = format!("use = \"uniform\"\nsha256 = \"{sha256}\"");
        scratch.write("run.toml", CONFIG.replace("use = \"uniform\"", &policy));
        scratch.allot(&["simulate", "run.toml", "--no-record"])
    };
    let sha256 = json["sha256"].as_str().unwrap();
    assert!(config(sha256).ends_with("exit code 0"));
    let other = config(&sha256.chars().rev().collect::<String>());
    assert!(other.contains("error: could not load policy `uniform`: "), "{other}");
}

#[test]
fn what_can_not_be_packed_is_told() {
    let scratch = Scratch::new();
    scratch.write("noise.wasm", [0, 1, 2, 3]);
    insta::assert_snapshot!(told(&scratch, &["pack", "unifrom"]), @"
    error: no policy is called `unifrom`

    hint: did you mean `uniform`?
    hint: give your own component by its path, as in `./mine.wasm`
    exit code 2
    ");
    insta::assert_snapshot!(told(&scratch, &["pack", "./noise.wasm"]), @"
    error: could not load policy `./noise.wasm`: the file is not a Wasm component: it does not begin with the Wasm magic number
    exit code 2
    ");
    insta::assert_snapshot!(told(&scratch, &["pack", "uniform", "--push", "ghcr.io/me/mine:1"]), @"
    error: `ghcr.io/me/mine:1` is not an address in a registry

    hint: write it as `oci://REGISTRY/NAME@sha256:DIGEST`, with two slashes
    exit code 2
    ");
}

#[test]
fn a_bench_tells_every_round() {
    let scratch = Scratch::new();
    let small = ["--rounds", "2", "--threads", "1", "--batch", "1,3"];
    let bench = |more: &[&str]| {
        let done = scratch.command(&[&["bench"], more, &small[..]].concat()).output().unwrap();
        let told = String::from_utf8_lossy(&done.stderr).into_owned();
        (serde_json::from_slice::<serde_json::Value>(&done.stdout), told)
    };
    for args in
        [&["decode", "--json", "--tokens", "4", "--prompt", "2"][..], &["train", "--json", "--tokens", "5"]]
    {
        let told = bench(args).0.unwrap();
        let measured = told["measured"].as_array().unwrap();
        assert_eq!(measured.len(), 2, "{told}");
        for (one, tokens) in measured.iter().zip([4, 12]) {
            assert_eq!((&one["work"], &one["tokens_a_round"]), (&args[0].into(), &tokens.into()));
            let seconds: Vec<f64> =
                one["here"].as_array().unwrap().iter().map(|s| s.as_f64().unwrap()).collect();
            assert!(seconds.len() == 2 && seconds.iter().all(|s| *s > 0.0), "{one}");
            assert_eq!(one["beside"], serde_json::json!([]), "{one}");
            assert!(one["limit"].as_f64().unwrap() > 0.0, "{one}");
        }
    }
    let (_, told) = bench(&["decode", "--tokens", "9000"]);
    assert!(told.starts_with("error: the longest work has 9001 tokens; the model's context has"), "{told}");
}
