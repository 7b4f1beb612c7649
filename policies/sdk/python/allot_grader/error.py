"""What only the SDK raises. `BadSetting` and `GiveUp` are those of policies."""

from allot_policy.error import BadPolicy


class BadGrader(BadPolicy):
    """The module lacks a part of a grader, or a part gives what it must not."""
