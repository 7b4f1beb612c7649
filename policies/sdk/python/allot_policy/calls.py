"""The contract's three calls, made from a policy's module; and a run for tests."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from . import settings as _settings
from . import state as _state
from .error import BadPolicy, BadState
from .plan import Plan
from .view import Column, Run, Sampling, SamplingRange, Update, View

NEEDS = ("any-prompt", "replay", "sampling", "stopping", "updating", "parts", "turns", "starting")
"""What not every run can give, as the contract has it."""


def describe(policy: ModuleType) -> dict[str, Any]:
    """What the policy says of itself; settings as name, default and summary."""
    for part in ("name", "version", "summary", "decide"):
        if not hasattr(policy, part):
            raise BadPolicy(f"`policy.py` has no `{part}`")
    return {
        "name": policy.name,
        "version": policy.version,
        "summary": policy.summary,
        "settings": _settings.described(_part(policy, "Settings")),
        "signals": _names(policy, "signals"),
        "columns": _names(policy, "columns"),
        "needs": _needs(policy),
    }


def begin(policy: ModuleType, run: Run) -> bytes:
    """Checks the run's settings and gives the first state. Raises `BadSetting`."""
    settings = _settings.read(_part(policy, "Settings"), run.settings)
    check, kind = _part(policy, "begin"), _part(policy, "State")
    state = check(settings, run) if check else None
    return _state.save(kind() if kind and state is None else state, kind)


def decide(policy: ModuleType, run: Run, state: bytes, view: View) -> Plan:
    """Says what to do next. `state` is what `begin`, or else the plan before, gave."""
    settings = _settings.read(_part(policy, "Settings"), run.settings)
    kind = _part(policy, "State")
    if state and not kind and not _part(policy, "begin"):
        raise BadState(f"expected no state, got {len(state)} bytes")
    memory = _state.load(state, kind)
    if kind and memory is None:
        memory = kind()
    plan = policy.decide(settings, run, memory, view)
    if not isinstance(plan, Plan):
        raise BadPolicy(f"`decide` gives `sample(…)` or `train(…)`, not {plan!r}")
    try:
        plan.check()
    except (TypeError, ValueError) as wrong:
        raise BadPolicy(f"in the plan {wrong}") from None
    plan.state = _state.save(memory, kind)
    return plan


def run_with(policy: ModuleType, **changes: Any) -> Run:
    """A run for tests: the policy's default settings with some of them replaced, and its columns
    with one number for each prompt. Its rollouts are episodes if the policy needs that."""
    turns = 8 if {"turns", "starting"} & set(_needs(policy)) else 1
    settings = {name: default for name, default, _ in describe(policy)["settings"]}
    for name, value in changes.items():
        name = name.replace("_", "-")
        if name not in settings:
            raise TypeError(f"`{policy.name}` has no setting `{name}`")
        settings[name] = value
    return Run(
        list(settings.items()),
        prompts=1000,
        steps=100,
        groups=4,
        rollouts=8,
        pool=64,
        max_age=8,
        lag=0,
        columns=[Column(name, 1, []) for name in _names(policy, "columns")],
        parts=[],
        sampling=SamplingRange(Sampling(1.0, 1024, turns), Sampling(0.0, 1, 1), Sampling(2.0, 1024, turns)),
        update=Update(2**32 - 1, 4),
    )


def _names(policy: ModuleType, part: str) -> list[str]:
    names = _part(policy, part) or []
    if isinstance(names, str) or any(type(name) is not str for name in names):
        raise BadPolicy(f"`{part}` is a list of names, not {names!r}")
    return list(names)


def _needs(policy: ModuleType) -> list[str]:
    needs = _names(policy, "needs")
    for need in needs:
        if need not in NEEDS:
            raise BadPolicy(f"`needs` has {need!r}, which is none of {', '.join(NEEDS)}")
    return needs


def _part(policy: ModuleType, part: str) -> Any:
    return getattr(policy, part, None)
