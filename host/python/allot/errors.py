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
