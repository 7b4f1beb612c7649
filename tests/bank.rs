//! Banks as a user makes and draws from them: rollouts of other trainers and evaluations, of our own runs, and files that
//! are none.

#![allow(clippy::unwrap_used, missing_docs)]

mod scratch;

use std::fmt::Write as _;

use scratch::{Scratch, root};
use serde_json::{Value, json};

/// Two prompts as verl dumps them, one of them right three times in four; `acc` is what its reward managers add.
fn verl() -> String {
    let line = |prompt: &str, output: &str, score: f64| {
        let line = json!({"input": prompt, "output": output, "gts": "2", "score": score, "step": 3, "acc": score > 0.0});
        format!("{line}\n")
    };
    let question = "A question that is longer than a name may be: what is 1 + 1, and why?";
    [
        line(question, "2", 1.0),
        line(question, "It is 2.", 1.0),
        line(question, "3", -1.0),
        line(question, "2", 1.0),
        line("6 * 7", "42", 1.0),
        line("6 * 7", "54", -1.0),
    ]
    .concat()
}

/// A CSV of prompts with pass rates from 0 to 1 and eight rollouts each, whose lengths tell right from wrong.
fn csv(prompts: u32) -> String {
    let mut text = "question,score,n_tokens\n".to_owned();
    for prompt in 0..prompts {
        for i in 0..8 {
            let right = i < prompt % 9;
            writeln!(text, "q{prompt},{},{}", u8::from(right), if right { 20 + i } else { 60 + i }).unwrap();
        }
    }
    text
}

const COLUMNS: [&str; 6] =
    ["--column", "prompt=question", "--column", "reward=score", "--column", "tokens=n_tokens"];

const CONFIG: &str = r#"
[run]
seed = 3
steps = 30
groups = 4
rollouts = 8
pool = 16

[budget]
rollouts = 1200

[policy]
use = "uniform"
"#;

/// A folder with a bank of that CSV, and a config.
fn scratch() -> Scratch {
    let scratch = Scratch::new();
    scratch.write("rollouts.csv", csv(90));
    scratch.write("run.toml", CONFIG);
    let said = scratch.allot(&[&["bank", "rollouts.csv"], &COLUMNS[..]].concat());
    assert!(said.ends_with("exit code 0"), "{said}");
    scratch
}

/// What a simulated run on that bank comes to.
fn simulated(scratch: &Scratch, more: &[&str]) -> Value {
    let args = [&["simulate", "run.toml", "--bank", "bank.parquet", "--json", "--no-record"], more].concat();
    let done = scratch.command(&args).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).unwrap()
}

// ---- From files to a bank

#[test]
fn a_bank_is_made_of_what_verl_dumps() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path().join("dump")).unwrap();
    scratch.write("dump/3.jsonl", verl());
    scratch.write("dump/10.jsonl", verl().replace("\"step\":3", "\"step\":10"));
    insta::assert_snapshot!("verl", scratch.allot(&["bank", "dump"]));
    insta::assert_snapshot!(
        "verl_in_part",
        scratch.allot(&["bank", "dump", "--versions", "10..12", "--characters-per-token", "3.5"])
    );
}

#[test]
fn a_bank_is_made_of_what_trl_logs() {
    let scratch = Scratch::new();
    let file = root().join("tests/cases/bank/completions_00005.parquet");
    scratch.write("completions_00005.parquet", std::fs::read(file).unwrap());
    let open = ["bank", "completions_00005.parquet", "--characters-per-token", "4"];
    insta::assert_snapshot!("trl_rewards", scratch.allot(&open));
    let both = [&open[..], &["--column", "reward=accuracy_reward+format_reward", "--right", "1"]].concat();
    insta::assert_snapshot!("trl", scratch.allot(&both));
}

#[test]
fn a_bank_is_made_of_what_evaluations_and_gyms_log() {
    let scratch = Scratch::new();
    let sample = |doc: u32, filter: &str, right: f64| {
        let line = json!({
            "doc_id": doc, "doc": {"question": "?"}, "target": "2", "arguments": [["?", {}]], "resps": [["2"]],
            "filtered_resps": ["2"], "filter": filter, "metrics": ["exact_match"], "doc_hash": "d", "prompt_hash":
            format!("p{doc}"), "target_hash": "t", "exact_match": right
        });
        format!("{line}\n")
    };
    let samples = |right: f64| {
        (0..3).map(|doc| sample(doc, "strict", 0.0) + &sample(doc, "flexible", right)).collect::<String>()
    };
    scratch.write("samples_gsm8k_1.jsonl", samples(1.0));
    scratch.write("samples_gsm8k_2.jsonl", samples(0.0));
    insta::assert_snapshot!(
        "lm_eval",
        scratch.allot(&["bank", "samples_gsm8k_1.jsonl", "samples_gsm8k_2.jsonl"])
    );

    let rollout = |task: u32, reward: f64| {
        let line = json!({
            "responses_create_params": {"input": [{"role": "user", "content": "?"}]}, "_ng_task_index": task,
            "response": {"usage": {"input_tokens": 12, "output_tokens": 40 + task}}, "reward": reward
        });
        format!("{line}\n")
    };
    scratch.write("gym.jsonl", (0..4).map(|i| rollout(i % 2, f64::from(i % 3) / 2.0)).collect::<String>());
    insta::assert_snapshot!("nemo_gym", scratch.allot(&["bank", "gym.jsonl"]));

    // As inspect's `samples_df` has it.
    scratch.write(
        "inspect.csv",
        "id,epoch,score_match,total_tokens\n1,1,C,20\n1,2,I,30\n\"2\",1,P,40\n2,2,N,50\n",
    );
    let said = scratch.allot(&["bank", "inspect.csv", "--column", "correct=score_match", "--json"]);
    let told: Value = serde_json::from_str(said.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&told["prompts"], &told["pass_rate"], &told["never_right"]),
        (&json!(2), &json!(0.25), &json!(0.5))
    );
}

#[test]
fn a_run_and_a_report_of_ours_are_banks_and_so_is_a_bank() {
    let scratch = Scratch::new();
    scratch.write(
        "train.toml",
        r#"
[run]
seed = 1
steps = 3
groups = 4
rollouts = 4
[budget]
rollouts = 1000
[policy]
use = "uniform"
[model]
use = "tiny-sums"
threads = 1
[sampling]
max_tokens = 8
[optimizer]
learning_rate = 1e-4
[reward]
grader = "exact"
[evaluation]
every = 100
problems = 10
[[tasks]]
kind = "sums"
style = "terse"
count = 60
held_out = 0.2
levels = [{ digits = 1, count = 20 }, { digits = 3 }]
"#,
    );
    scratch.allot(&["train", "train.toml", "--out", "run"]);
    let told = |args: &[&str]| -> Value {
        let said = scratch.allot(&[args, &["--json"]].concat());
        serde_json::from_str(said.lines().next().unwrap()).unwrap_or_else(|_| panic!("{said}"))
    };
    let of_run = told(&["bank", "run", "--out", "a.parquet"]);
    assert_eq!(
        (&of_run["rollouts"], &of_run["prompts"], &of_run["versions"]),
        (&json!(48), &json!(12), &json!([0, 2]))
    );
    assert!(of_run["left_out"]["of an evaluation"].as_u64().unwrap() >= 20, "{of_run}");
    // The table has no lengths of prompts, and the record has.
    assert_eq!(of_run["unknown_prompt_lengths"], json!(0));
    let record = scratch.read("run/record.jsonl");
    scratch.write("run/record.jsonl", "no record\n");
    let unread = told(&["bank", "run", "--out", "a.parquet"]);
    assert_eq!((&unread["rollouts"], &unread["unknown_prompt_lengths"]), (&json!(48), &json!(12)));
    assert!(unread["unread_record"].as_str().unwrap().contains("record.jsonl"), "{unread}");
    scratch.write("run/record.jsonl", record);
    // Nor do the tables of two runs on the same data. Those of other data go by other numbers.
    scratch.allot(&["train", "train.toml", "-o", "run.seed=2", "--out", "second"]);
    let both = told(&["bank", "run", "second", "--out", "b.parquet"]);
    assert_eq!((&both["rollouts"], &both["unknown_prompt_lengths"]), (&json!(96), &json!(0)));
    scratch.allot(&["train", "train.toml", "-o", "tasks.0.count=90", "--out", "other"]);
    let other = told(&["bank", "run", "other", "--out", "b.parquet"]);
    assert!(other["unread_record"].as_str().unwrap().contains("are of runs on other data"), "{other}");
    told(&["bank", "run", "--out", "a.parquet"]);
    let again = told(&["bank", "a.parquet", "--out", "b.parquet"]);
    assert_eq!((&again["fit"], &again["pass_rate"]), (&of_run["fit"], &of_run["pass_rate"]));
    let bytes = |name: &str| std::fs::read(scratch.path().join(name)).unwrap();
    assert_eq!(bytes("a.parquet"), bytes("b.parquet"), "a bank of a bank is that bank");

    scratch.allot(&["report", "run", "--out", "report"]);
    let of_report =
        told(&["bank", "report/rollouts.parquet", "--where", "arm=uniform", "--out", "c.parquet"]);
    assert_eq!((&of_report["rollouts"], &of_report["pass_rate"]), (&json!(48), &of_run["pass_rate"]));
    insta::assert_snapshot!(
        "no_arm",
        scratch.allot(&["bank", "report/rollouts.parquet", "--where", "arm=dapo"])
    );

    // A trainer's run has a record and no table: it is as good a bank.
    std::fs::rename(scratch.path().join("run/rollouts"), scratch.path().join("table")).unwrap();
    let mut of_record = told(&["bank", "run", "--out", "d.parquet"]);
    let (mut expected, left) = (of_run.clone(), json!({}));
    (expected["left_out"], expected["layouts"]) = (left, json!(["a run's record"]));
    assert_eq!(of_record, expected);
    of_record = told(&["bank", "run/record.jsonl", "--versions", "1..2", "--out", "d.parquet"]);
    assert_eq!(
        (&of_record["rollouts"], &of_record["left_out"]),
        (&json!(32), &json!({"of other versions": 16}))
    );
    // A record is known by how it begins, whatever its name. Runs on other data don't go together.
    let text = scratch.read("run/record.jsonl");
    let (head, rest) = text.split_once('\n').unwrap();
    let hash = serde_json::from_str::<Value>(head).unwrap()["training"]["problems"]["sha256"].clone();
    scratch.write("other.jsonl", head.replace(hash.as_str().unwrap(), &"0".repeat(64)) + "\n" + rest);
    assert_eq!(told(&["bank", "other.jsonl", "--out", "d.parquet"])["rollouts"], json!(48));
    std::fs::create_dir(scratch.path().join("own")).unwrap();
    scratch.write("own/record.jsonl", "{\"id\": 1, \"reward\": 1}\n");
    assert!(scratch.allot(&["bank", "own"]).contains("read as: columns by name"));
    for (args, words) in [
        (&["run", "other.jsonl"][..], "are of runs on other data"),
        (&["run", "a.parquet"][..], "`a.parquet` is not a run's record, as another file is"),
        (&["run", "--where", "arm=x"], "--where is for files with columns; a run's record has none"),
        (&["run", "--versions", "7..9"], "none of its 48 rollouts is of a version that was asked for"),
    ] {
        let said = scratch.allot(&[&["bank"], args].concat());
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn what_is_no_bank_is_told() {
    let scratch = Scratch::new();
    scratch.write("rollouts.csv", csv(3));
    scratch.write(
        "cut.parquet",
        &std::fs::read(root().join("tests/cases/bank/completions_00005.parquet")).unwrap()[..900],
    );
    scratch.write("none.jsonl", "");
    scratch.write("run.toml", CONFIG);
    scratch.write("words.jsonl", "{\"id\": 1, \"reward\": \"good\"}\n");
    scratch.write("endless.jsonl", "{\"id\": 1, \"reward\": 1e300}\n{\"id\": 1, \"reward\": null}\n");
    scratch.write("minus.csv", "id,reward,tokens\n1,1,-5\n");
    scratch.write("short.csv", "id,reward\n1\n");
    scratch.write("open.csv", "id,reward\n\"1,0\n");
    scratch.write("bytes.csv", b"id,reward\n\xff,0\n");
    scratch.write("nameless.jsonl", "{\"id\": \"\", \"reward\": 1}\n");
    scratch.write("verdict.jsonl", "{\"id\": 1, \"correct\": \"perhaps\"}\n");
    std::fs::create_dir(scratch.path().join("empty")).unwrap();
    let mut told = String::new();
    for args in [
        &["rollouts.csv", "--column", "prompt=question", "--column", "reward=points"][..],
        &["rollouts.csv", "--column", "answer=question"],
        &["rollouts.csv", "--column", "question"],
        &["rollouts.csv", "--column", "prompt=question", "--where", "arm=x"],
        &["rollouts.csv", "--versions", "5..2"],
        &["rollouts.csv", "--characters-per-token", "0"],
        &["rollouts.csv", "--column", "prompt=question", "--out", "rollouts.csv"],
        &["rollouts.csv", "--column", "prompt=question", "--out", "no/such/folder.parquet"],
        &["rollouts.csv", "--column", "prompt=question", "--versions", "5..7"],
        &["cut.parquet"],
        &["none.jsonl"],
        &["words.jsonl"],
        &["endless.jsonl"],
        &["minus.csv"],
        &["short.csv"],
        &["open.csv"],
        &["bytes.csv"],
        &["nameless.jsonl"],
        &["verdict.jsonl"],
        &["empty"],
        &["no-such-file.jsonl"],
        &["run.toml"],
    ] {
        let said = scratch.allot(&[&["bank"], args].concat());
        writeln!(told, "allot bank {}\n{said}\n", args.join(" ")).unwrap();
        assert!(!scratch.path().join("bank.parquet").exists(), "{args:?}");
    }
    insta::assert_snapshot!(told.trim_end());
}

// ---- From a bank to a run

#[test]
fn a_simulation_on_a_bank_ends_with_a_table_that_says_where_rollouts_came_from() {
    let scratch = scratch();
    insta::assert_snapshot!("uniform", scratch.allot(&["simulate", "run.toml", "--bank", "bank.parquet"]));
    let resolved = scratch.read("runs/run-001/resolved.toml");
    assert!(resolved.contains("[bank]\nfile = \"bank.parquet\""), "{resolved}");
}

#[test]
fn a_bank_that_suffices_gives_its_own_rollouts_and_no_other() {
    let scratch = scratch();
    let once = simulated(&scratch, &["-o", "run.steps=20"]);
    let bank = &once["bank"];
    assert_eq!((&bank["drawn"], &bank["again"], &bank["modelled"]), (&json!(640), &json!(0), &json!(0)));
    // 80 of 90 prompts, eight of eight rollouts each: what is drawn of a prompt is its pass rate.
    assert_eq!(&bank["prompts_sampled"], &json!(80));
    // Of nine prompts one is never right and one always.
    assert_eq!(&bank["prompts_taught"], &bank["groups"]);
    assert!((60..=65).contains(&bank["groups"].as_u64().unwrap()), "{bank}");
    assert_eq!(once["not_shown"], json!([]));

    let more = simulated(&scratch, &["-o", "run.rollouts=16", "-o", "run.steps=20"]);
    assert_eq!((&more["bank"]["drawn"], &more["bank"]["modelled"]), (&json!(600), &json!(600)));
}

#[test]
fn a_simulation_on_a_bank_is_repeated_to_the_byte_and_paired() {
    let scratch = scratch();
    let run = |policy: &str, seed: &str, out: &str| {
        let args = [
            "simulate",
            "run.toml",
            "--bank",
            "bank.parquet",
            "--policy",
            policy,
            "--seed",
            seed,
            "--out",
            out,
        ];
        let said = scratch.allot(&args);
        assert!(said.ends_with("exit code 0"), "{said}");
        scratch.read(&format!("{out}/record.jsonl"))
    };
    assert_eq!(run("pilot-commit", "3", "a"), run("pilot-commit", "3", "b"));
    assert_ne!(run("pilot-commit", "4", "c"), run("pilot-commit", "3", "d"));
    let first = |record: &str| -> Vec<(u64, String)> {
        let line = record.lines().find(|l| l.starts_with(r#"{"kind":"rollouts""#)).unwrap();
        let line: Value = serde_json::from_str(line).unwrap();
        let sampled = line["sampled"].as_array().unwrap().iter();
        sampled.map(|s| (s["prompt"].as_u64().unwrap(), s["correct"].as_str().unwrap().to_owned())).collect()
    };
    let (uniform, other) = (first(&run("uniform", "3", "e")), first(&run("knapsack", "3", "f")));
    let mut pairs = 0;
    for (prompt, correct) in &uniform {
        if let Some((_, twin)) = other.iter().find(|(p, _)| p == prompt) {
            let n = correct.len().min(twin.len());
            assert_eq!(correct[..n], twin[..n], "prompt {prompt}");
            pairs += 1;
        }
    }
    assert!(pairs > 0);
    let said = scratch.allot(&["replay", "a", "pilot-commit"]);
    assert!(said.contains("calls, no difference\nexit code 0"), "{said}");
}

#[test]
fn what_a_bank_cannot_show_is_told_by_what_a_policy_does() {
    let scratch = scratch();
    // Four times through the bank.
    let again = simulated(&scratch, &["-o", "run.steps=100", "-o", "budget.rollouts=2880"]);
    let told = again["not_shown"].to_string();
    assert!(told.contains("sampled at several versions"), "{told}");
    assert!(again["bank"]["again"].as_u64().unwrap() > 1000, "{again}");
    let steered = simulated(&scratch, &["--policy", "info-steps"]);
    assert!(steered["not_shown"].to_string().contains("optimizer steps"), "{steered}");
}

#[test]
fn a_comparison_on_a_bank_says_where_rollouts_went() {
    let scratch = scratch();
    let config = format!(
        "{CONFIG}[bank]\nfile = \"bank.parquet\"\n[compare]\nseeds = 2\n[[compare.policies]]\nuse = \"dapo\"\n"
    );
    scratch.write("compare.toml", config);
    insta::assert_snapshot!("compare_dry", scratch.allot(&["compare", "compare.toml", "--dry-run"]));
    let said = scratch.allot(&["compare", "compare.toml", "--out", "out", "--jobs", "2"]);
    assert!(said.contains("drawn from a bank, which does not learn"), "{said}");
    let uses = scratch.read("out/report/tables/uses.csv");
    assert_eq!(uses.lines().count(), 3, "{uses}");
    // The bank that it was compared on, and no other.
    scratch.write("rollouts.csv", csv(40));
    scratch.allot(&[&["bank", "rollouts.csv"], &COLUMNS[..]].concat());
    let changed = scratch.allot(&["simulate", "out/configs/dapo/seed-0003.toml", "--no-record"]);
    assert!(changed.contains("; the config expects"), "{changed}");
}

#[test]
fn a_config_that_no_bank_can_serve_is_refused() {
    let scratch = scratch();
    scratch.write("no-lengths.csv", "id,reward\n1,1\n1,0\n");
    let mut told = String::new();
    let base = ["simulate", "run.toml", "--no-record", "--bank"];
    for args in [
        &["no-such.parquet"][..],
        &["run.toml"],
        &["no-lengths.csv", "-o", "budget.tokens=100"],
        &["bank.parquet", "-o", "requests.least_tokens=1"],
    ] {
        let said = scratch.allot(&[&base, args].concat());
        writeln!(told, "--bank {}\n{said}\n", args.join(" ")).unwrap();
    }
    scratch.write("other.toml", format!("{CONFIG}[bank]\npath = \"bank.parquet\"\n"));
    writeln!(told, "[bank] path\n{}\n", scratch.allot(&["simulate", "other.toml"])).unwrap();
    scratch.write("pinned.toml", format!("{CONFIG}[bank]\nfile = \"bank.parquet\"\nsha256 = \"abc\"\n"));
    writeln!(told, "[bank] sha256\n{}\n", scratch.allot(&["simulate", "pinned.toml"])).unwrap();
    insta::assert_snapshot!(told.trim_end());
}

#[test]
fn dumps_of_slime_are_read_without_python() {
    let scratch = Scratch::new();
    let dumps = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/cases/bank/slime");
    let told = scratch.command(&["bank", dumps, "--json"]).output().unwrap();
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    let told: Value = serde_json::from_slice(&told.stdout).unwrap();
    // Two steps of six prompts with four samples each, of which one was aborted; and an evaluation.
    assert_eq!((&told["prompts"], &told["rollouts"]), (&12.into(), &46.into()));
    assert_eq!(told["left_out"], serde_json::json!({ "of an evaluation": 24, "without a reward": 2 }));
    assert_eq!((&told["unknown_lengths"], &told["unknown_prompt_lengths"]), (&0.into(), &0.into()));
    assert_eq!((&told["versions"], &told["layouts"][0]), (&serde_json::json!([0, 1]), &"slime".into()));
    for (name, bytes, words) in [
        ("a.pt", b"PK\x03\x04no".to_vec(), "can't be read as a dump of slime's rollouts"),
        ("b.pt", b"weights".to_vec(), "can't be read as a dump of slime's rollouts"),
        ("c.pt", std::fs::read(format!("{dumps}/rollout_0.pt")).unwrap()[..2_000].to_vec(), "can't be read"),
    ] {
        std::fs::write(scratch.path().join(name), bytes).unwrap();
        let said = scratch.allot(&["bank", name]);
        assert!(said.contains(words) && said.contains("--save-debug-rollout-data"), "{said}");
        assert!(said.ends_with("exit code 2"), "{said}");
    }
    // The same dump, marked as compressed: the method is 10 bytes into an entry's entry of the directory, 8 into its own head.
    let mut bytes = std::fs::read(format!("{dumps}/rollout_0.pt")).unwrap();
    for (head, method) in [(b"PK\x01\x02", 10), (b"PK\x03\x04", 8)] {
        let heads: Vec<usize> = (0..bytes.len() - 4).filter(|at| bytes[*at..].starts_with(head)).collect();
        for at in heads {
            bytes[at + method] = 8;
        }
    }
    std::fs::write(scratch.path().join("d.pt"), bytes).unwrap();
    let said = scratch.allot(&["bank", "d.pt"]);
    assert!(said.contains("data.pkl` in it is compressed") && said.ends_with("exit code 2"), "{said}");
    // Beside other logs, a folder's .pt files are not of rollouts.
    std::fs::create_dir(scratch.path().join("run")).unwrap();
    scratch.write("run/model.pt", "weights");
    scratch.write("run/x.csv", "id,reward\na,1\na,0\n");
    let said = scratch.allot(&["bank", "run"]);
    assert!(said.contains("read as: columns by name") && said.ends_with("exit code 0"), "{said}");
}
