"""miles: its rollout function, data source and advantages, under a policy. Written for miles 0.1.0, synchronous.

    python -m allot.miles_train train.py … --data-source-path allot.miles.AllocatedSource \\
        --rollout-function-path allot.miles.AllocatedRollouts \\
        --custom-reward-post-process-path allot.miles.advantages \\
        --custom-config-path allot.yaml

    # allot.yaml
    allot: {policy: pilot-commit, settings: {pilot: 4, commit: 12}, groups: 16, rollouts: 16, budget: {rollouts: 20000}}

miles is slime's fork: what is equal in both is in `rows_source`. Rollouts are generated and judged by miles' own functions,
with counts that differ from prompt to prompt.
"""

from __future__ import annotations

import uuid
from argparse import Namespace
from typing import Any

from miles.rollout.base_types import (
    RolloutFnConstructorInput,
    RolloutFnEvalOutput,
    RolloutFnInput,
    RolloutFnTrainOutput,
)
from miles.rollout.data_source import RolloutDataSource
from miles.rollout.generate_utils.generate_endpoint_utils import policy_uses_routing_key
from miles.rollout.inference_rollout.inference_rollout_common import (
    GenerateState,
    InferenceRolloutFn,
    generate_and_rm,
)
from miles.rollout.rm_hub import batched_async_rm
from miles.utils.processing_utils import load_tokenizer
from miles.utils.types import Sample as Row

from .miles_checks import check, check_rows
from .rows_source import Done, RowsSource, advantages

__all__ = ["AllocatedRollouts", "AllocatedSource", "advantages"]


class AllocatedSource(RowsSource, RolloutDataSource):
    """miles' data source, with the allocator of its prompts."""

    engine, row = "miles", Row
    #: What generates: `AllocatedRollouts` sets it.
    state: GenerateState

    def check(self, args: Namespace) -> None:
        check(args)

    def tokenizer(self, args: Namespace) -> Any:
        return load_tokenizer(
            args.hf_checkpoint, chat_template_path=args.chat_template_path, trust_remote_code=True
        )

    def sampling_params(self) -> dict[str, Any]:
        return self.state.sampling_params

    async def generated(self, prompt: Row, params: dict[str, Any]) -> Done:
        if policy_uses_routing_key(self.args):
            prompt.routing_key = prompt.routing_key or str(uuid.uuid4())
        return await generate_and_rm(self.state, prompt, params)

    async def group_rewards(self, rollouts: list[Done]) -> list[float | None]:
        return await batched_async_rm(self.args, rollouts)

    async def next_batch(self, number: int) -> tuple[list[list[Row]], dict[str, Any]]:
        groups, metrics = await super().next_batch(number)
        check_rows(self.args, groups)
        return groups, metrics


class AllocatedRollouts(InferenceRolloutFn):
    """miles' rollout function. Evaluation is miles' own; its accuracy goes beside the record."""

    def __init__(self, input: RolloutFnConstructorInput):
        super().__init__(input)
        self.data_source.state = self.state

    async def __call__(self, input: RolloutFnInput) -> RolloutFnTrainOutput | RolloutFnEvalOutput:
        if input.evaluation:
            told = await self._call_eval(input)
            self.data_source.evaluated(told.data)
            return told
        return RolloutFnTrainOutput(*await self.data_source.next_batch(input.rollout_id))
