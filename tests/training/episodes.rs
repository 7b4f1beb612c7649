//! Episodes in the embedded environment, as a user meets them.

use allot_allocation::TurnLength;
use allot_record::Rollouts;

use super::*;

/// Episodes of the shipped model in place of sums.
pub(super) fn config() -> String {
    let tasks = CONFIG.find("[[tasks]]").unwrap();
    CONFIG[..tasks]
        .replace("tiny-sums", "tiny-guess")
        .replace(
            "max_tokens = 8",
            "max_tokens = 24\n\n[environment]\nuse = \"guess\"\nmax_turns = 3\nmax_read_tokens = 40",
        )
        .replace("\"exact\"", "\"episode\"")
        + "[[tasks]]\nkind = \"guess\"\nstyle = \"terse\"\ncount = 80\nheld_out = 0.2\n\
           levels = [{ digits = 2, span = [4, 16], calls = [1, 4] }]\n"
}

fn rollouts(run: &Path) -> Vec<Rollouts> {
    let (reader, _) = Reader::open(run).unwrap();
    let of = |line| match line {
        Line::Rollouts(rollouts) => Some(*rollouts),
        _ => None,
    };
    reader.filter_map(|line| of(line.unwrap())).collect()
}

#[test]
fn a_run_of_episodes_that_is_killed_again_and_again_comes_to_the_same_end() {
    killed_again_and_again(&config());
}

#[test]
fn episodes_are_counted_recorded_and_shown() {
    let scratch = with(&config());
    trained(&scratch, &["run.toml", "--out", "out"]);
    let run = scratch.path().join("out");
    let recorded: Vec<(u32, Vec<TurnLength>)> = rollouts(&run)
        .into_iter()
        .flat_map(|of_round| of_round.sampled)
        .flat_map(|of_prompt| of_prompt.tokens.into_iter().zip(of_prompt.turns))
        .collect();
    assert!(recorded.len() > 300, "{}", recorded.len());
    let (mut read, mut generated) = (0, 0);
    for (tokens, turns) in &recorded {
        assert_eq!(turns.iter().map(|turn| turn.1).sum::<u32>(), *tokens);
        assert!(turns[0].0 == 0 && turns.len() <= 3 && *tokens <= 24, "{turns:?}");
        read += turns.iter().map(|turn| u64::from(turn.0)).sum::<u64>();
        generated += u64::from(*tokens);
    }
    let (steps, end) = record(&run);
    assert_eq!((end.compute.read_tokens, end.spent.run_tokens), (read, generated));
    assert!(steps.iter().all(|step| step.compute.read_tokens > 0));

    // The table says the same, and what was said leads from the question to the reward.
    let mut stopped = BTreeSet::new();
    for row in rows(&run) {
        let text = row["text"].trim_matches('"').replace("\\n", "\n");
        let said: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("model: ")).collect();
        let replies = text.lines().filter(|line| line.starts_with("environment: ")).count();
        assert_eq!(said.len().to_string(), row["turns"]);
        assert_eq!(replies + 1, said.len(), "{text}");
        if row["reward"] == "1.0" {
            assert!(said.last().unwrap().starts_with('!'), "{text}");
        }
        stopped.insert(row["stopped"].clone());
    }
    assert!(stopped.contains("\"done\"") && stopped.len() > 1, "{stopped:?}");
    let metrics = lines(&run, "metrics.jsonl");
    let turns = metrics.iter().filter_map(|line| line["num_turns/mean"].as_f64()).next_back().unwrap();
    assert!(turns > 1.0 && turns <= 3.0, "{turns}");
    let shown = told_of_rollouts(&scratch, &["out", "--show", "2"]);
    assert!(shown.contains(" turns, ") && shown.contains(" read, done\n    model: ?"), "{shown}");
}

/// A group's episodes have one hidden number, and another visit has another.
#[test]
fn all_of_a_group_look_for_the_same_number() {
    let scratch = with(&config().replace("rollouts = 8", "rollouts = 24"));
    trained(&scratch, &["run.toml", "--out", "out"]);
    let mut bounds: BTreeMap<(String, String), (u32, u32)> = BTreeMap::new();
    for row in rows(&scratch.path().join("out")) {
        if row["set"] != "null" {
            continue;
        }
        // All that an episode was told of the number holds for those beside it.
        let text = row["text"].trim_matches('"').replace("\\n", "\n");
        let whole = bounds.entry((row["step"].clone(), row["prompt"].clone())).or_insert((0, 99));
        for line in text.lines().filter_map(|line| line.strip_prefix("environment: ")) {
            let (known, _) = line.trim_start_matches('-').split_once('*').unwrap();
            let (low, high) = known.split_once('-').unwrap();
            *whole = (whole.0.max(low.parse().unwrap()), whole.1.min(high.parse().unwrap()));
        }
    }
    assert!(bounds.len() > 20);
    assert!(bounds.values().all(|(low, high)| low <= high), "{bounds:?}");
}

#[test]
fn what_is_no_run_of_episodes_is_refused() {
    let refused = |from: &str, to: &str| {
        let changed = config().replace(from, to);
        assert_ne!(changed, config(), "{from}");
        let scratch = with(&changed);
        let said = told(&scratch, &["run.toml", "--out", "out"]);
        assert!(said.ends_with("exit code 1") || said.ends_with("exit code 2"), "{said}");
        error(&said).to_owned()
    };
    let all = [
        refused("\"episode\"", "\"exact\""),
        refused("[environment]\nuse = \"guess\"\nmax_turns = 3\nmax_read_tokens = 40", ""),
        refused("use = \"guess\"", "use = \"gues\""),
        refused("max_turns = 3", "max_turns = 0"),
        refused("max_read_tokens = 40", "max_read_tokens = 4000"),
        refused("kind = \"guess\"", "kind = \"sums\""),
        refused("span = [4, 16]", "span = [4, 101]"),
        refused("calls = [1, 4]", "calls = [4, 1]"),
        refused("calls = [1, 4]", "terms = 3"),
        refused("use = \"guess\"", "use = \"class\""),
        refused("max_turns = 3", "max_turns = 3\nclass = { file = \"game.py\", name = \"Game\" }"),
        refused(
            "use = \"guess\"\nmax_turns = 3",
            "use = \"class\"\nmax_turns = 3\nclass = { file = \"game.py\" }",
        ),
        refused(
            "use = \"guess\"\nmax_turns = 3",
            "use = \"class\"\nmax_turns = 3\nclass = { file = \"game.py\", name = \"Game\" }",
        ),
        refused("use = \"guess\"", "use = \"verifiers\""),
        refused("max_turns = 3", "max_turns = 3\nverifiers = { seed = \"seed\" }"),
        refused("use = \"guess\"\nmax_turns = 3", "use = \"verifiers\"\nmax_turns = 3\nmax_tool_calls = 4"),
        refused("max_turns = 3", "max_turns = 3\nprocess = { threads = 2 }"),
        refused("max_turns = 3", "max_turns = 3\nmax_seconds = 0"),
        refused("max_turns = 3", "max_turns = 3\nprocess = { processes = 0 }"),
    ];
    insta::assert_snapshot!(all.join("\n"));
    let there = "[engine]\nuse = \"tinker\"\nurl = \"http://127.0.0.1:1\"\nserver = \"skyrl-jax\"\nbase_model = \"m\"\n\n[environment]";
    // Without what a server that trains refuses first.
    let edits = [
        ("threads = ", "max_prompt_tokens = 2"),
        ("[optimizer]", "[optimizer]\nmax_norm = 0.0"),
        ("[environment]", there),
    ];
    let config = edits.iter().fold(config(), |config, (from, to)| config.replace(from, to));
    let said = told(&with(&config), &["run.toml", "--out", "out"]);
    assert!(said.contains("`run.toml` has a section [environment], but a server trains"), "{said}");
}

/// A chat template that writes nothing but what is said, and an end after the model's turns, leads to the tokens of plain
/// text: what the model said is not tokenized again, and the end of its turn is not read twice.
#[test]
fn a_chat_continues_where_the_model_s_turn_ended() {
    let plain = with(&config());
    trained(&plain, &["run.toml", "--out", "out"]);
    let chat = with(
        &config()
            .replace("tiny-guess", "./mine")
            .replace("style = \"terse\"", "style = \"terse\"\nchat = true"),
    );
    chat.chat_model("tiny-guess");
    trained(&chat, &["run.toml", "--out", "out"]);
    let of = |scratch: &Scratch| rollouts(&scratch.path().join("out"));
    assert!(of(&plain) == of(&chat));

    // One that changes what is said can't be continued, and says so before the first rollout.
    chat.write(
        "mine/chat_template.jinja",
        "{% for m in messages %}{{ m.content[:5] if m.role == 'assistant' else m.content }}{% endfor %}",
    );
    let said = told(&chat, &["run.toml", "--out", "changed"]);
    assert!(error(&said).contains("changes what the model said"), "{said}");
    assert!(!chat.path().join("changed").exists(), "nothing was made");
}
