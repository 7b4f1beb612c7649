//! What each server can do: the capability record. From their sources and documents, not from what they say
//! of themselves, for the protocol has no word for it.

use serde::{Deserialize, Serialize};

use crate::{LossKind, OptimizerConfig, Sampling, UpdateConfig};

/// A server, by what it does with a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Server {
    /// Thinking Machines' hosted service.
    Tinker,
    /// SkyRL's server with FSDP or Megatron behind it.
    SkyrlTrain,
    /// SkyRL's server with JAX behind it.
    SkyrlJax,
}

/// What a server can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Can {
    /// What its tokens' losses come to.
    pub loss: Mean,
    /// Whether it is told by weights which tokens are the answer's. Elsewhere the prompt's advantages are 0.
    pub weights: bool,
    /// Whether it cuts gradients.
    pub gradients: Cuts,
}

/// What the losses of tokens come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mean {
    /// Their sum.
    Sum,
    /// The mean over each sequence's tokens, then over the sequences of an optimizer step.
    SequenceMean,
}

/// Whether gradients are cut to a norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cuts {
    /// To the norm that it is told with each step.
    AsTold,
    /// As its own config says.
    AsItLikes,
    /// Never.
    Never,
}

impl Server {
    /// What it can do.
    pub fn can(self) -> Can {
        match self {
            Self::Tinker => Can { loss: Mean::Sum, weights: false, gradients: Cuts::AsTold },
            Self::SkyrlTrain => Can { loss: Mean::Sum, weights: true, gradients: Cuts::AsItLikes },
            Self::SkyrlJax => Can { loss: Mean::SequenceMean, weights: true, gradients: Cuts::Never },
        }
    }

    /// Whether what it samples by stays as it was saved while the model is trained further. SkyRL's JAX back end loads the
    /// weights of a sampler into the adapter that it trains; what its other back ends do was not tried.
    pub fn keeps_samplers(self) -> bool {
        self == Self::Tinker
    }

    /// The first thing that a run wants and the server can't do: the key, its value, why not, and what to do.
    pub fn cannot(
        self,
        update: &UpdateConfig,
        optimizer: &OptimizerConfig,
        rollout: &Sampling,
    ) -> Option<(&'static str, String, &'static str, &'static str)> {
        let loss = &update.loss;
        let kind = || serde_json::to_value(loss.kind).ok().and_then(|v| v.as_str().map(str::to_owned));
        if matches!(loss.kind, LossKind::Gspo | LossKind::Rloo) {
            let (why, hint) = (
                "the server's losses have a ratio for each token",
                "`grpo`, `dr-grpo`, `dapo` and `cispo` come out as they do here",
            );
            return Some(("update.loss.kind", kind().unwrap_or_default(), why, hint));
        }
        if loss.kl > 0.0 {
            let why = "the server has no reference to measure it from";
            return Some((
                "update.loss.kl",
                loss.kl.to_string(),
                why,
                "set it to 0, or train on this machine",
            ));
        }
        if loss.entropy != 0.0 {
            let (why, hint) =
                ("the server's losses have no such term", "set it to 0, or train on this machine");
            return Some(("update.loss.entropy", loss.entropy.to_string(), why, hint));
        }
        if let Some(dual) = loss.bounds().dual {
            let why = "the server's losses have no such bound";
            return Some(("update.loss.dual_clip", dual.to_string(), why, "set it to 0, for none"));
        }
        if update.recompute {
            let why = "how the server keeps its activations is its own affair";
            return Some(("update.recompute", "true".to_owned(), why, "leave it out"));
        }
        if rollout.temperature != 1.0 {
            let why = "the server learns at temperature 1, and ratios would be of another policy";
            let value = rollout.temperature.to_string();
            return Some(("rollout.temperature", value, why, "set it to 1; `evaluation.sampling` is free"));
        }
        if optimizer.max_norm > 0.0 && self.can().gradients != Cuts::AsTold {
            let hint = match self.can().gradients {
                Cuts::AsItLikes => {
                    "set it to 0 here, and on the server in `trainer.policy.optimizer_config.max_grad_norm`"
                }
                _ => "set it to 0, for none",
            };
            let why = "the server takes no such number";
            return Some(("optimizer.max_norm", optimizer.max_norm.to_string(), why, hint));
        }
        None
    }
}
