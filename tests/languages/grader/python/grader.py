"""What each language's grader does here: all that a verdict can be, and a fault."""

import sys
from dataclasses import dataclass

from allot_grader import BadSetting, GiveUp, Question, correct, in_parts, reward, setting, unscorable

name = "yardstick"
version = "0.1.0"
summary = "all that a verdict can be"
parts = ["answer", "length"]


@dataclass
class Settings:
    """What a run may set."""

    word: str = setting("pass", "The answer that can't be judged.")
    per_letter: float = setting(0.125, "What each letter is worth.")
    open: bool = setting(True, "Whether anything is.")
    longest: int = setting(100, "The longest answer.")


def begin(settings: Settings):
    if settings.per_letter < 0:
        raise BadSetting("per_letter", "a letter costs nothing")
    if not settings.open:
        raise GiveUp("it is closed")


def grade(settings: Settings, question: Question):
    answer = question.answer
    right = answer in question.gold
    if answer == "!":
        raise ValueError("no answer begins so")
    if answer == "exit":
        sys.exit(0)
    if answer == "=":
        return correct(right)
    if answer == "+":
        return reward(0.75, right)
    if answer == "?":
        return reward(0.25)
    if answer == settings.word:
        return unscorable(f"{question.source} to {question.prompt}")
    return in_parts({"length": len(answer) * settings.per_letter, "answer": float(right)}, right)
