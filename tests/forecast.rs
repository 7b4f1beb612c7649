//! `allot forecast` as a user meets it: from a log to a table, and what is told where it can't be.

#![allow(clippy::unwrap_used, missing_docs)]

mod scratch;

use std::fmt::Write as _;

use allot_allocation::seed::Stream;
use scratch::Scratch;
use serde_json::{Value, json};

/// A log as verl dumps it: a file for each step, of 24 prompts with eight rollouts each, whose pass rates are spread.
fn log() -> Scratch {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path().join("dump")).unwrap();
    let mut stream = Stream::new(4);
    for step in 1..=6 {
        let mut text = String::new();
        for prompt in 0..24 {
            let rate = [0.0, 0.02, 0.1, 0.5, 0.9, 1.0][prompt % 6];
            for _ in 0..8 {
                let score = f64::from(u8::from(stream.unit() < rate));
                let words = "word ".repeat(1 + stream.below(9));
                let input = format!("problem {prompt} of {step}");
                let row =
                    json!({ "input": input, "output": words, "gts": "4", "score": score, "step": step });
                text.push_str(&row.to_string());
                text.push('\n');
            }
        }
        scratch.write(&format!("dump/{step}.jsonl"), text);
    }
    scratch
}

fn told(scratch: &Scratch, args: &[&str]) -> Value {
    let done = scratch.command(&[&["forecast"], args, &["--json"]].concat()).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).unwrap()
}

#[test]
fn a_log_becomes_a_ranked_table() {
    insta::assert_snapshot!(log().allot(&["forecast", "dump", "--characters-per-token", "5"]));
}

#[test]
fn a_forecast_is_the_same_each_time_and_as_that_of_its_bank() {
    let scratch = log();
    let first = told(&scratch, &["dump"]);
    assert_eq!(first, told(&scratch, &["dump"]));
    assert!(scratch.allot(&["bank", "dump", "--out", "mine.parquet"]).ends_with("exit code 0"));
    assert_eq!(first["policies"], told(&scratch, &["mine.parquet"])["policies"]);
    assert_eq!(first["geometry"], json!({ "groups": 24, "rollouts": 8 }));
    let rates: Vec<f64> = first["policies"]
        .as_array()
        .unwrap()
        .iter()
        .map(|arm| arm["information_per_1000_rollouts"].as_f64().unwrap())
        .collect();
    assert!(rates.len() > 8 && rates.is_sorted_by(|a, b| a >= b), "{rates:?}");
    for arm in first["policies"].as_array().unwrap() {
        let ratio = &arm["than_baseline"]["rollouts"];
        let (value, ends) = (ratio["times_fewer"].as_f64().unwrap(), ratio["interval"].as_array().unwrap());
        assert!(ends[0].as_f64().unwrap() <= value && value <= ends[1].as_f64().unwrap(), "{arm}");
    }
}

#[test]
fn settings_and_the_step_are_those_that_are_given() {
    let scratch = log();
    let rate = |more: &[&str]| {
        let told = told(&scratch, &[&["dump"], more].concat());
        let arms = told["policies"].as_array().unwrap();
        let arm = arms.iter().find(|arm| arm["policy"] == "pilot-commit").unwrap();
        arm["information_per_1000_rollouts"].as_f64().unwrap()
    };
    let own = rate(&[]);
    assert!(rate(&["--set", "pilot-commit.pilot=2", "--set", "pilot-commit.commit=4"]) > own);
    assert_ne!(rate(&["--groups", "4", "--rollouts", "4"]), own);
    // The log has 1,152 rollouts. Shorter runs take smaller steps, and what the baseline pays is the budget.
    for (budget, groups) in [("100", 2), ("3000", 24)] {
        let told = told(&scratch, &["dump", "--budget", budget]);
        assert_eq!(told["geometry"]["groups"], groups);
        let pays = [&told["rollouts"], &told["baseline"]["pays"]["rollouts"]].map(|n| n.as_f64().unwrap());
        let given = budget.parse::<f64>().unwrap();
        assert!(pays.iter().all(|pays| (pays / given - 1.0).abs() < 0.1), "{pays:?}");
    }
    let said = scratch.allot(&["forecast", "dump", "--set", "pilot-commit.pilots=2"]);
    assert!(said.contains("not forecast: policy `pilot-commit` has no setting `pilots`"), "{said}");
    // Text needs no quotes.
    let said = scratch.allot(&["forecast", "dump", "--set", "pilot-commit.pilot=two"]);
    assert!(said.contains("not forecast: policy `pilot-commit`: setting `pilot` is "), "{said}");
    for (typed, words) in [
        ("pilot=2", "expected POLICY.NAME=VALUE"),
        ("pilot-commit.pilot", "expected POLICY.NAME=VALUE"),
        ("mine.pilot=2", "no policy `mine` is forecast"),
    ] {
        let said = scratch.allot(&["forecast", "dump", "--set", typed]);
        assert!(said.contains(words) && said.ends_with("exit code 2"), "{said}");
    }
}

#[test]
fn what_is_trained_on_again_is_marked() {
    let scratch = log();
    let said = scratch.allot(&["forecast", "dump", "--set", "advantage-replay.warmup=0"]);
    assert!(said.contains("  advantage-replay†  ") && said.contains("\n† up to "), "{said}");
    assert!(!said.contains("spo†") && !said.contains("uniform†"), "{said}");
    let replayed = |args: &[&str]| {
        let told = told(&scratch, args);
        let all = told["policies"].as_array().unwrap();
        let arm =
            all.iter().find(|arm| arm["policy"] == "advantage-replay").map(|arm| arm["replayed"].clone());
        arm.and_then(|share| share.as_f64())
    };
    let share = replayed(&["dump", "--set", "advantage-replay.warmup=0"]).unwrap();
    assert!((0.1..0.5).contains(&share), "half as many as are fresh: {share}");
    // In its first 20 steps it replays nothing.
    assert_eq!(replayed(&["dump"]).unwrap_or(0.0), 0.0);
}

#[test]
fn what_is_trained_on_of_zero_variance_groups_is_marked() {
    let scratch = log();
    let replays = ["forecast", "dump", "--set", "advantage-replay.warmup=0"];
    let said = scratch.allot(&replays);
    assert!(said.contains("\n§ up to 100 % of what such a policy trains on "), "{said}");
    let all = told(&scratch, &replays[1..])["policies"].take();
    for arm in all.as_array().unwrap() {
        // `spo` has groups of one rollout; `aero` gives groups of one reward advantages; the others that are named give them none.
        let name = arm["policy"].as_str().unwrap();
        let share = arm["zero_variance"].as_f64().unwrap();
        assert!(said.contains(&format!("  {name}§ ")) == (share >= 0.01), "{name} {share}: {said}");
        match name {
            "spo" => assert_eq!(share, 1.0),
            "aero" => assert!((0.01..1.0).contains(&share), "{share}"),
            "uniform" | "dapo" | "pods" | "pilot-commit" | "advantage-replay" => {
                assert_eq!(share, 0.0, "{name}");
            }
            _ => {}
        }
    }
}

#[test]
fn a_policy_that_stays_with_few_prompts_is_marked() {
    let scratch = Scratch::new();
    let mut rates = "id,pass_rate,n\n".to_owned();
    for i in 0..4000 {
        writeln!(rates, "p{i},{},8", f64::from(i % 9) / 8.0).unwrap();
    }
    scratch.write("rates.csv", rates);
    let log =
        ["rates.csv", "--groups", "8", "--rollouts", "2", "--budget", "4000", "--set", "sgpo.share=0.05"];
    let said = scratch.allot(&[&["forecast"], &log[..]].concat());
    assert!(
        said.contains("  sgpo‡  ") && said.contains("\n‡ such a policy stays with few prompts"),
        "{said}"
    );
    // The pilots and commits of one visit are in one update, and with one rollout for each prompt there are as many prompts.
    assert_eq!(said.matches('‡').count(), 2, "{said}");
    let told = told(&scratch, &log);
    let updates = |arm: &Value| arm["updates_of_a_prompt"].as_f64().unwrap();
    let sgpo = told["policies"].as_array().unwrap().iter().find(|arm| arm["policy"] == "sgpo").unwrap();
    assert!(updates(sgpo) > 4.0 * updates(&told["baseline"]), "{sgpo}");
}

#[test]
fn pass_rates_alone_will_do() {
    let scratch = Scratch::new();
    let rows = |n: &str| {
        let one = |i: u32| format!("{i},{},{n}\n", f64::from(i % 5) / 4.0);
        format!(
            "id,pass_rate{}\n{}",
            if n.is_empty() { ",other" } else { ",n" },
            (0..60).map(one).collect::<String>()
        )
    };
    scratch.write("rates.csv", rows("16"));
    let said = scratch.allot(&["forecast", "rates.csv"]);
    assert!(said.contains("960 rollouts of 60 prompts; mean pass rate 0.500"), "{said}");
    assert!(
        said.contains("a prompt's pass rate in place of rollouts: 60 rows; rollouts are made to fit"),
        "{said}"
    );
    assert!(said.contains("8 of each of 16 prompts in a step; the log has no steps"), "{said}");
    scratch.write("rates.csv", rows(""));
    let said = scratch.allot(&["forecast", "rates.csv"]);
    assert!(said.contains("unknown: of how many rollouts 60 rows are; 8 are assumed"), "{said}");
    scratch.write("rates.csv", "id,pass_rate\na,1.5\n");
    let said = scratch.allot(&["forecast", "rates.csv"]);
    assert!(said.contains("`pass_rate` is \"1.5\"; expected a number from 0 to 1"), "{said}");
}

#[test]
fn a_profile_of_nemo_gym_has_pass_rates_and_mean_lengths() {
    let scratch = Scratch::new();
    let row = |i: u32| {
        let line = json!({
            "mean/reward": f64::from(i % 5) / 4.0, "max/reward": 1.0, "min/reward": 0.0, "median/reward": 0.0, "std/reward": 0.5,
            "mean/input_tokens": 11.5, "mean/output_tokens": 100.25, "mean/total_tokens": 111.75,
            "sample": {"responses_create_params": {"input": [{"role": "user", "content": format!("{i}?")}]}, "agent_ref": {"name": "a"}}
        });
        format!("{line}\n")
    };
    scratch.write("x_reward_profiling.jsonl", (0..60).map(row).collect::<String>());
    let said = scratch.allot(&["forecast", "x_reward_profiling.jsonl"]);
    assert!(said.contains("NeMo Gym's profile") && said.contains("480 rollouts of 60 prompts"), "{said}");
    assert!(said.contains("unknown: of how many rollouts 60 rows are; 8 are assumed"), "{said}");
    let told = told(&scratch, &["x_reward_profiling.jsonl"]);
    assert_eq!(
        (&told["log"]["unknown_lengths"], &told["log"]["unknown_prompt_lengths"]),
        (&json!(0), &json!(0))
    );
}

#[test]
fn what_can_not_be_forecast_is_told() {
    let scratch = Scratch::new();
    scratch.write("flat.csv", "id,reward\na,1\na,1\nb,0\nb,0\n");
    insta::assert_snapshot!(scratch.allot(&["forecast", "flat.csv"]), @"
    read as: columns by name
    an answer counts as right if its reward is at least --right: 4 rollouts
    unknown: the length of 4 rollouts; each counts as one token
    unknown: the length of 2 prompts; each counts as one token
    unknown: the model's version at 4 rollouts; assumed to be 0
    error: no prompt of the log is both right and wrong at times: there is nothing to learn from

    hint: give a log of more rollouts of each prompt, or of other prompts
    exit code 2
    ");
    let one = |i: u32| format!("{i},{}\n", i % 2);
    scratch.write("single.csv", format!("id,reward\n{}", (0..300).map(one).collect::<String>()));
    let said = scratch.allot(&["forecast", "single.csv"]);
    assert!(said.contains("300 of 300 prompts have one rollout") && said.ends_with("exit code 2"), "{said}");
    scratch.write("log.csv", "id,reward\na,1\na,-1\nb,-1\nb,1\n");
    let said = scratch.allot(&["forecast", "log.csv"]);
    assert!(
        said.contains("some rewards are not 0 or 1; of the 65 ratios, seven were measured with such rewards: 0, 0.5 and 1"),
        "{said}"
    );
    assert!(said.contains("× fewer, of few prompts"), "{said}");
    let said = scratch.allot(&["forecast", "log.csv", "--policy", "nobody"]);
    assert!(said.contains("no policy is called `nobody`") && said.ends_with("exit code 2"), "{said}");
    let said = scratch.allot(&["forecast", "nothing.csv"]);
    assert!(said.contains("nothing.csv") && said.ends_with("exit code 2"), "{said}");
}

#[test]
fn episodes_of_verifiers_are_a_log() {
    let scratch = Scratch::new();
    let mut stream = Stream::new(9);
    let mut text = String::new();
    for episode in 0..400 {
        let right = f64::from(u8::from(stream.unit() < [0.1, 0.5, 0.8][episode % 3]));
        let row = json!({
            "env": { "id": "sums" },
            "task": { "type": "Sum", "hash": format!("task-{}", episode % 50), "data": { "prompt": "2+2=" } },
            "run": { "type": "train", "id": "r", "work": { "type": "train", "step": 1, "policy": { "start": 1, "end": 1 } } },
            "traces": [{
                "agent": { "trainable": true },
                "calls": [{ "finish_reason": "stop", "usage": { "prompt_tokens": 5, "completion_tokens": 7 } }],
                "rewards": { "right": { "score": right, "weight": 1.0 } },
            }],
        });
        text.push_str(&row.to_string());
        text.push('\n');
    }
    scratch.write("traces.jsonl", text);
    let said = scratch.allot(&["forecast", "traces.jsonl"]);
    assert!(
        said.contains("400 rollouts of 50 prompts") && said.contains("read as: episodes of verifiers"),
        "{said}"
    );
    let told = told(&scratch, &["traces.jsonl"]);
    assert_eq!(
        (&told["log"]["unknown_lengths"], &told["log"]["unknown_prompt_lengths"]),
        (&json!(0), &json!(50))
    );
    let pays = &told["baseline"]["pays"];
    let tokens = pays["tokens"].as_f64().unwrap() / pays["rollouts"].as_f64().unwrap();
    assert!((tokens - 7.0).abs() < 1e-9, "{pays}");
    assert!(pays["operations"].is_null(), "{pays}");
}

#[test]
fn a_page_has_the_table_and_what_the_log_does_not_tell() {
    let scratch = log();
    let said = scratch.allot(&["forecast", "dump", "--page", "saved.html"]);
    assert!(said.contains("the page is in saved.html") && said.ends_with("exit code 0"), "{said}");
    let page = std::fs::read_to_string(scratch.path().join("saved.html")).unwrap();
    assert!(said.contains("no difference shown") && !page.contains(">--right<"), "{said}");
    for words in [
        "Forecast from dump",
        "1,152 rollouts of 144 prompts",
        "times fewer rollouts",
        "--characters-per-token estimates lengths",
        "such forecasts were off by a factor of 1.6",
        "1,000 with an advantage",
        "no difference shown",
        "rollouts, than 2 of each of",
    ] {
        assert!(page.contains(words), "{words}");
    }
    let said = scratch.allot(&["forecast", "dump", "--page", "nowhere/saved.html"]);
    assert!(said.contains("could not write `nowhere/saved.html`") && said.ends_with("exit code 2"), "{said}");
    assert!(!said.contains("read as"), "it is told before the log is read: {said}");
    let said = scratch.allot(&["forecast", "dump", "--page", "dump"]);
    assert!(said.contains("`dump` is a folder; expected a file"), "{said}");
    let log = scratch.read("dump/1.jsonl");
    let said = scratch.allot(&["forecast", "dump", "--page", "./dump/1.jsonl"]);
    assert!(said.contains("would be overwritten while it is read") && said.contains("--page"), "{said}");
    assert_eq!(log, scratch.read("dump/1.jsonl"));
}

#[test]
fn lengths_of_prompts_are_estimated_or_given() {
    let scratch = log();
    let operations = |more: &[&str]| {
        let told = told(&scratch, &[&["dump"], more].concat());
        told["baseline"]["pays"]["operations"].as_f64()
    };
    assert_eq!(operations(&[]), None);
    // `problem N of STEP` has 14 or 15 characters, and so three tokens of five.
    let estimated = operations(&["--characters-per-token", "5"]).unwrap();
    let said = scratch.allot(&["forecast", "dump", "--characters-per-token", "5"]);
    assert!(said.contains("lengths of prompts are estimated from characters"), "{said}");
    scratch.write("log.csv", "id,reward,tokens\na,1,7\na,0,7\nb,0,7\nb,1,7\n");
    let of = |more: &[&str]| {
        let told = told(&scratch, &[&["log.csv"], more].concat());
        let pays = &told["baseline"]["pays"];
        pays["operations"].as_f64().map(|operations| operations / pays["rollouts"].as_f64().unwrap())
    };
    assert_eq!(of(&[]), None);
    // A longer prompt is read once by a group, and trained on with each rollout.
    let [short, long] = ["100", "200"].map(|length| of(&["--prompt-tokens", length]).unwrap());
    assert!(long - short > 600.0, "{short} {long}");
    assert!(estimated > 0.0);
    let assumed = told(&scratch, &["log.csv", "--prompt-tokens", "100"]);
    assert_eq!(assumed["log"]["assumed_prompt_lengths"], json!(2));
    let said = scratch.allot(&["forecast", "log.csv", "--prompt-tokens", "100"]);
    assert!(said.contains("lengths of prompts are assumed, as --prompt-tokens says: 2 prompts"), "{said}");
    // Names are not the texts of prompts, nor are numbers.
    let unknown = |text: &str| {
        scratch.write("named.csv", text);
        let told = told(&scratch, &["named.csv", "--characters-per-token", "1"]);
        let operations = told["baseline"]["pays"]["operations"].as_f64();
        (told["log"]["unknown_prompt_lengths"].as_u64().unwrap(), operations)
    };
    let of = |name: &str, question: &str| {
        let rows = [("a", 1), ("a", 0), ("b", 0), ("b", 1)];
        let row = |(id, reward): (&str, u8)| format!("{name}{id},{question},{reward},7\n");
        format!("prompt,question,reward,tokens\n{}", rows.map(row).concat())
    };
    let [short, long] = ["q", "a-name-of-a-question"].map(|name| unknown(&of(name, "How much is it?")));
    assert_eq!((short.0, short), (0, long));
    assert_eq!(unknown("prompt,reward,tokens\n1,1,7\n1,0,7\n2,0,7\n2,1,7\n"), (2, None));
}

#[test]
fn a_run_of_a_comparison_has_to_be_named() {
    let scratch = Scratch::new();
    let mut text = "arm,seed,prompt,version,tokens,truncated,reward,correct\n".to_owned();
    for i in 0..240 {
        let (arm, seed) = (["dapo", "uniform"][i % 2], 1 + i / 2 % 2);
        let right = u8::from(i % 3 == 0);
        let _ = writeln!(text, "{arm},{seed},{},0,5,false,{right},{}", i / 8, right == 1);
    }
    scratch.write("rollouts.csv", text);
    let said = scratch.allot(&["forecast", "rollouts.csv"]);
    for words in [
        "the log has rollouts of 4 runs of a comparison, with arms `dapo`, `uniform`",
        "hint: forecast from one run, as with --where arm=uniform --where seed=1",
        "exit code 2",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let said = scratch.allot(&["forecast", "rollouts.csv", "--where", "arm=uniform", "--where", "seed=1"]);
    assert!(said.contains("60 rollouts of 30 prompts") && said.ends_with("exit code 0"), "{said}");
}

#[test]
fn runs_are_forecast_from_one_by_one() {
    let scratch = Scratch::new();
    for seed in 1..=2 {
        let config = format!("seed={seed}");
        let made =
            ["simulate", "simulate", "-o", &format!("run.{config}"), "-o", "run.steps=30", "--out", &config];
        assert!(scratch.allot(&made).ends_with("exit code 0"));
    }
    for two in [["seed=1", "seed=2"], ["seed=1/record.jsonl", "seed=2/record.jsonl"]] {
        let said = scratch.allot(&["forecast", two[0], two[1]]);
        let told =
            "error: `seed=1/record.jsonl` and `seed=2/record.jsonl` are two runs, whose models differ\n";
        assert!(said.contains(told) && said.ends_with("exit code 2"), "{said}");
        assert!(scratch.allot(&["forecast", two[0]]).ends_with("exit code 0"));
        // A bank is made of both, with lengths of prompts.
        let bank = scratch.allot(&["bank", two[0], two[1]]);
        assert!(!bank.contains("unknown: the length") && bank.ends_with("exit code 0"), "{bank}");
    }
}
