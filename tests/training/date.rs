//! A run whose chat template writes the date asks the same questions on another day, and says so in its record.

use std::fs;

use allot_models::chat::Date;
use allot_record::Reader;
use serde_json::Value;

use super::{CONFIG, checkpoints, error, model, told, trained, with};
use crate::scratch::Scratch;

/// A scratch folder with a model whose chat template is this, and a config that asks it.
fn asking(template: &str) -> Scratch {
    let config =
        CONFIG.replace("tiny-sums", "./mine").replace("style = \"terse\"", "style = \"terse\"\nchat = true");
    let scratch = with(&config);
    model(&scratch);
    scratch.write("mine/chat_template.jinja", template);
    scratch
}

const DATED: &str = "{{ strftime_now('%d%m%Y') }}+{{ messages[0].content }}";

fn in_config(scratch: &Scratch, run: &str) -> Option<String> {
    let config: toml::Table = toml::from_str(&scratch.read(&format!("{run}/resolved.toml"))).unwrap();
    config["model"].get("date").map(|date| date.as_str().unwrap().to_owned())
}

fn in_record(scratch: &Scratch, run: &str) -> Value {
    Reader::open(&scratch.path().join(run)).unwrap().1.training.unwrap()["date"].clone()
}

#[test]
fn a_run_keeps_the_date_that_its_template_writes() {
    let scratch = asking(DATED);
    let run = |out: &str, more: &[&str]| trained(&scratch, &[&["run.toml", "--out", out], more].concat());
    let before = Date::today();
    run("today", &[]);
    let date = in_config(&scratch, "today").unwrap();
    assert!([before, Date::today()].map(|date| date.to_string()).contains(&date), "{date}");
    assert_eq!(in_record(&scratch, "today"), date.as_str());

    // On another day, repeated from the config that was kept, and resumed after it was stopped.
    run("then", &["-o", "model.date=2020-02-29"]);
    trained(&scratch, &["then/resolved.toml", "--out", "again"]);
    let record = scratch.read("then/record.jsonl");
    assert_eq!(
        (scratch.read("again/record.jsonl"), in_record(&scratch, "then")),
        (record.clone(), "2020-02-29".into())
    );
    let left = checkpoints(&scratch.path().join("again"));
    left.into_iter().skip(1).for_each(|late| fs::remove_dir_all(late).unwrap());
    trained(&scratch, &["--resume", "again"]);
    assert_eq!(scratch.read("again/record.jsonl"), record);
    // The config that was given, without the date, is that of the run.
    trained(&scratch, &["run.toml", "--resume", "again"]);
    scratch.write("run.toml", scratch.read("run.toml").replace("[model]", "[model]\ndate = 2020-03-01"));
    let said = told(&scratch, &["run.toml", "--resume", "again"]);
    assert!(error(&said).contains("has a different config from the one given"), "{said}");
}

#[test]
fn a_run_whose_template_writes_no_date_has_none() {
    let scratch = asking("{% if false %}{{ strftime_now('%d') }}{% endif %}{{ messages[0].content }}");
    trained(&scratch, &["run.toml", "--out", "one"]);
    assert_eq!((in_config(&scratch, "one"), in_record(&scratch, "one")), (None, Value::Null));
    trained(&scratch, &["run.toml", "--out", "other", "-o", "model.date=2020-02-29"]);
    assert_eq!(scratch.read("one/record.jsonl"), scratch.read("other/record.jsonl"));

    for wrong in ["'29.02.2020'", "2020-02-29T12:00:00", "12:00:00"] {
        let said = told(&scratch, &["run.toml", "-o", &format!("model.date={wrong}")]);
        assert!(error(&said).contains("is not a date; expected one such as `2026-11-25`"), "{said}");
    }
}

#[test]
fn all_runs_of_a_comparison_have_one_date() {
    let scratch = asking(DATED);
    let compared = "\n[compare]\nseeds = 2\npolicies = [{ use = \"dapo\" }]\n";
    scratch.write("run.toml", scratch.read("run.toml") + compared);
    let done =
        scratch.command(&["compare", "run.toml", "--out", "all", "-o", "run.steps=2"]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let mut dates = Vec::new();
    for policy in ["uniform", "dapo"] {
        for seed in ["seed-0001", "seed-0002"] {
            let config: toml::Table =
                toml::from_str(&scratch.read(&format!("all/configs/{policy}/{seed}.toml"))).unwrap();
            dates.push(config["model"]["date"].as_str().unwrap().to_owned());
            assert_eq!(in_record(&scratch, &format!("all/runs/{policy}/{seed}")), dates[0].as_str());
        }
    }
    dates.dedup();
    assert_eq!(dates.len(), 1, "{dates:?}");
}
