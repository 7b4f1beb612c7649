//! Episodes whose turns are sampled on servers, and whose environment is on this machine.

use super::*;

/// The short run, with games of several turns for its sums.
fn games(config: &str, policy: &str) -> String {
    let edits = [
        ("\"uniform\"", policy),
        ("\"tiny-sums\"", "\"tiny-guess\""),
        ("max_tokens = 8", "max_tokens = 30"),
        ("grader = \"exact\"", "grader = \"episode\""),
        ("[sampling]", "[environment]\nuse = \"guess\"\nmax_turns = 6\nmax_read_tokens = 60\n\n[sampling]"),
        ("kind = \"sums\"", "kind = \"guess\""),
        ("{ digits = 1 }, { digits = 2 }", "{ digits = 2, span = [8, 40], calls = [3, 5] }"),
    ];
    edited(config, &edits)
}

fn server(kind: Kind) -> Server {
    Server::started(kind, Start { model: "tiny-guess", context: 128, ..Start::default() })
}

const POLICIES: [&str; 2] = ["\"uniform\"", "\"tree-grpo\"\n\n[policy.settings]\nexpansions = 2"];

#[test]
fn a_run_of_episodes_on_a_server_is_the_run_on_this_machine() {
    for kind in BOTH {
        for policy in POLICIES {
            let (scratch, server) = (Scratch::new(), server(kind));
            trained(&scratch, &games(CONFIG, policy), "here");
            trained(&scratch, &games(&there(&server), policy), "there");
            let (here, there) = (lines(&scratch.path().join("here")), lines(&scratch.path().join("there")));
            assert_eq!(here.0, there.0, "{kind:?} {policy}: plans");
            assert_eq!(here.1, there.1, "{kind:?} {policy}: rollouts");
            let (mut moved, mut compared) = (false, 0);
            for (a, b) in here.2.iter().zip(&there.2) {
                assert_eq!((a.spent, a.accuracy, a.updated), (b.spent, b.accuracy, b.updated));
                moved |= number(a, "grad_norm").is_some_and(|norm| norm > 1e-3);
                if let Some(apart) = number(b, APART) {
                    assert!(apart < 1e-5, "{apart}");
                    compared += 1;
                }
            }
            assert!(moved && compared > 0, "{kind:?} {policy}: nothing was learned");
            let (a, b) = (here.2[3].compute, there.2[3].compute);
            assert_eq!((a.prompt_tokens, a.read_tokens), (b.prompt_tokens, b.read_tokens));
            assert!(a.read_tokens > 1000, "{a:?}");
            // A request for each turn.
            let rollouts = here.2.iter().map(|step| step.spent.run_rollouts).max().unwrap();
            assert!(server.asked(kind.verbs().0) > 2 * rollouts as usize, "{kind:?} {policy}");
        }
    }
}

#[test]
fn what_a_server_that_dies_was_playing_the_others_play_on() {
    side_by_side(|kind| {
        let (scratch, servers) = (Scratch::new(), [(); 2].map(|()| server(kind)));
        let all: Vec<&Server> = servers.iter().collect();
        trained(&scratch, &games(&there(&servers[0]), POLICIES[1]), "one");
        let verb = kind.verbs().0;
        for (i, what) in [What::HangUp, What::DoAndDie].into_iter().enumerate() {
            let times = if i == 0 { 100_000 } else { 1 };
            servers.iter().for_each(Server::die);
            servers[0].play(vec![Trick { verb, at: 30, times, what }]);
            servers[1].play(Vec::new());
            let run = format!("run-{i}");
            trained(&scratch, &games(&shared(&all, 1), POLICIES[1]), &run);
            assert_eq!(record(&scratch, "one"), record(&scratch, &run), "{kind:?}, {i}");
        }
    });
}

#[test]
fn a_run_of_episodes_on_a_server_that_is_stopped_comes_to_the_same_end() {
    let (scratch, server) = (Scratch::new(), server(Kind::Sglang));
    let few = games(&there(&server), POLICIES[1]).replace("rows = 64", "rows = 4");
    let verb = server.kind.verbs().0;
    let slow = || {
        let what = What::Slow(Duration::from_millis(5));
        server.play(vec![Trick { verb, at: 1, times: 100_000, what }]);
    };
    slow();
    trained(&scratch, &few, "honest");
    let (honest, wanted) = (record(&scratch, "honest"), server.asked(verb));
    for i in 0..4 {
        let run = format!("run-{i}");
        slow();
        let until = wanted / 5 + i * wanted / 6;
        stopped(&scratch, &run, until, || server.asked(verb));
        let said = scratch.allot(&["train", "--resume", &run]);
        assert!(said.ends_with("exit code 0"), "{said}");
        assert_eq!(record(&scratch, &run), honest, "stopped after {until} requests");
    }
}

/// An agent of verifiers that asks a helper in between and in the end goes on from a summary: each request is one of all tokens of its
/// training row.
#[test]
fn rollouts_of_several_training_rows_are_the_same_on_a_server() {
    let Ok(python) = std::env::var("ALLOT_ENVIRONMENTS") else {
        return skip::skip("environments", "ALLOT_ENVIRONMENTS names no Python with verifiers");
    };
    let (scratch, server) = (Scratch::new(), server(Kind::Vllm));
    scratch.chat_model("tiny-guess");
    let cases = scratch::root().join("tests/cases/verifiers");
    let environment = format!(
        "[environment]\nuse = \"verifiers\"\nmax_turns = 8\nmax_read_tokens = 80\nmax_rows = 3\n\n\
         [environment.process]\ncommand = [\"env\", \"PYTHONPATH={}\", {python:?}]\n\n[sampling]",
        cases.display()
    );
    let data = "[[data]]\nchat = true\nheld_out = 0.1\n\n[data.environment]\nuse = \"verifiers\"\n\
                tasks = [{ name = \"forgets\" }]\n";
    let rows = |config: &str| {
        let edits = [
            ("\"tiny-sums\"", "\"./mine\""),
            ("max_tokens = 8", "max_tokens = 30"),
            ("grader = \"exact\"", "grader = \"episode\""),
            ("[sampling]", &environment),
        ];
        let config = edited(config, &edits);
        format!("{}{data}", config.split_once("[[tasks]]").unwrap().0)
    };
    trained(&scratch, &rows(CONFIG), "here");
    trained(&scratch, &rows(&there(&server)), "there");
    let (here, there) = (lines(&scratch.path().join("here")), lines(&scratch.path().join("there")));
    assert_eq!((here.0, here.1), (there.0, there.1), "plans and rollouts");
    let apart: Vec<f64> = there.2.iter().filter_map(|step| number(step, APART)).collect();
    assert!(!apart.is_empty() && apart.iter().all(|apart| *apart < 1e-5), "{apart:?}");
    let shown = scratch.allot(&["rollouts", "there", "--show", "20"]);
    assert!(shown.contains(" and 3 training rows, "), "{shown}");
}
