//! A run's outputs as other tools find them: metrics as lines, event files through a reader of TFRecords and
//! protobuf written here, the table of rollouts through parquet's own; and each cut off and gone on with.

#![allow(clippy::unwrap_used, missing_docs)]

mod scratch;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use allot_allocation::{PromptId, RolloutId};
use allot_outputs::metrics::Metrics;
use allot_outputs::rollouts::{Fate, Played, Purpose, RolloutRow, Table};
use allot_outputs::tensorboard::Events;
use allot_record::{Appended, Kept, Mark};
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::Field;
use scratch::Scratch;

fn named(values: &[(&str, f64)]) -> Vec<(String, f64)> {
    values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
}

/// A file with something of a step that no checkpoint knows.
fn append(path: &Path, bytes: &[u8]) {
    OpenOptions::new().append(true).open(path).unwrap().write_all(bytes).unwrap();
}

// ---- metrics.jsonl

#[test]
fn metrics_are_a_line_a_step_with_names_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics.jsonl");
    let mut metrics = Metrics::create(&path).unwrap();
    metrics.write(1, &named(&[("reward", 0.1), ("completions/mean_length", 12.0), ("loss", -0.0)])).unwrap();
    metrics.write(2, &named(&[("loss", f64::NAN), ("kl", f64::INFINITY), ("grad_norm", 1e-7)])).unwrap();
    metrics.write(3, &named(&[("step", 9.0), ("reward", 1.0), ("loss", 2.0), ("reward", 3.0)])).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let lines = [
        r#"{"step":1,"reward":0.1,"completions/mean_length":12.0,"loss":-0.0}"#,
        r#"{"step":2,"loss":null,"kl":null,"grad_norm":1e-7}"#,
        r#"{"step":3,"reward":3.0,"loss":2.0}"#,
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), lines);
    assert!(text.ends_with('\n'));
    assert_eq!(metrics.mark(), Mark::of(&path).unwrap());

    let error = Metrics::create(&path).unwrap_err();
    assert_eq!(
        error.what,
        format!("could not write `{}`: there is something of that name already", path.display())
    );
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "nothing was written over");
}

#[test]
fn metrics_go_on_where_the_checkpoint_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics.jsonl");
    let mut metrics = Metrics::create(&path).unwrap();
    metrics.write(1, &named(&[("reward", 1.0)])).unwrap();
    metrics.sync().unwrap();
    let mark = metrics.mark();
    metrics.write(2, &named(&[("reward", 2.0)])).unwrap();
    drop(metrics);
    append(&path, b"{\"step\":3,\"rew");

    let mut metrics = Metrics::resume(Kept::open(&path, &mark).unwrap()).unwrap();
    assert_eq!(metrics.mark(), mark);
    metrics.write(2, &named(&[("reward", 4.0)])).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text, "{\"step\":1,\"reward\":1.0}\n{\"step\":2,\"reward\":4.0}\n");
    assert_eq!(metrics.mark(), Mark::of(&path).unwrap());

    let shown = path.display();
    let long = Mark { bytes: 1000, ..mark.clone() };
    let error = Kept::open(&path, &long).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("`{shown}` has {} bytes, and the checkpoint counts on 1000", text.len())
    );
    // One digit of a step that the checkpoint counts on.
    let changed = text.replacen("1.0", "1.5", 1);
    std::fs::write(&path, &changed).unwrap();
    let error = Kept::open(&path, &mark).unwrap_err();
    let what = format!(
        "`{shown}` is not what it was at the checkpoint: something in its first 24 bytes was changed"
    );
    assert_eq!(error.to_string(), what);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), changed, "and it was left as it is");
    assert!(Kept::open(&folder.path().join("none.jsonl"), &Mark::default()).is_err());
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_said_in_a_sentence() {
    let full = |path: &str| {
        let file = OpenOptions::new().write(true).open("/dev/full").unwrap();
        Appended::to(Box::new(file), Path::new(path))
    };
    let mut metrics = Metrics::to(full("runs/a/metrics.jsonl"));
    let error = metrics.write(1, &named(&[("reward", 1.0)])).unwrap_err();
    assert_eq!(error.what, "could not write `runs/a/metrics.jsonl`: the disk is full");
    assert_eq!(metrics.mark().bytes, 0, "a checkpoint does not count on what was not written");

    let error = Events::to(full("runs/a/tensorboard/events")).unwrap_err();
    assert_eq!(error.what, "could not write `runs/a/tensorboard/events`: the disk is full");
}

// ---- TensorBoard

/// What an event says: seconds, step, version of the format, and each value's tag and number.
#[derive(Debug, Default, PartialEq)]
struct Event {
    time: f64,
    step: u64,
    version: Option<String>,
    values: Vec<(String, f32)>,
}

/// CRC-32C by its table, other than the writer's.
fn crc32c(bytes: &[u8]) -> u32 {
    let table: Vec<u32> = (0..256u32)
        .map(|n| (0..8).fold(n, |c, _| if c & 1 == 1 { 0x82f6_3b78 ^ (c >> 1) } else { c >> 1 }))
        .collect();
    !bytes.iter().fold(u32::MAX, |c, b| table[((c ^ u32::from(*b)) & 0xff) as usize] ^ (c >> 8))
}

fn masked(bytes: &[u8]) -> u32 {
    let crc = crc32c(bytes);
    crc.rotate_left(17).wrapping_add(0xa282_ead8)
}

/// The records of a file; `None` from the first that is cut off or whose checksums do not fit.
fn records(mut bytes: &[u8]) -> Vec<Option<Vec<u8>>> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let one = record(bytes);
        bytes = one.as_ref().map_or(&[], |message| &bytes[message.len() + 16..]);
        all.push(one);
    }
    all
}

fn record(bytes: &[u8]) -> Option<Vec<u8>> {
    let sum = |at: usize| bytes.get(at..at + 4).map(|b| u32::from_le_bytes(b.try_into().unwrap()));
    let length = bytes.get(..8)?;
    let n = u64::from_le_bytes(length.try_into().unwrap()) as usize;
    let message = bytes.get(12..)?.get(..n)?;
    (sum(8)? == masked(length) && sum(12 + n)? == masked(message)).then(|| message.to_vec())
}

/// The fields of a protobuf message: number, and the value's bytes or, of a varint, its value.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let n = bytes.iter().position(|b| *b < 0x80).unwrap() + 1;
        let value = bytes[..n].iter().rev().fold(0, |value, b| value << 7 | u64::from(*b & 0x7f));
        *bytes = &bytes[n..];
        value
    }
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let n = match key & 7 {
            0 => {
                all.push((key >> 3, varint(&mut bytes).to_le_bytes().to_vec()));
                continue;
            }
            1 => 8,
            2 => varint(&mut bytes) as usize,
            5 => 4,
            wire => panic!("no such kind of field: {wire}"),
        };
        all.push((key >> 3, bytes[..n].to_vec()));
        bytes = &bytes[n..];
    }
    all
}

fn event(message: &[u8]) -> Event {
    let mut event = Event::default();
    for (number, value) in fields(message) {
        match number {
            1 => event.time = f64::from_le_bytes(value.try_into().unwrap()),
            2 => event.step = u64::from_le_bytes(value.try_into().unwrap()),
            3 => event.version = Some(String::from_utf8(value).unwrap()),
            5 => {
                for (_, one) in fields(&value) {
                    let all = fields(&one);
                    let of = |n| all.iter().find(|(number, _)| *number == n).unwrap().1.clone();
                    let number = f32::from_le_bytes(of(2).try_into().unwrap());
                    event.values.push((String::from_utf8(of(1)).unwrap(), number));
                }
            }
            _ => panic!("no such field: {number}"),
        }
    }
    event
}

/// The file of events in a folder, and what it says. Panics at a record that does not fit.
fn events(folder: &Path) -> (PathBuf, Vec<Event>) {
    let all: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(all.len(), 1);
    let records = records(&std::fs::read(&all[0]).unwrap());
    (all[0].clone(), records.iter().map(|message| event(message.as_ref().unwrap())).collect())
}

#[test]
fn events_are_what_tensorboard_reads() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("tensorboard");
    let before = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    let mut writer = Events::create(&folder).unwrap();
    writer.scalar("reward", 1, 0.25).unwrap();
    writer.scalar("completions/mean_length", 300, -1.5e9).unwrap();
    writer.scalar("kl", u32::MAX, f64::NAN).unwrap();
    // Longer than what one byte of a length can say.
    let long = "eval/".repeat(60);
    writer.scalar(&long, 2, 0.1).unwrap();

    let (path, all) = events(&folder);
    assert_eq!(writer.mark(), Mark::of(&path).unwrap());
    let name = path.file_name().unwrap().to_str().unwrap().to_owned();
    let seconds = name.strip_prefix("events.out.tfevents.").unwrap().strip_suffix(".allot").unwrap();
    assert!((before as u64..before as u64 + 600).contains(&seconds.parse().unwrap()), "{name}");

    assert_eq!(all[0].version.as_deref(), Some("brain.Event:2"));
    assert!(all[0].values.is_empty());
    let said: Vec<_> = all[1..].iter().map(|e| (e.step, e.values.clone())).collect();
    assert_eq!(said[0], (1, vec![("reward".to_owned(), 0.25)]));
    assert_eq!(said[1], (300, vec![("completions/mean_length".to_owned(), -1.5e9)]));
    assert_eq!((said[2].0, said[2].1[0].1.is_nan()), (u64::from(u32::MAX), true));
    assert_eq!(said[3], (2, vec![(long, 0.1)]));
    assert!(all.iter().all(|e| e.version.is_none() || e.values.is_empty()));
    assert!(all.iter().all(|e| (before..before + 600.0).contains(&e.time)), "{all:?}");
    assert!(all.is_sorted_by(|a, b| a.time <= b.time));

    // The reader here would notice.
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[70] ^= 1;
    assert!(records(&bytes).contains(&None));
}

#[test]
fn events_go_on_where_the_checkpoint_was() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = Events::create(folder.path()).unwrap();
    writer.scalar("reward", 1, 1.0).unwrap();
    writer.sync().unwrap();
    let mark = writer.mark();
    writer.scalar("reward", 2, 2.0).unwrap();
    drop(writer);
    append(&events(folder.path()).0, &[1, 2, 3]);

    let kept = Events::kept(folder.path(), &mark).unwrap();
    let mut writer = Events::resume(kept).unwrap();
    writer.scalar("reward", 2, 4.0).unwrap();
    let (path, all) = events(folder.path());
    let said: Vec<_> = all.iter().flat_map(|e| e.values.iter().map(|v| (e.step, v.1))).collect();
    assert_eq!(said, [(1, 1.0), (2, 4.0)]);
    assert_eq!(writer.mark(), Mark::of(&path).unwrap());

    let long = Mark { bytes: 9999, ..mark.clone() };
    let error = Events::kept(folder.path(), &long).unwrap_err();
    assert!(error.what.ends_with("and the checkpoint counts on 9999"), "{error}");
    let error = Events::create(folder.path()).unwrap_err();
    let shown = folder.path().display();
    assert_eq!(error.what, format!("there is an event file in `{shown}` already: `{}`", path.display()));
    std::fs::copy(&path, folder.path().join("events.out.tfevents.0000000001.allot")).unwrap();
    let error = Events::kept(folder.path(), &mark).unwrap_err();
    assert_eq!(error.what, format!("`{shown}` should have one event file to go on with, and has 2"));
}

// ---- the table of rollouts

fn row(rollout: u64, purpose: Purpose) -> RolloutRow {
    let evaluation = matches!(purpose, Purpose::Evaluation(_));
    RolloutRow {
        step: 4,
        round: (!evaluation).then_some(1),
        rollout: RolloutId(rollout),
        prompt: PromptId(rollout as u32 / 2),
        problem: format!("problem-{}", rollout / 2),
        source: "sums".to_owned(),
        purpose,
        position: rollout as u32 % 2,
        version: 3,
        tokens: 10 + rollout as u32,
        truncated: rollout.is_multiple_of(3),
        log_prob: Some(-0.1 * rollout as f64),
        reward: Some(0.5),
        rewards: Vec::new(),
        correct: rollout % 2 == 1,
        played: None,
        text: None,
        learned: None,
    }
}

/// A part as rows of names and values, and what it says of its writer.
fn read(path: &Path) -> (Vec<Vec<(String, Field)>>, String) {
    let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    let by = reader.metadata().file_metadata().created_by().unwrap().to_owned();
    let rows = reader.get_row_iter(None).unwrap();
    (rows.map(|r| r.unwrap().into_columns()).collect(), by)
}

/// One column of a part, as text.
fn column(path: &Path, name: &str) -> Vec<String> {
    let rows = read(path).0;
    rows.iter().map(|r| r.iter().find(|(n, _)| n == name).unwrap().1.to_string()).collect()
}

fn names(folder: &Path) -> Vec<String> {
    let mut all: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    all.sort();
    all
}

#[test]
fn a_row_comes_back_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("rollouts");
    let mut table = Table::create(&folder, "first").unwrap();
    let far = 1_u64 << 40;
    let trained = RolloutRow {
        step: u32::MAX,
        prompt: PromptId(u32::MAX),
        log_prob: Some(-1.0 / 3.0),
        reward: Some(0.1),
        rewards: vec![("format".to_owned(), 0.5), ("tests".to_owned(), -1.0)],
        played: Some(Played { turns: 3, read: 17, rows: 2, stopped: "max_turns".to_owned() }),
        text: Some("4 + 4 = 8\n\u{1f980}".to_owned()),
        ..row(far, Purpose::Commit)
    };
    table.add(trained).unwrap();
    table.train(RolloutId(far), 2, -1.1).unwrap();
    table.settle(RolloutId(far), Fate::Trained).unwrap();
    table.add(row(3, Purpose::Evaluation("held".to_owned()))).unwrap();
    table.close_part().unwrap();

    let (rows, by) = read(&folder.join("part-00001.parquet"));
    assert_eq!(by, format!("allot version {}", env!("CARGO_PKG_VERSION")));
    let text = |s: &str| Field::Str(s.to_owned());
    let wanted = [
        ("run", text("first")),
        ("step", Field::Long(i64::from(u32::MAX))),
        ("round", Field::Long(1)),
        ("rollout", Field::Long(far.cast_signed())),
        ("prompt", Field::Long(i64::from(u32::MAX))),
        ("problem", text("problem-549755813888")),
        ("source", text("sums")),
        ("purpose", text("commit")),
        ("set", Field::Null),
        ("position", Field::Long(0)),
        ("version", Field::Long(3)),
        ("tokens", Field::Long(10)),
        ("truncated", Field::Bool(far.is_multiple_of(3))),
        ("log_prob", Field::Double(-1.0 / 3.0)),
        ("reward", Field::Float(0.1)),
        ("rewards", Field::Str(r#"{"format":0.5,"tests":-1.0}"#.to_owned())),
        ("correct", Field::Bool(false)),
        ("age", Field::Long(2)),
        ("advantage", Field::Float(-1.1)),
        ("updates", Field::Long(1)),
        ("fate", text("trained")),
        ("turns", Field::Long(3)),
        ("read_tokens", Field::Long(17)),
        ("training_rows", Field::Long(2)),
        ("stopped", text("max_turns")),
        ("text", text("4 + 4 = 8\n\u{1f980}")),
    ];
    assert_eq!(rows[0], wanted.map(|(name, value)| (name.to_owned(), value)));
    let evaluated: Vec<(&str, &Field)> = rows[1].iter().map(|(n, v)| (n.as_str(), v)).collect();
    for (name, value) in [
        ("round", Field::Null),
        ("purpose", text("evaluation")),
        ("set", text("held")),
        ("truncated", Field::Bool(true)),
        ("rewards", Field::Null),
        ("correct", Field::Bool(true)),
        ("age", Field::Null),
        ("advantage", Field::Null),
        ("fate", text("evaluated")),
        ("text", Field::Null),
    ] {
        assert!(evaluated.contains(&(name, &value)), "{name}: {evaluated:?}");
    }
    assert_eq!(rows.len(), 2);
}

#[test]
fn every_rollout_has_a_fate_and_parts_are_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = Table::create(folder.path(), "r").unwrap();
    table.close_part().unwrap();
    assert_eq!((table.parts().len(), names(folder.path())), (0, vec![]), "no rows, no part");
    for rollout in [5, 0, 1, 4, 3] {
        table.add(row(rollout, Purpose::Pilot)).unwrap();
    }
    // An unscorable one has its fate at once, and so has a reward that is no number.
    table.add(RolloutRow { reward: None, ..row(2, Purpose::Pilot) }).unwrap();
    table
        .add(RolloutRow { reward: Some(f32::NAN), log_prob: Some(f64::NAN), ..row(6, Purpose::Pilot) })
        .unwrap();
    let evaluation = |set: &str| Purpose::Evaluation(set.to_owned());
    for (set, rollout) in [("b", 1), ("b", 0), ("a", 0)] {
        table.add(row(rollout, evaluation(set))).unwrap();
    }
    table.add(RolloutRow { step: 2, reward: None, ..row(7, evaluation("b")) }).unwrap();
    table.settle(RolloutId(4), Fate::Stale).unwrap();
    table.train(RolloutId(0), 0, 0.0).unwrap();
    table.settle(RolloutId(0), Fate::Trained).unwrap();
    table.settle(RolloutId(3), Fate::Released).unwrap();
    table.close_part().unwrap();
    assert_eq!(table.parts().len(), 1);
    assert_eq!(table.pending().map(|r| r.rollout.0).collect::<Vec<_>>(), [1, 5]);
    table.settle(RolloutId(5), Fate::Released).unwrap();
    table.finish().unwrap();

    let [one, two] = ["part-00001.parquet", "part-00002.parquet"].map(|n| folder.path().join(n));
    assert_eq!(names(folder.path()).len(), 2);
    assert_eq!(column(&one, "rollout"), ["0", "2", "3", "4", "6", "7", "0", "0", "1"]);
    assert_eq!(column(&one, "set")[4..], ["null", "\"b\"", "\"a\"", "\"b\"", "\"b\""]);
    let fates = ["trained", "unscorable", "released", "stale", "unscorable"].map(|f| format!("\"{f}\""));
    assert_eq!(column(&one, "fate")[..5], fates);
    assert!(column(&one, "fate")[5..].iter().all(|fate| fate == "\"evaluated\""));
    assert_eq!(column(&one, "reward")[4..6], ["null", "null"]);
    assert_eq!(column(&one, "log_prob")[4], "null");
    assert_eq!(column(&two, "rollout"), ["1", "5"]);
    assert_eq!(column(&two, "fate"), ["\"held\"", "\"released\""]);
}

/// What a run does in one step of three: five rollouts, of which some wait for the next.
fn go(table: &mut Table, step: u64) {
    for i in 0..5 {
        let rollout = step * 5 + i;
        let text = (i != 2).then(|| format!("answer {rollout}"));
        table.add(RolloutRow { step: step as u32, text, ..row(rollout, Purpose::Pilot) }).unwrap();
    }
    for i in 0..3 {
        let advantage = (i as f32).sin();
        table.train(RolloutId(step * 5 + i), 0, advantage).unwrap();
        table.settle(RolloutId(step * 5 + i), Fate::Trained).unwrap();
    }
    if let Some(last) = step.checked_sub(1) {
        table.train(RolloutId(last * 5 + 4), 1, 0.1).unwrap();
        table.settle(RolloutId(last * 5 + 4), Fate::Trained).unwrap();
        table.settle(RolloutId(last * 5 + 3), Fate::Stale).unwrap();
    }
    table.close_part().unwrap();
}

#[test]
fn a_run_that_goes_on_writes_the_same_bytes() {
    let [whole, cut] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mut table = Table::create(whole.path(), "r").unwrap();
    (0..3).for_each(|step| go(&mut table, step));
    table.finish().unwrap();

    let mut table = Table::create(cut.path(), "r").unwrap();
    go(&mut table, 0);
    let parts = table.parts().to_vec();
    let pending = serde_json::to_string(&table.pending().collect::<Vec<_>>()).unwrap();
    go(&mut table, 1);
    go(&mut table, 2);
    table.finish().unwrap();
    // What lies there besides, half a part among it.
    std::fs::write(cut.path().join(".part-00002"), "half").unwrap();
    std::fs::write(cut.path().join("part-9.parquet"), "someone's").unwrap();
    let mut table = Table::resume(cut.path(), "r", parts, serde_json::from_str(&pending).unwrap()).unwrap();
    assert_eq!(names(cut.path()), [".part-00002", "part-00001.parquet", "part-9.parquet"]);
    go(&mut table, 1);
    go(&mut table, 2);
    table.finish().unwrap();

    let parts = names(whole.path());
    assert_eq!(parts.len(), 4);
    for name in &parts {
        let [a, b] = [&whole, &cut].map(|folder| std::fs::read(folder.path().join(name)).unwrap());
        assert!(a == b, "{name} differs");
    }
    assert_eq!(names(cut.path())[4..], ["part-9.parquet"], "no half part is left");
}

#[test]
fn a_row_group_is_written_once_it_is_full() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = Table::create(folder.path(), "r").unwrap();
    let passing = folder.path().join(".part-00001");
    let (text, n) = ("0123456789abcdef".repeat(1 << 12), 1000);
    let mut seen = Vec::new();
    for rollout in 0..n {
        table.add(RolloutRow { text: Some(text.clone()), ..row(rollout, Purpose::Pilot) }).unwrap();
        // Every tenth waits until the end; it is no part of what fills.
        if rollout % 10 > 0 {
            table.settle(RolloutId(rollout), Fate::Released).unwrap();
        }
        seen.push(passing.exists());
    }
    // 64 KiB each: 256 of them are a row group.
    let first = seen.iter().position(|there| *there).unwrap();
    assert!((256..300).contains(&first), "{first}");
    assert_eq!(names(folder.path()), [".part-00001"], "no reader takes it for a part yet");
    table.close_part().unwrap();
    table.finish().unwrap();
    let [one, two] = ["part-00001.parquet", "part-00002.parquet"].map(|n| folder.path().join(n));
    let reader = SerializedFileReader::new(File::open(&one).unwrap()).unwrap();
    assert_eq!(reader.metadata().num_row_groups(), 4);
    let rollouts = [column(&one, "rollout"), column(&two, "rollout")].concat();
    let mut all: Vec<u64> = rollouts.iter().map(|n| n.parse().unwrap()).collect();
    all.sort_unstable();
    assert_eq!(all, (0..n).collect::<Vec<_>>());
    assert!(column(&one, "text").iter().all(|t| *t == format!("{text:?}")));
}

#[test]
fn what_does_not_fit_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let shown = folder.path().display();
    let mut table = Table::create(folder.path(), "r").unwrap();
    table.add(row(0, Purpose::Pilot)).unwrap();
    let twice = table.add(row(0, Purpose::Commit)).unwrap_err();
    assert_eq!(twice.what, "rollout 0 came to the table twice");
    let unknown = table.settle(RolloutId(1), Fate::Released).unwrap_err();
    assert_eq!(unknown.what, "rollout 1 was settled, and the table does not wait for it");

    // A part that cannot be written leaves nothing half, and the table goes no further without its rows.
    table.settle(RolloutId(0), Fate::Released).unwrap();
    let path = folder.path().join("part-00001.parquet");
    std::fs::create_dir_all(path.join("in the way")).unwrap();
    let error = table.close_part().unwrap_err();
    assert!(error.what.starts_with(&format!("could not write `{}`: ", path.display())), "{error}");
    assert_eq!((table.parts().len(), names(folder.path())), (0, vec!["part-00001.parquet".to_owned()]));
    std::fs::remove_dir_all(&path).unwrap();
    let again = table.close_part().unwrap_err();
    assert_eq!(again.what, format!("rows of the table in `{shown}` could not be written before"));
    let mut table = Table::resume(folder.path(), "r", vec![], vec![row(0, Purpose::Pilot)]).unwrap();
    table.settle(RolloutId(0), Fate::Released).unwrap();
    table.close_part().unwrap();
    assert_eq!(column(&path, "rollout"), ["0"]);

    let error = Table::create(folder.path(), "r").err().unwrap();
    assert_eq!(error.what, format!("there is a table of rollouts in `{shown}` already"));
    let one = Mark::of(&path).unwrap();
    let error = Table::resume(folder.path(), "r", vec![one.clone(), one.clone()], vec![]).err().unwrap();
    let missing = folder.path().join("part-00002.parquet");
    assert_eq!(error.what, format!("there is no `{}`, and the checkpoint counts on it", missing.display()));
    assert_eq!(column(&path, "rollout"), ["0"], "and nothing was deleted");
}

// ---- the table of a report

#[test]
fn a_report_s_advantages_are_scaled_as_the_run_scaled_them() {
    let scratch = Scratch::new();
    let config = include_str!("../configs/simulate.toml");
    let config = config.replace("steps = 400", "steps = 3").replace("normalize = true", "normalize = false");
    scratch.write("run.toml", config.replace("[policy.settings]\npilot = 8\ncommit = 24\n", ""));
    let said = scratch.allot(&["simulate", "run.toml", "--policy", "uniform", "--out", "run"]);
    assert!(said.ends_with("exit code 0"), "{said}");
    let scales = |run: &str| {
        let said = scratch.allot(&["report", run, "--out", "report"]);
        assert!(said.ends_with("exit code 0"), "{said}");
        let (mut groups, mut divided) = (BTreeMap::new(), Vec::new());
        for row in read(&scratch.path().join("report/rollouts.parquet")).0 {
            let of = |name: &str| row.iter().find(|(n, _)| n == name).unwrap().1.clone();
            if let (Field::Float(reward), Field::Float(advantage)) = (of("reward"), of("advantage")) {
                let group: &mut Vec<(f64, f64)> = groups.entry(of("prompt").to_string()).or_default();
                group.push((reward.into(), advantage.into()));
            }
        }
        for group in groups.values() {
            let n = group.len() as f64;
            let mean = group.iter().map(|(r, _)| r).sum::<f64>() / n;
            let squares = group.iter().map(|(r, _)| (r - mean).powi(2)).sum::<f64>();
            let by = |(r, a): &(f64, f64)| (r - mean) / a;
            divided.extend(
                group.iter().filter(|(_, a)| *a != 0.0).map(|one| (by(one), (squares / (n - 1.0)).sqrt())),
            );
        }
        assert!(divided.len() > 100);
        divided
    };
    // Not divided by the deviation.
    assert!(scales("run").iter().all(|(by, _)| (by - 1.0).abs() < 1e-6));
    // An older record does not say: it is read as ever.
    let old = scratch.read("run/record.jsonl");
    let (head, rest) = old.split_once('\n').unwrap();
    let mut head: serde_json::Value = serde_json::from_str(head).unwrap();
    assert_eq!(head.as_object_mut().unwrap().remove("advantage").unwrap()["normalize"], false);
    std::fs::create_dir(scratch.path().join("old")).unwrap();
    scratch.write("old/record.jsonl", format!("{head}\n{rest}"));
    assert!(scales("old").iter().all(|(by, deviation)| (by - deviation).abs() < 1e-4));
}
