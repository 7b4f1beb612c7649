"""PODS (arXiv 2504.13818): samples n rollouts of each prompt and trains on the m among them whose
rewards differ most. Those are always some of the highest and some of the lowest.

The twin of `../src/lib.rs`, which tells where it departs from upstream: the same plans, to the bit.
"""

from dataclasses import dataclass
from itertools import accumulate

from allot_policy import BadSetting, Chance, Pick, Request, or_else, sample, setting, train

name = "pods"
version = "0.1.0"
summary = "samples many, trains on the few whose rewards differ most"

RULES = ["max-variance", "max-reward", "random"]


@dataclass
class Settings:
    generate: int = setting(0, "Rollouts to sample of each prompt; 0 for the run's own number.", minimum=0)
    keep: int = setting(8, "Rollouts of each prompt to train on.", minimum=0)
    rule: str = setting(
        "max-variance", "Which to train on: max-variance, max-reward or random.", choices=RULES
    )


def begin(settings, run):
    if settings.keep < 2:
        raise BadSetting("keep", "must be at least 2: one rollout alone has no deviation to be measured by")
    if or_else(settings.generate, run.rollouts) < 2:
        why = "an advantage is measured against the prompt's other rollouts, so nothing can be learned"
        if settings.generate == 1:
            raise BadSetting("generate", f"it is 1, and {why}; set 2 or more")
        what = f"it leaves the number to `run.rollouts`, which is {run.rollouts}"
        raise BadSetting("generate", f"{what}, and {why}; set either to 2 or more")


def decide(settings, run, state, view):
    if view.round == 0 and view.can_sample:
        rollouts = or_else(settings.generate, run.rollouts)
        return sample(Request(p.id, rollouts) for p in view.offer(run.groups))
    chance = Chance(view.seed)
    picks = []
    for group in view.groups:
        if settings.rule == "max-variance":
            kept = max_variance(group.rewards, settings.keep)
        elif settings.rule == "max-reward":
            kept = descending(group.rewards)[: settings.keep]
        else:
            kept = chance.draw(len(group), settings.keep)
        # One rollout alone has no deviation to be measured by: upstream's advantage is NaN.
        picks.append(Pick.some(group.prompt, kept, [0.0] if len(kept) == 1 else "picked"))
    return train(picks)


def max_variance(rewards, m):
    """Positions of the `m` rewards of largest variance: the top ones descending, then the bottom
    ones descending. Of equal splits the first in upstream's order of trial wins: all from the top,
    then 0, 1, … from the top."""
    order = descending(rewards)
    n = len(order)
    if m >= n:
        return order
    # Measured from the middle of the range, so that the sums lose no digits to a common offset.
    middle = (rewards[order[0]] + rewards[order[-1]]) / 2
    heads, head_squares = sums([rewards[i] - middle for i in order[:m]])
    tails, tail_squares = sums([rewards[i] - middle for i in order[: -m - 1 : -1]])

    def spread(i):
        """m² times the variance of the `i` highest and the `m - i` lowest; whole numbers for 0/1
        rewards, so that ties are exact."""
        total = heads[i] + tails[m - i]
        return m * (head_squares[i] + tail_squares[m - i]) - total * total

    best, most = m, spread(m)
    for i in range(m):
        split = spread(i)
        # Strict, and by more than rounding can do.
        if split > most + abs(most) * 1e-12:
            best, most = i, split
    return order[:best] + order[n - (m - best) :]


def sums(values):
    """The sums of the first 0, 1, … values, and of their squares."""
    return list(accumulate(values, initial=0.0)), list(accumulate((x * x for x in values), initial=0.0))


def descending(rewards):
    """Positions by reward, highest first; equal rewards in order of sampling."""
    return sorted(range(len(rewards)), key=rewards.__getitem__, reverse=True)
