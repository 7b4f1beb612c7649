"""Plans, put together a line at a time.

What can't be a plan is refused where the author writes it, so that the traceback points there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from .view import Sampling, Update

LARGEST = 2**32 - 1
"""Of the contract's whole numbers."""


@dataclass
class Enough:
    """When a request is answered before its count is reached: after the portion by which so many of
    its rollouts are correct and so many wrong."""

    correct: int
    wrong: int
    portion: int
    """Rollouts in a portion. At least 1, and at least a 256th of the request's count."""

    def __post_init__(self) -> None:
        _whole([self.correct, self.wrong, self.portion], "what is enough")


@dataclass
class Start:
    """A buffered rollout of the request's prompt, and where a new rollout leaves it. What is kept of it is
    read and not generated, and is learned from only in the rollout that generated it."""

    rollout: int
    """Its position in the group's lists."""
    turn: int
    """The last of its turns that is kept, from 0. Never its last turn of all, which ended the episode."""

    def __post_init__(self) -> None:
        _whole([self.rollout], "a rollout to start from")
        _whole([self.turn], "a turn to start from")


@dataclass
class Request:
    """Some rollouts of one prompt, of the pool or of the groups; with `needs = ["any-prompt"]` of the
    data set."""

    prompt: int
    count: int
    """Rollouts to add to those buffered. At least 1."""
    until: Enough | None = None
    """When fewer are enough. With `needs = ["stopping"]`."""
    sampling: Sampling | None = None
    """How to sample them, within `run.sampling`; None for the run's default. With
    `needs = ["sampling"]`."""
    starts: list[Start | None] = field(default_factory=list)
    """What the rollouts continue: one entry for each of `count`, in order, a `Start` or its two numbers,
    None for a rollout that begins with the prompt. Empty if all of them do. With
    `needs = ["starting"]`."""

    def __post_init__(self) -> None:
        _whole([self.prompt], "a request's prompt")
        _whole([self.count], f"the count of the request for prompt {self.prompt}")
        of = f"of the request for prompt {self.prompt}"
        if self.until is not None and not isinstance(self.until, Enough):
            raise TypeError(f"`until` {of} is an Enough or None, not {self.until!r}")
        if self.sampling is not None:
            if not isinstance(self.sampling, Sampling):
                raise TypeError(f"`sampling` {of} is a Sampling or None, not {self.sampling!r}")
            _numbers([self.sampling.temperature], f"the temperature {of}")
            _whole([self.sampling.max_tokens], f"the length limit {of}")
            _whole([self.sampling.max_turns], f"the limit of turns {of}")
        self.starts = [_start(start, of) for start in self.starts]
        if self.starts and len(self.starts) != self.count:
            raise ValueError(f"`starts` {of} has one entry for each of {self.count}, not {len(self.starts)}")


@dataclass
class Among:
    """Advantages measured against the mean and std of the rollouts at these positions, picked or not:
    `Pick.some(prompt, [0, 1], advantage=Among([0, 1, 2, 3]))`."""

    rollouts: list[int]

    def __post_init__(self) -> None:
        self.rollouts = _whole(self.rollouts, "a position to measure against")


@dataclass
class Hold:
    """Rollouts of one group that stay buffered."""

    prompt: int
    rollouts: list[int] | None = None
    """Their positions in the group's lists, each once; None for all that the plan does not pick. With
    `needs = ["replay"]` those picked may be among them."""

    def __post_init__(self) -> None:
        _whole([self.prompt], "a prompt to hold")
        if self.rollouts is not None:
            self.rollouts = _whole(self.rollouts, f"a position to hold of prompt {self.prompt}")


@dataclass
class Pick:
    """The rollouts of one group to train on: `Pick.all(prompt)` or `Pick.some(prompt, positions)`."""

    prompt: int
    rollouts: list[int] | None = None
    """Their positions in the group's lists, each once; None for all."""
    advantage: str | Among | list[float] | list[list[float]] = "picked"
    """How rewards become advantages. "picked": measured against the mean and std of the rollouts
    picked. "group": against those of all the prompt's buffered rollouts. `Among`: against those at its
    positions. A list: the policy's own, one for each rollout picked, in that order. A list of lists: the
    policy's own, for each rollout picked one for each of its turns, with `needs = ["turns"]`."""
    weight: float = 1.0
    """Scales the group's advantages. From 0 to 1,000,000."""

    def __post_init__(self) -> None:
        _whole([self.prompt], "a pick's prompt")
        of = f"of the pick of prompt {self.prompt}"
        if self.rollouts is not None:
            self.rollouts = _whole(self.rollouts, f"a position {of}")
        if isinstance(self.advantage, Among):
            pass
        elif not isinstance(self.advantage, str):
            self.advantage = _advantages(self.advantage, of)
        elif self.advantage not in ("picked", "group"):
            known = '"picked", "group", an Among, a list or a list of lists'
            raise ValueError(f"the advantage {of} is {known}, not {self.advantage!r}")
        _numbers([self.weight], f"the weight {of}")

    @property
    def by_turn(self) -> bool:
        """Whether its advantages are the policy's own, by turn."""
        return isinstance(self.advantage, list) and any(type(one) is list for one in self.advantage[:1])

    @staticmethod
    def all(
        prompt: int,
        advantage: str | Among | list[float] | list[list[float]] = "picked",
        weight: float = 1.0,
    ) -> Pick:
        """All rollouts of a prompt."""
        return Pick(prompt, None, advantage, weight)

    @staticmethod
    def some(
        prompt: int,
        positions: Iterable[int],
        advantage: str | Among | list[float] | list[list[float]] = "picked",
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
    held: list[int | Hold] = field(default_factory=list)
    updated: Update | None = None
    """How the update is made; None for the run's own way."""
    skipped: list[int] = field(default_factory=list)
    deferred: list[int] = field(default_factory=list)
    evicted: list[int] = field(default_factory=list)
    metrics: list[tuple[str, float]] = field(default_factory=list)
    state: bytes = b""
    """What to remember. The SDK fills it in."""

    def hold(self, prompts: Iterable[int | Hold]) -> Plan:
        """Keep the rollouts of these prompts buffered for the next step: all that the plan does not
        pick, or those of a `Hold`."""
        if self.picks is None:
            raise ValueError("`hold` on a plan that samples; such a plan discards nothing")
        self.held += _held(prompts)
        return self

    def update(self, update: Update) -> Plan:
        """Update the model in this way. With `needs = ["updating"]`."""
        if self.picks is None:
            raise ValueError("`update` on a plan that samples; such a plan makes none")
        self.updated = update
        return self

    def skip(self, prompts: Iterable[int]) -> Plan:
        """Pass over these prompts of the pool until the next epoch."""
        self.skipped += _whole(prompts, "a prompt to skip")
        return self

    def defer(self, prompts: Iterable[int]) -> Plan:
        """Put these prompts of the pool back: they come on offer again in this epoch, after all
        others of it."""
        self.deferred += _whole(prompts, "a prompt to defer")
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
        _held(self.held)
        for prompts in (self.skipped, self.deferred, self.evicted):
            _whole(prompts, "a prompt to skip, defer or evict")
        if self.updated is not None:
            _whole([self.updated.mini_batch, self.updated.passes], "the geometry of an update")


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


def _held(holds: Iterable[int | Hold]) -> list[int | Hold]:
    holds = list(holds)
    _whole([hold for hold in holds if not isinstance(hold, Hold)], "a prompt to hold")
    return holds


def _start(start: Start | tuple[int, int] | None, of: str) -> Start | None:
    if start is None or isinstance(start, Start):
        return start
    if not isinstance(start, (tuple, list)) or len(start) != 2:
        raise TypeError(f"an entry of `starts` {of} is a Start, its two numbers or None, not {start!r}")
    return Start(*start)


def _advantages(own: Iterable, of: str) -> list[float] | list[list[float]]:
    own = list(own)
    if not own or not isinstance(own[0], (list, tuple)):
        return _numbers(own, f"an advantage {of}")
    for turns in own:
        if not isinstance(turns, (list, tuple)):
            raise TypeError(f"the advantages {of} are a list of numbers for each rollout; {turns!r} is none")
    return [_numbers(turns, f"an advantage {of}") for turns in own]


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
