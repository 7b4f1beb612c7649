"""What a Python author needs to write an allocation policy.

A policy is one module, `policy.py`, with a name, some settings, perhaps some state, and one
decision:

    from dataclasses import dataclass

    from allot_policy import Pick, Request, sample, setting, train

    name = "even"
    version = "0.1.0"
    summary = "the same number of rollouts for every prompt"


    @dataclass
    class Settings:
        rollouts: int = setting(8, "Rollouts of each prompt.", minimum=0)


    def decide(settings, run, state, view):
        if view.round == 0 and view.can_sample:
            return sample(Request(p.id, settings.rollouts) for p in view.offer(run.groups))
        return train(Pick.all(g.prompt) for g in view.groups)

It may also have:

- `signals`, a list of names: signals to show beside each rollout (`group.signals`).
- `columns`, a list of names: columns of the data set to ask `facts` for.
- `needs`, a list of what else it makes use of, of "any-prompt", "replay", "sampling", "stopping",
  "updating", "parts", "turns" and "starting".
- `begin(settings, run)`: checks settings against each other and the run, and gives the first
  state. A setting's own type is checked before.
- `State`, a dataclass: what the policy remembers. Without it a state is what `begin` returns, of
  what JSON holds, or None. `decide` changes the state in place.

A policy is a pure function: `decide` may rest on its arguments alone. Chance comes from
`view.seed` (see `Chance`), memory from `state`. In a component the clock stands still, `random` is
the same in each call, and there are no files: what is imported is imported at the top of a module,
when the component is built. A set of texts is in another order in each build: sort what comes out
of one.

In plain Python these are functions that tests call (`describe`, `begin`, `decide`, `run_with`,
`made`); `allot build` makes of them a component of the contract `rollout:allocation@0.3.0`
(`wit/0.3/allocation.wit`). The SDK knows nothing of any host, and needs nothing but Python.
"""

from . import facts, log, made
from .calls import begin, decide, describe, run_with
from .chance import Chance
from .error import BadSetting, BadState, GiveUp
from .plan import Among, Enough, Hold, Pick, Plan, Request, Start, sample, train
from .settings import or_else, setting
from .view import Budget, Column, Group, Origin, Past, Prompt, Run, Sampling, Tally, Turn, Update, View

__all__ = [
    "Among",
    "BadSetting",
    "BadState",
    "Budget",
    "Chance",
    "Column",
    "Enough",
    "GiveUp",
    "Group",
    "Hold",
    "Origin",
    "Past",
    "Pick",
    "Plan",
    "Prompt",
    "Request",
    "Run",
    "Sampling",
    "Start",
    "Tally",
    "Turn",
    "Update",
    "View",
    "begin",
    "decide",
    "describe",
    "facts",
    "log",
    "made",
    "or_else",
    "run_with",
    "sample",
    "setting",
    "train",
]
