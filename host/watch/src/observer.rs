//! Repeated inspection of the disk: finds runs, follows them and makes a scene of them.

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

/// Time between two searches of the folders.
const SEARCH: Duration = Duration::from_secs(2);

/// A run without a new line for this long plus five times its longest step counts as stalled.
const STALLED: Duration = Duration::from_mins(1);

/// The limit during the first step, when the duration of a step is not known.
const NOT_BEGUN: Duration = Duration::from_mins(10);

/// The observed places and the runs in them.
pub struct Observer {
    places: Vec<PathBuf>,
    empty: Vec<Empty>,
    runs: Vec<Watched>,
    searched: Option<Instant>,
}

/// A run that is followed.
struct Watched {
    /// Its folder.
    path: PathBuf,
    /// The place in which it was found.
    place: PathBuf,
    /// Stamps of the record and of the times when they were last read.
    seen: [Option<Stamp>; 2],
    follower: Option<Follower>,
    times: Vec<Time>,
    facts: Option<Facts>,
    /// The state that its record implies; `None` while it is going on.
    state: Option<State>,
}

/// Size and time of a file, by which a change is noticed.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    bytes: u64,
    changed: Option<SystemTime>,
}

impl Observer {
    /// Observes these places: runs, or folders with runs in them.
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

    /// Returns the current scene.
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

    /// Finds new runs and drops those that no longer exist.
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
                // Canonical, because one run may be in two of the places, and `.` has no name.
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

    /// Reads all that was written since the last call.
    fn look(&mut self) {
        let seen = ["record.jsonl", "times.jsonl"].map(|name| stamp(&self.path.join(name)));
        let new = [0, 1].map(|i| seen[i] != self.seen[i]);
        if new == [false; 2] {
            return;
        }
        self.seen = seen;
        if new[1] {
            // Without readable times, only the rates are missing.
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

    /// Follows the record. Returns the state that it implies as an error, unless the run is going on.
    fn read(&mut self) -> std::result::Result<(), State> {
        let mut state = self.poll()?;
        if matches!(state, Some(State::Damaged(_))) {
            // A record that was cut back and then grew past the part already read looks damaged, too.
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

    /// Returns the state of the run.
    fn state(&self, now: SystemTime) -> State {
        match &self.state {
            Some(State::Starting) | None => {}
            Some(state) => return state.clone(),
        }
        let changed = self.seen.iter().flatten().filter_map(|stamp| stamp.changed).max();
        // A time in the future counts as now.
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

/// Returns the canonical path, or the path itself if there is none.
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
