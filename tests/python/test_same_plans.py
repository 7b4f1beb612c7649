"""A policy gives the same plans in the wheel as in the program: recorded runs, gone through again in both."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path

import allot
from recorded import COIN, MODEL, changed, lines, rollouts, run
from recorded import allot as program


def again(folder: Path, **more) -> allot.Allocator:
    """An allocator for the run that was recorded there."""
    head, calls = allot.calls(folder)
    lengths = [1] * head["run"]["prompts"]
    for view, _ in calls:
        for prompt in view["pool"]:
            lengths[prompt["id"]] = prompt["tokens"]
    limits = head["limits"]
    return allot.Allocator(
        head["policy"]["name"],
        lengths,
        settings=dict(head["run"]["settings"]),
        **{name: head["run"][name] for name in ("steps", "groups", "rollouts", "pool", "max_age")},
        seed=head["seed"],
        order=head["order"],
        longest=limits["longest"],
        budget={
            "rollouts": limits["run_rollouts"],
            "tokens": limits["run_tokens"],
            "step_rollouts": limits["step_rollouts"],
            "rounds": limits["rounds"],
        },
        **more,
    )


def drive(
    allocator: allot.Allocator, recorded: Path, orders: list | None = None, stop: int | None = None
) -> None:
    """Gives what the engine gave in the recorded run, up to a step."""
    told = {(line["step"], line["round"]): rollouts(line) for line in lines(recorded, "rollouts")}
    ends = {line["step"]: line for line in lines(recorded, "step")}
    while allocator.steps != stop:
        order = allocator.next()
        if orders is not None:
            orders.append(order)
        match order:
            case allot.Sample(step=step, round=round):
                sampled = told[step, round]
                assert len(sampled) == order.count
                allocator.sampled(
                    [allot.Rollout(**one, answer=(step, round, i)) for i, one in enumerate(sampled)]
                )
            case allot.Train(step=step):
                allocator.trained(updated=ends[step]["updated"])
            case allot.Over():
                return


class SamePlans(unittest.TestCase):
    def compare(self, recorded: Path) -> list:
        """Call by call, and then as a whole run."""
        head, calls = allot.calls(recorded)
        run_of = {name: value for name, value in head["run"].items() if name != "settings"}
        policy = allot.Policy(head["policy"]["name"], dict(head["run"]["settings"]), run=run_of)
        self.assertEqual(policy.describe()["sha256"], head["policy"]["sha256"])
        self.assertEqual(policy.state.hex(), head.get("state", ""))
        states, before = lines(recorded, "call"), policy.state
        self.assertGreater(len(calls), 10)
        for (view, plan), call in zip(calls, states, strict=True):
            self.assertEqual(policy.decide(view), plan)
            if "state" in call:
                self.assertEqual(policy.state, changed(before, call["state"]))
            before = policy.state

        with tempfile.TemporaryDirectory() as folder:
            own, orders = Path(folder) / "run", []
            drive(again(recorded, record=own), recorded, orders)
            self.assertEqual(allot.calls(own)[1], calls)
            # Calls, rollouts and settled steps are the same lines; what the engine measured is the trainer's.
            self.assertEqual(lines(own, "call"), lines(recorded, "call"))
            self.assertEqual(lines(own, "rollouts"), lines(recorded, "rollouts"))
            engine = ("metrics", "accuracy", "scores", "evaluated", "compute")
            for ours, theirs in zip(lines(own, "step"), lines(recorded, "step"), strict=True):
                self.assertEqual(ours, {k: v for k, v in theirs.items() if k not in engine})
            for name in ("reason", "normal", "steps", "spent"):
                self.assertEqual(lines(own, "end")[0][name], lines(recorded, "end")[0][name])
            # And the program takes such a record for one of its own.
            said = program("replay", own, head["policy"]["name"])
            self.assertIn("no difference", said.lower().replace("no differences", "no difference"), said)
        return orders

    def test_every_policy_that_ships_plans_as_it_does_in_the_program(self):
        compared = 0
        for policy in allot.shipped():
            # What a single view does not tell: the history of other prompts, columns, signals, trained rollouts, portions.
            if policy in (
                "adarft", "advantage-replay", "aero", "ar3po", "info-steps", "length-limit", "mopps", "prefix-sampling", "repo",
                "rl-zvp", "sgpo", "strata", "tree-grpo",
            ):  # fmt: skip
                continue
            with self.subTest(policy):
                self.compare(run("simulate", COIN, "--policy", policy))
                compared += 1
        self.assertGreater(compared, 10)

    def test_a_model_s_run_gives_the_same_plans_and_advantages(self):
        recorded = run("train", MODEL)
        orders = self.compare(recorded)
        trained = [order for order in orders if isinstance(order, allot.Train)]
        effective = [sum(learn.advantage != 0 for learn in order.rollouts) for order in trained]
        self.assertEqual(effective, [line["effective"] for line in lines(recorded, "step")])
        self.assertTrue(
            any(learn.age > 0 for order in trained for learn in order.rollouts), "none was ever held"
        )

    def test_a_run_goes_on_from_its_state_as_if_nothing_had_been(self):
        recorded = run("simulate", COIN, "--policy", "pilot-commit")
        whole: list = []
        drive(again(recorded), recorded, whole)
        with tempfile.TemporaryDirectory() as folder:
            own = Path(folder) / "run"
            first = again(recorded, record=own)
            drive(first, recorded, stop=5)
            state = first.state_dict()
            drive(first, recorded, stop=9)  # lost: the state is older
            second = again(recorded, record=own)
            second.load_state_dict(state)
            rest: list = []
            drive(second, recorded, rest)
            self.assertEqual(rest, whole[-len(rest) :])
            self.assertEqual(allot.calls(own)[1], allot.calls(recorded)[1])


if __name__ == "__main__":
    unittest.main()
