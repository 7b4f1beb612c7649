//! Policies that go wrong while they run: each is told in the words of its language, with file and line where it
//! has them; what it was shown is kept, and shows the same again.

use allot_authoring::language::Language;

use crate::scratch::Scratch;
use crate::tools;

/// A config small enough for what goes wrong in the first call. Limits that an endless loop meets at once.
const CONFIG: &str = r#"
[run]
seed = 1
steps = 3
groups = 2
rollouts = 4
[budget]
rollouts = 50
[policy]
use = "./guest.wasm"
[policy.limits]
fuel = 1_000_000_000
memory = 100_000_000
[world]
prompts = 10
"#;

/// A scratch folder with the guest of `tests/guests` in a language, if its tools are here.
fn guest(language: Language) -> Option<Scratch> {
    if tools::missing(language) {
        return None;
    }
    let scratch = Scratch::new();
    let folder = format!("tests/guests/{}", crate::name(language));
    scratch.write("guest.wasm", tools::built(&folder, language));
    scratch.write("run.toml", CONFIG);
    Some(scratch)
}

/// What each of these ways to go wrong ends with, but for what is the same of all: where the view is kept.
fn told(scratch: &Scratch, ways: &[&str]) -> String {
    let all: Vec<String> = ways.iter().map(|way| format!("{way}:\n{}", one(scratch, way))).collect();
    all.join("\n\n")
}

fn one(scratch: &Scratch, way: &str) -> String {
    let out = format!("out-{way}");
    let said = scratch.allot(&["simulate", "run.toml", "--set", &format!("how={way}"), "--out", &out]);
    let kept = format!(
        "note: its view is in {out}/view-0.0.json; to repeat the call: allot replay {out} --at 0.0\n\
         note: everything that was finished is in {out}/record.jsonl\nexit code 2"
    );
    let (start, rest) = said.split_once('\n').unwrap();
    assert!(start.starts_with("policy fault"), "{said}");
    let words = rest.strip_suffix(&kept).unwrap_or_else(|| panic!("{way}: {said}")).trim_end();
    assert!(words.starts_with("error: in step 0, round 0 policy `fault"), "{said}");
    assert!(scratch.path().join(&out).join("view-0.0.json").is_file());

    // The same words, of the run's own policy and of one that is named.
    for args in [&["replay", &out, "--at", "0.0"][..], &["replay", &out, "./guest.wasm", "--at", "0.0"]] {
        let again = scratch.allot(args);
        let again = again.strip_suffix("exit code 2").unwrap_or_else(|| panic!("{way}: {again}"));
        // One that is named has the record's settings, and a line that says so.
        let recorded = |line: &str| line.starts_with("as recorded, unless --set says otherwise: how = ");
        let again = again.split_once('\n').filter(|(line, _)| recorded(line)).map_or(again, |(_, rest)| rest);
        assert_eq!(again.trim_end(), words, "{args:?}");
    }
    normal(words)
}

/// Without what hangs on a compiler's version, or on the lines of the SDK.
fn normal(words: &str) -> String {
    let mut lines = Vec::new();
    let mut skip = false;
    for line in words.lines() {
        // Go: a line for a function, the next for its place. Those of the SDK say nothing of the policy.
        let sdk = ["    allot.", "    allot/", "    rollout:"].iter().any(|start| line.starts_with(start));
        if !sdk && !skip {
            lines.push(plain(line.trim_end()));
        }
        skip = sdk;
    }
    lines.join("\n")
}

/// A line with no address in it, nor a place in the C library or the SDK, nor a large number of bytes.
fn plain(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(at) = rest.find(|c: char| c == '(' || c.is_ascii_digit()) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        if rest.starts_with("0x") {
            out.push_str("0x…");
            rest = rest[2..].trim_start_matches(|c: char| c.is_ascii_hexdigit());
        } else if rest.starts_with("(./") && !rest.starts_with("(./policy.c")
            || rest.starts_with("(policies/sdk/")
        {
            out.push_str("(…)");
            rest = rest.split_once(')').map_or("", |(_, rest)| rest);
        } else if digits > 6 && out.ends_with("requested ") {
            out.push('…');
            rest = &rest[digits..];
        } else {
            let taken = digits.max(1);
            out.push_str(&rest[..taken]);
            rest = &rest[taken..];
        }
    }
    out + rest
}

#[test]
fn in_python() {
    let Some(scratch) = guest(Language::Python) else { return };
    let ways = ["raise", "recurse", "exit", "wrong-type", "wrong-field", "wrong-state", "none", "give-up"];
    insta::assert_snapshot!(told(&scratch, &ways), @r#"
    raise:
    error: in step 0, round 0 policy `faulty` trapped: wasm trap: wasm `unreachable` instruction executed; it said:
        Traceback (most recent call last):
          File "policy.py", line 52, in decide
            parse(view)
            ~~~~~^^^^^^
          File "policy.py", line 97, in parse
            number(f"step {view.step}")
            ~~~~~~^^^^^^^^^^^^^^^^^^^^^
          File "policy.py", line 101, in number
            return int(text)
        ValueError: invalid literal for int() with base 10: 'step 0'

    recurse:
    error: in step 0, round 0 policy `faulty` trapped: wasm trap: wasm `unreachable` instruction executed; it said:
        Traceback (most recent call last):
          File "policy.py", line 61, in decide
            descend(0)
            ~~~~~~~^^^
          File "policy.py", line 105, in descend
            return 1 + descend(depth + 1)
                       ~~~~~~~^^^^^^^^^^^
          File "policy.py", line 105, in descend
            return 1 + descend(depth + 1)
                       ~~~~~~~^^^^^^^^^^^
          File "policy.py", line 105, in descend
            return 1 + descend(depth + 1)
                       ~~~~~~~^^^^^^^^^^^
          [Previous line repeated 993 more times]
        RecursionError: maximum recursion depth exceeded

    exit:
    error: in step 0, round 0 policy `faulty` trapped: wasm trap: wasm `unreachable` instruction executed; it said:
        Traceback (most recent call last):
          File "policy.py", line 63, in decide
            sys.exit(3)
            ~~~~~~~~^^^
        RuntimeError: the policy called `sys.exit`; to stop the run it raises `GiveUp`

    wrong-type:
    error: in step 0, round 0 policy `faulty` trapped: wasm trap: wasm `unreachable` instruction executed; it said:
        Traceback (most recent call last):
          File "policy.py", line 72, in decide
            return sample([Request("seven", 8)])
                           ~~~~~~~^^^^^^^^^^^^
        TypeError: a request's prompt is a whole number, not 'seven'

    wrong-field:
    error: in step 0, round 0 policy `faulty` trapped: wasm trap: wasm `unreachable` instruction executed; it said: in the plan a prompt to skip, defer or evict is a whole number, not 'e'

    wrong-state:
    error: in step 0, round 0 policy `faulty` trapped: wasm trap: wasm `unreachable` instruction executed; it said: the state comes back from JSON as another: keys are text, and tuples lists

    none:
    error: in step 0, round 0 policy `faulty` trapped: wasm trap: wasm `unreachable` instruction executed; it said: `decide` gives `sample(…)` or `train(…)`, not None

    give-up:
    error: in step 0, round 0 policy `faulty` gave up: the data set is not for this policy
    "#);
    insta::assert_snapshot!(told(&scratch, &["loop", "grow"]), @"
    loop:
    error: in step 0, round 0 policy `faulty` ran out of fuel: more than 1000000000 Wasm instructions in one call

    hint: look for an endless loop, or raise `fuel` under [policy.limits]

    grow:
    error: in step 0, round 0 policy `faulty` ran out of memory: it requested … bytes of at most 100000000

    hint: look for a list that only grows, or raise `memory` under [policy.limits]
    ");
}

#[test]
fn in_javascript() {
    let Some(scratch) = guest(Language::Js) else { return };
    let ways =
        ["throw", "throw-text", "recurse", "wrong-type", "wrong-field", "wrong-count", "timer", "promise"];
    insta::assert_snapshot!(told(&scratch, &ways), @r#"
    throw:
    error: in step 0, round 0 policy `faulty` trapped: wasm trap: wasm `unreachable` instruction executed; it said:
        TypeError: can't access property "past", prompt is undefined
            at meanOf (tests/guests/js/policy.js:73:3)
            at rewardBefore (tests/guests/js/policy.js:69:10)
            at throw (tests/guests/js/policy.js:30:32)
            at decide (tests/guests/js/policy.js:17:19)

    throw-text:
    error: in step 0, round 0 policy `faulty` trapped: wasm trap: wasm `unreachable` instruction executed; it said: threw "no more of this"; an Error would tell its line

    recurse:
    error: in step 0, round 0 policy `faulty` trapped: wasm trap: wasm `unreachable` instruction executed; it said:
        InternalError: too much recursion
            at deeper (tests/guests/js/policy.js:42:13)
            at deeper (tests/guests/js/policy.js:42:13)
            at deeper (tests/guests/js/policy.js:42:13)
            at deeper (tests/guests/js/policy.js:42:13)
            at deeper (tests/guests/js/policy.js:42:13)
            at deeper (tests/guests/js/policy.js:42:13)
            at deeper (tests/guests/js/policy.js:42:13)
            at deeper (tests/guests/js/policy.js:42:13)
            … 120 more

    wrong-type:
    error: in step 0, round 0 policy `faulty` trapped: wasm trap: wasm `unreachable` instruction executed; it said: TypeError: decide returned undefined, not a plan; `sample` and `train` make one

    wrong-field:
    error: in step 0, round 0 policy `faulty` trapped: wasm trap: wasm `unreachable` instruction executed; it said: TypeError: decide returned an object with the fields train, not a plan; `sample` and `train` make one

    wrong-count:
    error: in step 0, round 0 policy `faulty` trapped: wasm trap: wasm `unreachable` instruction executed; it said:
        RangeError: the count 1.5 is not a whole number, 0 or more
            at whole (…)
            at sample (…)
            at wrong-count (tests/guests/js/policy.js:53:34)
            at decide (tests/guests/js/policy.js:17:19)

    timer:
    error: in step 0, round 0 policy `faulty` trapped: wasm trap: wasm `unreachable` instruction executed; it said:
        Error: a policy has no `setTimeout`: a decision has nothing to wait for
            at withoutClocks/globalThis[timer] (…)
            at timer (tests/guests/js/policy.js:63:35)
            at decide (tests/guests/js/policy.js:17:19)

    promise:
    error: in step 0, round 0 policy `faulty` trapped: wasm trap: wasm `unreachable` instruction executed; it said: TypeError: decide returned a promise (a decision has nothing to wait for: take `async` off), not a plan; `sample` and `train` make one
    "#);
    insta::assert_snapshot!(told(&scratch, &["give-up", "loop", "grow"]), @"
    give-up:
    error: in step 0, round 0 policy `faulty` gave up: there is nothing to be learned here

    loop:
    error: in step 0, round 0 policy `faulty` ran out of fuel: more than 1000000000 Wasm instructions in one call

    hint: look for an endless loop, or raise `fuel` under [policy.limits]

    grow:
    error: in step 0, round 0 policy `faulty` ran out of memory: it requested … bytes of at most 100000000

    hint: look for a list that only grows, or raise `memory` under [policy.limits]
    ");
}

#[test]
fn in_c() {
    let Some(scratch) = guest(Language::C) else { return };
    let ways = ["panic", "assert", "libc-assert", "abort", "null", "recurse", "flood", "give-up"];
    insta::assert_snapshot!(told(&scratch, &ways), @"
    panic:
    error: in step 0, round 0 policy `faults` trapped: wasm trap: wasm `unreachable` instruction executed; it said: policy.c:39: this went wrong

    assert:
    error: in step 0, round 0 policy `faults` trapped: wasm trap: wasm `unreachable` instruction executed; it said: policy.c:40: `how.len == 0` does not hold

    libc-assert:
    error: in step 0, round 0 policy `faults` trapped: wasm trap: wasm `unreachable` instruction executed; it said: Assertion failed: how.len == 0 (policy.c: go_wrong: 41)

    abort:
    error: in step 0, round 0 policy `faults` trapped: wasm trap: wasm `unreachable` instruction executed

    note: it was in abort (…) < go_wrong (./policy.c:42) < decide (./policy.c:59) < exports_rollout_allocation_allocator_decide (…) < __wasm_export_exports_rollout_allocation_allocator_decide (…)

    null:
    error: in step 0, round 0 policy `faults` trapped: wasm trap: out of bounds memory access

    note: it was in go_wrong (./policy.c:48) < decide (./policy.c:59) < exports_rollout_allocation_allocator_decide (…) < __wasm_export_exports_rollout_allocation_allocator_decide (…)

    recurse:
    error: in step 0, round 0 policy `faults` trapped: wasm trap: out of bounds memory access

    note: it was in deeper (./policy.c:34) < deeper (./policy.c:35)

    flood:
    error: in step 0, round 0 policy `faults` trapped: wasm trap: wasm `unreachable` instruction executed; it said:
        19981 words and words
        19982 words and words
        19983 words and words
        19984 words and words
        19985 words and words
        19986 words and words
        19987 words and words
        19988 words and words
        19989 words and words
        19990 words and words
        19991 words and words
        19992 words and words
        19993 words and words
        19994 words and words
        19995 words and words
        19996 words and words
        19997 words and words
        19998 words and words
        19999 words and words
        policy.c:46: said too much

    give-up:
    error: in step 0, round 0 policy `faults` gave up: the data set is not for this policy
    ");
    insta::assert_snapshot!(told(&scratch, &["loop", "grow"]), @"
    loop:
    error: in step 0, round 0 policy `faults` ran out of fuel: more than 1000000000 Wasm instructions in one call

    hint: look for an endless loop, or raise `fuel` under [policy.limits]

    grow:
    error: in step 0, round 0 policy `faults` ran out of memory: it requested … bytes of at most 100000000

    hint: look for a list that only grows, or raise `memory` under [policy.limits]
    ");
}

#[test]
fn in_go() {
    let Some(scratch) = guest(Language::Go) else { return };
    let ways = ["panic", "index", "nil", "recurse", "exit", "flood", "give-up"];
    insta::assert_snapshot!(told(&scratch, &ways), @"
    panic:
    error: in step 0, round 0 policy `faults` trapped: wasm trap: wasm `unreachable` instruction executed; it said:
        panic: this went wrong

        goroutine 1 [running]:
        main.goWrong({0x…, 0x…})
            faults/policy.go:51 +0x…
        main.decide({{0x…, 0x…}, 0x…}, 0x…, 0x…, 0x…)
            faults/policy.go:98 +0x…

    index:
    error: in step 0, round 0 policy `faults` trapped: wasm trap: wasm `unreachable` instruction executed; it said:
        panic: runtime error: index out of range [7] with length 0

        goroutine 1 [running]:
        main.goWrong({0x…, 0x…})
            faults/policy.go:53 +0x…
        main.decide({{0x…, 0x…}, 0x…}, 0x…, 0x…, 0x…)
            faults/policy.go:98 +0x…

    nil:
    error: in step 0, round 0 policy `faults` trapped: wasm trap: wasm `unreachable` instruction executed; it said:
        panic: assignment to entry in nil map

        goroutine 1 [running]:
        main.goWrong({0x…, 0x…})
            faults/policy.go:55 +0x…
        main.decide({{0x…, 0x…}, 0x…}, 0x…, 0x…, 0x…)
            faults/policy.go:98 +0x…

    recurse:
    error: in step 0, round 0 policy `faults` trapped: wasm trap: call stack exhausted

    note: it was in main.deeper

    exit:
    error: in step 0, round 0 policy `faults` trapped: wasm trap: wasm `unreachable` instruction executed; it said: exit status 3

    flood:
    error: in step 0, round 0 policy `faults` trapped: wasm trap: wasm `unreachable` instruction executed; it said:
        160001 bytes before this were dropped
        panic: said too much

        goroutine 1 [running]:
        main.goWrong({0x…, 0x…})
            faults/policy.go:73 +0x…
        main.decide({{0x…, 0x…}, 0x…}, 0x…, 0x…, 0x…)
            faults/policy.go:98 +0x…

    give-up:
    error: in step 0, round 0 policy `faults` gave up: the data set is not for this policy
    ");
    insta::assert_snapshot!(told(&scratch, &["loop", "grow"]), @"
    loop:
    error: in step 0, round 0 policy `faults` ran out of fuel: more than 1000000000 Wasm instructions in one call

    hint: look for an endless loop, or raise `fuel` under [policy.limits]

    grow:
    error: in step 0, round 0 policy `faults` ran out of memory: it requested … bytes of at most 100000000

    hint: look for a list that only grows, or raise `memory` under [policy.limits]
    ");
}

in_each_language!(
    a_bad_setting_is_refused,
    a_number_outside_of_its_bounds_is_refused,
    a_need_that_is_not_named_is_told_in_its_language,
    what_it_prints_is_shown,
    a_run_is_repeated_to_the_byte
);

/// In the same words, whichever SDK says it: `within` of the Rust SDK has a test of its own.
fn a_number_outside_of_its_bounds_is_refused(language: Language) {
    let Some(scratch) = guest(language) else { return };
    for (few, said) in [(1, false), (2, true), (64, true), (65, false), (-1, false)] {
        let words = scratch.allot(&["simulate", "run.toml", "--set", &format!("few={few}"), "--no-record"]);
        let refused =
            format!("` refused its setting `few`: {few} is not a whole number from 2 to 64\nexit code 2");
        assert_eq!(words.ends_with("exit code 0"), said, "{words}");
        assert_eq!(words.ends_with(&refused), !said, "{words}");
    }
}

fn a_need_that_is_not_named_is_told_in_its_language(language: Language) {
    let Some(scratch) = guest(language) else { return };
    let said = scratch.allot(&["simulate", "run.toml", "--set", "how=needless", "--no-record"]);
    // The host finds it, and does not know the language: its hint has a form for each.
    let named = match language {
        Language::Python => "in Python `needs = [\"stopping\"]`",
        Language::Js => "in JavaScript `export const needs = [\"stopping\"]`",
        Language::Go => "in Go `Needs: allot.NeedStopping`",
        Language::C => "in C `allot_needs(self, ALLOT_STOPPING)`, in Go",
        Language::Rust => unreachable!(),
    };
    assert!(said.contains(named) && !said.contains(".wit"), "{said}");
    assert!(said.ends_with("exit code 2"), "{said}");
}

fn a_bad_setting_is_refused(language: Language) {
    let Some(scratch) = guest(language) else { return };
    let said = scratch.allot(&["simulate", "run.toml", "--set", "how=nonsense"]);
    let start = said.split_once("` refused its setting `how`: there is no ");
    assert!(said.starts_with("error: policy `fault") && start.is_some(), "{said}");
    assert!(said.ends_with("`nonsense`\nexit code 2"), "{said}");
}

fn what_it_prints_is_shown(language: Language) {
    let Some(scratch) = guest(language) else { return };
    let said = scratch.allot(&["simulate", "run.toml", "--set", "how=print", "--no-record"]);
    assert!(said.ends_with("exit code 0"), "{said}");
    let shown: Vec<&str> = said.lines().filter(|line| line.starts_with("policy ")).skip(1).collect();
    let expected: &[&str] = match language {
        Language::Python => &[
            "info: logged for anyone",
            "warn: logged as a warning",
            "info: printed in step 0",
            "info: printed as an error",
        ],
        Language::Js => &[
            "info: a line for the log",
            "warn: a warning for the log",
            "info: a line for standard output",
            "info: a line for standard error",
        ],
        Language::C => &["info: hello from puts", "info: and 42 from fprintf"],
        Language::Go => &[
            "info: hello from fmt",
            "info: hello from println",
            // The clock stands still.
            "info: 2023/11/14 22:13:20 hello from log",
        ],
        Language::Rust => unreachable!(),
    };
    let expected: Vec<String> = expected.iter().map(|line| format!("policy {line}")).collect();
    // Three steps of two calls.
    assert_eq!(shown.len(), 6 * expected.len(), "{said}");
    assert_eq!(shown[..expected.len()], expected, "{said}");
}

/// Whatever a policy asks of the world: the world says the same each time.
fn a_run_is_repeated_to_the_byte(language: Language) {
    let Some(scratch) = guest(language) else { return };
    let ways: &[&str] = match language {
        Language::Python => &["clock", "files", "fine"],
        Language::Js | Language::Go => &["clock", "fine"],
        _ => &["fine"],
    };
    for way in ways {
        let run = |out: &str| {
            let set = format!("how={way}");
            let said = scratch.allot(&["simulate", "run.toml", "--set", &set, "--out", out]);
            assert!(said.ends_with("exit code 0"), "{said}");
            let told = said.replace(out, "OUT");
            (scratch.read(&format!("{out}/record.jsonl")), told)
        };
        let (one, other) = (run(&format!("{way}-one")), run(&format!("{way}-other")));
        assert_eq!(one, other, "{way}");
        let replayed = scratch.allot(&["replay", &format!("{way}-one")]);
        assert!(replayed.contains(" calls, no difference\n"), "{replayed}");
    }
}

#[test]
fn a_python_policy_finds_nothing_of_this_machine() {
    let Some(scratch) = guest(Language::Python) else { return };
    let said = scratch.allot(&["simulate", "run.toml", "--set", "how=files", "--no-record"]);
    let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("policy info: ")).take(9).collect();
    insta::assert_snapshot!(lines.join("\n"), @"
    policy info: open: FileNotFoundError: [Errno 44] No such file or directory: '/etc/passwd'
    policy info: write: FileNotFoundError: [Errno 44] No such file or directory: 'left-behind'
    policy info: list: FileNotFoundError: [Errno 44] No such file or directory: '/'
    policy info: environ: {}
    policy info: arguments: []
    policy info: input: ''
    policy info: socket: ModuleNotFoundError: No module named 'socket'
    policy info: system: AttributeError: module 'os' has no attribute 'system'
    policy info: sleep: None
    ");
    assert!(!scratch.path().join("left-behind").exists());
}
