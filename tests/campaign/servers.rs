//! Runs with a server: killed, they come to the same; and whatever a server says, a run takes it or refuses it in a sentence, and
//! can be resumed with a server that says what is so.

use std::time::Duration;

use allot_base::Result;

use crate::proxy::Proxy;
use crate::{Chance, Class, Outcome, Place, environment, judge, kills, runs, sampler, trainer};

/// A run of half a second, on this machine.
const CONFIG: &str = include_str!("../cases/remote/short.toml");

/// What a server is for, and the steps that a run is ahead of its updates.
const KINDS: [(&str, u32); 9] = [
    ("tinker", 0),
    ("tinker", 1),
    ("sglang", 0),
    ("vllm", 0),
    ("vllm", 1),
    ("judge", 0),
    ("judge", 1),
    ("environment", 0),
    ("environment", 1),
];

/// A server of a test, of any kind.
enum Server {
    Trainer(trainer::Server),
    Sampler(Box<sampler::Server>),
    Judge(judge::Server),
    Environment(environment::Server),
}

impl Server {
    fn start(kind: &str) -> Self {
        match kind {
            "tinker" => Self::Trainer(trainer::Server::start(trainer::Mean::Sum)),
            "sglang" => Self::Sampler(Box::new(sampler::Server::start(sampler::Kind::Sglang))),
            "vllm" => Self::Sampler(Box::new(sampler::Server::start(sampler::Kind::Vllm))),
            "judge" => Self::Judge(judge::Server::start()),
            _ => Self::Environment(environment::Server::start()),
        }
    }

    fn url(&self) -> &str {
        match self {
            Self::Trainer(server) => &server.url,
            Self::Sampler(server) => &server.url,
            Self::Judge(server) => &server.url,
            // It asks, and nothing stands between.
            Self::Environment(_) => "",
        }
    }

    /// Is started anew, where it has something to lose.
    fn die(&self) {
        match self {
            Self::Trainer(server) => server.die(),
            Self::Sampler(server) => server.die(),
            Self::Judge(_) => {}
            Self::Environment(server) => server.die(),
        }
    }
}

/// A server, what stands before it, and a run with it.
struct Stand {
    name: String,
    kind: &'static str,
    server: Server,
    proxy: Proxy,
    config: String,
    takes: Duration,
}

impl Stand {
    /// One of each kind. `patience` is how many seconds a run waits for the server to come to itself.
    fn all(at: &Place<'_>, patience: u32) -> Result<Vec<Self>> {
        KINDS.into_iter().map(|(kind, lag)| Self::of(at, kind, lag, patience)).collect()
    }

    fn of(at: &Place<'_>, kind: &'static str, lag: u32, patience: u32) -> Result<Self> {
        let (server, proxy) = (Server::start(kind), Proxy::open());
        proxy.stand_before(server.url());
        let url = &proxy.url;
        let environment = |server: &environment::Server| {
            let config = environment::CONFIG.replace("COMMAND", &server.command);
            config.replace("SECONDS", &patience.to_string())
        };
        let seconds = format!("retry_seconds = 0.005\npatience_seconds = {patience}\n");
        let requests = format!("{seconds}request_seconds = 5\n");
        let config = match &server {
            Server::Trainer(_) => {
                let engine = format!(
                    "[engine]\nuse = \"tinker\"\nurl = \"{url}\"\nserver = \"tinker\"\nbase_model = \"{}\"\n\
                     lora_rank = 4\n{requests}\n[model]",
                    trainer::MODEL
                );
                CONFIG.replace("threads = 1\n", "").replace("[model]", &engine)
            }
            Server::Sampler(server) => {
                let weights = server.weights.path().display();
                let section = format!(
                    "[rollout_server]\nuse = \"{kind}\"\nurl = \"{url}\"\nweights = \"{weights}\"\n{requests}\n[model]"
                );
                CONFIG.replace("[model]", &section)
            }
            Server::Judge(_) => {
                let section = format!(
                    "[reward]\ngrader = \"http\"\n[reward.http]\nurl = \"{url}/v1\"\napi = \"chat\"\nmodel = \"{}\"\n\
                     {seconds}",
                    judge::MODEL
                );
                CONFIG.replace("[reward]\ngrader = \"exact\"\n", &section)
            }
            Server::Environment(server) => environment(server),
        };
        let config =
            if lag > 0 { config.replace("seed = 1", &format!("seed = 1\nlag = {lag}")) } else { config };
        let name = format!("{kind}-lag-{lag}");
        let takes = kills::whole(at, &name, "train", &config)?.unwrap_or_default();
        Ok(Self { name, kind, server, proxy, config, takes })
    }
}

impl Stand {
    /// The config of a run with another server of the kind.
    fn config_with(&self, server: &Server) -> String {
        match (server, &self.server) {
            (Server::Sampler(new), Server::Sampler(old)) => {
                let path = |server: &sampler::Server| server.weights.path().display().to_string();
                self.config.replace(&path(old), &path(new))
            }
            (Server::Environment(new), Server::Environment(old)) => {
                self.config.replace(&old.command, &new.command)
            }
            _ => self.config.clone(),
        }
    }

    /// An environment lies itself; for the others, what stands before them does.
    fn lie(&self, server: &Server, lies: Chance, one_in: usize) {
        match server {
            Server::Environment(server) => server.lie(lies, one_in),
            _ => self.proxy.lie(lies, one_in),
        }
    }

    /// It says what is so from now on. How often it did not.
    fn be_honest(&self, server: &Server) -> u64 {
        match server {
            Server::Environment(server) => server.be_honest(),
            _ => self.proxy.be_honest(),
        }
    }
}

/// Runs with a server that are ended at any moment, the server too.
#[derive(Default)]
pub struct Servers(Vec<Stand>);

impl Class for Servers {
    fn name(&self) -> &'static str {
        "servers"
    }

    fn prepare(&mut self, at: &Place<'_>) -> Result<()> {
        self.0 = Stand::all(at, 20)?;
        Ok(())
    }

    fn case(&self, at: &Place<'_>, chance: &mut Chance) -> Result<Outcome> {
        let stand = chance.of_these(&self.0);
        let between = &mut |chance: &mut Chance| {
            if chance.below(3) == 0 {
                stand.server.die();
            }
        };
        let broken = kills::ended_and_resumed(at, chance, &stand.name, "train", stand.takes, between)?;
        Ok(broken.map_or_else(|| Outcome::Kept(stand.name.clone()), Outcome::Broken))
    }
}

/// Runs with a server that does not say what is so.
#[derive(Default)]
pub struct Liars(Vec<Stand>);

impl Class for Liars {
    fn name(&self) -> &'static str {
        "read-servers"
    }

    fn prepare(&mut self, at: &Place<'_>) -> Result<()> {
        self.0 = Stand::all(at, 4)?;
        Ok(())
    }

    fn case(&self, at: &Place<'_>, chance: &mut Chance) -> Result<Outcome> {
        let stand = chance.of_these(&self.0);
        // What it believes of a lie is in no other case.
        let server = Server::start(stand.kind);
        let config = stand.config_with(&server);
        crate::files::write(&at.folder.join("run.toml"), config)?;
        stand.proxy.stand_before(server.url());
        stand.lie(&server, Chance(chance.next()), *chance.of_these(&[3, 10, 40]));
        let ended = runs::run(at.program, &at.folder, &["train", "run.toml", "--out", "out"])?;
        let lied = stand.be_honest(&server);
        let told = format!("{}, {lied} lies: ", stand.name);
        crate::files::write(&at.folder.join("said.txt"), &ended.said)?;
        if let Some(fault) = ended.fault() {
            return Ok(Outcome::Broken(told + &fault));
        }
        if ended.is_silent() {
            return Ok(Outcome::Broken(format!("{told}it failed without an error: {}", ended.said)));
        }
        // A case is an answer that was changed.
        let kept = |kind: &str| {
            let (kind, lies) = if lied == 0 { ("none was changed", 1) } else { (kind, lied) };
            Outcome::Many([(format!("{}: {kind}", stand.kind), lies)].into())
        };
        let mut kind = "taken";
        if ended.code != Some(0) {
            if !kills::has_begun(&at.folder, "train") {
                return Ok(kept("refused before the run began"));
            }
            let early = !at.folder.join("out/checkpoints").exists();
            let resumed = runs::run(at.program, &at.folder, &["train", "--resume", "out"])?;
            if let Some(fault) = resumed.fault() {
                return Ok(Outcome::Broken(format!("{told}resumed, {fault}")));
            }
            if resumed.code != Some(0) && early {
                return Ok(kept("refused before a first checkpoint"));
            }
            // It was lied to about who judges when it began, and holds to what it was told.
            let others = ["grader", "environment"].map(|one| format!("is from a run with another {one}"));
            if others.iter().any(|other| resumed.said.contains(other)) {
                return Ok(kept("refused, as the other side was another at the start"));
            }
            if resumed.code != Some(0) {
                let what = format!("{told}after `{}` it does not go on: {}", ended.said, resumed.said);
                return Ok(Outcome::Broken(what));
            }
            kind = "refused, and it went on";
        }
        // What was taken is at least a record of which every decision can be made again.
        let again = runs::run(at.program, &at.folder, &["replay", "out"])?;
        if again.code != Some(0) {
            return Ok(Outcome::Broken(format!("{told}its record does not replay: {}", again.said)));
        }
        Ok(kept(kind))
    }
}
