//! The first line of a run's record: the parts of the run that determine its results.

use allot_config::train::AlsoConfig;
use allot_config::{BudgetConfig, RunConfig};
use allot_engine::Engine;
use allot_judges::identity::GraderPreflight;
use allot_loop::Scores;
use allot_record::{FORMAT, Head, hex};
use allot_remote::RemoteConfig;
use allot_remote::rollouts::RolloutsConfig;
use allot_sandbox::Caps;
use allot_settings::{ComponentConfig, EnvironmentSettings, HttpConfig, PythonConfig, RewardConfig};
use serde_json::{Value, json};

use crate::outside::Outside;
use crate::prepared::Prepared;
use crate::shadow::Decider;
use crate::shipped;
use crate::training::Trained;
use crate::world::World;

/// Returns the head of any new run, without its first accuracy.
pub fn head<E: Engine, R>(
    world: &World<E, R, Decider<'_>>,
    run: &RunConfig,
    budget: &BudgetConfig,
    caps: Caps,
) -> Head {
    let (policy, of) = (world.policy.live, &world.run.of);
    Head {
        format: FORMAT,
        name: run.name.clone(),
        allot: env!("CARGO_PKG_VERSION").to_owned(),
        policy: shipped::policy_stamp(policy),
        engine: world.engine.capabilities().name,
        signals: policy.description().signals.clone(),
        seed: of.seed,
        order: run.order,
        run: of.run.clone(),
        retries: of.retries,
        limits: world.run.state.ledger.limits(),
        ceilings: budget.ceilings(),
        caps: shipped::stamp(caps),
        state: hex(&world.run.state.policy),
        accuracy: None,
        scores: Vec::new(),
        advantage: Some(of.scale),
        lengths: None,
        world: None,
        training: None,
    }
}

impl Prepared<'_> {
    /// Returns the head of a training run.
    pub fn head(&self, world: &Trained<'_>, fingerprint: &str, scores: &Scores) -> Head {
        let config = &self.config;
        let caps = config.policy.limits.caps();
        Head {
            accuracy: Some(scores.accuracy),
            scores: scores.parts.clone(),
            training: Some(self.stamp(fingerprint)),
            ..head(world, &config.run, &config.budget, caps)
        }
    }

    /// Returns everything besides the policy that determines a training run's results.
    fn stamp(&self, fingerprint: &str) -> Value {
        let (config, train) = (&self.config, self.problems.train);
        let mut training = json!({
            "weights": fingerprint,
            "parameters": self.shape.parameters(),
            "trained": self.memory.trained,
            "device": config.model.device,
            "dtype": config.model.dtype,
            "threads": self.setup.threads,
            "lora": config.model.lora,
            "sampling": config.sampling,
            "update": config.update,
            "optimizer": config.optimizer,
            "reward": self.reward(),
            "problems": { "train": train, "sha256": self.problems.hash(0..train) },
            "held_out": self.held_out(),
        });
        if let Some(date) = self.tokens.date() {
            training["date"] = json!(date);
        }
        if let Some(environment) = &config.environment {
            training["environment"] = played(environment, self.outside.as_ref());
        }
        if let Some(server) = config.engine.server() {
            elsewhere(&mut training, server);
        }
        if let Some(rollouts) = &config.rollout_server {
            training["rollouts"] = sampled_by(rollouts);
        }
        training
    }

    fn held_out(&self) -> Value {
        let (config, train) = (&self.config, self.problems.train);
        let evaluation = &config.evaluation;
        let mut held_out = json!({
            "problems": self.problems.all.len() - train,
            "sha256": self.problems.hash(train..self.problems.all.len()),
            "rollouts": evaluation.rollouts,
            "unjudged": evaluation.unjudged,
            "sampling": config.evaluation_sampling(),
        });
        if !evaluation.also.is_empty() {
            let also = |setting: &AlsoConfig| {
                let rollouts = setting.rollouts.unwrap_or(evaluation.rollouts);
                json!({ "name": setting.name, "rollouts": rollouts, "sampling": config.sampling_as(setting.sampling) })
            };
            held_out["also"] = evaluation.also.iter().map(also).collect();
        }
        if let Some(growth) = evaluation.growth {
            // Evaluations are then not equally spaced.
            held_out["every_rollouts"] = json!(evaluation.every_rollouts);
            held_out["growth"] = json!(growth);
        }
        held_out
    }

    fn reward(&self) -> Value {
        let all = &self.config.reward;
        let mut judged = all.each().iter().zip(&self.judges).map(|(one, met)| judged(one, met.as_ref()));
        if all.graders.is_empty()
            && let Some(only) = judged.next()
        {
            return only;
        }
        let mut reward = json!(RewardConfig { graders: Vec::new(), ..all.clone() });
        reward["graders"] = judged.collect();
        reward
    }
}

/// Returns a grader's config, with its identity instead of its path. Limits affect verdicts, so they are
/// included even if the config omits them.
fn judged(one: &RewardConfig, met: Option<&GraderPreflight>) -> Value {
    let python = one.sandboxed().then(|| PythonConfig {
        interpreter: None,
        wheels: None,
        ..one.python.clone().unwrap_or_default()
    });
    let http = one.http.as_ref().map(HttpConfig::identity);
    let component = one.component.as_ref().map(ComponentConfig::identity);
    let mut judged = json!(RewardConfig { process: None, python, http, component, ..one.clone() });
    if let Some(met) = met {
        judged["process"] = json!(met.identity);
    }
    judged
}

/// Returns an environment's settings, with its identity instead of its path and its processes.
fn played(environment: &EnvironmentSettings, outside: Option<&Outside>) -> Value {
    let mut played = json!(EnvironmentSettings { process: None, ..environment.clone() });
    if let Some(outside) = outside {
        played["process"] = json!(outside.identity());
        if let Some(class) = played["class"].as_object_mut() {
            class.remove("file");
        }
    }
    played
}

/// Replaces settings of this machine by those of a training server. The server's address and key are left
/// out, because they do not affect a run.
fn elsewhere(training: &mut Value, server: &RemoteConfig) {
    for here in ["trained", "device", "dtype", "threads"] {
        training[here] = Value::Null;
    }
    training["server"] = json!({
        "kind": server.server,
        "can": server.server.can(),
        "base_model": server.base_model,
        "lora_rank": server.lora_rank,
        "samples_per_request": server.samples_per_request,
    });
}

/// Returns the sampling server's settings, without its address, its key and the handover folder.
fn sampled_by(rollouts: &RolloutsConfig) -> Value {
    json!({
        "kind": rollouts.kind,
        "model": rollouts.model,
        "dtype": rollouts.dtype,
        "tolerance": rollouts.tolerance,
    })
}
