//! The servers that sample, one or several. Each takes the next rollout as soon as it is free; what one cannot do another
//! does. A rollout is the same, whichever server sampled it.

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

/// How often in a row a server may lose its weights before it is no longer believed in.
const LOSSES: u32 = 5;
/// How long a server may be away before others do what it was asked, where there are others.
const SOON: Duration = Duration::from_secs(5);

pub(crate) struct Fleet {
    servers: Vec<FleetServer>,
    /// Rollouts that each is asked for at a time.
    rows: usize,
    /// How long all may be away together before the run stops.
    patience: Duration,
}

struct FleetServer {
    sampler: Sampler,
    /// The label of the weights that it was given last.
    given: RefCell<Option<String>>,
    /// Since when it has been away.
    away: Cell<Option<Instant>>,
    /// How often it has lost its weights since a rollout came of it.
    losses: Cell<u32>,
}

/// The weights to sample by: their label, where the servers see them, and after how many updates they are.
#[derive(Clone, Copy)]
pub(crate) struct LabelledWeights<'a> {
    pub(crate) label: &'a str,
    pub(crate) folder: &'a str,
    pub(crate) version: u32,
}

/// What is wanted of all servers together, and what came.
struct FleetWork<'a> {
    weights: LabelledWeights<'a>,
    /// Rollouts that no server is asked for.
    open: RefCell<VecDeque<usize>>,
    came: RefCell<&'a mut [Option<Sample<Answer>>]>,
    /// What is missing.
    left: Cell<usize>,
    whole: RefCell<Whole<'a, Answer>>,
    interrupt: &'a Interrupt,
    /// Something came, or was given back.
    changed: Notify,
}

impl Fleet {
    /// The servers of a config. `notice` is told when one is away.
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

    /// The weights that any of them was given are no longer those that are wanted.
    pub(crate) fn forget(&mut self) {
        self.servers.iter_mut().for_each(|server| *server.given.get_mut() = None);
    }

    /// Samples the rollouts that are missing of `came`: `one` asks a server for the rollout with a number. An interrupt
    /// leaves those that came until then. `loaded` is called when a server has the weights.
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

    /// Lets one server work until nothing is left.
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
                    // What others do meanwhile may be all that was left.
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

    /// Rollouts that a server is asked for at a time while so many are missing: no more than its part, so that the last
    /// ones are not left to one while others have nothing to do. One that was away is tried with a single one.
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

    /// A server is away, and the run goes on while another one is there, or was there shortly before.
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
    /// Gives it the weights, unless it has them; whether it did not.
    async fn give(&self, weights: LabelledWeights<'_>) -> Result<bool, Failure> {
        if self.given.borrow().as_deref() == Some(weights.label) {
            return Ok(false);
        }
        self.sampler.load(weights.folder, weights.label).await?;
        *self.given.borrow_mut() = Some(weights.label.to_owned());
        Ok(true)
    }

    /// Asks for rollouts that no server is asked for, some at a time, and takes each as it comes. Those that did not come
    /// are open again.
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
                // Another server may have given something back.
                () = work.changed.notified(), if room => {}
            }
        }
    }

    /// It has other weights: it gets those that are wanted once more.
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

    /// What is left of a failure when nothing can be done about it.
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
    /// Whether nothing more is asked for.
    fn is_over(&self) -> bool {
        self.left.get() == 0 || self.interrupt.is_asked()
    }
}

/// What a server was asked for and has not given. Whatever ends that, the others may be asked for it.
struct Asked<'w, 'a> {
    work: &'w FleetWork<'a>,
    numbers: BTreeSet<usize>,
}

impl Asked<'_, '_> {
    fn take(&mut self) -> Option<usize> {
        // What is under way may come, and nothing more is asked for.
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
