//! The memory of this machine, and whether a run fits. This is checked before the start: a process without
//! memory is killed, or aborts without a message.

use allot_base::{Error, Result};
use allot_engine::cpu::Memory;

/// Bytes for the program, a policy and allocator overhead. For a model of two million parameters, 97 to 179
/// MiB were measured beyond the counted memory, up to 32 MiB more or less from run to run. The campaign
/// measures others (`tests/campaign/memory.rs`).
pub const PROGRAM: usize = 160 << 20;

/// Returns the bytes of memory of this machine, including swap; none if unknown.
pub fn of_machine() -> Option<u64> {
    of_text(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

/// Parses Linux's `/proc/meminfo`, which is in kB.
fn of_text(text: &str) -> Option<u64> {
    let kib = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    kib("MemTotal").map(|total| 1024 * (total + kib("SwapTotal").unwrap_or(0)))
}

/// Fails if more memory is needed than this machine has.
pub fn has_room(memory: &Memory) -> Result<()> {
    let needed = memory.total().saturating_add(PROGRAM) as u64;
    match of_machine().filter(|own| needed > *own) {
        None => Ok(()),
        Some(own) => {
            let (needed, own) = (size(needed as usize), size(own as usize));
            let what = format!("it would take about {needed} of memory, but this machine has {own}");
            Err(Error::new(what).hint(largest(memory)))
        }
    }
}

/// Returns a hint about the part that needs the most memory.
fn largest(memory: &Memory) -> String {
    let parts = [
        (memory.weights, "weights", "use a smaller model"),
        (memory.optimizer, "the optimizer", "use a smaller model, or adapters with `model.lora`"),
        (memory.rollouts, "sampling", "lower `model.rows` or `sampling.max_tokens`"),
        (
            memory.activations,
            "activations",
            "lower `update.micro_batch_tokens`, or set `update.recompute = true`",
        ),
        (memory.saving, "saving", "use a smaller model"),
        (memory.learner, "learning while sampling", "leave out `run.lag` to keep one copy of the model"),
    ];
    let most = parts.into_iter().max_by_key(|(bytes, ..)| *bytes);
    most.map_or_else(String::new, |(bytes, what, less)| format!("{} are for {what}: {less}", size(bytes)))
}

/// Formats bytes for people.
pub fn size(bytes: usize) -> String {
    match bytes as f64 / f64::from(1 << 20) {
        mib if mib < 1024.0 => format!("{mib:.1} MiB"),
        mib => format!("{:.1} GiB", mib / 1024.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_linux_says_is_read() {
        let text = "MemTotal:       16309196 kB\nMemFree: 1 kB\nSwapTotal:       4 kB\n";
        assert_eq!(of_text(text), Some(1024 * 16_309_200));
        assert_eq!(of_text("MemFree: 1 kB\n"), None);
    }

    #[test]
    fn what_no_machine_has_is_refused() {
        let memory = Memory {
            trained: 1,
            weights: 4,
            optimizer: 8,
            rollouts: usize::MAX,
            activations: 1,
            saving: 1,
            learner: 0,
        };
        if of_machine().is_some() {
            let error = has_room(&memory).expect_err("no machine has that much");
            assert!(error.hints.iter().any(|hint| hint.contains("`model.rows`")), "{}", error.what);
        }
        assert_eq!(has_room(&Memory { rollouts: 1, ..memory }), Ok(()));
    }
}
