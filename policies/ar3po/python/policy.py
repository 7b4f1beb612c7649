"""AR3PO (arXiv 2509.25808): samples a prompt in portions until one rollout is correct, and where none
is, measures the group against a correct answer that an earlier visit stored.

The twin of `../src/lib.rs`, which says what of it is ours: the same plans, to the bit.
"""

from dataclasses import dataclass, field

from allot_policy import Among, BadSetting, Enough, Hold, Pick, Request, or_else, sample, setting, train

name = "ar3po"
version = "0.1.0"
summary = "stops at the first correct rollout, reuses stored ones; not faithful in details"
needs = ["replay", "stopping"]


@dataclass
class Settings:
    rollouts: int = setting(0, "Rollouts of a prompt, at most; 0 for the run's own number.", minimum=0)
    portion: int = setting(0, "Rollouts in a portion; 0 for half of the most.", minimum=0)
    stored: int = setting(1, "Correct answers to store for each prompt.", minimum=0)
    reuse: str = setting(
        "measures",
        "What a stored answer does: measures, or trains as well.",
        choices=["measures", "trains"],
    )


@dataclass
class State:
    asked: list = field(default_factory=list)
    """Prompts asked for in this step, each with the stored rollouts it had then."""


def begin(settings, run):
    most, portion = sizes(settings, run)
    if portion > most or portion < -(-most // 256):
        raise BadSetting("portion", "must be at most `rollouts`, and at least a 256th of them")
    if most == 1 and settings.stored == 0:
        reason = "must be at least 1 where a prompt gets 1 rollout: there is nothing else to measure it against"
        raise BadSetting("stored", reason)


def decide(settings, run, state, view):
    groups = {group.prompt: group for group in view.groups}
    if view.round == 0:
        state.asked = []
        if view.can_sample:
            offered = [prompt.id for prompt in view.offer(run.groups)]
            state.asked = [[p, len(groups[p]) if p in groups else 0] for p in offered]
            most, portion = sizes(settings, run)
            return sample(Request(p, most, until=Enough(1, 0, portion)) for p in offered)
    visited = [(groups[p], stored) for p, stored in state.asked if p in groups]
    picks = [pick(settings, group, stored) for group, stored in visited if len(group) > stored]
    holds = [Hold(group.prompt, kept) for group in view.groups if (kept := keep(settings, group))]
    reused = sum(again for _, again in picks)
    return train(one for one, _ in picks).hold(holds).metric("reused", reused)


def sizes(settings, run):
    """Rollouts of a prompt at most, and in a portion."""
    most = or_else(settings.rollouts, run.rollouts)
    return most, or_else(settings.portion, max(most // 2, 1))


def pick(settings, group, stored):
    """The fresh rollouts of a group of which the first `stored` were stored, and whether one of those
    takes part."""
    fresh = list(range(stored, len(group)))
    old = [i for i in range(stored) if group.correct[i]]
    if not old or any(group.correct[i] for i in fresh):
        return Pick.some(group.prompt, fresh), False
    every = [old[-1], *fresh]
    if settings.reuse == "trains":
        return Pick.some(group.prompt, every), True
    return Pick.some(group.prompt, fresh, advantage=Among(every)), True


def keep(settings, group):
    """The newest correct rollouts of a group."""
    correct = [i for i, right in enumerate(group.correct) if right]
    return correct[max(len(correct) - settings.stored, 0) :]
