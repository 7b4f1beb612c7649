//! Capabilities of training servers. They are taken from the servers' sources and documentation, because
//! the protocol has no query for them.

use serde::{Deserialize, Serialize};

use crate::{LossKind, OptimizerConfig, Sampling, UpdateConfig};

/// A server's implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Server {
    /// Thinking Machines' hosted service.
    Tinker,
    /// SkyRL's server with an FSDP or Megatron back end.
    SkyrlTrain,
    /// SkyRL's server with a JAX back end.
    SkyrlJax,
}

/// A server's capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Can {
    /// Reduction of the loss over tokens.
    pub loss: Mean,
    /// Whether token weights select the answer's tokens. Otherwise the prompt's tokens have advantage 0.
    pub weights: bool,
    /// Gradient clipping.
    pub gradients: Cuts,
}

/// The reduction of a loss over tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mean {
    /// The sum.
    Sum,
    /// The mean over each sequence's tokens, then over the sequences of an optimizer step.
    SequenceMean,
}

/// The rule for gradient clipping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cuts {
    /// Clips to the norm in each step's request.
    AsTold,
    /// Clips to the norm in the server's own config.
    AsItLikes,
    /// Never clips.
    Never,
}

impl Server {
    /// Returns the server's capabilities.
    pub fn can(self) -> Can {
        match self {
            Self::Tinker => Can { loss: Mean::Sum, weights: false, gradients: Cuts::AsTold },
            Self::SkyrlTrain => Can { loss: Mean::Sum, weights: true, gradients: Cuts::AsItLikes },
            Self::SkyrlJax => Can { loss: Mean::SequenceMean, weights: true, gradients: Cuts::Never },
        }
    }

    /// Returns whether saved sampler weights stay unchanged while the model is trained further. SkyRL's JAX
    /// back end loads sampler weights into the adapter that it trains. Its other back ends were not tested.
    pub fn keeps_samplers(self) -> bool {
        self == Self::Tinker
    }

    /// Returns the first setting that the server does not support: the key, its value, the reason, and a hint.
    pub fn cannot(
        self,
        update: &UpdateConfig,
        optimizer: &OptimizerConfig,
        sampling: &Sampling,
    ) -> Option<(&'static str, String, &'static str, &'static str)> {
        let loss = &update.loss;
        let kind = || serde_json::to_value(loss.kind).ok().and_then(|v| v.as_str().map(str::to_owned));
        if matches!(loss.kind, LossKind::Gspo | LossKind::Rloo) {
            let (why, hint) = (
                "the server's losses use one ratio per token",
                "use `grpo`, `dr-grpo`, `dapo` or `cispo`, which the server computes as allot does",
            );
            return Some(("update.loss.kind", kind().unwrap_or_default(), why, hint));
        }
        if loss.kl > 0.0 {
            let why = "the server has no reference model";
            return Some((
                "update.loss.kl",
                loss.kl.to_string(),
                why,
                "set it to 0, or train on this machine",
            ));
        }
        if loss.entropy != 0.0 {
            let (why, hint) =
                ("the server's losses have no entropy term", "set it to 0, or train on this machine");
            return Some(("update.loss.entropy", loss.entropy.to_string(), why, hint));
        }
        if let Some(dual) = loss.bounds().dual {
            let why = "the server's losses have no dual clip";
            return Some(("update.loss.dual_clip", dual.to_string(), why, "set it to 0 to turn it off"));
        }
        if update.recompute {
            let why = "the server decides how to store its activations";
            return Some(("update.recompute", "true".to_owned(), why, "leave it out"));
        }
        if sampling.temperature != 1.0 {
            let why = "the server trains at temperature 1, so ratios would belong to another policy";
            let value = sampling.temperature.to_string();
            return Some(("sampling.temperature", value, why, "set it to 1 outside `evaluation.sampling`"));
        }
        if optimizer.max_norm > 0.0 && self.can().gradients != Cuts::AsTold {
            let hint = match self.can().gradients {
                Cuts::AsItLikes => {
                    "set it to 0 here, and on the server in `trainer.policy.optimizer_config.max_grad_norm`"
                }
                _ => "set it to 0 to turn it off",
            };
            let why = "the server does not accept this limit";
            return Some(("optimizer.max_norm", optimizer.max_norm.to_string(), why, hint));
        }
        None
    }
}
