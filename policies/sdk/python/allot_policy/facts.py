"""What the host knows of the data set's prompts, on offer or not: a list with an entry for each prompt
asked about.

    visits = facts.counts("visits")                # of all prompts
    levels = facts.column("level", range(10, 20))  # of a range
    means = facts.measures("mean", [7, 3])         # of these

To be asked within `decide`. A policy that asks about a prompt that the data set does not have, or for
a column that it does not describe, ends the run. Natively the answers are those of `made.facts`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .view import Past

try:
    from wit_world.imports import facts as host
except ImportError:
    host = None

COUNTS = ("visits", "step", "rollouts", "correct", "streak", "total_rollouts", "total_correct")
"""Counts of past visits, as in `Past`."""
MEASURES = ("mean", "std", "mean_length")
"""Means of the last visit, as in `Past`."""


@dataclass
class TokenCosts:
    """What a token takes, in floating-point operations. 0 where nothing is computed."""

    reading: float
    """Of reading a prompt, once for all of its rollouts in a plan."""
    generating: float
    """Of generating an answer."""
    learning: float
    """Of learning from an answer, in all passes of the run's own update."""


def counts(what: str, of: Iterable[int] | None = None) -> list[int]:
    """Counts of past visits, one of `COUNTS`. 0 for a prompt without any."""
    if what not in COUNTS:
        raise ValueError(f"a count is one of {', '.join(COUNTS)}, not {what!r}")
    if host:
        return host.counts(host.Count[what.upper()], _prompts(of))
    return _told().numbers(what, of)


def measures(what: str, of: Iterable[int] | None = None) -> list[float]:
    """Means of the last visit, one of `MEASURES`. 0 for a prompt without any."""
    if what not in MEASURES:
        raise ValueError(f"a measure is one of {', '.join(MEASURES)}, not {what!r}")
    if host:
        return host.measures(host.Measure[what.upper()], _prompts(of))
    return _told().numbers(what, of)


def column(name: str, of: Iterable[int] | None = None) -> list[float]:
    """A column that the policy describes, as many numbers for each prompt as `run.columns` says."""
    if host:
        return host.column(name, _prompts(of))
    return _told().column(name, of)


def costs() -> TokenCosts:
    """What a token takes."""
    return host.costs() if host else _told().costs


def _prompts(of: Iterable[int] | None):
    """All, those of a range, or a list, in the contract's words."""
    if of is None:
        return host.Prompts_All()
    if isinstance(of, range) and of.step == 1:
        return host.Prompts_Between((of.start, max(of.start, of.stop)))
    return host.Prompts_Listed(list(of))


@dataclass
class Told:
    """What a test told by `made.facts`."""

    prompts: int
    past: dict[int, Past]
    columns: dict[str, list[float]]
    costs: TokenCosts

    def numbers(self, what: str, of: Iterable[int] | None) -> list:
        past = (self.past.get(id) for id in self.known(of))
        return [getattr(visit, what) if visit else 0 for visit in past]

    def column(self, name: str, of: Iterable[int] | None) -> list[float]:
        if name not in self.columns:
            raise ValueError(f"asked for the column `{name}`, which the made facts don't have")
        numbers = self.columns[name]
        width = len(numbers) // max(self.prompts, 1)
        return [number for id in self.known(of) for number in numbers[id * width : (id + 1) * width]]

    def known(self, of: Iterable[int] | None) -> list[int]:
        ids = list(range(self.prompts) if of is None else of)
        for id in ids:
            if not 0 <= id < self.prompts:
                raise ValueError(f"asked about prompt {id}, where the made facts have {self.prompts} prompts")
        return ids


told: Told | None = None


def _told() -> Told:
    if told is None:
        raise ValueError("a policy asked for facts: a test tells them by `made.facts(…)`")
    return told
