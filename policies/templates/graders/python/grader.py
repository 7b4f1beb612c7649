"""An answer is right if it is a gold answer.

Change `grade` to your own rule. A grader is a pure function: a verdict rests on the settings and the
question alone.
"""

from dataclasses import dataclass

from allot_grader import Question, correct, setting, unscorable

name = "{{name}}"
version = "0.1.0"
summary = "right is what is a gold answer"


@dataclass
class Settings:
    """What a run may set."""

    caseless: bool = setting(False, "Whether capital letters are the same as small ones.")


def grade(settings: Settings, question: Question):
    if not question.gold:
        return unscorable("there is no gold answer")
    answer = plain(settings, question.answer)
    return correct(any(plain(settings, gold) == answer for gold in question.gold))


def plain(settings: Settings, text: str) -> str:
    """A text without what makes no difference."""
    text = text.strip()
    return text.lower() if settings.caseless else text
