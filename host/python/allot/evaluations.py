"""`evaluations.jsonl`: accuracies beside a run's record. A trainer evaluates after a step's line is written, after the run's
end, or later, from saved weights, and lines of a record are never changed."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from os import PathLike

from .errors import Error

NAME = "evaluations.jsonl"


def evaluated(
    record: str | PathLike[str], steps: int, accuracy: float, scores: Mapping[str, float] | None = None
) -> None:
    """Tells the accuracy of a recorded run's model after so many steps, for `allot report`.

    `record` is the run's folder. `accuracy` is the share of right answers, from 0 to 1; `scores` are its parts, by name.
    What was told last of a step counts, unless the record itself has an accuracy there.
    """
    check(accuracy)
    if steps < 0:
        raise Error(f"an accuracy is told after {steps} steps", "0 is before the first one")
    if not os.path.exists(os.path.join(record, "record.jsonl")):
        raise Error(f"there is no record in `{os.fspath(record)}`", "name the folder that `record=` named")
    line = {"steps": int(steps), "accuracy": float(accuracy)}
    if scores:
        line["scores"] = [[name, float(value)] for name, value in scores.items()]
    with open(os.path.join(record, NAME), "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def check(accuracy: float) -> None:
    """Raises an error for what is no share."""
    if not (math.isfinite(accuracy) and 0.0 <= accuracy <= 1.0):
        hint = f"for {accuracy:g} %: {accuracy / 100:g}" if 1.0 < accuracy <= 100.0 else "give a share of right answers"
        raise Error(f"an accuracy is {accuracy:g}; it is from 0 to 1", hint)


def cut(record: str | PathLike[str], steps: int) -> None:
    """Forgets what was told of later steps: the run goes on from a state before them."""
    path = os.path.join(record, NAME)
    if not os.path.exists(path):
        return
    with open(path, encoding="utf-8") as file:
        lines = [line for line in file if line.endswith("\n") and json.loads(line)["steps"] <= steps]
    with open(f"{path}.unfinished", "w", encoding="utf-8") as file:
        file.writelines(lines)
    os.replace(f"{path}.unfinished", path)
