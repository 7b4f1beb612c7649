//! The sampling servers. Each takes the next rollout as soon as it is free, and takes over the rollouts of
//! servers that fail. A rollout is the same, whichever server samples it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use allot_engine::{Answer, EngineError, Interrupt, Sample, Sampled, Whole};
use allot_settings::rollouts::RolloutsConfig;
use futures_util::StreamExt as _;
use futures_util::future::try_join_all;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Notify;

use super::sampler::{Missed, Sampler};
use crate::address::Address;
use crate::client::{Client, Failure, told};

/// How many times in a row a server may lose its weights before the run ends.
const LOSSES: u32 = 5;
/// How long a server may be unavailable before other servers take over its rollouts.
const SOON: Duration = Duration::from_secs(5);

pub(crate) struct Fleet {
    servers: Vec<FleetServer>,
    /// Number of concurrent rollouts of each server.
    rows: usize,
    /// How long all servers may be unavailable before the run stops.
    patience: Duration,
}

struct FleetServer {
    sampler: Sampler,
    /// The label of the weights that it was given last.
    given: RefCell<Option<String>>,
    /// When it became unavailable, if it is.
    away: Cell<Option<Instant>>,
    /// How many times it has lost its weights since its last rollout.
    losses: Cell<u32>,
}

/// The weights to sample with: their label, the servers' path to them, and their number of updates.
#[derive(Clone, Copy)]
pub(crate) struct LabelledWeights<'a> {
    pub(crate) label: &'a str,
    pub(crate) folder: &'a str,
    pub(crate) version: u32,
}

/// The rollouts that all servers work on, and those that have arrived.
struct FleetWork<'a> {
    weights: LabelledWeights<'a>,
    /// Rollouts that are not assigned to a server.
    open: RefCell<VecDeque<usize>>,
    came: RefCell<&'a mut [Option<Sample<Answer>>]>,
    /// Number of missing rollouts.
    left: Cell<usize>,
    whole: RefCell<Whole<'a, Answer>>,
    interrupt: &'a Interrupt,
    /// Notified when a rollout has arrived or was returned unfinished.
    changed: Notify,
}

impl Fleet {
    /// Returns the servers of a config. `notice` is called when one becomes unavailable.
    pub(crate) fn open(config: &RolloutsConfig, rows: usize, notice: fn(&str)) -> Result<Self, EngineError> {
        let several = config.url.all().len() > 1;
        let one = |url: &String| {
            let mut address = Address::sampler(config, url);
            if several {
                address.patience = address.patience.min(SOON);
            }
            Ok(FleetServer {
                sampler: Sampler::new(Client::open(address, notice)?, config),
                given: RefCell::default(),
                away: Cell::default(),
                losses: Cell::default(),
            })
        };
        let servers: Result<Vec<FleetServer>, EngineError> = config.url.all().iter().map(one).collect();
        let patience = Duration::from_secs_f64(config.patience_seconds);
        Ok(Self { servers: servers?, rows, patience })
    }

    /// Forgets which weights the servers have, so that they are loaded again.
    pub(crate) fn forget(&mut self) {
        self.servers.iter_mut().for_each(|server| *server.given.get_mut() = None);
    }

    /// Samples the rollouts that are missing in `came`; after an interrupt, some stay missing. `one`
    /// requests the rollout with an index from a server. `loaded` is called when a server has the weights.
    pub(crate) async fn sample<'a, F>(
        &'a self,
        weights: LabelledWeights<'a>,
        came: &'a mut Sampled<Answer>,
        whole: Whole<'a, Answer>,
        interrupt: &'a Interrupt,
        one: impl Fn(&'a Sampler, usize) -> F,
        loaded: impl Fn(),
    ) -> Result<(), EngineError>
    where
        F: Future<Output = Result<Sample<Answer>, Missed>>,
    {
        let open: VecDeque<usize> = (0..came.len()).filter(|i| came[*i].is_none()).collect();
        let work = FleetWork {
            weights,
            left: Cell::new(open.len()),
            open: RefCell::new(open),
            came: RefCell::new(came),
            whole: RefCell::new(whole),
            interrupt,
            changed: Notify::new(),
        };
        let all = self.servers.iter().map(|server| self.work(server, &work, &one, &loaded));
        try_join_all(all).await.map(|_| ())
    }

    /// Lets one server work until no rollout is left.
    async fn work<'a, F>(
        &'a self,
        server: &'a FleetServer,
        work: &FleetWork<'a>,
        one: &impl Fn(&'a Sampler, usize) -> F,
        loaded: &impl Fn(),
    ) -> Result<(), EngineError>
    where
        F: Future<Output = Result<Sample<Answer>, Missed>>,
    {
        let mut pauses = server.sampler.client.pauses();
        while !work.is_over() {
            let missed = match server.give(work.weights).await {
                Ok(new) => {
                    new.then(loaded);
                    server.turn(self, work, one).await.err()
                }
                Err(failure) => Some(Missed::Failure(failure)),
            };
            match missed {
                None => {}
                Some(Missed::Weights(other)) => server.lost(&other, work.weights.version)?,
                Some(Missed::Failure(Failure::Away(error))) if self.others(server) => {
                    self.leaves(server, error)?;
                    let pause = tokio::time::sleep(pauses.next().unwrap_or(SOON));
                    let mut pause = std::pin::pin!(pause);
                    // The other servers may finish all that is left meanwhile.
                    while !work.is_over() {
                        tokio::select! {
                            () = &mut pause => break,
                            () = work.changed.notified() => {}
                        }
                    }
                }
                Some(Missed::Failure(failure)) => return Err(server.plain(failure)),
            }
        }
        Ok(())
    }

    /// Returns how many rollouts a server gets at a time while `left` are missing: at most its share, so
    /// that no server is idle at the end. A server that was unavailable gets a single rollout as a trial.
    fn share(&self, server: &FleetServer, left: usize) -> usize {
        if server.away.get().is_some() {
            return 1;
        }
        let here = self.servers.iter().filter(|server| server.away.get().is_none()).count();
        left.div_ceil(here.max(1)).clamp(1, self.rows)
    }

    fn others(&self, server: &FleetServer) -> bool {
        self.servers.iter().any(|other| !std::ptr::eq(other, server))
    }

    /// Marks a server as unavailable. Fails unless another server is available, or was shortly before.
    fn leaves(&self, server: &FleetServer, error: EngineError) -> Result<(), EngineError> {
        if server.away.get().is_none() {
            server.away.set(Some(Instant::now()));
            let url = &server.sampler.client.to().url;
            server.sampler.client.notice(&format!("the other servers take over from the one at {url}"));
        }
        let since = |server: &FleetServer| server.away.get().is_some_and(|at| at.elapsed() >= self.patience);
        if self.servers.iter().all(since) { Err(error) } else { Ok(()) }
    }
}

impl FleetServer {
    /// Gives the server the weights unless it has them. Returns whether it loaded them.
    async fn give(&self, weights: LabelledWeights<'_>) -> Result<bool, Failure> {
        if self.given.borrow().as_deref() == Some(weights.label) {
            return Ok(false);
        }
        self.sampler.load(weights.folder, weights.label).await?;
        *self.given.borrow_mut() = Some(weights.label.to_owned());
        Ok(true)
    }

    /// Requests unassigned rollouts, several at a time, and stores each as it arrives. Those that do not
    /// arrive become unassigned again.
    async fn turn<'a, F>(
        &'a self,
        fleet: &Fleet,
        work: &FleetWork<'a>,
        one: &impl Fn(&'a Sampler, usize) -> F,
    ) -> Result<(), Missed>
    where
        F: Future<Output = Result<Sample<Answer>, Missed>>,
    {
        let mut asked = Asked { work, numbers: BTreeSet::new() };
        let mut stream = FuturesUnordered::new();
        loop {
            let rows = fleet.share(self, work.left.get());
            while stream.len() < rows
                && let Some(i) = asked.take()
            {
                let rollout = one(&self.sampler, i);
                stream.push(async move { rollout.await.map(|sample| (i, sample)) });
            }
            if stream.is_empty() && work.is_over() {
                return Ok(());
            }
            let room = stream.len() < rows;
            tokio::select! {
                biased;
                Some(done) = stream.next() => {
                    let (i, sample) = done?;
                    self.losses.set(0);
                    self.away.set(None);
                    asked.came(i, sample);
                }
                // Another server may have returned an unfinished rollout.
                () = work.changed.notified(), if room => {}
            }
        }
    }

    /// Handles a server with other weights: it will get the current ones again.
    fn lost(&self, other: &str, version: u32) -> Result<(), EngineError> {
        let url = &self.sampler.client.to().url;
        self.losses.set(self.losses.get() + 1);
        if self.losses.get() > LOSSES {
            let losses = self.losses.get();
            let what =
                format!("the server at {url} lost the weights {losses} times in a row: it has `{other}`");
            return Err(told(what, "check its memory, and that only one server is behind the address"));
        }
        let what = format!("the server at {url} has the weights `{other}`, as if it had restarted");
        self.sampler.client.notice(&format!("{what}; sending those after {version} updates again"));
        *self.given.borrow_mut() = None;
        Ok(())
    }

    /// Returns the error of a failure that can't be recovered from.
    fn plain(&self, failure: Failure) -> EngineError {
        let client = &self.sampler.client;
        match failure {
            Failure::Stop(error) | Failure::Away(error) => error,
            Failure::Refused { verb, status, detail } => client.refused(&verb, status, &detail),
            Failure::Lost(detail) => client.refused("a request", 404, &detail),
        }
    }
}

impl FleetWork<'_> {
    /// Returns whether nothing more is requested.
    fn is_over(&self) -> bool {
        self.left.get() == 0 || self.interrupt.is_asked()
    }
}

/// A server's assigned, unfinished rollouts. When this is dropped, other servers may take them.
struct Asked<'w, 'a> {
    work: &'w FleetWork<'a>,
    numbers: BTreeSet<usize>,
}

impl Asked<'_, '_> {
    fn take(&mut self) -> Option<usize> {
        // After an interrupt nothing more is requested, but requests in progress may finish.
        let open = || self.work.open.borrow_mut().pop_front();
        let i = (!self.work.interrupt.is_asked()).then(open).flatten()?;
        self.numbers.insert(i);
        Some(i)
    }

    fn came(&mut self, i: usize, sample: Sample<Answer>) {
        self.numbers.remove(&i);
        let work = self.work;
        (work.whole.borrow_mut())(i, work.came.borrow_mut()[i].insert(sample));
        work.left.set(work.left.get() - 1);
        work.changed.notify_waiters();
    }
}

impl Drop for Asked<'_, '_> {
    fn drop(&mut self) {
        if !self.numbers.is_empty() {
            let mut open = self.work.open.borrow_mut();
            self.numbers.iter().rev().for_each(|i| open.push_front(*i));
            self.work.changed.notify_waiters();
        }
    }
}
