"""slime: its rollout function, data source and advantages, under a policy. Written for slime 0.3, synchronous.

    python -m allot.slime_train train.py … --data-source-path allot.slime.AllocatedSource \\
        --rollout-function-path allot.slime.generate_rollout \\
        --custom-reward-post-process-path allot.slime.advantages \\
        --custom-config-path allot.yaml

    # allot.yaml
    allot: {policy: pilot-commit, settings: {pilot: 4, commit: 12}, groups: 16, rollouts: 16, budget: {rollouts: 20000}}

Rollouts are generated and judged by slime's own functions, with counts that differ from prompt to prompt. A rollout may
come back as several rows, as those of agents do. slime takes optimizer steps of `global_batch_size` rollouts: what is
missing is filled with rows without a loss.
"""

from __future__ import annotations

import uuid
from argparse import Namespace
from typing import Any

from slime.rollout import sglang_rollout
from slime.rollout.base_types import RolloutFnTrainOutput
from slime.rollout.data_source import RolloutDataSource
from slime.rollout.rm_hub import batched_async_rm
from slime.utils.async_utils import run
from slime.utils.processing_utils import load_tokenizer
from slime.utils.types import Sample as Row

from .rows_source import Done, RowsSource, advantages
from .slime_checks import check

__all__ = ["AllocatedSource", "advantages", "generate_rollout"]


class AllocatedSource(RowsSource, RolloutDataSource):
    """slime's data source, with the allocator of its prompts."""

    engine, row = "slime", Row

    def check(self, args: Namespace) -> None:
        check(args)

    def tokenizer(self, args: Namespace) -> Any:
        return load_tokenizer(args.hf_checkpoint, trust_remote_code=True)

    def sampling_params(self) -> dict[str, Any]:
        return sglang_rollout.GenerateState(self.args).sampling_params

    async def generated(self, prompt: Row, params: dict[str, Any]) -> Done:
        # As in slime's groups: a router can send the turns of a session to the same engine.
        prompt.session_id = prompt.session_id or str(uuid.uuid4())
        return await sglang_rollout.generate_and_rm(self.args, prompt, params)

    async def group_rewards(self, rollouts: list[Done]) -> list[float | None]:
        return await batched_async_rm(self.args, rollouts)


def generate_rollout(
    args: Namespace, rollout_id: int, data_source: AllocatedSource, evaluation: bool = False
) -> Any:
    """slime's rollout function. Evaluation is slime's own; its accuracy goes beside the record."""
    if evaluation:
        told = sglang_rollout.generate_rollout(args, rollout_id, data_source, evaluation=True)
        data_source.evaluated(told.data if hasattr(told, "data") else told)
        return told
    return RolloutFnTrainOutput(*run(data_source.next_batch(rollout_id)))
