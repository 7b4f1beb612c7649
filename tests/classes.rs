//! Environment classes of TRL's form, in the Python of `ALLOT_ENVIRONMENTS`, which has transformers.

#![cfg(unix)]
#![allow(clippy::unwrap_used, missing_docs)]

mod scratch;
mod skip;

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use allot_allocation::PromptId;
use allot_engine::episode::{Ended, Opening, Reply, Stopped};
use allot_engine::talk::{Event, Talk};
use allot_engine::{Environments as _, Replies, Said};
use allot_judges::classes::{Classes, Toolbox};
use allot_models::tokens::Tokens;
use allot_record::{Line, Reader};
use allot_settings::EnvironmentSettings;
use allot_tasks::Problem;
use allot_tasks::dataset::{Dataset, DatasetConfig};
use scratch::{Scratch, root};
use serde_json::{Value, json};
use skip::skip;

fn python() -> Option<String> {
    let python = std::env::var("ALLOT_ENVIRONMENTS").ok();
    if python.is_none() {
        skip("environments", "ALLOT_ENVIRONMENTS names no Python with transformers");
    }
    python
}

/// A model's tokenizer with the chat template of Qwen 3.
fn tokens() -> Arc<Tokens> {
    let scratch = Scratch::new();
    let from = root().join("tests/cases/models/tiny-qwen3-tied");
    for name in ["tokenizer.json", "config.json", "generation_config.json"] {
        fs::copy(from.join(name), scratch.path().join(name)).unwrap();
    }
    let read = |path: &Path| -> Value { serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap() };
    let mut config = read(&from.join("tokenizer_config.json"));
    config["chat_template"] =
        read(&root().join("tests/cases/chat/qwen3/tokenizer_config.json"))["chat_template"].clone();
    scratch.write("tokenizer_config.json", config.to_string());
    Arc::new(Tokens::read(scratch.path()).unwrap())
}

/// Episodes of classes, driven by hand.
struct Played {
    classes: Classes,
    tokens: Arc<Tokens>,
    prompts: Vec<Vec<u32>>,
    channel: (Sender<Event>, Receiver<Event>),
    /// Number of replies by episode.
    replies: Vec<u32>,
}

impl Played {
    /// Environments with these settings beside the class's, for rows of a data set.
    fn new(python: &str, names: Value, more: Value, rows: &[Value]) -> Self {
        let (settings, problems) = (settings(python, names, more), problems(rows));
        let tokens = tokens();
        let toolbox = Toolbox::check(&settings, settings.class.as_ref().unwrap(), &tokens).unwrap();
        let prompts: Vec<Vec<u32>> =
            problems.iter().map(|problem| toolbox.prompt(&tokens, problem).unwrap()).collect();
        let stops = tokens.stops_and(&[]).unwrap();
        let speech = (Arc::clone(&tokens), stops);
        let asked = (Arc::new(problems), prompts.clone());
        let classes = Classes::new(settings, Arc::new(toolbox), speech, asked);
        Self { classes, tokens, prompts, channel: Talk::channel(), replies: Vec::new() }
    }

    /// Begins an episode of a row; its whole prompt as text.
    fn begin(&mut self, number: usize, row: u32) -> String {
        self.opened(number, row);
        let said = self.says(number);
        self.tokens.decode(&[self.prompts[row as usize].as_slice(), &said].concat()).unwrap()
    }

    fn opened(&mut self, number: usize, row: u32) {
        self.replies.resize(self.replies.len().max(number + 1), 0);
        self.replies[number] = 0;
        let replies = Replies::of(&self.channel.0, number, 0);
        self.classes.begin(Opening { number, prompt: PromptId(row), start: 7 }, &replies);
    }

    /// Sends a turn with this text.
    fn turn(&mut self, number: usize, said: &str, stop: Option<Stopped>) {
        self.replies[number] += 1;
        let mut tokens = if said.is_empty() { Vec::new() } else { self.tokens.encode(said).unwrap() };
        if stop.is_none() {
            tokens.push(self.tokens.stops()[0]);
        }
        let replies = Replies::of(&self.channel.0, number, self.replies[number]);
        self.classes.turn(number, Said { tokens: &tokens, log_probs: &[] }, stop, &replies);
    }

    /// The next reply to an episode.
    fn reply(&mut self, number: usize) -> Reply {
        let (of, index, reply) = self.next_reply();
        assert_eq!((of, index), (number, self.replies[number]));
        reply
    }

    /// The next reply, with its episode and its number there.
    fn next_reply(&self) -> (usize, u32, Reply) {
        match self.channel.1.recv_timeout(Duration::from_mins(2)).unwrap() {
            Event::Reply(of, index, reply) => (of, index, reply),
            other => panic!("{other:?}"),
        }
    }

    /// The next replies to two episodes, in this order: they come in any.
    fn both(&self, numbers: [usize; 2]) -> [Reply; 2] {
        let mut replies = [self.next_reply(), self.next_reply()];
        replies.sort_by_key(|(of, ..)| numbers.iter().position(|number| number == of));
        let of = replies.each_ref().map(|(of, index, _)| (*of, *index));
        assert_eq!(of, numbers.map(|number| (number, self.replies[number])));
        replies.map(|(.., reply)| reply)
    }

    /// The next episodes that begin, so many, in order: their replies come in any.
    fn begun(&mut self, count: usize) -> Vec<usize> {
        let begun = |_| match self.channel.1.recv_timeout(Duration::from_mins(2)).unwrap() {
            Event::Reply(number, 0, Reply::Says(_)) => number,
            other => panic!("{other:?}"),
        };
        let mut all: Vec<usize> = (0..count).map(begun).collect();
        all.sort_unstable();
        all
    }

    fn says(&mut self, number: usize) -> Vec<u32> {
        match self.reply(number) {
            Reply::Says(tokens) => tokens,
            other => panic!("{other:?}"),
        }
    }

    /// What follows a turn with a call, as text.
    fn calls(&mut self, number: usize, calls: &[Value]) -> String {
        let said: Vec<String> =
            calls.iter().map(|call| format!("<tool_call>\n{call}\n</tool_call>")).collect();
        self.turn(number, &said.join("\n"), None);
        let said = self.says(number);
        self.tokens.decode(&said).unwrap()
    }

    /// The end after a turn without calls.
    fn ends(&mut self, number: usize) -> Ended {
        self.turn(number, "That is it.", None);
        self.ended(number)
    }

    fn ended(&mut self, number: usize) -> Ended {
        match self.reply(number) {
            Reply::Ends(end) => end,
            other => panic!("{other:?}"),
        }
    }
}

fn settings(python: &str, names: Value, more: Value) -> EnvironmentSettings {
    let mut class = json!({ "file": root().join("tests/cases/classes/games.py") });
    class.as_object_mut().unwrap().append(&mut names.as_object().unwrap().clone());
    let mut process = json!({ "command": [python], "processes": 1 });
    process.as_object_mut().unwrap().append(&mut more["process"].as_object().cloned().unwrap_or_default());
    let mut all = json!({ "use": "class", "class": class, "process": process });
    let mut more = more.as_object().unwrap().clone();
    more.remove("process");
    all.as_object_mut().unwrap().append(&mut more);
    serde_json::from_value(all).unwrap()
}

fn problems(rows: &[Value]) -> Vec<Problem> {
    let scratch = Scratch::new();
    let lines: Vec<String> = rows.iter().map(Value::to_string).collect();
    scratch.write("rows.jsonl", lines.join("\n"));
    let file = scratch.path().join("rows.jsonl");
    let config: DatasetConfig = serde_json::from_value(json!({
        "files": file, "question": "prompt", "answer": "*", "chat": true
    }))
    .unwrap();
    Dataset::load(&config, scratch.path()).unwrap().problems
}

fn call(name: &str, arguments: Value) -> Value {
    json!({ "name": name, "arguments": arguments })
}

fn won(reward: f32) -> Ended {
    Ended::rewarded(reward, None)
}

#[test]
fn a_class_with_a_tool_is_played_as_trl_plays_it() {
    let Some(python) = python() else { return };
    let rows = [json!({ "prompt": "Count to 5.", "target": 5 })];
    let mut played = Played::new(&python, json!({ "name": "Counter" }), json!({}), &rows);
    let prompt = played.begin(0, 0);
    // What the model is told of the tool is what transformers makes of its docstring.
    assert!(
        prompt.contains(
            r#"{"type": "function", "function": {"name": "increment", "description": "Adds to the counter.", "parameters": {"type": "object", "properties": {"step": {"type": "integer", "description": "How much to add."}}, "required": ["step"]}, "return": {"type": "integer", "description": "The counter's value."}}}"#
        ),
        "{prompt}"
    );
    assert!(prompt.contains("user\nCount to 5.\nassistant\n"), "{prompt}");
    let said = played.calls(0, &[call("increment", json!({ "step": 2 }))]);
    assert_eq!(said, "\nuser\n<tool_response>\n2\n</tool_response>\nassistant\n");
    // Several calls, texts for numbers, tools that are not there, and arguments that do not fit.
    let said = played.calls(
        0,
        &[
            call("increment", json!({ "step": "3" })),
            call("get_reward", json!({})),
            call("increment", json!({ "steps": 3 })),
        ],
    );
    let lines: Vec<&str> = said.lines().filter(|line| line.starts_with(['{', '5'])).collect();
    assert_eq!(lines[..2], ["5", "{'error': 'Tool get_reward not found.'}"]);
    assert!(lines[2].contains("unexpected keyword argument 'steps'"), "{said}");
    assert_eq!(played.ends(0), won(1.0));
    // Another episode uses the object again, from its reset on.
    played.begin(1, 0);
    played.calls(1, &[call("increment", json!({ "step": 2 }))]);
    assert_eq!(played.ends(1), won(0.0));
}

#[test]
fn what_reset_says_belongs_to_the_prompt() {
    let Some(python) = python() else { return };
    let rows = [json!({ "prompt": "Find it.", "word": "cat" })];
    let mut played = Played::new(&python, json!({ "name": "Words" }), json!({ "max_turns": 3 }), &rows);
    let prompt = played.begin(0, 0);
    assert!(prompt.contains("user\nFind it.\nThe word has 3 letters.\nassistant\n"), "{prompt}");
    assert!(played.calls(0, &[call("guess", json!({ "word": "car" }))]).contains("\nGG-\n"));
    assert!(played.calls(0, &[call("guess", json!({ "word": "cat" }))]).contains("\nGGG\n"));
    // The calls of the last turn are not made: nothing would read their results.
    played.turn(
        0,
        "<tool_call>\n{\"name\": \"guess\", \"arguments\": {\"word\": \"cat\"}}\n</tool_call>",
        None,
    );
    assert!(played.says(0).is_empty());
    played.turn(0, "", Some(Stopped::MaxTurns));
    assert_eq!(played.ended(0), won(0.5));

    // Without a reward the rollout is unscorable. An error of a tool is read, as Python writes it.
    played.begin(1, 0);
    let none = played.ends(1);
    assert_eq!((none.reward, none.trouble.as_deref()), (None, Some("`get_reward` gave none")));
    played.begin(2, 0);
    let twice = [call("guess", json!({ "word": "cat" })), call("guess", json!({ "word": "cat" }))];
    assert!(played.calls(2, &twice).contains("{'error': 'Game over.'}"));
}

#[test]
fn several_classes_are_chosen_by_the_data() {
    let Some(python) = python() else { return };
    let rows = [
        json!({ "prompt": "Buy.", "environment": "shop" }),
        json!({ "prompt": "Count.", "environment": "count", "target": 1 }),
    ];
    let names = json!({ "names": { "shop": "Shop", "count": "Counter" } });
    let mut played = Played::new(&python, names, json!({ "max_tool_calls": 5 }), &rows);
    let (shop, count) = (played.begin(0, 0), played.begin(1, 1));
    assert!(shop.contains("\"price\"") && shop.contains("\"increment\"") && !count.contains("\"price\""));
    // Results of async tools come last, as in TRL; a class that names `seed` gets it.
    let said = played.calls(
        0,
        &[
            call("stolen", json!({})),
            call("price", json!({ "item": "tea", "amount": "2" })),
            call("increment", json!({ "step": 2 })),
        ],
    );
    let found: Vec<usize> = ["\n2\n", "{'error': 'there is none'}", "{'item': 'tea', 'price': 6}"]
        .map(|words| said.find(words).unwrap_or_else(|| panic!("{words}: {said}")))
        .to_vec();
    assert!(found.is_sorted(), "{said}");
    assert!(played.calls(1, &[call("price", json!({ "item": "tea" }))]).contains("Tool price not found."));
    // The limit of calls ends an episode before the calls that would pass it.
    played.turn(
        0,
        &"<tool_call>{\"name\": \"increment\", \"arguments\": {\"step\": 1}}</tool_call>".repeat(3),
        None,
    );
    assert_eq!(played.ended(0), Ended { limit: Some(Stopped::MaxToolCalls), ..won(1.0) });
    let lost = problems(&[json!({ "prompt": "Buy.", "environment": "none" })]);
    let class = settings(&python, json!({ "names": { "shop": "Shop", "count": "Counter" } }), json!({}));
    let toolbox = Toolbox::check(&class, class.class.as_ref().unwrap(), &played.tokens).unwrap();
    let error = toolbox.prompt(&played.tokens, &lost[0]).unwrap_err();
    assert_eq!(error.what, "a prompt has \"none\" in its column `environment`; expected one of: count, shop");
}

#[test]
fn what_an_environment_must_not_do_costs_its_episodes_and_no_other() {
    let Some(python) = python() else { return };
    let rows = [json!({ "prompt": "Do.", "target": 0 })];
    let limits = json!({ "max_read_tokens": 600, "process": { "seconds": 6.0, "processes": 2 } });
    let mut played = Played::new(&python, json!({ "name": "Hostile" }), limits, &rows);
    let doing = |what: &str| [call("do", json!({ "what": what }))];
    let reward = |played: &mut Played, number, what| {
        played.begin(number, 0);
        played.calls(number, &doing(what));
        played.ends(number)
    };
    assert_eq!(reward(&mut played, 0, "print"), won(0.5));
    assert_eq!(reward(&mut played, 2, "half"), won(0.5));
    // Neither what its own processes print nor what they read is a line of ours, and it does not end itself.
    assert_eq!(reward(&mut played, 2, "shell"), won(0.5));
    played.begin(0, 0);
    played.turn(0, &format!("<tool_call>{}</tool_call>", doing("leave")[0]), None);
    assert_eq!(played.ended(0).trouble.unwrap(), "the environment says: SystemExit: 3");
    // A failed episode is no reason to end its process.
    let process = |played: &mut Played| {
        played.begin(0, 0);
        let said = played.calls(0, &doing("process"));
        assert_eq!(played.ends(0), won(0.5));
        played.classes.abandon();
        said
    };
    assert_eq!(process(&mut played), process(&mut played));
    let bad = reward(&mut played, 4, "nan").trouble.unwrap();
    assert_eq!(bad, "the environment says: ValueError: get_reward returned nan");
    let bad = reward(&mut played, 6, "word").trouble.unwrap();
    assert_eq!(bad, "the environment says: TypeError: get_reward returned 'good'; expected a number or None");
    played.begin(0, 0);
    assert!(played.calls(0, &doing("text")).contains("\none two\n"));
    played.turn(0, &format!("<tool_call>{}</tool_call>", doing("image")[0]), None);
    let image = played.ended(0).trouble.unwrap();
    assert!(image.contains("only texts are read"), "{image}");
    // Ten megabytes.
    played.begin(0, 0);
    played.turn(0, &format!("<tool_call>{}</tool_call>", doing("flood")[0]), None);
    assert_eq!(played.reply(0), Reply::TooLong);

    // Two episodes of one process, and one of the other.
    for (what, why) in [
        ("exit", "its process ended with exit status 3"),
        ("hang", "the environment did not reply within 6 s"),
    ] {
        for number in [0, 1, 2] {
            played.begin(number, 0);
        }
        played.turn(0, &format!("<tool_call>{}</tool_call>", doing(what)[0]), None);
        let end = played.ended(0).trouble.unwrap();
        assert!(end.starts_with(why), "{end}");
        played.turn(2, "So?", None);
        assert_eq!(played.ended(2).trouble.unwrap(), "its process has ended");
        played.calls(1, &doing("print"));
        assert_eq!(played.ends(1), won(0.5), "the other process goes on");
        played.begin(0, 0);
        played.calls(0, &doing("print"));
        assert_eq!(played.ends(0), won(0.5), "another process has its place");
    }
    // One that waits behind one that hangs.
    played.begin(0, 0);
    played.begin(2, 0);
    played.turn(0, &format!("<tool_call>{}</tool_call>", doing("hang")[0]), None);
    played.turn(2, &format!("<tool_call>{}</tool_call>", doing("print")[0]), None);
    assert_eq!(played.ended(0).trouble.unwrap(), "the environment did not reply within 6 s");
    assert_eq!(played.ended(2).trouble.unwrap(), "its process has ended");
    // After an interrupt the processes are gone, and others start.
    played.begin(0, 0);
    played.classes.abandon();
    assert_eq!(reward(&mut played, 0, "print"), won(0.5));
}

#[test]
fn an_exception_of_reset_is_one_of_its_episode() {
    let Some(python) = python() else { return };
    let rows = [json!({ "prompt": "Do." })];
    let mut played = Played::new(&python, json!({ "name": "Refusing" }), json!({}), &rows);
    played.opened(0, 0);
    let end = played.ended(0);
    assert_eq!(end.trouble.as_deref(), Some("the environment says: KeyError: 'there is no such table'"));
    assert_eq!(played.classes.failure(), None);
}

#[test]
fn an_environment_that_can_not_be_started_any_more_ends_the_run() {
    let Some(python) = python() else { return };
    let rows = [json!({ "prompt": "Do.", "target": 0 })];
    let scratch = Scratch::new();
    let games = fs::read_to_string(root().join("tests/cases/classes/games.py")).unwrap();
    scratch.write("games.py", &games);
    let file = json!({ "name": "Hostile", "file": scratch.path().join("games.py") });
    let mut played = Played::new(&python, file, json!({}), &rows);
    played.begin(0, 0);
    // Changed during the run, which the next process finds.
    scratch.write("games.py", games.replace("return \"done\"", "return \"other\""));
    played.turn(0, "<tool_call>{\"name\": \"do\", \"arguments\": {\"what\": \"exit\"}}</tool_call>", None);
    assert!(played.ended(0).trouble.unwrap().starts_with("its process ended"));
    for _ in 0..3 {
        played.opened(0, 0);
        let why = played.ended(0).trouble.unwrap();
        assert!(
            why.starts_with("it changed during the run: `") && why.ends_with("games.py` has changed"),
            "{why}"
        );
    }
    let failed = played.classes.failure().unwrap();
    assert!(failed.contains("failed 3 times in a row: it changed during the run"), "{failed}");
}

#[test]
fn at_most_so_many_episodes_are_open() {
    let Some(python) = python() else { return };
    let rows = [json!({ "prompt": "Do.", "target": 0 })];
    let mut played = Played::new(&python, json!({ "name": "Hostile" }), json!({ "max_open": 2 }), &rows);
    (0..4).for_each(|number| played.opened(number, 0));
    assert_eq!(played.begun(2), [0, 1]);
    let more = played.channel.1.recv_timeout(Duration::from_millis(300));
    assert!(more.is_err(), "{more:?}");
    // One ends as it should, one by a failure: each makes room.
    played.turn(0, "<tool_call>{\"name\": \"do\", \"arguments\": {\"what\": \"print\"}}</tool_call>", None);
    played.says(0);
    played.turn(0, "That is it.", None);
    let replies = played.both([0, 2]);
    assert!(matches!(&replies, [Reply::Ends(end), Reply::Says(_)] if *end == won(0.5)), "{replies:?}");
    played.turn(1, "<tool_call>{\"name\": \"do\", \"arguments\": {\"what\": \"image\"}}</tool_call>", None);
    let replies = played.both([1, 3]);
    assert!(matches!(&replies, [Reply::Ends(end), Reply::Says(_)] if end.trouble.is_some()), "{replies:?}");
    // Also after an interrupt.
    (4..6).for_each(|number| played.opened(number, 0));
    played.classes.abandon();
    while played.channel.1.try_recv().is_ok() {}
    (0..2).for_each(|number| played.opened(number, 0));
    assert_eq!(played.begun(2), [0, 1]);
}

/// Texts that no seam was looked for at.
#[test]
fn what_reset_says_is_the_text_of_the_prompt_wherever_tokens_meet() {
    let Some(python) = python() else { return };
    let rows = [json!({ "prompt": "Play", "said": "ing" }), json!({ "prompt": "x =", "said": "= 3" })];
    let mut played = Played::new(&python, json!({ "name": "Saying" }), json!({}), &rows);
    assert!(played.begin(0, 0).contains("user\nPlaying\nassistant\n"));
    assert!(played.begin(1, 1).contains("user\nx == 3\nassistant\n"));
}

#[test]
fn episodes_of_one_process_are_played_at_a_time_if_it_has_threads() {
    let Some(python) = python() else { return };
    let rows = [json!({ "prompt": "Do.", "target": 0 })];
    let limits = json!({ "process": { "threads": 8, "seconds": 5.0 } });
    let mut played = Played::new(&python, json!({ "name": "Hostile" }), limits, &rows);
    for number in 0..8 {
        played.begin(number, 0);
    }
    let turn = |what: &str| format!("<tool_call>{}</tool_call>", call("do", json!({ "what": what })));
    played.turn(0, &turn("hang"), None);
    // The others do not wait for it.
    for number in 1..8 {
        played.turn(number, &turn("print"), None);
        assert!(matches!(played.reply(number), Reply::Says(_)));
        assert_eq!(played.ends(number), won(0.5));
    }
    assert_eq!(played.ended(0).trouble.unwrap(), "the environment did not reply within 5 s");
}

/// The shipped model that looks for a hidden number, with a tokenizer that reads its `?48` as a call of a tool: it then
/// plays a class as it plays the embedded game.
fn player(to: &Path) {
    let from = allot_models::find("tiny-guess").unwrap();
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
    let path = to.join("tokenizer.json");
    let mut tokenizer: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let replaced =
        |pattern: Value, content: &str| json!({ "type": "Replace", "pattern": pattern, "content": content });
    let opened = |name: &str| format!(r#"<tool_call>{{"name": "{name}", "arguments": {{"number": ""#);
    tokenizer["decoder"] = json!({ "type": "Sequence", "decoders": [
        { "type": "Fuse" },
        replaced(json!({ "String": "?" }), &opened("compare")),
        replaced(json!({ "String": "!" }), &opened("answer")),
        replaced(json!({ "Regex": "(?<=[0-9])\\z" }), r#""}}</tool_call>"#),
    ] });
    fs::write(path, tokenizer.to_string()).unwrap();
    // What stands for the model's call ends with the token that ends its turns.
    let template = "{% for m in messages %}{{ m.content }}{% for call in m.tool_calls %}{{ call.function.name }}{% endfor %}\
                    {% if m.role == 'assistant' %}<end>{% endif %}{% endfor %}";
    fs::write(to.join("chat_template.jinja"), template).unwrap();
}

const PLAYED: &str = r#"
[run]
seed = 1
steps = 40
groups = 8
rollouts = 8

[budget]
rollouts = 4000

[policy]
use = "uniform"

[model]
use = "./mine"
threads = 2
rows = 32

[sampling]
max_tokens = 32

[environment]
use = "class"
max_turns = 8
max_read_tokens = 80

[environment.class]
file = "[root]/tests/cases/classes/games.py"
name = "Hidden"
calls = "json"

[environment.process]
command = ["[python]"]

[reward]
grader = "episode"

[optimizer]
learning_rate = 3e-4

[evaluation]
every = 20
rollouts = 2

[checkpoint]
every = 10

[[data]]
files = "rows.jsonl"
question = "prompt"
answer = "*"
chat = true
held_out = 0.2
"#;

fn hidden(python: &str) -> Scratch {
    let scratch = Scratch::new();
    player(&scratch.path().join("mine"));
    let row = |i: u64| {
        let (low, size, calls) = (10 + i % 60, 4 + i % 9, 2 + i % 3);
        let (high, prompt) = (low + size - 1, format!("{low}-{}*{calls}:", low + size - 1));
        format!("{}\n", json!({ "prompt": prompt, "low": low, "high": high, "calls": calls }))
    };
    scratch.write("rows.jsonl", (0..120).map(row).collect::<String>());
    scratch.write(
        "run.toml",
        PLAYED.replace("[python]", python).replace("[root]", &root().display().to_string()),
    );
    scratch
}

/// A run's record but for its first line, which has the day.
fn record(scratch: &Scratch, run: &str) -> String {
    scratch.read(&format!("{run}/record.jsonl")).split_once('\n').unwrap().1.to_owned()
}

#[test]
fn the_shipped_model_plays_a_class_and_a_killed_run_comes_to_the_same_end() {
    let Some(python) = python() else { return };
    let scratch = hidden(&python);
    let said = scratch.allot(&["train", "run.toml", "--out", "out"]);
    assert!(said.ends_with("exit code 0"), "{said}");
    let lines: Vec<Value> =
        scratch.read("out/record.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let environment = &lines[0]["training"]["environment"];
    assert_eq!(environment["use"], "class");
    assert_eq!(environment["class"], json!({ "name": "Hidden", "calls": "json" }));
    assert!(environment["process"]["version"].as_str().unwrap().contains("transformers"), "{environment}");
    let rewards: Vec<f64> = lines
        .iter()
        .filter(|line| line["rewards"].is_array() || line["sampled"].is_array())
        .flat_map(|line| line["sampled"].as_array().unwrap().clone())
        .flat_map(|of| of["rewards"].as_array().unwrap().clone())
        .map(|reward| reward.as_f64().unwrap())
        .collect();
    assert!(rewards.len() > 2000 && rewards.contains(&1.0) && rewards.contains(&0.0), "{}", rewards.len());
    let shown = scratch.allot(&["rollouts", "out", "--show", "2"]);
    assert!(shown.contains("compare"), "{shown}");

    // Killed within episodes, again and again: each time once the record has so many lines.
    for (args, lines) in
        [(&["train", "run.toml", "--out", "again"][..], 30), (&["train", "--resume", "again"], 70)]
    {
        let mut run = scratch.command(args);
        let mut run = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let path = scratch.path().join("again/record.jsonl");
        let so_far = || fs::read_to_string(&path).map_or(0, |text| text.lines().count());
        while so_far() < lines && run.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(10));
        }
        run.kill().unwrap();
        assert!(!run.wait().unwrap().success(), "it ended before it was killed");
    }
    scratch.allot(&["train", "--resume", "again"]);
    assert_eq!(record(&scratch, "again"), record(&scratch, "out"));
}

/// Each fifth episode fails when it begins. Groups are whole all the same, every draw is paid for, and the record replays.
#[test]
fn what_an_environment_loses_is_drawn_again() {
    let Some(python) = python() else { return };
    let scratch = hidden(&python);
    let games = root().join("tests/cases/classes");
    let flaky = format!(
        "import sys\nsys.path.insert(0, {:?})\nfrom games import Hidden\n\n\nclass Flaky(Hidden):\n    begun = 0\n\n    \
         def reset(self, seed, **row):\n        Flaky.begun += 1\n        if Flaky.begun % 5 == 0:\n            \
         raise RuntimeError('no room')\n        return super().reset(seed=seed, **row)\n",
        games.display().to_string()
    );
    scratch.write("flaky.py", flaky);
    let run = |retries: &str, out: &str| {
        let own = ["environment.class.file=flaky.py", "environment.class.name=Flaky", "run.steps=3", retries];
        let own = own.iter().flat_map(|key| ["-o", key]);
        let said =
            scratch.allot(&[&["train", "run.toml", "--out", out][..], &own.collect::<Vec<_>>()].concat());
        assert!(said.ends_with("exit code 0"), "{said}");
        let (mut whole, mut lost, mut sampled) = (Vec::new(), 0, 0);
        let (mut reader, head) = Reader::open(&scratch.path().join(out)).unwrap();
        for line in &mut reader {
            match line.unwrap() {
                Line::Rollouts(round) => {
                    lost += round.sampled.iter().map(|group| group.lost).sum::<u32>();
                    sampled += round.sampled.iter().map(|group| group.rewards.len() as u32).sum::<u32>();
                    whole.push((round.sampled.iter().all(|group| group.lost == 0), round.more));
                }
                Line::End(end) => assert_eq!(end.spent.run_rollouts, u64::from(sampled + lost)),
                _ => {}
            }
        }
        let said = scratch.allot(&["replay", out]);
        assert!(said.ends_with("exit code 0"), "{said}");
        (head.retries, sampled, lost, whole)
    };
    let (retries, sampled, lost, whole) = run("environment.retries=0", "once");
    assert_eq!((retries, sampled + lost), (0, 3 * 64));
    assert!(lost > 20 && whole.iter().all(|(whole, more)| !whole && *more == 0));

    let (retries, sampled, lost, whole) = run("environment.retries=8", "again");
    assert_eq!((retries, sampled), (8, 3 * 64), "every group is whole");
    assert!(lost > 20 && whole.len() > 3, "{lost} {whole:?}");
    assert!(whole.iter().all(|(whole, more)| *whole == (*more == 0)), "{whole:?}");
}

#[test]
fn what_can_not_be_played_is_told_before_anything_else() {
    let Some(python) = python() else { return };
    let tokens = tokens();
    let told = |names: Value, python: &str| {
        let settings = settings(python, names, json!({}));
        Toolbox::check(&settings, settings.class.as_ref().unwrap(), &tokens).unwrap_err()
    };
    let file = root().join("tests/cases/classes/games.py");
    let says = |name: &str| {
        told(json!({ "name": name }), &python).what.replace(&file.display().to_string(), "games.py")
    };
    assert_eq!(
        says("Gone"),
        "the environment `Gone of games.py` ended with exit status 1, and last said `games.py has no class Gone`"
    );
    assert!(says("Unrewarded").ends_with("`Unrewarded of games.py has no method get_reward`"));
    let undescribed = says("Undescribed");
    assert!(undescribed.contains("`Undescribed.look can't be a tool: "), "{undescribed}");
    let none = told(json!({ "name": "Counter" }), "no-such-python");
    assert!(none.what.ends_with("could not be started: there is no such program"), "{}", none.what);
    assert!(none.hints[0].starts_with("try it by hand: no-such-python "), "{:?}", none.hints);
}
