//! Names and descriptions of a step's metrics, in one declaration, from which the table in
//! docs/reference/outputs.md is printed. A metric that TRL logs, too, has TRL's name, so that dashboards
//! and scripts made for TRL can read it. TRL's meanings are those of TRL 1.16
//! (`trl/trainer/grpo_trainer.py`, and "Logged metrics" in `grpo_trainer.md`).

/// Metrics that share one description.
#[derive(Debug)]
pub struct Named {
    /// Their names. Capitals stand for a part that differs from run to run.
    pub names: &'static [&'static str],
    /// Their description.
    pub what: &'static str,
    /// Meaning of the same names in TRL.
    pub trl: Trl,
}

/// Meaning of a name in TRL.
#[derive(Debug)]
pub enum Trl {
    /// The same meaning.
    Same,
    /// Another meaning.
    Other(&'static str),
    /// TRL has no such metric.
    None,
}

const fn named(names: &'static [&'static str], what: &'static str, trl: Trl) -> Named {
    Named { names, what, trl }
}

/// All metrics, in the order of the table.
pub const ALL: &[Named] = &[
    named(
        &["reward", "reward_std"],
        "Mean and standard deviation (divided by n − 1) of the rewards of the step's rollouts, trained on or not. \
         Unscorable rollouts have none",
        Trl::Other("The same, of the batch"),
    ),
    named(
        &["rewards/PART/mean"],
        "Mean of a part of the rewards, before its weight, if a grader gives parts",
        Trl::Other("Of a reward function"),
    ),
    named(
        &["frac_reward_zero_std"],
        "Share of the step's rollouts with a reward whose prompt's rewards in this step are all equal",
        Trl::Other("Of rollouts as well; equal to within 1e-8"),
    ),
    named(
        &["completions/mean_length", "completions/min_length", "completions/max_length"],
        "Lengths of the step's answers, in generated tokens",
        Trl::Same,
    ),
    named(
        &[
            "completions/mean_terminated_length",
            "completions/min_terminated_length",
            "completions/max_terminated_length",
        ],
        "The same, of those that ended by themselves; 0 if none did",
        Trl::Same,
    ),
    named(&["completions/clipped_ratio"], "Share that reached the length limit", Trl::Same),
    named(
        &["num_turns/mean", "read_tokens/mean"],
        "Means over the step's rollouts, if they are episodes: turns, and tokens read from the environment",
        Trl::None,
    ),
    named(
        &["num_tokens"],
        "Tokens so far in the run: of answers and of prompts, a prompt counted for each of its rollouts",
        Trl::Same,
    ),
    named(&["step_time"], "Seconds of the step: all rounds, without evaluation", Trl::Same),
    named(
        &["tokens_per_second"],
        "Generated tokens of the step, divided by its seconds, update included",
        Trl::None,
    ),
    named(
        &["budget/rollouts", "budget/tokens"],
        "Rollouts and generated tokens spent so far in the run",
        Trl::None,
    ),
    named(
        &["loss", "grad_norm"],
        "Means over the optimizer's steps; the norm is before clipping. A server may not report it",
        Trl::Same,
    ),
    named(&["learning_rate"], "Of the last optimizer step", Trl::Same),
    named(
        &["entropy"],
        "Mean over the tokens that were computed, in nats. Not with a model on a server",
        Trl::Other("Over all tokens"),
    ),
    named(
        &["clip_ratio/low_mean", "clip_ratio/high_mean", "clip_ratio/region_mean"],
        "Of the tokens that were computed, the share that was clipped: ratio too low, too high, either",
        Trl::Other("Of all tokens"),
    ),
    named(
        &["sampling/importance_sampling_ratio/mean"],
        "Mean importance weight of the tokens that were computed, before truncation",
        Trl::Other("Mean weight"),
    ),
    named(
        &["sampling/sampling_logp_difference/mean"],
        "With rollouts or updates on a server: how far the trainer's log-probabilities lie from the sampler's, over \
         the tokens of fresh rollouts",
        Trl::Same,
    ),
    named(
        &["kl"],
        "Mean divergence from the reference, over the tokens that were computed; only if it has a weight",
        Trl::Other("Over all tokens"),
    ),
    named(&["optimizer_steps"], "Of this update", Trl::None),
    named(
        &["masked"],
        "Rollouts of this update that teach nothing because they reached the length limit; only with \
         `update.mask_truncated`",
        Trl::None,
    ),
    named(
        &["alloc/sampled", "alloc/unscorable"],
        "Rollouts of this step; how many of them could not be judged",
        Trl::None,
    ),
    named(
        &["math_verify/judged", "math_verify/certain"],
        "Rollouts of this step with a verdict of grader `math-verify` in the sandbox; the share of them whose verdict was \
         certain, so that no interpreter was needed; missing if there are none",
        Trl::None,
    ),
    named(
        &["budget/clipped"],
        "Rollouts of this step that were asked for and not granted; missing if there are none",
        Trl::None,
    ),
    named(
        &["alloc/groups", "alloc/trained", "alloc/effective"],
        "Groups and rollouts trained on; those with an advantage that is not 0",
        Trl::None,
    ),
    named(
        &["alloc/again"],
        "Of the rollouts trained on, those that an earlier update was made on, too; missing if there are none",
        Trl::None,
    ),
    named(
        &["alloc/released", "alloc/flat", "alloc/stale", "alloc/held"],
        "Rollouts discarded; of these, those of zero-variance groups; stale ones; those held",
        Trl::None,
    ),
    named(&["alloc/age"], "Mean age of the rollouts trained on, in model updates", Trl::None),
    named(
        &["accuracy"],
        "Held-out accuracy, that of the first set: at the start, at the end, and in the steps after which it was \
         evaluated",
        Trl::None,
    ),
    named(
        &["eval/SET/avg@K", "eval/SET/pass@K", "eval/SET/unjudged", "eval/SET/SOURCE"],
        "What accuracy is made of: the share of right answers, of K for each problem; the share of problems that K \
         answers solve, also for each power of two up to K; the share of answers without a verdict; and the first \
         for each source, if a set has several",
        Trl::None,
    ),
    named(
        &["also/NAME/SET/avg@K", "also/NAME/SET/pass@K", "also/NAME/SET/unjudged", "also/NAME/SET/SOURCE"],
        "The same in a further setting of `[[evaluation.also]]`, by its name",
        Trl::None,
    ),
    named(
        &["policy/NAME"],
        "A metric of the policy's own, by its name: the mean over the calls of the step that gave it",
        Trl::None,
    ),
];

/// Returns the entry of a metric, by its name.
pub fn of(name: &str) -> Option<&'static Named> {
    ALL.iter().find(|one| one.names.iter().any(|pattern| fits(pattern, name)))
}

/// Whether a name matches a pattern, in which capitals stand for any text that is not empty.
pub fn fits(pattern: &str, name: &str) -> bool {
    match pattern.find(|c: char| c.is_ascii_uppercase()) {
        None => pattern == name,
        Some(at) => {
            let rest = pattern[at..].trim_start_matches(|c: char| c.is_ascii_uppercase());
            let Some(tail) = name.strip_prefix(&pattern[..at]) else { return false };
            (1..=tail.len()).filter_map(|n| tail.get(n..)).any(|tail| fits(rest, tail))
        }
    }
}

/// Returns the table of docs/reference/outputs.md, in Markdown.
pub fn table() -> String {
    let line = |one: &Named| {
        let names: Vec<String> = one.names.iter().map(|name| format!("`{name}`")).collect();
        let trl = match one.trl {
            Trl::Same => "The same",
            Trl::Other(what) => what,
            Trl::None => "–",
        };
        format!("| {} | {} | {trl} |\n", names.join(", "), one.what)
    };
    let head = "| Name | What | In TRL 1.16 |\n|---|---|---|\n".to_owned();
    ALL.iter().fold(head, |table, one| table + &line(one))
}
