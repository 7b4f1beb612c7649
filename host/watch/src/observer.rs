//! What is on the disk, looked at again and again: runs are found, followed, and made a scene of.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use allot_base::{Error, Result, find};
use allot_record::{RecordError, Time, Times};
use allot_report::follow::Follower;

use super::pace;
use super::scene::{Empty, Facts, RunRow, Scene, State, plain};

/// How long folders are not searched again.
const SEARCH: Duration = Duration::from_secs(2);

/// After that long without a line, and five times the longest step so far, a run counts as stalled.
const STALLED: Duration = Duration::from_mins(1);

/// The same during the first step, when the time of a step is not known.
const NOT_BEGUN: Duration = Duration::from_mins(10);

/// The places and what is in them.
pub struct Observer {
    places: Vec<PathBuf>,
    empty: Vec<Empty>,
    runs: Vec<Watched>,
    searched: Option<Instant>,
}

/// A run that is followed.
struct Watched {
    /// The folder.
    path: PathBuf,
    /// The place it was found in.
    place: PathBuf,
    /// The record and the times, as they were when they were read.
    seen: [Option<Stamp>; 2],
    follower: Option<Follower>,
    times: Vec<Time>,
    facts: Option<Facts>,
    /// What its record says of its state; none where it goes on.
    state: Option<State>,
}

/// By what a file is known to have changed.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    bytes: u64,
    changed: Option<SystemTime>,
}

impl Observer {
    /// For these places: runs, or folders with runs in them.
    pub fn at(places: &[PathBuf]) -> Result<Self> {
        let folder = |place: &PathBuf| {
            let record = place.file_name().is_some_and(|name| name == "record.jsonl");
            match place.parent() {
                Some(parent) if record && place.is_file() => Ok(Path::new(".").join(parent)),
                _ if place.is_file() => {
                    let words = format!("`{}` is a file, and no record's", place.display());
                    Err(Error::new(words).hint("give the run's folder"))
                }
                _ => Ok(place.clone()),
            }
        };
        let places = places.iter().map(folder).collect::<Result<_>>()?;
        Ok(Self { places, empty: Vec::new(), runs: Vec::new(), searched: None })
    }

    /// What there is to see now.
    pub fn scene(&mut self) -> Scene {
        if self.searched.is_none_or(|then| then.elapsed() >= SEARCH) {
            self.search();
            self.searched = Some(Instant::now());
        }
        self.runs.iter_mut().for_each(Watched::look);
        let paths: Vec<(&Path, &Path)> = self.runs.iter().map(|run| (&*run.place, &*run.path)).collect();
        let now = SystemTime::now();
        let row = |(run, name): (&Watched, String)| RunRow {
            path: run.path.clone(),
            name: plain(&name),
            arm: None,
            state: run.state(now),
            facts: run.facts.clone(),
        };
        let rows = self.runs.iter().zip(find::names(&paths)).map(row).collect();
        Scene::of(rows, self.empty.clone())
    }

    /// Finds runs that are new, and lets go of those that are no more.
    fn search(&mut self) {
        let mut known = std::mem::take(&mut self.runs);
        let mut paths = BTreeSet::new();
        self.empty.clear();
        for place in &self.places {
            let found = find::runs(place);
            if found.is_empty() {
                let text = plain(&place.display().to_string());
                self.empty.push(Empty { place: text, there: place.is_dir() });
            }
            let place = whole(place.clone());
            for path in found {
                // One run may be in two of the places; and `.` has no name.
                let path = whole(path);
                if paths.insert(path.clone()) {
                    let old = known.iter().position(|run| run.path == path);
                    let run = old.map(|i| known.swap_remove(i));
                    self.runs.push(run.unwrap_or_else(|| Watched::new(path, place.clone())));
                }
            }
        }
    }
}

impl Watched {
    fn new(path: PathBuf, place: PathBuf) -> Self {
        Self { path, place, seen: [None; 2], follower: None, times: Vec::new(), facts: None, state: None }
    }

    /// Reads what was written since.
    fn look(&mut self) {
        let seen = ["record.jsonl", "times.jsonl"].map(|name| stamp(&self.path.join(name)));
        let new = [0, 1].map(|i| seen[i] != self.seen[i]);
        if new == [false; 2] {
            return;
        }
        self.seen = seen;
        if new[1] {
            // A time that can't be read costs no more than the rates.
            self.times = Times::read(&self.path).unwrap_or_default();
        }
        if new[0] {
            self.state = self.read().err();
        }
        if let Some(follower) = &self.follower {
            let history = follower.history();
            self.facts = Some(Facts::of(history, pace::of(history, &self.times)));
        }
    }

    /// Follows the record; what is not in order is told.
    fn read(&mut self) -> std::result::Result<(), State> {
        let mut state = self.poll()?;
        if matches!(state, Some(State::Damaged(_))) {
            // A record that was cut back and then outgrew what was read of it looks the same.
            self.follower = None;
            state = self.poll()?;
        }
        state.map_or(Ok(()), Err)
    }

    fn poll(&mut self) -> std::result::Result<Option<State>, State> {
        let failed = |error: RecordError| match error {
            RecordError::Empty(_) => State::Starting,
            error => State::Unreadable(plain(&Error::from(error).what)),
        };
        let follower = match &mut self.follower {
            Some(follower) => follower,
            none => none.insert(Follower::open(&self.path).map_err(failed)?),
        };
        follower.poll().map_err(failed)?;
        if let Some(damage) = follower.damage() {
            return Ok(Some(State::Damaged(plain(damage))));
        }
        let end = follower.history().end.as_ref();
        Ok(end.map(|end| {
            let reason = end.reason.clone();
            if end.normal { State::Finished(reason) } else { State::Stopped(reason) }
        }))
    }

    /// How it is going.
    fn state(&self, now: SystemTime) -> State {
        match &self.state {
            Some(State::Starting) | None => {}
            Some(state) => return state.clone(),
        }
        let changed = self.seen.iter().flatten().filter_map(|stamp| stamp.changed).max();
        // A file from the future is new.
        let since = changed.and_then(|then| now.duration_since(then).ok()).unwrap_or_default();
        let begun = self.facts.as_ref().filter(|facts| facts.steps.0 > 0);
        let patience = begun.map_or(NOT_BEGUN, |facts| {
            let longest = facts.pace.longest.unwrap_or(0.0);
            STALLED.saturating_add(Duration::try_from_secs_f64(5.0 * longest).unwrap_or(Duration::MAX))
        });
        if since > patience {
            let cut = is_cut(&self.path.join("record.jsonl"));
            return State::Stalled { since, cut };
        }
        self.state.clone().unwrap_or(State::Running)
    }
}

/// A path that is told in one way alone.
fn whole(path: PathBuf) -> PathBuf {
    path.canonicalize().unwrap_or(path)
}

fn stamp(path: &Path) -> Option<Stamp> {
    let about = std::fs::metadata(path).ok()?;
    Some(Stamp { bytes: about.len(), changed: about.modified().ok() })
}

/// Whether a file ends in the middle of a line.
fn is_cut(path: &Path) -> bool {
    let last = || {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::End(-1))?;
        let mut byte = [b'\n'];
        file.read_exact(&mut byte)?;
        std::io::Result::Ok(byte[0])
    };
    last().is_ok_and(|byte| byte != b'\n')
}
