//! A policy that learns from rollouts again hands over to one that does not, and back.

use allot_allocation::{Group, Need};
use allot_record::{Asked, Line, Reader, Views};

use super::{Path, Scratch, adds_up, config, fs, ran, stopped, swaps};

/// What a record says of each step: whether its policy replays, rollouts shown that were trained on before, and
/// trained on again.
fn steps(run: &Path) -> Vec<(bool, usize, u64)> {
    let (reader, head) = Reader::open(run).unwrap();
    let (mut views, mut replays) = (Views::new(&head).unwrap(), head.run.gives(Need::Replay));
    let (mut steps, mut shown) = (Vec::new(), 0);
    for line in reader {
        let line = line.unwrap();
        if let Line::Swap(swap) = &line {
            replays = swap.terms.as_ref().is_some_and(|terms| terms.needs.contains(&Need::Replay));
        }
        if let Some(Asked { view, .. }) = views.take(&line).unwrap() {
            let trained = |g: &Group| (0..g.len()).filter(|i| g.trained(*i) > 0).count();
            shown = view.groups.iter().map(trained).sum();
        }
        if let Line::Step(step) = &line {
            steps.push((replays, shown, step.again));
        }
    }
    steps
}

#[test]
fn what_was_trained_on_is_gone_for_a_policy_that_does_not_replay_and_comes_again_for_one_that_does() {
    let scratch = Scratch::new();
    // A prompt comes again every other step.
    scratch.write("run.toml", config().replace("count = 60", "count = 20"));
    let repo = ["--policy", "repo", "--set", "at-least=8"];
    ran(&scratch, &[&["run.toml", "--out", "whole"][..], &repo].concat());
    let whole = steps(&scratch.path().join("whole"));
    assert!(
        whole[3..].iter().all(|(replays, shown, again)| *replays && *shown > 0 && *again > 0),
        "{whole:?}"
    );

    // Pilot-Commit holds rollouts that it did not train on. Those of the policy before were trained on, and are gone.
    let run = stopped(&scratch, "whole", "there", 4);
    ran(&scratch, &["--resume", "there", "--policy", "pilot-commit"]);
    let there = steps(&run);
    assert_eq!(there[..4], whole[..4]);
    assert!(there[4..].iter().all(|step| *step == (false, 0, 0)), "{there:?}");
    adds_up(&run);

    // Back again, it has nothing to replay in its first two steps.
    let run = stopped(&scratch, "there", "back", 5);
    ran(&scratch, &[&["--resume", "back"][..], &repo].concat());
    let back = steps(&run);
    assert_eq!(back[..5], there[..5]);
    assert_eq!((back[5].0, back[5].2), (true, 0), "{back:?}");
    assert!(back[7].1 > 0 && back[7].2 > 0, "{back:?}");
    adds_up(&run);
    let names: Vec<_> = swaps(&run).into_iter().map(|(_, swap)| (swap.step, swap.policy.name)).collect();
    assert_eq!(names, [(4, "pilot-commit".to_owned()), (5, "repo".to_owned())]);

    // Each is asked again on its part, and a stop after either change makes no difference.
    for name in ["there", "back"] {
        let said = scratch.allot(&["replay", name]);
        assert!(said.contains("no difference") && said.ends_with("exit code 0"), "{said}");
        let record = scratch.read(&format!("{name}/record.jsonl"));
        for at in [5, 6, 7] {
            let again = stopped(&scratch, name, "again", at);
            ran(&scratch, &["--resume", "again"]);
            assert_eq!(fs::read_to_string(again.join("record.jsonl")).unwrap(), record, "{name} from {at}");
        }
    }
}

#[test]
fn an_update_that_waits_is_made_on_all_of_its_rollouts_under_the_next_policy() {
    let scratch = Scratch::new();
    let lagging = config().replace("count = 60", "count = 20").replace("[run]\n", "[run]\nlag = 1\n");
    scratch.write("run.toml", lagging);
    ran(&scratch, &["run.toml", "--out", "whole", "--policy", "repo", "--set", "at-least=8"]);
    let run = stopped(&scratch, "whole", "there", 4);
    ran(&scratch, &["--resume", "there", "--policy", "pilot-commit"]);
    // Step 5 was decided before the change, and is made after it.
    let made = |run: &Path| {
        let mut steps = Reader::open(run).unwrap().0.filter_map(|line| match line.unwrap() {
            Line::Step(step) => Some(step),
            _ => None,
        });
        let step = steps.nth(4).unwrap();
        assert!(step.again > 0, "{step:?}");
        (step.again, step.updated, step.metrics)
    };
    assert_eq!(made(&run), made(&scratch.path().join("whole")));
    let said = scratch.allot(&["replay", "there"]);
    assert!(said.contains("no difference") && said.ends_with("exit code 0"), "{said}");
}
