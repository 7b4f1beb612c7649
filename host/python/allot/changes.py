"""What a run that goes on has other than it had when it began, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def changes(
    before: Mapping[str, Any], now: Mapping[str, Any], keys: Mapping[str, str], called: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """For each value that changed a clause, and the trainer's key to change. `called` is what the clause calls it.

    `data` stands for a hash of all prompts.
    """
    for name in sorted(before.keys() | now.keys()):
        old, new = before.get(name), now.get(name)
        if old == new:
            continue
        if name == "data":
            yield "the data set has other prompts than the one that the run began with", keys[name]
        else:
            yield f"{called[name]} is {new}, and was {old} when the run began", keys[name]
