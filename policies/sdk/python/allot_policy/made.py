"""Made views, groups and pasts, for the tests of policies."""

from __future__ import annotations

from collections.abc import Iterable

from .view import Budget, Group, Past, Prompt, View


def view(pool: Iterable[int] = (), groups: Iterable[Group] = (), round: int = 0) -> View:
    """A view of the first step: these prompts on offer, no limit."""
    budget = Budget(2**32 - 1, 2**32 - 1, 2**32 - 1, 2**64 - 1)
    return View(0, round, 1, budget, [prompt(id) for id in pool], list(groups))


def prompt(id: int, epoch: int = 0) -> Prompt:
    """A prompt never visited before."""
    return Prompt(id, epoch, 10, None)


def group(prompt: int, marks: list[int], age: int = 0) -> Group:
    """A group whose rewards are its marks: 1 for a correct rollout, 0 for another."""
    made = rewarded(prompt, [float(mark) for mark in marks], age)
    made.correct = [mark == 1 for mark in marks]
    return made


def rewarded(prompt: int, rewards: list[float], age: int = 0) -> Group:
    """A group of these rewards; a rollout is correct from 1 on."""
    n = len(rewards)
    correct = [reward >= 1 for reward in rewards]
    return Group(prompt, list(rewards), correct, [10] * n, [age] * n, [False] * n, [])


def past(correct: int, rollouts: int) -> Past:
    """The only visit of a prompt: so many of `rollouts` correct, rewards as `group` makes them."""
    p = correct / rollouts
    return Past(
        step=0,
        visits=1,
        rollouts=rollouts,
        correct=correct,
        mean=p,
        deviation=(p * (1 - p)) ** 0.5,
        tokens=10.0,
        streak=int(correct in (0, rollouts)),
        total_rollouts=rollouts,
        total_correct=correct,
    )
