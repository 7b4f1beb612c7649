"""What a policy is shown: the run's constants, and the step so far.

The fields are the contract's, in its order. In a component the bindings build their records from
these very classes, so that nothing is copied.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add


@dataclass
class Column:
    """A column of the data set: some numbers for each prompt. All are finite."""

    name: str
    width: int
    """Numbers for each prompt: 1, or the size of a vector."""
    categories: list[str]
    """Names of the categories where the column has words instead of numbers: its numbers are then
    positions in this list."""


@dataclass
class Sampling:
    """Settings of the sampler."""

    temperature: float
    max_tokens: int
    """The length limit, in generated tokens. At least 1."""
    max_turns: int
    """The limit of an episode's turns, those kept of another rollout included. At least 1; 1 where rollouts
    are single answers."""


@dataclass
class SamplingRange:
    """How rollouts are sampled, and what a request may change of it."""

    default: Sampling
    """Where a request says nothing else."""
    least: Sampling
    """What a request may go down to."""
    most: Sampling
    """What a request may go up to."""


@dataclass
class Update:
    """The geometry of an update."""

    mini_batch: int
    """Rollouts in each optimizer step. At least 1; the last step takes what remains, and the
    largest value makes one step of any batch."""
    passes: int
    """Passes over the batch. At least 1."""


@dataclass
class Run:
    """The run's constants."""

    settings: list[tuple[str, bool | int | float | str]]
    """Every setting by name, with the value in force. `decide` has them as `settings`."""
    prompts: int
    """Prompts in the data set."""
    steps: int
    """Steps planned."""
    groups: int
    """Groups to train on in each update, as a uniform policy would."""
    rollouts: int
    """Rollouts in each group, as a uniform policy would."""
    pool: int
    """Prompts on offer in each view, at most."""
    max_age: int
    """The oldest age at which the host still keeps a rollout, in model updates."""
    lag: int
    """Model updates that may be under way while rollouts are sampled. 0 where sampling and learning
    take turns."""
    columns: list[Column]
    """The policy's `columns`, in that order."""
    parts: list[str]
    """Names of the parts that rewards are made of. With `needs = ["parts"]`."""
    sampling: SamplingRange
    """How rollouts are sampled."""
    update: Update
    """How updates are made where a plan says nothing else. Its passes are also the most that a plan
    may ask for."""


@dataclass
class Tally:
    """Some rollouts of one prompt, by number alone."""

    prompt: int
    rollouts: int


@dataclass
class Budget:
    """What is left to spend. The largest value of its type stands for "no limit"."""

    rounds: int
    """Rounds of sampling in this step. At 0 only `train` is taken."""
    step_rollouts: int
    """Rollouts in this step. At 0 only `train` is taken."""
    run_rollouts: int
    """Rollouts that the run still grants. At 0 a `sample` ends the run: train first."""
    run_tokens: int
    """Generated tokens in the run."""
    run_flops: float
    """Floating-point operations in the run, less those of learning from all that is buffered."""

    @property
    def open(self) -> bool:
        """Whether the host would serve another round of sampling."""
        return min(self.rounds, self.step_rollouts, self.run_rollouts, self.run_tokens) > 0


@dataclass
class Past:
    """The outcome of a prompt's last visit: the last step in which it was sampled from its beginning.
    Only rollouts that were scored and that began with the prompt count."""

    step: int
    """The step it was in."""
    visits: int
    """Visits so far, this one included."""
    rollouts: int
    """Rollouts sampled in it."""
    correct: int
    """How many of them were correct."""
    mean: float
    """Mean reward."""
    std: float
    """Standard deviation of the rewards: of the sample, divided by n - 1, as in advantages."""
    mean_length: float
    """Mean length of the answers, in tokens."""
    streak: int
    """Visits in a row, ending with this one, that taught nothing in the same way."""
    total_rollouts: int
    """Rollouts in all visits together."""
    total_correct: int
    """How many of those were correct."""

    @property
    def deviation(self) -> float:
        """Standard deviation as contract 0.1 had it: of the population, divided by n."""
        return self.std * ((self.rollouts - 1) / self.rollouts) ** 0.5

    @property
    def tokens(self) -> float:
        """Contract 0.1's name of `mean_length`."""
        return self.mean_length


@dataclass
class Prompt:
    """A prompt on offer."""

    id: int
    """Its position in the data set."""
    epoch: int
    """Passes over the data set finished before this one."""
    length: int
    """The prompt's own length, in tokens."""
    past: Past | None
    """The last visit, or None before the first."""

    @property
    def tokens(self) -> int:
        """Contract 0.1's name of `length`."""
        return self.length


@dataclass
class Group:
    """The buffered rollouts of one prompt, in the order they were sampled.

    The lists run in parallel: position i of each tells of rollout i. A group has at least one. A list
    that is filled only for policies that need it is empty for all others.
    """

    prompt: int
    epoch: int
    """The epoch in which the prompt was on offer."""
    rewards: list[float]
    """Single precision, as Python's floats hold it."""
    correct: list[bool]
    """Whether the answer was right, whatever else the reward counts."""
    lengths: list[int]
    """Length of the answer, in tokens."""
    ages: list[int]
    """Model updates made since the rollout was sampled. 0 is on-policy."""
    truncated: list[bool]
    """Whether the answer met its length limit before it came to an end."""
    signals: list[list[float]]
    """A list for each of the policy's `signals`, in that order."""
    parts: list[list[float]]
    """A list for each of `run.parts`, in that order. With `needs = ["parts"]`."""
    trained: list[int]
    """Updates that were made on the rollout. With `needs = ["replay"]`."""
    sampling: list[Sampling]
    """How the rollout was sampled. With `needs = ["sampling"]`."""
    turns: list[list[Turn]]
    """The turns of the rollout, in order. Their tokens add up to its length. None if its environment
    ended it before the first. With `needs = ["turns"]`."""
    stopped: list[str]
    """Why the rollout ended, one of `STOPPED`. With `needs = ["turns"]`."""
    origins: list[Origin | None]
    """What the rollout continues; None if it began with the prompt. With `needs = ["starting"]`."""

    @property
    def tokens(self) -> list[int]:
        """Contract 0.1's name of `lengths`."""
        return self.lengths

    def __len__(self) -> int:
        """Buffered rollouts."""
        return len(self.rewards)

    @property
    def solved(self) -> int:
        """How many rollouts are correct."""
        return self.correct.count(True)

    @property
    def pass_rate(self) -> float:
        """Share of correct rollouts."""
        return self.solved / len(self)

    @property
    def flat(self) -> bool:
        """Whether all rewards are one and the same: nothing to learn here. A count, never
        `std > 0`, whose rounding error keeps groups of a constant such as 0.1."""
        return self.rewards.count(self.rewards[0]) == len(self)

    @property
    def mean(self) -> float:
        """Mean reward."""
        # Not `sum`, which rounds in another way from Python 3.12 on, and in no other language.
        return reduce(add, self.rewards) / len(self)

    @property
    def age(self) -> int:
        """The age of the oldest rollout, in model updates."""
        return max(self.ages, default=0)


@dataclass
class Turn:
    """A turn of the model."""

    read: int
    """Tokens read before it: what the environment said. In the first turn of a rollout that continues
    another, all that was kept of that one comes before."""
    tokens: int
    """Tokens generated in it."""


STOPPED = ("done", "max-turns", "max-tokens", "max-read-tokens", "max-tool-calls", "max-seconds")
"""Why an episode ended: its environment ended it, or the limit of turns, of generated tokens, of tokens
read from the environment, of calls of tools, or of seconds."""


@dataclass
class Origin:
    """The rollout that another one continues."""

    rollout: int | None
    """Its position in the group's lists; None if it is no longer buffered."""
    turn: int
    """The last turn that was kept of it, from 0."""


@dataclass
class View:
    """The step so far: all that a decision may rest on."""

    step: int
    """Steps finished so far in the run. A step ends when a plan trains."""
    round: int
    """Rounds of sampling done so far in this step. 0 opens a step."""
    seed: int
    """Random bits, fresh for each call: a policy's only source of chance. See `Chance`."""
    budget: Budget
    """What is left to spend."""
    pool: list[Prompt]
    """Prompts on offer, in the run's order."""
    groups: list[Group]
    """Buffered rollouts, by prompt: those sampled in this step, in order, after those held."""
    unscored: list[Tally]
    """Rollouts of this step that could not be scored. They are paid for and in no group."""
    under_way: list[Tally]
    """Rollouts granted that are not there yet. Empty where `run.lag` is 0."""

    def group(self, prompt: int) -> Group | None:
        """The buffered rollouts of a prompt. Looks through all groups."""
        return next((g for g in self.groups if g.prompt == prompt), None)

    def offer(self, n: int) -> list[Prompt]:
        """The first `n` prompts of the pool, or all that are there."""
        return self.pool[:n]

    @property
    def can_sample(self) -> bool:
        """Whether there are prompts on offer and a budget to sample them with."""
        return self.budget.open and bool(self.pool)
