//! `allot train` with the model on a server: our own on the loopback, which speaks the Tinker protocol and
//! trains the model that ships. A run through it is the run on this machine; what goes wrong on the way leaves
//! no trace; what can't be right ends the run in a sentence, and it goes on from there.

#![cfg(unix)]
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "remote/server.rs"]
mod server;

mod loopback;
mod scratch;

use std::fs;
use std::process::Command;
use std::time::Duration;

use allot_record::StepEnd;
use serde_json::{Value, json};

use loopback::runs::{error, lines, record, stopped_again_and_again, trained};
use loopback::trick;
use scratch::Scratch;
use server::{KEY, MODEL, Mean, Server, Trick, What};

/// A run of half a second. What differs between machines is at its end.
const CONFIG: &str = include_str!("cases/remote/short.toml");

/// The config, trained here.
fn here() -> String {
    CONFIG.replace("threads", "lora = { rank = 4, alpha = 32 }\nthreads")
}

/// The config, trained by a server.
fn there(server: &Server, kind: &str) -> String {
    let engine = format!(
        "[engine]\nuse = \"tinker\"\nurl = \"{}\"\nserver = \"{kind}\"\nbase_model = \"{MODEL}\"\n\
         lora_rank = 4\nretry_seconds = 0.005\nrequest_seconds = 5\npatience_seconds = 30\n\n[model]",
        server.url
    );
    CONFIG.replace("threads = 1\n", "").replace("[model]", &engine)
}

/// The same, soon at the end of its patience, and with a sign of life ever so often.
fn impatient(server: &Server, kind: &str) -> String {
    there(server, kind).replace("patience_seconds = 30", "patience_seconds = 2")
}

/// What a command says with the scratch folder's path and the server's port left out, and its exit code.
fn told(scratch: &Scratch, server: &Server, args: &[&str]) -> String {
    let said = scratch.allot(&[&["train"], args].concat());
    said.replace(&scratch.path().display().to_string(), "[scratch]").replace(&server.url, "[server]")
}

/// A run's number of a step, by name.
fn number(step: &StepEnd, name: &str) -> f64 {
    step.metrics.iter().find(|(n, _)| n == name).unwrap_or_else(|| panic!("no {name}")).1
}

// ---- the same run

/// Held-out problems are answered in a second way, too.
const ALSO: (&str, &str) = (
    "[checkpoint]",
    "[[evaluation.also]]\nname = \"sure\"\nrollouts = 1\nsampling = { temperature = 0.0 }\n\n[checkpoint]",
);

/// The server's kind and its mean, the loss, the policy, and what else is changed of the config.
type Case = (&'static str, Mean, &'static str, &'static str, &'static [(&'static str, &'static str)]);

#[test]
fn a_run_on_a_server_is_the_run_on_this_machine() {
    let cases: [Case; 11] = [
        ("skyrl-jax", Mean::SequenceMean, "grpo", "uniform", &[]),
        ("tinker", Mean::Sum, "grpo", "uniform", &[("seed = 1", "seed = 1\nlag = 1")]),
        ("skyrl-jax", Mean::SequenceMean, "grpo", "uniform", &[("seed = 1", "seed = 1\nlag = 2")]),
        ("skyrl-jax", Mean::SequenceMean, "dapo", "pilot-commit", &[("mini_batch = 0", "mini_batch = 12")]),
        ("skyrl-train", Mean::Sum, "dr-grpo", "uniform", &[("epochs = 1", "epochs = 2")]),
        ("tinker", Mean::Sum, "cispo", "pods", &[("max_norm = 0.0", "max_norm = 0.05")]),
        ("tinker", Mean::Sum, "grpo", "uniform", &[("rows = 64", "rows = 64\nstop = [\"12\", \"7\"]"), ALSO]),
        (
            "skyrl-jax",
            Mean::SequenceMean,
            "dapo",
            "uniform",
            &[("epochs = 1", "epochs = 1\nmask_truncated = true"), ("max_tokens = 8", "max_tokens = 3")],
        ),
        (
            "tinker",
            Mean::Sum,
            "grpo",
            "uniform",
            &[("epochs = 1", "epochs = 1\nmask_truncated = true"), ("max_tokens = 8", "max_tokens = 3")],
        ),
        (
            "skyrl-jax",
            Mean::SequenceMean,
            "grpo",
            "pilot-commit",
            &[("\"decoupled\"", "\"recomputed\""), ("epochs = 1", "epochs = 2")],
        ),
        (
            "skyrl-jax",
            Mean::SequenceMean,
            "dapo",
            "pilot-commit",
            &[("\"decoupled\"", "\"sampling\""), ("seed = 1", "seed = 1\nlag = 1")],
        ),
    ];
    for (kind, mean, loss, policy, edits) in cases {
        let (scratch, server) = (Scratch::new(), Server::start(mean));
        let edited = |config: String| {
            let config = edits.iter().fold(config, |config, (from, to)| {
                assert!(config.contains(from), "{from}");
                config.replace(from, to)
            });
            config
                .replace("\"grpo\"", &format!("\"{loss}\""))
                .replace("\"uniform\"", &format!("\"{policy}\""))
        };
        trained(&scratch, &edited(here()), "here");
        trained(&scratch, &edited(impatient(&server, kind)), "there");
        let (here, there) = (lines(&scratch.path().join("here")), lines(&scratch.path().join("there")));
        assert_eq!(here.0, there.0, "{kind} {loss} {policy}: plans");
        assert_eq!(here.1, there.1, "{kind} {loss} {policy}: rollouts");
        assert_eq!(here.2.len(), 4);
        let (mut moved, mut compared) = (false, 0);
        for (a, b) in here.2.iter().zip(&there.2) {
            assert_eq!(
                (a.spent, a.trained, a.effective, a.accuracy, &a.scores),
                (b.spent, b.trained, b.effective, b.accuracy, &b.scores)
            );
            assert_eq!(a.updated, b.updated);
            if !a.updated {
                continue;
            }
            let names = [
                "loss",
                "grad_norm",
                "learning_rate",
                "optimizer_steps",
                "clip_ratio/region_mean",
                "sampling/importance_sampling_ratio/mean",
            ];
            for name in names {
                let (x, y) = (number(a, name), number(b, name));
                let close = (x - y).abs() <= 1e-6 + 2e-4 * x.abs();
                assert!(close, "{kind} {loss} {policy}, step {}: {name} is {x} here and {y} there", a.step);
            }
            let masked = |step: &StepEnd| step.metrics.iter().find(|(n, _)| n == "masked").map(|(_, n)| *n);
            assert_eq!(masked(a), masked(b), "{kind} {loss}, step {}", a.step);
            let masks = edits.iter().any(|(_, to)| to.contains("mask_truncated"));
            assert_eq!(masked(a).is_some_and(|masked| masked > 0.0), masks, "{:?}", masked(a));
            moved |= number(a, "grad_norm") > 1e-3;
            // Where there was something fresh to learn from, the trainer knows the sampler's weights.
            let apart = b.metrics.iter().find(|(n, _)| n == "sampling/sampling_logp_difference/mean");
            assert!(apart.is_none_or(|(_, apart)| *apart < 1e-5), "{apart:?}");
            compared += usize::from(apart.is_some());
        }
        let recomputed = edits.iter().any(|(_, to)| to.contains("recomputed"));
        assert!(moved && (compared > 0) != recomputed, "nothing was learned");
        let compute = |steps: &[StepEnd]| steps.last().unwrap().compute;
        assert_eq!(compute(&here.2), compute(&there.2), "{kind} {loss} {policy}: what was computed");
        for args in [&["report", "there", "--out", "page"][..], &["replay", "there"]] {
            let said = scratch.allot(args);
            assert!(said.ends_with("exit code 0"), "{said}");
        }
        assert!(server.asked("session_heartbeat") > 0, "no sign of life");
    }
}

#[test]
fn a_newer_server_is_spoken_to_in_protobuf_and_the_run_is_the_same() {
    for old in ["decoupled", "sampling", "recomputed"] {
        let scratch = Scratch::new();
        let (older, newer) = (Server::start(Mean::SequenceMean), Server::start(Mean::SequenceMean).newer());
        for (server, run) in [(&older, "older"), (&newer, "newer")] {
            let config = there(server, "skyrl-jax").replace("\"uniform\"", "\"pilot-commit\"");
            trained(&scratch, &config.replace("\"decoupled\"", &format!("\"{old}\"")), run);
        }
        assert_eq!(record(&scratch, "older"), record(&scratch, "newer"), "{old}");
        // What the older one was asked in two ways the newer one was asked in one, and once in vain.
        let (looked, learned) = (older.asked("forward"), older.asked("forward_backward"));
        assert!(learned > 0 && (looked > 0) == (old == "recomputed"), "{looked} and {learned}");
        let vain = newer.asked("forward") + newer.asked("forward_backward") - looked - learned;
        assert_eq!((vain, newer.asked("forward") < 2), (1, true), "{old}");
    }
    let (scratch, server) = (Scratch::new(), Server::start(Mean::SequenceMean).newer());
    scratch.write("run.toml", impatient(&server, "skyrl-jax"));
    server.play(vec![Trick { verb: "retrieve_future", at: 100, times: 1_000, what: What::Half }]);
    let said = told(&scratch, &server, &["run.toml", "--out", "run"]);
    let first = error(&said).lines().next().unwrap();
    assert!(first.ends_with("with a message that is cut off or of another kind"), "{said}");
}

#[test]
fn rollouts_asked_for_together_are_as_many_and_the_same_each_time() {
    let (scratch, server) = (Scratch::new(), Server::start(Mean::SequenceMean));
    let config = there(&server, "skyrl-jax").replace("lora_rank", "samples_per_request = 3\nlora_rank");
    trained(&scratch, &config, "a");
    let alone = server.asked("asample");
    trained(&scratch, &config, "b");
    assert_eq!(record(&scratch, "a"), record(&scratch, "b"));
    let (_, rollouts, _) = lines(&scratch.path().join("a"));
    let rollouts: usize = rollouts.iter().flat_map(|r| &r.sampled).map(|s| s.outcomes().unwrap().len()).sum();
    assert!(alone < rollouts, "{alone} requests for {rollouts} rollouts");
}

#[test]
fn no_more_connections_are_open_than_there_may_be() {
    let (scratch, free, tight) =
        (Scratch::new(), Server::start(Mean::SequenceMean), Server::start(Mean::SequenceMean));
    trained(&scratch, &there(&free, "skyrl-jax"), "free");
    trained(
        &scratch,
        &there(&tight, "skyrl-jax").replace("lora_rank", "connections = 2\nlora_rank"),
        "tight",
    );
    assert_eq!(record(&scratch, "free"), record(&scratch, "tight"));
    // Some are still being made when others come free, and one is for the sign of life; it asks for 36 at a time.
    assert!(tight.lines() <= 5 && free.lines() > 5, "{} and {}", tight.lines(), free.lines());

    // Else the files of this machine would run out, as if the server were away.
    scratch.write("run.toml", there(&free, "skyrl-jax"));
    let limited = "ulimit -n 200; exec \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", limited, "sh", env!("CARGO_BIN_EXE_allot"), "train", "run.toml", "--dry-run"]);
    let done = command.current_dir(scratch.path()).output().unwrap();
    insta::assert_snapshot!(String::from_utf8_lossy(&done.stderr), @r"
    error: `engine.connections` is 100, but this process may have only 200 files open at a time

    hint: lower it, or raise the limit first: ulimit -n 256
    ");
}

#[test]
fn a_dry_run_asks_the_server_and_makes_nothing() {
    let (scratch, server) = (Scratch::new(), Server::start(Mean::SequenceMean));
    scratch.write("run.toml", there(&server, "skyrl-jax"));
    insta::assert_snapshot!(told(&scratch, &server, &["run.toml", "--dry-run"]), @r"
    server                [server]
      model               allot/tiny-sums
      adapters            of rank 4
    model                 tiny-sums
      parameters          152128
    problems              31 to train on
      held out            9 in `held-out`, 2 rollouts each
    policy                uniform 0.1.0
                          rollouts = 0
    budget                4000 rollouts, at most 4 steps
    answers               up to 8 tokens
    exit code 0
    ");
    assert_eq!(server.asked("create_session"), 0);
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
}

// ---- failures that pass

#[test]
fn trouble_on_the_way_leaves_no_trace() {
    trouble_on_the_way(0);
}

/// While rollouts are sampled.
#[test]
fn nor_does_trouble_with_an_update_that_was_begun() {
    trouble_on_the_way(1);
}

/// A server and a config with a lag, on the kind of server that samples while it learns where there is one.
fn lagging(lag: u32) -> (Server, String) {
    let (mean, kind) = if lag == 0 { (Mean::SequenceMean, "skyrl-jax") } else { (Mean::Sum, "tinker") };
    let server = Server::start(mean);
    let config = there(&server, kind).replace("seed = 1", &format!("seed = 1\nlag = {lag}"));
    (server, config)
}

fn trouble_on_the_way(lag: u32) {
    let (scratch, (server, config)) = (Scratch::new(), lagging(lag));
    let quick = config.replace("request_seconds = 5", "request_seconds = 0.6");
    trained(&scratch, &config, "honest");
    let honest = record(&scratch, "honest");
    let (kept, removed) = server.states();
    // After steps 2 and 4; the states of the steps between were discarded.
    assert_eq!((kept, removed), (2, 2));

    let again = |words| What::Status(503, words);
    let tricks: Vec<(&str, &str, Vec<Trick>)> = vec![
        ("it is overloaded", &config, vec![Trick { verb: "asample", at: 5, times: 3, what: again("{}") }]),
        ("it limits its rate", &config, vec![trick("forward_backward", 2, What::Status(429, "slow down"))]),
        ("a proxy speaks for it", &config, vec![trick("create_model", 1, What::Status(502, "<html>"))]),
        ("still at it, by its status", &config, vec![trick("retrieve_future", 9, What::Status(408, "{}"))]),
        (
            "still at it, by its words",
            &config,
            vec![Trick { verb: "retrieve_future", at: 3, times: 5, what: What::Busy }],
        ),
        ("hangs up on a rollout", &config, vec![trick("asample", 7, What::HangUp)]),
        ("hangs up on a session", &config, vec![trick("create_session", 1, What::HangUp)]),
        ("hangs up on a model", &config, vec![trick("create_model", 1, What::HangUp)]),
        ("hangs up on a gradient", &config, vec![trick("forward_backward", 1, What::HangUp)]),
        ("hangs up on a step", &config, vec![trick("optim_step", 2, What::HangUp)]),
        ("hangs up on a save", &config, vec![trick("save_weights", 2, What::HangUp)]),
        ("hangs up on a sampler", &config, vec![trick("save_weights_for_sampler", 2, What::HangUp)]),
        ("a step's answer is cut off", &config, vec![trick("optim_step", 1, What::Cut)]),
        ("a promise's answer is cut off", &config, vec![trick("retrieve_future", 20, What::Cut)]),
        (
            "a step takes too long",
            &quick,
            vec![trick("optim_step", 2, What::Slow(Duration::from_millis(900)))],
        ),
        ("it dies before a rollout", &config, vec![trick("asample", 30, What::Die)]),
        ("it dies with promises open", &config, vec![trick("retrieve_future", 40, What::Die)]),
        ("it dies before a gradient", &config, vec![trick("forward_backward", 2, What::Die)]),
        ("it dies between gradient and step", &config, vec![trick("optim_step", 2, What::Die)]),
        ("it dies with a step made and untold", &config, vec![trick("optim_step", 3, What::DoAndDie)]),
        ("it dies with a state saved and untold", &config, vec![trick("save_weights", 3, What::DoAndDie)]),
        ("it dies before a sampler", &config, vec![trick("save_weights_for_sampler", 3, What::Die)]),
        (
            "it dies again and again",
            &config,
            vec![
                trick("optim_step", 1, What::Die),
                trick("optim_step", 2, What::DoAndDie),
                trick("load_weights", 1, What::DoAndDie),
                trick("forward_backward", 5, What::Die),
                trick("asample", 150, What::Die),
            ],
        ),
        (
            "hangs up where it loads",
            &config,
            vec![trick("optim_step", 2, What::Die), trick("load_weights", 1, What::HangUp)],
        ),
    ];
    for (i, (what, config, tricks)) in tricks.into_iter().enumerate() {
        let verbs: Vec<(&str, usize)> = tricks.iter().map(|t| (t.verb, t.at)).collect();
        server.play(tricks);
        scratch.write("run.toml", config);
        let run = format!("run-{i}");
        let said = scratch.allot(&["train", "run.toml", "--out", &run]);
        assert!(said.ends_with("exit code 0"), "{what}: {said}");
        assert_eq!(record(&scratch, &run), honest, "{what}");
        for (verb, at) in verbs {
            assert!(server.asked(verb) >= at, "{what}: `{verb}` was spoken {} times", server.asked(verb));
        }
    }
}

#[test]
fn a_run_that_is_killed_goes_on_and_is_the_same() {
    for lag in [0, 1] {
        killed(lag);
    }
}

fn killed(lag: u32) {
    let (scratch, (server, config)) = (Scratch::new(), lagging(lag));
    trained(&scratch, &config, "honest");
    let honest = record(&scratch, "honest");
    let mut stopped = 0;
    for i in 0..6 {
        let run = format!("run-{i}");
        // Slowed down, so that there is a middle.
        let slow = What::Slow(Duration::from_millis(20));
        server.play(vec![Trick { verb: "asample", at: 1, times: 10_000, what: slow }]);
        let mut child = scratch.started(&["train", "run.toml", "--out", &run]);
        let until = 20 + 45 * i;
        while server.asked("asample") < until && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(2));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        server.play(Vec::new());
        if i % 2 == 1 {
            server.die();
        }
        stopped += usize::from(!scratch.read(&format!("{run}/record.jsonl")).contains("\"end\""));
        let said = scratch.allot(&["train", "--resume", &run]);
        assert!(said.ends_with("exit code 0"), "{said}");
        assert_eq!(record(&scratch, &run), honest, "killed after {until} rollouts");
    }
    assert!(stopped >= 3, "{stopped} runs were stopped in their middle");
}

#[test]
fn a_run_that_is_asked_to_stop_asks_for_no_rollout_twice() {
    for lag in [0, 1] {
        let (scratch, (server, config)) = (Scratch::new(), lagging(lag));
        // Few at a time, so that a round has a middle. A machine that stands still for 5 s must not look like a server that does:
        // a request that is sent again counts twice.
        let config =
            config.replace("rows = 64", "rows = 4").replace("request_seconds = 5", "request_seconds = 60");
        assert!(config.contains("rows = 4\n") && config.contains("request_seconds = 60\n"));
        let slow = || {
            let what = What::Slow(Duration::from_millis(20));
            server.play(vec![Trick { verb: "asample", at: 1, times: 10_000, what }]);
        };
        stopped_again_and_again(&scratch, &config, slow, || server.asked("asample"));
    }
}

// ---- what can't be right

/// What is said of a server that does this; then the run goes on with one that is honest.
fn lied(verb: &'static str, at: usize, what: What) -> String {
    let (scratch, server) = (Scratch::new(), Server::start(Mean::SequenceMean));
    trained(&scratch, &impatient(&server, "skyrl-jax"), "honest");
    server.play(vec![Trick { verb, at, times: 1_000, what }]);
    let said = told(&scratch, &server, &["run.toml", "--out", "run"]);
    assert!(said.ends_with("exit code 2") || said.ends_with("exit code 1"), "{said}");
    server.play(Vec::new());
    if scratch.path().join("run/resolved.toml").exists() {
        let resumed = scratch.allot(&["train", "--resume", "run"]);
        assert!(resumed.ends_with("exit code 0"), "{resumed}");
        assert_eq!(record(&scratch, "run"), record(&scratch, "honest"), "{said}");
    }
    let said = error(&said).lines().take(3).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n");
    plain(&said)
}

/// Which rollout it was, and how long, hangs on what was learned and on what came first.
fn plain(said: &str) -> String {
    let counted = ["prompt", "of", "about", "and"];
    let mut words: Vec<String> = Vec::new();
    for word in said.split(' ') {
        let rest = word.trim_start_matches(|c: char| c.is_ascii_digit());
        let follows = words.last().is_some_and(|last| counted.contains(&last.as_str()));
        words.push(if follows && rest != word { format!("N{rest}") } else { word.to_owned() });
    }
    words.join(" ")
}

/// The same of what it promised, wherever it is of this kind.
fn edited(edit: fn(&mut Value)) -> String {
    lied("retrieve_future", 100, What::Edit(edit))
}

#[test]
fn what_can_t_be_right_ends_the_run_in_a_sentence_and_it_goes_on() {
    let told = [
        (
            "too few rollouts",
            edited(|v| {
                if v["sequences"].is_array() {
                    v["sequences"] = json!([]);
                }
            }),
        ),
        (
            "too many tokens",
            edited(|v| {
                if v["sequences"].is_array() {
                    v["sequences"][0]["tokens"] = json!(vec![1; 9]);
                }
            }),
        ),
        (
            "no tokens",
            edited(|v| {
                if v["sequences"].is_array() {
                    v["sequences"][0]["tokens"] = json!([]);
                }
            }),
        ),
        (
            "tokens of another model",
            edited(|v| {
                if v["sequences"].is_array() {
                    v["sequences"][0]["tokens"][0] = json!(99_999);
                }
            }),
        ),
        (
            "a log-probability that is none",
            edited(|v| {
                if v["sequences"].is_array() {
                    v["sequences"][0]["logprobs"][0] = Value::Null;
                }
            }),
        ),
        (
            "a log-probability above 0",
            edited(|v| {
                if v["sequences"].is_array() {
                    v["sequences"][0]["logprobs"][0] = json!(0.5);
                }
            }),
        ),
        (
            "log-probabilities missing",
            edited(|v| {
                if v["sequences"].is_array() {
                    v["sequences"][0]["logprobs"] = json!(vec![-0.5; 9]);
                }
            }),
        ),
        (
            "no log-probabilities at all",
            edited(|v| {
                if v["sequences"].is_array() {
                    v["sequences"][0]["logprobs"] = Value::Null;
                }
            }),
        ),
        (
            "a gradient of other data",
            edited(|v| {
                if v["loss_fn_outputs"].is_array() {
                    v["loss_fn_outputs"] = json!([]);
                }
            }),
        ),
        (
            "a model gone mad",
            edited(|v| {
                if v["loss_fn_outputs"].is_array() {
                    let n = v["loss_fn_outputs"][0]["logprobs"]["data"].as_array().unwrap().len();
                    v["loss_fn_outputs"][0]["logprobs"]["data"][n - 1] = Value::Null;
                }
            }),
        ),
        (
            "a step gone mad",
            edited(|v| {
                if v["metrics"]["skyrl.ai/grad_norm"].is_number() {
                    v["metrics"]["skyrl.ai/grad_norm"] = Value::Null;
                }
            }),
        ),
        (
            "a reply to another request",
            edited(|v| {
                *v = json!({ "type": "try_again", "request_id": "1", "queue_state": "active" });
            }),
        ),
        (
            "numbers as Python writes them",
            lied("retrieve_future", 100, What::Raw("{\"sequences\": [{\"logprobs\": [NaN]}]}")),
        ),
        ("a promise given twice", lied("asample", 80, What::Before)),
        ("no promise", lied("asample", 80, What::Raw("{}"))),
        ("no JSON", lied("optim_step", 2, What::Raw("welcome"))),
        (
            "a refusal",
            lied("forward_backward", 2, What::Status(422, "{\"detail\": [{\"msg\": \"Field required\"}]}")),
        ),
        (
            "a number used before",
            lied(
                "optim_step",
                2,
                What::Status(409, "{\"detail\": \"Training request sequence number was reused\"}"),
            ),
        ),
        ("never there again", lied("asample", 80, What::Status(503, "{\"detail\": \"no capacity\"}"))),
        ("never done", lied("retrieve_future", 100, What::Busy)),
        ("forgets each model", lied("optim_step", 2, What::Die)),
        (
            "another protocol",
            lied(
                "create_session",
                1,
                What::Raw("{\"session_id\": \"s\", \"error_message\": \"this SDK is too old\"}"),
            ),
        ),
        ("another protocol still", lied("create_session", 1, What::Status(404, "{}"))),
        (
            "no room",
            lied(
                "create_model",
                1,
                What::Status(400, "{\"detail\": \"Maximum number of LoRA adapters (3) reached\"}"),
            ),
        ),
    ];
    let all: Vec<String> = told.into_iter().map(|(what, said)| format!("{what}:\n{said}")).collect();
    insta::assert_snapshot!(all.join("\n\n"));
}

#[test]
fn a_state_that_the_server_no_longer_has_is_named() {
    let (scratch, server) = (Scratch::new(), Server::start(Mean::SequenceMean));
    scratch.write("run.toml", there(&server, "skyrl-jax"));
    server.play(vec![Trick { verb: "optim_step", at: 4, times: 9, what: What::Status(400, "{}") }]);
    let said = told(&scratch, &server, &["run.toml", "--out", "run"]);
    assert!(error(&said).contains("refused `optim_step` (400)"), "{said}");
    server.die();
    server.clear();
    let said = told(&scratch, &server, &["--resume", "run"]);
    let said = error(&said);
    let path = &said[said.find("tinker://").unwrap()..];
    let path = path[..path.find('`').unwrap()].to_owned();
    let kept: Value = serde_json::from_str(&scratch.read("run/checkpoints/step-000002/server.json")).unwrap();
    assert_eq!(kept["path"], path.as_str());
    insta::assert_snapshot!(said.replace(&path, "[path]"), @r"
    error: the engine failed in step 2: the server at [server] no longer has the state `[path]`: Checkpoint not found: [path]

    hint: check its folder of checkpoints, which may have been moved or cleared, or use an earlier checkpoint
    note: everything that was finished is in run/record.jsonl
    note: the last good checkpoint is run/checkpoints/step-000002; to resume from it: allot train --resume run
    exit code 2
    ");
}

// ---- what a user can get wrong

#[test]
fn a_key_is_taken_from_the_environment_and_shown_to_nobody() {
    let (scratch, server) = (Scratch::new(), Server::start(Mean::SequenceMean).locked());
    let config =
        there(&server, "skyrl-jax").replace("lora_rank", "api_key_env = \"ALLOT_TEST_KEY\"\nlora_rank");
    scratch.write("run.toml", &config);
    scratch.write("bare.toml", there(&server, "skyrl-jax"));
    let with = |key: &str, args: &[&str]| {
        let done = scratch.command(&[&["train"], args].concat()).env("ALLOT_TEST_KEY", key).output().unwrap();
        let all = [&done.stdout[..], &done.stderr[..]].concat();
        String::from_utf8(all).unwrap().replace(&server.url, "[server]")
    };
    let wrong = "tml-anothersecret";
    let said = [
        told(&scratch, &server, &["bare.toml"]),
        told(&scratch, &server, &["run.toml"]),
        with(wrong, &["run.toml"]),
        with("two\nlines", &["run.toml"]),
    ];
    insta::assert_snapshot!(said.join("\n\n"));
    assert!(!said.join("").contains(wrong));
    assert!(!scratch.path().join("runs").exists());
    let said = with(KEY, &["run.toml", "--out", "run"]);
    assert!(!said.contains(KEY) && !said.contains("error"), "{said}");
    let found = Command::new("grep").args(["-r", KEY]).arg(scratch.path()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "", "the key is in a file");
}

#[test]
fn what_a_user_gets_wrong_is_told_before_anything_is_made() {
    let (scratch, server) = (Scratch::new(), Server::start(Mean::SequenceMean));
    let config = impatient(&server, "skyrl-jax");
    let one = |from: &str, to: &str| {
        let config = config.replacen(from, to, 1);
        scratch.write("run.toml", &config);
        let said = told(&scratch, &server, &["run.toml"]);
        assert!(said.ends_with("exit code 2"), "{from}: {said}");
        assert!(!scratch.path().join("runs").exists(), "{said}");
        format!("{to}\n{said}")
    };
    let near = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let nobody = one(&server.url, &format!("http://127.0.0.1:{near}")).replace(&near.to_string(), "[port]");
    let all = [
        nobody.lines().skip(1).collect::<Vec<_>>().join("\n"),
        one(&server.url, "not an address"),
        one(&server.url, "https://me:pass@example.org"),
        one(MODEL, "Qwen/Qwen3-8B"),
        one("skyrl-jax", "vllm"),
        one("use = \"tinker\"", "use = \"thinker\""),
        one("lora_rank = 4", "lora_rank = 0"),
        one("lora_rank = 4", "connections = 0\nlora_rank = 4"),
        one("lora_rank = 4", "lora_rnak = 4"),
        one("rows = 64", "rows = 64\nlora = { rank = 4, alpha = 32 }"),
        one("rows = 64", "rows = 64\ndevice = \"cuda\""),
        one("temperature = 1.0", "temperature = 0.7"),
        one("\"grpo\"", "\"gspo\""),
        one("\"grpo\", dual_clip = 0.0", "\"grpo\", kl = 0.1"),
        one("\"grpo\", dual_clip = 0.0", "\"grpo\", entropy = 0.01"),
        one("\"grpo\", dual_clip = 0.0", "\"dapo\""),
        one("max_norm = 0.0", "max_norm = 1.0"),
    ];
    insta::assert_snapshot!(all.join("\n\n"));
    server.play(vec![Trick { verb: "healthz", at: 1, times: 9, what: What::Status(404, "nothing here") }]);
    insta::assert_snapshot!(one("rows = 64", "rows = 64"), @r"
    rows = 64
    error: the server at [server] does not speak the Tinker protocol, `/api/v1`

    hint: set `engine.url` to the part before `/api/v1`; check what answers at [server]/api/v1/healthz
    exit code 2
    ");
    server.play(vec![Trick { verb: "healthz", at: 1, times: 9, what: What::Raw("<html>welcome</html>") }]);
    assert!(one("rows = 64", "rows = 64").contains("does not speak the Tinker protocol"));
}
