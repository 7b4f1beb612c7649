"""Why a policy can't go on. The run stops and shows this to its author.

These are the clean ways to stop. Any other exception is a fault of the policy, and ends the run
with its traceback.
"""


class BadSetting(Exception):
    """A setting has a value that the policy can't work with."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = name.replace("_", "-")
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


class BadState(Exception):
    """The state is none that this version of the policy has written."""


class GiveUp(Exception):
    """Anything else, in the policy's own words."""


class BadPolicy(TypeError):
    """The module lacks a part of a policy, or a part gives what it must not."""
