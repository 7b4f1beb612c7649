//! Pages, figures, tables and arrays of made reports: rich ones, poor ones and hostile ones. What a browser
//! must judge is in `tests/browser/check.mjs`: with `ALLOT_PAGES=FOLDER` this test leaves it pages there.

#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeSet;
use std::path::Path;

use allot_report::axis::{Axis, Costs};
use allot_report::figure::{self, Figure};
use allot_report::forecast::{Forecast, Policy};
use allot_report::history::Fates;
use allot_report::report::{
    Arm, Curve, Difference, Differing, Estimate, Final, Finding, Measured, Outcome, Part, Reached, Report,
    RunRow, State, Target, Told, Trend, Use, Verdict,
};
use allot_report::statistics::Bound;
use allot_report::tuning::{Goal, Measure, Trial, Tuned, TunedArm, Tuning};
use allot_report::{colour, number, page, scores, tables};

// ---- made reports

/// Chance enough for a picture.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    fn about(&mut self, middle: f64, spread: f64) -> f64 {
        middle + spread * (self.roll() + self.roll() - 1.0)
    }
}

fn around(value: f64, spread: f64, seeds: usize) -> Estimate {
    let known = seeds > 1;
    Estimate { value, low: known.then_some(value - spread), high: known.then_some(value + spread) }
}

/// A report on these arms.
fn made(names: &[&str], seeds: usize, targets: &[f64]) -> Report {
    let mut dice = Dice(7);
    let axes = Axis::ALL.to_vec();
    let spans = [41_000.0, 2_300_000.0, 6.2e15, 1_450_000.0, 3_720.0, 412.0];
    let goods: Vec<f64> = (0..names.len()).map(|i| 0.62 + 0.03 * ((i * 3) % 5) as f64).collect();
    let accuracy = |good: f64, t: f64| 0.31 + (good - 0.31) * (1.0 - (-3.2 * t).exp());
    let mut report = Report {
        title: format!("{} on tiny-sums: {} arms, {seeds} seeds", names.join(", "), names.len()),
        shared: vec![
            ("model".into(), "tiny-sums (sha256 3f9a0b…)".into()),
            ("problems".into(), "4,096 to learn from, 512 held out".into()),
            ("budget".into(), "41,000 rollouts".into()),
            ("learning rate".into(), "0.0003".into()),
        ],
        axis: Axis::Rollouts,
        axes: axes.clone(),
        asked: !targets.is_empty(),
        confidence: 0.95,
        baseline: 0,
        arms: Vec::new(),
        warnings: Vec::new(),
        notes: Vec::new(),
        verdicts: Vec::new(),
        curves: Vec::new(),
        targets: Vec::new(),
        finals: Vec::new(),
        parts: Vec::new(),
        differences: Vec::new(),
        uses: Vec::new(),
        trends: Vec::new(),
        taught: Vec::new(),
        resolution: None,
        tuning: None,
        looks: None,
        differing: vec![
            Differing {
                key: "policy".into(),
                values: names.iter().map(ToString::to_string).collect(),
                own: true,
            },
            Differing {
                key: "machine.threads".into(),
                values: names.iter().map(|_| "8".into()).collect(),
                own: false,
            },
        ],
    };
    for (arm, name) in names.iter().enumerate() {
        let good = goods[arm];
        let runs = (0..seeds).map(|seed| {
            let last = dice.about(accuracy(good, 1.0), 0.04);
            let mut costs = Costs { seconds: Some(dice.about(spans[4], 300.0)), ..Costs::default() };
            costs.spent.run_rollouts = 41_000;
            costs.spent.run_tokens = dice.about(spans[1], 2e5) as u64;
            costs.compute.trained_tokens = dice.about(spans[3], 2e5) as u64;
            costs.compute.optimizer_steps = 412;
            costs.compute.flops.decode = dice.about(spans[2], 4e14);
            RunRow {
                run: format!("runs/{name}-{seed}"),
                seed: seed as u64,
                id: 0,
                state: State::Finished,
                reason: "the rollouts of the run are spent".into(),
                steps: 103,
                updates: 101,
                costs,
                start: 0.31,
                last,
                best: last + 0.02 * dice.roll(),
                measured: (0..arm)
                    .map(|n| Measured {
                        name: format!("skipped/{n}"),
                        calls: 206,
                        mean: 3.5 * f64::from(n as u32),
                        last: 0.5,
                    })
                    .collect(),
            }
        });
        report.arms.push(Arm {
            name: (*name).into(),
            policy: name.split_whitespace().next().unwrap_or("policy").into(),
            version: "0.1.0".into(),
            sha256: format!("{:064x}", 0x00ab_cdef_u64 * (arm as u64 + 3)),
            settings: vec![("group-size".into(), "8".into()), ("rounds".into(), (arm + 1).to_string())],
            runs: runs.collect(),
        });
        for (axis, span) in axes.iter().zip(spans) {
            let end = span * if *axis == Axis::Rollouts { 1.0 } else { 0.7 + 0.3 * dice.roll() };
            let points = (0..=40).map(|i| {
                let t = f64::from(i) / 40.0;
                let value = dice.about(accuracy(good, t), 0.008);
                (t * end, around(value, 0.012 + 0.025 * t, seeds))
            });
            report.curves.push(Curve { axis: *axis, arm, points: points.collect() });
        }
        report.finals.push(Final {
            arm,
            runs: seeds,
            start: 0.31,
            last: around(accuracy(good, 1.0), 0.018, seeds),
            best: around(accuracy(good, 1.0) + 0.02, 0.017, seeds),
            iqm: around(accuracy(good, 1.0) - 0.004, 0.02, seeds),
            improvement: (arm > 0).then(|| around(0.5 + (good - goods[0]) * 3.0, 0.14, seeds)),
            more: vec![("pass@8".into(), around(accuracy(good, 1.0) + 0.13, 0.015, seeds))],
        });
        for (level, part) in
            ["sums, level 1", "sums, level 2", "countdown", "sorting of seven"].iter().enumerate()
        {
            let value = accuracy(good, 1.0) + 0.1 - 0.12 * level as f64;
            report.parts.push(Part {
                arm,
                part: (*part).into(),
                last: around(dice.about(value, 0.02), 0.03, seeds),
            });
        }
        if arm > 0 {
            let mean = accuracy(good, 1.0) - accuracy(goods[0], 1.0);
            let p = if mean.abs() > 0.03 { 0.0004 } else { 0.31 };
            let two = seeds > 1;
            report.differences.push(Difference {
                arm,
                seeds,
                unpaired: false,
                mean: around(mean, 0.021, seeds),
                p: two.then_some(p / 2.0),
                holm: two.then_some(p),
                flip: two.then_some(p * 1.4),
                needed: (mean.abs() > 0.01).then_some(34),
            });
            let (kind, words) = match mean {
                m if m > 0.03 => (Outcome::Better, "better by the end, at every cost that was looked at"),
                m if m < -0.03 => (Outcome::Worse, "worse by the end"),
                _ => (Outcome::Inconclusive, "the seeds do not tell; some 34 would"),
            };
            let words = format!("{name} against {}: {words}", names[0]);
            let cost = (!targets.is_empty()).then(|| Finding {
                kind: Outcome::Inconclusive,
                words: format!("{name} reached it in as many runs as {}", names[0]),
            });
            report.verdicts.push(Verdict { arm, cost, end: Finding { kind, words } });
        }
        let learned = 9_000 + 2_800 * ((arm as u64 * 3) % 5);
        let fates = Fates {
            learned,
            trained_right: 5_200,
            trained_wrong: 2_400,
            trained_equal: 12,
            released_right: (8_000u64).saturating_sub(arm as u64 * 1_000),
            released_wrong: 4_100,
            released_mixed: 900,
            stale: 700 * (arm as u64 % 3),
            unscorable: 85,
            held: 310,
        };
        let ages = [0.62, 0.2, 0.1, 0.05, 0.03].iter().take(1 + arm % 5);
        report.uses.push(Use {
            arm,
            runs: seeds,
            sampled: fates.total(),
            pilots: fates.total() * 2 / 3,
            commits: fates.total() - fates.total() * 2 / 3,
            truncated: 1_204,
            ages: ages.map(|share| (share * fates.trained() as f64) as u64).collect(),
            fates,
            costs: [("prompt tokens", 812_000.0), ("generated tokens", 2.3e6), ("operations", 6.2e15)]
                .map(|(n, v)| (n.into(), v))
                .to_vec(),
        });
        for (told, from, to) in [
            (Told::Effective, 0.75, 0.4),
            (Told::Useful, 0.5, 0.25),
            (Told::Reward, 0.3, 0.72),
            (Told::TrainedReward, 0.42, 0.55),
            (Told::Age, 0.0, 1.0),
        ] {
            let points = (0..20).map(|i| {
                let t = (f64::from(i) + 0.5) / 20.0;
                let value = dice.about(from + (to - from) * t + 0.03 * (arm % 4) as f64, 0.03);
                (t * spans[0], around(value, 0.03, seeds))
            });
            report.trends.push(Trend { arm, told, points: points.collect() });
        }
    }
    for accuracy in targets {
        for (axis, span) in axes.iter().zip(spans) {
            let rows =
                (0..names.len()).map(|arm| reached(&mut dice, arm, goods[arm], *accuracy, span, seeds));
            let horizon = span * 0.96;
            report.targets.push(Target { accuracy: *accuracy, axis: *axis, horizon, rows: rows.collect() });
        }
    }
    report
}

/// How an arm of that goodness got there, or not.
fn reached(dice: &mut Dice, arm: usize, good: f64, target: f64, span: f64, seeds: usize) -> Reached {
    let share = ((good - target) * 9.0 + 0.5).clamp(0.0, 1.0);
    let n = (share * seeds as f64).round() as usize;
    let mut costs: Vec<f64> = (0..n).map(|_| span * dice.about(0.55, 0.3)).collect();
    costs.sort_by(f64::total_cmp);
    let curve: Vec<_> = costs
        .iter()
        .enumerate()
        .map(|(i, cost)| {
            let value = (i + 1) as f64 / seeds as f64;
            let known = seeds > 1;
            let low = known.then_some((value - 0.24).max(0.0));
            (*cost, Estimate { value, low, high: known.then_some((value + 0.24).min(1.0)) })
        })
        .collect();
    Reached {
        arm,
        reached: n,
        runs: seeds,
        median: (n * 2 >= seeds && n > 0).then(|| costs[(seeds / 2).min(n - 1)]),
        median_low: (n * 2 >= seeds && n > 0).then(|| costs[0]),
        median_high: None,
        share: around(n as f64 / seeds as f64, 0.1, seeds),
        mean: (n == seeds).then(|| around(span * (0.9 - 0.3 * share), span * 0.06, seeds)),
        ratio: (arm > 0 && n == seeds).then(|| around(1.0 + share / 2.0, 0.18, seeds)),
        bound: (arm > 0 && n < seeds).then_some(Bound {
            known: n,
            p_value: 0.012,
            low: (n > 5).then_some(1.37),
            high: None,
            least: None,
            most: Some(0.8),
        }),
        pairs: if arm > 0 { seeds } else { 0 },
        unpaired: false,
        p: (arm > 0 && seeds > 1).then_some(0.012),
        holm: (arm > 0 && seeds > 1).then_some(0.036),
        curve,
    }
}

/// Five arms, ten seeds, two targets, censored runs, a failure, warnings.
fn rich() -> Report {
    let names = ["uniform", "pilot-commit", "dapo", "reinforce-ada", "knapsack"];
    let mut report = made(&names, 10, &[0.6, 0.7]);
    let failed = &mut report.arms[2].runs[4];
    failed.state = State::Failed;
    failed.reason = "policy `dapo` asked for prompt `812`, which is neither in the pool nor buffered".into();
    failed.costs.seconds = None;
    report.warnings = vec![
        "`machine.threads` differs between arms: 8, 16. Device seconds can't be compared.".into(),
        "Arm `dapo` has 9 finished runs, the others have 10.".into(),
    ];
    report.tuning = Some(tuning(&names));
    report.notes = vec!["Run `runs/dapo-4` failed at step 61 and counts up to there.".into()];
    report
}

/// Eight trials of each arm along a number, a whole number and a word; the last trial fails.
fn tuning(names: &[&str]) -> Tuning {
    let range = |key: &str, low, high| Tuned { key: key.to_owned(), low, high, log: true };
    let trial = |number: u32| {
        let x = f64::from(number) / 7.0;
        let accuracy = (number < 7).then_some(0.3 + 0.4 * x * (1.5 - x));
        let measure = Measure { runs: 1, accuracy, ..Measure::default() };
        Trial {
            number,
            values: vec![
                (1e-4 * 10_f64.powf(x)).into(),
                (2 << (number % 4)).into(),
                ["a", "b"][number as usize % 2].into(),
            ],
            rungs: vec![measure],
            costs: Costs::default(),
            failed: (number == 7).then(|| "its policy <asked> for too much".to_owned()),
        }
    };
    let arm = |name: &&str| TunedArm {
        name: (*name).to_owned(),
        ranges: vec![
            range("optimizer.learning_rate", Some(1e-4), Some(1e-3)),
            range("run.groups", Some(2.0), Some(16.0)),
            range("run.order", None, None),
        ],
        trials: (0..8).map(trial).collect(),
        best: 5,
    };
    let goal = Goal { target: Some(0.6), axis: Axis::Rollouts };
    Tuning {
        grid: false,
        goal,
        seeds: vec![1_000_001],
        shares: vec![1.0],
        arms: names.iter().map(arm).collect(),
    }
}

#[test]
fn a_grid_is_a_page_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let grid = Tuning { grid: true, ..tuning(&["<one>", "other"]) };
    page::write_grid(&grid, folder.path()).unwrap();
    let page = std::fs::read_to_string(folder.path().join("index.html")).unwrap();
    assert!(page.contains("&lt;one&gt;") && !page.contains("<one>"));
    for figure in ["map", "sensitivity"] {
        well_formed(&std::fs::read_to_string(folder.path().join(format!("figures/{figure}.svg"))).unwrap());
    }
}

fn lonely() -> Report {
    let mut report = made(&["uniform"], 1, &[]);
    report.title = "uniform".into();
    report
}

fn unreached() -> Report {
    let mut report = made(&["uniform", "pilot-commit"], 3, &[0.97]);
    report.arms[1].runs[0].state = State::Unfinished;
    report
}

fn crowd() -> Report {
    let names: Vec<String> = (0..12)
        .map(|i| {
            format!(
                "pilot-commit pilots=4 commits={} keep-mixed=true temperature=0.{i} seed-offset={i}",
                8 + i
            )
        })
        .collect();
    made(&names.iter().map(String::as_str).collect::<Vec<_>>(), 5, &[0.5, 0.6, 0.65])
}

/// Names that are markup, and numbers that are none.
fn hostile() -> Report {
    let mut report = made(&["<script>alert(1)</script>", "a & \"b\" | 'c', ]]> <!-- \u{1}"], 3, &[0.6]);
    let none = Estimate { value: f64::NAN, low: Some(f64::NAN), high: Some(f64::INFINITY) };
    for curve in &mut report.curves {
        curve.points[3] = (f64::NAN, none);
        curve.points[5].1 = none;
    }
    for target in &mut report.targets {
        target.horizon = f64::INFINITY;
        target.rows[0].mean = Some(none);
        target.rows[1].curve.push((f64::INFINITY, none));
    }
    report.parts[0].last = none;
    report.differences[0].mean = none;
    report.finals[0].last = none;
    report.trends[0].points[0].1 = none;
    report.warnings = vec!["<img src=x onerror=alert(2)>".into()];
    report.arms[0].settings.push(("</style>".into(), "=cmd|' /C calc'!A0".into()));
    report
}

/// Nothing at all.
fn empty() -> Report {
    let mut report = made(&[], 0, &[]);
    report.axes.clear();
    report.differing.clear();
    report.shared.clear();
    report.title = String::new();
    report
}

/// One axis, arms without a point.
fn bare() -> Report {
    let mut report = made(&["uniform", "dapo"], 2, &[0.5]);
    report.axes = vec![Axis::Rollouts];
    report.curves.iter_mut().for_each(|c| c.points.truncate(usize::from(c.arm == 0)));
    report.trends.iter_mut().for_each(|t| t.points.clear());
    report.targets.iter_mut().for_each(|t| t.rows.clear());
    report.uses.iter_mut().for_each(|u| (u.fates, u.ages) = (Fates::default(), Vec::new()));
    report.parts.clear();
    report.differences.clear();
    report.verdicts.clear();
    report
}

fn all() -> Vec<(&'static str, Report)> {
    vec![
        ("rich", rich()),
        ("lonely", lonely()),
        ("unreached", unreached()),
        ("crowd", crowd()),
        ("hostile", hostile()),
        ("empty", empty()),
        ("bare", bare()),
    ]
}

fn figures(report: &Report) -> Vec<Figure> {
    let accuracy = report.axes.iter().map(|axis| figure::accuracy(report, *axis));
    accuracy.chain(figure::others(report)).collect()
}

fn drawings(report: &Report) -> Vec<(String, String)> {
    let both = |f: Figure| {
        let drawing = f.drawing.ok()?;
        Some([(format!("{} wide", f.name), drawing.wide), (format!("{} narrow", f.name), drawing.narrow)])
    };
    figures(report).into_iter().filter_map(both).flatten().collect()
}

// ---- what is looked for

/// Every tag closed, in order; every attribute in quotes, and none twice. Gives the elements' names.
fn well_formed(text: &str) -> Vec<String> {
    const VOID: [&str; 4] = ["meta", "link", "input", "br"];
    let (mut open, mut names) = (Vec::new(), Vec::new());
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        let (before, from) = rest.split_at(at);
        assert!(!before.contains('>') || open.last().is_some_and(|o| o == "style"), "a bare > in {before:?}");
        let mut quoted = false;
        let end = from
            .char_indices()
            .find(|(_, c)| {
                quoted ^= *c == '"';
                *c == '>' && !quoted
            })
            .map(|(i, _)| i)
            .expect("a tag ends");
        let tag = &from[1..end];
        rest = &from[end + 1..];
        assert!(!tag.contains('<'), "a bare < in {tag:?}");
        if tag.starts_with("!DOCTYPE") {
            continue;
        }
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name), "closed out of turn");
            continue;
        }
        let name: String = tag.chars().take_while(char::is_ascii_alphanumeric).collect();
        assert!(!name.is_empty(), "no name in <{tag}>");
        assert_eq!(tag.matches('"').count() % 2, 0, "quotes in {tag}");
        names.push(name.clone());
        if !tag.ends_with('/') && !VOID.contains(&name.as_str()) {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "never closed: {open:?}");
    names
}

/// The values of an attribute.
fn values<'a>(text: &'a str, attribute: &str) -> Vec<&'a str> {
    let start = format!(" {attribute}=\"");
    text.split(&start).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

#[test]
fn figures_are_whole_and_have_no_number_that_is_none() {
    for (case, report) in all() {
        for (name, svg) in drawings(&report) {
            let elements = well_formed(&svg);
            assert!(elements.len() > 5, "{case}: {name} is empty");
            for bad in ["NaN", " inf", "\"inf", "-inf", "<script", "href"] {
                assert!(!svg.contains(bad), "{case}: {name} has {bad}");
            }
            for size in values(&svg, "font-size") {
                assert!(size.parse::<f64>().unwrap() >= 11.0, "{case}: {name} has text of {size} px");
            }
            assert!(svg.contains(">0<") || svg.contains("%<"), "{case}: {name} has no ticks");
            let size: Vec<f64> = values(&svg, "viewBox")[0].split(' ').map(|v| v.parse().unwrap()).collect();
            for place in ["x", "cx"].iter().flat_map(|a| values(&svg, a)) {
                let place: f64 = place.parse().unwrap();
                assert!((-1.0..=size[2] + 1.0).contains(&place), "{case}: {name} draws at {place}");
            }
        }
    }
}

#[test]
fn figures_become_pictures_of_twice_their_size() {
    for (case, report) in [("rich", rich()), ("hostile", hostile())] {
        for (name, svg) in drawings(&report) {
            let png = figure::png(&svg).unwrap_or_else(|| panic!("{case}: {name}"));
            assert_eq!(png[..8], *b"\x89PNG\r\n\x1a\n");
            let width = u32::from_be_bytes(png[16..20].try_into().unwrap());
            assert_eq!(f64::from(width), 2.0 * values(&svg, "width")[0].parse::<f64>().unwrap());
        }
    }
}

/// A PDF's table says where its objects are, and its stream is as long as it says; what it draws is what the SVG does.
#[test]
fn figures_become_pdfs_whose_table_leads_to_their_objects() {
    for (case, report) in [("rich", rich()), ("hostile", hostile())] {
        for (name, svg) in drawings(&report) {
            let pdf = figure::pdf(&svg).unwrap_or_else(|| panic!("{case}: {name}"));
            let find = |what: &[u8], from: usize| {
                from + pdf[from..].windows(what.len()).position(|w| w == what).expect("it is there")
            };
            let line = |at: usize| String::from_utf8_lossy(&pdf[at..find(b"\n", at)]).into_owned();
            assert!(pdf.starts_with(b"%PDF-1.4\n") && pdf.ends_with(b"%%EOF\n"));
            let table: usize = line(find(b"startxref\n", 0) + 10).parse().unwrap();
            assert_eq!(line(table), "xref");
            for object in 1..=4 {
                let entry = line(table + 5 + "0 5\n".len() + 20 * object);
                let place: usize = entry.split(' ').next().unwrap().parse().unwrap();
                assert_eq!(line(place), format!("{object} 0 obj"), "{case}: {name}");
            }
            let start = find(b"stream\n", 0) + 7;
            let length: usize = line(find(b"/Length ", 0) + 8).split(' ').next().unwrap().parse().unwrap();
            assert_eq!(line(start + length + 1), "endstream");
            let mut marks = String::new();
            let packed = &pdf[start..start + length];
            std::io::Read::read_to_string(&mut flate2::read::ZlibDecoder::new(packed), &mut marks).unwrap();
            assert!(!marks.contains("NaN") && !marks.contains("inf"), "{case}: {name}");
            let filled = |svg: &str| svg.matches("<rect").count() + svg.matches("<circle").count();
            assert!(marks.lines().filter(|l| *l == "f").count() >= filled(&svg), "{case}: {name}");
            let strokes = svg.matches(" stroke=\"").count();
            assert_eq!(marks.lines().filter(|l| *l == "S").count(), strokes, "{case}: {name}");
        }
    }
}

#[test]
fn poor_reports_say_what_is_missing() {
    let missing = |report: &Report| -> BTreeSet<String> {
        figures(report).into_iter().filter(|f| f.drawing.is_err()).map(|f| f.name).collect()
    };
    assert_eq!(missing(&rich()).len(), 0);
    assert_eq!(missing(&lonely()), BTreeSet::from(["frontier", "reached", "differences"].map(String::from)));
    assert_eq!(missing(&unreached()), BTreeSet::from(["frontier".to_owned()]));
    assert_eq!(missing(&empty()).len(), 8);
    let page = page::html(&unreached());
    assert!(page.contains("not reached") && page.contains("Fewer than half of the runs reached the target"));
    assert!(page::html(&lonely()).contains("There is nothing to compare"));
}

/// Policies of a forecast, with their marks; one has a hostile name.
const FORECAST: [&str; 10] = [
    "spo§",
    "prospect",
    "uniform, 2 of each",
    "dapo†",
    "greso‡",
    "pods",
    "uniform",
    "c-grpo",
    "pilot-commit*",
    "<script>alert(1)</script> & \"a policy\" of a long name",
];

/// A forecast of many policies with all units; one of few; one without anything.
fn forecasts() -> Vec<(&'static str, Forecast)> {
    let ratio = |place: usize| {
        let value = 2.7 / (1.0 + 0.28 * place as f64);
        Estimate { value, low: Some(0.93 * value), high: Some(1.08 * value) }
    };
    let told = |name: &str, mark: char, number: f64| name.ends_with(mark).then_some(number);
    let policy = |(place, name): (usize, &&str)| Policy {
        name: (*name).to_owned(),
        pays: [20_000.0, 93_600.0, 4.1e6].map(|baseline| Some(baseline / ratio(place).value)),
        fewer: [0, 1, 2].map(|_| (place != 6).then(|| ratio(place))),
        than_best: (place != 2).then(|| ratio(place)),
        effective: 1_800.0 + 300.0 * place as f64,
        modelled: told(name, '*', 0.4),
        replayed: told(name, '†', 0.33),
        often: told(name, '‡', 34.2),
        zero_variance: told(name, '§', 0.38),
    };
    let rich = Forecast {
        title: "Forecast from runs & <b>logs</b> of \u{202e}moh".into(),
        log: "95,792 rollouts of 11,974 prompts; mean pass rate 0.177, never right 66 %, always right 13 %."
            .into(),
        about:
            "The page shows what each policy pays to learn as much as `uniform` does from 20,000 rollouts."
                .into(),
        policies: FORECAST.iter().enumerate().map(policy).collect(),
        baseline: 6,
        best: Some("2 of each of 48".into()),
        unknown: [None, None, None],
        pass_rates: [7_900, 300, 410, 280, 190, 150, 140, 170, 210, 320, 340, 1_564],
        advice: "`uniform` learns most for a rollout with 2 or 3 rollouts of each prompt".into(),
        left_out: vec!["as `uniform` here: cero, vip".into(), "not forecast: mine: it traps".into()],
        limits: vec!["the log can't tell what changes as the model learns".into()],
        reading: vec!["read as: verl".into()],
        settings: vec![("prompts in a step".into(), "64".into()), ("--where".into(), "</style>=1".into())],
    };
    let mut poor = rich.clone();
    poor.policies.truncate(2);
    poor.baseline = 1;
    for policy in &mut poor.policies {
        (policy.pays[1], policy.pays[2]) = (None, None);
        policy.fewer = [policy.fewer[0].map(|ratio| Estimate { low: None, high: None, ..ratio }), None, None];
    }
    poor.policies[1].fewer[0] = Some(Estimate { value: f64::NAN, low: None, high: None });
    poor.unknown = [None, Some("The log has no lengths.".into()), Some("The log has no lengths.".into())];
    let mut empty = poor.clone();
    empty.policies.clear();
    empty.pass_rates = [0; 12];
    empty.left_out.clear();
    vec![("forecast", rich), ("forecast-of-little", poor), ("forecast-of-nothing", empty)]
}

#[test]
fn a_forecast_has_a_figure_of_each_unit_that_is_known() {
    let drawn = |forecast: &Forecast| -> Vec<(String, bool)> {
        figure::of_forecast(forecast).into_iter().map(|f| (f.name, f.drawing.is_ok())).collect()
    };
    let known: Vec<Vec<bool>> =
        forecasts().iter().map(|(_, f)| drawn(f).iter().map(|(_, is)| *is).collect()).collect();
    assert_eq!(known, [[true, true, true, true], [true, false, false, true], [false; 4]]);
    for (case, forecast) in forecasts() {
        for figure in figure::of_forecast(&forecast) {
            let Ok(drawing) = figure.drawing else { continue };
            for svg in [drawing.wide, drawing.narrow] {
                well_formed(&svg);
                assert!(!svg.contains("NaN") && !svg.contains("<script"), "{case}: {}", figure.name);
            }
        }
    }
    let rich = &forecasts()[0].1;
    let page = page::forecast_html(rich);
    for words in [
        "2.70× fewer",
        "† So much of what the policy trains on",
        "dapo† 33",
        "‡ The policy stays with few prompts",
        "greso‡ 34",
        "§ So much of what the policy trains on",
        "spo§ 38",
        "[2.51, 2.92]",
        "1,000 with an advantage",
        "1.52M × P",
        "&lt;script&gt;",
        "uniform*",
    ] {
        assert_eq!(page.contains(words), words != "uniform*", "{words}");
    }
    assert!(
        !page.contains('\u{202e}')
            && page.contains("<h1>Forecast from runs &amp; &lt;b&gt;logs&lt;/b&gt; of \\u202emoh</h1>")
    );
    // As on the screen: what the interval leaves open, and what has none.
    assert!(page.contains("no difference shown") && page.contains("rollouts, than 2 of each of 48"));
    let poor = page::forecast_html(&forecasts()[1].1);
    assert!(poor.contains("The log has no lengths.") && poor.contains("2.70× fewer, of few prompts"));
}

/// All pages.
fn pages() -> Vec<(&'static str, String)> {
    let reports = all().into_iter().map(|(case, report)| (case, page::html(&report)));
    let forecasts = forecasts().into_iter().map(|(case, forecast)| (case, page::forecast_html(&forecast)));
    reports.chain(forecasts).collect()
}

#[test]
fn pages_are_whole_and_ask_nothing_of_a_network() {
    for (case, page) in pages() {
        let elements = well_formed(&page);
        assert_eq!(elements.iter().filter(|e| *e == "h1").count(), 1, "{case}");
        assert!(!elements.contains(&"script".to_owned()) && !elements.contains(&"img".to_owned()), "{case}");
        assert!(!page.contains("NaN"), "{case}");
        let own = page.replace("http://www.w3.org/2000/svg", "");
        for bad in ["http://", "https://", "@import", "url(", "src=\""] {
            assert!(!own.contains(bad), "{case}: {bad}");
        }
        for link in values(&page, "href") {
            let inside = link.strip_prefix('#');
            assert!(link.starts_with("data:") || inside.is_some(), "{case}: {link}");
            let there = inside.is_none_or(|id| values(&page, "id").contains(&id));
            assert!(there, "{case}: nothing is called {link}");
        }
        let ids = values(&page, "id");
        assert_eq!(ids.len(), ids.iter().collect::<BTreeSet<_>>().len(), "{case}: an id twice");
        for id in values(&page, "aria-labelledby").iter().chain(&values(&page, "for")) {
            assert!(ids.contains(id), "{case}: nothing is called {id}");
        }
    }
}

#[test]
fn names_are_text_wherever_they_stand() {
    let report = hostile();
    let page = page::html(&report);
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    assert!(!page.contains("<script") && !page.contains("<img"));
    let markdown = tables::markdown(&report);
    assert!(markdown.contains("&lt;script&gt;") && !markdown.contains("<script"));
    assert!(markdown.contains(r#"a & "b" \| 'c'"#));
    let (_, csv) = tables::csv(&report).into_iter().find(|(name, _)| name == "parts.csv").unwrap();
    assert!(csv.contains("\"a & \"\"b\"\" | 'c', ]]> <!-- \u{1}\""), "{csv}");
}

#[test]
fn an_arm_has_one_colour_throughout() {
    let report = rich();
    let colours: Vec<&str> =
        (0..report.arms.len()).map(|arm| colour::of(report.baseline, arm).colour).collect();
    assert_eq!(colours.iter().collect::<BTreeSet<_>>().len(), colours.len());
    for (name, svg) in drawings(&report) {
        // Arms that did not always reach the target have no place among those that did.
        if name.starts_with("frontier") {
            continue;
        }
        let baseline = usize::from(name.starts_with("differences"));
        for colour in &colours[baseline..] {
            assert!(svg.contains(colour), "{name} lacks {colour}");
        }
    }
    let page = page::html(&report);
    for (name, colour) in report.arms.iter().map(|a| &a.name).zip(&colours) {
        let before: Vec<&str> = page.split(&format!("</svg>{name}</span>")).collect();
        assert!(before.len() > 5, "{name} is in the tables");
        for start in &before[..before.len() - 1] {
            let mark = start.rsplit("<svg").next().unwrap();
            assert_eq!(values(mark, "stroke"), [*colour], "before {name}");
        }
    }
    let inks: BTreeSet<_> = (0..24).map(|arm| format!("{:?}", colour::of(3, arm))).collect();
    assert_eq!(inks.len(), 24, "colours and dashes tell two dozen arms apart");
}

#[test]
fn tables_of_csv_are_rectangles_of_full_numbers() {
    for (case, report) in all() {
        for (name, csv) in tables::csv(&report) {
            let mut widths = BTreeSet::new();
            for line in csv.lines().filter(|_| case != "hostile") {
                let (mut quoted, mut fields) = (false, 1);
                for c in line.chars() {
                    quoted ^= c == '"';
                    fields += usize::from(c == ',' && !quoted);
                }
                widths.insert(fields);
            }
            assert!(widths.len() <= 1, "{case}: {name} has lines of {widths:?} fields");
            assert!(!csv.contains("NaN") && !csv.contains("inf,"), "{case}: {name}");
        }
    }
    let (_, csv) = tables::csv(&rich()).into_iter().find(|(name, _)| name == "result.csv").unwrap();
    let head = "arm,reached,reached_of,median,median_low,median_high,ratio,ratio_low,ratio_high,cost_holm,";
    assert!(csv.starts_with(head), "{csv}");
    assert_eq!(csv.lines().count(), 6);
}

#[test]
fn numbers_are_read_as_people_write_them() {
    let costs =
        [0.0, 7.0, 412.0, 3.25, 953.4, 999.6, 41_000.0, 1_499_999.0, 6.2e15, f64::NAN].map(number::cost);
    assert_eq!(costs, ["0", "7", "412", "3.25", "953", "1.00k", "41.0k", "1.50M", "6.20P", "–"]);
    assert_eq!([0.0, 500.0, 10_000.0, 1.5e6, 2.5].map(number::tick), ["0", "500", "10k", "1.5M", "2.5"]);
    assert_eq!([0.713, 1.0, -0.0].map(number::percent), ["71.3\u{a0}%", "100.0\u{a0}%", "0.0\u{a0}%"]);
    assert_eq!([0.021, -0.021, 0.0, 0.0001].map(number::points), ["+2.1", "−2.1", "0.0", "0.0"]);
    assert_eq!([0.0004, 0.0123, 1.0].map(number::p_value), ["<\u{a0}0.001", "0.012", "1.000"]);
    assert_eq!([0, 999, 1_000, 1_234_567].map(number::count), ["0", "999", "1,000", "1,234,567"]);
}

#[test]
fn a_report_is_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let report = rich();
    let written = page::write(&report, &folder.path().join("new/report")).unwrap();
    let named: BTreeSet<String> = written
        .iter()
        .map(|p| p.strip_prefix(folder.path().join("new/report")).unwrap().display().to_string())
        .collect();
    for name in ["index.html", "tables.md", "report.json", "figures/accuracy-flops.svg", "figures/uses.png"] {
        assert!(named.contains(name), "{name} in {named:?}");
    }
    let ending =
        |end: &str| written.iter().filter(|p| p.extension().is_some_and(|e| e == end)).collect::<Vec<_>>();
    assert_eq!(ending("png").len(), 15);
    assert_eq!(ending("pdf").len(), 15);
    for path in ending("svg") {
        well_formed(&std::fs::read_to_string(path).unwrap());
    }
    let again = page::html(&report);
    assert_eq!(std::fs::read_to_string(&written[0]).unwrap(), again, "the same to the byte");
}

#[test]
fn scores_are_arrays_that_numpy_reads() {
    let runs = vec![vec![vec![0.25, 0.5], vec![1.0]], vec![vec![0.0, 0.125]]];
    let bytes = scores::npz(&[("uniform".into(), runs), ("a/b".into(), Vec::new())]).unwrap();
    assert_eq!(
        bytes,
        scores::npz(&[
            ("uniform".into(), vec![vec![vec![0.25, 0.5], vec![1.0]], vec![vec![0.0, 0.125]]]),
            ("a/b".into(), Vec::new()),
        ])
        .unwrap()
    );
    let find = |what: &[u8]| bytes.windows(what.len()).position(|w| w == what);
    assert!(
        find(b"uniform.npy").is_some() && find(b"a_b.npy").is_some() && find(b"'shape': (0, 0, 0)").is_some()
    );
    let at = find(b"\x93NUMPY\x01\x00").unwrap();
    let length = u16::from_le_bytes([bytes[at + 8], bytes[at + 9]]) as usize;
    assert_eq!((10 + length) % 64, 0);
    let header = std::str::from_utf8(&bytes[at + 10..at + 10 + length]).unwrap();
    assert!(header.starts_with("{'descr': '<f8', 'fortran_order': False, 'shape': (2, 2, 2), }"));
    let data: Vec<f64> = bytes[at + 10 + length..][..64]
        .chunks_exact(8)
        .map(|b| f64::from_le_bytes(b.try_into().unwrap()))
        .collect();
    assert_eq!(data[..3], [0.25, 0.5, 1.0]);
    assert!(data[3].is_nan() && data[6].is_nan() && data[7].is_nan());
    assert_eq!(data[4..6], [0.0, 0.125]);
}

#[test]
fn pages_are_left_for_a_browser() {
    let Ok(folder) = std::env::var("ALLOT_PAGES") else { return };
    for (case, report) in all() {
        page::write(&report, &Path::new(&folder).join(case)).unwrap();
    }
    for (case, forecast) in forecasts() {
        let folder = Path::new(&folder).join(case);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("index.html"), page::forecast_html(&forecast)).unwrap();
    }
    let runs = |arm: usize| {
        let score = |run: usize, task: usize, point: usize| (run + task + point + arm) as f64 / 20.0;
        (0..5).map(|r| (0..3).map(|t| (0..4).map(|p| score(r, t, p)).collect()).collect()).collect()
    };
    let arms = [("uniform".to_owned(), runs(0)), ("pilot-commit".to_owned(), runs(1))];
    std::fs::write(Path::new(&folder).join("scores.npz"), scores::npz(&arms).unwrap()).unwrap();
}
