"""Settings: a dataclass whose fields a run may set by name."""

from __future__ import annotations

from dataclasses import Field, field, fields, is_dataclass
from typing import Any

from .error import BadPolicy, BadSetting

Value = bool | int | float | str


def setting(
    default: Value, summary: str, *, choices: list[str] | None = None, minimum: int | None = None
) -> Any:
    """A field of the settings:

        pilot: int = setting(8, "Rollouts to try each prompt with.", minimum=0)

    The default fixes the type: bool, int, float or str. `summary` is the line shown to people.
    `choices` are the texts that a text may be; `minimum` is the least that a whole number may be.
    The field `solved_at_least` is the setting `solved-at-least`.
    """
    return field(default=default, metadata={"summary": summary, "choices": choices, "minimum": minimum})


def or_else(count: int, default: int) -> int:
    """A count that a run may leave to something else by setting it to 0."""
    return default if count == 0 else count


def described(settings: type | None) -> list[tuple[str, Value, str]]:
    """Every setting's name, default and summary, in the order of the fields."""
    return [(_name(f), f.default, f.metadata["summary"]) for f in _fields(settings)]


def read(settings: type | None, given: list[tuple[str, Value]]) -> Any:
    """The values in force in a run; None for a policy without settings."""
    if settings is None:
        return None
    values = dict(given)
    for f in _fields(settings):
        wrong = _wrong(f, values[_name(f)]) if _name(f) in values else "the host did not give it"
        if wrong:
            raise BadSetting(f.name, wrong)
    return settings(**{f.name: values[_name(f)] for f in _fields(settings)})


def _name(f: Field) -> str:
    return f.name.replace("_", "-")


def _wrong(f: Field, value: Value) -> str | None:
    kind, choices, minimum = type(f.default), f.metadata["choices"], f.metadata["minimum"]
    if choices:
        expected = f"expected one of {', '.join(choices)}"
        if type(value) is not str:
            return expected
        return None if value in choices else f"`{value}` is unknown; {expected}"
    expected = EXPECTED[kind] + (f", {minimum} or more" if minimum is not None else "")
    if type(value) is not kind:
        return f"expected {expected}"
    return f"{value} is not {expected}" if minimum is not None and value < minimum else None


EXPECTED = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def _fields(settings: type | None) -> tuple[Field, ...]:
    """The fields, once they are what a description can hold."""
    if settings is None:
        return ()
    if not is_dataclass(settings):
        raise BadPolicy("`Settings` is no dataclass: write `@dataclass` in the line above it")
    for f in fields(settings):
        if "summary" not in f.metadata:
            raise BadPolicy(f'setting `{f.name}` needs a line for people: `setting(…, "the line")`')
        kind = type(f.default)
        if kind not in EXPECTED:
            raise BadPolicy(f"setting `{f.name}` is a bool, int, float or str, not {f.default!r}")
        declared = f.type if isinstance(f.type, str) else f.type.__name__
        if declared in ("bool", "int", "float", "str") and declared != kind.__name__:
            raise BadPolicy(f"setting `{f.name}` is declared {declared}, but its default is {f.default!r}")
    return fields(settings)
