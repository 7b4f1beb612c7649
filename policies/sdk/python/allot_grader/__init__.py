"""What a Python author needs to write a grader of answers.

A grader is one module, `grader.py`, with a name, some settings, and one judgement:

    from dataclasses import dataclass

    from allot_grader import Question, correct, setting

    name = "contains"
    version = "0.1.0"
    summary = "right is what has a gold answer in it"


    @dataclass
    class Settings:
        caseless: bool = setting(False, "Whether capital letters are the same as small ones.")


    def grade(settings: Settings, question: Question):
        plain = str.lower if settings.caseless else str
        return correct(any(plain(gold) in plain(question.answer) for gold in question.gold))

`grade` gives `correct(…)`, `reward(…)`, `in_parts(…)` or `unscorable(…)`. The module may also have:

- `begin(settings)`: checks settings against each other, and raises `BadSetting`. What it returns, if
  anything, is what `grade` gets in place of them: what is worked out once for many answers.
- `parts`, a list of names: the parts of its rewards.

A grader whose verdicts compare answers has `grade_group(settings, questions)` in place of `grade`. It gets all
answers of a group, which differ in `answer` alone, and gives a verdict for each, in their order.

A grader is a pure function: a verdict rests on the settings and the question alone. In a component the
clock stands still, `random` is the same in each call, and there are no files: what is imported is
imported at the top of a module, when the component is built.

In plain Python these are functions that tests call (`judge`, `judge_group`); `allot build` makes of them a component of
the contract `rollout:reward@0.2.0` (`wit/reward/0.2/reward.wit`). The SDK knows nothing of any host, and
needs nothing but Python.
"""

from allot_policy import log
from allot_policy.error import BadSetting, GiveUp
from allot_policy.settings import setting

from .calls import begin, describe, grade, judge, judge_group
from .verdict import Question, Verdict, correct, in_parts, reward, unscorable

__all__ = [
    "BadSetting",
    "GiveUp",
    "Question",
    "Verdict",
    "begin",
    "correct",
    "describe",
    "grade",
    "in_parts",
    "judge",
    "judge_group",
    "log",
    "reward",
    "setting",
    "unscorable",
]
