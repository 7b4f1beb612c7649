//! Meaning of a file's columns: known layouts, recognized by their columns, and columns given by the user.

use std::collections::BTreeMap;
use std::path::Path;

use allot_allocation::shown;
use allot_base::{Error, Result, listed};

/// A value that a bank reads from a rollout's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Field {
    /// Name or text of the prompt.
    Prompt,
    /// Position of the prompt in its data set.
    Order,
    /// The prompt's length, in tokens.
    PromptTokens,
    /// The reward.
    Reward,
    /// Whether the answer was right.
    Correct,
    /// Its length, in tokens.
    Tokens,
    /// Whether it met the length limit.
    Truncated,
    /// The model's version, or the step.
    Version,
    /// The answer.
    Text,
    /// The prompt's text or its messages, to estimate its length.
    PromptText,
    /// The arm of a comparison.
    Arm,
    /// The seed of a run of a comparison.
    Seed,
    /// Purpose of the rollout. Rollouts of an evaluation are skipped: their prompts are not trained on.
    Purpose,
    /// The share of a prompt's rollouts that were right, in files with one row for each prompt.
    PassRate,
    /// How many rollouts it had.
    Rollouts,
    /// Answer filter, in files that list each rollout once per filter. Only the first filter counts.
    Filter,
}

/// Fields accepted by `--column`, by name.
const TYPED: [(&str, Field); 10] = [
    ("prompt", Field::Prompt),
    ("reward", Field::Reward),
    ("correct", Field::Correct),
    ("tokens", Field::Tokens),
    ("truncated", Field::Truncated),
    ("version", Field::Version),
    ("prompt_tokens", Field::PromptTokens),
    ("text", Field::Text),
    ("pass_rate", Field::PassRate),
    ("rollouts", Field::Rollouts),
];

impl Field {
    /// Returns the field with this `--column` name.
    pub fn of(name: &str) -> Option<Self> {
        TYPED.iter().find(|(typed, _)| *typed == name).map(|(_, field)| *field)
    }

    /// Names of the fields that `--column` accepts.
    pub fn names() -> impl Iterator<Item = &'static str> + Clone {
        TYPED.iter().map(|(name, _)| *name)
    }

    /// Returns the field's name for error messages.
    pub(super) fn name(self) -> &'static str {
        TYPED.iter().find(|(_, field)| *field == self).map_or("a column of its own", |(name, _)| name)
    }
}

/// A layout of files, as one tool writes them.
struct Layout {
    name: &'static str,
    /// Columns by which the layout is recognized.
    marks: &'static [&'static str],
    /// Candidate columns of each field; the first one present counts.
    fields: &'static [(Field, &'static [&'static str])],
    /// Other columns that are not rewards, in a layout that names reward columns after reward functions.
    beside: Option<&'static [&'static str]>,
}

/// The layout of episodes with traces.
pub(super) const EPISODES: &str = "episodes of verifiers";

/// The layout of means over a task's rollouts.
pub(super) const PROFILE: &str = "NeMo Gym's profile";

/// The known layouts, most specific first; the last one always matches.
const LAYOUTS: [Layout; 10] = [
    Layout {
        // A bank, a run's `rollouts/part-*.parquet`, and a report's `rollouts.parquet`.
        name: "allot",
        marks: &["prompt", "version", "reward", "correct", "truncated"],
        fields: &[
            (Field::Prompt, &["problem", "prompt"]),
            (Field::Order, &["prompt"]),
            (Field::PromptTokens, &["prompt_tokens"]),
            (Field::Reward, &["reward"]),
            (Field::Correct, &["correct"]),
            (Field::Tokens, &["tokens"]),
            (Field::Truncated, &["truncated"]),
            (Field::Version, &["version"]),
            (Field::Purpose, &["purpose"]),
            (Field::Arm, &["arm"]),
            (Field::Seed, &["seed"]),
        ],
        beside: None,
    },
    Layout {
        // `trainer.rollout_data_dir`: `_dump_generations` of verl/trainer/ppo/ray_trainer.py. Its reward
        // managers add `acc`.
        name: "verl",
        marks: &["input", "output", "score"],
        fields: &[
            (Field::Prompt, &["input"]),
            (Field::Reward, &["score"]),
            (Field::Correct, &["acc"]),
            (Field::Version, &["step"]),
            (Field::Text, &["output"]),
            (Field::PromptText, &["input"]),
        ],
        beside: None,
    },
    Layout {
        // `Episode.to_record` of verifiers, which prime-rl writes, too. A row has several rollouts: [`crate::traces`].
        name: EPISODES,
        marks: &["traces", "task", "env"],
        fields: &[(Field::Prompt, &["task"]), (Field::Reward, &["traces"])],
        beside: None,
    },
    Layout {
        // `RolloutOutput` of verifiers before its version 1, in `results.jsonl` and prime-rl's `train_rollouts.jsonl`.
        name: "verifiers",
        marks: &["example_id", "completion", "reward"],
        fields: &[
            (Field::Prompt, &["example_id"]),
            (Field::Reward, &["reward"]),
            (Field::Tokens, &["token_usage.output_tokens"]),
            (Field::Truncated, &["is_truncated"]),
            (Field::Text, &["completion"]),
            (Field::PromptText, &["prompt"]),
        ],
        beside: None,
    },
    Layout {
        // `log_completions`: `OUTPUT_DIR/completions/completions_*.parquet`. Rewards are not weighted yet.
        name: "TRL",
        marks: &["prompt", "completion", "advantage"],
        fields: &[
            (Field::Prompt, &["prompt"]),
            (Field::Version, &["step"]),
            (Field::Text, &["completion"]),
            (Field::PromptText, &["prompt"]),
        ],
        beside: Some(&["images"]),
    },
    Layout {
        // `lm-eval run --log_samples`. A document has one line per filter.
        name: "lm-eval",
        marks: &["doc_id", "resps", "filtered_resps"],
        fields: &[
            (Field::Prompt, &["prompt_hash", "doc_id"]),
            (Field::Correct, &["exact_match", "acc", "pass@1", "math_verify"]),
            (Field::Text, &["resps"]),
            (Field::Filter, &["filter"]),
        ],
        beside: None,
    },
    Layout {
        // Files written by NeMo Gym's `ng_collect_rollouts`.
        name: "NeMo Gym",
        marks: &["responses_create_params.input", "reward"],
        fields: &[
            (Field::Prompt, &["_ng_task_index", "responses_create_params.input"]),
            (Field::Reward, &["reward"]),
            (Field::Tokens, &["response.usage.output_tokens"]),
            (Field::PromptTokens, &["response.usage.input_tokens"]),
        ],
        beside: None,
    },
    Layout {
        // `*_reward_profiling.jsonl` of NeMo Gym, with means over a task's rollouts: `profile_from_data` of
        // nemo_gym/reward_profile.py. It does not say how many rollouts there were.
        name: PROFILE,
        marks: &["mean/reward", "sample"],
        fields: &[
            (Field::Prompt, &["sample.responses_create_params.input", "sample"]),
            (Field::PassRate, &["mean/reward"]),
            (Field::Tokens, &["mean/output_tokens"]),
            (Field::PromptTokens, &["mean/input_tokens"]),
        ],
        beside: None,
    },
    Layout {
        // The rows of [`crate::dump`].
        name: "slime",
        marks: &["prompt", "response_length", "status", "step", "purpose"],
        fields: &[
            (Field::Prompt, &["prompt"]),
            (Field::PromptTokens, &["prompt_tokens"]),
            (Field::Reward, &["reward"]),
            (Field::Tokens, &["response_length"]),
            (Field::Truncated, &["truncated"]),
            (Field::Version, &["step"]),
            (Field::Text, &["response"]),
            (Field::Purpose, &["purpose"]),
        ],
        beside: None,
    },
    Layout {
        name: "columns by name",
        marks: &[],
        fields: &[
            (
                Field::Prompt,
                &[
                    "prompt_id",
                    "problem_id",
                    "question_id",
                    "task_id",
                    "id",
                    "prompt",
                    "problem",
                    "question",
                    "input",
                ],
            ),
            (Field::Reward, &["reward", "score"]),
            (Field::Correct, &["correct", "is_correct", "acc", "accuracy", "passed"]),
            (
                Field::Tokens,
                &["tokens", "completion_tokens", "output_tokens", "response_tokens", "completion_length"],
            ),
            (Field::PromptTokens, &["prompt_tokens", "input_tokens"]),
            (Field::Truncated, &["truncated"]),
            (Field::Version, &["version", "step", "global_step"]),
            (Field::Text, &["completion", "output", "response", "answer"]),
            // Beside a question, a prompt is its name.
            (Field::PromptText, &["question", "problem", "input", "prompt"]),
            (Field::PassRate, &["pass_rate", "solve_rate", "mean_reward"]),
            (Field::Rollouts, &["rollouts", "num_rollouts", "n"]),
        ],
        beside: None,
    },
];

/// The columns of a file by field. Several reward columns are added up.
#[derive(Debug)]
pub(super) struct Columns {
    /// Name of the layout.
    pub(super) layout: &'static str,
    of: BTreeMap<Field, Vec<String>>,
}

impl Columns {
    /// Finds the columns of a file. `typed` overrides the layout; the columns `others` must exist, too.
    pub(super) fn find<'a>(
        path: &Path,
        there: &[String],
        typed: &'a BTreeMap<Field, Vec<String>>,
        others: impl IntoIterator<Item = &'a String>,
    ) -> Result<Self> {
        // A name also matches the fields inside a struct of that name.
        let has = |name: &str| {
            there.iter().any(|column| {
                column == name || column.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'))
            })
        };
        for name in typed.values().flatten().chain(others) {
            if !has(name) {
                let what = format!("`{}` has no column `{}`", shown::path(path), shown::name(name));
                return Err(Error::new(what).hint(columns_are(there)));
            }
        }
        let known = LAYOUTS.iter().find(|layout| layout.marks.iter().all(|mark| has(mark)));
        let layout = known.expect("the last layout has no marks");
        let mut of = typed.clone();
        for (field, names) in layout.fields {
            if let Some(name) = names.iter().find(|name| has(name)) {
                of.entry(*field).or_insert_with(|| vec![(*name).to_owned()]);
            }
        }
        // A layout's order column belongs to its prompt column.
        if typed.contains_key(&Field::Prompt) {
            of.remove(&Field::Order);
        }
        // A pass rate stands in for rewards where there are none, or where the user says so.
        if typed.contains_key(&Field::PassRate) {
            of.retain(|field, _| {
                typed.contains_key(field) || !matches!(field, Field::Reward | Field::Correct)
            });
        }
        if of.contains_key(&Field::Reward) || of.contains_key(&Field::Correct) {
            of.retain(|field, _| !matches!(field, Field::PassRate | Field::Rollouts));
        }
        let columns = Self { layout: layout.name, of };
        columns.with_rewards(layout, path, there)
    }

    /// Uses the only column left as the reward, if `beside` is set. Fails if a field is missing.
    fn with_rewards(mut self, layout: &Layout, path: &Path, there: &[String]) -> Result<Self> {
        let file = shown::path(path);
        let rewarded = self.has(Field::Reward) || self.has(Field::Correct);
        if let (Some(beside), false) = (layout.beside, rewarded) {
            let others = |name: &&String| {
                let plain = name.split('.').next().unwrap_or(name);
                !layout.marks.contains(&plain)
                    && !beside.contains(&plain)
                    && !self.names().any(|own| own == plain)
            };
            let left: Vec<&String> = there.iter().filter(others).collect();
            let [one] = left[..] else {
                let all = listed(left.iter().map(|name| name.as_str()));
                let what =
                    format!("`{file}`, as {} writes it, could have its reward in any of {all}", layout.name);
                let plus = left.iter().map(|name| name.as_str()).collect::<Vec<_>>().join("+");
                return Err(Error::new(what).hint(format!(
                    "choose one with --column reward=NAME, or add them up with --column reward={plus}"
                )));
            };
            self.of.insert(Field::Reward, vec![one.clone()]);
        }
        for (fields, what, option) in [
            (&[Field::Prompt][..], "a prompt", "prompt=NAME"),
            (
                &[Field::Reward, Field::Correct, Field::PassRate][..],
                "a reward, or as whether an answer was right",
                "reward=NAME",
            ),
        ] {
            if !fields.iter().any(|field| self.has(*field)) {
                let error = Error::new(format!("`{file}` has no column recognized as {what}"));
                return Err(error.hint(format!("{}; name one with --column {option}", columns_are(there))));
            }
        }
        Ok(self)
    }

    /// Whether the file has a column for this field.
    pub(super) fn has(&self, field: Field) -> bool {
        self.of.contains_key(&field)
    }

    /// The columns of this field.
    pub(super) fn of(&self, field: Field) -> &[String] {
        self.of.get(&field).map_or(&[], Vec::as_slice)
    }

    /// Names of all columns.
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.of.values().flatten()
    }
}

/// Maximum number of columns listed in a hint.
const LISTED: usize = 20;

fn columns_are(there: &[String]) -> String {
    let more = there.len().saturating_sub(LISTED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("its columns are {}{more}", listed(there.iter().take(LISTED).map(String::as_str)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(there: &str, typed: &[(Field, &str)]) -> Result<Columns> {
        let there: Vec<String> = there.split(' ').map(str::to_owned).collect();
        let typed = typed.iter().map(|(field, name)| (*field, vec![(*name).to_owned()])).collect();
        Columns::find(Path::new("x.jsonl"), &there, &typed, std::iter::empty())
    }

    #[test]
    fn layouts_are_known_by_their_columns() {
        for (there, layout, reward) in [
            ("arm prompt purpose version tokens truncated reward correct", "allot", "reward"),
            ("input output gts score step acc", "verl", "score"),
            ("step prompt.content completion.content accuracy_reward advantage", "TRL", "accuracy_reward"),
            ("responses_create_params.input reward response.usage.output_tokens", "NeMo Gym", "reward"),
            ("id env task group run ok traces", "episodes of verifiers", "traces"),
            ("example_id prompt completion reward advantage is_truncated", "verifiers", "reward"),
            ("id score", "columns by name", "score"),
        ] {
            let columns = find(there, &[]).expect(there);
            assert_eq!(
                (columns.layout, columns.of(Field::Reward)),
                (layout, &[reward.to_owned()][..]),
                "{there}"
            );
        }
        let columns =
            find("doc_id doc resps filtered_resps filter exact_match", &[]).expect("it is lm-eval's");
        assert_eq!((columns.layout, columns.has(Field::Reward)), ("lm-eval", false));
    }

    #[test]
    fn what_cannot_be_told_is_asked_for() {
        let told = |there: &str, typed: &[(Field, &str)]| {
            let error = find(there, typed).expect_err(there);
            format!("{} | {}", error.what, error.hints.join(" "))
        };
        assert_eq!(
            told("prompt completion advantage right short step", &[]),
            "`x.jsonl`, as TRL writes it, could have its reward in any of `right`, `short` | choose one with --column \
             reward=NAME, or add them up with --column reward=right+short"
        );
        assert_eq!(
            told("a b", &[]),
            "`x.jsonl` has no column recognized as a prompt | its columns are `a`, `b`; name one with --column prompt=NAME"
        );
        assert_eq!(
            told("id b", &[(Field::Reward, "c")]),
            "`x.jsonl` has no column `c` | its columns are `id`, `b`"
        );
    }
}
