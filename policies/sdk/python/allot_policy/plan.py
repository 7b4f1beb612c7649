"""Plans, put together a line at a time.

What can't be a plan is refused where the author writes it, so that the traceback points there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

LARGEST = 2**32 - 1
"""Of the contract's whole numbers."""


@dataclass
class Request:
    """Some rollouts of one prompt, of the pool or of the groups."""

    prompt: int
    count: int
    """Rollouts to add to those on hand. At least 1."""

    def __post_init__(self) -> None:
        _whole([self.prompt], "a request's prompt")
        _whole([self.count], f"the count of the request for prompt {self.prompt}")


@dataclass
class Pick:
    """The rollouts of one group to train on: `Pick.all(prompt)` or `Pick.some(prompt, positions)`."""

    prompt: int
    rollouts: list[int] | None = None
    """Their positions in the group's lists, each once; None for all."""
    advantage: str | list[float] = "picked"
    """How rewards become advantages. "picked": measured against the mean and deviation of the
    rollouts picked. "group": against those of all the prompt's rollouts on hand. A list: the
    policy's own, one for each rollout picked, in that order."""
    weight: float = 1.0
    """Scales the group's advantages. From 0 to 1,000,000."""

    def __post_init__(self) -> None:
        _whole([self.prompt], "a pick's prompt")
        of = f"of the pick of prompt {self.prompt}"
        if self.rollouts is not None:
            self.rollouts = _whole(self.rollouts, f"a position {of}")
        if not isinstance(self.advantage, str):
            self.advantage = _numbers(self.advantage, f"an advantage {of}")
        elif self.advantage not in ("picked", "group"):
            raise ValueError(f'the advantage {of} is "picked", "group" or a list, not {self.advantage!r}')
        _numbers([self.weight], f"the weight {of}")

    @staticmethod
    def all(prompt: int, advantage: str | list[float] = "picked", weight: float = 1.0) -> Pick:
        """All rollouts of a prompt."""
        return Pick(prompt, None, advantage, weight)

    @staticmethod
    def some(
        prompt: int,
        positions: Iterable[int],
        advantage: str | list[float] = "picked",
        weight: float = 1.0,
    ) -> Pick:
        """Some rollouts of a prompt, by their positions in its group."""
        return Pick(prompt, list(positions), advantage, weight)


@dataclass
class Plan:
    """A policy's answer to a view: one that samples has `requests`, one that trains has `picks`."""

    requests: list[Request] | None = None
    """To serve first to last; None where the plan trains."""
    picks: list[Pick] | None = None
    """To train on in this order; None where the plan samples."""
    held: list[int] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)
    evicted: list[int] = field(default_factory=list)
    metrics: list[tuple[str, float]] = field(default_factory=list)
    state: bytes = b""
    """What to remember. The SDK fills it in."""

    def hold(self, prompts: Iterable[int]) -> Plan:
        """Keep the rollouts of these prompts on hand for the next step."""
        if self.picks is None:
            raise ValueError("`hold` on a plan that samples; such a plan lets nothing go")
        self.held += _whole(prompts, "a prompt to hold")
        return self

    def skip(self, prompts: Iterable[int]) -> Plan:
        """Pass over these prompts of the pool until the next epoch."""
        self.skipped += _whole(prompts, "a prompt to skip")
        return self

    def evict(self, prompts: Iterable[int]) -> Plan:
        """Never offer these prompts again in this run."""
        self.evicted += _whole(prompts, "a prompt to evict")
        return self

    def metric(self, name: str, value: float) -> Plan:
        """Log a number beside the run's own."""
        if not isinstance(name, str):
            raise TypeError(f"a metric's name is text, not {name!r}")
        _numbers([value], f"the metric `{name}`")
        self.metrics.append((name, float(value)))
        return self

    def check(self) -> None:
        """Whether it is a plan still, should its lists have been written to directly."""
        _each(self.requests or [], Request, "sample")
        _each(self.picks or [], Pick, "train")
        for prompts in (self.held, self.skipped, self.evicted):
            _whole(prompts, "a prompt to hold, skip or evict")


def sample(requests: Iterable[Request]) -> Plan:
    """Sample these, then ask again."""
    return Plan(requests=_each(requests, Request, "sample"))


def train(picks: Iterable[Pick]) -> Plan:
    """Train on these, and end the step."""
    return Plan(picks=_each(picks, Pick, "train"))


def _each(items: Iterable, kind: type, verb: str) -> list:
    items = list(items)
    for item in items:
        if not isinstance(item, kind):
            raise TypeError(f"`{verb}` takes a list of {kind.__name__}s; {item!r} is none")
    return items


# One look at the types and two at the ends: several times faster than a look at each number.
def _whole(numbers: Iterable[int], what: str) -> list[int]:
    numbers = list(numbers)
    if set(map(type, numbers)) - {int}:
        wrong = next(n for n in numbers if type(n) is not int)
        raise TypeError(f"{what} is a whole number, not {wrong!r}")
    if numbers and (min(numbers) < 0 or max(numbers) > LARGEST):
        wrong = next(n for n in numbers if not 0 <= n <= LARGEST)
        raise ValueError(f"{what} is from 0 to {LARGEST}, not {wrong}")
    return numbers


def _numbers(numbers: Iterable[float], what: str) -> list[float]:
    numbers = list(numbers)
    if set(map(type, numbers)) - {int, float}:
        wrong = next(n for n in numbers if type(n) not in (int, float))
        raise TypeError(f"{what} is a number, not {wrong!r}")
    return numbers
