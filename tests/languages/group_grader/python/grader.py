"""What each language's grader of groups does here: it compares answers, and a fault."""

from dataclasses import dataclass

from allot_grader import Question, reward, setting, unscorable

name = "podium"
version = "0.1.0"
summary = "the shortest right answers of a group"


@dataclass
class Settings:
    """What a run may set."""

    best: float = setting(1.0, "What the shortest right answer is worth.")


def grade_group(settings: Settings, questions: list[Question]):
    if any(question.answer == "!" for question in questions):
        raise ValueError("no answer begins so")
    if len(questions) == 1:
        return [unscorable("it is alone")]
    right = [question.answer in question.gold for question in questions]
    least = min((len(q.answer) for q, is_right in zip(questions, right) if is_right), default=0)
    best = [is_right and len(q.answer) == least for q, is_right in zip(questions, right)]
    return [reward(settings.best if first else 0.0, is_right) for first, is_right in zip(best, right)]
