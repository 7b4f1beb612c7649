"""What passes between sampling and TRL: answers, and the rows of a batch that TRL trains on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .allocator import Learn


@dataclass
class Answer:
    """What TRL needs for a rollout, from its sampling until it is trained on or discarded."""

    prompt_ids: list[int]
    #: With several turns, what tools and environments said stands between what the model did.
    completion_ids: list[int]
    #: From the sampler, if it reports them: vLLM does.
    logprobs: list[float] | None
    #: One from each reward function, NaN for none.
    rewards: list[float]
    #: Under the model that sampled it, if it may be trained on after a later update.
    logps: torch.Tensor | None = None
    #: 1 for each token of `completion_ids` that the model generated, 0 for others. None if it generated all.
    mask: list[int] | None = None
    #: Prompt and completion as TRL's table of completions shows them: text, or messages.
    prompt: Any = ""
    completion: Any = ""
    #: What reward functions say in further columns of that table.
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def generated(self) -> list[int]:
        """The mask of generated tokens."""
        return self.mask if self.mask is not None else [1] * len(self.completion_ids)


@dataclass
class Batch:
    """The rows that TRL trains on, of all processes: those of a plan, and filling, which is masked.

    TRL wants the same number of rows each time. Filling is a row of one masked token.
    """

    rows: list[Learn]
    #: Rows of each process.
    size: int
    process: int
    processes: int
    #: The filling's token.
    end: int
    mine: list[Learn] = field(init=False)

    def __post_init__(self) -> None:
        self.mine = self._part(self.process)

    def _part(self, process: int) -> list[Learn]:
        """The rows that a process trains on."""
        return self.rows[process :: self.processes]

    @property
    def filling(self) -> int:
        """How many of this process's rows are filling."""
        return self.size - len(self.mine)

    @property
    def inputs(self) -> list[dict[str, Any]]:
        """In place of rows of the data set."""
        return [{"prompt": row.answer.prompt} for row in self.mine] + [{"prompt": ""}] * self.filling

    def generated(self, *, told: bool) -> tuple[Any, ...]:
        """What TRL's own `_generate` returns. `told`: the sampler reports log-probabilities."""
        answers, filling = [row.answer for row in self.mine], self.filling
        prompt_ids = [a.prompt_ids for a in answers] + [[self.end]] * filling
        completion_ids = [a.completion_ids for a in answers] + [[self.end]] * filling
        mask = [a.generated for a in answers] + [[0]] * filling
        completions = [a.completion for a in answers] + [""] * filling
        logprobs = [a.logprobs for a in answers] + [[0.0]] * filling if told else None
        return prompt_ids, completion_ids, mask, completions, logprobs, {}, None, []

    def rewards(self, functions: int) -> list[list[float]]:
        """Those of each reward function, as TRL gathers them: process by process."""
        none, rewards = [float("nan")] * functions, []
        for process in range(self.processes):
            part = [row.answer.rewards for row in self._part(process)]
            rewards += part + [none] * (self.size - len(part))
        return rewards

    def extra(self) -> dict[str, list[Any]]:
        """Further columns of TRL's table of completions: the same columns in each process."""
        columns = {column: None for row in self.rows for column in row.answer.extra}
        filling = [None] * self.filling
        return {name: [row.answer.extra.get(name) for row in self.mine] + filling for name in columns}

    def advantages(self, scale: float) -> list[float]:
        """Those of this process's rows."""
        return [row.advantage * scale for row in self.mine] + [0.0] * self.filling

    def logps(self, like: torch.Tensor) -> torch.Tensor:
        """Log-probabilities under the weights that sampled each of this process's rows, in this shape."""
        logps = torch.zeros(like.shape, dtype=torch.float32)
        for i, row in enumerate(self.mine):
            logps[i, : len(row.answer.logps)] = row.answer.logps
        return logps.to(like.device)

    def tell(self, logs: dict[str, Any]) -> None:
        """Puts right what TRL's table of completions says of these rows: no filling, and the plan's advantages."""
        real = [i < len(self._part(p)) for p in range(self.processes) for i in range(self.size)]
        advantages = [row.advantage for p in range(self.processes) for row in self._part(p)]
        columns = [logs["prompt"], logs["completion"], logs["advantages"], *logs["rewards"].values()]
        for column in columns + [logs["extra"][name] for name in self.extra()]:
            kept = [column.pop() for _ in real][::-1]
            column.extend(value for value, here in zip(kept, real, strict=True) if here)
        for _ in advantages:
            logs["advantages"].pop()
        logs["advantages"].extend(advantages)


def lengths(dataset: Sequence[dict[str, Any]], tokenizer: Any, tools: Sequence[Any] = ()) -> list[int]:
    """Each prompt's length, in tokens, as an `Allocator` needs it.

    `tools` are what the chat template shows with each prompt: functions, the methods of an environment among them.
    """

    def length(prompt: Any) -> int:
        if isinstance(prompt, str):
            return len(tokenizer(text=prompt)["input_ids"])
        ids = tokenizer.apply_chat_template(
            prompt, tools=list(tools) or None, add_generation_prompt=True, tokenize=True, return_dict=True
        )
        return len(ids["input_ids"])

    # A data set without prompts: TRL's environments then say what the user says.
    nothing = [{"role": "user", "content": ""}]
    return [length(row.get("prompt", nothing)) for row in dataset]
