//! Task sets of verifiers as environments, in the Python of `ALLOT_ENVIRONMENTS`: verifiers' own environment server, client
//! and renderers, with a task set that has tools, one of games, and one of OpenEnv.

#![cfg(unix)]
#![allow(clippy::unwrap_used, missing_docs)]

mod scratch;
mod skip;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use allot_allocation::PromptId;
use allot_base::Error;
use allot_engine::episode::{Ended, Opening, Reply, Stopped};
use allot_engine::talk::{Event, Talk};
use allot_engine::{Environments as _, Replies, Said};
use allot_judges::environment::make;
use allot_judges::verifiers::{TaskSets, Verifiers};
use allot_models::tokens::Tokens;
use allot_settings::EnvironmentSettings;
use allot_tasks::Problem;
use allot_tasks::dataset::{Dataset, DatasetConfig};
use scratch::{Scratch, root};
use serde_json::{Value, json};
use skip::skip;

fn python() -> Option<String> {
    let python = std::env::var("ALLOT_ENVIRONMENTS").ok();
    if python.is_none() {
        skip("environments", "ALLOT_ENVIRONMENTS names no Python with verifiers");
    }
    python
}

fn cases() -> String {
    root().join("tests/cases/verifiers").display().to_string()
}

/// The Python with the task sets, and with the words that games of TextArena take.
fn command(python: &str, scratch: &Scratch) -> Vec<String> {
    let words = format!("NLTK_DATA={}", scratch.path().display());
    ["env".to_owned(), format!("PYTHONPATH={}", cases()), words, python.to_owned()].to_vec()
}

/// A model's folder: its tokenizer with the chat template of Qwen 3.
fn model(to: &Path) {
    let from = root().join("tests/cases/models/tiny-qwen3-tied");
    for name in ["tokenizer.json", "config.json", "generation_config.json"] {
        fs::copy(from.join(name), to.join(name)).unwrap();
    }
    let read = |path: &Path| -> Value { serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap() };
    let mut config = read(&from.join("tokenizer_config.json"));
    config["chat_template"] =
        read(&root().join("tests/cases/chat/qwen3/tokenizer_config.json"))["chat_template"].clone();
    fs::write(to.join("tokenizer_config.json"), config.to_string()).unwrap();
}

/// Episodes of a task set, driven by hand.
struct Played {
    environments: Verifiers,
    tokens: Tokens,
    prompts: Vec<Vec<u32>>,
    channel: (Sender<Event>, Receiver<Event>),
    /// Number of replies by episode.
    replies: Vec<u32>,
    _scratch: Scratch,
}

impl Played {
    /// Episodes of this task, with these settings beside.
    fn new(python: &str, task: &Value, more: Value) -> Result<Self, Error> {
        let scratch = Scratch::new();
        model(scratch.path());
        fs::create_dir_all(scratch.path().join("corpora/words")).unwrap();
        scratch.write("corpora/words/en", "apple\nhouse\nmusic\nriver\n");
        scratch.write("corpora/words/en-basic", "apple\nhouse\nmusic\nriver\n");
        scratch.write("corpora/words/README", "Words.\n");
        let command = command(python, &scratch);
        let problems = problems(task, &command)?;
        let mut process = json!({ "command": command, "processes": 1 });
        process
            .as_object_mut()
            .unwrap()
            .append(&mut more["process"].as_object().cloned().unwrap_or_default());
        let mut all = json!({ "use": "verifiers", "max_turns": 6 });
        all.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
        all["process"] = process;
        let settings: EnvironmentSettings = serde_json::from_value(all).unwrap();
        let tokens = Tokens::read(scratch.path()).unwrap();
        let sets = TaskSets::check(&settings, (scratch.path(), &tokens), &[], problems.iter())?;
        let prompts: Vec<Vec<u32>> = problems.iter().map(|p| sets.prompt(&tokens, p).unwrap()).collect();
        let asked = (Arc::new(problems), prompts.clone());
        let environments = Verifiers::new(settings, Arc::new(sets), asked, |_| {});
        let (channel, replies) = (Talk::channel(), Vec::new());
        Ok(Self { environments, tokens, prompts, channel, replies, _scratch: scratch })
    }

    fn opened(&mut self, number: usize, task: u32, start: u64) {
        self.replies.resize(self.replies.len().max(number + 1), 0);
        self.replies[number] = 0;
        let replies = Replies::of(&self.channel.0, number, 0);
        self.environments.begin(Opening { number, prompt: PromptId(task), start }, &replies);
    }

    /// Begins an episode of a task; its whole prompt as text.
    fn begin(&mut self, number: usize, task: u32) -> String {
        self.opened(number, task, 7);
        let said = self.says(number);
        self.tokens.decode(&[self.prompts[task as usize].as_slice(), &said].concat()).unwrap()
    }

    fn turn(&mut self, number: usize, said: &str, stop: Option<Stopped>) {
        self.replies[number] += 1;
        let mut tokens = if said.is_empty() { Vec::new() } else { self.tokens.encode(said).unwrap() };
        if stop.is_none() {
            tokens.push(self.tokens.stops()[0]);
        }
        let log_probs = vec![-0.5; tokens.len()];
        let replies = Replies::of(&self.channel.0, number, self.replies[number]);
        self.environments.turn(number, Said { tokens: &tokens, log_probs: &log_probs }, stop, &replies);
    }

    /// What follows a turn, as text.
    fn after(&mut self, number: usize, said: &str) -> String {
        self.turn(number, said, None);
        let said = self.says(number);
        self.tokens.decode(&said).unwrap()
    }

    fn reply(&mut self, number: usize) -> Reply {
        match self.channel.1.recv_timeout(Duration::from_mins(2)).unwrap() {
            Event::Reply(of, index, reply) => {
                assert_eq!((of, index), (number, self.replies[number]), "{reply:?}");
                reply
            }
            other => panic!("{other:?}"),
        }
    }

    fn says(&mut self, number: usize) -> Vec<u32> {
        match self.reply(number) {
            Reply::Says(tokens) => tokens,
            other => panic!("{other:?}"),
        }
    }

    fn ends(&mut self, number: usize, said: &str) -> Ended {
        self.turn(number, said, None);
        self.ended(number)
    }

    fn ended(&mut self, number: usize) -> Ended {
        match self.reply(number) {
            Reply::Ends(end) => end,
            other => panic!("{other:?}"),
        }
    }
}

fn problems(task: &Value, command: &[String]) -> Result<Vec<Problem>, Error> {
    let folder = tempfile::tempdir().unwrap();
    let mut made = json!({ "use": "verifiers", "tasks": [task] });
    if task["name"] == "textarena" {
        // It has no end.
        made["size"] = 3.into();
    }
    let config = serde_json::from_value(made).unwrap();
    let files = make(&config, true, command, folder.path())?;
    let mut data: DatasetConfig =
        serde_json::from_value(json!({ "files": files[0], "question": "question", "answer": "answer" }))
            .unwrap();
    // As messages where it has some.
    let first: Value =
        serde_json::from_str(fs::read_to_string(&files[0]).unwrap().lines().next().unwrap()).unwrap();
    data.chat = first["question"].is_array();
    Ok(Dataset::load(&data, folder.path()).unwrap().problems)
}

fn won(reward: f32) -> Ended {
    Ended::rewarded(reward, None)
}

/// A turn in Qwen's form of a call.
fn call(name: &str, arguments: &Value) -> String {
    format!("<tool_call>\n{}\n</tool_call>", json!({ "name": name, "arguments": arguments }))
}

#[test]
fn tools_are_called_by_the_servers_own_protocol() {
    let Some(python) = python() else { return };
    let mut played = Played::new(&python, &json!("shelf"), json!({})).unwrap();
    let prompt = played.begin(0, 1);
    // What the model is told of tools comes from the tool's server, so the prompt begins with what all have in common.
    assert!(prompt.contains(r#"{"type": "function", "function": {"name": "shelf_price""#), "{prompt}");
    assert!(prompt.contains("system\nYou mind a shop.\n\n# Tools"), "{prompt}");
    assert!(prompt.ends_with("user\nWhat do tea and rice cost together?\nassistant\n"), "{prompt}");
    assert_eq!(played.prompts[0], played.prompts[1]);
    let tea = played.after(0, &call("shelf_price", &json!({ "item": "tea" })));
    assert_eq!(tea, "\nuser\n<tool_response>\n3\n</tool_response>\nassistant\n");
    let two = [call("shelf_price", &json!({ "item": "rice" })), call("shelf_cost", &json!({}))].join("\n");
    let said = played.after(0, &two);
    assert!(said.contains("\n2\n") && said.contains("error: unknown tool 'shelf_cost'"), "{said}");
    assert_eq!(played.ends(0, "5"), won(1.0));
    assert!(played.begin(2, 2).contains("What do salt and salt cost together?"), "tasks that differ early");
    assert_eq!(played.ends(2, "2"), won(1.0));
    // One malformed call makes a turn plain text, which ends the episode.
    played.begin(1, 1);
    assert_eq!(played.ends(1, "<tool_call>\n{\"name\": \"shelf_price\"\n</tool_call>"), won(0.0));
}

#[test]
fn rounds_with_an_environment_of_its_own_and_limits() {
    let Some(python) = python() else { return };
    let mut played = Played::new(&python, &json!("rounds"), json!({ "max_turns": 3 })).unwrap();
    // Its prompts are those of the model's chat template, so each is its own, and is read once for a group.
    let prompt = played.begin(0, 1);
    assert_eq!(prompt, "user\nFind a number from 1 to 8.\nassistant\n");
    assert!(played.prompts[0].len() > 20);
    assert_eq!(played.after(0, "1"), "\nuser\nhigher\nassistant\n");
    assert_eq!(played.ends(0, "2"), won(1.0));
    // The limit of turns is verifiers' own, too.
    played.begin(1, 1);
    (0..2).for_each(|_| assert_eq!(played.after(1, "7"), "\nuser\nlower\nassistant\n"));
    assert_eq!(played.ends(1, "8"), Ended { limit: Some(Stopped::MaxTurns), ..won(0.0) });
    // A turn that the limit of tokens cut off, and one that was not sampled: what there is is judged.
    played.begin(2, 1);
    played.turn(2, "2", Some(Stopped::MaxTokens));
    assert_eq!(played.ended(2), won(1.0));
    played.begin(2, 1);
    played.after(2, "1");
    played.turn(2, "", Some(Stopped::MaxReadTokens));
    assert_eq!(played.ended(2), won(0.0));
}

#[test]
fn what_a_task_set_must_not_do_costs_its_episodes() {
    let Some(python) = python() else { return };
    let fails = |then: &str, more: Value| {
        let task = json!({ "name": "rounds", "then": then });
        let mut played = Played::new(&python, &task, more).unwrap();
        played.begin(0, 3);
        let end = if then == "flood" { None } else { Some(played.ends(0, "1").trouble.unwrap()) };
        (played, end.unwrap_or_default())
    };
    let (_, why) = fails("raise", json!({}));
    assert!(why.starts_with("the environment says: RuntimeError: EnvError: RoundsEnv.run()"), "{why}");
    assert!(why.contains("this is asked to fail"), "{why}");
    assert_eq!(fails("nan", json!({})).1, "the environment says: the reward found is nan");
    // Others of the same process go on when one hangs; none does when it ends, and another process takes its place.
    let (mut played, why) = fails("hang", json!({ "process": { "seconds": 15.0 } }));
    assert_eq!(why, "the environment did not reply within 15 s");
    played.begin(1, 3);
    assert_eq!(played.ends(1, "4"), won(1.0));
    let (mut played, why) = fails("exit", json!({}));
    assert_eq!(why, "its process ended with exit status 3");
    played.begin(1, 3);
    assert_eq!(played.ends(1, "4"), won(1.0));
    let (mut played, _) = fails("flood", json!({}));
    played.turn(0, "1", None);
    // The engine's limit of tokens that are read ends it.
    assert!(played.says(0).len() > 1_000_000);
    played.turn(0, "", Some(Stopped::MaxReadTokens));
    assert_eq!(played.ended(0), won(0.0));
    // After an interrupt, episodes begin anew.
    played.begin(0, 3);
    played.environments.abandon();
    played.begin(0, 3);
    assert_eq!(played.ends(0, "4"), won(1.0));
}

/// The next reply, which goes on in this training row: what is read there.
fn elsewhere(played: &mut Played, row: u32, said: &str) -> String {
    played.turn(0, said, None);
    match played.reply(0) {
        Reply::Elsewhere(at, tokens) if at == row => played.tokens.decode(&tokens).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_agent_that_rewrites_what_was_said_has_several_training_rows() {
    let Some(python) = python() else { return };
    let mut played = Played::new(&python, &json!("forgets"), json!({ "max_rows": 3 })).unwrap();
    assert_eq!(played.begin(0, 2), "user\n12-15*2:\nassistant\n");
    assert_eq!(elsewhere(&mut played, 1, "?13"), "user\n12-13*1:\nassistant\n", "a helper's question");
    assert_eq!(elsewhere(&mut played, 0, "?12"), "\nuser\n12-13*1:\nassistant\n", "and the agent goes on");
    assert_eq!(elsewhere(&mut played, 1, "?12"), "\nuser\n12-12*0:\nassistant\n", "the helper, too");
    assert_eq!(elsewhere(&mut played, 2, "!12"), "user\n13-13*0:\nassistant\n", "a summary");
    assert_eq!(played.ends(0, "!14"), won(1.0));

    // One row less than it needs, and no more than one by default.
    for (more, said, rows) in
        [(json!({ "max_rows": 2 }), ["?13", "?12", "?12", "!12"].as_slice(), 2), (json!({}), &["?13"], 1)]
    {
        let mut played = Played::new(&python, &json!("forgets"), more).unwrap();
        played.begin(0, 2);
        for said in &said[..said.len() - 1] {
            played.turn(0, said, None);
            played.reply(0);
        }
        let why = played.ends(0, said[said.len() - 1]).trouble.unwrap();
        assert!(
            why.contains("rewrite what was said")
                && why.contains(&format!("`environment.max_rows` is {rows}")),
            "{why}"
        );
    }
    // A request that is made twice begins a row.
    let more = json!({ "max_rows": 3, "verifiers": { "env": { "agent": { "harness": { "id": "forgets", "again": true } } } } });
    let mut played = Played::new(&python, &json!("forgets"), more).unwrap();
    played.begin(0, 2);
    assert_eq!(elsewhere(&mut played, 1, "?13"), "user\n12-15*2:\nassistant\n");
}

#[test]
fn a_groups_environments_begin_with_one_seed() {
    let Some(python) = python() else { return };
    let task = json!({ "name": "rounds", "then": "start" });
    let settings = json!({ "verifiers": { "seed": "start.seed" } });
    let mut played = Played::new(&python, &task, settings).unwrap();
    let mut says = |number: usize, start: u64| {
        played.opened(number, 0, start);
        played.says(number);
        played.after(number, "8")
    };
    let (one, other, third) = (says(0, 5), says(1, 5), says(2, (1 << 32) + 6));
    assert_eq!((one.as_str(), &other), ("\nuser\n{'seed': 5}\nassistant\n", &one));
    assert_eq!(third, "\nuser\n{'seed': 6}\nassistant\n");
}

#[test]
fn a_game_of_textarena_is_played() {
    let Some(python) = python() else { return };
    let task = json!({ "name": "textarena", "game": "Hangman-v0" });
    let mut played = Played::new(&python, &task, json!({})).unwrap();
    let prompt = played.begin(0, 0);
    assert!(prompt.contains("You are a competitive game player.") && prompt.contains("Hangman"), "{prompt}");
    let said = played.after(0, "[e]");
    assert!(said.starts_with("\nuser\nC00 C01 C02 C03 C04"), "{said}");
    let all = ["[apple]", "[house]", "[music]", "[river]"];
    let found = all.iter().find_map(|word| {
        played.turn(0, word, None);
        match played.reply(0) {
            Reply::Says(_) => None,
            Reply::Ends(end) => Some(end),
            other => panic!("{other:?}"),
        }
    });
    assert_eq!(found, Some(won(1.0)));
}

#[test]
fn an_environment_of_openenv_is_played() {
    let Some(python) = python() else { return };
    let file = root().join("tests/cases/verifiers/counter_env.py");
    let mut server = Command::new(&python).arg(file).stdout(Stdio::piped()).spawn().unwrap();
    let mut port = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut port).unwrap();
    let task = json!({ "name": "openenv", "base_url": format!("http://127.0.0.1:{}", port.trim()) });
    let more = json!({ "verifiers": { "seed": "reset.seed" }, "max_read_tokens": 1000 });
    let played = Played::new(&python, &task, more);
    let mut played = played.unwrap();
    played.opened(0, 0, 3);
    let said = played.says(0);
    let prompt = played.tokens.decode(&[played.prompts[0].as_slice(), &said].concat()).unwrap();
    assert!(prompt.contains(r#""observation": {"metadata": {}, "count": 1}"#), "{prompt}");
    let said = played.after(0, r#"{"by": 2}"#);
    assert!(said.contains(r#""count": 3"#), "{said}");
    assert_eq!(played.ends(0, "2"), won(1.0));
    // What its schema refuses is an error of the episode, as the task set has it.
    played.opened(0, 0, 3);
    played.says(0);
    let why = played.ends(0, "two").trouble.unwrap();
    assert!(why.contains("Server error: Invalid message"), "{why}");
    server.kill().unwrap();
    server.wait().unwrap();
}

#[test]
fn what_can_not_be_played_is_told_before_anything_else() {
    let Some(python) = python() else { return };
    let told = |task: Value, more: Value| match Played::new(&python, &task, more) {
        Ok(_) => panic!("it is taken"),
        Err(error) => error,
    };
    let gone = told(json!("no-such-set"), json!({})).what;
    assert!(gone.contains("no-such-set is no task set"), "{gone}");
    let env = |env: Value| json!({ "verifiers": { "env": env } });
    let several = told(json!("contest"), json!({})).what;
    let why = "verifiers can't play `contest`: contest has several agents without a client of their own: one, other; one can be \
               trained";
    assert_eq!(several, why);
    let boxed = told(json!("rounds"), env(json!({ "player": { "harness": { "id": "codex" } } }))).what;
    assert!(boxed.ends_with("rounds is played by the harness codex, which needs a container"), "{boxed}");
    let wrong = told(json!("rounds"), env(json!({ "players": {} }))).what;
    assert!(wrong.contains("rounds can't be loaded") && wrong.contains("players"), "{wrong}");
    let silent = told(json!({ "name": "rounds", "then": "silent" }), json!({})).what;
    assert!(silent.contains("asks its model nothing"), "{silent}");
    let renderer = told(json!("rounds"), json!({ "verifiers": { "renderer": { "name": "llama_3" } } })).what;
    assert!(renderer.contains("rounds"), "{renderer}");
    let none = Played::new("no-such-python", &json!("rounds"), json!({})).err().unwrap();
    assert!(none.hints.concat().contains("pip install verifiers==0.4.0"));
}

const RUN: &str = r#"
[run]
seed = 1
steps = 8
groups = 4
rollouts = 6

[budget]
rollouts = 400

[policy]
use = "uniform"

[model]
use = "./mine"
threads = 2
rows = 24

[sampling]
max_tokens = 32

[environment]
use = "verifiers"
max_turns = 8
max_read_tokens = 80

[environment.verifiers]
seed = "seed"

[environment.process]
command = [COMMAND]

[reward]
grader = "episode"

[optimizer]
learning_rate = 3e-4

[evaluation]
every = 4
rollouts = 1

[checkpoint]
every = 1

[[data]]
chat = true
held_out = 0.1

[data.environment]
use = "verifiers"
tasks = [{ name = "hidden", games = 60 }]
"#;

/// A run's record but for its first line, which has the day.
fn record(scratch: &Scratch, run: &str) -> String {
    scratch.read(&format!("{run}/record.jsonl")).split_once('\n').unwrap().1.to_owned()
}

/// The config of a run of the shipped model, which lies beside it with a chat template.
fn config(python: &str, scratch: &Scratch) -> String {
    scratch.chat_model("tiny-guess");
    let command: Vec<String> = command(python, scratch).iter().map(|word| format!("{word:?}")).collect();
    RUN.replace("COMMAND", &command.join(", "))
}

/// Trains to the end, and once more with a kill after so many lines of the record; both come to the same record. Returns it.
fn trained_twice(scratch: &Scratch, config: &str, lines: usize) -> String {
    scratch.write("run.toml", config);
    let said = scratch.allot(&["train", "run.toml", "--out", "out"]);
    assert!(said.ends_with("exit code 0"), "{said}");
    let mut run = scratch.command(&["train", "run.toml", "--out", "again"]);
    let mut run = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let path = scratch.path().join("again/record.jsonl");
    while fs::read_to_string(&path).map_or(0, |text| text.lines().count()) < lines {
        assert!(run.try_wait().unwrap().is_none(), "it ended before it was killed");
        std::thread::sleep(Duration::from_millis(10));
    }
    run.kill().unwrap();
    run.wait().unwrap();
    scratch.allot(&["train", "--resume", "again"]);
    assert_eq!(record(scratch, "again"), record(scratch, "out"));
    record(scratch, "out")
}

#[test]
fn the_shipped_model_trains_on_a_task_set_and_a_killed_run_comes_to_the_same_end() {
    let Some(python) = python() else { return };
    let scratch = Scratch::new();
    trained_twice(&scratch, &config(&python, &scratch), 14);
    let head = scratch.read("out/record.jsonl");
    let head: Value = serde_json::from_str(head.lines().next().unwrap()).unwrap();
    let environment = &head["training"]["environment"];
    assert_eq!(
        (&environment["use"], &environment["process"]["version"].is_string()),
        (&json!("verifiers"), &true)
    );
    let shown = scratch.allot(&["rollouts", "out", "--show", "4"]);
    assert!(shown.contains("environment: ") && shown.contains("model: ?"), "{shown}");
}

/// Each is one in the record, and is shown with its rows.
#[test]
fn rollouts_of_several_training_rows_are_trained_on_and_a_killed_run_comes_to_the_same_end() {
    let Some(python) = python() else { return };
    let scratch = Scratch::new();
    let config = config(&python, &scratch).replace("\"hidden\", games = 60", "\"forgets\"");
    let config = config.replace("max_read_tokens = 80", "max_read_tokens = 80\nmax_rows = 3");
    let record = trained_twice(&scratch, &config.replace("seed = \"seed\"\n", ""), 10);
    let lines = record.lines().filter(|line| line.starts_with(r#"{"kind":"rollouts""#));
    let lines: Vec<Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    let groups: Vec<&Value> = lines.iter().flat_map(|line| line["sampled"].as_array().unwrap()).collect();
    assert!(!groups.is_empty());
    assert!(groups.iter().all(|group| group["rewards"].as_array().unwrap().len() == 6), "{groups:?}");
    let shown = scratch.allot(&["rollouts", "out", "--show", "40"]);
    assert!(shown.contains(" and 3 training rows, "), "{shown}");
    for row in ["environment (training row 2): ", "environment (training row 1): "] {
        assert!(shown.contains(row), "{shown}");
    }
}
