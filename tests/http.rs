//! Answers judged by a server: our own on the loopback, which speaks as vLLM, SGLang or a user's own program does. It
//! is slow, busy, wrong or gone; a run goes on where it stopped, and asks nothing twice; no answer is its own judge.

#![cfg(unix)]
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "http/server.rs"]
mod server;

mod loopback;
mod scratch;

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use allot_base::Error;
use allot_judges::http::Http;
use allot_judges::protocol::{Judgement, Opinion, Question};
use allot_settings::http::{Api, HttpConfig};
use serde_json::{Value, json};

use loopback::runs::{error, record, trained};
use loopback::trick;
use scratch::Scratch;
use server::{KEY, MODEL, Server, What};

fn question(answer: &str) -> Question {
    Question {
        gold: vec!["5".to_owned()],
        answer: answer.to_owned(),
        prompt: "2+3=".to_owned(),
        source: "sums".to_owned(),
        ..Question::default()
    }
}

/// A config for a server: where it is, and what else it says.
fn config(server: &Server, api: &str, more: Value) -> HttpConfig {
    let path = match api {
        "chat" | "embeddings" => "/v1",
        "custom" => "/mine/judge",
        _ => "",
    };
    let mut whole = json!({
        "url": format!("{}{path}", server.url), "api": api, "retry_seconds": 0.005, "patience_seconds": 20,
    });
    if api != "custom" {
        whole["model"] = MODEL.into();
    }
    whole.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(whole).unwrap()
}

fn judge(config: &HttpConfig) -> Http {
    Http::new(config, question("5"), None)
}

fn ask(http: &mut Http, answers: &[&str]) -> Result<Vec<Opinion>, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (place, answer) in answers.iter().enumerate() {
        http.begin(place, &question(answer));
    }
    let all: BTreeMap<usize, Opinion> = runtime.block_on(http.finish())?.into_iter().collect();
    Ok(all.into_values().collect())
}

#[expect(clippy::unnecessary_wraps, reason = "it stands beside refusals")]
fn judged(correct: Option<bool>, reward: Option<f32>) -> Opinion {
    Ok(Judgement { correct, reward, ..Judgement::default() })
}

// ---- What is asked, and what a reply comes to

#[test]
fn each_kind_of_server_is_asked_in_its_own_way() {
    let server = Server::start();
    let row = r#"{"data_source":"gsm8k","reward_model":{"ground_truth":"5"},"extra_info":{"index":7}}"#;
    let cases: [(&str, Value, Vec<Opinion>, Value); 6] = [
        (
            "chat",
            json!({ "body": { "temperature": 0.5, "chat_template_kwargs": { "enable_thinking": false } } }),
            vec![judged(Some(true), None), judged(Some(false), None)],
            json!({
                "model": MODEL, "temperature": 0.5, "seed": 0, "max_tokens": 1024,
                "chat_template_kwargs": { "enable_thinking": false },
            }),
        ),
        (
            "classify",
            json!({}),
            vec![judged(None, Some(0.125)), judged(None, Some(0.5))],
            json!({
                "model": MODEL, "use_activation": false,
                "messages": [{ "role": "user", "content": "2+3=" }, { "role": "assistant", "content": "5" }],
            }),
        ),
        (
            "classify",
            json!({ "prompt": "{{ question }}|{{ answer }}|{{ gold }}|{{ source }}" }),
            vec![judged(None, Some(1.625)), judged(None, Some(2.0))],
            json!({ "model": MODEL, "use_activation": false, "input": "2+3=|5|5|sums" }),
        ),
        (
            "embeddings",
            json!({ "prompt": "{{ question }}{{ answer }}" }),
            vec![judged(None, Some(0.625)), judged(None, Some(1.0))],
            json!({ "model": MODEL, "input": "2+3=5" }),
        ),
        (
            "score",
            json!({}),
            vec![judged(None, Some(0.0)), judged(None, Some(0.0))],
            json!({ "model": MODEL, "text_1": "2+3=", "text_2": "5" }),
        ),
        (
            "custom",
            json!({ "body": { "strict": true } }),
            vec![judged(Some(true), Some(0.75)), judged(Some(false), Some(-0.25))],
            json!({
                "data_source": "sums", "solution_str": "5", "ground_truth": "5",
                "extra_info": { "question": "2+3=" }, "strict": true,
            }),
        ),
    ];
    for (api, more, expected, body) in cases {
        let config = config(&server, api, more);
        assert_eq!(config.wrong(), None, "{api}");
        server.play(Vec::new());
        let preflight = judge(&config).check().unwrap();
        let name = if api == "custom" { "mine" } else { MODEL };
        assert_eq!(preflight.identity.hello.name.as_deref(), Some(name), "{api}");
        let version = if api == "custom" { "3" } else { "root /models/judge" };
        assert_eq!(preflight.identity.hello.version.as_deref(), Some(version), "{api}");
        assert_eq!(preflight.words[..2], ["http", api]);
        server.play(Vec::new());
        assert_eq!(ask(&mut judge(&config), &["5", "four"]).unwrap(), expected, "{api}");
        let mut asked = server.bodies().into_iter().find(|body| !body.to_string().contains("four")).unwrap();
        if api == "chat" {
            asked.as_object_mut().unwrap().remove("messages");
        }
        assert_eq!(asked, body, "{api}");
    }
    // A gold answer that is the whole row.
    let config = config(&server, "custom", json!({}));
    server.play(Vec::new());
    let mut http = judge(&config);
    http.begin(0, &Question { gold: vec![row.to_owned()], ..question("5") });
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert_eq!(runtime.block_on(http.finish()).unwrap(), [(0, judged(Some(true), Some(0.75)))]);
    let asked = &server.bodies()[0];
    assert_eq!((&asked["data_source"], &asked["extra_info"]), (&"gsm8k".into(), &json!({ "index": 7 })));
}

#[test]
fn a_verdict_is_the_last_in_the_reply_and_any_other_word_is_none() {
    let server = Server::start();
    let said = |verdict: Option<&str>, text: &'static str| {
        let more = verdict.map_or(json!({}), |verdict| json!({ "verdict": verdict }));
        let config = config(&server, "chat", more);
        assert_eq!(config.wrong(), None);
        server.play(vec![trick("completions", 1, What::Text(text))]);
        ask(&mut judge(&config), &["four"]).unwrap().remove(0)
    };
    let score = Some(r"\[\[(\S+)\]\]");
    for (verdict, text, expected) in [
        (score, "[[1]] at first, but [[0.25]]", judged(None, Some(0.25))),
        (score, "[[-3e-1]]", judged(None, Some(-0.3))),
        (score, "It is [[Correct]].", judged(Some(true), None)),
        (score, "It is [[INCORRECT]].", judged(Some(false), None)),
        (Some(r"(?:Grade|Mark): (?P<verdict>yes|no)|(never)"), "Grade: no", judged(Some(false), None)),
    ] {
        assert_eq!(said(verdict, text), expected, "{text}");
    }
    for (verdict, text, why) in [
        (score, "[[perhaps]]", "the grader's verdict `perhaps` is not yes, no or a number"),
        (score, "[[nan]]", "the grader's verdict `nan` is not yes, no or a number"),
        (score, "[[1e39]]", "its verdict 1e39 is too large"),
        (score, "Well.", "the grader gave no verdict, and said `Well.`"),
        (None, "Verdict: yes", "the grader gave no verdict, and said `Verdict: yes`"),
    ] {
        assert_eq!(said(verdict, text), Err(why.to_owned()), "{text}");
    }
    // A reply that was cut may end with what it cites.
    let config = config(&server, "chat", json!({}));
    server.play(vec![trick("completions", 1, What::Long)]);
    let got = ask(&mut judge(&config), &["5"]).unwrap();
    assert_eq!(got, [Err("the grader's reply was cut after 1024 tokens".to_owned())]);
}

#[test]
fn no_answer_is_its_own_judge() {
    let server = Server::start();
    let cases = include_str!("cases/hostile/judged.jsonl");
    let cases: Vec<Value> = cases.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(cases.len() >= 20);
    let answers: Vec<&str> = cases.iter().map(|case| case["answer"].as_str().unwrap()).collect();
    // This one says no to all of them, after it has cited them: the verdicts in them are not its own.
    let config = config(&server, "chat", json!({}));
    for (case, got) in cases.iter().zip(ask(&mut judge(&config), &answers).unwrap()) {
        assert_eq!(got, judged(Some(false), None), "{}", case["trick"]);
    }
    // A model that is talked into silence after its citation gives none.
    for body in server.bodies() {
        let prompt = body["messages"][0]["content"].as_str().unwrap();
        let mark = server::mark(prompt);
        let answer = server::between(prompt, "answer", mark);
        assert!(!answer.contains(mark) && answers.contains(&answer), "{answer}");
        assert_eq!(prompt.matches(&format!("[end of answer {mark}]")).count(), 1);
    }
    for case in &cases {
        let text: &'static str = Box::leak(case["answer"].as_str().unwrap().to_owned().into_boxed_str());
        server.play(vec![trick("completions", 1, What::Text(text))]);
        let got = ask(&mut judge(&config), &[text]).unwrap().remove(0);
        assert!(got.is_err(), "{}: {got:?}", case["trick"]);
    }
}

// ---- What goes wrong

#[test]
fn a_server_that_is_busy_or_slow_is_asked_again() {
    let server = Server::start();
    let config = config(&server, "chat", json!({ "request_seconds": 0.5 }));
    let slow = What::Slow(Duration::from_secs(1));
    for what in [
        What::Status(429, "too many requests"),
        What::Status(500, "CUDA error"),
        What::Status(503, "loading"),
        What::HangUp,
        What::Cut,
        slow,
    ] {
        server.play(vec![trick("completions", 1, what.clone()), trick("completions", 2, what)]);
        let got = ask(&mut judge(&config), &["5", "four", "5"]).unwrap();
        assert_eq!(got, [judged(Some(true), None), judged(Some(false), None), judged(Some(true), None)]);
        // Both were tried, and the same answer was asked about once.
        assert_eq!(server.asked(), 4);
    }
}

#[test]
fn what_is_no_reply_is_no_verdict() {
    let server = Server::start();
    for (api, text) in [
        ("chat", "<html>502</html>"),
        ("chat", "{}"),
        ("chat", r#"{"choices":[]}"#),
        ("chat", r#"{"choices":[{"message":{"content":null}}]}"#),
        ("classify", r#"{"data":[{"probs":[]}]}"#),
        ("classify", r#"{"data":[{"probs":["1"]}]}"#),
        ("embeddings", r#"{"data":[]}"#),
        ("score", r#"{"data":[{"score":null}]}"#),
        ("custom", r#"{"score":"1"}"#),
        ("custom", "[1]"),
        ("custom", r#"{"reward":1,"rewards":{"a":1}}"#),
    ] {
        let more = if api == "embeddings" { json!({ "prompt": "{{ answer }}" }) } else { json!({}) };
        let config = config(&server, api, more);
        let verb = match api {
            "chat" => "completions",
            "custom" => "judge",
            api => api,
        };
        server.play(vec![trick(verb, 1, What::Raw(text))]);
        let got = ask(&mut judge(&config), &["5"]).unwrap().remove(0);
        assert_eq!(got, Err(format!("the server said `{text}`, which is not a reply of `{api}`")));
        server.play(vec![trick(verb, 1, What::Status(400, "this is 9000 tokens long"))]);
        let got = ask(&mut judge(&config), &["5"]).unwrap().remove(0);
        assert_eq!(got, Err("the server refused it (400): this is 9000 tokens long".to_owned()));
    }
    // A user's own may say why, and give parts.
    let config = config(&server, "custom", json!({}));
    server.play(vec![
        trick("judge", 1, What::Raw(r#"{"error":"no gold"}"#)),
        trick("judge", 2, What::Raw(r#"{"rewards":{"tests":0.5,"format":1},"correct":false}"#)),
        trick("judge", 3, What::Raw("0.5")),
    ]);
    let mut http = judge(&config);
    assert_eq!(ask(&mut http, &["a"]).unwrap(), [Err("no gold".to_owned())]);
    let parts = vec![("format".to_owned(), 1.0), ("tests".to_owned(), 0.5)];
    let expected = Judgement { correct: Some(false), parts, ..Judgement::default() };
    assert_eq!(ask(&mut http, &["b"]).unwrap(), [Ok(expected)]);
    assert_eq!(ask(&mut http, &["c"]).unwrap(), [judged(None, Some(0.5))]);
}

#[test]
fn an_answer_that_a_server_fails_at_costs_itself_alone() {
    let server = Server::start();
    server.poison("bad luck");
    for connections in [1, 8] {
        let config = config(&server, "chat", json!({ "connections": connections, "tries": 3 }));
        let mut answers = vec!["5"; 12];
        answers[3] = "bad luck";
        let texts: Vec<String> = (0..12).map(|i| format!("{i}")).collect();
        for (i, text) in texts.iter().enumerate().filter(|(i, _)| *i != 3) {
            answers[i] = text;
        }
        server.play(Vec::new());
        let got = ask(&mut judge(&config), &answers).unwrap();
        for (i, got) in got.into_iter().enumerate() {
            let why = "the server failed 3 times: it answers 500 Internal Server Error: out of luck";
            let expected = if i == 3 { Err(why.to_owned()) } else { judged(Some(i == 5), None) };
            assert_eq!(got, expected, "{i}");
        }
        assert!(server.most() <= connections, "{} at a time", server.most());
    }
}

#[test]
fn a_server_that_is_gone_ends_judging_in_a_sentence() {
    for (status, why) in [
        (503, "in 0.2 s: it answers 503 Service Unavailable: gone"),
        (500, "in 0.2 s: it answers 500 Internal Server Error: gone"),
        (404, "has no `chat/completions`, or no such model: gone"),
        (401, "needs a key (401)"),
    ] {
        // One of its own: requests that the grader before gave up may come in late, and would be counted.
        let server = Server::start();
        let config = config(&server, "chat", json!({ "patience_seconds": 0.2 }));
        server.play(vec![loopback::Trick {
            verb: "completions",
            at: 2,
            times: usize::MAX - 2,
            what: What::Status(status, "gone"),
        }]);
        let mut http = judge(&config);
        assert_eq!(ask(&mut http, &["5"]).unwrap(), [judged(Some(true), None)]);
        let began = Instant::now();
        let error = ask(&mut http, &["6", "7"]).unwrap_err();
        assert!(error.what.contains(why), "{error:?}");
        assert!(began.elapsed() < Duration::from_secs(10));
        // And it stays gone.
        assert!(ask(&mut http, &["8"]).is_err());
    }
}

#[test]
fn a_server_is_looked_at_before_anything_else() {
    let server = Server::start();
    let check = |config: &HttpConfig| judge(config).check().unwrap_err();
    let config = |more| config(&server, "chat", more);
    let error = check(&config(json!({ "model": "other" })));
    assert!(error.what.ends_with("has no model `other`"), "{error:?}");
    assert_eq!(error.hints, [format!("it has `{MODEL}`; set `reward.http.model`")]);
    let error = check(&config(json!({ "url": "http://127.0.0.1:9/v1", "patience_seconds": 0.1 })));
    assert!(error.what.contains("http://127.0.0.1:9/v1 did not complete `models` in 0.1 s"), "{error:?}");
    let error = check(&config(json!({ "url": server.url })));
    assert!(error.what.contains("has no `chat/completions`, or no such model"), "{error:?}");
    let said = "It seems right to me.";
    server.play(vec![trick("completions", 1, What::Text(said))]);
    let error = check(&config(json!({})));
    assert!(
        error.what.contains(&format!("right answer: the grader gave no verdict, and said `{said}`")),
        "{error:?}"
    );
    server.lock();
    let error = check(&config(json!({})));
    assert!(error.what.ends_with("needs a key (401)"), "{error:?}");
    assert_eq!(
        error.hints,
        ["name the variable that has it: `reward.http.api_key_env = \"OPENAI_API_KEY\"`"]
    );
    let error = check(&config(json!({ "api_key_env": "ALLOT_NO_SUCH_KEY" })));
    assert!(error.what.contains("this variable is not set"), "{error:?}");
}

#[test]
fn a_config_says_how_a_server_judges() {
    let server = Server::start();
    let wrong = |api: &str, more: Value| {
        let (key, value, rule) = config(&server, api, more).wrong().unwrap();
        format!("{key} is {value}; {rule}")
    };
    let cases = [
        ("chat", json!({ "url": "localhost:8000" }), "url is localhost:8000; expected an address like"),
        ("chat", json!({ "model": null }), "model is missing; expected the server's name for the model"),
        ("custom", json!({ "model": "x" }), "model is x; `custom` does not use it"),
        ("chat", json!({ "prompt": "{{ question" }), "prompt is broken; could not parse the template"),
        ("chat", json!({ "prompt": "{{ truth }}" }), "prompt is broken; could not render the prompt"),
        ("score", json!({ "prompt": "x" }), "prompt is given; `score` does not take a prompt"),
        ("embeddings", json!({}), "prompt is missing; `embeddings` needs one"),
        ("chat", json!({ "verdict": "([0-9]" }), "verdict is broken; expected a regular expression"),
        ("chat", json!({ "verdict": "yes|no" }), "verdict is broken; expected a group"),
        ("classify", json!({ "verdict": "(x)" }), "verdict is given; `classify` does not return text"),
        ("chat", json!({ "max_tokens": 0 }), "max_tokens is 0; expected at least 1"),
        ("chat", json!({ "connections": 0 }), "connections is 0; expected 1 to 1024"),
        ("chat", json!({ "request_seconds": 0 }), "request_seconds is 0; expected more than 0"),
    ];
    for (api, more, expected) in cases {
        let wrong = wrong(api, more);
        assert!(wrong.starts_with(expected), "{wrong}");
    }
    assert_eq!(Api::Chat.name(), "chat");
}

// ---- Runs

const CONFIG: &str = include_str!("cases/remote/short.toml");

/// A run that a server judges.
fn there(server: &Server, more: &str) -> String {
    let section = format!(
        "[reward]\ngrader = \"http\"\n[reward.http]\nurl = \"{}/v1\"\napi = \"chat\"\nmodel = \"{MODEL}\"\n\
         retry_seconds = 0.005\n{more}",
        server.url
    );
    CONFIG.replace("[reward]\ngrader = \"exact\"\n", &section)
}

/// A record without its head, and its head.
fn parted(record: &str) -> (Value, String) {
    let (head, rest) = record.split_once('\n').unwrap();
    (serde_json::from_str(head).unwrap(), rest.to_owned())
}

#[test]
fn a_run_that_a_server_judges_is_the_run_that_a_grader_judges() {
    let (scratch, server) = (Scratch::new(), Server::start());
    trained(&scratch, CONFIG, "here");
    server.play(Vec::new());
    trained(&scratch, &there(&server, ""), "there");
    let (asked, asked_again) = (server.asked(), server.asked_again());
    // Besides, the model may say what the server is greeted with.
    assert!(asked_again <= 1, "{asked_again} were asked twice");
    let ((here, rest_here), (there_, rest_there)) =
        (parted(&record(&scratch, "here")), parted(&record(&scratch, "there")));
    assert_eq!(rest_here, rest_there);
    assert_eq!(here["training"]["problems"], there_["training"]["problems"]);
    let reward = &there_["training"]["reward"];
    assert_eq!(reward["process"]["command"].as_array().unwrap()[..3], ["http", "chat", MODEL]);
    assert_eq!(
        (&reward["process"]["name"], &reward["process"]["version"]),
        (&MODEL.into(), &"root /models/judge".into())
    );
    assert!(
        reward["http"]["prompt"].as_str().unwrap().contains("{{ mark }}") && reward["http"]["url"].is_null()
    );
    // Its rollouts, graded by the server again, have the rewards that they had.
    let graded = scratch.allot(&["grade", "there", "there", "--show", "0"]);
    assert!(graded.contains("as before") && !graded.contains("other reward"), "{graded}");
    let port = server.url.rsplit(':').next().unwrap();
    assert!(!record(&scratch, "there").contains(port), "the server's address is in the record");

    // With what was said before, a run needs no server but for its greeting; not even one that changed its mind.
    let lines = scratch.read("there/replies.jsonl").lines().count();
    assert!(lines == asked || lines == asked - 1, "{lines} replies to {asked} requests");
    std::fs::create_dir(scratch.path().join("again")).unwrap();
    scratch.write("again/replies.jsonl", scratch.read("there/replies.jsonl"));
    server.play(Vec::new());
    server.invert();
    scratch.write("run.toml", there(&server, ""));
    let said = scratch.allot(&["train", "run.toml", "--out", "again"]);
    assert!(said.ends_with("exit code 0"), "{said}");
    assert_eq!(server.asked(), 1);
    assert_eq!(parted(&record(&scratch, "again")).1, rest_there);
}

#[test]
fn a_run_goes_on_where_its_judge_was_lost_or_it_was_killed() {
    let (scratch, server) = (Scratch::new(), Server::start());
    trained(&scratch, &there(&server, "patience_seconds = 0.3\n"), "honest");
    let honest = record(&scratch, "honest");
    server.play(Vec::new());
    trained(&scratch, &there(&server, "patience_seconds = 0.3\n"), "counted");
    let wanted = server.asked();
    let resumed = |run: &str, how: &str| {
        // Requests of the run before may still come in, and would be counted.
        std::thread::sleep(Duration::from_millis(200));
        let before = server.asked();
        server.play(Vec::new());
        let said = scratch.allot(&["train", "--resume", run]);
        assert!(said.ends_with("exit code 0"), "{how}: {said}");
        assert_eq!(record(&scratch, run), honest, "{how}");
        (before, server.asked())
    };
    for at in [2, wanted / 3, wanted / 2, wanted - 3] {
        let gone = loopback::Trick {
            verb: "completions",
            at,
            times: usize::MAX - at,
            what: What::Status(503, "gone"),
        };
        server.play(vec![gone]);
        let run = format!("lost-{at}");
        let said = scratch.allot(&["train", "run.toml", "--out", &run]);
        let said = error(&said);
        assert!(
            said.contains("did not complete `chat/completions` in 0.3 s") && said.ends_with("exit code 2"),
            "{said}"
        );
        assert!(said.contains("set `reward.http.patience_seconds` to wait longer"), "{said}");
        let (_, after) = resumed(&run, &run);
        // What it had judged is not asked again; the greeting is, and what a busy server was late for.
        let known = at - 2;
        assert!(after <= wanted - known + 2, "{run}: {after} asked after {known} of {wanted}");
    }
    for at in [3, wanted / 3, wanted / 2] {
        server.play(vec![loopback::Trick {
            verb: "completions",
            at: 1,
            times: usize::MAX - 1,
            what: What::Slow(Duration::from_millis(20)),
        }]);
        let run = format!("killed-{at}");
        let mut child = scratch.started(&["train", "run.toml", "--out", &run]);
        while server.asked() < at && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(2));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let (before, after) = resumed(&run, &run);
        // At most what was under way is asked again.
        assert!(before + after <= wanted + 1 + 32, "{run}: {before} and {after} of {wanted}");
    }
}

#[test]
fn another_model_judges_no_more() {
    let (scratch, server) = (Scratch::new(), Server::start());
    server.play(vec![trick("completions", 9, What::Other)]);
    scratch.write("run.toml", there(&server, ""));
    let said = scratch.allot(&["train", "run.toml", "--out", "run"]);
    let said = error(&said);
    assert!(said.contains("changed during the run: it was `judge-7b`, and is now `judge-70b`"), "{said}");
    assert!(said.ends_with("exit code 2"), "{said}");
}

#[test]
fn a_key_is_shown_to_nobody() {
    let (scratch, server) = (Scratch::new(), Server::start());
    server.lock();
    scratch.write("run.toml", there(&server, "api_key_env = \"JUDGE_KEY\"\n"));
    let train = |key: &str| -> (String, bool) {
        let mut command: Command = scratch.command(&["train", "run.toml", "--out", "run"]);
        let done = command.env("JUDGE_KEY", key).output().unwrap();
        (String::from_utf8_lossy(&done.stderr).into_owned(), done.status.success())
    };
    let (said, fine) = train("sk-otherotherother");
    assert!(!fine && said.contains("rejected the key in `JUDGE_KEY` (401)"), "{said}");
    assert!(!said.contains("sk-other"), "{said}");
    let (said, fine) = train(KEY);
    assert!(fine, "{said}");
    for file in ["record.jsonl", "resolved.toml", "replies.jsonl", "metrics.jsonl"] {
        assert!(!scratch.read(&format!("run/{file}")).contains(KEY), "{file}");
    }
    assert!(!record(&scratch, "run").contains("JUDGE_KEY"));
}

#[test]
fn a_score_alone_needs_to_be_said_what_is_correct() {
    let (scratch, server) = (Scratch::new(), Server::start());
    let config = there(&server, "").replace("/v1\"", "\"").replace("\"chat\"", "\"score\"");
    scratch.write("run.toml", &config);
    let said = scratch.allot(&["train", "run.toml", "--dry-run"]);
    assert!(said.contains("does not say whether the answer is correct"), "{said}");
    scratch.write("run.toml", config.replace("\"http\"\n", "\"http\"\ncorrect_from = 0.5\n"));
    let said = scratch.allot(&["train", "run.toml", "--dry-run"]);
    assert!(said.ends_with("exit code 0"), "{said}");
}
