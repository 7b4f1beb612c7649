"""Tries each prompt with a few rollouts, and spends the rest where the answers vary.

Change `decide` to your own rule. A policy is a pure function: all it knows is in its arguments.
"""

from dataclasses import dataclass

from allot_policy import BadSetting, Pick, Request, Run, View, sample, setting, train

name = "{{name}}"
version = "0.1.0"
summary = "tries each prompt, and commits where answers vary"


@dataclass
class Settings:
    """What a run may set."""

    pilot: int = setting(4, "Rollouts to try each prompt with.", minimum=0)
    commit: int = setting(12, "Rollouts to add where the first ones vary.", minimum=0)


def begin(settings: Settings, run: Run):
    if settings.pilot < 2:
        raise BadSetting("pilot", "it takes at least 2 rollouts to see whether answers vary")


def decide(settings: Settings, run: Run, state: None, view: View):
    varied = [group for group in view.groups if not group.flat]

    if view.can_sample and view.round == 0:
        return sample(Request(prompt.id, settings.pilot) for prompt in view.offer(2 * run.groups))
    tried = varied[: run.groups]
    if view.budget.open and view.round == 1 and tried:
        return sample(Request(group.prompt, max(settings.commit, 1)) for group in tried)
    return train(Pick.all(group.prompt) for group in varied)
