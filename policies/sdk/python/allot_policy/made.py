"""Made views, groups, pasts and facts, for the tests of policies."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping

from . import facts as _facts
from .view import Budget, Group, Past, Prompt, Turn, View


def view(pool: Iterable[int] = (), groups: Iterable[Group] = (), round: int = 0) -> View:
    """A view of the first step: these prompts on offer, no limit."""
    budget = Budget(2**32 - 1, 2**32 - 1, 2**32 - 1, 2**64 - 1, sys.float_info.max)
    return View(0, round, 1, budget, [prompt(id) for id in pool], list(groups), [], [])


def prompt(id: int, epoch: int = 0) -> Prompt:
    """A prompt never visited before."""
    return Prompt(id, epoch, 10, None)


def group(prompt: int, marks: list[int], age: int = 0) -> Group:
    """A group whose rewards are its marks: 1 for a correct rollout, 0 for another."""
    made = rewarded(prompt, [float(mark) for mark in marks], age)
    made.correct = [mark == 1 for mark in marks]
    return made


def rewarded(prompt: int, rewards: list[float], age: int = 0) -> Group:
    """A group of these rewards; a rollout is correct from 1 on. What only policies that need it are
    shown is empty: set `signals`, `parts`, `trained` and `sampling`; `episodes` has turns."""
    n = len(rewards)
    correct = [reward >= 1 for reward in rewards]
    own = (list(rewards), correct, [10] * n, [age] * n, [False] * n)
    return Group(prompt, 0, *own, [], [], [], [], [], [], [])


def episodes(prompt: int, marks: list[int], turns: list[list[tuple[int, int]]], age: int = 0) -> Group:
    """A group as `group` makes it, of episodes: for each rollout its turns, each as the tokens read before
    it and those generated in it. Their environment ended them, and all began with the prompt: set
    `stopped` and `origins` where that is another."""
    if len(turns) != len(marks):
        raise ValueError(f"turns of {len(turns)} rollouts for {len(marks)} marks")
    made = group(prompt, marks, age)
    made.turns = [[Turn(read, tokens) for read, tokens in rollout] for rollout in turns]
    made.lengths = [sum(turn.tokens for turn in rollout) for rollout in made.turns]
    made.stopped, made.origins = ["done"] * len(marks), [None] * len(marks)
    return made


def past(correct: int, rollouts: int) -> Past:
    """The only visit of a prompt: so many of `rollouts` correct, rewards as `group` makes them."""
    p = correct / rollouts
    variance = p * (1 - p) * rollouts / max(rollouts - 1, 1)
    return Past(
        step=0,
        visits=1,
        rollouts=rollouts,
        correct=correct,
        mean=p,
        std=variance**0.5,
        mean_length=10.0,
        streak=int(correct in (0, rollouts)),
        total_rollouts=rollouts,
        total_correct=correct,
    )


def facts(
    prompts: int,
    past: Mapping[int, Past] | None = None,
    columns: Mapping[str, Iterable[float]] | None = None,
    costs: tuple[float, float, float] = (0.0, 0.0, 0.0),
) -> None:
    """From now on `facts` answers these: the last visits of a data set of so many prompts, its columns
    with the same number of numbers for each prompt, and what a token takes."""
    numbers = {name: list(column) for name, column in (columns or {}).items()}
    for name, column in numbers.items():
        if len(column) % max(prompts, 1):
            raise ValueError(f"the column `{name}` has {len(column)} numbers for {prompts} prompts")
    _facts.told = _facts.Told(prompts, dict(past or {}), numbers, _facts.TokenCosts(*costs))
