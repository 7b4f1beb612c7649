"""A policy that makes use of all that there is. The twin of ../../whole.rs."""

from dataclasses import dataclass, replace

from allot_policy import Among, Enough, Hold, Pick, Request, Update, facts, sample, setting, train

name = "whole"
version = "0.1.0"
summary = "makes use of all that there is"
needs = ["any-prompt"]


@dataclass
class Settings:
    beyond: str = setting("", "What to use that is not described: nothing, until, sampling or update.")


def decide(settings, run, state, view):
    visits = facts.counts("visits")
    if view.round == 0 and view.can_sample:
        rarest = visits.index(min(visits))
        request = Request(rarest, 3)
        if settings.beyond == "until":
            request.until = Enough(correct=1, wrong=0, portion=2)
        if settings.beyond == "sampling":
            request.sampling = replace(run.sampling.default, temperature=0.5)
        others = [prompt.id for prompt in view.pool if prompt.id != rarest]
        plan = sample([request]).defer(others[:2])
    else:
        plan = train(Pick.some(g.prompt, [0], Among([len(g) - 1])) for g in view.groups)
        plan.hold(Hold(g.prompt, [1]) for g in view.groups if len(g) > 1)
        if settings.beyond == "update":
            plan.update(Update(16, 1))

    def add(numbers):
        total = 0.0
        for number in numbers:
            total += number
        return total

    return (
        plan.metric("correct", add(facts.counts("total_correct", range(2, 9))))
        .metric("std", add(facts.measures("std", [prompt.id for prompt in view.pool[:3]])))
        .metric("mean-length", add(facts.measures("mean_length", range(4))))
        .metric("learning", facts.costs().learning)
        .metric("unscored", add(lost.rollouts for lost in view.unscored))
        .metric("lengths", add(n for g in view.groups for n in g.lengths))
        .metric("epochs", add(g.epoch for g in view.groups))
        .metric("past", add(prompt.past.std for prompt in view.pool if prompt.past))
        .metric("flops", view.budget.run_flops)
        .metric("temperature", run.sampling.most.temperature)
        .metric("passes", run.update.passes)
    )
