"""Makes `completions_00005.parquet`: the table that TRL's `GRPOTrainer.log` writes with `log_completions` (1.16), of two
prompts with four completions each. Needs pandas and pyarrow."""

from pathlib import Path

import pandas as pd

TEXTS = ["2", "It is 2.", "3", "2", "408", "400", "I do not know.", "398"]


def chat(role: str, text: str) -> list[dict[str, str]]:
    return [{"role": role, "content": text}]


pd.DataFrame(
    {
        "step": [5] * 8,
        "prompt": [chat("user", "What is 1 + 1?")] * 4 + [chat("user", "What is 12 * 34?")] * 4,
        "completion": [chat("assistant", text) for text in TEXTS],
        "accuracy_reward": [1.0, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0],
        "format_reward": [0.1, 0.0, 0.1, 0.1, 0.1, 0.1, 0.0, 0.1],
        "advantage": [0.5, 0.5, -1.5, 0.5, 1.5, -0.5, -0.5, -0.5],
    }
).to_parquet(Path(__file__).with_name("completions_00005.parquet"))
