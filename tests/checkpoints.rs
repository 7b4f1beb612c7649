//! What a checkpoint of many buffered rollouts takes in memory, when it is written and when it is read, and what is said of
//! one that is damaged. `ALLOT_CHECKPOINT_ROLLOUTS` sets how many rollouts of 2,000 tokens are buffered: 18,432 are a step
//! of 1,152 groups.

#![allow(clippy::print_stdout, unsafe_code, clippy::unwrap_used, missing_docs)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use allot::checkpoint::{self, Checkpoints, FORMAT, Manifest, RunState};
use allot::summary::Totals;
use allot::tally::StepTally;
use allot::world::Paid;
use allot_allocation::{Ledger, Limits, Order, Outcome, Pool, PromptId, RolloutBuffer, RolloutId, Spent};
use allot_engine::{Answer, Sample, SamplingMask};
use allot_judges::math::Certain;
use allot_judges::{UNSCORABLE, Verdict};
use allot_outputs::rollouts::{Purpose, RolloutRow};
use allot_record::{Mark, StepEnd};

/// The system's allocator, which counts what it has given out.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does all of it; beside it only two numbers are counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(live, Ordering::Relaxed);
        // SAFETY: as this function's caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as this function's caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The tests of this file run one at a time: they count the same bytes.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs a part; returns its result, the bytes that are live after it beyond those before, the peak beyond those before,
/// and seconds.
fn counted<T>(part: impl FnOnce() -> T) -> (T, usize, usize, f64) {
    let (before, began) = (LIVE.load(Ordering::Relaxed), Instant::now());
    PEAK.store(before, Ordering::Relaxed);
    let done = part();
    let seconds = began.elapsed().as_secs_f64();
    let live = LIVE.load(Ordering::Relaxed).saturating_sub(before);
    (done, live, PEAK.load(Ordering::Relaxed) - before, seconds)
}

const TOKENS: u32 = 2000;

/// What a run has in memory of its buffered rollouts.
struct Buffered {
    run: allot_loop::State,
    samples: HashMap<RolloutId, Sample<Answer>>,
    paid: Vec<Paid<Answer>>,
    rows: Vec<RolloutRow>,
}

/// Numbers without a pattern.
fn mixed(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb)
}

fn sample(rollout: u64) -> Sample<Answer> {
    let draws = |i: u32| mixed(rollout << 32 | u64::from(i));
    let mut mask = SamplingMask::default();
    (0..rollout % 3).for_each(|token| mask.push(&[1, 5 + token as u32]));
    Sample {
        prompt: PromptId((rollout / 16) as u32),
        position: (rollout % 16) as u32,
        version: 3,
        answer: Answer {
            tokens: (0..TOKENS).map(|i| (draws(i) % 151_936) as u32).collect(),
            log_probs: (0..TOKENS).map(|i| -((draws(i) >> 40) as f32 / 1e6).powi(3)).collect(),
            mask,
            episode: None,
        },
        tokens: TOKENS,
        truncated: rollout.is_multiple_of(7),
        log_prob: -(mixed(rollout) as f64 / 1e17),
        signals: vec![0.1 + rollout as f32],
        sampling: None,
    }
}

fn row(rollout: u64, sample: &Sample<Answer>) -> RolloutRow {
    RolloutRow {
        step: 3,
        round: Some(0),
        rollout: RolloutId(rollout),
        prompt: sample.prompt,
        problem: format!("{:064x}", sample.prompt.0),
        source: "math".to_owned(),
        purpose: Purpose::Pilot,
        position: sample.position,
        version: sample.version,
        tokens: sample.tokens,
        truncated: sample.truncated,
        log_prob: Some(sample.log_prob),
        reward: Some(0.1),
        rewards: Vec::new(),
        correct: false,
        played: None,
        text: Some("four\n".repeat(TOKENS as usize * 4 / 5)),
        learned: None,
    }
}

impl Buffered {
    fn new(rollouts: u64) -> Self {
        let limits =
            Limits { rounds: 1, step_rollouts: None, run_rollouts: None, run_tokens: None, longest: TOKENS };
        let pool = Pool::new(1, Order::Shuffled, 64, vec![100; 2048]);
        let mut run = allot_loop::State::new(vec![7; 100], pool, RolloutBuffer::new(1), Ledger::new(limits));
        let samples: HashMap<_, _> = (0..rollouts).map(|i| (RolloutId(i), sample(i))).collect();
        let mut ids: Vec<_> = samples.keys().copied().collect();
        ids.sort();
        let signals = |i: &RolloutId| samples[i].signals.clone();
        let outcome =
            |i: &RolloutId| Outcome { signals: signals(i), ..Outcome::of(samples[i].prompt, 0, 0.1, false) };
        run.buffer.add(ids.iter().map(outcome));
        let rows = ids.iter().map(|id| row(id.0, &samples[id])).collect();
        let verdict = Some(Verdict { certain: Some(true), ..Verdict::plain(0.3, true) });
        let paid = vec![Paid { place: 1, sample: sample(rollouts), verdict }];
        Self { run, samples, paid, rows }
    }

    /// Writes a checkpoint of it, as a run does.
    fn write(&self, folder: &Path) -> PathBuf {
        let mut samples: Vec<_> = self.samples.iter().map(|(id, s)| (*id, Cow::Borrowed(s))).collect();
        samples.sort_by_key(|(id, _)| *id);
        let state = RunState {
            run: &self.run,
            optimizer_steps: 1,
            samples,
            paid: Cow::Borrowed(&self.paid),
            evaluation: Spent::default(),
            tally: StepTally::default(),
            waiting: VecDeque::new(),
            totals: Totals::new(0.0),
            record: Mark::default(),
            times: Mark::default(),
            metrics: Mark::default(),
            events: Mark::default(),
            log: Mark::default(),
            shadows: BTreeMap::new(),
            parts: Vec::new(),
            pending: self.rows.iter().map(Cow::Borrowed).collect(),
        };
        let manifest = Manifest {
            format: FORMAT,
            steps: 0,
            config: String::new(),
            policy: String::new(),
            model: String::new(),
            files: BTreeMap::new(),
        };
        Checkpoints::of(folder, 2).write(&state, manifest, |_| Ok(())).unwrap()
    }

    /// Reads one back, as a resumed run does.
    fn read(folder: &Path) -> Self {
        let (newest, broken) = Checkpoints::of(folder, 2).newest().unwrap();
        assert!(broken.is_empty());
        let mut state = checkpoint::state(&newest.unwrap().0).unwrap();
        let rows = state.take_pending();
        let samples = state.samples.into_iter().map(|(id, sample)| (id, sample.into_owned())).collect();
        Self { run: state.run, samples, paid: state.paid.into_owned(), rows }
    }
}

#[test]
fn a_checkpoint_takes_little_memory_beside_the_buffered_rollouts() {
    let _one = ONE_AT_A_TIME.lock();
    let asked = std::env::var("ALLOT_CHECKPOINT_ROLLOUTS").ok();
    let rollouts = asked.map_or(400, |n| n.parse().expect("it is a number of rollouts"));
    let scratch = tempfile::tempdir().unwrap();
    let (buffered, own, ..) = counted(|| Buffered::new(rollouts));
    let (place, _, writing, wrote) = counted(|| buffered.write(scratch.path()));
    let (back, live, peak, read) = counted(|| Buffered::read(scratch.path()));
    let file = std::fs::metadata(place.join("state.json")).unwrap().len();
    let mb = |bytes: usize| bytes as f64 / 1e6;
    println!(
        "{rollouts} rollouts of {TOKENS} tokens are {:.1} MB, and the state {:.1} MB; written with {:.1} MB more in {wrote:.1} s; \
         read as {:.1} MB, with {:.1} MB more, in {read:.1} s",
        mb(own),
        mb(file as usize),
        mb(writing),
        mb(live),
        mb(peak - live)
    );
    // Some 200 bytes for each rollout, which has 24,000, and buffers.
    let room = rollouts as usize * 600 + (1 << 20);
    assert!(writing < room, "written with {writing} bytes more");
    // Lists that were read have a little more room than what is in them.
    assert!(peak < own + own / 20 + room, "read with {peak} bytes, where the run had {own}");

    assert!(back.samples == buffered.samples && back.paid == buffered.paid && back.rows == buffered.rows);
    assert_eq!(serde_json::to_string(&back.run).unwrap(), serde_json::to_string(&buffered.run).unwrap());
}

/// Puts the hash of a file as it is now into the manifest.
fn hash_anew(place: &Path, file: &str) {
    let path = place.join("manifest.json");
    let mut manifest: Manifest = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    manifest.files.insert(file.to_owned(), checkpoint::sha256(&place.join(file)).unwrap());
    std::fs::write(path, serde_json::to_vec(&manifest).unwrap()).unwrap();
}

#[test]
fn a_damaged_or_foreign_checkpoint_is_refused_with_a_reason() {
    let _one = ONE_AT_A_TIME.lock();
    let scratch = tempfile::tempdir().unwrap();
    let place = Buffered::new(2).write(scratch.path());
    let checkpoints = Checkpoints::of(scratch.path(), 2);
    let whole = std::fs::read(place.join("state.json")).unwrap();
    let refused = || {
        let (newest, mut broken) = checkpoints.newest().unwrap();
        assert!(newest.is_none());
        broken.remove(0)
    };
    // Wherever it ends, in an answer or in a number.
    for bytes in [0, 1, whole.len() / 3, whole.len() - 1] {
        std::fs::write(place.join("state.json"), &whole[..bytes]).unwrap();
        assert!(refused().what.ends_with("state.json` does not match its checkpoint's manifest"));
        // Even where the manifest was made to fit.
        hash_anew(&place, "state.json");
        let error = checkpoint::state(&checkpoints.newest().unwrap().0.unwrap().0).unwrap_err();
        assert!(error.what.contains("state.json` is not a valid run state: EOF while parsing"), "{error}");
        assert!(error.hints[0].starts_with("remove this checkpoint"), "{error}");
    }
    let text = String::from_utf8(whole).unwrap().replace("\"log_probs\":[", "\"log_probs\":[\"much\",");
    std::fs::write(place.join("state.json"), text).unwrap();
    let error = checkpoint::state(&place).unwrap_err();
    assert!(error.what.contains("invalid type: string \"much\", expected f32 at line 1 column"), "{error}");

    let path = place.join("manifest.json");
    let manifest = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, manifest.replace(&format!("\"format\":{FORMAT}"), "\"format\":3")).unwrap();
    let error = refused();
    assert!(error.what.ends_with("is a checkpoint of format 3; this program reads format 4"), "{error}");
    assert!(error.hints[0].starts_with("begin a new run from its model"), "{error}");
}

#[test]
fn certain_verdicts_are_counted_across_a_checkpoint() {
    let verdict = |certain| Verdict { certain, ..Verdict::plain(1.0, true) };
    let mut tally = StepTally::default();
    tally.add_certain(Certain::of(&[verdict(Some(true)), verdict(None), UNSCORABLE]));
    let saved = serde_json::to_string(&tally).unwrap();
    let mut tally: StepTally = serde_json::from_str(&saved).unwrap();
    tally.add_certain(Certain::of(&[verdict(Some(false)), verdict(Some(true)), verdict(Some(true))]));
    let numbers = tally.numbers(&StepEnd::default(), 1.0, 0);
    let of = |name: &str| numbers.iter().find(|(n, _)| n == name).map(|(_, v)| *v);
    assert_eq!((of("math_verify/judged"), of("math_verify/certain")), (Some(4.0), Some(0.75)));
    // A verdict that waits for the rest of its round is kept with it.
    let kept = serde_json::to_string(&verdict(Some(false))).unwrap();
    assert_eq!(serde_json::from_str::<Verdict>(&kept).unwrap(), verdict(Some(false)));
}
