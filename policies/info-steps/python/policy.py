"""Optimizer steps of equal information: learns as soon as there is enough for one, and cuts what it
has into as many as it is enough for. Our own, not a published method.

The twin of `../src/lib.rs`, which gives the reasons: the same plans, to the bit.
"""

from dataclasses import dataclass
from functools import reduce
from operator import add

from allot_policy import BadSetting, GiveUp, Pick, Request, Update, or_else, sample, setting, train

name = "info-steps"
version = "0.1.0"
summary = "optimizer steps of equal information, taken as soon as there is enough"
needs = ["updating"]


@dataclass
class Settings:
    info: float = setting(
        16.0, "Information in an optimizer step, in rollouts at a pass rate of one half."
    )
    most: int = setting(8, "Optimizer steps in an update, at most.", minimum=0)
    prompts: int = setting(
        0, "Prompts to sample in each round; 0 for as many as there are groups in an update.", minimum=0
    )


def begin(settings, run):
    if not 0 < settings.info <= 1e9:
        raise BadSetting("info", "must be above 0 and at most a billion")
    if settings.most == 0:
        raise BadSetting("most", "there must be an optimizer step")
    if run.rollouts < 2:
        why = "an advantage is measured against the prompt's other rollouts, so nothing can be learned"
        raise GiveUp(f"`run.rollouts` is {run.rollouts}, and {why}; set `run.rollouts` to 2 or more")


def decide(settings, run, state, view):
    useful = [group for group in view.groups if information(group) > 0]
    # Not `sum`, which rounds in another way.
    have = reduce(add, map(information, useful), 0.0)
    if have < settings.info and view.can_sample:
        prompts = view.offer(or_else(settings.prompts, run.groups))
        return sample(Request(prompt.id, run.rollouts) for prompt in prompts)
    steps = min(max(int(have / settings.info), 1), settings.most)
    rollouts = sum(len(group) for group in useful)
    plan = train(Pick.all(prompt) for prompt in deal(useful, steps))
    plan.update(Update(max(-(-rollouts // steps), 1), run.update.passes))
    return plan.metric("information", have).metric("steps", steps if useful else 0)


def information(group):
    """How many rollouts at a pass rate of one half a group is worth."""
    k, n = group.solved, len(group)
    return 4 * k * (n - k) / n


def deal(groups, parts):
    """The groups' prompts in an order in which as many equal parts have about the same information:
    most first, each to the part that has least."""
    dealt = [[0.0, []] for _ in range(parts)]
    size = -(-len(groups) // parts)
    for group in sorted(groups, key=information, reverse=True):
        least = min((part for part in dealt if len(part[1]) < size), key=lambda part: part[0])
        least[0] += information(group)
        least[1].append(group.prompt)
    return [prompt for _, prompts in dealt for prompt in prompts]
