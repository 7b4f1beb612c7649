//! Problems that environments make and judge: reasoning-gym and verifiers, in the Python of `ALLOT_ENVIRONMENTS`. What
//! a run asks and how it is judged is what the packages say.

#![cfg(unix)]
#![allow(clippy::unwrap_used, missing_docs)]

mod opinions;
mod scratch;
mod skip;

use std::path::Path;

use allot_base::Error;
use allot_config::train::TrainConfig;
use allot_judges::environment::make;
use allot_judges::processes::{GraderCommand, Processes};
use allot_judges::protocol::{Judgement, Opinion, Question};
use allot_settings::reward::JudgeConfig;
use allot_tasks::dataset::EnvironmentConfig;
use opinions::opinions_on;
use scratch::Scratch;
use serde_json::{Value, json};
use skip::skip;

const CONFIG: &str = include_str!("cases/judged.toml");
const SUMS: &str = include_str!("cases/environments/sums.py");

/// The Python that has both packages.
fn python() -> Option<String> {
    let python = std::env::var("ALLOT_ENVIRONMENTS").ok();
    if python.is_none() {
        skip("environments", "ALLOT_ENVIRONMENTS names no Python with reasoning-gym and verifiers");
    }
    python
}

/// The rows that a package makes.
fn made(python: &str, config: Value) -> Result<Vec<Value>, Error> {
    let folder = tempfile::tempdir().unwrap();
    let config: EnvironmentConfig = serde_json::from_value(config).unwrap();
    // A task set that is a file is found where the program runs, and on Python's own path.
    let command = ["env".to_owned(), format!("PYTHONPATH={}", cases().display()), python.to_owned()];
    let files = make(&config, false, &command, folder.path())?;
    let text = files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect::<String>();
    Ok(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

fn cases() -> std::path::PathBuf {
    scratch::root().join("tests/cases/environments")
}

/// What the packages say of answers to rows.
fn judged(python: &str, package: &str, asked: &[(&Value, &str)]) -> Vec<Opinion> {
    let words = ["env".to_owned(), format!("PYTHONPATH={}", cases().display()), python.to_owned()];
    let config =
        JudgeConfig { command: Some(words.to_vec()), processes: 1, seconds: 60.0, ..JudgeConfig::default() };
    let question = |(row, answer): &(&Value, &str)| Question {
        gold: vec![row["answer"].to_string()],
        answer: (*answer).to_owned(),
        ..Question::default()
    };
    let judge = GraderCommand::environment(vec![package.to_owned()], &config, question(&asked[0]));
    let mut pool = Processes::new(judge);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(opinions_on(&mut pool, asked.iter().map(question).collect())).unwrap()
}

#[expect(clippy::unnecessary_wraps, reason = "it stands beside errors")]
fn reward(reward: f32) -> Opinion {
    Ok(Judgement { reward: Some(reward), ..Judgement::default() })
}

#[test]
fn problems_of_reasoning_gym_are_made_and_judged_as_by_itself() {
    let Some(python) = python() else { return };
    // Recorded from the package: questions, answers, and what its scorer said of them.
    let recorded = include_str!("cases/data/reasoning_gym.jsonl");
    let recorded: Vec<Value> = recorded.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut tasks: Vec<&str> = recorded.iter().map(|row| row["dataset"].as_str().unwrap()).collect();
    tasks.dedup();
    assert_eq!(tasks.len(), 5);
    // This scorer fails at what is no number.
    let mut all: Vec<Value> = tasks.iter().map(|task| (*task).into()).collect();
    all.push(json!({ "name": "prime_factorization", "size": 1 }));
    let config = json!({ "use": "reasoning-gym", "tasks": all, "size": 8, "seed": 42 });
    let rows = made(&python, config).unwrap();
    assert_eq!(rows.len(), recorded.len() + 1);
    for (row, recorded) in rows.iter().zip(&recorded) {
        assert_eq!(row["question"], recorded["question"]);
        assert_eq!(row["oracle"], recorded["answer"]);
        assert_eq!(row["metadata"]["source_dataset"], recorded["dataset"]);
        assert_eq!(row["answer"]["version"], json!(["reasoning-gym 0.1.25"]));
    }
    let oracle = |row: &'static Value| (row, row["oracle"].as_str().unwrap());
    let rows: &'static [Value] = rows.leak();
    let mut asked: Vec<(&Value, &str)> =
        rows.iter().flat_map(|row| [oracle(row), (row, "no answer")]).collect();
    // Of a tag the last counts, and nothing else.
    let mut row = rows[0].clone();
    row["answer"]["tag"] = "answer".into();
    let tagged = format!("<answer>0</answer> or <answer>\n{}\n</answer>.", oracle(&rows[0]).1);
    asked.extend([(&row, tagged.as_str()), (&row, oracle(&rows[0]).1)]);
    let mut opinions = judged(&python, "reasoning-gym", &asked);
    assert_eq!(opinions.split_off(asked.len() - 4), [reward(1.0), reward(0.0), reward(1.0), reward(0.0)]);
    for (two, recorded) in opinions.chunks(2).zip(&recorded) {
        assert_eq!(two[0], reward(recorded["score_of_answer"].as_f64().unwrap() as f32), "{recorded}");
        let Ok(Judgement { reward: Some(wrong), .. }) = two[1] else { panic!("{:?}", two[1]) };
        assert!(wrong < 0.1, "{wrong} for {recorded}");
    }
}

#[test]
fn task_sets_of_verifiers_are_judged_by_their_rewards() {
    let Some(python) = python() else { return };
    let config = json!({ "use": "verifiers", "tasks": [{ "name": "sums", "least": 9 }], "size": 3 });
    let rows = made(&python, config).unwrap();
    let questions: Vec<&str> = rows.iter().map(|row| row["question"].as_str().unwrap()).collect();
    assert_eq!(questions, ["9+0=", "9+1=", "9+2="]);
    let stamp = rows[0]["answer"]["version"].as_array().unwrap();
    assert_eq!(stamp[0], "verifiers 0.4.0");
    assert!(stamp[1].as_str().unwrap().starts_with("sha256:"), "{stamp:?}");
    let parts = |right: f32, short: f32| -> Opinion {
        let parts = vec![("right".to_owned(), right), ("short".to_owned(), short)];
        Ok(Judgement { parts, ..Judgement::default() })
    };
    // In another order, by a seed.
    let shuffled = made(&python, json!({ "use": "verifiers", "tasks": ["sums"], "seed": 3 })).unwrap();
    assert_eq!(shuffled.len(), 100);
    assert_ne!(shuffled[0]["question"], "0+0=");
    let first = (&shuffled[0], shuffled[0]["metadata"]["answer"].as_str().unwrap());
    let (wrong, long, raising) = ((&rows[1], "9"), (&rows[2], "It is 11"), (&rows[2], "raise"));
    let asked = [(&rows[0], "9"), wrong, long, first, raising];
    let mut opinions = judged(&python, "verifiers", &asked);
    let failed = opinions.pop().unwrap().unwrap_err();
    assert!(failed.contains("this is asked to fail"), "{failed}");
    assert_eq!(opinions, [parts(0.75, 0.25), parts(0.0, 0.25), parts(0.0, 0.0), parts(0.75, 0.25)]);
}

/// What the script that ships says of each of these task sets, in one process: importing verifiers takes seconds.
const REFUSALS: &str = r#"
import sys
source = open(sys.argv[1]).read()
exec(source[: source.rindex("main()")])
for name in sys.argv[2:]:
    try:
        list(Verifiers(name, {}, None, None).problems())
        print(name, "is taken")
    except SystemExit as e:
        print(e)
"#;

#[test]
fn what_takes_more_than_one_answer_is_refused() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let task = "    @vf.reward(weight=0.75)\n";
    let with = |more: &str| SUMS.replace(task, &format!("{more}\n{task}"));
    let tools = "    @classmethod\n    def toolsets(cls, config):\n        return [1]\n";
    let runtime = "    @vf.reward\n    async def run(self, trace, runtime) -> float:\n        return 0.0\n";
    let cases = [
        ("plain", SUMS.to_owned(), "plain is taken"),
        ("boxed", with("    NEEDS_CONTAINER = True\n"), "boxed needs a container"),
        (
            "begun",
            with("    async def setup(self, trace, runtime):\n        pass\n"),
            "begun has a `setup` that needs a machine",
        ),
        ("scored", with(runtime), "scored has a reward `run` that needs a machine"),
        ("tooled", with(tools), "tooled has tools: it needs [environment] with use = \"verifiers\""),
        ("opened", SUMS.replace("prompt=f\"{a}+{b}=\", ", ""), "opened has no prompt: its user begins"),
        (
            "endless",
            SUMS.replace("    def load", "    INFINITE = True\n\n    def load"),
            "endless has no end: it needs a size",
        ),
    ];
    let mut command = std::process::Command::new(&python);
    let script = scratch::root().join("host/judges/src/environment.py");
    command.args(["-c", REFUSALS]).arg(script).env("PYTHONPATH", folder.path());
    for (name, text, why) in &cases {
        assert!(*name == "plain" || text != SUMS, "{why}");
        std::fs::write(folder.path().join(format!("{name}.py")), text).unwrap();
        command.arg(name);
    }
    let done = command.output().unwrap();
    let said = String::from_utf8(done.stdout).unwrap();
    let expected: Vec<&str> = cases.iter().map(|(_, _, why)| *why).collect();
    assert_eq!(said.lines().collect::<Vec<_>>(), expected, "{}", String::from_utf8_lossy(&done.stderr));

    let missing = json!({ "use": "verifiers", "tasks": ["no-such-set"] });
    let said = made(&python, missing).unwrap_err().what;
    assert!(said.contains("no-such-set is no task set"), "{said}");
    let setting = json!({ "use": "reasoning-gym", "tasks": [{ "name": "chain_sum", "max_term": 3 }] });
    let said = made(&python, setting).unwrap_err().what;
    assert!(said.contains("chain_sum does not take these settings: ") && said.contains("max_term"), "{said}");
}

/// A run on both packages' sums.
fn config(python: &Path) -> String {
    let data = r#"
[[data]]
held_out = 0.2
template = "{{ metadata.expression }}="

[data.environment]
use = "reasoning-gym"
seed = 7
size = 60

[[data.environment.tasks]]
name = "basic_arithmetic"
max_terms = 2
max_digits = 2
operators = ["+"]
allow_negation = false
allow_parentheses = false
whitespace = "no_space"

[[data]]
held_out = 0.2
environment = { use = "verifiers", tasks = ["sums"], size = 30 }
"#;
    let tasks = CONFIG.find("[[tasks]]").unwrap();
    let reward = format!(
        "\n[reward]\ngrader = \"environment\"\n[reward.process]\ncommand = [\"{}\"]\nprocesses = 1\nseconds = 60\n",
        python.display()
    );
    format!("{}{reward}\n[checkpoint]\nevery = 1\n{data}", &CONFIG[..tasks])
}

#[test]
fn a_run_is_on_both_packages() {
    let Some(python) = python() else { return };
    let (scratch, config) = (Scratch::new(), config(Path::new(&python)));
    scratch.write("sums.py", SUMS);
    scratch.write("run.toml", &config);
    let said = scratch.allot(&["train", "run.toml", "--out", "run"]);
    assert!(said.ends_with("exit code 0"), "{said}");
    let record = scratch.read("run/record.jsonl");
    let (head, rest) = record.split_once('\n').unwrap();
    let head: Value = serde_json::from_str(head).unwrap();
    let judge = &head["training"]["reward"]["process"];
    assert_eq!(judge["name"], "reasoning-gym 0.1.25, verifiers 0.4.0");
    assert!(judge["version"].as_str().unwrap().starts_with("Python 3."), "{judge}");
    // Some are right, and the parts of a task set are there by name.
    assert!(rest.contains("\"right\"") && rest.contains("0.75"), "{rest}");
}

#[test]
fn a_run_on_an_environment_goes_on_as_it_began() {
    let Some(python) = python() else { return };
    let (scratch, config) = (Scratch::new(), config(Path::new(&python)));
    let one = config[..config.rfind("[[data]]").unwrap()].replace("steps = 2", "steps = 3");
    scratch.write("run.toml", one);
    let said = scratch.allot(&["train", "run.toml", "--out", "whole"]);
    assert!(said.ends_with("exit code 0"), "{said}");
    let mut child = scratch.started(&["train", "run.toml", "--out", "killed"]);
    let first = scratch.path().join("killed/checkpoints/step-000001");
    while !first.exists() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let _ = child.kill();
    child.wait().unwrap();
    let said = scratch.allot(&["train", "--resume", "killed"]);
    assert!(said.ends_with("exit code 0"), "{said}");
    assert_eq!(scratch.read("killed/record.jsonl"), scratch.read("whole/record.jsonl"));
}

#[test]
fn a_python_without_the_package_is_told_of() {
    let scratch = Scratch::new();
    // Without any package that was installed.
    scratch.write("run.toml", config(Path::new("python3")).replace("\"python3\"", "\"python3\", \"-S\""));
    let said = scratch.allot(&["train", "run.toml", "--dry-run"]);
    assert!(said.contains("`python3 -S` could not generate the problems of reasoning-gym: "), "{said}");
    assert!(said.contains("hint: install reasoning-gym with `pip install reasoning-gym==0.1.25`"), "{said}");
    assert!(said.ends_with("exit code 2"), "{said}");
}

#[test]
fn a_config_says_what_environments_make() {
    let whole = config(Path::new("python3"));
    assert!(TrainConfig::parse(&whole, "run.toml").is_ok());
    let cases = [
        ("use = \"reasoning-gym\"", "use = \"gym\"", "unknown variant `gym`"),
        ("tasks = [\"sums\"]", "tasks = []", "`data.environment.tasks`: expected at least one task"),
        ("size = 30", "size = 0", "`data.environment.size`: expected at least 1"),
        (
            "size = 30",
            "tag = \"a\"",
            "`data.environment.tag`: task sets of verifiers parse answers themselves",
        ),
        ("environment = {", "files = \"x.jsonl\"\nenvironment = {", "with both `files` and `environment`"),
        (
            "environment = { use = \"verifiers\", tasks = [\"sums\"], size = 30 }",
            "",
            "a data set without `files`",
        ),
    ];
    for (from, to, why) in cases {
        assert!(whole.contains(from), "{from}");
        let error = TrainConfig::parse(&whole.replace(from, to), "run.toml").unwrap_err();
        assert!(error.what.contains(why), "{error:?}");
    }
    let scratch = Scratch::new();
    let exact = whole.split("[reward]").next().unwrap().to_owned()
        + "[reward]\ngrader = \"exact\"\n"
        + &whole[whole.find("[checkpoint]").unwrap()..];
    scratch.write("run.toml", exact);
    let said = scratch.allot(&["train", "run.toml", "--dry-run"]);
    assert!(said.contains("only reasoning-gym can grade its own problems"), "{said}");
}
