//! A server that speaks as the job API of Ray 2.60 does, recorded from a real one: what it answers, with
//! which codes. Jobs are processes. It can lose answers, be away, and ask for a token.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

/// The server.
pub struct Ray {
    pub address: String,
    pub inside: Arc<Mutex<Inside>>,
}

/// What it holds.
#[derive(Default)]
pub struct Inside {
    jobs: BTreeMap<String, Job>,
    /// The largest number of CPUs that were ever asked for at once.
    pub most: u64,
    /// How often somebody asked anything.
    pub asked: usize,
    /// How many answers to a submission are still to be lost.
    pub lose: usize,
    /// Whether it is away: it closes each connection.
    pub away: bool,
    /// Who may ask.
    pub token: Option<String>,
    /// The kind of the next job's end that is not its own.
    pub kill_next: Option<&'static str>,
}

struct Job {
    child: Child,
    entrypoint: String,
    cpus: u64,
    stopped: bool,
    /// Ray ended it, for this reason.
    died: Option<&'static str>,
    code: Option<i32>,
}

impl Ray {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let inside = Arc::new(Mutex::new(Inside::default()));
        let shared = inside.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let inside = shared.clone();
                std::thread::spawn(move || while answer(&stream, &inside).is_some() {});
            }
        });
        Self { address, inside }
    }

    pub fn with<T>(&self, change: impl FnOnce(&mut Inside) -> T) -> T {
        change(&mut self.inside.lock().unwrap())
    }

    /// The jobs that it ever had.
    pub fn jobs(&self) -> Vec<String> {
        self.with(|inside| inside.jobs.keys().cloned().collect())
    }

    /// How many are under way.
    pub fn left(&self) -> usize {
        self.with(|inside| inside.jobs.values_mut().map(Job::status).filter(|s| *s == "RUNNING").count())
    }
}

impl Drop for Ray {
    fn drop(&mut self) {
        self.with(|inside| inside.jobs.values_mut().for_each(|job| job.signal("KILL")));
    }
}

impl Job {
    fn status(&mut self) -> &'static str {
        if let Some(status) = self.child.try_wait().unwrap() {
            self.code = status.code();
        } else {
            return "RUNNING";
        }
        match self.code {
            _ if self.died.is_some() => "FAILED",
            _ if self.stopped => "STOPPED",
            Some(0) => "SUCCEEDED",
            _ => "FAILED",
        }
    }

    fn signal(&mut self, name: &str) {
        if self.child.try_wait().unwrap().is_none() {
            let group = format!("-{}", self.child.id());
            let _ = Command::new("kill").args([&format!("-{name}"), "--", &group]).status();
        }
    }

    fn told(&mut self, id: &str) -> Value {
        let status = self.status();
        let (kind, message) = match (status, self.died) {
            ("FAILED", Some(why)) => (json!("JOB_SUPERVISOR_ACTOR_DIED"), why.to_owned()),
            ("FAILED", None) => {
                let words = format!("Job entrypoint command failed with exit code {:?}, last…", self.code);
                (json!("JOB_ENTRYPOINT_COMMAND_ERROR"), words)
            }
            ("STOPPED", _) => (Value::Null, "Job was intentionally stopped.".to_owned()),
            _ => (Value::Null, "Job is currently running.".to_owned()),
        };
        json!({
            "type": "SUBMISSION", "job_id": null, "submission_id": id, "driver_info": null,
            "status": status, "entrypoint": self.entrypoint, "message": message, "error_type": kind,
            "start_time": 1_795_313_222_687_u64, "end_time": null, "metadata": null,
            "driver_agent_http_address": "http://127.0.0.1:52365", "driver_node_id": "72a4",
            "driver_exit_code": if status == "STOPPED" { None } else { self.code },
        })
    }
}

/// Reads a request and answers it; nothing where the other side hung up, or this one does.
fn answer(mut stream: &TcpStream, inside: &Mutex<Inside>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|n| *n > 0)?;
    let mut words = line.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let (mut length, mut bearer) = (0, None);
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim().split_once(": ") else { break };
        match name.to_lowercase().as_str() {
            "content-length" => length = value.parse().ok()?,
            "authorization" => bearer = Some(value.to_owned()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let (code, text) = {
        let mut inside = inside.lock().unwrap();
        inside.asked += 1;
        if inside.away {
            return None;
        }
        let wanted = inside.token.as_ref().map(|token| format!("Bearer {token}"));
        if wanted.is_some() && wanted != bearer {
            (401, "Unauthorized: Missing authentication token".to_owned())
        } else {
            let reply = inside.reply(&method, &path, &serde_json::from_slice(&body).unwrap_or_default());
            if method == "POST" && path == "/api/jobs/" && inside.lose > 0 {
                inside.lose -= 1;
                return None;
            }
            reply
        }
    };
    write!(stream, "HTTP/1.1 {code} X\r\nContent-Length: {}\r\n\r\n{text}", text.len()).ok()
}

impl Inside {
    fn reply(&mut self, method: &str, path: &str, body: &Value) -> (u16, String) {
        match (method, path.split('?').next().unwrap_or_default()) {
            ("GET", "/api/version") => {
                let version = json!({ "version": "4", "ray_version": "2.60.0", "ray_commit": "b7f4259e",
                    "session_name": "session_2026-11-22" });
                (200, version.to_string())
            }
            ("GET", "/api/v0/nodes") => {
                let node = |state: &str, cpus: f64| {
                    json!({ "node_id": "72a4", "is_head_node": true, "state": state,
                        "resources_total": { "CPU": cpus, "memory": 16_609_549_108.0 } })
                };
                let nodes = json!([node("ALIVE", 2.0), node("DEAD", 64.0), node("ALIVE", 1.0)]);
                let data = json!({ "result": { "total": 3, "result": nodes } });
                (200, json!({ "result": true, "msg": "", "data": data }).to_string())
            }
            ("POST", "/api/jobs/") => self.submit(body),
            (_, rest) => {
                let name = rest.trim_start_matches("/api/jobs/").trim_end_matches("/stop");
                let Some(job) = self.jobs.get_mut(name) else {
                    return (404, format!("Job {name} does not exist"));
                };
                if method == "POST" {
                    job.stopped = job.status() == "RUNNING";
                    job.signal("TERM");
                    return (200, json!({ "stopped": true }).to_string());
                }
                (200, job.told(name).to_string())
            }
        }
    }

    fn submit(&mut self, body: &Value) -> (u16, String) {
        let id = body["submission_id"].as_str().unwrap().to_owned();
        if self.jobs.contains_key(&id) {
            let stack = "Traceback (most recent call last):\n  File \"job_head.py\", line 148\n";
            let words =
                format!("ValueError: Job with submission_id {id} already exists. Please use another.");
            return (500, format!("{stack}RuntimeError: Request failed with status code 400: {words}\n.\n"));
        }
        let entrypoint = body["entrypoint"].as_str().unwrap().to_owned();
        let mut command = Command::new("sh");
        command.args(["-c", &entrypoint]).process_group(0);
        let environment = body["runtime_env"]["env_vars"].as_object().unwrap();
        assert!(environment["RAY_JOB_STOP_WAIT_TIME_S"].as_str().unwrap().parse::<u32>().unwrap() > 60);
        command.envs(environment.iter().map(|(name, value)| (name, value.as_str().unwrap())));
        let quiet = command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null());
        let child = quiet.stderr(Stdio::null()).spawn().unwrap();
        let cpus = body["entrypoint_num_cpus"].as_u64().unwrap();
        let died = self.kill_next.take();
        let mut job = Job { child, entrypoint, cpus, stopped: false, died, code: None };
        if died.is_some() {
            job.signal("KILL");
        }
        self.jobs.insert(id.clone(), job);
        let busy = self.jobs.values_mut().filter_map(|job| (job.status() == "RUNNING").then_some(job.cpus));
        self.most = self.most.max(busy.sum());
        (200, json!({ "job_id": id, "submission_id": id }).to_string())
    }
}
