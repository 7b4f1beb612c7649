"""The step from a grader's module to a component's exports: the module that componentize-py is given. It
finds `grader.py` on the path, the bindings of the contract beside it."""

from __future__ import annotations

import sys
from dataclasses import fields
from typing import Any

from allot_policy import faults
from wit_world import exports
from wit_world.imports import types

from . import calls
from .verdict import Question, Verdict

# The bindings look their classes up by name when all is imported: from here on they build the SDK's own.
if [f.name for f in fields(Question)] != [f.name for f in fields(types.Question)]:
    raise TypeError("the SDK's `Question` is not the contract's")
types.Question = Question

BEGUN: list[Any] = []
"""What `begin` gave."""


class Grader(exports.Grader):
    """The contract's `grader`, spoken by the grader's module."""

    def describe(self) -> types.Description:
        said = calls.describe(grader)
        settings = [types.Setting(name, faults.value(default), line) for name, default, line in said["settings"]]
        return types.Description(**{**said, "settings": settings})

    def begin(self, settings: list[tuple[str, types.Value]]) -> None:
        BEGUN[:] = [faults.told("grader", calls.begin, grader, [(name, value.value) for name, value in settings])]

    def grade(self, questions: list[Question]) -> list[types.Verdict]:
        try:
            return [_lowered(verdict) for verdict in calls.grade(grader, BEGUN[0], questions)]
        except SystemExit as left:
            raise faults.exited("grader", left, "what it can't judge is `unscorable(…)`") from None


def _lowered(verdict: Verdict) -> types.Verdict:
    if verdict.reason is not None:
        return types.Verdict_Unscorable(verdict.reason)
    if verdict.parts is not None:
        reward = types.Reward_Parts([types.Part(name, value) for name, value in verdict.parts.items()])
    elif verdict.reward is not None:
        reward = types.Reward_Number(verdict.reward)
    else:
        reward = types.Reward_ByCorrectness()
    return types.Verdict_Judged(types.Judgement(verdict.correct, reward))


sys.excepthook = faults.show

import grader  # noqa: E402

calls.describe(grader)
faults.listen(grader)
