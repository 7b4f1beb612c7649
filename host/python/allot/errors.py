"""Errors: one sentence that says what is wrong and where, and a hint on a separate line."""

from __future__ import annotations


class Error(Exception):
    """An invalid argument, or a wrong order of calls."""

    def __init__(self, what: str, hint: str | None = None, rule: str | None = None):
        super().__init__(what if hint is None else f"{what}\n\nhint: {hint}")
        self.what = what
        self.hint = hint
        #: The name of the rule that a plan broke, if it broke one.
        self.rule = rule


class LoadError(Error):
    """A file that is not a policy, or a policy for another contract."""


class PolicyFault(Error):
    """A policy that returned no plan: it trapped, exceeded a limit, or raised an error."""


class BrokenRule(Error):
    """A plan that breaks a rule."""


class RunIsOver(Exception):  # noqa: N818
    """There is no further batch. It ends the loop of a trainer that asks for a number of them."""

    def __init__(self, reason: str, step: int):
        # Both are arguments, so that the exception is the same when it comes from another process.
        super().__init__(reason, step)
        self.reason = reason
        #: The trainer's number of the step that it asked a batch for.
        self.step = step

    def __str__(self) -> str:
        return self.reason
