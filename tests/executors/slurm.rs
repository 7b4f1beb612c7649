//! A Slurm cluster of one node: Debian's own daemons, on the loopback, in a scratch folder, for as long as
//! the test runs. As root or as anybody else.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::skip::skip;

/// The cluster. Its jobs and daemons end with it.
pub struct Slurm {
    folder: tempfile::TempDir,
    daemons: Vec<Child>,
}

const PROGRAMS: [&str; 8] =
    ["munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol", "sinfo"];

impl Slurm {
    /// Starts it; nothing where Slurm is not installed, which is told.
    pub fn start() -> Option<Self> {
        if let Some(missing) = PROGRAMS.iter().find(|name| found(name).is_none()) {
            let install = "apt-get install slurmctld slurmd slurm-client munge";
            skip("slurm", &format!("there is no `{missing}`; {install}"));
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let at = |name: &str| folder.path().join(name);
        let key: Vec<u8> = (0..64).map(|i| (std::process::id() >> (i % 24)) as u8 ^ i).collect();
        fs::write(at("munge.key"), key).unwrap();
        fs::set_permissions(at("munge.key"), fs::Permissions::from_mode(0o600)).unwrap();
        let host = text(Command::new("hostname").arg("-s"));
        let user = text(Command::new("id").arg("-un"));
        fs::write(at("slurm.conf"), config(folder.path(), &host, &user)).unwrap();
        for name in ["state", "spool"] {
            fs::create_dir(at(name)).unwrap();
        }
        let mut slurm = Self { folder, daemons: Vec::new() };
        let set = |name: &str, file: &str| format!("--{name}={}", slurm.at(file).display());
        let munge = [
            "--foreground".to_owned(),
            set("key-file", "munge.key"),
            set("socket", "munge.socket"),
            set("pid-file", "munged.pid"),
            set("log-file", "munged.log"),
            set("seed-file", "munge.seed"),
            "--num-threads=10".to_owned(),
        ];
        slurm.daemon("munged", &munge);
        slurm.until("munge.socket", |slurm| slurm.at("munge.socket").exists());
        slurm.daemon("slurmctld", &["-D".to_owned(), "-c".to_owned()]);
        slurm.daemon("slurmd", &["-D".to_owned(), "-N".to_owned(), host]);
        slurm.until("an idle node", |slurm| slurm.said("sinfo", &["--noheader", "--format=%T"]) == "idle");
        Some(slurm)
    }

    /// By this a process knows the cluster.
    pub fn settings(&self) -> (&'static str, PathBuf) {
        ("SLURM_CONF", self.at("slurm.conf"))
    }

    /// What one of its commands says.
    pub fn said(&self, program: &str, arguments: &[&str]) -> String {
        let (name, value) = self.settings();
        text(Command::new(found(program).unwrap()).args(arguments).env(name, value))
    }

    /// How many tasks are queued or under way.
    pub fn left(&self) -> usize {
        self.said("squeue", &["--array", "--noheader"]).lines().count()
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn daemon(&mut self, name: &str, arguments: &[String]) {
        let (conf, value) = self.settings();
        let mut command = Command::new(found(name).unwrap());
        let quiet = command.args(arguments).env(conf, value).stdin(Stdio::null()).stdout(Stdio::null());
        self.daemons.push(quiet.stderr(Stdio::null()).spawn().unwrap());
    }

    fn until(&self, what: &str, so: impl Fn(&Self) -> bool) {
        let began = Instant::now();
        while !so(self) {
            if began.elapsed() > Duration::from_secs(30) {
                let log = |name: &str| fs::read_to_string(self.at(name)).unwrap_or_default();
                panic!("no {what}: {}{}{}", log("munged.log"), log("slurmctld.log"), log("slurmd.log"));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        // Its jobs first: they would stay.
        let (name, value) = self.settings();
        let mut command = Command::new(found("scancel").unwrap());
        let _ = command.args(["--signal=KILL", "--full", "--me"]).env(name, &value).output();
        let mut command = Command::new(found("scancel").unwrap());
        let _ = command.arg("--me").env(name, &value).output();
        let began = Instant::now();
        while self.left() > 0 && began.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(100));
        }
        for daemon in self.daemons.iter_mut().rev() {
            let _ = Command::new("kill").arg(daemon.id().to_string()).status();
            let _ = daemon.wait();
        }
    }
}

/// Processes are followed by their parents and tasks bound to nothing, which needs no rights; and jobs begin
/// at once.
fn config(folder: &Path, host: &str, user: &str) -> String {
    let (folder, controller, node) = (folder.display(), port(), port());
    format!(
        "ClusterName=allot\n\
         SlurmctldHost={host}(127.0.0.1)\n\
         SlurmctldPort={controller}\n\
         SlurmdPort={node}\n\
         SlurmUser={user}\n\
         SlurmdUser={user}\n\
         AuthType=auth/munge\n\
         AuthInfo=socket={folder}/munge.socket\n\
         CredType=cred/munge\n\
         StateSaveLocation={folder}/state\n\
         SlurmdSpoolDir={folder}/spool\n\
         SlurmctldPidFile={folder}/slurmctld.pid\n\
         SlurmdPidFile={folder}/slurmd.pid\n\
         SlurmctldLogFile={folder}/slurmctld.log\n\
         SlurmdLogFile={folder}/slurmd.log\n\
         ProctrackType=proctrack/linuxproc\n\
         TaskPlugin=task/none\n\
         SelectType=select/cons_tres\n\
         SelectTypeParameters=CR_Core\n\
         SlurmdParameters=config_overrides\n\
         SchedulerParameters=sched_interval=1,batch_sched_delay=0,sched_min_interval=0\n\
         MpiDefault=none\n\
         SwitchType=switch/none\n\
         ReturnToService=2\n\
         KillWait=5\n\
         MaxArraySize=10\n\
         NodeName={host} NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN\n\
         PartitionName=main Nodes=ALL Default=YES State=UP\n"
    )
}

/// A port that was free a moment ago.
fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Where a program is. Debian's daemons are where only root looks; what users call is on their `PATH`, or Slurm is not there.
fn found(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let daemons = name.ends_with('d').then(|| PathBuf::from("/usr/sbin"));
    let places = std::env::split_paths(&path).chain(daemons);
    places.map(|place| place.join(name)).find(|path| path.exists())
}

fn text(command: &mut Command) -> String {
    let done = command.output().unwrap();
    String::from_utf8_lossy(&done.stdout).trim().to_owned()
}
