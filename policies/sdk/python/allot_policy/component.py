"""The step from a policy's module to a component's exports: the module that componentize-py is
given. It finds `policy.py` on the path, the bindings of the contract beside it."""

from __future__ import annotations

import sys
from dataclasses import fields

from wit_world import exports
from wit_world.imports import types

from . import calls, faults
from .plan import Among, Hold, Pick, Plan
from .view import STOPPED, Budget, Column, Group, Origin, Past, Prompt, Run, Sampling, SamplingRange, Tally
from .view import Turn, Update, View

# The bindings look their classes up by name when all is imported: from here on they build the
# SDK's own, which have its helpers, and nothing is copied.
OURS = (Column, Sampling, SamplingRange, Update, Run, Tally, Budget, Past, Prompt, Group, Turn, Origin, View)
for ours in OURS:
    theirs = getattr(types, ours.__name__)
    if [f.name for f in fields(ours)] != [f.name for f in fields(theirs)]:
        raise TypeError(f"the SDK's `{ours.__name__}` is not the contract's")
    setattr(types, ours.__name__, ours)
# The same for why an episode ended: a number becomes its name.
if [end.name.lower().replace("_", "-") for end in types.Stopped] != list(STOPPED):
    raise TypeError("the SDK's `STOPPED` is not the contract's")
types.Stopped = STOPPED.__getitem__


class Allocator(exports.Allocator):
    """The contract's `allocator`, spoken by the policy's module."""

    def describe(self) -> types.Description:
        said = calls.describe(policy)
        settings = [types.Setting(name, faults.value(default), line) for name, default, line in said["settings"]]
        needs = types.Needs(0)
        for need in said["needs"]:
            needs |= types.Needs[need.replace("-", "_").upper()]
        return types.Description(**{**said, "settings": settings, "needs": needs})

    def begin(self, run: Run) -> bytes:
        return faults.told("policy", calls.begin, policy, _plain(run))

    def decide(self, run: Run, state: bytes, view: View) -> types.Plan:
        return _lowered(faults.told("policy", calls.decide, policy, _plain(run), state, view))


def _plain(run: Run) -> Run:
    run.settings = [(name, value.value) for name, value in run.settings]
    return run


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
    elif pick.by_turn:
        advantage = types.Advantage_ByTurn(pick.advantage)
    else:
        advantage = types.Advantage_Given(pick.advantage)
    return types.Pick(pick.prompt, pick.rollouts, advantage, pick.weight)


sys.excepthook = faults.show

import policy  # noqa: E402

calls.describe(policy)
faults.listen(policy)
