"""The contract's three calls, made from a grader's module; and judgements for tests."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from allot_policy import settings as _settings

from .error import BadGrader
from .verdict import Question, Verdict


def describe(grader: ModuleType) -> dict[str, Any]:
    """What the grader says of itself; settings as name, default and summary."""
    for part in ("name", "version", "summary"):
        if not hasattr(grader, part):
            raise BadGrader(f"`grader.py` has no `{part}`")
    if not hasattr(grader, "grade") and not _compares(grader):
        raise BadGrader("`grader.py` has no `grade`")
    # `from allot_grader import *` brings a `grade` that is not the author's.
    if getattr(grader, "grade", grade) is not grade and _compares(grader):
        raise BadGrader("`grader.py` has `grade` and `grade_group`; it needs one of them")
    return {
        "name": grader.name,
        "version": grader.version,
        "summary": grader.summary,
        "settings": _settings.described(getattr(grader, "Settings", None)),
        "parts": _parts(grader),
        "compares": _compares(grader),
    }


def begin(grader: ModuleType, given: list[tuple[str, Any]]) -> Any:
    """Checks the run's settings; gives what `grade` is to get. Raises `BadSetting`."""
    settings = _settings.read(getattr(grader, "Settings", None), given)
    check = getattr(grader, "begin", None)
    begun = check(settings) if check else None
    return settings if begun is None else begun


def grade(grader: ModuleType, begun: Any, questions: list[Question]) -> list[Verdict]:
    """Judges answers, which are a group if the grader compares them. `begun` is what `begin` gave."""
    if not _compares(grader):
        return [_checked(grader, grader.grade(begun, question)) for question in questions]
    verdicts = grader.grade_group(begun, questions)
    if not isinstance(verdicts, (list, tuple)) or len(verdicts) != len(questions):
        many = len(questions)
        raise BadGrader(f"`grade_group` gives a list with a verdict for each of {many} answers, not {verdicts!r}")
    return [_checked(grader, verdict) for verdict in verdicts]


def _checked(grader: ModuleType, verdict: Any) -> Verdict:
    by = "`grade_group`" if _compares(grader) else "`grade`"
    if not isinstance(verdict, Verdict):
        raise BadGrader(
            f"{by} gives `correct(…)`, `reward(…)`, `in_parts(…)` or `unscorable(…)`, not {verdict!r}"
        )
    if verdict.parts is not None and sorted(verdict.parts) != sorted(_parts(grader)):
        has, gives = (", ".join(sorted(names)) or "none" for names in (_parts(grader), verdict.parts))
        raise BadGrader(f"`parts` names {has}, and {by} gives {gives}")
    return verdict


def judge(grader: ModuleType, question: Question, **changes: Any) -> Verdict:
    """A verdict for tests: with the grader's default settings, some of them replaced."""
    return judge_group(grader, [question], **changes)[0]


def judge_group(grader: ModuleType, questions: list[Question], **changes: Any) -> list[Verdict]:
    """The verdicts on a group for tests: with the grader's default settings, some of them replaced."""
    settings = {name: default for name, default, _ in describe(grader)["settings"]}
    for name, value in changes.items():
        name = name.replace("_", "-")
        if name not in settings:
            raise TypeError(f"`{grader.name}` has no setting `{name}`")
        settings[name] = value
    return grade(grader, begin(grader, list(settings.items())), questions)


def _compares(grader: ModuleType) -> bool:
    return hasattr(grader, "grade_group")


def _parts(grader: ModuleType) -> list[str]:
    names = getattr(grader, "parts", None) or []
    if isinstance(names, str) or any(type(name) is not str for name in names):
        raise BadGrader(f"`parts` is a list of names, not {names!r}")
    return list(names)
