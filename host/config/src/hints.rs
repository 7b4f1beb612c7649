//! What to do about a config that is none: the key that was meant, the command that it is for, a whole config to
//! begin with.

use allot_base::nearest;

use crate::typed::Fault;

/// What other programs call our keys. Those of TRL 1.16, verl 0.6, transformers and PEFT, and what people say.
const ALIASES: &[(&str, &[&str])] = &[
    ("adam_beta1", &["optimizer.beta1"]),
    ("adam_beta2", &["optimizer.beta2"]),
    ("adam_epsilon", &["optimizer.epsilon"]),
    ("answer_key", &["data.answer"]),
    ("apply_overlong_filtering", &["update.mask_truncated"]),
    ("batch_size", &["run.groups"]),
    ("beta", &["update.loss.kl"]),
    ("betas", &["optimizer.beta1"]),
    ("clip_grad", &["optimizer.max_norm"]),
    ("clip_ratio_high", &["update.loss.clip_high"]),
    ("clip_ratio_low", &["update.loss.clip_low"]),
    ("cliprange", &["update.loss.clip_low"]),
    ("data_seed", &["run.seed"]),
    ("dataset", &["data.files"]),
    ("dataset_name", &["data.files"]),
    ("entropy_coef", &["update.loss.entropy"]),
    ("entropy_coeff", &["update.loss.entropy"]),
    ("epsilon_high", &["update.loss.clip_high"]),
    ("epsilon_low", &["update.loss.clip_low"]),
    ("eps", &["optimizer.epsilon", "advantage.epsilon"]),
    ("eval_every", &["evaluation.every"]),
    ("eval_steps", &["evaluation.every"]),
    ("file", &["data.files"]),
    ("grad_clip", &["optimizer.max_norm"]),
    ("gradient_checkpointing", &["update.recompute"]),
    ("group_size", &["run.rollouts"]),
    ("keep_sampling_mask", &["update.keep_sampling_mask"]),
    ("kl_coef", &["update.loss.kl"]),
    ("kl_loss_coef", &["update.loss.kl"]),
    ("lora_alpha", &["model.lora.alpha"]),
    ("lora_r", &["model.lora.rank"]),
    ("lora_rank", &["model.lora.rank"]),
    ("loss_type", &["update.loss"]),
    ("lr", &["optimizer.learning_rate", "training.optimizer.learning_rate"]),
    ("lr_scheduler_type", &["optimizer.schedule", "training.optimizer.schedule"]),
    ("lr_warmup_steps", &["optimizer.warmup", "training.optimizer.warmup"]),
    ("mask_truncated_completions", &["update.mask_truncated"]),
    ("max_completion_length", &["rollout.max_tokens"]),
    ("max_grad_norm", &["optimizer.max_norm", "training.optimizer.max_norm"]),
    ("max_new_tokens", &["rollout.max_tokens"]),
    ("max_prompt_length", &["model.max_prompt_tokens"]),
    ("max_response_length", &["rollout.max_tokens"]),
    ("max_steps", &["run.steps", "training.steps"]),
    ("min_lr_ratio", &["optimizer.final_share", "training.optimizer.final_share"]),
    ("model_name_or_path", &["model.use"]),
    ("model_path", &["model.use"]),
    ("name_or_path", &["model.use"]),
    ("num_generations", &["run.rollouts"]),
    ("num_hidden_layers", &["model.layers"]),
    ("num_iterations", &["update.epochs"]),
    ("num_steps", &["run.steps", "training.steps"]),
    ("num_workers", &["model.threads"]),
    ("optim", &["optimizer"]),
    ("overlong_filtering", &["update.mask_truncated"]),
    ("path", &["model.use", "data.files", "policy.use", "bank.file"]),
    ("ppo_epochs", &["update.epochs"]),
    ("ppo_mini_batch_size", &["update.mini_batch"]),
    ("prompt_key", &["data.question"]),
    ("prompts", &["run.groups"]),
    ("r", &["model.lora.rank"]),
    ("reward_fn", &["reward.grader"]),
    ("response_length", &["rollout.max_tokens"]),
    ("return_sampling_mask", &["update.keep_sampling_mask"]),
    ("sampling", &["rollout"]),
    ("save_every", &["checkpoint.every"]),
    ("save_freq", &["checkpoint.every"]),
    ("save_steps", &["checkpoint.every"]),
    ("save_total_limit", &["checkpoint.keep"]),
    ("scale_rewards", &["advantage.normalize"]),
    ("scheduler", &["optimizer.schedule", "training.optimizer.schedule"]),
    ("temp", &["rollout.temperature"]),
    ("test_freq", &["evaluation.every"]),
    ("total_training_steps", &["run.steps"]),
    ("train_batch_size", &["run.groups"]),
    ("train_files", &["data.files"]),
    ("trainer", &["run"]),
    ("val_files", &["evaluation.sets"]),
    ("warmup_steps", &["optimizer.warmup", "training.optimizer.warmup"]),
    ("wd", &["optimizer.weight_decay", "training.optimizer.weight_decay"]),
];

/// A kind of config: the command that it is for, the sections that no other kind has, and the smallest one that is
/// whole, but for its policy.
struct ConfigKind {
    command: &'static str,
    own: &'static [&'static str],
    smallest: &'static str,
}

const TRAIN: ConfigKind = ConfigKind {
    command: "allot train",
    own: &[
        "engine",
        "rollouts",
        "model",
        "rollout",
        "update",
        "optimizer",
        "reward",
        "checkpoint",
        "data",
        "tasks",
    ],
    smallest: r#"[run]
seed = 1
steps = 100
groups = 16
rollouts = 16

[budget]
rollouts = 30_000

[policy]
use = "POLICY"

[model]
use = "tiny-sums"

[rollout]
max_tokens = 8

[optimizer]
learning_rate = 1e-4

[reward]
grader = "exact"

[[tasks]]
kind = "sums"
style = "terse"
count = 500
held_out = 0.2
levels = [{ digits = 2 }]
"#,
};

const SIMULATE: ConfigKind = ConfigKind {
    command: "allot simulate",
    own: &["world", "bank"],
    smallest: r#"[run]
seed = 1
steps = 100
groups = 16
rollouts = 16

[budget]
rollouts = 30_000

[policy]
use = "POLICY"
"#,
};

const PRETRAIN: ConfigKind = ConfigKind {
    command: "allot pretrain",
    own: &["tokenizer", "lessons", "training", "spread"],
    smallest: "",
};

const KINDS: [ConfigKind; 3] = [TRAIN, SIMULATE, PRETRAIN];

/// What to do about a fault of a config that is called `name` and has these sections.
pub(super) fn of(fault: &Fault, name: &str, sections: &[&str]) -> Option<String> {
    if let Some(other) = other_kind(fault, name, sections) {
        return Some(other);
    }
    if fault.path.is_empty() && fault.missing == Some("run") {
        return Some(whole(sections));
    }
    let (unknown, known) = fault.unknown.as_ref()?;
    // As a key says it: the outermost section first, and no numbers of items.
    let section: Vec<&str> =
        fault.path.iter().rev().map(String::as_str).filter(|key| key.parse::<usize>().is_err()).collect();
    let section = section.join(".");
    meant(unknown, &section, known)
        .or_else(|| {
            nearest(unknown, known.iter().map(String::as_str)).map(|near| format!("did you mean `{near}`?"))
        })
        .or_else(|| elsewhere(unknown))
}

/// The key of the same section that another program calls so.
fn meant(unknown: &str, section: &str, known: &[String]) -> Option<String> {
    let keys = aliases(unknown)?;
    let own = keys.iter().filter_map(|key| match key.rsplit_once('.') {
        Some((before, last)) => (before == section).then_some(last),
        None => section.is_empty().then_some(*key),
    });
    own.into_iter().find(|key| known.iter().any(|k| k == key)).map(|key| format!("did you mean `{key}`?"))
}

/// The key of another section that another program calls so.
fn elsewhere(unknown: &str) -> Option<String> {
    let first = aliases(unknown)?.first()?;
    Some(format!("did you mean `{first}`?"))
}

fn aliases(unknown: &str) -> Option<&'static [&'static str]> {
    let plain = unknown.to_lowercase().replace('-', "_");
    ALIASES.iter().find(|(alias, _)| *alias == plain).map(|(_, keys)| *keys)
}

/// The command that a config is for, where it is another one's: it has sections of that one's and none of what was
/// asked for.
fn other_kind(fault: &Fault, name: &str, sections: &[&str]) -> Option<String> {
    if !fault.path.is_empty() {
        return None;
    }
    let count = |kind: &ConfigKind| kind.own.iter().filter(|section| sections.contains(section)).count();
    let asked_for = match (&fault.unknown, fault.missing) {
        // A section is unknown, be it another kind's own or one that some kinds share; or this one's is missing.
        (Some((_, known)), _) => {
            KINDS.iter().find(|kind| kind.own.iter().all(|own| known.iter().any(|k| k == own)))?
        }
        (_, Some(missing)) => KINDS.iter().find(|kind| kind.own.contains(&missing))?,
        _ => return None,
    };
    let other =
        KINDS.iter().filter(|kind| kind.command != asked_for.command && count(kind) > count(asked_for));
    let of_keys = other.max_by_key(|kind| count(kind));
    // A simulation needs no section of its own.
    let bare = fault.missing.is_some()
        && count(asked_for) == 0
        && asked_for.command == TRAIN.command
        && sections.contains(&"run");
    let command = of_keys.map(|kind| kind.command).or_else(|| bare.then_some(SIMULATE.command))?;
    Some(format!("it is a config for another command: {command} {name}"))
}

/// The smallest config that is whole.
fn whole(sections: &[&str]) -> String {
    let kind = if SIMULATE.own.iter().any(|own| sections.contains(own)) { &SIMULATE } else { &TRAIN };
    format!("a whole config for {}, to begin with:\n\n{}", kind.command, kind.whole().trim_end())
}

impl ConfigKind {
    /// Its smallest config. Any policy that ships will do.
    fn whole(&self) -> String {
        self.smallest.replace("POLICY", allot_component::shipped::simplest().unwrap_or("POLICY"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tree;
    use crate::simulate::SimulateConfig;
    use crate::train::TrainConfig;

    #[test]
    fn the_smallest_configs_are_whole() {
        TrainConfig::parse(&TRAIN.whole(), "train").expect("it is a run's");
        SimulateConfig::parse(&SIMULATE.whole(), "simulate").expect("it is a simulation's");
    }

    #[test]
    fn every_alias_is_of_a_key_that_there_is() {
        for (alias, keys) in ALIASES {
            for key in *keys {
                // A key that is known fails by its value, or not at all.
                let typed = format!("{}={{}}", key.replace("data.", "data.0.").replace("sets", "sets.0.x"));
                // Those of `allot pretrain`'s recipes and of simulations are not here.
                if key.starts_with("training.") || key.starts_with("bank.") || *key == "model.layers" {
                    continue;
                }
                let text = format!("{}[[data]]\nfiles = \"x.jsonl\"\n", TRAIN.smallest);
                let told = Tree::parse(&text, "run.toml", &[typed])
                    .and_then(|tree| tree.config::<TrainConfig>().map(|_| ()))
                    .map_or_else(|error| error.what, |()| String::new());
                assert!(!told.contains("unknown field"), "{alias}: {told}");
            }
        }
    }
}
