"""Settings: a dataclass whose fields a run may set by name."""

from __future__ import annotations

from dataclasses import Field, field, fields, is_dataclass
from typing import Any

from .error import BadPolicy, BadSetting

Value = bool | int | float | str


def setting(
    default: Value,
    summary: str,
    *,
    choices: list[str] | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
) -> Any:
    """A field of the settings:

        pilot: int = setting(8, "Rollouts to try each prompt with.", minimum=1, maximum=64)

    The default fixes the type: bool, int, float or str. `summary` is the line shown to people.
    `choices` are the texts that a text may be; `minimum` and `maximum` are the least and the most
    that a number may be. The field `solved_at_least` is the setting `solved-at-least`.
    """
    limits = {"choices": choices, "minimum": minimum, "maximum": maximum}
    return field(default=default, metadata={"summary": summary, **limits})


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
    kind, choices = type(f.default), f.metadata["choices"]
    minimum, maximum = f.metadata["minimum"], f.metadata["maximum"]
    if choices:
        expected = f"expected one of {', '.join(choices)}"
        if type(value) is not str:
            return expected
        return None if value in choices else f"`{value}` is unknown; {expected}"
    expected = EXPECTED[kind] + _range(minimum, maximum)
    if type(value) is not kind:
        return f"expected {expected}"
    low, high = minimum is not None and value < minimum, maximum is not None and value > maximum
    return f"{_shown(value)} is not {expected}" if low or high else None


def _range(minimum: float | None, maximum: float | None) -> str:
    """What follows "a number" where it has bounds: the same words as in the SDKs of other languages."""
    if minimum is not None and maximum is not None:
        return f" from {_shown(minimum)} to {_shown(maximum)}"
    if minimum is not None:
        return f", {_shown(minimum)} or more"
    return f", {_shown(maximum)} or less" if maximum is not None else ""


def _shown(number: Value) -> str:
    return str(number).removesuffix(".0")


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
        bounded = any(f.metadata[bound] is not None for bound in ("minimum", "maximum"))
        if bounded and kind not in (int, float):
            raise BadPolicy(f"setting `{f.name}` has bounds, and its default {f.default!r} is not a number")
        if declared in ("bool", "int", "float", "str") and declared != kind.__name__:
            raise BadPolicy(f"setting `{f.name}` is declared {declared}, but its default is {f.default!r}")
    return fields(settings)
