//! Data sets and procedural tasks. `ALLOT_DATA` names a folder of published files, laid out as in
//! `PUBLISHED` below: then those are loaded, too.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

#[path = "data/formats.rs"]
mod formats;
mod skip;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use allot_allocation::Cell;
use allot_tasks::dataset::{DataError, Dataset, DatasetConfig, Place, Split};
use allot_tasks::generate::{Chain, Drawn, TaskConfig, generate};
use allot_tasks::{Ask, Problem, pass_at_k};
use serde_json::{Value, json};
use skip::skip;

// === Data sets ===

fn cases() -> PathBuf {
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    above.map(|folder| folder.join("tests/cases/data")).find(|folder| folder.is_dir()).unwrap()
}

fn load_from(folder: &Path, mut config: Value, files: &str) -> Result<Dataset, DataError> {
    config["files"] = json!(files);
    Dataset::load(&serde_json::from_value(config).unwrap(), folder)
}

fn load(config: Value, file: &str) -> Dataset {
    load_from(&cases(), config, file).unwrap()
}

/// A file with this content, and what comes of loading it.
fn written(name: &str, content: &[u8], config: Value) -> Result<Dataset, DataError> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("data");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(name), content).unwrap();
    load_from(&folder, config, name)
}

/// Where a data set's problems were read.
fn places(dataset: &Dataset) -> impl Iterator<Item = &Place> {
    dataset.problems.iter().map(|p| p.place.as_ref().unwrap())
}

fn text(problem: &Problem) -> String {
    match &problem.ask {
        Ask::Text(text) => text.clone(),
        Ask::Chat(messages) => {
            let said = messages.iter().map(|m| format!("[{}] {}", m.role, m.content));
            said.collect::<Vec<_>>().concat()
        }
    }
}

/// An error as a user sees it, without the folders.
fn told(error: &DataError) -> String {
    let hint = error.hint().map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
    let mut text = format!("{error}{hint}");
    for folder in [Path::new(env!("CARGO_TARGET_TMPDIR")).join("data"), cases()] {
        text = text.replace(&format!("{}/", folder.display()), "");
    }
    text
}

#[track_caller]
fn reads(config: Value, file: &str, asked: &str, golds: &[&[&str]]) {
    let dataset = load(config, file);
    let found: Vec<Vec<String>> = dataset.problems.iter().map(|p| p.gold.clone()).collect();
    assert_eq!(found, golds.iter().map(|g| g.to_vec()).collect::<Vec<_>>(), "{file}");
    let first = text(&dataset.problems[0]);
    assert!(first.starts_with(asked), "{file}: {first}");
}

#[test]
fn each_layout_reads() {
    let plain = || json!({});
    reads(json!({"answer_after": "####"}), "gsm8k.jsonl", "Janet’s ducks", &[&["18"], &["3"], &["70000"]]);
    reads(plain(), "amc.json", "$\\frac{m}{n}$ is the", &[&["142"], &["144"]]);
    reads(plain(), "math.json", "Solve for $n$", &[&["-\\frac{3}{2}"], &["28"]]);
    let boxed = json!({"answer": "solution", "answer_boxed": true});
    reads(boxed, "minerva_math.jsonl", "Each of the two Magellan", &[&["1.6"], &["0.006"]]);
    let svamp = json!({
        "question": "Question", "answer": "Answer", "template": "{{ Body }}. {{ question }}\n", "chat": true
    });
    reads(svamp, "svamp.jsonl", "[user] There are 87 oranges", &[&["145"], &["19"]]);
    let golds: [&[&str]; 5] = [
        &["\\left( 3, \\frac{\\pi}{2} \\right)"],
        &["p - q"],
        &["\\frac{14}{3}"],
        &["9"],
        &["\\text{Evelyn}"],
    ];
    reads(plain(), "verl_text.parquet", "[user] Convert the point", &golds);
    reads(plain(), "verl_double.parquet", "[user] $\\frac{m}{n}$ is", &[&["142"], &["144"]]);
    let golds: [&[&str]; 3] = [&["9.6"], &["0.01", "0.02"], &["0.49"]];
    reads(plain(), "verl_list.parquet", "[user] If the Bohr energy", &golds);
    let gold: &[&str] = &["{\"target\":98,\"numbers\":[44,19,35]}"];
    reads(plain(), "verl_struct.parquet", "[user] Using the numbers [44, 19, 35]", &[gold]);
}

/// What the problems of a file have in these columns.
fn columns(config: Value, file: &str, wanted: &[&str]) -> Vec<Vec<Cell>> {
    let wanted: Vec<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
    let mut config = config;
    config["files"] = json!(file);
    let dataset = Dataset::with_columns(&serde_json::from_value(config).unwrap(), &cases(), &wanted).unwrap();
    dataset.problems.into_iter().map(|problem| problem.columns).collect()
}

#[test]
fn columns_for_policies_are_read_beside_the_questions() {
    let word = |word: &str| Cell::Word(word.to_owned());
    let all = columns(
        json!({"columns": {"level": "extra_info.level", "source": "data_source"}}),
        "verl_text.parquet",
        &["source", "level", "ability"],
    );
    assert_eq!(all[0][0], word("simplerl/math500"));
    assert_eq!(all[0][1], word("2"), "as the file has it");
    assert_eq!(all[0][2], word("math"));
    // Of JSON as of parquet; with a line below in the file where the policy's name has a dash.
    let all = columns(json!({}), "columns.jsonl", &["solve-rate", "embedding", "checked"]);
    let row = |rate, embedding: [f32; 2], checked| {
        vec![Cell::Number(rate), Cell::Numbers(embedding.to_vec()), Cell::Number(checked)]
    };
    assert_eq!(all, [row(0.25, [0.5, -1.0], 1.0), row(1.0, [2.0, 1e-3], 0.0)]);
    // A repeated row is left out with what stands beside it, and what is held out needs none.
    let none = columns(json!({"held_out": 0.999_999}), "columns.jsonl", &["nowhere"]);
    assert_eq!(none, [Vec::new(), Vec::new()]);
}

#[test]
fn a_config_picks_columns_and_words() {
    let config = json!({
        "question": "extra_info.unique_id", "answer": "extra_info.subject",
        "template": "{{ question }} ({{ data_source }}, {{ prompt[0].role }})", "system": "Be brief."
    });
    let first = &load(config, "verl_text.parquet").problems[0];
    assert_eq!(text(first), "[system] Be brief.[user] test/precalculus/807.json (simplerl/math500, user)");
    assert_eq!((first.gold[0].as_str(), first.source.as_str()), ("Precalculus", "verl_text"));
    // What a typo in a config comes to.
    let typo = serde_json::from_value::<DatasetConfig>(json!({"files": "a.jsonl", "qestion": "q"}));
    assert!(typo.unwrap_err().to_string().starts_with("unknown field `qestion`"));
    let files = serde_json::from_value::<DatasetConfig>(json!({"files": 3}));
    assert_eq!(files.unwrap_err().to_string(), "expected a file, or a list of files");
}

#[test]
fn a_problem_has_one_id_wherever_it_stands() {
    let ids = |d: &Dataset| d.problems.iter().map(Problem::id).collect::<Vec<_>>();
    let array = load(json!({"chat": true}), "amc.json");
    let parquet = load(
        json!({"template": "{{ question | replace(tail, '') }}"
            .replace("tail", "\" Let's think step by step and output the final answer within \\\\boxed{}.\""),
            "chat": true}),
        "verl_double.parquet",
    );
    assert_eq!(ids(&array), ids(&parquet));
    assert_eq!(ids(&load(json!({"answer_after": "####"}), "gsm8k.jsonl"))[0], "643c6b6bcbabbe6d");
}

#[test]
fn rows_that_repeat_are_reported() {
    let dropped = load(json!({}), "verl_copies.parquet");
    assert_eq!((dropped.problems.len(), dropped.report.rows), (1, 3));
    let file = cases().join("verl_copies.parquet");
    let sentence = format!(
        "2 of 3 rows are identical to an earlier one: `{}` row 2 (as row 1), row 3 (as row 1)",
        file.display()
    );
    assert_eq!(dropped.report.sentences(), [sentence]);
    let kept = load(json!({"duplicates": "keep"}), "verl_copies.parquet");
    assert_eq!((kept.problems.len(), kept.report.duplicates.len()), (3, 2));

    let rows = br#"{"question": "1 + 1", "answer": 2}
{"question": "1 + 1", "answer": 3}
{"question": "1 + 1", "answer": "2 "}
{"question": "1 + 1"  , "answer": null}
{"question": "", "answer": 2}
"#;
    let dataset = written("repeats.jsonl", rows, json!({})).unwrap();
    let report = &dataset.report;
    assert_eq!(dataset.problems.len(), 2);
    assert_eq!(report.contradictions[0].place.number, 2);
    assert_eq!((report.duplicates[0].place.number, report.duplicates[0].first.number), (3, 1));
    assert_eq!((report.unanswered[0].number, report.unasked[0].number), (4, 5));
    assert_eq!(report.sentences().len(), 4);
    let left = report.duplicates.len() + report.unanswered.len() + report.unasked.len();
    assert_eq!(dataset.problems.len() + left, report.rows, "every row is a problem or reported");
}

#[test]
fn rows_without_an_answer_are_reported() {
    let math = load(json!({}), "math.json");
    assert_eq!((math.problems.len(), math.report.unanswered[0].to_string().contains("item 2")), (2, true));
}

#[test]
fn parts_of_a_data_set_read() {
    let whole = load(json!({}), "verl_text.parquet").problems;
    // Rows 2 to 4 stand in three row groups of two, two and one.
    assert_eq!(load(json!({"skip": 1, "limit": 3}), "verl_text.parquet").problems, whole[1..4]);
    let two: Value =
        json!({"files": ["amc.json", "verl_double.parquet"], "name": "amc", "skip": 1, "limit": 2});
    let dataset = Dataset::load(&serde_json::from_value(two).unwrap(), &cases()).unwrap();
    assert_eq!(places(&dataset).map(|p| (p.unit, p.number)).collect::<Vec<_>>(), [("item", 2), ("row", 1)]);
    assert!(dataset.problems.iter().all(|p| p.source == "amc"));
    // What comes after the limit is not looked at.
    let broken = b"{\"question\": \"a\", \"answer\": 1}\nnot JSON";
    assert_eq!(written("limit.jsonl", broken, json!({"limit": 1})).unwrap().problems.len(), 1);
}

#[test]
fn long_prompts_are_left_out_and_reported() {
    let mut dataset = load(json!({}), "verl_text.parquet");
    let lengths: Vec<usize> = dataset.problems.iter().map(|p| text(p).len()).collect();
    let longest = *lengths.iter().max().unwrap();
    dataset.shorten(longest - 1, |p| text(p).len()).unwrap();
    assert_eq!(dataset.problems.len(), 4);
    assert_eq!(dataset.report.over_long[0].length, longest);
    let error = dataset.shorten(0, |p| text(p).len()).unwrap_err();
    assert_eq!(error.to_string(), "every prompt of the data set is longer than 0");
}

#[test]
fn a_side_depends_on_the_question_alone() {
    let row = |i: usize, answer: &str| json!({"question": format!("{i} + 1"), "answer": answer}).to_string();
    let lines = |all: Vec<String>| all.join("\n").into_bytes();
    let forth = written("forth.jsonl", &lines((0..400).map(|i| row(i, "a")).collect()), json!({})).unwrap();
    let back = lines((0..200).rev().map(|i| row(i, "b")).collect());
    let back = written("back.jsonl", &back, json!({})).unwrap();
    let asked = |problems: &[Problem]| problems.iter().map(text).collect::<HashSet<_>>();
    let (forth, back) = (forth.split(0.2, false), back.split(0.2, false));
    assert!((50..110).contains(&forth.held_out.len()), "{}", forth.held_out.len());
    assert_eq!(forth.train.len() + forth.held_out.len(), 400);
    assert!(asked(&back.held_out).is_subset(&asked(&forth.held_out)));
    assert!(asked(&back.train).is_subset(&asked(&forth.train)));
}

#[test]
fn a_side_is_the_same_with_any_template_and_white_space() {
    let row = |q: &str| json!({"question": q, "answer": 1}).to_string();
    let of = |name: &str, put: &dyn Fn(usize) -> String, config: Value| {
        let all: Vec<String> = (0..200).map(|i| row(&put(i))).collect();
        let sides = written(name, all.join("\n").as_bytes(), config).unwrap().split(0.3, false);
        sides.held_out.iter().map(|p| p.place.as_ref().unwrap().number).collect::<Vec<u64>>()
    };
    let plain = of("plain.jsonl", &|i| format!("How old is {i}?"), json!({}));
    assert!((40..80).contains(&plain.len()));
    let spaced = |i: usize| format!("  HOW old\n\tis {i}? ");
    assert_eq!(of("spaced.jsonl", &spaced, json!({})), plain);
    let config = json!({"template": "Q: {{ question }} A:", "chat": true, "system": "Be brief."});
    assert_eq!(of("put.jsonl", &|i| format!("How old is {i}?"), config), plain);
}

#[test]
fn odd_files_of_lines_read() {
    let odd =
        b"\xEF\xBB\xBF{\"question\": \"a\", \"answer\": 1}\r\n\r\n  \n{\"question\": \"b\", \"answer\": 2.5}";
    let dataset = written("odd.json", odd, json!({})).unwrap();
    assert_eq!(places(&dataset).map(|p| p.number).collect::<Vec<_>>(), [1, 4]);
    assert_eq!(dataset.problems[1].gold, ["2.5"]);
    // A column that can't be read does no harm where nothing asks for it.
    assert_eq!(load(json!({"answer": "question"}), "times.parquet").problems.len(), 2);
}

#[test]
fn what_is_wrong_with_a_data_set_is_told() {
    let check = |name: &str, content: &[u8], config: Value, expected: &str| {
        assert_eq!(told(&written(name, content, config).unwrap_err()), expected, "{name}");
    };
    let rows = |all: &[&str]| all.join("\n").into_bytes();
    let good = r#"{"question": "a", "answer": 1}"#;

    let empty = "`empty.jsonl` has no rows\nhint: write each row as an object with a question and an answer";
    check("empty.jsonl", b"", json!({}), empty);
    check("blank.jsonl", b"\n \n", json!({}), &empty.replace("empty.j", "blank.j"));
    check("empty.json", b" ", json!({"format": "json"}), &empty.replace(".jsonl", ".json"));
    check("none.json", b"[]", json!({}), &empty.replace("empty.jsonl", "none.json"));
    check(
        "empty.parquet",
        b"",
        json!({}),
        "`empty.parquet` is not a parquet file, or it is cut off: \
        EOF: Parquet file too small. Size is 0 but need 8\n\
        hint: fetch the file again, or write it again; it may have been cut off on the way",
    );

    check(
        "column.jsonl",
        &rows(&[good, "", r#"{"question": "b", "anwser": 2}"#]),
        json!({}),
        "`column.jsonl` line 3 has no column `answer`\n\
        hint: its columns are `question`, `anwser`; set `answer` to one of them",
    );
    check(
        "column.json",
        br#"[{"question": "a", "answer": 1}, {"question": "b"}]"#,
        json!({}),
        "`column.json` item 2 has no column `answer`\n\
        hint: its columns are `question`; set `answer` to one of them",
    );
    check(
        "layout.jsonl",
        br#"{"q": "a", "info": {"a": 1, "b": []}}"#,
        json!({}),
        "`layout.jsonl` has no columns recognized as question and answer\n\
        hint: its columns are `q`, `info.a`, `info.b`; choose with `question = \"…\"` and \
        `answer = \"…\"`",
    );
    check(
        "half.jsonl",
        br#"{"q": "a", "gold": 1}"#,
        json!({"question": "q"}),
        "`half.jsonl` has no columns recognized as answer\n\
        hint: its columns are `q`, `gold`; choose with `question = \"…\"` and `answer = \"…\"`",
    );

    let latin = [good.as_bytes(), b"\n{\"question\": \"caf\xe9\", \"answer\": 2}"].concat();
    check(
        "latin.jsonl",
        &latin,
        json!({}),
        "`latin.jsonl` line 2 is not UTF-8 text\nhint: write the file again as UTF-8",
    );
    check(
        "latin.json",
        &[b"[", &latin[..], b"]"].concat(),
        json!({}),
        "`latin.json` line 2 is not UTF-8 text\nhint: write the file again as UTF-8",
    );

    check(
        "cut.jsonl",
        &rows(&[good, r#"{"question": "b", "ans"#]),
        json!({}),
        "`cut.jsonl` line 2 column 22 is not JSON: EOF while parsing a string\n\
        hint: write one row per line, or all rows in one array",
    );
    check(
        "pretty.json",
        b"{\n\"question\": \"a\"\n}",
        json!({}),
        "`pretty.json` line 1 column 1 is not JSON: EOF while parsing an object\n\
        hint: write one row per line, or all rows in one array",
    );
    check(
        "dict.json",
        br#"{"data": []}"#,
        json!({"format": "json"}),
        "`dict.json` is JSON, but an object instead of an array of rows\n\
        hint: write one row per line, or all rows in one array",
    );
    check(
        "list.jsonl",
        &rows(&[good, "[1]"]),
        json!({}),
        "`list.jsonl` line 2 is a list; expected an object with the columns by name\n\
        hint: write each row as an object: {\"question\": \"…\", \"answer\": \"…\"}",
    );

    check(
        "rows.txt",
        b"question,answer",
        json!({}),
        "`rows.txt` has no extension of a known format\n\
        hint: set `format` to \"jsonl\", \"json\", \"csv\", \"tsv\", \"parquet\" or \"arrow\"",
    );
    check(
        "text.parquet",
        b"PAR1, they say",
        json!({}),
        "`text.parquet` is not a parquet file, or it is cut off: Invalid Parquet file. Corrupt footer\n\
        hint: fetch the file again, or write it again; it may have been cut off on the way",
    );

    check(
        "kind.jsonl",
        br#"{"question": 3, "answer": 1}"#,
        json!({}),
        "`kind.jsonl` line 1: `question` is neither text nor a list of messages with `role` and `content`\n\
        hint: name the column to take with `question = \"…\"`",
    );
    check(
        "big.jsonl",
        br#"{"question": "a", "answer": 123456789012345678901}"#,
        json!({}),
        "`big.jsonl` line 1: `answer` is 123456789012345680000, which is too large to be exact in this file\n\
        hint: write such answers as text",
    );
    check(
        "nulls.jsonl",
        br#"{"question": "a", "answer": null}"#,
        json!({}),
        "`nulls.jsonl` has no row with an answer, of 1 read\nhint: set `answer` to the column to use",
    );
    check(
        "marker.jsonl",
        &rows(&[r#"{"question": "a", "answer": "1 #### 2"}"#, good.replace('1', "\"1\"").as_str()]),
        json!({"answer_after": "####"}),
        "`marker.jsonl` line 2: `answer` has no `####` before the answer\n\
        hint: set `answer_after` to text that precedes the answer in every row",
    );

    let one = good.as_bytes();
    check(
        "template.jsonl",
        one,
        json!({"template": "{{ Question }}"}),
        "`template.jsonl` line 1: the template uses `Question`, which does not exist",
    );
    check(
        "broken.jsonl",
        one,
        json!({"template": "{{ question"}),
        "`template` is not a template: unexpected end of input, expected end of variable block (its line 1)",
    );
    check(
        "skip.jsonl",
        one,
        json!({"skip": 2}),
        "`skip` is 2, which leaves nothing of the data set (rows: 1)",
    );
    check("limit.jsonl", one, json!({"limit": 0}), "`limit` is 0; expected at least 1");
    check("share.jsonl", one, json!({"held_out": 1.0}), "`held_out` is 1; expected at least 0 and below 1");

    let check = |file: &str, config: Value, expected: &str| {
        assert_eq!(told(&load_from(&cases(), config, file).unwrap_err()), expected, "{file}");
    };
    check(
        "gsm8k.jsonl",
        json!({}),
        "`gsm8k.jsonl` line 1: `answer` is a worked solution, with its answer after `####`\n\
        hint: set `answer_after = \"####\"` to keep only the answer, or `answer_after = \"\"` to keep all",
    );
    check("none.parquet", json!({}), &empty.replace("empty.jsonl", "none.parquet"));
    check(
        "gzip.parquet",
        json!({}),
        "`gzip.parquet`: column `prompt.list.element.content` is compressed with gzip, which is not supported\n\
        hint: write the file again with snappy or zstd",
    );
    check(
        "latin1.parquet",
        json!({}),
        "`latin1.parquet` row 2 is not UTF-8 text\nhint: write the file again as UTF-8",
    );
    check(
        "times.parquet",
        json!({}),
        "`times.parquet`: column `answer` holds time_micros, which is not supported\n\
        hint: use text, numbers, booleans, and lists and structs of these",
    );
    check(
        "verl_text.parquet",
        json!({"answer": "reward_model.gold"}),
        "`verl_text.parquet` has no column `reward_model.gold`\n\
        hint: its columns are `data_source`, `prompt`, `ability`, `reward_model.ground_truth`, \
        `reward_model.style`, `extra_info.index`, `extra_info.level`, `extra_info.solution`, \
        `extra_info.subject`, `extra_info.unique_id`, `extra_info.url`, `extra_info.note`, \
        `__index_level_0__`; set `answer` to one of them",
    );
    check("missing.jsonl", json!({}), "could not read `missing.jsonl`: there is no such file");
}

/// As a download that broke off leaves it.
#[test]
fn errors_of_rows_come_as_one_list() {
    let rows = "{\"question\": \"1+1=\", \"answer\": \"2\"}\n\
                {\"question\": 7, \"answer\": \"2\"}\n\
                {\"answer\": \"2\"}\n\
                {\"question\": \"1+4=\", \"answer\": [[\"5\"]]}\n";
    let error = written("several.jsonl", rows.as_bytes(), json!({})).unwrap_err();
    assert_eq!(
        told(&error),
        "3 errors in the data set:\n  \
         `several.jsonl` line 2: `question` is neither text nor a list of messages with `role` and `content`\n  \
         `several.jsonl` line 3 has no column `question`\n  \
         `several.jsonl` line 4: `answer` is a list of lists\n\
         hint: name the column to take with `question = \"…\"`"
    );
    // A file that is wrong from its first row on is told of once; of many, the first ten are.
    let wrong = "{\"question\": 7, \"answer\": \"2\"}\n";
    let error = written("all.jsonl", wrong.repeat(20).as_bytes(), json!({})).unwrap_err();
    assert_eq!(error.to_string().lines().count(), 1, "{error}");
    let many = format!("{{\"question\": \"1+1=\", \"answer\": \"2\"}}\n{}", wrong.repeat(20));
    let error = written("many.jsonl", many.as_bytes(), json!({})).unwrap_err();
    assert_eq!(error.to_string().lines().count(), 11, "{error}");
}

#[test]
fn a_parquet_file_cut_anywhere_is_told() {
    let whole = std::fs::read(cases().join("verl_list.parquet")).unwrap();
    for length in (0..whole.len()).step_by(61) {
        let error = written("cut.parquet", &whole[..length], json!({})).unwrap_err();
        assert!(
            told(&error).starts_with("`cut.parquet` is not a parquet file, or it is cut off: "),
            "{length}: {error}"
        );
    }
}

/// The published files: rows as their README counts them, problems, an id of all their ids (those that
/// pyarrow and Python's json come to), and what a config has to say.
const PUBLISHED: [(&str, usize, usize, &str, &str); 20] = [
    ("gsm8k/train.jsonl", 7473, 7473, "344349208566daa5", "{\"answer_after\": \"####\"}"),
    ("gsm8k/test.jsonl", 1319, 1319, "2c82f50e949125a7", "{\"answer_after\": \"####\"}"),
    ("rllm_math/train_math.json", 7474, 7470, "f144bf476e6f182b", "{}"),
    ("rllm_math/test_amc.json", 83, 83, "6b0b71e10740e219", "{}"),
    ("dapo_math_greso/train.parquet", 17917, 17405, "bdf5e469f9651674", "{}"),
    ("polaris_eval/aime24.parquet", 30, 30, "b6aace9e7e0ea480", "{}"),
    ("polaris_eval/aime25.parquet", 30, 30, "475f904d2673fabe", "{}"),
    ("polaris_eval/amc23.parquet", 83, 83, "41b9113f354eb72f", "{}"),
    ("polaris_eval/minerva.parquet", 272, 272, "ac2aa920225fd049", "{}"),
    ("polaris_eval/olympiad.parquet", 675, 675, "17af350dc26bbc6d", "{}"),
    ("one_shot_rlvr/train_dsr_sub.parquet", 1209, 1206, "7485d3f26a55cc45", "{}"),
    ("one_shot_rlvr/train_pi1_r128.parquet", 128, 1, "57f8b991674987a6", "{}"),
    ("one_shot_rlvr/test_math500.parquet", 500, 500, "84ef2f2f17c3875f", "{}"),
    ("qwen_eval/math500_test.jsonl", 500, 500, "b1a9a2c99edc444b", "{}"),
    ("qwen_eval/aime24_test.jsonl", 30, 30, "375afe32252a0b4d", "{}"),
    ("qwen_eval/amc23_test.jsonl", 40, 40, "0b13d01265ba8629", "{}"),
    (
        "qwen_eval/minerva_math_test.jsonl",
        272,
        272,
        "d7b2e3ddfbe0ec93",
        r#"{"answer": "solution", "answer_boxed": true}"#,
    ),
    (
        "qwen_eval/svamp_test.jsonl",
        1000,
        1000,
        "d68dc77345371e7f",
        r#"{"question": "Question", "answer": "Answer", "template": "{{ Body }}. {{ question }}"}"#,
    ),
    ("qwen_eval/model_outputs_math_cot_100.jsonl", 100, 100, "c59f87128f8da4fa", "{}"),
    ("reasoning_gym/samples.jsonl", 560, 530, "8aec445d23aa450f", "{}"),
];

#[test]
fn published_files_load() {
    let Some(folder) = std::env::var_os("ALLOT_DATA").map(PathBuf::from) else {
        skip("published-data", "`ALLOT_DATA` names no folder of published files");
        return;
    };
    let mut loaded = HashSet::new();
    let mut wrong = Vec::new();
    for (file, rows, problems, digest, config) in PUBLISHED {
        if !folder.join(file).exists() {
            continue;
        }
        loaded.insert(folder.join(file));
        let dataset = load_from(&folder, serde_json::from_str(config).unwrap(), file).unwrap();
        println!("{file}: {} rows, {} problems", dataset.report.rows, dataset.problems.len());
        dataset.report.sentences().iter().for_each(|sentence| println!("  {sentence}"));
        let ids = dataset.problems.iter().map(Problem::id).collect();
        let ids = Problem { ask: Ask::Text(String::new()), gold: ids, ..dataset.problems[0].clone() }.id();
        if (dataset.report.rows, dataset.problems.len(), ids.as_str()) != (rows, problems, digest) {
            wrong.push((file, dataset.report.rows, dataset.problems.len(), ids));
        }
        assert!(
            dataset
                .problems
                .iter()
                .all(|p| p.gold.iter().all(|gold| gold.trim() == gold && !gold.is_empty()))
        );
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    // Every data file of the folder is in the table.
    for folder in std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
        let Ok(files) = std::fs::read_dir(folder) else { continue };
        for file in files.map(|entry| entry.unwrap().path()) {
            let is_data = ["json", "jsonl", "parquet"].iter().any(|e| file.extension() == Some(e.as_ref()));
            let is_known = loaded.contains(&file) || file.ends_with("curricula.json");
            assert!(!is_data || is_known, "{} is not in the table", file.display());
        }
    }
}

// === Procedural tasks ===

fn drawn(config: Value, split: Split) -> Drawn {
    generate(&serde_json::from_value(config).unwrap(), split).unwrap()
}

fn refused(config: Value) -> String {
    generate(&serde_json::from_value(config).unwrap(), Split::Train).unwrap_err().to_string()
}

/// A ladder of each kind, with what its problems are to be like.
fn ladders() -> [Value; 5] {
    let digits = json!([{"digits": 1}, {"digits": 2}, {"digits": [3, 4], "terms": [2, 4]}]);
    [
        json!({"kind": "sums", "levels": digits, "count": 60}),
        json!({"kind": "products", "levels": digits, "count": 60}),
        json!({"kind": "chains", "levels": [{"terms": 2}, {"terms": [3, 5], "digits": [1, 3]},
            {"operators": ["+", "-"], "terms": 4, "digits": 2}], "count": 60}),
        json!({"kind": "countdown", "levels": [{"terms": 2}, {"terms": 3, "digits": 2},
            {"terms": [3, 4], "digits": 2, "target": [10, 99], "operators": ["+", "-"]}], "count": 60}),
        json!({"kind": "sorting", "levels": [{"terms": 3}, {"terms": [5, 8], "digits": 2}], "count": 60}),
    ]
}

fn with(mut config: Value, more: Value) -> Value {
    for (key, value) in more.as_object().unwrap() {
        config[key] = value.clone();
    }
    config
}

/// Arithmetic as a schoolbook has it, and nothing of ours: + - * / and brackets.
struct School<'a>(&'a [u8]);

impl School<'_> {
    fn value(text: &str) -> f64 {
        let text: String = text.split_whitespace().collect();
        let mut school = School(text.as_bytes());
        let value = school.sum();
        assert!(school.0.is_empty(), "{text}");
        value
    }

    fn take(&mut self, signs: &[u8]) -> Option<u8> {
        let sign = *self.0.first().filter(|byte| signs.contains(byte))?;
        self.0 = &self.0[1..];
        Some(sign)
    }

    fn sum(&mut self) -> f64 {
        let mut value = self.product();
        while let Some(sign) = self.take(b"+-") {
            value += if sign == b'+' { self.product() } else { -self.product() };
        }
        value
    }

    fn product(&mut self) -> f64 {
        let mut value = self.number();
        while let Some(sign) = self.take(b"*/") {
            value = if sign == b'*' { value * self.number() } else { value / self.number() };
        }
        value
    }

    fn number(&mut self) -> f64 {
        if self.take(b"-").is_some() {
            return -self.number();
        }
        if self.take(b"(").is_some() {
            let value = self.sum();
            assert!(self.take(b")").is_some());
            return value;
        }
        let length = self.0.iter().take_while(|byte| byte.is_ascii_digit() || **byte == b'.').count();
        let (digits, rest) = self.0.split_at(length);
        self.0 = rest;
        std::str::from_utf8(digits).unwrap().parse().unwrap()
    }
}

/// Whether a target can be made of numbers, each used once.
fn solvable(numbers: &[f64], target: f64) -> bool {
    if let [one] = numbers {
        return (one - target).abs() < 1e-9;
    }
    (0..numbers.len()).any(|i| {
        (0..numbers.len()).filter(|j| *j != i).any(|j| {
            let rest: Vec<f64> =
                (0..numbers.len()).filter(|k| *k != i && *k != j).map(|k| numbers[k]).collect();
            let (a, b) = (numbers[i], numbers[j]);
            [a + b, a - b, a * b, a / b]
                .into_iter()
                .any(|value| value.is_finite() && solvable(&[&rest[..], &[value]].concat(), target))
        })
    })
}

fn numbers(text: &str) -> Vec<f64> {
    let is_part = |c: char| c.is_ascii_digit() || c == '-' || c == '.';
    let parts = text.split(|c| !is_part(c)).map(|part| part.trim_end_matches('.'));
    parts.filter_map(|part| part.parse().ok()).collect()
}

fn is_right(kind: &str, terse: &str, gold: &str) -> bool {
    match kind {
        "countdown" => {
            let gold: Value = serde_json::from_str(gold).unwrap();
            let given: Vec<f64> =
                gold["numbers"].as_array().unwrap().iter().map(|n| n.as_f64().unwrap()).collect();
            let target = gold["target"].as_f64().unwrap();
            numbers(terse) == [&given[..], &[target]].concat() && solvable(&given, target)
        }
        "sorting" => {
            let mut sorted = numbers(terse);
            sorted.sort_by(f64::total_cmp);
            if terse.starts_with('>') {
                sorted.reverse();
            }
            numbers(gold) == sorted
        }
        _ => School::value(terse.trim_end_matches('=')) == gold.parse::<f64>().unwrap(),
    }
}

#[test]
fn every_gold_is_right() {
    for ladder in ladders() {
        let kind = ladder["kind"].as_str().unwrap();
        let terse = drawn(with(ladder.clone(), json!({"style": "terse"})), Split::Train).problems;
        let words = drawn(ladder.clone(), Split::Train).problems;
        assert!(terse.len() >= 100, "{kind}");
        for (terse, words) in terse.iter().zip(&words) {
            assert!(is_right(kind, &text(terse), &terse.gold[0]), "{} {}", text(terse), terse.gold[0]);
            // Both styles are the same problem.
            let asked = numbers(&text(words).replace(" - ", " ").replace("(+, -, *, /)", ""));
            let mut same = numbers(&text(terse).replace('-', " "));
            same.sort_by(f64::total_cmp);
            let mut asked = asked;
            asked.sort_by(f64::total_cmp);
            assert_eq!(asked, same, "{} {}", text(words), text(terse));
            assert_eq!(terse.gold[0].replace(' ', ""), words.gold[0].replace(' ', ""));
        }
    }
}

#[test]
fn a_config_always_makes_the_same_problems() {
    for ladder in ladders() {
        let whole = drawn(ladder.clone(), Split::Train);
        assert_eq!(whole, drawn(ladder.clone(), Split::Train));
        assert_ne!(whole.problems, drawn(with(ladder.clone(), json!({"seed": 1})), Split::Train).problems);
        // A smaller count is the start of a larger one, at the first level.
        let some = drawn(with(ladder, json!({"count": 20})), Split::Train).problems;
        assert_eq!(some[..20], whole.problems[..20]);
    }
    // If these change, runs on the same config no longer compare.
    let first = |config: Value| {
        let problems = drawn(with(config, json!({"style": "terse"})), Split::Train).problems;
        problems.iter().take(2).map(|p| text(p) + &p.gold[0]).collect::<Vec<_>>().join(" ")
    };
    let expected = [
        "2+6=8 1+2=3",
        "4*2=8 8*3=24",
        "4*3=12 7-6=1",
        "8,8>16:{\"target\":16,\"numbers\":[8,8]} 3,6>9:{\"target\":9,\"numbers\":[3,6]}",
        "<8,2,6:2,6,8 >4,2,9:9,4,2",
    ];
    assert_eq!(ladders().map(first), expected);
}

#[test]
fn no_problem_comes_twice() {
    for ladder in ladders() {
        let problems = drawn(with(ladder.clone(), json!({"count": 500})), Split::Train).problems;
        let ids: HashSet<String> = problems.iter().map(Problem::id).collect();
        assert_eq!(ids.len(), problems.len(), "{ladder}");
    }
}

#[test]
fn held_out_problems_are_trained_on_with_no_seed_and_in_no_order() {
    for ladder in ladders() {
        let kind = ladder["kind"].as_str().unwrap().to_owned();
        let with_seed = |seed: u64| {
            with(ladder.clone(), json!({"seed": seed, "held_out": 0.2, "count": 200, "style": "terse"}))
        };
        // Of a countdown and a sum, the numbers in order, for their order does not matter.
        let name = |problem: &Problem| {
            let text = text(problem);
            let mut numbers = numbers(&text.replace('-', " "));
            let moving = match kind.as_str() {
                "chains" => 0,
                "countdown" => numbers.len() - 1,
                _ => numbers.len(),
            };
            numbers[..moving].sort_by(f64::total_cmp);
            let signs: String = text.chars().filter(|c| !c.is_ascii_digit()).collect();
            format!("{signs} {numbers:?}")
        };
        let side = |split| -> HashSet<String> {
            (0..5).flat_map(|seed| drawn(with_seed(seed), split).problems).map(|p| name(&p)).collect()
        };
        let (train, held_out) = (side(Split::Train), side(Split::HeldOut));
        assert!(held_out.len() >= 50, "{kind}: {}", held_out.len());
        assert!(train.is_disjoint(&held_out), "{kind}");
        // Words and templates do not change a side.
        let words =
            with(with_seed(0), json!({"style": "words", "template": "Q: {{ question }}", "chat": true}));
        let terse = drawn(with_seed(0), Split::HeldOut).problems;
        let words = drawn(words, Split::HeldOut).problems;
        assert_eq!(words.len(), terse.len());
        assert!(text(&words[0]).starts_with("[user] Q: "));
    }
}

#[test]
fn of_a_small_level_all_problems_are_taken() {
    let config = json!({"kind": "sums", "style": "terse", "count": 1000, "held_out": 0.1, "levels": [{}]});
    let (train, held_out) = (drawn(config.clone(), Split::Train), drawn(config, Split::HeldOut));
    let all: HashSet<String> = train.problems.iter().chain(&held_out.problems).map(text).collect();
    assert_eq!((all.len(), train.problems.len() + held_out.problems.len()), (100, 100));
    assert!(!held_out.problems.is_empty());
    assert!((0..100).all(|i| all.contains(&format!("{}+{}=", i / 10, i % 10))));
    let short = "`sums/1` has only 100 different problems of the 1000 requested; all are used";
    assert_eq!(train.short.iter().map(ToString::to_string).collect::<Vec<_>>(), [short]);
    // A level has no problem that one before it had.
    let config = json!({"kind": "sums", "count": 100, "levels": [{}, {"digits": [1, 2]}]});
    let second = drawn(config, Split::Train).problems.split_off(100);
    assert!(second.iter().all(|p| numbers(&text(p)).iter().all(|n| *n >= 10.0)));
}

#[test]
fn each_level_is_as_hard_as_it_says() {
    let config = json!({"kind": "sums", "style": "terse", "count": 300, "name": "add",
        "levels": [{"digits": 1, "count": 50}, {"digits": [2, 3]}, {"digits": 10, "terms": [2, 12]}]});
    let mut levels: BTreeMap<String, Vec<Vec<usize>>> = BTreeMap::new();
    for problem in drawn(config, Split::Train).problems {
        let lengths = text(&problem).trim_end_matches('=').split('+').map(str::len).collect();
        levels.entry(problem.source).or_default().push(lengths);
    }
    let counts: Vec<(&str, usize)> = levels.iter().map(|(level, all)| (level.as_str(), all.len())).collect();
    assert_eq!(counts, [("add/1", 50), ("add/2", 300), ("add/3", 300)]);
    assert!(levels["add/1"].iter().all(|lengths| lengths == &[1, 1]));
    // Each shape as often as the other: 150 of 300, with a standard deviation of 9.
    let twos = levels["add/2"].iter().filter(|lengths| *lengths == &[2, 2]).count();
    let threes = levels["add/2"].iter().filter(|lengths| *lengths == &[3, 3]).count();
    assert!(twos + threes == 300 && (110..190).contains(&twos), "{twos} {threes}");
    let terms: HashSet<usize> = levels["add/3"].iter().map(Vec::len).collect();
    assert_eq!(terms.len(), 11);
    assert!(levels["add/3"].iter().flatten().all(|length| *length == 10));
}

#[test]
fn what_is_wrong_with_a_task_is_told() {
    let level = |kind: &str, level: Value| refused(json!({"kind": kind, "count": 9, "levels": [{}, level]}));
    let told = |text: String| text.split_once(": ").map(|(_, rest)| rest.to_owned()).unwrap_or(text);
    assert_eq!(
        level("sums", json!({"digits": [3, 1]})),
        "task `sums/2`: `digits` goes from 3 to 1; expected the smaller number first"
    );
    for (kind, config, expected) in [
        ("sums", json!({"terms": 1}), "`terms` of sums must be from 2 to 100, not 1 to 1"),
        ("sums", json!({"digits": 19}), "`digits` of sums must be from 1 to 18, not 19 to 19"),
        ("sums", json!({"operators": ["+"]}), "`operators` is for chains and countdowns, not for sums"),
        (
            "chains",
            json!({"operators": ["/"]}),
            "`operators` of chains must have at least one of \"+\", \"-\" and \"*\"",
        ),
        ("sorting", json!({"target": 3}), "`target` is for countdowns, not for sorting"),
        ("products", json!({"terms": 4, "digits": 10}), "a product of 4 numbers of 10 digits is too long"),
        (
            "countdown",
            json!({"terms": 2, "operators": ["+"], "target": 50}),
            "no problem fits the level's numbers and target",
        ),
        (
            "countdown",
            json!({"terms": 4, "digits": 2, "operators": ["+"], "target": 1}),
            "no problem fits the level's numbers and target",
        ),
    ] {
        assert_eq!(told(level(kind, config)), expected);
    }
    let sums = |more| refused(with(json!({"kind": "sums", "count": 1, "levels": [{}]}), more));
    let nothing = "task `sums` asks for no problems: it needs levels, and a count of at least 1";
    assert_eq!(sums(json!({"levels": []})), nothing);
    assert_eq!(sums(json!({"count": 0})), nothing);
    assert_eq!(
        sums(json!({"held_out": -0.1})),
        "task `sums`: `held_out` is -0.1; expected at least 0 and below 1"
    );
    assert_eq!(
        sums(json!({"template": "{{ q }}"})),
        "task `sums`: `template` is not a template: the template uses `q`, which does not exist"
    );
    let range =
        serde_json::from_value::<TaskConfig>(json!({"kind": "sums", "count": 1, "levels": [{"terms": "2"}]}));
    assert_eq!(range.unwrap_err().to_string(), "expected a whole number, or a range as in [2, 4]");
}

/// What reasoning-gym 0.1.25 recorded, by our definitions.
#[test]
fn recorded_samples_of_reasoning_gym_are_as_we_define_them() {
    let lines = std::fs::read_to_string(cases().join("reasoning_gym.jsonl")).unwrap();
    let mut checked: BTreeMap<String, usize> = BTreeMap::new();
    for sample in lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        let (question, answer) = (sample["question"].as_str().unwrap(), sample["answer"].as_str().unwrap());
        let (kind, details) = (sample["dataset"].as_str().unwrap(), &sample["metadata"]);
        match kind {
            "chain_sum" | "products" => {
                let chain = Chain::parse(details["expression"].as_str().unwrap()).unwrap();
                assert_eq!(chain.words(), question);
                assert_eq!(chain.value().unwrap().to_string(), answer);
                let digits = details["num_digits"].as_u64().unwrap() as usize;
                assert!(chain.numbers.iter().all(|n| n.to_string().len() == digits), "{question}");
            }
            // Theirs has brackets, negative numbers and divisions, too; ours is the rest of it.
            "basic_arithmetic" => {
                let expression = details["expression"].as_str().unwrap();
                assert_eq!(question, format!("Calculate {expression}."));
                assert_eq!(School::value(expression), answer.parse::<f64>().unwrap());
                if let Some(value) = Chain::parse(expression).and_then(|chain| chain.value()) {
                    assert_eq!(value.to_string(), answer);
                } else {
                    continue;
                }
            }
            "countdown" => {
                let target = details["target"].as_f64().unwrap();
                assert!((School::value(answer) - target).abs() < 1e-9, "{answer}");
                let mut used = numbers(&answer.replace('-', " "));
                let mut given: Vec<f64> =
                    details["numbers"].as_array().unwrap().iter().map(|n| n.as_f64().unwrap()).collect();
                used.sort_by(f64::total_cmp);
                given.sort_by(f64::total_cmp);
                assert_eq!(used, given, "each number exactly once");
            }
            "number_sorting" => {
                let ours = question.lines().next().unwrap();
                let (order, listed) =
                    ours.strip_prefix("Sort these numbers in ").unwrap().split_once(" order: ").unwrap();
                let sign = if order == "ascending" { '<' } else { '>' };
                assert!(is_right("sorting", &format!("{sign}{listed}:"), answer), "{question}");
            }
            other => panic!("{other}"),
        }
        *checked.entry(kind.to_owned()).or_default() += 1;
    }
    assert!(checked.values().all(|count| *count >= 3) && checked.len() == 5, "{checked:?}");
}

// === pass@k ===

#[test]
fn pass_at_k_is_without_bias() {
    let path = cases().join("../statistics/tests.json");
    let recorded: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let passes = recorded["passes"].as_array().unwrap();
    assert!(!passes.is_empty());
    for case in passes {
        let [n, c, k] = ["n", "c", "k"].map(|key| case[key].as_u64().unwrap() as u32);
        let (ours, pass) = (pass_at_k(n, c, k).unwrap(), case["pass"].as_f64().unwrap());
        assert!((ours - pass).abs() < 1e-12, "{c} of {n} at {k}: {ours}, exactly {pass}");
    }
}
