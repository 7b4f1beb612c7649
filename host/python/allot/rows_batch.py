"""Rollouts of one or several rows, as the allocator is told of them, and as optimizer steps need them.

For slime and its fork miles. What they call a `Sample` is a row here: a rollout may have several. Both give each rollout of
a step the same part in the loss, however many rows it has: its rows share a `rollout_id`, a token of it weighs 1 / (all its
tokens), and the sum is divided by `global_batch_size`, the rollouts of a step. With `calculate_per_token_loss` all tokens
of a step weigh the same, and a row without a loss counts as one token.
"""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Callable
from typing import Any, TypeAlias

from .allocator import Learn, Rollout
from .errors import Error
from .rows_checks import rows_of_a_step

#: A `Sample` of slime or miles.
Row: TypeAlias = Any

#: Where a row's advantage is, in its metadata.
ADVANTAGE = "allot_advantage"

#: The states of a row that can be learned from.
WHOLE = ("completed", "truncated")


def is_whole(rows: list[Row]) -> bool:
    """Whether a rollout came to its end."""
    return bool(rows) and all(row.status.value in WHOLE for row in rows)


def told(args: Namespace, rows: list[Row], how: str, correct_above: float) -> Rollout:
    """A rollout, as the allocator is told of it. `how` says what its rows' rewards mean."""
    reward = _reward(args, rows, how) if is_whole(rows) else None
    return Rollout(
        reward=reward,
        # What the model did not generate itself, a loss mask leaves out: prompts, results of tools, history told again.
        tokens=sum(row.effective_response_length for row in rows),
        correct=reward is not None and reward > correct_above,
        truncated=any(row.status.value == "truncated" for row in rows),
        answer=rows,
    )


def _reward(args: Namespace, rows: list[Row], how: str) -> float | None:
    if any(row.reward is None for row in rows):
        return None
    rewards = [float(row.get_reward_value(args)) for row in rows]
    if not all(map(math.isfinite, rewards)):
        return None
    if how == "sum":
        return sum(rewards)
    if how == "same" and any(reward != rewards[0] for reward in rewards):
        given = ", ".join(f"{reward:g}" for reward in rewards[:8])
        raise Error(
            f"the {len(rows)} rows of a rollout have different rewards: {given}",
            "say what the rollout's is, in the section `allot`: `row_rewards: sum` or `row_rewards: last`",
        )
    return rewards[-1]


def filled(args: Namespace, rollouts: list[Learn], sibling: Callable[[Row], Row]) -> list[list[Row]]:
    """The rows of a batch, by prompt, with the rows without a loss that steps lack. `sibling` copies a row."""
    groups: dict[int, list[Learn]] = {}
    for learn in rollouts:
        groups.setdefault(learn.prompt, []).append(learn)
    # Steps take rollouts in the order of their first rows.
    ordered = [learn for group in groups.values() for learn in group]
    size, even = args.global_batch_size, rows_of_a_step(args)
    shortest = min((row for learn in ordered for row in learn.answer), key=lambda row: len(row.tokens))
    spare: list[Row] = []
    for first in range(0, len(ordered), size):
        step = ordered[first : first + size]
        rows = sum(len(learn.answer) for learn in step)
        missing = size - len(step)
        blank = missing + -(rows + missing) % even
        scale = _scale(args, step, blank, len(ordered))
        for learn in step:
            for row in learn.answer:
                # Rows that were copied from one another may share theirs.
                row.metadata = {**(row.metadata or {}), ADVANTAGE: learn.advantage * scale}
        for i in range(blank):
            row = sibling(shortest)
            row.remove_sample, row.metadata = True, {**(row.metadata or {}), ADVANTAGE: 0.0}
            # A rollout of its own where one is missing; else a further row of one that is there, which adds nothing.
            row.rollout_id = row.index if i < missing else step[-1].answer[-1].rollout_id
            spare.append(row)
    by_prompt = [[row for learn in group for row in learn.answer] for group in groups.values()]
    return [*by_prompt, *([spare] if spare else [])]


def _scale(args: Namespace, step: list[Learn], blank: int, rollouts: int) -> float:
    """What advantages are multiplied by, so that the loss is that without the filling."""
    if args.calculate_per_token_loss:
        tokens = sum(max(_learned(row), 1) for learn in step for row in learn.answer)
        return (tokens + blank) / tokens
    size = args.global_batch_size
    return -(-rollouts // size) * size / rollouts


def _learned(row: Row) -> int:
    return 0 if row.remove_sample else row.effective_response_length
