//! Comparisons that grow after somebody has looked at them: their reports say so, and what holds anyway.

use allot_report::compare::{self, Look, Question};
use allot_report::report::{Asked, Outcome};
use serde_json::Value;

use super::{SIMULATED, run_of, said, with};
use crate::scratch::Scratch;

/// A comparison that was looked at with these numbers of seeds, one after the other.
fn grown(seeds: &[&str]) -> Scratch {
    let scratch = with(SIMULATED);
    for seeds in seeds {
        let text = said(&scratch, &["compare", "compare.toml", "--out", "out", "--seeds", seeds]);
        assert!(text.ends_with("exit code 0"), "{text}");
    }
    scratch
}

fn report(scratch: &Scratch, folder: &str) -> Value {
    serde_json::from_str(&scratch.read(&format!("{folder}/report/report.json"))).unwrap()
}

/// What a report says of looks, by arm and question.
fn row<'r>(report: &'r Value, arm: u64, asked: &str) -> &'r Value {
    let rows = report["looks"]["rows"].as_array().unwrap();
    rows.iter().find(|row| row["arm"] == arm && row["asked"] == asked).unwrap()
}

#[test]
fn what_was_looked_at_before_it_grew_is_told_with_what_holds() {
    let scratch = grown(&["3", "6"]);
    let text = said(&scratch, &["compare", "--resume", "out"]);
    let warning = "warning: looked at with 3 seeds before it grew to 6: plain p-values and intervals are too good if that \
                   look decided on the growth. Verdicts are by p × 2, for 2 looks (Bonferroni), and by 97.5\u{a0}% intervals; \
                   they and the 3 fresh seeds alone are in the table “What holds after 2 looks”";
    assert!(text.contains(warning), "{text}");
    assert_eq!(text.matches("; on the 3 fresh seeds alone").count(), 4, "{text}");
    assert!(text.contains("by Holm's correction and for 2 looks"), "{text}");

    // Fresh seeds have the values of a comparison of these seeds alone; the others are those of all seeds, twice.
    scratch.write("fresh.toml", SIMULATED.replace("seeds = 4", "seeds = [6, 7, 8]"));
    said(&scratch, &["compare", "fresh.toml", "--out", "fresh"]);
    let (grown, fresh) = (report(&scratch, "out"), report(&scratch, "fresh"));
    assert_eq!((&grown["looks"]["seeds"], &grown["looks"]["fresh"]), (&json(&[3]), &json(&[6, 7, 8])));
    assert!(fresh.get("looks").is_none());
    let twice = |p: &Value| p.as_f64().map(|p| (2.0 * p).min(1.0));
    for arm in [1, 2] {
        let of = |report: &Value| {
            let rows = report["differences"].as_array().unwrap();
            rows.iter().find(|row| row["arm"] == arm).unwrap().clone()
        };
        let (end, all, alone) = (row(&grown, arm, "end"), of(&grown), of(&fresh));
        assert_eq!((&end["fresh"], &end["fresh_p"]), (&alone["mean"], &alone["holm"]));
        assert_eq!((&end["p"], end["corrected"].as_f64()), (&all["holm"], twice(&all["holm"])));
        let wider = |end: &str| {
            (row(&grown, arm, "end")["all"][end].as_f64().unwrap(), all["mean"][end].as_f64().unwrap())
        };
        assert!(wider("low").0 < wider("low").1 && wider("high").0 > wider("high").1);
        assert_eq!(end["all"]["value"], all["mean"]["value"]);

        let of = |report: &Value| report["targets"][0]["rows"][arm as usize].clone();
        let (cost, all, alone) = (row(&grown, arm, "cost"), of(&grown), of(&fresh));
        assert_eq!((&cost["fresh"], &cost["fresh_p"]), (&alone["ratio"], &alone["holm"]));
        assert_eq!((&cost["p"], cost["corrected"].as_f64()), (&all["holm"], twice(&all["holm"])));
        assert_eq!(cost["pairs"], 3);
    }
    // On the page, in the tables, and in files.
    let page = scratch.read("out/report/index.html");
    assert!(page.contains("What holds after 2 looks") && page.contains("looked at with 3 seeds"));
    // In one run of `dapo` the target is not reached: there is a bound on the ratio of all seeds.
    let cost = row(&grown, 1, "cost");
    assert!(cost["all"].is_null() && !cost["bound"].is_null() && cost["fresh_bound"].is_null());
    let csv = scratch.read("out/report/tables/looks.csv");
    assert!(csv.starts_with("arm,question,p,corrected,all,all_low,all_high,fresh_seeds,fresh,"), "{csv}");
    assert_eq!(csv.lines().count(), 5);
}

fn json(seeds: &[u64]) -> Value {
    serde_json::json!(seeds)
}

#[test]
fn a_comparison_that_never_grew_has_no_looks() {
    let scratch = grown(&["4"]);
    // Looking again at the same seeds is no further look.
    said(&scratch, &["report", "out"]);
    said(&scratch, &["compare", "--resume", "out"]);
    assert_eq!(scratch.read("out/looks.jsonl"), "{\"planned\":[3,4,5,6],\"seen\":[3,4,5,6]}\n");
    assert!(report(&scratch, "out").get("looks").is_none());
    for file in ["index.html", "tables.md"] {
        let text = scratch.read(&format!("out/report/{file}"));
        assert!(!text.contains("looked at with") && !text.contains(" looks"), "{file}");
    }
    assert!(!scratch.path().join("out/report/tables/looks.csv").exists());
}

#[test]
fn each_plan_that_was_looked_at_counts_once() {
    let scratch = grown(&["2"]);
    said(&scratch, &["report", "out", "--baseline", "dapo"]);
    let dry = said(&scratch, &["compare", "--resume", "out", "--seeds", "3", "--dry-run"]);
    let note = "note: a report was made with 2 seeds: after growing to 3, reports correct p-values for 2 looks, and also test the \
                fresh seeds alone";
    assert!(dry.contains(note), "{dry}");
    let text = said(&scratch, &["compare", "--resume", "out", "--seeds", "3"]);
    assert!(
        text.contains(note) && text.contains("; there is no p-value for the 1 fresh seed alone"),
        "{text}"
    );
    let text = said(&scratch, &["compare", "--resume", "out", "--seeds", "5"]);
    assert!(text.contains("looked at with 2 and 3 seeds before it grew to 5"), "{text}");
    let looks = &report(&scratch, "out")["looks"];
    assert_eq!((&looks["count"], &looks["fresh"]), (&serde_json::json!(3), &json(&[6, 7])));
    // More arms are no more seeds.
    let arm = "[[compare.policies]]\nuse = \"pods\"\nsettings = { keep = 2 }\n\n[[compare.policies]]";
    scratch.write("compare.toml", SIMULATED.replacen("[[compare.policies]]", arm, 1));
    said(&scratch, &["compare", "compare.toml", "--out", "out", "--seeds", "5"]);
    assert_eq!(report(&scratch, "out")["looks"]["count"], 3);
}

#[test]
fn a_report_without_p_values_is_no_look() {
    let scratch = grown(&["1", "3"]);
    assert!(report(&scratch, "out").get("looks").is_none());
}

#[test]
fn looks_that_are_damaged_are_told() {
    let scratch = grown(&["2"]);
    scratch.write("out/looks.jsonl", "{\"planned\":[3,4],\"seen\":[3,4]}\n{\"planned\":[3\n");
    insta::assert_snapshot!(said(&scratch, &["report", "out"]), @"
    error: `out/looks.jsonl` line 2 is not a valid entry for a report: EOF while parsing a list at line 1 column 13

    hint: restore the line, or remove it to forget that report
    exit code 2
    ");
}

#[test]
fn a_verdict_is_by_what_holds_after_all_looks() {
    // A difference with p of some 0.03.
    let apart = [0.002, 0.02, 0.005, 0.018, -0.004, 0.012, 0.015, 0.001];
    let report_with = |looks: Vec<Look>| {
        let runs = apart.iter().zip(1..).flat_map(|(apart, seed)| {
            let (a, b) = (0.65 + 0.001 * seed as f64, 0.65 + 0.001 * seed as f64 + apart);
            [run_of("uniform", seed, None, a), run_of("dapo", seed, None, b)]
        });
        let question = Question { planned: (1..=8).collect(), looks, ..Question::default() };
        compare::compare(runs.collect(), &question, Vec::new()).unwrap().0
    };
    let plain = report_with(Vec::new());
    let end = &plain.verdicts[0].end;
    assert!(
        end.kind == Outcome::Better && end.words.contains("p = 0.03 by Holm's correction)"),
        "{}",
        end.words
    );
    let looked = report_with(vec![Look { planned: vec![1, 2, 3, 4], seen: vec![1, 2, 3, 4] }]);
    let end = &looked.verdicts[0].end;
    assert!(end.kind == Outcome::Inconclusive, "{}", end.words);
    assert!(end.words.contains("p = 0.06 by Holm's correction and for 2 looks)"), "{}", end.words);
    assert!(
        end.words.contains("; on the 4 fresh seeds alone: +0.6 points, p = 0.27 by Holm's correction"),
        "{}",
        end.words
    );
    // The tables have the plain values still.
    assert_eq!(plain.differences[0].holm, looked.differences[0].holm);
    let looks = looked.looks.unwrap();
    assert!(looks.rows.iter().all(|row| row.asked == Asked::End || row.fresh_p.is_none()));
}
