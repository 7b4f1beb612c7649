//! `allot train` with its rollouts on a server: our own on the loopback, which speaks as SGLang or as vLLM does and
//! samples by the weights that are handed over. A run through it is the run on this machine; what goes wrong on the
//! way leaves no trace; what can't be right ends the run in a sentence, and it goes on from there.

#![cfg(unix)]
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "rollouts/episodes.rs"]
mod episodes;
#[path = "rollouts/server.rs"]
mod server;

mod loopback;
mod scratch;
mod skip;

use std::process::Command;
use std::time::Duration;

use allot_record::StepEnd;
use serde_json::{Value, json};

use loopback::runs::{error, lines, record, stopped, stopped_again_and_again, trained};
use loopback::trick;
use scratch::Scratch;
use server::{KEY, Kind, Server, Start, Trick, What};

/// A run of half a second.
const CONFIG: &str = include_str!("cases/remote/short.toml");

const BOTH: [Kind; 2] = [Kind::Sglang, Kind::Vllm];

/// Tests both kinds side by side: most of the time is spent on waiting.
fn side_by_side(test: impl Fn(Kind) + Sync) {
    let test = &test;
    std::thread::scope(|scope| {
        for kind in BOTH {
            scope.spawn(move || test(kind));
        }
    });
}

/// The config, with its rollouts on a server.
fn there(server: &Server) -> String {
    let section = format!(
        "[rollout_server]\nuse = \"{}\"\nurl = \"{}\"\nweights = \"{}\"\nretry_seconds = 0.005\nrequest_seconds = 60\n\
         patience_seconds = 30\n\n[model]",
        server.kind.name(),
        server.url,
        server.weights.path().display(),
    );
    CONFIG.replace("[model]", &section)
}

/// The same, soon at the end of its patience.
fn impatient(server: &Server) -> String {
    there(server).replace("patience_seconds = 30", "patience_seconds = 1")
}

/// What a command says with paths and the server's port left out, and its exit code.
fn told(scratch: &Scratch, server: &Server, args: &[&str]) -> String {
    let said = scratch.allot(&[&["train"], args].concat());
    said.replace(&scratch.path().display().to_string(), "[scratch]")
        .replace(&server.weights.path().display().to_string(), "[weights]")
        .replace(&server.url, "[server]")
}

/// A run's number of a step, by name.
fn number(step: &StepEnd, name: &str) -> Option<f64> {
    Some(step.metrics.iter().find(|(n, _)| n == name)?.1)
}

const APART: &str = "sampling/sampling_logp_difference/mean";

// ---- the same run

/// Held-out problems are answered in a second way, too.
const ALSO: (&str, &str) = (
    "[checkpoint]",
    "[[evaluation.also]]\nname = \"sure\"\nrollouts = 1\nsampling = { temperature = 0.0 }\n\n[checkpoint]",
);

/// What is changed of the config.
type Edits = &'static [(&'static str, &'static str)];

/// A config with these changes.
fn edited(config: &str, edits: &[(&str, &str)]) -> String {
    edits.iter().fold(config.to_owned(), |config, (from, to)| {
        assert!(config.contains(from), "{from}");
        config.replace(from, to)
    })
}

#[test]
fn a_run_with_its_rollouts_on_a_server_is_the_run_on_this_machine() {
    let cases: [(Kind, Edits); 9] = [
        (Kind::Sglang, &[]),
        (Kind::Vllm, &[]),
        (Kind::Sglang, &[("\"uniform\"", "\"pilot-commit\""), ("mini_batch = 0", "mini_batch = 12")]),
        (Kind::Vllm, &[("\"uniform\"", "\"pods\""), ("\"grpo\", dual_clip = 0.0", "\"dapo\"")]),
        (Kind::Sglang, &[("rows = 64", "rows = 64\nstop = [\"12\", \"7\"]"), ALSO]),
        (
            Kind::Vllm,
            &[("rows = 64", "rows = 64\nstop = [\"12\", \"7\"]"), ("max_tokens = 8", "max_tokens = 5")],
        ),
        (Kind::Sglang, &[("\"decoupled\"", "\"recomputed\""), ("epochs = 1", "epochs = 2")]),
        (Kind::Vllm, &[("mini_batch = 0", "mini_batch = 12"), ("\"decoupled\"", "\"sampling\"")]),
        (
            Kind::Vllm,
            &[
                ("\"decoupled\"", "\"recomputed\""),
                ("rows = 64", "rows = 3\nlora = { rank = 4, alpha = 32 }"),
            ],
        ),
    ];
    for (kind, edits) in cases {
        let (scratch, server) = (Scratch::new(), Server::start(kind));
        trained(&scratch, &edited(CONFIG, edits), "here");
        trained(&scratch, &edited(&there(&server), edits), "there");
        let (here, there) = (lines(&scratch.path().join("here")), lines(&scratch.path().join("there")));
        assert_eq!(here.0, there.0, "{kind:?} {edits:?}: plans");
        assert_eq!(here.1, there.1, "{kind:?} {edits:?}: rollouts");
        assert_eq!(here.2.len(), 4);
        let (mut moved, mut compared) = (false, 0);
        for (a, b) in here.2.iter().zip(&there.2) {
            assert_eq!(
                (a.spent, a.trained, a.effective, a.accuracy, &a.scores, a.updated),
                (b.spent, b.trained, b.effective, b.accuracy, &b.scores, b.updated)
            );
            for (name, x) in &a.metrics {
                let y = number(b, name).unwrap_or_else(|| panic!("no {name}"));
                let close = (x - y).abs() <= 1e-6 + 1e-5 * x.abs();
                assert!(close, "{kind:?} {edits:?}, step {}: {name} is {x} here and {y} there", a.step);
            }
            moved |= number(a, "grad_norm").is_some_and(|norm| norm > 1e-3);
            if let Some(apart) = number(b, APART) {
                assert!(apart < 1e-5, "{apart}");
                compared += 1;
            }
        }
        assert!(moved && compared > 0, "{kind:?} {edits:?}: nothing was learned");
        let (a, b) = (here.2[3].compute, there.2[3].compute);
        assert_eq!((a.prompt_tokens, a.trained_tokens), (b.prompt_tokens, b.trained_tokens));
        assert_eq!((a.flops.prefill, a.flops.decode), (b.flops.prefill, b.flops.decode));
        // Old log-probabilities are computed there in any case.
        let recomputed = edits.iter().any(|(_, to)| to.contains("recomputed"));
        assert_eq!(a.flops.training == b.flops.training, recomputed, "{a:?} {b:?}");
        // At the start and after each update.
        assert_eq!(server.loads(), 1 + there.2.iter().filter(|step| step.updated).count());
        assert_eq!(server.left(), Vec::<String>::new());
        let head: Value = serde_json::from_str(record(&scratch, "there").lines().next().unwrap()).unwrap();
        assert_eq!(head["engine"], format!("native+{}", kind.name()));
        assert_eq!(head["training"]["rollouts"]["kind"], kind.name());
        for args in [&["report", "there", "--out", "page"][..], &["replay", "there"]] {
            let said = scratch.allot(args);
            assert!(said.ends_with("exit code 0"), "{said}");
        }
        // With what stands before it: five digits alone may well be those of a number.
        let port = server.url.rfind(':').map(|at| &server.url[at..]).unwrap();
        let told = record(&scratch, "there");
        assert!(!told.contains(port) && !told.contains("127.0.0.1"), "the server's address is in the record");
    }
}

/// The config, with its rollouts on several servers, which find the weights in the first one's folder.
fn shared(servers: &[&Server], patience: u32) -> String {
    let urls: Vec<String> = servers.iter().map(|server| format!("{:?}", server.url)).collect();
    let one = there(servers[0]).replace("patience_seconds = 30", &format!("patience_seconds = {patience}"));
    one.replace(&format!("{:?}", servers[0].url), &format!("[{}]", urls.join(", ")))
}

#[test]
fn several_servers_share_the_rollouts_and_the_record_is_that_of_one() {
    for kind in BOTH {
        let (scratch, servers) = (Scratch::new(), [(); 3].map(|()| Server::start(kind)));
        let all: Vec<&Server> = servers.iter().collect();
        trained(&scratch, &there(&servers[0]), "one");
        for server in &all {
            server.play(Vec::new());
        }
        trained(&scratch, &shared(&all, 30), "shared");
        assert_eq!(record(&scratch, "one"), record(&scratch, "shared"), "{kind:?}");
        let asked: Vec<usize> = all.iter().map(|server| server.asked(kind.verbs().0)).collect();
        assert!(asked.iter().all(|n| *n > 10), "{kind:?}: {asked:?}");
        // A server that is slow gets less to do.
        let slow = || Trick {
            verb: kind.verbs().0,
            at: 1,
            times: 10_000,
            what: What::Slow(Duration::from_millis(150)),
        };
        servers[1].play(vec![slow()]);
        for server in [&servers[0], &servers[2]] {
            server.play(Vec::new());
        }
        trained(&scratch, &shared(&all, 30).replace("rows = 64", "rows = 2"), "slow");
        let asked: Vec<usize> = all.iter().map(|server| server.asked(kind.verbs().0)).collect();
        assert!(asked[1] < asked[0] && asked[1] < asked[2], "{kind:?}: {asked:?}");
        let steps = |run| lines(&scratch.path().join(run)).2;
        assert_eq!(steps("one"), steps("slow"), "{kind:?}");
    }
}

#[test]
fn what_a_server_was_asked_that_dies_the_others_do() {
    side_by_side(|kind| {
        let (scratch, servers) = (Scratch::new(), [(); 2].map(|()| Server::start(kind)));
        let all: Vec<&Server> = servers.iter().collect();
        trained(&scratch, &there(&servers[0]), "one");
        let verb = kind.verbs().0;
        // It hangs up for good; it is started anew again and again; and both are away for a while, in turns.
        let some = |at, times, what| Trick { verb, at, times, what };
        let away = |from, times| some(from, times, What::Status(503, "busy"));
        for (i, tricks) in [
            [vec![some(20, 100_000, What::HangUp)], vec![]],
            [vec![some(20, 1, What::DoAndDie), some(90, 1, What::DoAndDie)], vec![]],
            [vec![away(10, 30)], vec![away(60, 30)]],
        ]
        .into_iter()
        .enumerate()
        {
            for (server, tricks) in servers.iter().zip(tricks) {
                server.die();
                server.play(tricks);
            }
            let run = format!("run-{i}");
            trained(&scratch, &shared(&all, 1), &run);
            assert_eq!(record(&scratch, "one"), record(&scratch, &run), "{kind:?}, {i}");
        }
        // Where all are away for longer than is waited, the run stops.
        let gone = || vec![some(20, 100_000, What::HangUp)];
        for server in &all {
            server.play(gone());
        }
        scratch.write("run.toml", shared(&all, 1));
        let said = told(&scratch, &servers[0], &["run.toml", "--out", "away"]);
        assert!(said.contains("did not complete `") && said.ends_with("exit code 2"), "{said}");
        for server in &all {
            server.play(Vec::new());
        }
        let said = scratch.allot(&["train", "--resume", "away"]);
        assert!(said.ends_with("exit code 0"), "{said}");
        assert_eq!(record(&scratch, "one"), record(&scratch, "away"), "{kind:?}");
    });
}

#[test]
fn a_run_with_a_lag_is_the_same_on_servers_and_stops_and_goes_on() {
    let lag = |config: String| config.replace("seed = 1", "seed = 1\nlag = 1");
    for kind in BOTH {
        let (scratch, server) = (Scratch::new(), Server::start(kind));
        assert!(there(&server).contains("seed = 1\n"));
        trained(&scratch, &lag(CONFIG.to_owned()), "here");
        trained(&scratch, &lag(there(&server)), "there");
        let (here, there_) = (lines(&scratch.path().join("here")), lines(&scratch.path().join("there")));
        assert_eq!((here.0, here.1), (there_.0, there_.1), "{kind:?}");
        let verb = kind.verbs().0;
        let slow = || {
            let what = What::Slow(Duration::from_millis(20));
            server.play(vec![Trick { verb, at: 1, times: 10_000, what }]);
        };
        // Few at a time, so that a round has a middle.
        let few = lag(there(&server)).replace("rows = 64", "rows = 4");
        // vLLM is asked for nothing once more at each start.
        if kind == Kind::Sglang {
            stopped_again_and_again(&scratch, &few, slow, || server.asked(verb));
        }
    }
}

#[test]
fn a_server_samples_each_request_as_it_says() {
    let needs = "(i32.store8 offset=48 (local.get $d) (i32.const 4))";
    let guest = scratch::guest_0_2_but("varies", needs, &[("TOKENS", 5)]);
    for kind in BOTH {
        // Without this vLLM tells log-probabilities of temperature 1.
        let start = Start { logprobs_mode: "processed_logprobs", ..Start::default() };
        let (scratch, server) = (Scratch::new(), Server::started(kind, start));
        scratch.write("guest.wasm", &guest);
        let own = |config: String| {
            // At a high temperature some answers of a group are right, and some are not.
            let config = config.replace("temperature = 1.0", "temperature = 2.0");
            let config = config.replace("\"uniform\"", "\"./guest.wasm\"");
            config + "[requests]\ntemperature = [0.5, 2.0]\nleast_tokens = 2\n"
        };
        trained(&scratch, &own(CONFIG.to_owned()), "here");
        trained(&scratch, &own(there(&server)), "there");
        let (here, there) = (lines(&scratch.path().join("here")), lines(&scratch.path().join("there")));
        assert_eq!(here.0, there.0, "{kind:?}: plans");
        assert_eq!(here.1, there.1, "{kind:?}: rollouts");
        let apart: Vec<f64> = there.2.iter().filter_map(|step| number(step, APART)).collect();
        assert!(!apart.is_empty() && apart.iter().all(|a| *a < 1e-5), "{kind:?}: {apart:?}");
    }
    let server = Server::start(Kind::Vllm);
    let scratch = Scratch::new();
    let requests = "[requests]\ntemperature = [0.5, 1.0]\n";
    scratch.write("run.toml", there(&server) + requests);
    let said = told(&scratch, &server, &["run.toml", "--dry-run"]);
    assert!(said.contains("returns `raw_logprobs`"), "{said}");
    scratch.write("run.toml", there(&server).replace("temperature = 1.0", "top_k = 9") + requests);
    let said = told(&scratch, &server, &["run.toml", "--dry-run"]);
    assert!(
        said.contains("`requests.temperature` has 0.5; vLLM reports log-probabilities from before"),
        "{said}"
    );
}

#[test]
fn what_another_engine_rounds_away_is_an_importance_weight() {
    for kind in BOTH {
        let (scratch, server) = (Scratch::new(), Server::start(kind));
        // The server samples by rounded weights, and the trainer has the others.
        trained(&scratch, &there(&server).replace("retry", "dtype = \"bf16\"\nretry"), "run");
        let (_, _, steps) = lines(&scratch.path().join("run"));
        let apart: Vec<f64> = steps.iter().filter_map(|step| number(step, APART)).collect();
        // What ships is rounded so already.
        assert!(apart.iter().any(|a| *a > 1e-6) && apart.iter().all(|a| *a < 0.1), "{apart:?}");
        let learned = steps.iter().filter(|step| number(step, APART).is_some());
        let weight = |step| number(step, "sampling/importance_sampling_ratio/mean");
        let weights: Vec<f64> = learned.filter_map(weight).collect();
        assert!(weights.iter().any(|w| *w != 1.0), "{weights:?}");
        assert!(weights.iter().all(|w| (*w - 1.0).abs() < 0.1), "{weights:?}");
        // Ratios are measured from the trainer's own: none leaves its bounds in a first step.
        assert!(
            steps.iter().all(|s| number(s, "clip_ratio/region_mean").is_none_or(|clipped| clipped == 0.0))
        );
    }
}

#[test]
fn log_probabilities_of_another_distribution_end_the_run() {
    let start = Start { tells: Some(2.0), ..Start::default() };
    let (scratch, server) = (Scratch::new(), Server::started(Kind::Sglang, start));
    scratch.write("run.toml", there(&server));
    let said = told(&scratch, &server, &["run.toml", "--out", "run"]);
    let said = error(&said);
    let (from, to) = (said.find("lie ").unwrap() + 4, said.find(" nats").unwrap());
    assert!(said[from..to].parse::<f64>().unwrap() > 0.5);
    insta::assert_snapshot!(format!("{}[so far]{}", &said[..from], &said[to..]));
    // Who allows for it goes on.
    trained(&scratch, &there(&server).replace("retry", "tolerance = 50\nretry"), "loose");
}

#[test]
fn a_dry_run_asks_the_server_and_loads_nothing() {
    for kind in BOTH {
        let (scratch, server) = (Scratch::new(), Server::start(kind));
        scratch.write("run.toml", there(&server));
        let said = told(&scratch, &server, &["run.toml", "--dry-run"]);
        let said = said[..said.find("memory").unwrap()].trim_end();
        insta::assert_snapshot!(format!("dry_{}", kind.name()), said);
        let (sample, load) = kind.verbs();
        assert_eq!((server.asked(load), server.loads(), server.left()), (0, 0, Vec::new()));
        assert_eq!(server.asked(sample), usize::from(kind == Kind::Vllm), "one that can't be");
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 1);
    }
    let unseeded = Start { seeded: false, ..Start::default() };
    let (scratch, server) = (Scratch::new(), Server::started(Kind::Sglang, unseeded));
    scratch.write("run.toml", there(&server));
    let said = told(&scratch, &server, &["run.toml", "--dry-run"]);
    assert!(said.contains("note: the server ignores the seeds of rollouts"), "{said}");
}

// ---- failures that pass

#[test]
fn trouble_on_the_way_leaves_no_trace() {
    side_by_side(|kind| {
        let (scratch, server) = (Scratch::new(), Server::start(kind));
        let config = there(&server);
        let quick = config.replace("request_seconds = 60", "request_seconds = 2");
        trained(&scratch, &config, "honest");
        let honest = record(&scratch, "honest");
        let (sample, load) = kind.verbs();
        let (pause, name, go_on) = match kind {
            Kind::Sglang => ("pause_generation", load, "continue_generation"),
            Kind::Vllm => ("pause", "update_weight_version", "resume"),
        };
        let slow = What::Slow(Duration::from_millis(2500));
        let broken_off = |v: &mut Value| match v.get_mut("choices") {
            Some(choices) => choices[0]["finish_reason"] = json!("abort"),
            None => v["meta_info"]["finish_reason"] = json!({ "type": "abort", "message": "Aborted" }),
        };
        let tricks: Vec<(&str, &str, Vec<Trick>)> = vec![
            (
                "overloaded",
                &config,
                vec![Trick { verb: sample, at: 5, times: 3, what: What::Status(503, "{}") }],
            ),
            ("limits its rate", &config, vec![trick(sample, 2, What::Status(429, "slow down"))]),
            ("a proxy speaks for it", &config, vec![trick(load, 1, What::Status(502, "<html>"))]),
            ("hangs up on a rollout", &config, vec![trick(sample, 7, What::HangUp)]),
            ("an answer is cut off", &config, vec![trick(sample, 70, What::Cut)]),
            ("a rollout takes too long", &quick, vec![trick(sample, 70, slow)]),
            (
                "breaks rollouts off",
                &config,
                vec![Trick { verb: sample, at: 9, times: 4, what: What::Edit(broken_off) }],
            ),
            ("hangs up on a pause", &config, vec![trick(pause, 2, What::HangUp)]),
            ("hangs up on a load", &config, vec![trick(load, 2, What::HangUp)]),
            ("hangs up behind a load", &config, vec![trick(go_on, 2, What::HangUp)]),
            ("is not ready to load", &config, vec![trick(load, 2, What::Status(503, "{}"))]),
            ("dies before a rollout", &config, vec![trick(sample, 70, What::Die)]),
            ("dies behind a rollout", &config, vec![trick(sample, 70, What::DoAndDie)]),
            ("dies behind a load", &config, vec![trick(load, 3, What::DoAndDie)]),
            ("dies before a load", &config, vec![trick(load, 3, What::Die)]),
            ("dies before it is named", &config, vec![trick(name, 2, What::Die)]),
            ("dies once it is named", &config, vec![trick(name, 3, What::DoAndDie)]),
            ("dies before it goes on", &config, vec![trick(go_on, 3, What::Die)]),
            (
                "dies again and again",
                &config,
                (0..8).map(|i| trick(sample, 20 + 30 * i, What::Die)).collect(),
            ),
        ];
        for (i, (what, config, tricks)) in tricks.into_iter().enumerate() {
            let verbs: Vec<(&str, usize)> = tricks.iter().map(|t| (t.verb, t.at)).collect();
            server.die();
            server.play(tricks);
            scratch.write("run.toml", config);
            let run = format!("run-{i}");
            let said = scratch.allot(&["train", "run.toml", "--out", &run]);
            assert!(said.ends_with("exit code 0"), "{kind:?}, {what}: {said}");
            assert_eq!(record(&scratch, &run), honest, "{kind:?}, {what}");
            for (verb, at) in verbs {
                let asked = server.asked(verb);
                assert!(asked >= at, "{kind:?}, {what}: `{verb}` was spoken {asked} times");
            }
            assert_eq!(server.left(), Vec::<String>::new(), "{kind:?}, {what}");
        }
    });
}

#[test]
fn a_run_that_is_killed_goes_on_and_is_the_same() {
    let (scratch, server) = (Scratch::new(), Server::start(Kind::Sglang));
    scratch.write("run.toml", there(&server));
    trained(&scratch, &there(&server), "honest");
    let honest = record(&scratch, "honest");
    let (sample, _) = server.kind.verbs();
    let mut stopped = 0;
    for i in 0..6 {
        let run = format!("run-{i}");
        // Slowed down, so that there is a middle.
        let slow = What::Slow(Duration::from_millis(20));
        server.play(vec![Trick { verb: sample, at: 1, times: 10_000, what: slow }]);
        let mut child = scratch.started(&["train", "run.toml", "--out", &run]);
        let until = 20 + 45 * i;
        while server.asked(sample) < until && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(2));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        server.play(Vec::new());
        if i % 2 == 1 {
            server.die();
        }
        let over = std::fs::read_to_string(scratch.path().join(&run).join("record.jsonl"));
        stopped += usize::from(!over.unwrap_or_default().contains("\"end\""));
        let said = scratch.allot(&["train", "--resume", &run]);
        assert!(said.ends_with("exit code 0"), "{said}");
        assert_eq!(record(&scratch, &run), honest, "killed after {until} rollouts");
        assert_eq!(server.left(), Vec::<String>::new());
    }
    assert!(stopped >= 3, "{stopped} runs were stopped in their middle");
}

#[test]
fn a_run_that_is_asked_to_stop_asks_for_no_rollout_twice() {
    let (scratch, server) = (Scratch::new(), Server::start(Kind::Sglang));
    // Few at a time, so that a round has a middle.
    let config = there(&server).replace("rows = 64", "rows = 4");
    assert!(config.contains("rows = 4\n"));
    let (sample, _) = server.kind.verbs();
    let slow = || {
        let what = What::Slow(Duration::from_millis(20));
        server.play(vec![Trick { verb: sample, at: 1, times: 10_000, what }]);
    };
    stopped_again_and_again(&scratch, &config, slow, || server.asked(sample));
}

// ---- what can't be right

/// What is said of a server that does this; then the run goes on with one that is honest, and comes to the honest record.
fn lied(kind: Kind, honest: &str, verb: &'static str, at: usize, what: What) -> String {
    let (scratch, server) = (Scratch::new(), Server::start(kind));
    scratch.write("run.toml", impatient(&server));
    server.play(vec![Trick { verb, at, times: 100_000, what }]);
    let said = told(&scratch, &server, &["run.toml", "--out", "run"]);
    assert!(said.ends_with("exit code 2"), "{said}");
    server.play(Vec::new());
    server.die();
    let resumed = scratch.allot(&["train", "--resume", "run"]);
    assert!(resumed.ends_with("exit code 0"), "{resumed}");
    assert_eq!(record(&scratch, "run"), honest, "{said}");
    let said = error(&said).lines().take(3).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n");
    plain(&said)
}

/// Which rollout it was, and how long, hangs on what was learned and on what came first; and labels on weights.
fn plain(said: &str) -> String {
    let counted = ["prompt", "of", "after", "and", "token", "read", "its"];
    let mut words: Vec<String> = Vec::new();
    for word in said.split(' ') {
        let rest = word.trim_start_matches(|c: char| c.is_ascii_digit());
        let follows = words.last().is_some_and(|last| counted.contains(&last.as_str()));
        let label = word.find("allot-").filter(|_| word.matches('-').count() >= 3);
        words.push(match label {
            Some(at) => {
                let end = word[at..].find(['`', ':']).map_or(word.len(), |end| at + end);
                format!("{}[label]{}", &word[..at], &word[end..])
            }
            None if follows && rest != word => format!("N{rest}"),
            None => word.to_owned(),
        });
    }
    words.join(" ")
}

/// Lies about a rollout: of SGLang, and of vLLM, and what they are.
type Lie = (&'static str, fn(&mut Value), fn(&mut Value));

const LIES: [Lie; 15] = [
    (
        "too many tokens",
        |v| v["output_ids"] = json!(vec![1; 9]),
        |v| v["choices"][0]["token_ids"] = json!(vec![1; 9]),
    ),
    ("no tokens", |v| v["output_ids"] = json!([]), |v| v["choices"][0]["token_ids"] = json!([])),
    (
        "tokens of another model",
        |v| {
            v["output_ids"][0] = json!(99_999);
            v["meta_info"]["output_token_logprobs"][0][1] = json!(99_999);
        },
        |v| {
            v["choices"][0]["token_ids"][0] = json!(99_999);
            v["choices"][0]["logprobs"]["content"][0]["token_id"] = json!(99_999);
        },
    ),
    ("a token below 0", |v| v["output_ids"][0] = json!(-1), |v| v["choices"][0]["token_ids"][0] = json!(-1)),
    (
        "a log-probability that is none",
        |v| v["meta_info"]["output_token_logprobs"][0][0] = Value::Null,
        |v| v["choices"][0]["logprobs"]["content"][0]["logprob"] = json!(-9999.0),
    ),
    (
        "a log-probability above 0",
        |v| v["meta_info"]["output_token_logprobs"][0][0] = json!(0.5),
        |v| v["choices"][0]["logprobs"]["content"][0]["logprob"] = json!(0.5),
    ),
    (
        "log-probabilities of other tokens",
        |v| v["meta_info"]["output_token_logprobs"][0][1] = json!(0),
        |v| v["choices"][0]["logprobs"]["content"][0]["token_id"] = json!(0),
    ),
    (
        "too few log-probabilities",
        |v| v["meta_info"]["output_token_logprobs"] = json!([]),
        |v| v["choices"][0]["logprobs"]["content"] = json!([]),
    ),
    (
        "no log-probabilities",
        |v| v["meta_info"]["output_token_logprobs"] = Value::Null,
        |v| v["choices"][0]["logprobs"] = Value::Null,
    ),
    (
        "another number of rollouts",
        |v| *v = json!([v.clone(), v.clone()]),
        |v| v["choices"] = json!([v["choices"][0], v["choices"][0]]),
    ),
    (
        "a prompt that was cut",
        |v| v["meta_info"]["prompt_tokens"] = json!(1),
        |v| v["usage"]["prompt_tokens"] = json!(1),
    ),
    (
        "cut before its limit",
        |v| {
            v["output_ids"] = json!([1]);
            v["meta_info"]["output_token_logprobs"] = json!([[-0.5, 1, null]]);
            v["meta_info"]["finish_reason"] = json!({ "type": "length", "length": 1 });
        },
        |v| {
            v["choices"][0]["token_ids"] = json!([1]);
            v["choices"][0]["logprobs"]["content"] = json!([{ "token_id": 1, "logprob": -0.5 }]);
            v["choices"][0]["finish_reason"] = json!("length");
        },
    ),
    (
        "an end that is none",
        |v| {
            v["output_ids"] = json!([9]);
            v["meta_info"]["output_token_logprobs"] = json!([[-0.5, 9, null]]);
            v["meta_info"]["finish_reason"] = json!({ "type": "stop", "matched": 9 });
        },
        |v| {
            v["choices"][0]["token_ids"] = json!([9]);
            v["choices"][0]["logprobs"]["content"] = json!([{ "token_id": 9, "logprob": -0.5 }]);
            v["choices"][0]["finish_reason"] = json!("stop");
        },
    ),
    (
        "no word of its weights",
        |v| {
            v["meta_info"]["weight_version"] = Value::Null;
            v["meta_info"]["weight_versions"] = json!([]);
        },
        |v| v["choices"][0]["weight_versions"] = Value::Null,
    ),
    (
        "two weights in one rollout",
        |v| v["meta_info"]["weight_versions"][0]["version"] = json!("allot-00000000-000001-old"),
        |v| v["choices"][0]["weight_versions"][0]["version"] = json!("allot-00000000-000001-old"),
    ),
];

#[test]
fn what_can_t_be_right_ends_the_run_in_a_sentence_and_it_goes_on() {
    side_by_side(|kind| {
        let (sample, load) = kind.verbs();
        let (scratch, server) = (Scratch::new(), Server::start(kind));
        trained(&scratch, &impatient(&server), "honest");
        let honest = record(&scratch, "honest");
        let mut all: Vec<String> = LIES
            .into_iter()
            .map(|(what, sglang, vllm)| {
                let edit = if kind == Kind::Sglang { sglang } else { vllm };
                format!("{what}:\n{}", lied(kind, &honest, sample, 100, What::Edit(edit)))
            })
            .collect();
        let more = [
            ("goes on behind its end", What::Edit(go_on)),
            ("numbers as Python writes them", What::Raw("{\"output_ids\": [NaN]}")),
            ("no JSON", What::Raw("welcome")),
            ("a refusal", What::Status(400, "{\"error\": {\"message\": \"The input is longer\"}}")),
            ("no longer lets us in", What::Status(401, "{\"error\": \"Unauthorized\"}")),
            ("no longer knows how", What::Status(404, "{\"detail\": \"Not Found\"}")),
            ("never there again", What::Status(503, "{\"detail\": \"no capacity\"}")),
            ("weights of another run", What::Taken),
            ("forgets the weights each time", What::Die),
        ];
        let more =
            more.into_iter().map(|(what, lie)| format!("{what}:\n{}", lied(kind, &honest, sample, 100, lie)));
        all.extend(more);
        let words = "{\"success\": false, \"message\": \"no such folder\", \"error\": {\"message\": \"no such folder\"}}";
        let status = if kind == Kind::Sglang { 400 } else { 500 };
        all.push(format!("can't load:\n{}", lied(kind, &honest, load, 3, What::Status(status, words))));
        insta::assert_snapshot!(format!("lies_{}", kind.name()), all.join("\n\n"));
    });
}

/// A rollout that was ended, and more behind it.
fn go_on(v: &mut Value) {
    fn more(tokens: &mut Value, scored: &mut Value) {
        let (tokens, scored) = (tokens.as_array_mut().unwrap(), scored.as_array_mut().unwrap());
        if tokens.len() < 7 {
            tokens.push(json!(tokens[0]));
            scored.push(scored[0].clone());
        }
    }
    if v.get("choices").is_some() {
        let choice = &mut v["choices"][0];
        let (mut tokens, mut scored) = (choice["token_ids"].take(), choice["logprobs"]["content"].take());
        more(&mut tokens, &mut scored);
        (choice["token_ids"], choice["logprobs"]["content"]) = (tokens, scored);
    } else {
        let (mut tokens, mut scored) =
            (v["output_ids"].take(), v["meta_info"]["output_token_logprobs"].take());
        more(&mut tokens, &mut scored);
        (v["output_ids"], v["meta_info"]["output_token_logprobs"]) = (tokens, scored);
    }
}

// ---- what a user can get wrong

#[test]
fn a_key_is_taken_from_the_environment_and_shown_to_nobody() {
    for kind in BOTH {
        let start = Start { key: Some(KEY), ..Start::default() };
        let (scratch, server) = (Scratch::new(), Server::started(kind, start));
        let config = there(&server).replace("retry", "api_key_env = \"ALLOT_TEST_KEY\"\nretry");
        scratch.write("run.toml", &config);
        scratch.write("bare.toml", there(&server));
        let with = |key: &str, args: &[&str]| {
            let done =
                scratch.command(&[&["train"], args].concat()).env("ALLOT_TEST_KEY", key).output().unwrap();
            let all = [&done.stdout[..], &done.stderr[..]].concat();
            String::from_utf8(all).unwrap().replace(&server.url, "[server]")
        };
        let wrong = "sk-anothersecret";
        let said = [
            told(&scratch, &server, &["bare.toml"]),
            told(&scratch, &server, &["run.toml"]),
            with(wrong, &["run.toml"]),
            with("two\nlines", &["run.toml"]),
        ];
        insta::assert_snapshot!(format!("key_{}", kind.name()), said.join("\n\n"));
        assert!(!said.join("").contains(wrong));
        assert!(!scratch.path().join("runs").exists());
        let said = with(KEY, &["run.toml", "--out", "run"]);
        assert!(!said.contains(KEY) && !said.contains("error"), "{said}");
        let found = Command::new("grep").args(["-r", KEY]).arg(scratch.path()).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&found.stdout), "", "the key is in a file");
    }
}

#[test]
fn what_a_user_gets_wrong_is_told_before_anything_is_made() {
    let (scratch, server) = (Scratch::new(), Server::start(Kind::Vllm));
    let config = impatient(&server);
    let one = |from: &str, to: &str| {
        assert!(config.contains(from), "{from}");
        scratch.write("run.toml", config.replacen(from, to, 1));
        let said = told(&scratch, &server, &["run.toml"]);
        assert!(said.ends_with("exit code 2"), "{from}: {said}");
        assert!(!scratch.path().join("runs").exists(), "{said}");
        format!("{}\n{said}", to.replace(&server.weights.path().display().to_string(), "[weights]"))
    };
    let near = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let nobody = one(&server.url, &format!("http://127.0.0.1:{near}")).replace(&near.to_string(), "[port]");
    let weights = server.weights.path().display().to_string();
    let all = [
        nobody.lines().skip(1).collect::<Vec<_>>().join("\n"),
        one(&server.url, "not an address"),
        one(&server.url, "https://me:pass@example.org"),
        one("use = \"vllm\"", "use = \"llama.cpp\""),
        one("use = \"vllm\"", "use = \"sglang\""),
        one("retry", "model = \"other\"\nretry"),
        one("retry", "tolerance = 0\nretry"),
        one("retry", "weights_there = \"there\"\nretry"),
        one("retry", "wieghts = \"x\"\nretry"),
        one(&weights, &format!("{weights}/nowhere")),
        one(&weights, ""),
        one("temperature = 1.0", "temperature = 0.7"),
        one("temperature = 1.0", "temperature = 0.7\ntop_p = 0.9"),
        one(
            "[rollout_server]",
            "[engine]\nuse = \"tinker\"\nurl = \"http://localhost:1\"\nserver = \"tinker\"\nbase_model = \"m\"\n\n[rollout_server]",
        ),
        one("\"uniform\"", &format!("\"{}\"", wants_entropy(&scratch))),
    ];
    insta::assert_snapshot!(all.join("\n\n"));
    assert_eq!(server.left(), Vec::<String>::new());
}

/// A component that wants a signal which no server tells.
fn wants_entropy(scratch: &Scratch) -> String {
    let read = |name: &str| std::fs::read_to_string(scratch::root().join("tests/guests").join(name)).unwrap();
    let frame = read("frame.wat").replace(";; DECIDE", &read("asks_nothing.wat"));
    let version = "(data (i32.const 24) \"0.0.1\")";
    let described = "(i32.store offset=20 (local.get $d) (i32.const 10))";
    let list = "(i32.store (i32.const 96) (i32.const 112)) (i32.store offset=4 (i32.const 96) (i32.const 12)) \
                (i32.store offset=32 (local.get $d) (i32.const 96)) (i32.store offset=36 (local.get $d) (i32.const 1))";
    assert!(frame.contains(version) && frame.contains(described));
    let word = format!("{version} (data (i32.const 112) \"mean-entropy\")");
    let frame = frame.replacen(version, &word, 1).replacen(described, &format!("{described} {list}"), 1);
    scratch.write("curious.wasm", allot_authoring::component::of_module(frame.as_bytes(), "guest").unwrap());
    "./curious.wasm".to_owned()
}

#[test]
fn a_server_that_can_t_do_it_is_told_before_anything_is_made() {
    let cases: Vec<(Kind, Start)> = vec![
        (Kind::Sglang, Start { model_type: "qwen3", ..Start::default() }),
        (Kind::Sglang, Start { context: 12, ..Start::default() }),
        (Kind::Vllm, Start { scale_out: false, ..Start::default() }),
        (Kind::Vllm, Start { dev_mode: false, ..Start::default() }),
        (Kind::Vllm, Start { logprobs_mode: "raw_logits", ..Start::default() }),
    ];
    let mut all = Vec::new();
    for (kind, start) in cases {
        let (scratch, server) = (Scratch::new(), Server::started(kind, start));
        scratch.write("run.toml", there(&server));
        all.push(told(&scratch, &server, &["run.toml"]));
        assert!(!scratch.path().join("runs").exists());
    }
    insta::assert_snapshot!(all.join("\n\n"));
}
