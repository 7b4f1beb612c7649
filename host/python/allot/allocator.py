"""A run without sampling and updates: pool, rollout buffer, budget ledger, policy, rules, advantages, record.

    for order in allocator:
        match order:
            case Sample(draws=draws):
                allocator.sampled([...])  # a Rollout for each that was granted, in order
            case Train(rollouts=batch):
                ...                       # an update on their answers, with these advantages
                allocator.trained()

It does not depend on any trainer: an answer is whatever the trainer passes with a rollout. It is kept while
the rollout is buffered, and returned in the batch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import Any

from . import _allot, evaluations
from .errors import Error

logger = logging.getLogger("allot.allocator")


@dataclass(frozen=True)
class Sampling:
    """How to sample rollouts, where the policy chose it: `requests` of the run."""

    temperature: float
    #: The longest answer, in tokens.
    max_tokens: int


@dataclass(frozen=True)
class Draw:
    """Rollouts of one prompt to sample."""

    prompt: int
    count: int
    #: A seed for each, from prompt, weights and position: runs with the same seed that use them are paired.
    seeds: list[int]
    #: How to sample them; None for the run's own way.
    sampling: Sampling | None = None


@dataclass(frozen=True)
class Sample:
    """Sample these, and pass the results to `Allocator.sampled`."""

    step: int
    round: int
    draws: list[Draw]
    #: Rollouts that the policy asked for: more than `count` if the budget does not allow all of them.
    asked: int | None = None

    @property
    def count(self) -> int:
        """The total number of rollouts."""
        return sum(draw.count for draw in self.draws)


@dataclass(frozen=True)
class Rollout:
    """A sampled rollout. Without a reward it is unscorable: it is paid for, and no policy sees it."""

    reward: float | None
    tokens: int
    correct: bool
    truncated: bool = False
    signals: Mapping[str, float] = field(default_factory=dict)
    answer: Any = None


@dataclass(frozen=True)
class Learn:
    """A rollout to train on."""

    id: int
    prompt: int
    #: Model updates since it was sampled.
    age: int
    advantage: float
    answer: Any


@dataclass(frozen=True)
class Train:
    """Update the model on these, and call `Allocator.trained`. If empty: a step without an update."""

    step: int
    round: int
    rollouts: list[Learn]
    #: Prompts whose other rollouts stay buffered, for later updates.
    hold: list[int]
    #: How to update: {"mini_batch": rollouts in each optimizer step, "passes": passes over the batch}. None for the
    #: trainer's own way.
    update: dict[str, int] | None = None


@dataclass(frozen=True)
class Over:
    """The run is over."""

    reason: str


class Allocator:
    """A run that a trainer drives."""

    def __init__(
        self,
        policy: str | _allot.Policy,
        lengths: Sequence[int],
        *,
        steps: int,
        groups: int,
        rollouts: int,
        longest: int,
        seed: int = 0,
        settings: Mapping[str, Any] | None = None,
        budget: Mapping[str, int] | None = None,
        advantage: Mapping[str, Any] | None = None,
        pool: int | None = None,
        max_age: int = 5,
        order: str = "shuffled",
        signals: Sequence[str] = (),
        update: Mapping[str, int] | None = None,
        columns: Mapping[str, Sequence[Any]] | Callable[[str], Sequence[Any]] | None = None,
        temperature: float = 1.0,
        requests: Mapping[str, Any] | None = None,
        replay: bool = True,
        parameters: int | None = None,
        record: str | PathLike[str] | None = None,
        engine: str = "python",
        training: Any = None,
        name: str | None = None,
    ):
        """A run over prompts of these lengths, in tokens, with answers of at most `longest` tokens.

        The other names and their defaults are those of a config's [run], [budget] and [advantage].
        `record` is the run's folder. `signals` are what the trainer measures for each rollout. `update` says how the
        trainer updates, {"mini_batch": rollouts in an optimizer step, "passes": passes over a batch}, if it lets a
        policy change that: it then does as `Train.update` says. `columns` are those of the data set that a policy may
        ask for: by name, for each prompt a number, a word or a list of numbers; or a function that gives a column by
        its name. `temperature` is the run's own. `requests` says what a policy may choose for the rollouts that it asks
        for, {"temperature": [lowest, highest], "least_tokens": smallest length limit}, either or both, if the trainer
        samples as `Draw.sampling` says. `replay` says whether the trainer can train on a rollout again after an update on
        it, which it gets as any other, with its answer. `parameters` are those of the model that compute a token (of experts the active ones), for policies
        that weigh what sampling costs against learning: 2 operations for each and a token read or generated, 6 for one
        learned from in each pass, its prompt's included.
        """
        self.policy = (
            policy if isinstance(policy, _allot.Policy) else _allot.Policy(policy, dict(settings or {}))
        )
        if settings is not None and self.policy is policy:
            raise Error("`settings` are given beside a policy that has its own", "give them to Policy(…)")
        #: The maximum length of an answer, in tokens.
        self.longest = longest
        #: The run's sampling temperature, and what a policy may choose by request.
        self.temperature, self.requests = float(temperature), dict(requests) if requests else None
        #: The number of prompts, and of the rollouts that a step trains on if all goes as the run's numbers say.
        self.prompts, self.batch = len(lengths), groups * rollouts
        #: The run's folder, if it has one.
        self.record = None if record is None else fspath(record)
        #: Whether the trainer updates as `Train.update` says.
        self.updates_as_told = update is not None
        #: Unscorable rollouts of the current step, and the waste of the last one, None if nothing became known.
        self._unscorable, self._waste = 0, None
        #: Buffered rollouts that were trained on before.
        self._again: set[int] = set()
        #: The signals that the policy needs for each rollout.
        self.signals: list[str] = self.policy.describe()["signals"]
        self._answers: dict[int, Any] = {}
        #: Requests that the budget clipped, and how many there were at the last warning.
        self._clipped, self._clipped_told = 0, 0
        self._picked: list[Learn] = []
        #: Whether anything was ordered: the record then has its first line.
        self._begun = False
        self._native = _allot.Allocator(
            self.policy,
            {
                "name": name,
                "seed": seed,
                "steps": steps,
                "groups": groups,
                "rollouts": rollouts,
                "pool": pool,
                "max_age": max_age,
                "order": order,
                "lengths": [int(length) for length in lengths],
                "longest": longest,
                "budget": dict(budget or {}),
                "advantage": dict(advantage or {}),
                "signals": list(signals),
                "update": None if update is None else dict(update),
                "columns": self._wanted(columns or {}),
                "temperature": self.temperature,
                "requests": self.requests,
                "replay": replay,
                "parameters": None if parameters is None else int(parameters),
                "engine": engine,
                "training": training,
                "folder": self.record,
            },
        )

    def _wanted(
        self, columns: Mapping[str, Sequence[Any]] | Callable[[str], Sequence[Any]]
    ) -> dict[str, list[Any]]:
        """Those that the policy asks for, in plain Python. Others are not looked at."""
        names: list[str] = self.policy.describe()["columns"]
        if callable(columns):
            # The lengths are told by themselves.
            found = {name: columns(name) for name in names if name != "length"}
        else:
            found = {name: columns[name] for name in names if name in columns}
        return {name: [_plain(value) for value in _plain(column)] for name, column in found.items()}

    def __iter__(self) -> Iterator[Sample | Train]:
        while not isinstance(order := self.next(), Over):
            yield order

    def next(self) -> Sample | Train | Over:
        """What to do next. Sample only what it says."""
        self._begun = True
        order = self._native.next()
        if order["kind"] == "over":
            return Over(order["reason"])
        if order["kind"] == "sample":
            draws = [_draw(**draw) for draw in order["draws"]]
            sample = Sample(order["step"], order["round"], draws, order["asked"])
            self._tell_if_clipped(sample)
            return sample
        self._picked = [Learn(**learn, answer=self._answers.get(learn["id"])) for learn in order["rollouts"]]
        return Train(order["step"], order["round"], list(self._picked), order["hold"], order["update"])

    def _tell_if_clipped(self, sample: Sample) -> None:
        """Warns at the first request that the budget clipped, and after 10, 100, 1,000 and so on."""
        if sample.asked is None or sample.asked <= sample.count:
            return
        self._clipped += 1
        if self._clipped >= 10 * self._clipped_told:
            self._clipped_told = self._clipped
            what = "step %d asked for %d rollouts and was granted %d: the budget leaves no more"
            logger.warning(what, sample.step + 1, sample.asked, sample.count)

    def sampled(self, rollouts: Sequence[Rollout]) -> None:
        """Takes what was sampled: a rollout for each that was granted, draw by draw."""
        told = [self._told(rollout) for rollout in rollouts]
        first, on_hand = self._native.sampled(told)
        self._unscorable += sum(rollout.reward is None for rollout in rollouts)
        for i, (rollout, there) in enumerate(zip(rollouts, on_hand, strict=True)):
            if there:
                self._answers[first + i] = rollout.answer

    def _told(self, rollout: Rollout) -> dict[str, Any]:
        missing = [name for name in self.signals if name not in rollout.signals]
        if missing:
            raise Error(f"a rollout comes without the signal `{missing[0]}`, which the policy wants")
        return {
            "reward": None if rollout.reward is None else float(rollout.reward),
            "correct": bool(rollout.correct),
            "tokens": int(rollout.tokens),
            "truncated": bool(rollout.truncated),
            "signals": [float(rollout.signals[name]) for name in self.signals],
        }

    def trained(
        self,
        *,
        updated: bool | None = None,
        metrics: Mapping[str, float] | None = None,
        accuracy: float | None = None,
    ) -> dict[str, Any]:
        """Ends the step after its batch, and returns the step as the record has it.

        `updated` says whether the model changed, which ages rollouts. By default True if there was a batch.
        """
        updated = bool(self._picked) if updated is None else updated
        told = self._native.trained(updated, [(k, float(v)) for k, v in (metrics or {}).items()], accuracy)
        for kind in ("finished", "released", "stale"):
            for rollout in told["settled"][kind]:
                self._answers.pop(rollout, None)
        step: dict[str, Any] = told["step"]
        first = [learn for learn in self._picked if learn.id not in self._again]
        learned = sum(learn.advantage != 0.0 for learn in first)
        self._waste, self._unscorable = _waste(step, len(first), learned, self._unscorable), 0
        # Those that stay may be trained on again, which decides nothing about them.
        self._again = (self._again | {learn.id for learn in self._picked}) & self._answers.keys()
        self._picked = []
        return step

    def scored(self, accuracy: float, scores: Mapping[str, float] | None = None) -> None:
        """Records an accuracy of the model as it is: before the first step, after `trained`, or after the end.

        It is the share of right answers, from 0 to 1; `scores` are its parts, by name. Without a record nothing is kept.
        """
        evaluations.check(accuracy)
        if self._picked:
            raise Error("an accuracy in the middle of an update belongs to no step", "tell it after trained(…)")
        if self._begun or self.steps > 0:
            if self.record is not None:
                evaluations.evaluated(self.record, self.steps, accuracy, scores)
        else:
            self._native.scored(accuracy)

    def on_hand(self, prompt: int) -> dict[int, Any]:
        """The buffered answers of a prompt, by the numbers of their rollouts."""
        return {rollout: self._answers.get(rollout) for rollout in self._native.on_hand(prompt)}

    @property
    def over(self) -> str | None:
        """Why the run is over, or None."""
        return self._native.over

    @property
    def steps(self) -> int:
        """Steps finished."""
        return self._native.steps

    @property
    def version(self) -> int:
        """Model updates so far."""
        return self._native.version

    @property
    def spent(self) -> dict[str, int]:
        """What was spent: run_rollouts and run_tokens, and in the current step rounds and step_rollouts."""
        return self._native.spent

    def metrics(self, step: Mapping[str, Any] | None = None) -> dict[str, float]:
        """For a trainer's log, as allot/NAME: what was spent so far, and of a step what `trained` told of it.

        `waste` is of the rollouts whose fate the last step decided: the share not trained on with an advantage.
        """
        names = ("reward", "trained", "effective", "released", "flat", "held", "stale") if step else ()
        told = {"rollouts": self.spent["run_rollouts"], "tokens": self.spent["run_tokens"]}
        told |= {name: step[name] for name in names}
        if step and self._waste is not None:
            told["waste"] = self._waste
        return {f"allot/{name}": float(value) for name, value in told.items()}

    @property
    def groups(self) -> list[_allot.Group]:
        """The buffered rollouts, as the policy sees them."""
        return self._native.groups

    def state_dict(self) -> dict[str, Any]:
        """The whole state, between two steps, for a checkpoint beside the model's. Answers are as passed in."""
        return {"run": self._native.save(), "answers": dict(self._answers), "again": sorted(self._again)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from this state. The record is truncated to it."""
        self._native.load(state["run"])
        if self.record is not None:
            evaluations.cut(self.record, self.steps)
        self._answers, self._again = dict(state["answers"]), set(state.get("again", ()))
        self._picked = []


def _draw(sampling: Mapping[str, Any] | None, **draw: Any) -> Draw:
    if sampling is None:
        return Draw(**draw)
    return Draw(**draw, sampling=Sampling(sampling["temperature"], sampling["max_tokens"]))


def _waste(step: Mapping[str, Any], trained: int, learned: int, unscorable: int) -> float | None:
    """Of the rollouts whose fate a step decided, the share not trained on with an advantage. None if it decided none.

    `trained` are those that were trained on for the first time, `learned` those of them with an advantage.
    """
    known: int = trained + step["released"] + step["stale"] + unscorable
    return 1.0 - learned / known if known else None


def _plain(values: Any) -> Any:
    """An array, or a number of one, as Python's own."""
    return values.tolist() if hasattr(values, "tolist") else values
