//! One grader in five languages: it says the same of every answer, is told of faults in the words of its language, and
//! refuses what it can't work with.

use std::collections::BTreeMap;

use allot_authoring::language::Language;
use allot_judges::component::Components;
use allot_judges::protocol::{Judgement, Opinion, Question};
use allot_settings::ComponentConfig;

use crate::scratch::Scratch;
use crate::tools;

/// A folder with the grader's component; nothing where its tools are missing.
fn built(language: Language) -> Option<Scratch> {
    if tools::missing(language) {
        return None;
    }
    let scratch = Scratch::new();
    let lang = crate::name(language);
    scratch.write("grader.wasm", tools::built(&format!("tests/languages/grader/{lang}"), language));
    Some(scratch)
}

/// What is said of these answers, judged side by side.
fn opinions(scratch: &Scratch, answers: &[&str]) -> Vec<Opinion> {
    let path = scratch.path().join("grader.wasm");
    let mut components = Components::new(&ComponentConfig::of(path.to_str().unwrap()), None).unwrap();
    for (place, answer) in answers.iter().enumerate() {
        let gold = ["4", "four", "=", "+"].map(str::to_owned).to_vec();
        let (prompt, source) = ("2+2".to_owned(), "sums".to_owned());
        components.begin(
            place,
            Question { gold, answer: (*answer).to_owned(), prompt, source, ..Question::default() },
        );
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let told: BTreeMap<usize, Opinion> = runtime.block_on(components.finish()).unwrap().into_iter().collect();
    told.into_values().collect()
}

fn verdicts_are_the_same(language: Language) {
    let Some(scratch) = built(language) else { return };
    let parts = |answer: f32, length: f32| {
        let parts = vec![("answer".to_owned(), answer), ("length".to_owned(), length)];
        Ok(Judgement { correct: Some(answer == 1.0), parts, ..Judgement::default() })
    };
    let reward = |reward, correct| Ok(Judgement { correct, reward: Some(reward), ..Judgement::default() });
    let expected: [(&str, Opinion); 8] = [
        ("4", parts(1.0, 0.125)),
        ("four", parts(1.0, 0.5)),
        ("seventeen", parts(0.0, 1.125)),
        ("", parts(0.0, 0.0)),
        ("=", Ok(true.into())),
        ("+", reward(0.75, Some(true))),
        ("?", reward(0.25, None)),
        ("pass", Err("grader `yardstick` said: sums to 2+2".to_owned())),
    ];
    for batches in [1, 5] {
        let all: Vec<&(&str, Opinion)> = expected.iter().cycle().take(8 * batches).collect();
        let answers: Vec<&str> = all.iter().map(|(answer, _)| *answer).collect();
        for ((answer, expected), said) in all.into_iter().zip(opinions(&scratch, &answers)) {
            assert_eq!(said, *expected, "{answer}");
        }
    }

    // A fault costs its own answer alone, and its words come along.
    let said = opinions(&scratch, &["4", "!", "four"]);
    assert_eq!((&said[0], &said[2]), (&parts(1.0, 0.125), &parts(1.0, 0.5)));
    let fault = said[1].clone().unwrap_err();
    assert!(
        fault.starts_with("grader `yardstick` trapped: ") && fault.contains("no answer begins so"),
        "{fault}"
    );

    let checked = scratch.allot(&["check", "./grader.wasm", "--within", "3600"]);
    assert!(checked.contains("    gives the parts answer, length\n"), "{checked}");
    assert!(!checked.contains("FAIL") && checked.ends_with("exit code 0"), "{checked}");
    for (set, words) in [
        ("per-letter=-1", "refused its setting `per-letter`: a letter costs nothing"),
        ("open=false", "gave up: it is closed"),
    ] {
        let checked = scratch.allot(&["check", "./grader.wasm", "--set", set]);
        assert!(checked.contains(words) && checked.ends_with("exit code 1"), "{checked}");
    }
}

in_each_language!(verdicts_are_the_same);

#[test]
fn a_python_grader_that_exits_is_told_and_rewards_nobody() {
    let Some(scratch) = built(Language::Python) else { return };
    let said = opinions(&scratch, &["4", "exit", "four"]);
    assert!(said[0].is_ok() && said[2].is_ok(), "{said:?}");
    let fault = said[1].clone().unwrap_err();
    assert!(
        fault.contains("the grader called `sys.exit`; what it can't judge is `unscorable(…)`"),
        "{fault}"
    );
}

mod rust {
    #[test]
    fn verdicts_are_the_same() {
        super::verdicts_are_the_same(allot_authoring::language::Language::Rust);
    }
}
