//! Judges that are processes: right, wrong, slow, dying, babbling; and a run that is judged by one.
//! `math-verify` is held to recorded verdicts where `python3`, or the Python of `ALLOT_MATH_VERIFY`, has it;
//! `ALLOT_VERIFIER_CASES` names another file of those.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

mod opinions;
mod scratch;
mod skip;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use allot_base::Error;
use allot_config::train::TrainConfig;
use allot_judges::processes::{GraderCommand, Processes};
use allot_judges::protocol::{Judgement, Opinion, Question};
use allot_judges::sandboxed::Sandboxed;
use allot_settings::reward::JudgeConfig;
use allot_settings::{AnyGrader, PythonConfig};
use opinions::opinions_on;
use scratch::Scratch;
use serde_json::Value;
use skip::skip;

/// Does with each answer what it says, in plain sh.
const PUPPET: &str = r#"
n=0
while read -r line; do
  n=$((n+1))
  case "$line" in
    *'"answer":"right"'*) echo "{\"id\":$n,\"correct\":true}" ;;
    *'"answer":"wrong"'*) echo "{\"id\":$n,\"correct\":false}" ;;
    *'"answer":"later"'*) sleep 0.2; echo "{\"id\":$n,\"correct\":true}" ;;
    *'"answer":"hang"'*) sleep 600 & echo $! >>pids; wait ;;
    *'"answer":"die"'*) echo 'first words' >&2; echo 'last words' >&2; exit 3 ;;
    *'"answer":"crash"'*) kill -SEGV $$ ;;
    *'"answer":"babble"'*) echo 'I think so.' ;;
    *'"answer":"other"'*) echo '{"id":999,"correct":true}' ;;
    *'"answer":"anonymous"'*) echo '{"correct":true}' ;;
    *'"answer":"flood"'*) yes | tr -d '\n' ;;
    *'"answer":"close"'*) exec 1>&-; sleep 600 ;;
    *'"answer":"unsure"'*) echo "{\"id\":$n,\"error\":\"no idea\"}" ;;
    *'"answer":"chatty"'*) yes chat | head -n 100000 >&2; echo "{\"id\":$n,\"correct\":true}" ;;
    *'"answer":"leave"'*) echo "{\"id\":$n,\"correct\":true}"; exit 0 ;;
    *) echo "{\"id\":$n,\"correct\":false}" ;;
  esac
done
"#;

fn question(answer: &str) -> Question {
    Question {
        gold: vec!["5".to_owned(), "five".to_owned()],
        answer: answer.to_owned(),
        ..Question::default()
    }
}

/// A grader of these words that runs in a folder.
fn judge(folder: &Path, script: &str) -> GraderCommand {
    let script = format!("cd '{}'\n{script}", folder.display());
    let command = Some(vec!["sh".to_owned(), "-c".to_owned(), script]);
    let config = JudgeConfig { command, seconds: 20.0, ..JudgeConfig::default() };
    GraderCommand { name: "puppet".to_owned(), ..GraderCommand::command(&config, question("hello")) }
}

fn ask(pool: &mut Processes, answers: &[&str]) -> Result<Vec<Opinion>, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(opinions_on(pool, answers.iter().map(|a| question(a)).collect()))
}

#[expect(clippy::unnecessary_wraps, reason = "it stands beside `unsure`")]
fn judged(correct: bool) -> Opinion {
    Ok(correct.into())
}

fn unsure(why: &str) -> Opinion {
    Err(format!("the grader {why}"))
}

#[test]
fn a_judge_that_fails_costs_its_own_answer_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let limit = Duration::from_secs(2);
    let all = [
        ("right", judged(true)),
        ("wrong", judged(false)),
        ("hang", unsure("gave no answer within 2 s")),
        ("right", judged(true)),
        ("die", unsure("ended with exit status 3, and last said `last words`")),
        ("later", judged(true)),
        ("crash", unsure("ended with signal 11 (SIGSEGV)")),
        ("babble", unsure("said `I think so.`, which does not answer the question")),
        ("right", judged(true)),
        ("other", unsure(r#"said `{"id":999,"correct":true}`, which does not answer the question"#)),
        ("anonymous", unsure(r#"said `{"correct":true}`, which does not answer the question"#)),
        ("close", unsure("closed its input or output")),
        ("flood", unsure(&format!("said `{}…`, which does not answer the question", "y".repeat(200)))),
        ("unsure", unsure("says: no idea")),
        ("chatty", judged(true)),
        ("leave", judged(true)),
        ("\"\\\n\u{1b}é", judged(false)),
        ("right", judged(true)),
    ];
    // Nothing depends on how many judge.
    for processes in [1, 3, 40] {
        let mut pool = Processes::new(GraderCommand { processes, limit, ..judge(folder.path(), PUPPET) });
        let got = ask(&mut pool, &all.clone().map(|(answer, _)| answer)).unwrap();
        for ((answer, expected), got) in all.iter().zip(got) {
            assert_eq!(got, *expected, "{answer}, {processes} processes");
        }
    }
    // What hung is gone, with the processes that it had started.
    for pid in std::fs::read_to_string(folder.path().join("pids")).unwrap().split_whitespace() {
        assert!(gone(pid), "{pid} still runs");
    }
}

/// Whether a process is no more, or no more than a line in a table.
fn gone(pid: &str) -> bool {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        if stat.map_or(true, |s| s.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z'))) {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Does with each answer what it says, and takes lists of them.
const LISTS: &str = r#"
import json, os, sys, time
print(json.dumps({"name": "puppet", "version": "1", "lists": True}), flush=True)
def judge(asked):
    answer = asked["answer"]
    if answer == "die":
        os._exit(3)
    if answer == "hang":
        time.sleep(600)
    if answer == "unsure":
        return {"error": "no idea"}
    return {} if answer == "nothing" else {"correct": answer == "right"}
for line in sys.stdin:
    asked = json.loads(line)
    said = judge(asked) if "list" not in asked else {"list": [judge(one) for one in asked["list"]]}
    if any(one["answer"] == "short" for one in asked.get("list", [asked])):
        said = {"list": []}
    if any(one["answer"] == "raise" for one in asked.get("list", [asked])):
        said = {"error": "it raised"}
    with open("lists", "a") as file:
        file.write(f"{len(asked.get('list', []))}\n")
    print(json.dumps({"id": asked["id"], **said}), flush=True)
"#;

#[test]
fn a_judge_that_takes_lists_is_asked_about_many_answers_at_once_and_loses_only_those_that_fail() {
    if !has("python3", &["python3", "--version"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let limit = Duration::from_secs(2);
    let script = format!("import os; os.chdir({:?})\n{LISTS}", folder.path().display().to_string());
    let command = Some(vec!["python3".to_owned(), "-c".to_owned(), script]);
    let config = JudgeConfig { command, ..JudgeConfig::default() };
    let all: Vec<(&str, Opinion)> = (0..600)
        .map(|i| match i {
            250 => ("die", unsure("ended with exit status 3")),
            300 => ("hang", unsure("gave no answer within 2 s")),
            350 => ("unsure", unsure("says: no idea")),
            400 => ("nothing", Err(String::new())),
            450 => ("short", Err(String::new())),
            500 => ("raise", unsure("says: it raised")),
            i if i % 3 == 0 => ("right", judged(true)),
            _ => ("wrong", judged(false)),
        })
        .collect();
    for processes in [1, 3] {
        let command = GraderCommand::command(&config, question("hello"));
        let mut pool = Processes::new(GraderCommand { processes, limit, ..command });
        let asked: Vec<&str> = all.iter().map(|(answer, _)| *answer).collect();
        for ((answer, expected), got) in all.iter().zip(ask(&mut pool, &asked).unwrap()) {
            match got {
                // Its line has an id that differs from call to call.
                Err(why) if ["nothing", "short"].contains(answer) => {
                    assert!(why.ends_with("which does not answer the question"), "{answer}: {why}");
                }
                got => assert_eq!(got, *expected, "{answer}, {processes} processes"),
            }
        }
    }
    let lists = std::fs::read_to_string(folder.path().join("lists")).unwrap();
    assert!(lists.lines().any(|answers| answers.parse::<usize>().unwrap() > 16), "{lists}");
}

#[test]
fn verdicts_come_in_the_order_of_the_answers_whoever_judged() {
    let folder = tempfile::tempdir().unwrap();
    let answers: Vec<&str> = (0..60)
        .map(|i| match i % 7 {
            0 => "later",
            1 | 4 => "right",
            _ => "wrong",
        })
        .collect();
    for processes in [1, 2, 5] {
        let mut pool = Processes::new(GraderCommand { processes, ..judge(folder.path(), PUPPET) });
        let got = ask(&mut pool, &answers).unwrap();
        let expected: Vec<Opinion> = answers.iter().map(|a| judged(*a != "wrong")).collect();
        assert_eq!(got, expected, "{processes} processes");
    }
    assert_eq!(ask(&mut Processes::new(judge(folder.path(), PUPPET)), &[]), Ok(Vec::new()));
}

#[test]
fn judges_answer_while_the_rest_is_still_to_be_asked() {
    let folder = tempfile::tempdir().unwrap();
    let script = PUPPET.replace("case \"$line\" in", "echo \"$line\" >>heard; case \"$line\" in");
    let mut pool = Processes::new(GraderCommand { processes: 1, ..judge(folder.path(), &script) });
    // Nobody waits for an opinion, and each question is heard all the same before the next one is put.
    for (place, answer) in [(2, "right"), (0, "wrong"), (1, "right")] {
        pool.begin(place, question(answer));
        let heard = || std::fs::read_to_string(folder.path().join("heard")).unwrap_or_default();
        let line = |text: &str| text.lines().filter(|l| l.contains(&format!(":\"{answer}\""))).count();
        let before = if place == 1 { 2 } else { 1 };
        while line(&heard()) < before {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut opinions = runtime.block_on(pool.finish()).unwrap();
    opinions.sort_by_key(|(place, _)| *place);
    assert_eq!(opinions, [(0, judged(false)), (1, judged(true)), (2, judged(true))]);
    assert_eq!(runtime.block_on(pool.finish()), Ok(Vec::new()), "a round is over when it is told");
}

#[test]
fn a_pool_that_goes_in_the_middle_of_a_round_takes_its_judges_along() {
    let folder = tempfile::tempdir().unwrap();
    let mut pool = Processes::new(judge(folder.path(), PUPPET));
    pool.begin(0, question("hang"));
    let pids = || std::fs::read_to_string(folder.path().join("pids")).unwrap_or_default();
    while !pids().ends_with('\n') {
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(pool);
    assert!(pids().split_whitespace().all(gone));
}

#[test]
fn a_judge_that_left_between_answers_is_no_fault_of_the_next_answer() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut pool = Processes::new(GraderCommand { processes: 1, ..judge(folder.path(), PUPPET) });
    for _ in 0..3 {
        let opinions = runtime.block_on(opinions_on(&mut pool, vec![question("leave")]));
        assert_eq!(opinions, Ok(vec![judged(true)]));
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// A quick judge that takes lists is not asked whether it lives, but for its verdict. What it started may hold its pipes.
#[test]
fn a_quick_judge_that_left_between_answers_is_no_fault_of_the_next_answer() {
    let script = r#"echo '{"lists":true}'
        while read -r line; do
            id=${line#*'"id":'}
            echo "{\"id\":${id%%,*},\"correct\":true}"
            case "$line" in
                *leaves-another*) sleep 600 <&0 & exit;;
                *leaves*) exit;;
            esac
        done"#;
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let limit = Duration::from_secs(2);
    let mut pool = Processes::new(GraderCommand { processes: 1, limit, ..judge(folder.path(), script) });
    for last in ["leaves", "leaves-another", "leaves", "leaves-another"] {
        for answer in ["right", "right", last] {
            let opinions = runtime.block_on(opinions_on(&mut pool, vec![question(answer)]));
            assert_eq!(opinions, Ok(vec![judged(true)]), "{answer}");
        }
        std::thread::sleep(Duration::from_millis(300));
    }
}

#[test]
fn a_judge_that_never_reads_is_late() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"read -r line; echo '{"id":1,"correct":true}'; exec sleep 600"#;
    let limit = Duration::from_secs(1);
    let mut pool = Processes::new(GraderCommand { limit, ..judge(folder.path(), script) });
    // More than fits into a pipe.
    let long = "x".repeat(1 << 20);
    let late = || unsure("gave no answer within 1 s");
    assert_eq!(ask(&mut pool, &[&long, "short"]), Ok(vec![late(), late()]));
}

#[test]
fn processes_end_with_the_pool() {
    let folder = tempfile::tempdir().unwrap();
    let script = format!("echo $$ >>started\n{PUPPET}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut pool = Processes::new(judge(folder.path(), &script));
    assert!(
        runtime
            .block_on(opinions_on(&mut pool, vec![question("right"), question("right"), question("right")]))
            .is_ok()
    );
    // As at the end of a run, where the runtime goes first.
    drop(runtime);
    drop(pool);
    let started = std::fs::read_to_string(folder.path().join("started")).unwrap();
    assert!((1..=2).contains(&started.split_whitespace().count()), "{started}");
    for pid in started.split_whitespace() {
        assert!(gone(pid), "{pid} still runs");
    }
}

/// Programs are judged by threads; verdicts go by the places that they were asked for.
#[tokio::test]
async fn programs_are_judged_in_the_sandbox_by_threads() {
    let config = PythonConfig {
        interpreter: std::env::var_os("ALLOT_PYTHON").map(Into::into),
        ..PythonConfig::default()
    };
    if !allot_judges::sandboxed::module(&config).is_some_and(|path| path.exists()) {
        return skip("python", "no CPython for WASI: allot fetch python");
    }
    let met = Sandboxed::check(&config, AnyGrader::Python).unwrap();
    assert_eq!(met.identity.hello.name.as_deref(), Some("CPython 3.12.0"));
    let gold = r#"{"fn_name": "double", "inputs": [[2], [5], [0]], "outputs": [4, 10, 0]}"#;
    let asked = |answer: &str| Question {
        gold: vec![gold.to_owned()],
        answer: answer.to_owned(),
        ..Question::default()
    };
    let mut sandboxed = Sandboxed::new(&config, AnyGrader::Python).unwrap();
    let answers = ["def double(x): return 2 * x", "def double(x): return x * x", "double = 7", "exit()"];
    // Half of them were asked about before.
    for place in 0..40 {
        sandboxed.begin(place, asked(&format!("{}\n# {}", answers[place % answers.len()], place / 8)));
    }
    let mut all = sandboxed.finish().await.unwrap();
    all.sort_by_key(|(place, _)| *place);
    let share = |of: usize| all.iter().skip(of).step_by(4).map(|(_, o)| o.as_ref().unwrap().share.unwrap());
    assert_eq!(all.len(), 40);
    assert!(share(0).all(|share| share == 1.0) && share(2).chain(share(3)).all(|share| share == 0.0));
    // 2 * 2 is 2 + 2, and 0 is 0.
    assert!(share(1).all(|share| share == 2.0 / 3.0), "{:?}", all[1]);
    assert!(all.iter().all(|(place, o)| o.as_ref().unwrap().correct == Some(place % 4 == 0)));
    assert_eq!(sandboxed.finish().await.unwrap(), []);
    // What is known of an answer is known for its problem.
    let square = gold.replace("double", "square").replace("[4, 10, 0]", "[4, 25, 0]");
    sandboxed.begin(0, asked(&format!("{}\n# 0", answers[0])));
    sandboxed.begin(1, Question { gold: vec![square], ..asked("def square(x): return x * x\n# 0") });
    sandboxed.begin(
        2,
        Question { gold: vec![gold.replace("4, 10", "5, 10")], ..asked(&format!("{}\n# 0", answers[0])) },
    );
    let mut all = sandboxed.finish().await.unwrap();
    all.sort_by_key(|(place, _)| *place);
    let correct: Vec<_> = all.into_iter().map(|(_, opinion)| opinion.unwrap().correct.unwrap()).collect();
    assert_eq!(correct, [true, true, false]);
}

/// math-verify in the sandbox gives the verdicts of the one in a process, and says of what it is made.
#[tokio::test]
async fn math_verify_is_asked_in_the_sandbox_too() {
    let named = |name: &str| std::env::var_os(name).map(Into::into);
    let config = PythonConfig {
        interpreter: named("ALLOT_PYTHON"),
        wheels: named("ALLOT_WHEELS"),
        ..PythonConfig::default()
    };
    let met = match Sandboxed::check(&config, AnyGrader::MathVerify) {
        Err(error) if error.what.starts_with("there is no ") => {
            assert!(error.hints[0].ends_with("allot fetch math-verify"), "{error:?}");
            return skip("wheels", "no wheels of math-verify: allot fetch math-verify");
        }
        met => met.unwrap(),
    };
    let told = met.identity.hello;
    assert!(told.name.unwrap().starts_with("math-verify 0.8.0, latex2sympy2_extended 1.10.2, sympy 1.14.0"));
    assert_eq!(told.version.unwrap().matches("sha256:").count(), 2);
    let mut sandboxed = Sandboxed::new(&config, AnyGrader::MathVerify).unwrap();
    let asked = |gold: &[&str], answer: &str| Question {
        gold: gold.iter().map(|g| (*g).to_owned()).collect(),
        answer: answer.to_owned(),
        ..Question::default()
    };
    let all = [
        asked(&["7", r"\frac{1}{2}"], "So it is $0.5$."),
        asked(&[""], "5"),
        asked(&["5"], r"\boxed{10^{10^{10}}!}"),
        asked(&["(x+1)^2"], r"\boxed{x^2+2x+1}"),
        asked(&["5"], "```python\nprint('true')\n```"),
    ];
    for (place, question) in all.into_iter().enumerate() {
        sandboxed.begin(place, question);
    }
    let mut got = sandboxed.finish().await.unwrap();
    got.sort_by_key(|(place, _)| *place);
    let unread = "the grader says: ValueError: math-verify reads nothing out of the gold answer ''";
    let wanted = [Ok(true), Err(unread.to_owned()), Ok(false), Ok(true), Ok(false)];
    for ((place, got), wanted) in got.iter().zip(wanted) {
        assert_eq!(got.clone().map(|judgement| judgement.correct), wanted.map(Some), "{place}");
    }
    // Whether a verdict is certain without the sandbox does not change when it is known.
    for _ in 0..2 {
        sandboxed.begin(0, asked(&["5"], r"So it is \boxed{5}."));
        sandboxed.begin(1, asked(&["(x+1)^2"], r"\boxed{x^2+2x+1}"));
        let mut got = sandboxed.finish().await.unwrap();
        got.sort_by_key(|(place, _)| *place);
        let certain = |is| Ok(Judgement { certain: Some(is), ..true.into() });
        assert_eq!(got, [(0, certain(true)), (1, certain(false))]);
    }
}

#[test]
fn a_judge_that_does_not_start_is_told_before_anything_else() {
    let folder = tempfile::tempdir().unwrap();
    let told = |judge: GraderCommand| Processes::new(judge).check().unwrap_err();
    let script = |script: &str| told(judge(folder.path(), script));
    let config = |words: &[&str]| JudgeConfig {
        command: Some(words.iter().map(|w| (*w).to_owned()).collect()),
        ..JudgeConfig::default()
    };
    let by_hand = "try it by hand: echo '{\"id\":1,\"gold\":[\"5\",\"five\"],\"prompt\":\"\",\"source\":\"\",\"answer\":\"hello\"}' | ";
    let protocol = "answer each line like {\"id\":1,\"gold\":[\"5\",\"five\"],\"prompt\":\"\",\"source\":\"\",\"answer\":\"hello\"} \
                    with a line like {\"id\":1,\"correct\":true}, or {\"id\":1,\"error\":\"why not\"}, and \
                    print nothing else";

    let missing = told(GraderCommand::command(&config(&["no-such-judge", "--fast"]), question("hello")));
    let what = "the grader `no-such-judge --fast` could not be started: there is no such program";
    assert_eq!(missing, Error::new(what).hint(format!("{by_hand}no-such-judge --fast")));

    let ends = script("echo 'no module named x' >&2; exit 3");
    assert_eq!(ends.what, "the grader `puppet` ended with exit status 3, and last said `no module named x`");
    assert!(ends.hints[0].starts_with(by_hand));
    assert_eq!(script("read -r line; exit 0").what, "the grader `puppet` ended with exit status 0");

    let babbles = script("echo ready; cat");
    let what = "the grader `puppet` said `ready`, which does not answer the question";
    assert_eq!(babbles, Error::new(what).hint(protocol));

    let patience = Duration::from_secs(1);
    let hangs = told(GraderCommand { patience, ..judge(folder.path(), "exec sleep 600") });
    let slow = "raise `reward.process.start_seconds` if it starts slowly";
    let what = "the grader `puppet` gave no answer within 1 s";
    assert_eq!(hangs, Error::new(what).hint(protocol).hint(slow));
    // How long that is waited for follows from what an answer may take, unless it is said.
    let waits = |seconds, start_seconds| {
        let config = JudgeConfig { seconds, start_seconds, ..config(&["judge"]) };
        GraderCommand::command(&config, question("hello")).patience.as_secs_f64()
    };
    assert_eq!([waits(0.5, None), waits(10.0, None), waits(60.0, None)], [10.0, 60.0, 360.0]);
    assert_eq!(waits(10.0, Some(2.5)), 2.5);

    let python = told(GraderCommand::math_verify(&config(&["no-such-python"]), question("5")));
    assert!(python.what.starts_with("the grader `no-such-python math_verify.py` could not be started"));
    assert!(python.hints.iter().any(|h| h.contains("pip install math-verify==0.8.0")));

    // It may be unsure: it works.
    let preflight = |script: &str| Processes::new(judge(folder.path(), script)).check().map(|g| g.opinion);
    assert_eq!(preflight(PUPPET), Ok(judged(false)));
    let unsure = r#"read -r line; echo '{"id":1,"error":"a greeting?"}'"#;
    assert_eq!(preflight(unsure), Ok(Err("a greeting?".to_owned())));
}

#[test]
fn a_judge_that_does_not_come_up_again_ends_the_run_at_the_third_try() {
    let folder = tempfile::tempdir().unwrap();
    let script =
        format!("echo up >>started\nif [ -e once ]; then echo full >&2; exit 4; fi\n: >once\n{PUPPET}");
    let mut pool = Processes::new(GraderCommand { processes: 1, ..judge(folder.path(), &script) });
    let error = ask(&mut pool, &["right", "die", "right"]).unwrap_err();
    assert_eq!(error.what, "the grader `puppet` ended with exit status 4, and last said `full`");
    assert_eq!(std::fs::read_to_string(folder.path().join("started")).unwrap(), "up\n".repeat(4));
}

// ---- The config

const CONFIG: &str = include_str!("cases/judged.toml");

fn config(reward: &str) -> String {
    format!("[reward]\n{reward}\n{CONFIG}")
}

#[test]
fn a_config_says_who_judges_and_what_is_wrong_with_that() {
    let read = |reward: &str| TrainConfig::parse(&config(reward), "run.toml");
    for good in [
        "grader = \"exact\"",
        "grader = \"math-verify\"",
        "grader = \"math-verify\"\n[reward.process]\nprocesses = 4",
        "grader = \"math-verify\"\n[reward.process]\ncommand = [\"python3.12\"]",
        "grader = \"command\"\n[reward.process]\ncommand = [\"./judge\", \"-v\"]\nseconds = 0.5",
    ] {
        let config = read(good).unwrap();
        let again = TrainConfig::parse(&toml::to_string(&config).unwrap(), "resolved.toml").unwrap();
        assert_eq!(config, again);
    }
    let with_command =
        |more: &str| format!("grader = \"command\"\n[reward.process]\ncommand = [\"judge\"]\n{more}");
    for (bad, what, hint) in [
        (
            "grader = \"command\"".to_owned(),
            "`run.toml` has grader `command` but no command",
            r#"write one under [reward.process], like command = ["python3", "judge.py"]"#,
        ),
        (
            "grader = \"command\"\n[reward.process]\nprocesses = 1".to_owned(),
            "`run.toml` has grader `command` but no command",
            r#"write one under [reward.process], like command = ["python3", "judge.py"]"#,
        ),
        (
            "grader = \"exact\"\n[reward.process]\nprocesses = 1".to_owned(),
            "`run.toml` has a section [reward.process], but grader `exact` does not start any",
            "leave the section out, or use grader `command`, `functions` or `math-verify`",
        ),
        (
            "grader = \"command\"\n[reward.process]\ncommand = []".to_owned(),
            "`run.toml`: `reward.process.command` is empty",
            "set it to a list of a program and its arguments",
        ),
        (
            with_command("processes = 0"),
            "`run.toml`: `reward.process.processes` is 0; expected 1 to 1024",
            "",
        ),
        (
            with_command("seconds = 0"),
            "`run.toml`: `reward.process.seconds` is 0; expected more than 0 and at most 86400",
            "",
        ),
        (
            with_command("second = 5"),
            "`run.toml` line 5, `second = 5`: unknown field `second`, expected one of `command`, `processes`, \
             `seconds`, `start_seconds`",
            "did you mean `seconds`?",
        ),
        (
            "grader = \"math_verify\"".to_owned(),
            "`run.toml` line 2, `grader = \"math_verify\"`: unknown variant `math_verify`, expected one of \
             `hendrycks`, `tinker`, `dapo-line`, `dapo-box`, `integer`, `choice`, `countdown`, `exact`, \
             `number`, `math-verify` (needs math-verify: a Python that has it, or allot fetch math-verify), `command` (needs a program of yours), `functions` (needs python3 and a file of functions), `python` (needs CPython for Wasm: allot fetch python), `http` (needs a server), `component` (needs a component of yours: allot new --kind grader), `environment` (needs a Python with verifiers or reasoning-gym), `pattern`, `episode` (needs a section [environment])",
            "did you mean `math-verify`?",
        ),
    ] {
        let hint = (!hint.is_empty()).then_some(hint);
        assert_eq!(read(&bad).unwrap_err(), Error::told(what, hint), "{bad}");
    }
}

// ---- Whole runs

/// Whether a program runs here; where it does not the test is skipped.
fn has(what: &str, words: &[&str]) -> bool {
    let quiet = Command::new(words[0])
        .args(&words[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let has = quiet.is_ok_and(|status| status.success());
    if !has {
        skip(what, &format!("this machine has no `{}`", words.join(" ")));
    }
    has
}

const STRICT: &str = r#"
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    print(json.dumps({"id": asked["id"], "correct": asked["answer"].strip() in asked["gold"]}))
"#;

/// The lines of a run's record after the first, which names the grader.
fn record(scratch: &Scratch, run: &str) -> Vec<String> {
    scratch.read(&format!("{run}/record.jsonl")).lines().skip(1).map(str::to_owned).collect()
}

#[test]
fn a_run_that_a_process_judges_is_the_same_as_one_that_a_grader_judges() {
    if !has("python3", &["python3", "--version"]) {
        return;
    }
    let scratch = Scratch::new();
    scratch.write("judge.py", STRICT);
    scratch.write("exact.toml", config("grader = \"exact\""));
    let command = "grader = \"command\"\n[reward.process]\ncommand = [\"python3\", \"judge.py\"]";
    scratch.write("judged.toml", config(command));
    for name in ["exact", "judged"] {
        let said = scratch.allot(&["train", &format!("{name}.toml"), "--out", name]);
        assert!(said.ends_with("exit code 0") && !said.contains("note:"), "{said}");
    }
    assert_eq!(record(&scratch, "exact"), record(&scratch, "judged"));
    // The script's path is whole, so that the run can be taken up from anywhere.
    let whole = scratch.path().canonicalize().unwrap().join("judge.py");
    let resolved = scratch.read("judged/resolved.toml");
    assert!(resolved.contains("judge.py") && resolved.contains(&*whole.to_string_lossy()), "{resolved}");
}

#[test]
fn answers_without_a_verdict_are_left_out_counted_and_told_of() {
    let scratch = Scratch::new();
    // It dies at some answers, whoever asks. A process that has answered before is not believed: the answer
    // is given to a fresh one, whose first it is after the greeting.
    let script = r#"
n=0
while read -r line; do
  n=$((n+1))
  if [ $n = 1 ]; then echo "{\"id\":$n,\"correct\":true}"; continue; fi
  case "${line##*answer}" in
    *[1-4]*) if [ $n = 2 ]; then echo x >>lost; fi; echo 'out of paper' >&2; exit 1 ;;
    *) echo x >>kept; echo "{\"id\":$n,\"correct\":false}" ;;
  esac
done
"#;
    scratch.write("judge.sh", script);
    let command = "grader = \"command\"\n[reward.process]\nprocesses = 1\ncommand = [\"sh\", \"judge.sh\"]";
    scratch.write("run.toml", config(command));
    let said = scratch.allot(&["train", "run.toml", "--out", "run"]);
    assert!(said.ends_with("exit code 0"), "{said}");
    let unjudged = scratch.read("lost").lines().count();
    assert!(scratch.read("kept").lines().count() > 3 && unjudged > 3, "some of both: {said}");
    let notes: Vec<&str> = said.lines().filter(|line| line.starts_with("note: ")).collect();
    assert!(
        notes.len() >= 2 && notes[0].contains("could not be graded; reason for the last: the grader "),
        "{said}"
    );
    assert!(notes.last().unwrap().starts_with(&format!("note: {unjudged} answers could not")), "{said}");
    assert!(said.contains("ended with exit status 1, and last said `out of paper`"), "{said}");

    let mut counted = 0.0;
    for line in scratch.read("run/metrics.jsonl").lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        // The scores at the start and at the end are lines of their own.
        let Some(unscorable) = row["alloc/unscorable"].as_f64() else { continue };
        counted += unscorable;
        assert_eq!(row["alloc/sampled"], 16.0);
    }
    let (mut rewards, mut unscorable) = (Vec::new(), 0);
    for line in record(&scratch, "run") {
        let line: Value = serde_json::from_str(&line).unwrap();
        for group in line["sampled"].as_array().into_iter().flatten() {
            rewards.extend(group["rewards"].as_array().unwrap().clone());
            unscorable += group["unscorable"].as_u64().unwrap_or(0);
        }
    }
    assert_eq!(rewards.len() as u64 + unscorable, 32);
    assert!(
        unscorable > 3 && rewards.len() > 3 && counted == unscorable as f64,
        "{counted} counted, {unscorable} recorded"
    );
    assert!(rewards.iter().all(|reward| *reward == 0.0), "an answer without a verdict is no wrong one");
}

/// Judges like `exact`, and fails where the answer is wrong.
const BREAKS_ON_WRONG: &str = r#"
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    right = asked["answer"].strip() in asked["gold"]
    said = {"correct": True} if right else {"error": "no idea"}
    print(json.dumps({"id": asked["id"], **said}))
"#;

/// A number of a run's last score, by name.
fn last_score(scratch: &Scratch, run: &str, name: &str) -> f64 {
    let record = scratch.read(&format!("{run}/record.jsonl"));
    let end: Value = serde_json::from_str(record.lines().last().unwrap()).unwrap();
    if name == "accuracy" {
        return end["accuracy"].as_f64().unwrap();
    }
    let scores = end["scores"].as_array().unwrap();
    scores.iter().find(|s| s[0] == name).unwrap_or_else(|| panic!("{scores:?}"))[1].as_f64().unwrap()
}

#[test]
fn a_judge_that_fails_on_wrong_answers_raises_no_score() {
    if !has("python3", &["python3", "--version"]) {
        return;
    }
    let scratch = Scratch::new();
    scratch.write("judge.py", BREAKS_ON_WRONG);
    // Without an update all runs answer the same.
    let config = |reward: &str, unjudged: &str| {
        let more = format!("problems = 8\nrollouts = 4\nevery = 1{unjudged}");
        config(reward).replace("problems = 8", &more).replace("steps = 2", "steps = 1")
            + "\n[optimizer]\nlearning_rate = 0\nweight_decay = 0\n"
    };
    let command = "grader = \"command\"\n[reward.process]\ncommand = [\"python3\", \"judge.py\"]";
    scratch.write("exact.toml", config("grader = \"exact\"", ""));
    scratch.write("breaks.toml", config(command, ""));
    scratch.write("left-out.toml", config(command, "\nunjudged = \"leave-out\""));
    for run in ["exact", "breaks", "left-out"] {
        let said = scratch.allot(&["train", &format!("{run}.toml"), "--out", run]);
        assert!(said.ends_with("exit code 0"), "{said}");
    }
    let of = |run: &str, name: &str| last_score(&scratch, run, name);
    assert!((0.05..0.95).contains(&of("exact", "accuracy")), "some of both: {}", of("exact", "accuracy"));
    for name in ["accuracy", "eval/held-out/avg@4", "eval/held-out/pass@2", "eval/held-out/pass@4"] {
        assert_eq!(of("breaks", name), of("exact", name), "{name}");
    }
    assert_eq!(of("exact", "eval/held-out/unjudged"), 0.0);
    for run in ["breaks", "left-out"] {
        assert_eq!(of(run, "eval/held-out/unjudged"), 1.0 - of("exact", "accuracy"));
    }
    assert_eq!(of("left-out", "accuracy"), 1.0, "what is left out counts for nothing");
    let metrics = scratch.read("breaks/metrics.jsonl");
    assert!(metrics.contains("\"eval/held-out/unjudged\":"), "{metrics}");

    let told = scratch.allot(&["report", "breaks", "--out", "told"]);
    let told = told + &scratch.read("told/report.json");
    let percent = format!("{:.1}\u{a0}%", 100.0 - 100.0 * of("exact", "accuracy"));
    let warning = format!("up to {percent} of a set's answers have no verdict; they count as not solved");
    assert!(told.contains(&warning), "{warning}: {told}");
    scratch.allot(&["report", "left-out", "--out", "other"]);
    assert!(scratch.read("other/report.json").contains("are left out of its accuracies"));
    scratch.allot(&["report", "exact", "--out", "third"]);
    assert!(!scratch.read("third/report.json").contains("have no verdict"));
}

#[test]
fn a_run_without_its_judge_does_not_begin() {
    let scratch = Scratch::new();
    let command =
        "grader = \"command\"\n[reward.process]\ncommand = [\"sh\", \"-c\", \"echo broken >&2; exit 5\"]";
    scratch.write("run.toml", config(command));
    let dry = scratch.allot(&["train", "run.toml", "--dry-run"]);
    let said = scratch.allot(&["train", "run.toml", "--out", "run"]);
    for said in [dry, said] {
        let what = "error: the grader `sh -c echo broken >&2; exit 5` ended with exit status 5, and last said \
                    `broken`";
        assert!(
            said.contains(what) && said.contains("\nhint: try it by hand") && said.ends_with("exit code 2"),
            "{said}"
        );
    }
    assert!(!scratch.path().join("run").exists(), "nothing was made");
}

#[test]
fn a_judge_that_is_lost_in_the_middle_ends_the_run_in_a_sentence() {
    let scratch = Scratch::new();
    let script = format!("[ -e once ] && [ -e twice ] && exit 6; [ -e once ] && : >twice; : >once\n{PUPPET}");
    // No answer of the model is known to the puppet: it dies at the tenth.
    let script = script.replace("*) echo", "*) [ $n = 10 ] && exit 7; echo");
    scratch.write("judge.sh", script);
    let command = "grader = \"command\"\n[reward.process]\nprocesses = 1\ncommand = [\"sh\", \"judge.sh\"]";
    scratch.write("run.toml", config(command));
    let said = scratch.allot(&["train", "run.toml", "--out", "run"]);
    assert!(said.contains("judge.sh` ended with exit status 6") && said.ends_with("exit code 2"), "{said}");
    assert!(said.contains("hint: try it by hand"), "{said}");
}

/// A command of Python, for a config.
fn python(script: &str, more: &str) -> String {
    format!(
        "grader = \"command\"\n{more}\n[reward.process]\nprocesses = 1\ncommand = [\"python3\", \"{script}\"]"
    )
}

/// Judges like `exact`, says who it is, and is lost after 40 answers until there is a file `found`.
const LOST: &str = r#"
import json, os, sys
print(json.dumps({"name": "strict", "version": open("version").read()}))
for line in sys.stdin:
    with open("count", "a") as f: f.write("x")
    if os.path.getsize("count") > 40 and not os.path.exists("found"): sys.exit(6)
    asked = json.loads(line)
    print(json.dumps({"id": asked["id"], "correct": asked["answer"].strip() in asked["gold"]}))
"#;

#[test]
fn a_run_goes_on_under_its_own_judge_alone() {
    if !has("python3", &["python3", "--version"]) {
        return;
    }
    let scratch = Scratch::new();
    scratch.write("judge.py", LOST);
    scratch.write("version", "1");
    let more = "\n[checkpoint]\nevery = 1\n";
    scratch.write("run.toml", config(&python("judge.py", "")).replace("steps = 2", "steps = 3") + more);
    let said = scratch.allot(&["train", "run.toml", "--out", "run"]);
    assert!(said.contains("exit status 6") && said.ends_with("exit code 2"), "{said}");
    assert!(scratch.path().join("run/checkpoints").read_dir().unwrap().next().is_some(), "{said}");
    scratch.write("found", "");

    let head: Value = serde_json::from_str(scratch.read("run/record.jsonl").lines().next().unwrap()).unwrap();
    let judge = &head["training"]["reward"]["process"];
    assert_eq!((&judge["name"], &judge["version"]), (&"strict".into(), &"1".into()), "{judge}");
    assert_eq!(judge["command"][0], "python3");
    assert!(judge["command"][1].as_str().unwrap().starts_with("sha256:"), "{judge}");
    assert!(!head.to_string().contains(&*scratch.path().to_string_lossy()), "a record holds no path: {head}");

    let before = scratch.read("run/record.jsonl");
    let refused = |how: &str| {
        let said = scratch.allot(&["train", "--resume", "run"]);
        assert!(said.contains("is from a run with another grader: ") && said.contains(how), "{said}");
        assert!(said.contains("\nhint: restore the grader") && said.ends_with("exit code 2"), "{said}");
        assert_eq!(scratch.read("run/record.jsonl"), before, "nothing was touched");
    };
    scratch.write("judge.py", LOST.replace(" in asked", " not in asked"));
    refused("judge.py` has changed");
    scratch.write("judge.py", LOST);
    scratch.write("version", "2");
    refused("it calls itself `strict 2`, and called itself `strict 1`");
    scratch.write("version", "1");
    let said = scratch.allot(&["train", "--resume", "run"]);
    assert!(said.ends_with("exit code 0"), "{said}");
}

#[test]
fn a_judge_that_changes_in_the_middle_of_a_run_judges_no_more() {
    let scratch = Scratch::new();
    // It rewrites its own rules, and leaves.
    let script = "n=0\nwhile read -r line; do\n n=$((n+1))\n echo \"{\\\"id\\\":$n,\\\"correct\\\":true}\"\n \
                  if [ $n = 20 ]; then echo new >rules; exit 0; fi\ndone\n";
    scratch.write("judge.sh", script);
    scratch.write("rules", "old");
    let command = "grader = \"command\"\n[reward.process]\nprocesses = 1\n\
                   command = [\"sh\", \"judge.sh\", \"--rules=rules\"]";
    scratch.write("run.toml", config(command));
    let said = scratch.allot(&["train", "run.toml", "--out", "run"]);
    assert!(said.contains("changed during the run: `rules` has changed"), "{said}");
    assert!(said.ends_with("exit code 2"), "{said}");
}

#[test]
fn runs_of_other_judges_are_other_arms() {
    if !has("python3", &["python3", "--version"]) {
        return;
    }
    let scratch = Scratch::new();
    for (name, script, seed) in [
        ("strict", STRICT.to_owned(), 1),
        ("same", STRICT.to_owned(), 2),
        ("kind", STRICT.replace("in asked", "not in asked"), 3),
    ] {
        let file = format!("{name}.py");
        scratch.write(&file, script);
        let config = config(&python(&file, "")).replace("seed = 1", &format!("seed = {seed}"));
        scratch.write("run.toml", config);
        let said = scratch.allot(&["train", "run.toml", "--out", name]);
        assert!(said.ends_with("exit code 0"), "{said}");
    }
    let said = scratch.allot(&["report", "strict", "same", "kind", "--out", "told"]);
    let report: Value = serde_json::from_str(&scratch.read("told/report.json")).unwrap();
    let arms = report["arms"].as_array().unwrap();
    assert_eq!(arms.len(), 2, "{said}");
    let runs = |arm: &Value| arm["runs"].as_array().unwrap().len();
    assert_eq!(
        (runs(&arms[0]), runs(&arms[1])),
        (2, 1),
        "the same script in another file is one judge: {said}"
    );
    assert_ne!(arms[0]["name"], arms[1]["name"]);
    let differing = report["differing"].to_string();
    assert!(differing.contains("training.reward.process.command"), "{differing}");
}

/// Gives a reward in parts: 1 for a right answer, and a share of its length.
const PARTS: &str = r#"
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    right = asked["answer"].strip() in asked["gold"]
    parts = {"right": float(right), "short": 0.5}
    print(json.dumps({"id": asked["id"], "rewards": parts}))
"#;

#[test]
fn a_judge_gives_rewards_and_parts_of_rewards() {
    if !has("python3", &["python3", "--version"]) {
        return;
    }
    let scratch = Scratch::new();
    scratch.write("judge.py", PARTS);
    let reward = "correct_from = 1.0\nweights = { right = 2.0, short = 0.5 }";
    scratch.write("run.toml", config(&python("judge.py", reward)));
    scratch.write("exact.toml", config("grader = \"exact\"\nright = 2.25\nwrong = 0.25"));
    for name in ["run", "exact"] {
        let said = scratch.allot(&["train", &format!("{name}.toml"), "--out", name]);
        assert!(said.ends_with("exit code 0") && !said.contains("note:"), "{said}");
    }
    // The same rewards and verdicts, one by one; what differs is that the parts are told.
    let mut steps = 0;
    for (judged, exact) in record(&scratch, "run").iter().zip(record(&scratch, "exact")) {
        let mut judged: Value = serde_json::from_str(judged).unwrap();
        if let Some(parts) = judged.as_object_mut().unwrap().remove("rewards") {
            let mean = |i: usize| parts[i][1].as_f64().unwrap();
            assert_eq!((&parts[0][0], &parts[1][0]), (&"right".into(), &"short".into()), "{parts}");
            let reward = judged["reward"].as_f64().unwrap();
            assert!((reward - (2.0 * mean(0) + 0.5 * mean(1))).abs() < 1e-12, "{parts} {reward}");
            steps += 1;
        }
        assert_eq!(judged, serde_json::from_str::<Value>(&exact).unwrap());
    }
    assert_eq!(steps, 2);
    let metrics = scratch.read("run/metrics.jsonl");
    // The first score and the last came with no step, hence without a reward.
    let of_steps: Vec<&str> = metrics.lines().filter(|line| line.contains("\"reward\":")).collect();
    assert_eq!(of_steps.len(), 2, "{metrics}");
    assert!(of_steps.iter().all(|line| line.contains("\"rewards/short/mean\":0.5")), "{metrics}");
    assert!(!scratch.read("exact/metrics.jsonl").contains("rewards/"));
}

#[test]
fn what_a_judge_gives_must_come_to_a_reward() {
    let scratch = Scratch::new();
    let told = |reply: &str, more: &str| {
        let script = format!("i=0; while read -r l; do i=$((i+1)); echo \"{{\\\"id\\\":$i,{reply}}}\"; done");
        scratch.write("judge.sh", script.replace('@', "\\\""));
        let command =
            format!("grader = \"command\"\n{more}\n[reward.process]\ncommand = [\"sh\", \"judge.sh\"]");
        scratch.write("run.toml", config(&command));
        scratch.allot(&["train", "run.toml", "--dry-run"])
    };
    let fine = [
        ("@correct@:true,@reward@:0.5", ""),
        ("@reward@:0.5", "correct_from = 0.5"),
        ("@rewards@:{@a@:1}", "correct_from = 0.5"),
        ("@rewards@:{@a@:1},@correct@:false", "weights = { a = 3.0 }"),
    ];
    for (reply, more) in fine {
        let said = told(reply, more);
        assert!(said.ends_with("exit code 0"), "{reply}: {said}");
    }
    for (reply, more, what) in [
        ("@reward@:0.5", "", "the grader gives a reward, but does not say whether the answer is correct"),
        (
            "@rewards@:{@a@:1}",
            "",
            "the grader gives a reward, but does not say whether the answer is correct",
        ),
        (
            "@rewards@:{@a@:1},@correct@:true",
            "weights = { b = 1.0 }",
            "the grader gives no part `b`, which `weights` has",
        ),
        (
            "@rewards@:{@a@:1,@b@:2},@correct@:true",
            "weights = { b = 1.0 }",
            "the grader gives a part `a`, which `weights` does not have",
        ),
    ] {
        let said = told(reply, more);
        assert!(
            said.contains(what) && said.contains("\nhint: ") && said.ends_with("exit code 2"),
            "{reply}: {said}"
        );
    }
}

#[test]
fn a_judge_that_ignores_the_end_of_its_input_goes_with_a_run_that_is_killed() {
    let scratch = Scratch::new();
    // It answers a few, and then hears nothing any more, nor does what it has started.
    let script = r#"
n=0
while read -r line; do
  n=$((n+1))
  echo "{\"id\":$n,\"correct\":true}"
  if [ $n = 5 ]; then
    sleep 600 & echo $! >>pids
    echo $$ >>pids
    while :; do sleep 600; done
  fi
done
"#;
    scratch.write("judge.sh", script);
    let command = "grader = \"command\"\n[reward.process]\nprocesses = 2\nseconds = 600\n\
                   command = [\"sh\", \"judge.sh\"]";
    scratch.write("run.toml", config(command));
    let mut run = scratch.started(&["train", "run.toml", "--out", "run"]);
    let pids = || std::fs::read_to_string(scratch.path().join("pids")).unwrap_or_default();
    // One of them gets so far: there are eight questions.
    while pids().lines().count() < 2 {
        assert_eq!(run.try_wait().unwrap(), None, "it waits for its judges");
        std::thread::sleep(Duration::from_millis(20));
    }
    run.kill().unwrap();
    run.wait().unwrap();
    for pid in pids().split_whitespace() {
        assert!(gone(pid), "{pid} still runs");
    }
}

// ---- math-verify

/// A Python that has math-verify: the one of `ALLOT_MATH_VERIFY`, or `python3`.
fn math_verify() -> Option<String> {
    let python = std::env::var("ALLOT_MATH_VERIFY").unwrap_or_else(|_| "python3".to_owned());
    has("math-verify", &[&python, "-c", "import math_verify"]).then_some(python)
}

fn recorded() -> PathBuf {
    let own = || scratch::root().join("tests/cases/graders/math_verify_cases.jsonl");
    std::env::var_os("ALLOT_VERIFIER_CASES").map_or_else(own, PathBuf::from)
}

#[test]
fn math_verify_judges_as_recorded() {
    let Some(python) = math_verify() else { return };
    let text = std::fs::read_to_string(recorded()).unwrap();
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let slow = |row: &Value| row["slow"].as_array().is_some_and(|s| s.iter().any(|n| n == "math_verify"));
    let rows: Vec<&Value> = rows.iter().filter(|row| row["math_verify"].is_boolean() && !slow(row)).collect();
    if rows.is_empty() {
        skip("verifier-cases", &format!("`{}` has no verdicts of math-verify", recorded().display()));
        return;
    }
    let text = |row: &Value, column: &str| row[column].as_str().unwrap().to_owned();
    let questions: Vec<Question> = rows
        .iter()
        .map(|row| Question {
            gold: vec![text(row, "gold")],
            answer: text(row, "prediction"),
            ..Question::default()
        })
        .collect();
    let config = JudgeConfig { command: Some(vec![python]), seconds: 30.0, ..JudgeConfig::default() };
    let mut pool = Processes::new(GraderCommand::math_verify(&config, questions[0].clone()));
    pool.check().unwrap();
    let began = Instant::now();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let opinions = runtime.block_on(opinions_on(&mut pool, questions)).unwrap();
    let seconds = began.elapsed().as_secs_f64();
    let mut agree = 0;
    for (row, opinion) in rows.iter().zip(&opinions) {
        if opinion.as_ref().is_ok_and(|said| said.correct == row["math_verify"].as_bool()) {
            agree += 1;
        } else {
            println!("{}: expected {}, got {opinion:?}", row["id"], row["math_verify"]);
        }
    }
    println!("math-verify agrees on {agree} of {} cases, in {seconds:.1} s", rows.len());
    assert!(agree * 1000 >= rows.len() * 995, "{agree} of {}", rows.len());
}

#[test]
fn math_verify_can_be_unsure_and_late() {
    let Some(python) = math_verify() else { return };
    let command = Some(vec![python]);
    let start_seconds = Some(60.0);
    let config = JudgeConfig { command, seconds: 3.0, processes: 1, start_seconds };
    let question = |gold: &[&str], answer: &str| Question {
        gold: gold.iter().map(|g| (*g).to_owned()).collect(),
        answer: answer.to_owned(),
        ..Question::default()
    };
    let mut pool = Processes::new(GraderCommand::math_verify(&config, question(&["5"], "5")));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let asked = vec![
        question(&["7", r"\frac{1}{2}"], "So it is $0.5$."),
        question(&[""], "5"),
        question(&["5"], r"\boxed{10^{10^{10}}!}"),
        question(&["5"], r"\boxed{5}"),
    ];
    let got = runtime.block_on(opinions_on(&mut pool, asked)).unwrap();
    assert_eq!((&got[0], &got[3]), (&judged(true), &judged(true)));
    let said = "the grader says: ValueError: math-verify reads nothing out of the gold answer ''";
    assert_eq!(got[1], Err(said.to_owned()));
    println!("{:?}", got[2]);
    assert_ne!(got[2], judged(true));
}
