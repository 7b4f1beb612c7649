"""Agent loops of several turns, for tests with verl: one trajectory whatever its turns, and one for each turn."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput

#: What stands for a tool's answer: tokens that the model did not generate.
TOOL = [5, 6, 7]


class Turns(AgentLoopBase):
    """Up to three turns in one trajectory, with a tool's answer after each but the last."""

    def __init__(self, *arguments: Any, **named: Any):
        super().__init__(*arguments, **named)
        self.most = self.rollout_config.response_length

    async def turns(self, sampling_params: dict[str, Any], raw_prompt: Any) -> list[tuple[list[int], Any]]:
        """What the model was asked with, and its output, turn by turn."""
        ids = await self.ct_build_initial_tokens(list(raw_prompt))
        turns = []
        for turn in range(3):
            params = {**sampling_params, "max_tokens": 3}
            out = await self.server_manager.generate(
                request_id=uuid4().hex, prompt_ids=list(ids), sampling_params=params
            )
            turns.append((list(ids), out))
            if len(out.token_ids) % 2 == 1 or turn == 2:
                break
            ids += out.token_ids + TOOL
        return turns

    def output(
        self, prompt: list[int], said: list[int], mask: list[int], turns: int, extra: dict
    ) -> AgentLoopOutput:
        return AgentLoopOutput(
            prompt_ids=prompt,
            response_ids=said[: self.most],
            response_mask=mask[: self.most],
            response_logprobs=[-1.0 if own else 0.0 for own in mask[: self.most]],
            num_turns=2 * turns,
            metrics=AgentLoopMetrics(),
            extra_fields=dict(extra),
        )

    async def run(
        self, sampling_params: dict[str, Any], **row: Any
    ) -> AgentLoopOutput | list[AgentLoopOutput]:
        turns = await self.turns(sampling_params, row["raw_prompt"])
        said: list[int] = []
        mask: list[int] = []
        for i, (_, out) in enumerate(turns):
            said += out.token_ids
            mask += [1] * len(out.token_ids)
            if i + 1 < len(turns):
                said += TOOL
                mask += [0] * len(TOOL)
        return self.output(turns[0][0], said, mask, len(turns), turns[-1][1].extra_fields)


class Pieces(Turns):
    """The same turns, each of which is a trajectory of its own. The last one has the reward."""

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> list[AgentLoopOutput]:
        turns = await self.turns(sampling_params, row["raw_prompt"])
        return [
            self.output(asked, out.token_ids, [1] * len(out.token_ids), i + 1, out.extra_fields)
            for i, (asked, out) in enumerate(turns)
        ]
