"""The step from a policy's module to a component's exports: the module that componentize-py is
given. It finds `policy.py` on the path, the bindings of the contract beside it."""

from __future__ import annotations

import linecache
import os
import re
import sys
import traceback
from dataclasses import fields
from types import TracebackType

from componentize_py_types import Err
from wit_world import exports
from wit_world.imports import types

from . import calls
from .error import BadPolicy, BadSetting, BadState, GiveUp
from .plan import Among, Hold, Pick, Plan
from .settings import Value
from .view import Budget, Column, Group, Past, Prompt, Run, Sampling, SamplingRange, Tally, Update, View

# The bindings look their classes up by name when all is imported: from here on they build the
# SDK's own, which have its helpers, and nothing is copied.
for ours in (Column, Sampling, SamplingRange, Update, Run, Tally, Budget, Past, Prompt, Group, View):
    theirs = getattr(types, ours.__name__)
    if [f.name for f in fields(ours)] != [f.name for f in fields(theirs)]:
        raise TypeError(f"the SDK's `{ours.__name__}` is not the contract's")
    setattr(types, ours.__name__, ours)


class Allocator(exports.Allocator):
    """The contract's `allocator`, spoken by the policy's module."""

    def describe(self) -> types.Description:
        said = calls.describe(policy)
        settings = [types.Setting(name, _value(default), line) for name, default, line in said["settings"]]
        needs = types.Needs(0)
        for need in said["needs"]:
            needs |= types.Needs[need.replace("-", "_").upper()]
        return types.Description(**{**said, "settings": settings, "needs": needs})

    def begin(self, run: Run) -> bytes:
        return _told(calls.begin, _plain(run))

    def decide(self, run: Run, state: bytes, view: View) -> types.Plan:
        return _lowered(_told(calls.decide, _plain(run), state, view))


def _told(call, *arguments):
    """The answer of a call, or a clean refusal in the contract's words."""
    try:
        return call(policy, *arguments)
    except BadSetting as bad:
        raise Err(types.Error_Setting(types.BadSetting(bad.name, bad.reason))) from None
    except BadState as bad:
        raise Err(types.Error_State(str(bad))) from None
    except GiveUp as given:
        raise Err(types.Error_Other(str(given))) from None
    except SystemExit as left:
        # Else it would leave without a word. A policy has no process of its own to end.
        told = RuntimeError("the policy called `sys.exit`; to stop the run it raises `GiveUp`")
        raise told.with_traceback(left.__traceback__) from None


def _plain(run: Run) -> Run:
    run.settings = [(name, value.value) for name, value in run.settings]
    return run


def _value(value: Value) -> types.Value:
    kinds = {
        bool: types.Value_Flag,
        int: types.Value_Integer,
        float: types.Value_Number,
        str: types.Value_Text,
    }
    return kinds[type(value)](value)


def _lowered(plan: Plan) -> types.Plan:
    if plan.picks is None:
        action = types.Action_Sample(plan.requests)
    else:
        picks, hold = [_pick(pick) for pick in plan.picks], [_hold(held) for held in plan.held]
        action = types.Action_Train(types.Batch(picks, hold, plan.updated))
    return types.Plan(action, plan.skipped, plan.deferred, plan.evicted, plan.state, plan.metrics)


def _hold(held: int | Hold) -> Hold:
    return Hold(held) if isinstance(held, int) else held


def _pick(pick: Pick) -> types.Pick:
    if pick.advantage == "picked":
        advantage = types.Advantage_Picked()
    elif pick.advantage == "group":
        advantage = types.Advantage_Group()
    elif isinstance(pick.advantage, Among):
        advantage = types.Advantage_Among(pick.advantage.rollouts)
    else:
        advantage = types.Advantage_Given(pick.advantage)
    return types.Pick(pick.prompt, pick.rollouts, advantage, pick.weight)


def _show(kind: type, error: BaseException, trace: TracebackType | None) -> None:
    """Writes a traceback as the author's own file has it: without the SDK's part."""
    told = link = traceback.TracebackException(kind, error, trace)
    while link:
        inner = [] if kind is BadPolicy else [f for f in link.stack if f.name != "<module>"]
        link.stack[:] = [f for f in link.stack if not f.filename.startswith((SDK, "<string>"))] or inner
        link = link.__cause__ or link.__context__
    text = "".join(told.format()).replace(f"{BadPolicy.__module__}.BadPolicy: ", "")
    # componentize-py numbers its folders: the author's file is `/0/policy.py`.
    print(re.sub(r'File "/\d+/', 'File "', text), end="", file=sys.stderr, flush=True)


def _stop(kind: type, error: BaseException, trace: TracebackType | None) -> None:
    """The same, and the end: without the words that componentize-py would add."""
    _show(kind, error, trace)
    os.abort()


SDK = os.path.dirname(__file__)
sys.excepthook = _show

import policy  # noqa: E402

calls.describe(policy)
# There are no files where the component runs: the lines that a traceback quotes come along. No
# date of change, so that nobody looks whether they are still the same.
HOME = os.path.dirname(policy.__file__)
for module in list(sys.modules.values()):
    path = getattr(module, "__file__", None) or ""
    if path.startswith(HOME):
        lines = linecache.getlines(path)
        linecache.cache[path] = (sum(map(len, lines)), None, lines, path)
sys.excepthook = _stop
