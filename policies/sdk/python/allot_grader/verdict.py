"""What a grader is asked, and what it says."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class Question:
    """An answer to be judged."""

    prompt: str = ""
    """The problem, before any template or chat."""
    source: str = ""
    """Where the problem comes from, as the run's config or the data set says."""
    gold: list[str] = field(default_factory=list)
    """What the data set has as the problem's answer. Of several, any is right."""
    answer: str = ""
    """What the model said."""


@dataclass
class Verdict:
    """What is said of an answer. `correct`, `reward`, `in_parts` and `unscorable` make one."""

    correct: bool | None = None
    """Whether it is right. None leaves it to the run."""
    reward: float | None = None
    """What it is worth; None for the run's reward of a right answer, or of a wrong one."""
    parts: dict[str, float] | None = None
    """Or what its parts are worth."""
    reason: str | None = None
    """Why it can't be judged."""


def correct(right: bool) -> Verdict:
    """The run's reward of a right answer, or of a wrong one."""
    return Verdict(correct=_truth(right))


def reward(value: float, correct: bool | None = None) -> Verdict:
    """This much, and whether the answer is right. Without it the run says from which reward on it is."""
    return Verdict(_truth(correct), reward=_number(value, "a reward"))


def in_parts(values: Mapping[str, float], correct: bool | None = None) -> Verdict:
    """A reward in parts: each that the module's `parts` names."""
    return Verdict(_truth(correct), parts={name: _number(x, f"the part `{name}`") for name, x in values.items()})


def unscorable(reason: str) -> Verdict:
    """No verdict, and why not, in one line."""
    return Verdict(reason=str(reason))


def _truth(right: bool | None) -> bool | None:
    if right is not None and type(right) is not bool:
        raise TypeError(f"whether an answer is right is True or False, not {right!r}")
    return right


def _number(value: float, what: str) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise TypeError(f"{what} is a finite number, not {value!r}")
    return float(value)
