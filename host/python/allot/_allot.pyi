from os import PathLike
from typing import Any, TypedDict

VERSION: str
CONTRACT: str

class Budget(TypedDict):
    rounds: int
    step_rollouts: int
    run_rollouts: int
    run_tokens: int

class Past(TypedDict):
    step: int
    visits: int
    rollouts: int
    correct: int
    mean: float
    deviation: float
    tokens: float
    streak: int
    total_rollouts: int
    total_correct: int

class _Prompt(TypedDict):
    id: int
    epoch: int
    tokens: int

class Prompt(_Prompt, total=False):
    past: Past

class Group(TypedDict):
    prompt: int
    rewards: list[float]
    correct: list[bool]
    tokens: list[int]
    ages: list[int]
    truncated: list[bool]
    signals: list[list[float]]

class View(TypedDict):
    step: int
    round: int
    seed: int
    budget: Budget
    pool: list[Prompt]
    groups: list[Group]

class Request(TypedDict):
    prompt: int
    count: int

class _Pick(TypedDict):
    prompt: int
    advantage: Any
    weight: float

class Pick(_Pick, total=False):
    rollouts: list[int]

class _Batch(TypedDict):
    picks: list[Pick]

class Batch(_Batch, total=False):
    hold: list[int]

class Action(TypedDict, total=False):
    """One of the two."""

    sample: list[Request]
    train: Batch

class _Plan(TypedDict):
    action: Action

class Plan(_Plan, total=False):
    skip: list[int]
    evict: list[int]
    metrics: list[tuple[str, float]]

class Policy:
    """A policy: the name of a shipped one, or the path of a component.

    `run` has prompts, steps, groups, rollouts, and pool and max_age if they are not the defaults, and columns if
    the policy asks for some; without it only `describe` works. `limits` has fuel, seconds and memory: the limits of one call.
    """

    def __init__(
        self,
        source: str,
        settings: dict[str, bool | int | float | str] | None = None,
        *,
        run: dict[str, Any] | None = None,
        limits: dict[str, float] | None = None,
        sha256: str | None = None,
    ) -> None: ...
    def describe(self) -> dict[str, Any]:
        """The policy's description of itself, and its sha256."""
    def decide(self, view: View) -> Plan:
        """Calls the policy with a view, and stores the state that it returns.

        Raises `BrokenRule` if the plan breaks a rule.
        """
    @property
    def settings(self) -> dict[str, bool | int | float | str]: ...
    @property
    def state(self) -> bytes:
        """The policy's state."""
    @state.setter
    def state(self, state: bytes) -> None: ...

class Allocator:
    """The native part of `allot.Allocator`."""

    def __init__(self, policy: Policy, setup: dict[str, Any]) -> None: ...
    def next(self) -> dict[str, Any]: ...
    def sampled(self, rollouts: list[dict[str, Any]]) -> tuple[int, list[bool]]: ...
    def trained(
        self, updated: bool, metrics: list[tuple[str, float]], accuracy: float | None = None
    ) -> dict[str, Any]: ...
    def scored(self, accuracy: float) -> None: ...
    def on_hand(self, prompt: int) -> list[int]: ...
    def save(self) -> str: ...
    def load(self, text: str) -> None: ...
    @property
    def over(self) -> str | None: ...
    @property
    def steps(self) -> int: ...
    @property
    def version(self) -> int: ...
    @property
    def spent(self) -> dict[str, int]: ...
    @property
    def groups(self) -> list[Group]: ...

def shipped() -> list[str]:
    """The names of the shipped policies."""

def calls(record: str | PathLike[str]) -> tuple[dict[str, Any], list[tuple[View, Plan]]]:
    """A recorded run: its head, and every view with its plan, call by call."""
