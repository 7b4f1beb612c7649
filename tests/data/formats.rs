//! Data sets as people have them: compressed, as CSV and TSV, as Arrow, in TRL's layout, and as Python writes JSON.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use allot_allocation::Cell;
use arrow_array::{ArrayRef, NullArray, RecordBatch, StringArray};
use arrow_ipc::writer::{FileWriter, StreamWriter};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use super::{cases, columns, load, load_from, places, text, told, written};

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(content).unwrap();
    packed.finish().unwrap()
}

fn zstd(content: &[u8]) -> Vec<u8> {
    zstd::encode_all(content, 3).unwrap()
}

/// What is asked, and the first gold, of each problem in a file with this content.
#[track_caller]
fn read(name: &str, content: &[u8], config: Value) -> Vec<(String, String)> {
    let dataset = written(name, content, config).unwrap_or_else(|error| panic!("{name}: {error}"));
    dataset.problems.iter().map(|problem| (text(problem), problem.gold[0].clone())).collect()
}

#[track_caller]
fn refused(name: &str, content: &[u8], config: Value, expected: &str) {
    assert_eq!(told(&written(name, content, config).unwrap_err()), expected, "{name}");
}

const LINES: &[u8] = b"{\"question\": \"a\", \"answer\": 1}\n{\"question\": \"b\", \"answer\": \"2\"}\n";

/// What `LINES` and its like in other formats come to.
fn two() -> Vec<(String, String)> {
    [("a", "1"), ("b", "2")].map(|(asked, gold)| (asked.to_owned(), gold.to_owned())).to_vec()
}

const DAMAGED: &str = "\nhint: fetch the file again, or write it again; it may have been cut off on the way";

// === Files of other writers (tests/cases/data/formats.py) ===

#[test]
fn files_of_other_writers_read() {
    let sign = "A sign says \"2 + 3\".\nWhat is it?";
    for file in ["members.jsonl.gz", "zstandard.jsonl.zst", "pandas.csv", "pandas.tsv.gz", "pandas.feather"] {
        let dataset = load(json!({}), file);
        let asked: Vec<String> = dataset.problems.iter().map(text).collect();
        assert_eq!(asked, [sign, "How many, is 7 − 4?"], "{file}");
        assert_eq!(
            (&dataset.problems[0].gold[0], &dataset.problems[1].gold[0]),
            (&"005".into(), &"3".into()),
            "{file}"
        );
        assert_eq!(dataset.report.unanswered.len(), 1, "{file}: the last row has no answer");
        let source = file.split('.').next().unwrap();
        assert_eq!(dataset.problems[0].source, source, "a name without any ending");
        // A number in CSV is text as an answer, and a number as a policy's column.
        let with_level = json!({"limit": 2});
        assert_eq!(
            columns(with_level, file, &["level"]),
            [[Cell::Number(1.0)], [Cell::Number(2.5)]],
            "{file}"
        );
    }
    let lines: Vec<u64> = places(&load(json!({}), "pandas.csv")).map(|place| place.number).collect();
    assert_eq!(lines, [2, 4], "a row is where it begins");
    let trl = load(json!({}), "save_to_disk.arrow");
    assert_eq!(text(&trl.problems[0]), "[system] Be brief.[user] What is 2 × 4?");
    assert_eq!((&trl.problems[1].gold[0], places(&trl).last().unwrap().unit), (&"3".into(), "row"));
    let parts = load(json!({}), "parts.parquet");
    assert_eq!(
        (text(&parts.problems[0]), &parts.problems[0].gold[0]),
        ("[user] What is 5 + 5?".into(), &"10".into())
    );
}

#[test]
fn types_of_arrow_read_as_those_of_parquet() {
    for file in ["types.arrow", "types.feather"] {
        let dataset = load(json!({}), file);
        assert_eq!((dataset.problems.len(), dataset.report.unasked.len()), (2, 1), "{file}");
        let golds = |answer: &str| -> Vec<Vec<String>> {
            let dataset = load(json!({"answer": answer}), file);
            dataset.problems.into_iter().map(|problem| problem.gold).collect()
        };
        assert_eq!(golds("answer"), [["yes"], ["no"]], "{file}: words by their numbers");
        assert_eq!(golds("view"), [["a view of more than twelve bytes"]], "{file}");
        assert_eq!(golds("levels"), [["1", "2"]], "{file}");
        assert_eq!(golds("info.rate"), [["0.1"]], "{file}: the time beside it is not read");
        assert_eq!(golds("flag"), [["true"]], "{file}");
        for (answer, expected) in [
            ("bytes", "` row 2 is not UTF-8 text"),
            (
                "nothing",
                "` has no row with both a question and an answer: of 3 read, 1 without a question and 2 without an answer",
            ),
            ("time", "`: column `time` holds time64(µs), which is not supported"),
            ("info", "`: column `info` holds timestamp(s), which is not supported"),
            ("info.none", "` has no column `info.none`"),
        ] {
            let error = load_from(&cases(), json!({"answer": answer}), file).unwrap_err();
            assert!(told(&error).starts_with(&format!("`{file}{expected}")), "{answer}: {}", told(&error));
        }
    }
}

// === Compression ===

#[test]
fn compressed_files_read_whatever_their_ending() {
    let csv = b"question,answer\na,1\nb,2\n";
    let array = b"[{\"question\": \"a\", \"answer\": 1},\n {\"question\": \"b\", \"answer\": 2}]";
    for (name, content) in [
        ("packed.jsonl.gz", gzip(LINES)),
        ("packed.json.gz", gzip(array)),
        ("packed.csv.gz", gzip(csv)),
        ("packed.jsonl.zst", zstd(LINES)),
        ("packed.json.ZSTD", zstd(array)),
        ("packed.csv.zst", zstd(csv)),
        ("packed_by_content.jsonl", gzip(LINES)),
        ("packed_with_zstd.csv.gz", zstd(csv)),
        ("unpacked_on_the_way.jsonl.gz", LINES.to_vec()),
        ("members.jsonl.gz", [gzip(&LINES[..40]), gzip(b""), gzip(&LINES[40..])].concat()),
        (
            "frames.jsonl.zst",
            [b"\x50\x2A\x4D\x18\x02\0\0\0xx", &zstd(&LINES[..40])[..], &zstd(&LINES[40..])].concat(),
        ),
        ("mark.csv.gz", gzip(&[b"\xEF\xBB\xBF", &csv[..]].concat())),
    ] {
        assert_eq!(read(name, &content, json!({})), two(), "{name}");
    }
    assert_eq!(read("packed", &gzip(LINES), json!({"format": "jsonl"})), two());
}

#[test]
fn a_compressed_file_that_is_cut_off_says_where() {
    let row =
        |i: usize| format!("{{\"question\": \"{i} + {}\", \"answer\": {}}}\n", i * 7919 % 997, i * 31 % 89);
    let lines: String = (0..40_000).map(row).collect();
    for (name, packed) in
        [("cut.jsonl.gz", gzip(lines.as_bytes())), ("cut.jsonl.zst", zstd(lines.as_bytes()))]
    {
        let error = told(&written(name, &packed[..packed.len() - 9], json!({})).unwrap_err());
        let line =
            error.strip_prefix(&format!("`{name}` line ")).and_then(|rest| rest.split(' ').next()).unwrap();
        assert!((30_000..=40_001).contains(&line.parse::<usize>().unwrap()), "{error}");
        assert!(error.contains(" could not be read: ") && error.ends_with(DAMAGED), "{error}");
        for length in [5, 20, 100] {
            let error = told(&written(name, &packed[..length], json!({})).unwrap_err());
            assert!(error.starts_with(&format!("`{name}` line 1 could not be read: ")), "{length}: {error}");
        }
        // What comes after the limit is not looked at.
        assert_eq!(
            written(name, &packed[..packed.len() / 2], json!({"limit": 9})).unwrap().problems.len(),
            9
        );
    }
    let mut changed = gzip(lines.as_bytes());
    let last = changed.len() - 6;
    changed[last] ^= 1;
    let error = told(&written("changed.jsonl.gz", &changed, json!({})).unwrap_err());
    assert!(
        error.contains("could not be read: corrupt gzip stream does not have a matching checksum"),
        "{error}"
    );
}

/// 160 MiB in one row, of about 160 KiB in the file.
#[test]
fn a_row_is_not_unpacked_without_end() {
    let bomb = |before: &[u8]| {
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        packed.write_all(before).unwrap();
        (0..160 << 10).for_each(|_| packed.write_all(&[b'x'; 1 << 10]).unwrap());
        packed.finish().unwrap()
    };
    let hint = "hint: shorten the row, or remove what it does not need";
    for (name, before, line) in [
        ("bomb.jsonl.gz", &b"{\"question\": \"a\", \"answer\": 1}\n{\"question\": \""[..], 2),
        ("bomb.json.gz", b"[{\"question\": \"", 1),
        ("bomb.csv.gz", b"question,answer\na,1\n\"", 3),
    ] {
        refused(
            name,
            &bomb(before),
            json!({}),
            &format!("`{name}` line {line} is longer than 128 MiB\n{hint}"),
        );
    }
}

#[test]
fn other_kinds_of_files_are_told_by_their_first_bytes() {
    for (name, content, kind) in [
        ("rows.jsonl.bz2", &b"BZh91AY&SY"[..], "bzip2"),
        ("rows.jsonl.xz", b"\xFD7zXZ\0\0\x04", "xz"),
        ("rows.csv", b"PK\x03\x04\x14\0", "zip"),
        ("rows.lz4", b"\x04\x22\x4D\x18@", "lz4"),
        ("old.feather", b"FEA1\0\0\0\0", "Feather V1"),
    ] {
        let expected = format!(
            "`{name}` is a {kind} file; expected a data file, plain or compressed with gzip or zstd\n\
             hint: unpack it, or write the data set again as JSON lines or parquet"
        );
        refused(name, content, json!({}), &expected);
    }
    refused(
        "pointer.parquet",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n",
        json!({}),
        "`pointer.parquet` is a Git LFS pointer, not the data file itself\n\
         hint: run `git lfs pull` in its folder",
    );
    let parquet = std::fs::read(cases().join("parts.parquet")).unwrap();
    assert_eq!(read("wrong_ending.jsonl", &parquet, json!({})).len(), 1);
    refused(
        "wrong_format.jsonl",
        &parquet,
        json!({"format": "jsonl"}),
        "`wrong_format.jsonl` is parquet, but `format` is JSON lines\n\
         hint: leave `format` out: this format is detected from the first bytes",
    );
    refused(
        "packed.parquet.gz",
        &gzip(&parquet),
        json!({}),
        "`packed.parquet.gz` is a parquet file compressed with gzip as a whole\n\
         hint: unpack it: this format has its own compression",
    );
}

// === CSV and TSV ===

#[test]
fn csv_reads_as_spreadsheets_write_it() {
    let name = "odd.csv";
    let rows =
        read(name, b"\xEF\xBB\xBFquestion,answer\r\n\r\n\"a, \"\"b\"\"\r\nc\",007\r\n d ,1e3\r\n", json!({}));
    assert_eq!(rows, [("a, \"b\"\r\nc".to_owned(), "007".to_owned()), (" d ".to_owned(), "1e3".to_owned())]);
    let dataset =
        written(name, b"answer,question\r\n\r\n\r\n1,a\r\n\r\n\"2\r\n\",b\r\n3,c\n\n4,d", json!({})).unwrap();
    assert_eq!(
        places(&dataset).map(|p| (p.unit, p.number)).collect::<Vec<_>>(),
        [("line", 4), ("line", 6), ("line", 8), ("line", 10)]
    );
    // Old Macs; a field that is empty is null; a column that nobody uses may hold anything, and have any name.
    assert_eq!(read(name, b"question,answer\ra,1\rb,2", json!({})), two());
    let dataset = written(name, b"question,answer,\na,,1\n,2,1\n\"\",3,1\nb,4,1\n", json!({})).unwrap();
    assert_eq!(
        (dataset.problems.len(), dataset.report.unasked.len(), dataset.report.unanswered.len()),
        (1, 2, 1)
    );
    assert_eq!(read(name, b"note,question,note,answer\n\xff,a,x,1\ny,b,\xff,2\n", json!({})), two());
    assert_eq!(read("odd.tsv", b"question\tanswer\na\t1\n\"b\"\t2\n", json!({})), two());
    assert_eq!(read("odd.txt", b"question\tanswer\na\t1\nb\t2\n", json!({"format": "tsv"})), two());
    let whole = read(name, b",question,answer\n0,a,x\n", json!({"question": "question", "answer": "*"}));
    assert_eq!(whole[0].1, r#"{"question":"a","answer":"x"}"#);
}

#[test]
fn what_is_wrong_with_csv_is_told() {
    let comma = "hint: put a field between quotes if it has a comma, a quote or a line break in it";
    refused(
        "long.csv",
        b"question,answer\na,1\n\nb,2,3\n",
        json!({}),
        &format!("`long.csv` line 4 has 3 fields; expected 2, as in the first row\n{comma}"),
    );
    refused(
        "short.tsv",
        b"question\tanswer\na\n",
        json!({}),
        "`short.tsv` line 2 has 1 field; expected 2, as in the first row\n\
         hint: put a field between quotes if it has a tab, a quote or a line break in it",
    );
    refused(
        "open.csv",
        b"question,answer\na,1\nb,\"2\nc,3\n",
        json!({}),
        "`open.csv` line 3 opens a quote that is not closed before the end of the file\n\
         hint: double a quote inside a quoted field",
    );
    refused(
        "twins.csv",
        b"question,answer,answer\na,1,2\n",
        json!({}),
        "`twins.csv` has two columns `answer`: columns 2 and 3\nhint: rename one of them in the file",
    );
    refused(
        "latin.csv",
        b"question,answer\na,1\ncaf\xe9,2\n",
        json!({}),
        "`latin.csv` line 3 is not UTF-8 text\nhint: write the file again as UTF-8",
    );
    refused(
        "headless.csv",
        b"What is 1 + 1?,2\n",
        json!({}),
        "`headless.csv` has no columns recognized as question and answer\n\
         hint: its columns are `What is 1 + 1?`, `2`; choose with `question = \"…\"` and `answer = \"…\"`",
    );
    let empty = "has no rows\nhint: write each row as an object with a question and an answer";
    refused("empty.csv", b"\n", json!({}), &format!("`empty.csv` {empty}"));
    refused("header.csv", b"question,answer\n", json!({}), &format!("`header.csv` {empty}"));
    refused(
        "messages.csv",
        b"prompt,answer\n\"[{'role': 'user', 'content': 'a'}]\",1\n",
        json!({}),
        "`messages.csv` line 2: `prompt` is a list of messages that was written as text\n\
         hint: write the data set as JSON lines or parquet, which have lists",
    );
}

// === Arrow ===

/// A table as a stream, or as a file.
fn arrow(columns: Vec<(&str, ArrayRef)>, as_file: bool) -> Vec<u8> {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut bytes = Vec::new();
    if as_file {
        let mut writer = FileWriter::try_new(&mut bytes, &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
    } else {
        let mut writer = StreamWriter::try_new(&mut bytes, &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
    }
    bytes
}

fn strings(all: [&str; 2]) -> ArrayRef {
    Arc::new(StringArray::from(all.to_vec()))
}

#[test]
fn arrow_reads_whatever_its_ending() {
    for as_file in [false, true] {
        let table = arrow(vec![("question", strings(["a", "b"])), ("answer", strings(["1", "2"]))], as_file);
        for name in ["table.arrow", "table.feather", "table", "table.jsonl"] {
            let dataset = written(name, &table, json!({})).unwrap();
            assert_eq!((dataset.problems.len(), dataset.report.duplicates.len()), (2, 2), "{name}");
            assert_eq!(dataset.report.duplicates[1].place.number, 4, "rows are counted over all batches");
        }
    }
    let twins = vec![
        ("question", strings(["a", "b"])),
        ("answer", strings(["1", "2"])),
        ("answer", strings(["3", "4"])),
    ];
    refused(
        "twins.arrow",
        &arrow(twins, false),
        json!({}),
        "`twins.arrow` has two columns `answer`: columns 2 and 3\nhint: rename one of them in the file",
    );
    let nulls: ArrayRef = Arc::new(NullArray::new(2));
    refused(
        "nulls.arrow",
        &arrow(vec![("question", nulls), ("answer", strings(["1", "2"]))], false),
        json!({}),
        "`nulls.arrow` has no row with a question, of 4 read\nhint: set `question` to the column to use",
    );
    refused(
        "text.arrow",
        b"question,answer\na,1\n",
        json!({}),
        &format!(
            "`text.arrow` is not an Arrow file, or it is damaged: a message in it claims to be longer than any is{DAMAGED}"
        ),
    );
}

/// Cut anywhere, or with any of its bytes changed: an error, or rows.
#[test]
fn a_damaged_arrow_file_is_an_error_and_no_panic() {
    for file in ["types.arrow", "types.feather", "pandas.feather", "save_to_disk.arrow"] {
        let whole = std::fs::read(cases().join(file)).unwrap();
        let end = whole.len() - if file.ends_with("feather") { 0 } else { 8 };
        for length in (1..end).step_by(37) {
            let read = written(file, &whole[..length], json!({}));
            // A stream may end after any of its batches, and a file may lack its footer.
            let is_whole = read.as_ref().is_ok_and(|read| file == "types.arrow" || read.problems.len() == 2);
            let error = read.err().map(|error| told(&error)).unwrap_or_default();
            assert!(is_whole || error.starts_with(&format!("`{file}` ")), "{file} {length}: {error}");
        }
        for at in 0..whole.len() {
            for bits in [0x80, 0xFF] {
                let mut changed = whole.clone();
                changed[at] ^= bits;
                if let Err(error) = written(file, &changed, json!({"answer": "*"})) {
                    assert!(told(&error).starts_with(&format!("`{file}`")), "{file} {at}: {error}");
                }
            }
        }
    }
}

// === Layouts ===

#[test]
fn the_layout_of_trl_is_known() {
    let row = |row: Value| row.to_string().into_bytes();
    for answer in ["solution", "ground_truth", "answer", "final_answer", "target"] {
        let mut asked = json!({"prompt": "1 + 1"});
        asked[answer] = json!("2");
        assert_eq!(read("trl.jsonl", &row(asked.clone()), json!({})), [("1 + 1".to_owned(), "2".to_owned())]);
        asked["prompt"] = json!([{"role": "user", "content": "1 + 1"}]);
        assert_eq!(read("trl.jsonl", &row(asked), json!({}))[0].0, "[user] 1 + 1");
    }
    // Layouts that were known before stay what they are.
    for (more, gold) in [
        (json!({"reward_model": {"ground_truth": "v"}}), "v"),
        (json!({"problem": "p", "answer": "a"}), "a"),
        (json!({"question": "p", "final_answer": "f", "target": "t"}), "f"),
    ] {
        let mut all = json!({"prompt": "p", "solution": "s"});
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        assert_eq!(read("known.jsonl", &row(all), json!({}))[0].1, gold);
    }
    let both = row(json!({"prompt": "p", "answer": "a", "solution": "s"}));
    refused(
        "both.jsonl",
        &both,
        json!({}),
        "`both.jsonl` may have its answers in any of `solution`, `answer`\n\
         hint: name the one to take with `answer = \"…\"`",
    );
    assert_eq!(read("both.jsonl", &both, json!({"answer": "answer"}))[0].1, "a");
    let worked = row(json!({"prompt": "p", "solution": "We add.\nSo it is $\\boxed{4}$."}));
    refused(
        "worked.jsonl",
        &worked,
        json!({}),
        "`worked.jsonl` line 1: `solution` is a worked solution, with its answer in `\\boxed{…}`\n\
         hint: set `answer_boxed = true` to keep the content of the box, or `answer = \"solution\"` to keep the whole text",
    );
    assert_eq!(read("worked.jsonl", &worked, json!({"answer_boxed": true}))[0].1, "4");
}

#[test]
fn messages_may_have_parts_of_text() {
    let row = |content: Value| json!({"prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": content}], "answer": 1});
    let line = |content: Value| row(content).to_string().into_bytes();
    let part = |text: &str| json!({"type": "text", "text": text, "image": null});
    assert_eq!(
        read("parts.jsonl", &line(json!([part("a "), part("b")])), json!({}))[0].0,
        "[system] s[user] a b"
    );
    for (content, of) in [
        (json!([part("a"), {"type": "image_url", "image_url": {"url": "x"}}]), "image_url"),
        (json!([{"type": "input_audio", "input_audio": {}}]), "input_audio"),
    ] {
        let expected = format!(
            "`parts.jsonl` line 1: message 2 of `prompt` has a part of type `{of}`; expected text\n\
             hint: leave out rows with parts that are not text"
        );
        refused("parts.jsonl", &line(content), json!({}), &expected);
    }
    for content in [json!([{"text": "a"}]), json!(["a"]), json!([{"type": "text", "text": 3}])] {
        let error = told(&written("parts.jsonl", &line(content), json!({})).unwrap_err());
        assert!(
            error.starts_with("`parts.jsonl` line 1: `prompt` is neither text nor a list of messages"),
            "{error}"
        );
    }
    // A system's message asks nothing.
    for nothing in [json!([]), json!([part(" ")]), json!("")] {
        let error = told(&written("parts.jsonl", &line(nothing), json!({})).unwrap_err());
        assert!(error.starts_with("`parts.jsonl` has no row with a question, of 1 read"), "{error}");
    }
}

// === JSON of Python ===

#[test]
fn what_python_writes_beyond_json_is_refused_only_where_it_is_used() {
    let asked = |config: Value| load_from(&cases(), config, "python.jsonl");
    assert_eq!(asked(json!({})).unwrap().problems.len(), 2);
    assert_eq!(columns(json!({"skip": 1}), "python.jsonl", &["score"]), [[Cell::Number(0.5)]]);
    let hint = "hint: use a valid JSON number or text there, or leave the row out";
    let half = "text with half of a surrogate pair (such as `\\ud83d`), which is not a character";
    for (config, column, found) in [
        (json!({"answer": "score"}), "score", "NaN"),
        (json!({"answer": "info.range"}), "info.range", "-Infinity"),
        (json!({"answer": "info"}), "info.range", "-Infinity"),
        (json!({"question": "note"}), "note", half),
        (json!({"template": "{{ question }} {{ note }}"}), "note", half),
        (json!({"answer": "*"}), "score", "NaN"),
    ] {
        let error = told(&asked(config).unwrap_err());
        assert_eq!(error, format!("`python.jsonl` line 1: `{column}` is {found}\n{hint}"));
    }
    let wanted = ["score".to_owned()];
    let config = serde_json::from_value(json!({"files": "python.jsonl"})).unwrap();
    let error = super::Dataset::with_columns(&config, &cases(), &wanted).unwrap_err();
    assert!(told(&error).starts_with("`python.jsonl` line 1: `score` is NaN"), "{error}");
    // In an array, too; and what is no JSON for another reason is told at its own place.
    let array =
        b"[\n {\"question\": \"a\", \"answer\": 1, \"x\": NaN},\n {\"question\": \"b\", \"answer\": 2}\n]\n";
    assert_eq!(read("python.json", array, json!({})), two());
    refused(
        "broken.json",
        b"[\n {\"question\": \"a\", \"answer\": 1}, {\"x\": NaN,\n \"y\": tru}]",
        json!({}),
        "`broken.json` line 3 column 10 is not JSON: expected ident\nhint: write one row per line, or all rows in one array",
    );
}

#[test]
fn arrays_are_read_item_by_item() {
    let good = "{\"question\": \"[a]\", \"answer\": \"\\\"]\\\\\"}";
    assert_eq!(read("array.json", format!(" \n[{good}]\n ").as_bytes(), json!({}))[0].1, "\"]\\");
    for (text, expected) in [
        (format!("[{good},]"), "line 1 column 41 is not JSON: trailing comma"),
        (format!("[{good},,{good}]"), "line 1 column 41 is not JSON: expected value"),
        (format!("[{good}\n{good}]"), "line 2 column 1 is not JSON: trailing characters"),
        (format!("[{good}]\n x"), "line 2 column 2 is not JSON: trailing characters"),
        (format!("[{good}"), "line 1 column 39 is not JSON: EOF while parsing a list"),
        (format!("[\n {good}, [1]]"), "item 2 is a list; expected an object with the columns by name"),
    ] {
        let error = told(&written("array.json", text.as_bytes(), json!({})).unwrap_err());
        assert_eq!(error.lines().next(), Some(format!("`array.json` {expected}").as_str()), "{text}");
    }
}

// === Rows without a question or an answer ===

#[test]
fn rows_that_lack_one_or_the_other_are_told_apart() {
    let rows = b"{\"question\": \"\", \"answer\": 1}\n{\"question\": \"a\", \"answer\": \"\"}\n";
    refused(
        "lacking.jsonl",
        rows,
        json!({}),
        "`lacking.jsonl` has no row with both a question and an answer: of 2 read, 1 without a question and 1 without an answer\n\
         hint: set `question` and `answer` to the columns to use",
    );
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("data/folder.jsonl");
    std::fs::create_dir_all(&folder).unwrap();
    let error = load_from(folder.parent().unwrap(), json!({}), "folder.jsonl").unwrap_err();
    assert_eq!(told(&error), "could not read `folder.jsonl`: it is a folder\nhint: name the files in it");
}
