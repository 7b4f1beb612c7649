"""What can go wrong: one sentence that says what and where, and a hint on a line of its own."""

from __future__ import annotations


class Error(Exception):
    """Something wrong with what was given, or with the order of calls."""

    def __init__(self, what: str, hint: str | None = None, rule: str | None = None):
        super().__init__(what if hint is None else f"{what}\n\nhint: {hint}")
        self.what = what
        self.hint = hint
        #: The name of the rule that a plan broke, where one was broken.
        self.rule = rule


class LoadError(Error):
    """A file that is no policy, or one for another contract."""


class PolicyFault(Error):
    """A policy that gave no answer: it trapped, ran out of what it may use, or gave up."""


class BrokenRule(Error):
    """A plan that breaks a rule."""
