//! Ray: a run is a job of the cluster's HTTP job API. A job needs as many CPUs as its run has threads, on
//! any node. Ray fails jobs that wait for a quarter of an hour, so no more runs are submitted than the
//! cluster has CPUs for.

use std::collections::BTreeMap;
use std::time::Duration;

use allot_base::{Error, Result};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cluster::{Queue, Refusal, Standing};
use crate::executor::Setup;
use crate::submission::{Submission, quoted};

/// A Ray cluster.
pub struct Ray {
    agent: ureq::Agent,
    address: String,
    /// Never printed, and never written to a file.
    token: Option<String>,
    at_once: usize,
    threads: usize,
    gpu: bool,
}

/// The default address of Ray's dashboard.
const ADDRESS: &str = "http://127.0.0.1:8265";

/// The time limit of a reply.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Pauses before a request is repeated.
const AGAIN: [Duration; 3] = [Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(5)];

/// Seconds that a run has to finish its step and save. Ray's default is three.
const TO_SAVE: &str = "3600";

/// Environment variables that are passed to a run. No token is among them, because all users can see jobs.
const PASSED: [&str; 5] = ["ALLOT_CACHE", "HF_HOME", "HF_HUB_CACHE", "HF_ENDPOINT", "HF_HUB_OFFLINE"];

/// A job, as the job API describes it.
#[derive(Deserialize)]
struct Job {
    status: String,
    message: Option<String>,
    error_type: Option<String>,
}

struct Answer {
    code: u16,
    text: String,
}

impl Ray {
    /// Returns the cluster at `RAY_ADDRESS`.
    pub fn new(setup: &Setup<'_>) -> Result<Self> {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
        let address = set("RAY_ADDRESS").unwrap_or_else(|| ADDRESS.to_owned());
        if !(address.starts_with("http://") || address.starts_with("https://")) {
            let what = format!("`RAY_ADDRESS` is `{address}`; expected the HTTP address of Ray's dashboard");
            return Err(Error::new(what).hint(format!("set it as in RAY_ADDRESS={ADDRESS}")));
        }
        let config = ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(TIMEOUT));
        let mut ray = Self {
            agent: config.build().into(),
            address: address.trim().trim_end_matches('/').to_owned(),
            token: set("RAY_AUTH_TOKEN").map(|token| token.trim().to_owned()),
            at_once: setup.at_once.unwrap_or(0),
            threads: setup.threads,
            gpu: setup.gpu,
        };
        let version = ray.get("/api/version")?;
        if json_of(&version).is_none_or(|version| version["ray_version"].as_str().is_none()) {
            let what = format!("{} does not respond like Ray's dashboard", ray.address);
            return Err(Error::new(what).hint("check the address in `RAY_ADDRESS`"));
        }
        if ray.at_once == 0 {
            ray.at_once = ray.places()?;
        }
        Ok(ray)
    }

    /// Returns the number of runs that the cluster's CPUs suffice for.
    fn places(&self) -> Result<usize> {
        let nodes = self.get("/api/v0/nodes?detail=1&limit=10000")?;
        let nodes = json_of(&nodes).unwrap_or_default();
        let nodes = nodes["data"]["result"]["result"].as_array().cloned().unwrap_or_default();
        let alive = nodes.iter().filter(|node| node["state"] == "ALIVE");
        let places = alive.filter_map(|node| node["resources_total"]["CPU"].as_f64());
        let places: usize = places.map(|cpus| cpus as usize / self.threads.max(1)).sum();
        if places == 0 {
            let what = format!("the Ray cluster at {} has no node with {} CPUs", self.address, self.threads);
            return Err(Error::new(what).hint("set the number of concurrent runs with --jobs"));
        }
        Ok(places)
    }

    fn get(&self, path: &str) -> Result<Answer> {
        self.ask(path, None)
    }

    /// Sends a request, and repeats it a few times if there is no reply.
    fn ask(&self, path: &str, body: Option<&Value>) -> Result<Answer> {
        let mut waits = AGAIN.iter();
        loop {
            let words = match self.once(path, body) {
                Ok(answer) if matches!(answer.code, 401 | 403) => {
                    let what = format!("Ray at {} refuses this user ({})", self.address, answer.code);
                    return Err(Error::new(what).hint("put the cluster's token into `RAY_AUTH_TOKEN`"));
                }
                Ok(answer) if answer.code < 502 => return Ok(answer),
                Ok(answer) => format!("it returned {}", answer.code),
                Err(error) => error.to_string(),
            };
            let Some(wait) = waits.next() else {
                let what = format!("could not reach Ray at {}: {words}", self.address);
                return Err(
                    Error::new(what).hint("check the address in `RAY_ADDRESS`, and that the cluster is up")
                );
            };
            std::thread::sleep(*wait);
        }
    }

    fn once(&self, path: &str, body: Option<&Value>) -> std::result::Result<Answer, ureq::Error> {
        let url = format!("{}{path}", self.address);
        let bearer = self.token.as_ref().map(|token| format!("Bearer {token}"));
        let mut response = match body {
            None => {
                let request = self.agent.get(url);
                let request = match &bearer {
                    Some(bearer) => request.header("Authorization", bearer),
                    None => request,
                };
                request.call()?
            }
            Some(body) => {
                let request = self.agent.post(url).content_type("application/json");
                let request = match &bearer {
                    Some(bearer) => request.header("Authorization", bearer),
                    None => request,
                };
                request.send(body.to_string())?
            }
        };
        let code = response.status().as_u16();
        Ok(Answer { code, text: response.body_mut().read_to_string()? })
    }

    fn job(&self, submission: &Submission, task: usize) -> Result<Value> {
        let script = quoted(submission.script_path().as_os_str())?;
        let output = quoted(submission.output(task).as_os_str())?;
        let mut environment = serde_json::Map::new();
        environment.insert("RAY_JOB_STOP_WAIT_TIME_S".to_owned(), json!(TO_SAVE));
        for name in PASSED {
            if let Ok(value) = std::env::var(name) {
                environment.insert(name.to_owned(), json!(value));
            }
        }
        let mut job = json!({
            // Output goes into a file, like that of a Slurm task, because Ray keeps it to itself. The
            // script replaces the shell that Ray starts, so that waiting for one is waiting for the other.
            "entrypoint": format!("exec bash {script} {task} > {output} 2>&1"),
            "submission_id": id(submission, task),
            "entrypoint_num_cpus": self.threads,
            "runtime_env": { "env_vars": environment },
        });
        if self.gpu {
            job["entrypoint_num_gpus"] = json!(1);
        }
        Ok(job)
    }

    /// Returns the error of a rejected request, with its last line only: the rest is a Python stack trace.
    fn refused(&self, answer: &Answer) -> Error {
        let mut lines = answer.text.lines().map(str::trim).filter(|line| line.len() > 2);
        let words = lines.next_back().unwrap_or("no reason is given");
        let what = format!("Ray at {} did not accept a job ({}): {words}", self.address, answer.code);
        Error::new(what).hint("see the log of Ray's dashboard")
    }
}

fn id(submission: &Submission, task: usize) -> String {
    format!("{}-{task}", submission.name)
}

fn json_of(answer: &Answer) -> Option<Value> {
    serde_json::from_str(&answer.text).ok().filter(|_| answer.code == 200)
}

impl Queue for Ray {
    const KEY: &'static str = "ray";
    const NAME: &'static str = "Ray";

    fn room(&self, with_it: usize) -> usize {
        self.at_once.saturating_sub(with_it)
    }

    fn submit(&mut self, submission: &Submission) -> std::result::Result<(), Refusal> {
        for task in 0..submission.runs.len() {
            let job = self.job(submission, task).map_err(Refusal::No)?;
            let answer = self.ask("/api/jobs/", Some(&job)).map_err(Refusal::Unknown)?;
            // The reply to the first attempt was lost.
            let twice = answer.text.contains("already exists");
            if answer.code != 200 && !twice {
                let error = self.refused(&answer);
                return Err(if task == 0 { Refusal::No(error) } else { Refusal::Unknown(error) });
            }
        }
        Ok(())
    }

    fn standing(&mut self, submission: &Submission) -> Result<BTreeMap<usize, Standing>> {
        let mut all = BTreeMap::new();
        let tasks = (0..submission.runs.len()).filter(|task| submission.exit(*task) != Some(0));
        for task in tasks {
            let answer = self.get(&format!("/api/jobs/{}", id(submission, task)))?;
            if answer.code == 404 {
                continue;
            }
            let job: Option<Job> = json_of(&answer).and_then(|json| serde_json::from_value(json).ok());
            let Some(job) = job else {
                let what = format!("Ray at {} did not return a job's status ({})", self.address, answer.code);
                return Err(Error::new(what).hint("see the log of Ray's dashboard"));
            };
            all.insert(task, standing(&job));
        }
        Ok(all)
    }

    fn cancel(&mut self, submission: &Submission) -> Result<()> {
        let left = (0..submission.runs.len()).filter(|task| submission.exit(*task).is_none());
        for task in left {
            self.ask(&format!("/api/jobs/{}/stop", id(submission, task)), Some(&json!({})))?;
        }
        Ok(())
    }
}

fn standing(job: &Job) -> Standing {
    let own = job.error_type.as_deref().is_none_or(|kind| kind == "JOB_ENTRYPOINT_COMMAND_ERROR");
    match job.status.as_str() {
        "PENDING" => Standing::Queued(None),
        "RUNNING" => Standing::Running,
        "SUCCEEDED" => Standing::Ended,
        "FAILED" if own => Standing::Ended,
        "STOPPED" => Standing::Cut("its Ray job was stopped".to_owned()),
        _ => {
            let words = job.message.as_deref().and_then(|words| words.lines().next()).unwrap_or_default();
            Standing::Cut(format!("Ray ended it: {words}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_ray_gave_up_is_told_from_one_that_failed() {
        let job = |status: &str, kind: Option<&str>| {
            let message = Some("Job supervisor actor died\nand more".to_owned());
            let error_type = kind.map(str::to_owned);
            standing(&Job { status: status.to_owned(), message, error_type })
        };
        assert_eq!(job("PENDING", None), Standing::Queued(None));
        assert_eq!(job("FAILED", Some("JOB_ENTRYPOINT_COMMAND_ERROR")), Standing::Ended);
        let died = "Ray ended it: Job supervisor actor died".to_owned();
        assert_eq!(job("FAILED", Some("JOB_SUPERVISOR_ACTOR_DIED")), Standing::Cut(died));
    }
}
