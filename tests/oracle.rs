//! The policies against recorded decisions of the authors' own code.
//!
//! Every case of `tests/cases/oracle` (or of the folder in `ALLOT_ORACLE_CASES`) must agree, or depart
//! on purpose in a way that is checked and told; `docs/explanation/fidelity.md` has the reasons. A file, a field or
//! a parameter that no check knows fails. Every question that the cases lead to is then put to the
//! components too (`ALLOT_COMPONENTS`, by default those that ship).

#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout)]

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

#[path = "oracle/advantage.rs"]
mod advantage;
#[path = "oracle/ask.rs"]
mod ask;
#[path = "oracle/case.rs"]
mod case;
#[path = "oracle/methods.rs"]
mod methods;
mod native;
#[path = "oracle/pieces.rs"]
mod pieces;
#[path = "oracle/world.rs"]
mod world;

use case::{Checked, Json, Verdict};

/// A check of one case.
type Check = fn(&Json) -> Checked;

/// Which check a file's cases go through, and the algorithms they may be of.
fn check_of(file: &str) -> Option<(Check, &'static [&'static str])> {
    Some(match file {
        "adarft" => (methods::adarft, &["adarft"]),
        "c_grpo" => (methods::c_grpo, &["c-grpo"]),
        "coba_rl" => (methods::coba_rl, &["coba-rl"]),
        "dapo_filter" => (pieces::dapo_filter, &["dapo"]),
        "dapo_fit_traces" => (world::dapo, &["dapo", "uniform-grpo"]),
        "greso_adaptive_batch" => (pieces::greso_adaptive_batch, &["greso"]),
        "greso_fit_traces" => (world::greso, &["greso", "dynamic-sampling"]),
        "greso_group_stats" => (pieces::greso_group_stats, &["greso"]),
        "greso_p_update" => (pieces::greso_p_update, &["greso"]),
        "greso_skip_probability" => (pieces::greso_skip_probability, &["greso"]),
        "grpo_advantages" => (pieces::grpo_advantages, &["grpo"]),
        "mopps" => (methods::mopps, &["mopps"]),
        "pc_filter" => (pieces::pc_filter, &["pilot-commit"]),
        "pc_fit_traces" => (world::pilot_commit, &["pilot-commit"]),
        "pc_gpu_divisibility" => (pieces::pc_gpu_divisibility, &["pilot-commit"]),
        "pc_replay_buffer" => (pieces::pc_replay_buffer, &["pilot-commit"]),
        "pc_response_downsample" => (pieces::pc_response_downsample, &["pilot-commit"]),
        "pods_max_reward" => (pieces::pods_max_reward, &["pods"]),
        "pods_max_variance" => (pieces::pods_max_variance, &["pods"]),
        "pods_multi_gpu_aliasing" => (pieces::pods_multi_gpu_aliasing, &["pods"]),
        "repo" => (methods::repo, &["repo"]),
        "spo" => (methods::spo, &["spo"]),
        "vip" => (methods::vip, &["vip"]),
        _ => return None,
    })
}

#[derive(Default)]
struct Tally {
    agreed: usize,
    departed: BTreeMap<&'static str, usize>,
}

#[test]
fn a_case_after_the_last_round_may_carry_an_estimate() {
    let line = r#"{"id": "made", "algo": "greso", "fn": "fit:adaptive sampling batch size", "tag": "made",
        "effective_prompts_so_far": 2, "real_train_batch_size": 256, "zero_variance_ratio_of_last_rollout": 0.5,
        "sampling_batch_size": 384, "n": 8, "full_sampling_bs": false, "last_sampling_before": true,
        "estimated": 5080}"#;
    let case = serde_json::from_str(line).unwrap();
    assert!(matches!(pieces::greso_adaptive_batch(&case), Ok(Verdict::Agrees)));
}

#[test]
fn the_policies_decide_as_their_authors_code() {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/cases/oracle");
    let folder = std::env::var_os("ALLOT_ORACLE_CASES").map_or(default, PathBuf::from);
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "jsonl"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} has no cases", folder.display());
    if std::env::var_os("ALLOT_ORACLE_CASES").is_none() {
        assert_eq!(files.len(), 23, "a file of cases is missing");
    }

    let (mut failures, mut tallies) = (Vec::new(), Vec::new());
    for path in &files {
        let file = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let Some((check, algorithms)) = check_of(&file) else {
            failures.push(format!("{file}: no check knows this file"));
            continue;
        };
        let mut tally = Tally::default();
        for line in std::fs::read_to_string(path).unwrap().lines().filter(|line| !line.trim().is_empty()) {
            let case: Json =
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{file}: {error}: {line}"));
            let name = format!("{file} {} ({:?})", case.get("id").text(), case.get("tag"));
            let algorithm = case.get("algo").text();
            if !algorithms.contains(&algorithm) {
                failures.push(format!("{name}: the algorithm `{algorithm}` is unknown here"));
                continue;
            }
            match catch_unwind(AssertUnwindSafe(|| check(&case))) {
                Ok(Ok(Verdict::Agrees)) => tally.agreed += 1,
                Ok(Ok(Verdict::Departs(why))) => *tally.departed.entry(why).or_default() += 1,
                Ok(Err(wrong)) => failures.push(format!("{name}: {wrong}")),
                Err(_) => failures.push(format!("{name}: panicked (see above)")),
            }
        }
        tallies.push((file, tally));
    }

    println!("{:<26} {:>7} {:>9}", "file", "agreed", "departed");
    for (file, tally) in &tallies {
        println!("{file:<26} {:>7} {:>9}", tally.agreed, tally.departed.values().sum::<usize>());
        for (why, n) in &tally.departed {
            println!("    {n:>3} × {why}");
        }
    }
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../policies/prebuilt");
    let components = std::env::var_os("ALLOT_COMPONENTS").map_or(default, PathBuf::from);
    println!("questions, each put to the native policy and to its component: {}", ask::replay(&components));
    for failure in &failures {
        println!("FAILED {failure}");
    }
    assert!(failures.is_empty(), "{} cases fail", failures.len());
    for (file, tally) in &tallies {
        assert!(tally.agreed + tally.departed.values().sum::<usize>() > 0, "{file} has no case");
    }
}
