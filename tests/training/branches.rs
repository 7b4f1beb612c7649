//! Rollouts that continue others, as a policy of contract 0.3 asks for them: in the record, in the table, and resumed.
//! The policy is one that ships.

use allot_allocation::Origin;
use allot_record::Views;

use super::*;

/// Episodes under the policy that continues them, twice.
fn config() -> String {
    let policy = "\"tree-grpo\"\n\n[policy.settings]\nexpansions = 2";
    let config = episodes::config().replace("\"uniform\"", policy);
    config.replace("groups = 8", "groups = 4").replace("max_turns = 3", "max_turns = 5")
}

#[test]
fn what_a_policy_continues_is_in_the_record_and_in_the_table() {
    let config = config();
    let scratch = with(&config);
    trained(&scratch, &["run.toml", "--out", "out"]);
    let run = scratch.path().join("out");
    let (reader, head) = Reader::open(&run).unwrap();
    let terms = head.run.terms.clone().unwrap();
    assert_eq!(terms.max_turns, 5);
    let mut views = Views::new(&head).unwrap();
    let (mut continued, mut deep, mut seen) = (0, 0, 0.0);
    for line in reader {
        let line = line.unwrap();
        if let Line::Rollouts(rollouts) = &line {
            for of_prompt in &rollouts.sampled {
                for (i, start) in of_prompt.starts.iter().enumerate() {
                    // The first turn of what is continued reads what was said before.
                    let reads = of_prompt.turns[i].first().map_or(0, |turn| turn.0);
                    assert!(start.is_none() || of_prompt.turns[i].is_empty() || reads > 0, "{of_prompt:?}");
                    continued += u64::from(start.is_some());
                }
            }
        }
        let Some(asked) = views.take(&line).unwrap() else { continue };
        for group in &asked.view.groups {
            let origins = &group.turns.origins;
            let of = |origin: &Origin| origins[origin.rollout.unwrap() as usize];
            deep += origins.iter().flatten().filter(|origin| of(origin).is_some()).count();
        }
        seen += asked.plan.metrics.iter().map(|(_, value)| *value).sum::<f64>();
    }
    assert!(continued > 50 && seen == continued as f64 && deep > 0, "{continued} {seen} {deep}");
    // What is told of a rollout begins with what it keeps.
    let mut longer = 0;
    for row in rows(&run) {
        let text = row["text"].trim_matches('"').replace("\\n", "\n");
        let said = text.lines().filter(|line| line.starts_with("model: ")).count() as u64;
        let own: u64 = row["turns"].parse().unwrap();
        assert!(said >= own && said <= 5, "{row:?}");
        longer += u64::from(said > own);
    }
    assert!(longer > 20, "{longer}");
    let replayed = scratch.allot(&["replay", "out"]);
    assert!(replayed.ends_with("exit code 0"), "{replayed}");
    let shown = scratch.allot(&["replay", "out", "--at", "2.1"]);
    assert!(shown.contains(", from turn ") && shown.contains(" of rollout "), "{shown}");
    let trains = scratch.allot(&["replay", "out", "--at", "2.3"]);
    assert!(trains.contains("advantages by turn ["), "{trains}");
}

#[test]
fn a_run_that_continues_rollouts_comes_to_the_same_end_when_it_is_killed() {
    let config = config();
    killed_again_and_again(&config);
}

#[test]
fn what_can_not_be_continued_is_refused() {
    let refused = |config: &str| {
        let scratch = with(config);
        error(&told(&scratch, &["run.toml", "--out", "out"])).to_owned()
    };
    let plain = CONFIG.replace("\"uniform\"", "\"tree-grpo\"");
    let said = refused(&plain);
    assert!(said.contains("policy `tree-grpo` needs `turns`, which this run does not provide"), "{said}");
    assert!(said.contains("hint: make rollouts episodes, with a section [environment]"), "{said}");
    let said = refused(&(config() + "\n[requests]\nleast_turns = 9\n"));
    assert!(said.contains("`requests.least_turns` is 9; expected 1 to 5"), "{said}");
    let said = refused(&(plain + "\n[requests]\nleast_turns = 2\n"));
    assert!(said.contains("`requests.least_turns` is 2; expected 1 to 1"), "{said}");
    let said = refused(&config().replace("max_turns = 5", "max_turns = 5\ndeterministic = true"));
    assert!(said.contains("has `environment.deterministic`, which `guess` does not have"), "{said}");
}
