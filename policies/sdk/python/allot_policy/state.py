"""State: what a policy remembers between two calls, as bytes.

Compact JSON, or nothing at all for None.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from .error import BadPolicy, BadState


def save(state: Any, kind: type | None) -> bytes:
    """The bytes. `kind` is the policy's dataclass `State`, if it has one."""
    if state is None:
        return b""
    if kind and not isinstance(state, kind):
        raise BadPolicy(f"`begin` gives a `State` or None, not {state!r}")
    plain = vars(state) if kind else state
    try:
        text = json.dumps(plain, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise BadPolicy(f"the state is not for JSON: {error}") from None
    # JSON makes texts of a dictionary's numbers, and lists of tuples: better told at once than met
    # at the next call.
    if json.loads(text) != plain:
        raise BadPolicy("the state comes back from JSON as another: keys are text, and tuples lists")
    return text.encode()


def load(data: bytes, kind: type | None) -> Any:
    """The state of these bytes."""
    if not data:
        return None
    try:
        state = json.loads(data)
    except ValueError as error:
        raise BadState(f"it is not JSON: {error}") from None
    if kind is None:
        return state
    if not isinstance(state, dict) or list(state) != [f.name for f in fields(kind)]:
        raise BadState("it was written by another policy, or another version of this one")
    return kind(**state)
