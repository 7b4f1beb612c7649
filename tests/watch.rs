//! The picture that `allot watch` gives of runs: whole ones, those that go on, and records that are cut,
//! damaged or no records; and rates and times left, from made histories.

#![allow(clippy::unwrap_used, missing_docs)]

mod scratch;

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use allot_record::{Head, Seconds, StepEnd, Time};
use allot_report::History;
use allot_report::fold::Fold;
use allot_report::history::{Fates, Step};
use allot_watch::observer::Observer;
use allot_watch::pace;
use allot_watch::scene::{Scene, State};
use allot_watch::style::Style;
use allot_watch::view::{self, Choice, Move};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use scratch::Scratch;

const CONFIG: &str = r#"
[run]
seed = 3
steps = 60
groups = 4
rollouts = 8

[budget]
rollouts = 1500

[policy]
use = "uniform"

[evaluation]
every = 5

[world]
prompts = 100
held_out = 50
"#;

/// A folder with simulated runs, each of a policy and a seed.
fn with(runs: &[(&str, &str)]) -> Scratch {
    let scratch = Scratch::new();
    scratch.write("run.toml", CONFIG);
    for (policy, seed) in runs {
        let out = format!("runs/{policy}/seed-{seed}");
        let done =
            scratch.allot(&["simulate", "run.toml", "--policy", policy, "--seed", seed, "--out", &out]);
        assert!(done.ends_with("exit code 0"), "{done}");
    }
    scratch
}

const RECORD: &str = "runs/uniform/seed-1/record.jsonl";

/// What `allot watch` prints.
fn watch(scratch: &Scratch, places: &[&str]) -> String {
    let args: Vec<&str> = ["watch", "--once"].iter().chain(places).copied().collect();
    let done = scratch.command(&args).env("LC_ALL", "C.UTF-8").output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    let root = scratch.path().canonicalize().unwrap();
    said.replace(&root.display().to_string(), "ROOT")
}

/// Makes a file look as if it was written half a day ago.
fn age(scratch: &Scratch, file: &str) {
    let then = SystemTime::now() - Duration::from_mins(10 * 60 + 30);
    let file = std::fs::OpenOptions::new().append(true).open(scratch.path().join(file)).unwrap();
    file.set_modified(then).unwrap();
}

#[test]
fn a_traceback_keeps_its_lines() {
    let scratch = with(&[("uniform", "1")]);
    let told = "in step 4, round 0 policy `uniform` trapped: it said:\n    Traceback (most recent call last):\n      \
                File \"policy.py\", line 7, in decide\n        raise ValueError\n    ValueError";
    let record = scratch.read(RECORD);
    let (rest, end) = record.trim_end().rsplit_once('\n').unwrap();
    let mut end: serde_json::Value = serde_json::from_str(end).unwrap();
    assert_eq!(end["kind"], "end");
    (end["reason"], end["normal"]) = (told.into(), false.into());
    scratch.write(RECORD, format!("{rest}\n{end}\n"));

    let said = watch(&scratch, &["runs/uniform/seed-1"]);
    assert!(said.contains(&format!("seed-1: {told}")), "{said}");
    let said = scratch.allot(&["report", "runs/uniform/seed-1", "--out", "report"]);
    assert!(said.contains(&format!("it was stopped: {told}")), "{said}");
    let page = scratch.read("report/index.html");
    let shown = told.split_once("it said:\n").unwrap().1.replace('"', "&quot;");
    assert!(page.matches(&shown).count() >= 2, "in the notes and in the table of runs");
}

#[test]
fn a_finished_run() {
    insta::assert_snapshot!(watch(&with(&[("uniform", "1")]), &["runs/uniform/seed-1"]));
}

#[test]
fn two_runs_in_a_folder() {
    insta::assert_snapshot!(watch(&with(&[("uniform", "1"), ("pilot-commit", "1")]), &["runs"]));
}

#[test]
fn one_policy_on_two_tasks_is_two_arms() {
    let scratch = with(&[("uniform", "1"), ("uniform", "2")]);
    scratch.write("other.toml", CONFIG.replace("held_out = 50", "held_out = 50\ndifficulty = 2.0"));
    scratch.allot(&["simulate", "other.toml", "--seed", "1", "--out", "runs/other/seed-1"]);
    let scene = Observer::at(&[scratch.path().join("runs")]).unwrap().scene();
    let arms: Vec<(&str, usize)> = scene.runs.iter().map(|r| (r.name.as_str(), r.arm.unwrap())).collect();
    assert_eq!(arms, [("other/seed-1", 0), ("uniform/seed-1", 1), ("uniform/seed-2", 1)]);
    assert_eq!(scene.arms, ["uniform (world.difficulty 2.0)", "uniform (world.difficulty 1.0)"]);
}

#[test]
fn a_locale_without_unicode_is_given_ascii() {
    let scratch = with(&[("uniform", "1"), ("pilot-commit", "1")]);
    let done = scratch.command(&["watch", "runs"]).env("LC_ALL", "C").output().unwrap();
    assert!(done.stdout.is_ascii() && done.stdout.contains(&b'*'));
}

#[test]
fn what_goes_wrong_with_one_record_is_told_and_the_others_go_on() {
    let scratch = with(&[("uniform", "1"), ("uniform", "2"), ("uniform", "10"), ("knapsack", "1")]);
    let whole = scratch.read(RECORD);
    // One that is cut off, one of another format, one that was edited, and a good one.
    scratch.write(RECORD, &whole[..whole.len() / 2]);
    age(&scratch, RECORD);
    scratch.write("runs/uniform/seed-2/record.jsonl", whole.replacen("\"format\":1", "\"format\":9", 1));
    let edited = whole.replacen("\"kind\":\"step\",\"step\":9", "\"kind\":\"step\",\"step\":8", 1);
    assert_ne!(edited, whole);
    scratch.write("runs/uniform/seed-10/record.jsonl", edited);
    insta::assert_snapshot!(watch(&scratch, &["runs", "none", "runs/uniform"]));
}

#[test]
fn a_place_without_a_run_is_told() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path().join("empty")).unwrap();
    scratch.write("notes.txt", "");
    insta::assert_snapshot!(watch(&scratch, &["empty"]), @"
    error: no run in `empty`

    hint: give a run's folder, or a folder with runs somewhere in it, four levels deep at most
    ");
    insta::assert_snapshot!(watch(&scratch, &["none"]), @"
    error: there is no folder `none`

    hint: give a run's folder, or a folder with runs somewhere in it, four levels deep at most
    ");
    insta::assert_snapshot!(watch(&scratch, &["notes.txt"]), @"
    error: `notes.txt` is a file, and no record's

    hint: give the run's folder
    ");
    insta::assert_snapshot!(watch(&scratch, &["empty", "--every", "0"]), @"
    error: `--every` is 0; expected 0.1 to 3600 seconds
    ");
}

#[test]
fn a_record_that_is_cut_anywhere_is_shown() {
    let scratch = with(&[("uniform", "1")]);
    let whole = scratch.read(RECORD);
    let mut look = Observer::at(&[scratch.path().join("runs")]).unwrap();
    for cut in (0..whole.len()).step_by(4999).chain([whole.len(), 100, 20_000, whole.len() / 3]) {
        // It grows, and gets shorter: then the run was taken up from a checkpoint.
        scratch.write(RECORD, &whole[..cut]);
        let scene = look.scene();
        let head = whole[..cut].contains('\n');
        let steps = whole[..cut].lines().filter(|line| line.starts_with("{\"kind\":\"step\"")).count();
        let state = &scene.runs[0].state;
        match (head, cut == whole.len()) {
            (false, _) => assert_eq!(*state, State::Starting, "cut at {cut}"),
            (true, false) => assert_eq!(*state, State::Running, "cut at {cut}"),
            (true, true) => assert!(matches!(state, State::Finished(_)), "{state:?}"),
        }
        if head {
            let told = scene.runs[0].facts.as_ref().unwrap().steps.0 as usize;
            // The last of the lines may be cut.
            assert!(told == steps || told + 1 == steps, "cut at {cut}: {told} of {steps}");
        }
        draw(&scene);
    }
}

#[test]
fn a_record_that_was_cut_back_and_outgrew_what_was_read_is_read_anew() {
    let scratch = with(&[("uniform", "1"), ("pilot-commit", "1")]);
    let other = scratch.read("runs/pilot-commit/seed-1/record.jsonl");
    let whole = scratch.read(RECORD);
    let mut look = Observer::at(&[scratch.path().join("runs/uniform")]).unwrap();
    scratch.write(RECORD, &whole[..whole.len() / 3]);
    assert_eq!(look.scene().runs[0].state, State::Running);
    scratch.write(RECORD, other);
    let scene = look.scene();
    assert!(matches!(scene.runs[0].state, State::Finished(_)), "{:?}", scene.runs[0].state);
    assert_eq!(scene.arms, ["pilot-commit"]);
}

#[test]
fn every_size_is_drawn_and_every_run_can_be_chosen() {
    let scratch = with(&[("uniform", "1"), ("pilot-commit", "1")]);
    let mut scene = Observer::at(&[scratch.path().join("runs")]).unwrap().scene();
    let rows: Vec<_> = scene.runs.clone();
    for i in 0..40 {
        let mut row = rows[i % 2].clone();
        row.path = PathBuf::from(format!("run-{i}"));
        row.name = format!("a run of a long name, {i}");
        scene.runs.push(row);
    }
    let moves =
        [Move::By(1), Move::Pages(1), Move::Last, Move::By(1), Move::Pages(-1), Move::First, Move::By(-1)];
    for (width, height) in (0..130).step_by(7).flat_map(|w| (0..50).step_by(3).map(move |h| (w, h))) {
        let mut choice = Choice::default();
        for to in moves {
            let area = Rect { x: 0, y: 0, width, height };
            view::draw(&scene, Some(&mut choice), area, &mut Buffer::empty(area), STYLE);
            choice.go(to, &scene);
        }
        assert_eq!(choice.place(&scene), Some(0));
    }
    choice_is_in_sight(&scene);
}

const STYLE: Style = Style { colour: true, unicode: true };

fn choice_is_in_sight(scene: &Scene) {
    let area = Rect { x: 0, y: 0, width: 100, height: 24 };
    let mut choice = Choice::default();
    for _ in 0..scene.runs.len() {
        choice.go(Move::By(1), scene);
        view::draw(scene, Some(&mut choice), area, &mut Buffer::empty(area), STYLE);
        let place = choice.place(scene).unwrap();
        assert!((choice.top..choice.top + choice.page).contains(&place));
    }
    assert_eq!(choice.place(scene), Some(scene.runs.len() - 1));
}

fn draw(scene: &Scene) {
    let area = Rect { x: 0, y: 0, width: 80, height: 24 };
    view::draw(scene, Some(&mut Choice::default()), area, &mut Buffer::empty(area), STYLE);
}

/// The head of a run of 100 steps and 8000 rollouts at most.
fn head() -> Head {
    let head = r#"{"format": 1, "allot": "0", "policy": {"name": "p", "version": "0", "contract": "0",
        "sha256": ""}, "engine": "e", "seed": 1, "order": "shuffled", "run": {"settings": [], "prompts": 10,
        "steps": 100, "groups": 1, "rollouts": 1, "pool": 1, "max_age": 1}, "limits": {"rounds": 1,
        "step_rollouts": null, "run_rollouts": 8000, "run_tokens": null, "longest": 8},
        "caps": {"fuel": 1, "seconds": 1.0, "memory": 1}, "accuracy": 0.25}"#;
    serde_json::from_str(head).unwrap()
}

/// A run of so many steps, of 100 rollouts and 1000 tokens each.
fn history(steps: u32) -> History {
    let step = |step: u32| {
        let mut end = StepEnd { step, ..StepEnd::default() };
        end.spent.run_rollouts = 100 * u64::from(step + 1);
        end.spent.run_tokens = 1000 * u64::from(step + 1);
        Step {
            end,
            costs: allot_report::Costs::default(),
            pilots: 0,
            commits: 0,
            truncated: 0,
            fates: Fates::default(),
            ages: Vec::new(),
            trained_reward: 0.0,
        }
    };
    let mut history = Fold::new("r".to_owned(), head(), &[]).finish();
    history.steps = (0..steps).map(step).collect();
    history
}

/// Times of steps that take so long each, after an evaluation of 5 seconds; those up to `before` take twice
/// as long. Each tenth is followed by an evaluation of 10 seconds.
fn times(steps: u32, each: f64, before: u32) -> Vec<Time> {
    let mut seconds = Seconds { evaluating: 5.0, ..Seconds::default() };
    let mut times = vec![Time::Step { steps: 0, seconds }];
    for steps in 1..=steps {
        seconds.sampling += if steps <= before { 2.0 * each } else { each };
        seconds.evaluating += if steps % 10 == 0 { 10.0 } else { 0.0 };
        times.push(Time::Step { steps, seconds });
    }
    times
}

fn near(told: Option<f64>, is: f64) {
    let told = told.unwrap();
    assert!((told - is).abs() < 1e-9 * is.max(1.0), "{told}, not {is}");
}

#[test]
fn rates_are_those_of_the_last_steps_without_evaluation() {
    let pace = pace::of(&history(50), &times(50, 2.0, 30));
    near(pace.rollouts, 50.0);
    near(pace.tokens, 500.0);
    // Before the window is full, they are those of all steps.
    near(pace::of(&history(3), &times(3, 2.0, 0)).rollouts, 50.0);
    // A step is in the record before it is in the times.
    near(pace::of(&history(51), &times(50, 2.0, 30)).rollouts, 50.0);
    near(pace::of(&history(50), &times(51, 2.0, 30)).rollouts, 50.0);
}

#[test]
fn time_left_is_that_to_the_nearest_limit() {
    // 50 steps are over. 30 more spend the rollouts: 2 seconds each, and 1 of evaluation on the average.
    near(pace::of(&history(50), &times(50, 2.0, 0)).left, 90.0);
    let with = |change: fn(&mut History)| {
        let mut history = history(50);
        change(&mut history);
        pace::of(&history, &times(50, 2.0, 0))
    };
    // Of steps alone, 50 are left.
    near(with(|h| h.head.limits.run_rollouts = None).left, 150.0);
    near(with(|h| h.head.limits.run_tokens = Some(60_000)).left, 30.0);
    // Seconds are those of steps.
    near(with(|h| h.head.ceilings.seconds = Some(110.0)).left, 15.0);
    near(with(|h| h.head.limits.run_rollouts = Some(5000)).left, 0.0);
    near(Some(with(|h| h.head.limits.run_rollouts = Some(5000)).over), 1.0);
    near(Some(pace::of(&history(50), &[]).over), 0.625);
}

#[test]
fn what_is_not_known_is_not_told() {
    for (steps, known) in [(0, 0), (0, 5), (5, 0), (1, 1)] {
        let pace = pace::of(&history(steps), &times(known, 0.0, 0));
        assert_eq!((pace.rollouts, pace.tokens, pace.left), (None, None, None));
    }
    assert_eq!(pace::of(&history(9), &[]).longest, None);
    near(pace::of(&history(50), &times(50, 2.0, 30)).longest, 14.0);
    // Nonsense is no panic.
    let wild = [f64::MAX, -1.0, 1e300, 0.0].map(|sampling| Seconds { sampling, ..Seconds::default() });
    let times: Vec<Time> = (0..).zip(wild).map(|(steps, seconds)| Time::Step { steps, seconds }).collect();
    let mut history = history(4);
    history.head.run.steps = 0;
    history.head.limits.run_rollouts = Some(0);
    let pace = pace::of(&history, &times);
    assert!((0.0..=1.0).contains(&pace.over));
}
