//! Reads the history of a run's folder: once, or repeatedly while the run goes on.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use allot_record::{Evaluation, Line, Reader, RecordError, Times, warned};

use crate::fold::Fold;
use crate::history::{History, Rollout};

/// Reads a run's history from its folder or record. `each` is called with every rollout whose fate is
/// known. Errors after a readable head are listed in the history, which then ends before the first
/// unreliable line.
pub fn read(path: &Path, each: &mut dyn FnMut(Rollout)) -> Result<History, RecordError> {
    let (mut reader, head) = Reader::open(path)?;
    let folder = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new(".")) };
    let (times, mut troubles) = match Times::read(folder) {
        Ok(times) => (times, Vec::new()),
        Err(error) => (Vec::new(), vec![format!("its times can't be read: {error}")]),
    };
    let evaluations = Evaluation::read(folder).unwrap_or_else(|error| {
        troubles.push(format!("its evaluations can't be read: {error}"));
        Vec::new()
    });
    let warned = warned(folder).unwrap_or_else(|error| {
        troubles.push(format!("what its policy logged can't be read: {error}"));
        Vec::new()
    });
    let name = if path.is_dir() { path } else { folder };
    let mut fold = Fold::new(name.display().to_string(), head, &times);
    for told in evaluations {
        fold.evaluation(told);
    }
    let mut whole = true;
    for line in reader.by_ref() {
        let taken = line.map_err(|error| error.to_string()).and_then(|line| fold.take(line, each));
        if let Err(reason) = taken {
            troubles.push(format!("{reason}; the rest is left out"));
            whole = false;
            break;
        }
    }
    let mut history = fold.finish();
    match &history.end {
        Some(end) if !end.normal => troubles.push(format!("it was stopped: {}", end.reason)),
        None if reader.cut() => {
            let line = reader.line();
            troubles.push(format!("it is unfinished, and its last line, {line}, is cut off in the middle"));
        }
        None if whole => troubles.push("it is unfinished: its record has no end".to_owned()),
        Some(_) | None => {}
    }
    (history.troubles, history.warned) = (troubles, warned);
    Ok(history)
}

/// Follows a run while it goes on.
pub struct Follower {
    path: PathBuf,
    fold: Fold,
    /// Bytes of the record that were read.
    taken: u64,
    /// Entries of the times that were read, and the file's length then.
    times: (usize, u64),
    /// The length of the evaluations that were read.
    evaluations: u64,
    /// Reason why the rest is unreliable, and the record's length then.
    damage: Option<(String, u64)>,
}

impl Follower {
    /// Opens a run's folder, reading only the head.
    pub fn open(path: &Path) -> Result<Self, RecordError> {
        let (_, head) = Reader::open(path)?;
        let fold = Fold::new(path.display().to_string(), head, &[]);
        Ok(Self { path: path.to_owned(), fold, taken: 0, times: (0, 0), evaluations: 0, damage: None })
    }

    /// Reads the lines written since. If the record got shorter, or was unreliable and has changed, the run
    /// was resumed from a checkpoint: it is then read from the start.
    pub fn poll(&mut self) -> Result<(), RecordError> {
        let path = self.path.join("record.jsonl");
        let length = |path: &Path| std::fs::metadata(path).map_or(0, |m| m.len());
        let found = length(&path);
        let mended = self.damage.as_ref().is_some_and(|(_, then)| *then != found);
        let times = length(&self.path.join("times.jsonl"));
        let evaluations = length(&self.path.join("evaluations.jsonl"));
        if found < self.taken || mended || times < self.times.1 || evaluations < self.evaluations {
            *self = Self::open(&self.path)?;
        }
        if evaluations > self.evaluations {
            for told in Evaluation::read(&self.path).unwrap_or_default() {
                self.fold.evaluation(told);
            }
            self.evaluations = evaluations;
        }
        if self.damage.is_none() && found > self.taken {
            self.lines(&path, found)?;
        }
        // After the record, because a step is written before its time.
        self.clock();
        Ok(())
    }

    fn lines(&mut self, path: &Path, found: u64) -> Result<(), RecordError> {
        let failed = |error| RecordError::File { verb: "read", path: path.to_owned(), error };
        let mut file = File::open(path).map_err(failed)?;
        file.seek(SeekFrom::Start(self.taken)).map_err(failed)?;
        let mut lines = BufReader::new(file);
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            lines.read_until(b'\n', &mut bytes).map_err(failed)?;
            if bytes.last() != Some(&b'\n') {
                return Ok(());
            }
            let head = self.taken == 0;
            self.taken += bytes.len() as u64;
            if head {
                continue;
            }
            let line = serde_json::from_slice::<Line>(&bytes).map_err(|error| error.to_string());
            if let Err(reason) = line.and_then(|line| self.fold.take(line, &mut |_| {})) {
                self.damage = Some((reason, found));
                return Ok(());
            }
        }
    }

    fn clock(&mut self) {
        let length = std::fs::metadata(self.path.join("times.jsonl")).map_or(0, |m| m.len());
        if length == self.times.1 {
            return;
        }
        let times = Times::read(&self.path).unwrap_or_default();
        times.iter().skip(self.times.0).for_each(|time| self.fold.time(time));
        self.times = (times.len(), length);
    }

    /// The history so far.
    pub fn history(&self) -> &History {
        self.fold.history()
    }

    /// Reason why the rest of the record is unreliable, if it is.
    pub fn damage(&self) -> Option<&str> {
        self.damage.as_ref().map(|(reason, _)| reason.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A simulated run's record of three steps.
    const RECORD: &str = include_str!("../../../tests/cases/report/three-steps.jsonl");

    #[test]
    fn a_run_that_is_followed_line_by_line_comes_to_what_a_reader_finds() {
        let folder = std::env::temp_dir().join(format!("allot-follow-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a scratch folder");
        let path = folder.join("record.jsonl");
        let lines: Vec<&str> = RECORD.split_inclusive('\n').collect();
        std::fs::write(&path, lines[0]).expect("a scratch file");
        let mut follower = Follower::open(&folder).expect("a head");
        let whole = |n: usize| lines[..n].concat();
        // Whole lines, half ones, and a record that is cut back to a checkpoint.
        for n in (1..=lines.len()).chain([3, 2, lines.len()]) {
            std::fs::write(&path, whole(n) + "{\"kind\":").expect("a scratch file");
            follower.poll().expect("it is there");
            let steps = lines[..n].iter().filter(|l| l.starts_with("{\"kind\":\"step\"")).count();
            assert_eq!(follower.history().steps.len(), steps, "{n}");
            assert_eq!(follower.damage(), None);
        }
        std::fs::write(&path, RECORD).expect("a scratch file");
        follower.poll().expect("it is there");
        let read = read(&folder, &mut |_| {}).expect("it is there");
        assert_eq!(read.troubles, Vec::<String>::new());
        assert_eq!(read.steps, follower.history().steps);
        assert_eq!(read.fates, follower.history().fates);
        assert_eq!(read.fates.total(), read.end.as_ref().map_or(0, |end| end.spent.run_rollouts));
        std::fs::remove_dir_all(&folder).expect("the scratch folder");
    }

    #[test]
    fn accuracies_beside_the_record_are_scores_of_their_steps() {
        let folder = std::env::temp_dir().join(format!("allot-told-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a scratch folder");
        let bare = RECORD.lines().map(|line| {
            let mut line: serde_json::Value = serde_json::from_str(line).expect("a line");
            line.as_object_mut().expect("an object").remove("accuracy");
            line.to_string() + "\n"
        });
        let bare: Vec<String> = bare.collect();
        let record = |lines: &[String]| std::fs::write(folder.join("record.jsonl"), lines.concat());
        let told = |lines: &str| std::fs::write(folder.join("evaluations.jsonl"), lines);
        let scores = |history: &History| -> Vec<(u32, f64)> {
            history.scores.iter().map(|score| (score.steps, score.accuracy)).collect()
        };
        record(&bare[..1]).expect("a scratch file");
        // Told before its step is there, twice, out of order, of a step that never comes, and half a line.
        let all = "{\"steps\":2,\"accuracy\":0.25}\n{\"steps\":0,\"accuracy\":0.125,\"scores\":[[\"a\",1.0]]}\n\
                   {\"steps\":2,\"accuracy\":0.5}\n{\"steps\":9,\"accuracy\":0.9}\n{\"steps\":3,";
        told(all).expect("a scratch file");
        let mut follower = Follower::open(&folder).expect("a head");
        follower.poll().expect("it is there");
        assert_eq!(scores(follower.history()), [(0, 0.125)]);
        record(&bare).expect("a scratch file");
        follower.poll().expect("it is there");
        let expected = [(0, 0.125), (2, 0.5)];
        assert_eq!(scores(follower.history()), expected);
        let read_again = read(&folder, &mut |_| {}).expect("it is there");
        assert_eq!(read_again.scores, follower.history().scores);
        assert_eq!(read_again.scores[1].costs, read_again.steps[1].costs);
        assert_eq!(read_again.scores[0].parts, [("a".to_owned(), 1.0)]);
        // The record's own accuracies come first.
        record(&RECORD.split_inclusive('\n').map(str::to_owned).collect::<Vec<_>>()).expect("a scratch file");
        let own = scores(&read(&folder, &mut |_| {}).expect("it is there"));
        std::fs::remove_file(folder.join("evaluations.jsonl")).expect("a scratch file");
        let alone = scores(&read(&folder, &mut |_| {}).expect("it is there"));
        assert!(!alone.is_empty() && alone.iter().all(|score| own.contains(score)), "{own:?} {alone:?}");
        told("{\"steps\":1,\"accuracy\":1.5}\n").expect("a scratch file");
        let wrong = read(&folder, &mut |_| {}).expect("it is there").troubles.join("\n");
        assert!(wrong.contains("line 1") && wrong.contains("1.5; it is from 0 to 1"), "{wrong}");
        std::fs::remove_dir_all(&folder).expect("the scratch folder");
    }
}
