"""What the Python SDK makes of views, plans and facts, without Wasm."""

import types
import unittest
from dataclasses import make_dataclass

from allot_policy import (
    Among,
    BadSetting,
    Enough,
    Hold,
    Origin,
    Pick,
    Request,
    Sampling,
    Start,
    Turn,
    Update,
    begin,
    describe,
    draft,
    facts,
    made,
    run_with,
    sample,
    setting,
    train,
)
from allot_policy.error import BadPolicy


def policy(**parts):
    module = types.ModuleType("policy")
    vars(module).update({"name": "one", "version": "1", "summary": "one", "decide": None, **parts})
    return module


class Sdk(unittest.TestCase):
    def test_facts_are_those_that_were_made(self):
        made.facts(
            4,
            past={1: made.past(2, 4), 3: made.past(4, 4)},
            columns={"place": [0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5]},
            costs=(1, 2, 3),
        )
        self.assertEqual(facts.counts("correct"), [0, 2, 0, 4])
        self.assertEqual(facts.counts("streak", range(1, 4)), [0, 0, 1])
        self.assertEqual(facts.measures("mean_length", [3, 0, 3]), [10, 0, 10])
        self.assertEqual(facts.column("place", [3, 1]), [3, 3.5, 1, 1.5])
        self.assertEqual(facts.costs().learning, 3)
        for wrong in (
            lambda: facts.counts("visits", range(5)),
            lambda: facts.counts("visit"),
            lambda: facts.column("level"),
        ):
            with self.assertRaises(ValueError):
                wrong()

    def test_deviations_are_of_the_sample_and_as_0_1_had_them_of_the_population(self):
        past = made.past(2, 4)
        self.assertAlmostEqual(past.std, (1 / 3) ** 0.5)
        self.assertAlmostEqual(past.deviation, 0.5)
        self.assertEqual((made.past(1, 1).std, made.past(1, 1).deviation), (0, 0))

    def test_names_of_0_1_are_known(self):
        group, prompt, past = made.group(3, [1, 0]), made.prompt(3), made.past(1, 2)
        self.assertEqual((group.tokens, prompt.tokens, past.tokens), ([10, 10], 10, 10.0))

    def test_what_only_some_need_is_named(self):
        said = describe(policy(needs=["replay", "stopping"], columns=["level"]))
        self.assertEqual((said["needs"], said["columns"]), (["replay", "stopping"], ["level"]))
        self.assertEqual(run_with(policy(columns=["level"])).columns[0].width, 1)
        self.assertEqual((describe(policy())["needs"], describe(policy())["columns"]), ([], []))
        for wrong in ({"needs": ["replays"]}, {"needs": "replay"}, {"columns": [1]}):
            with self.assertRaises(BadPolicy):
                describe(policy(**wrong))

    def test_a_number_outside_of_its_bounds_is_refused(self):
        def refused(kind, default, value, **bounds):
            field = ("it", kind, setting(default, "It.", **bounds))
            of = policy(Settings=make_dataclass("Settings", [field]))
            try:
                begin(of, run_with(of, it=value))
            except BadSetting as bad:
                return bad.reason
            return None

        for kind, default, value, bounds, reason in (
            (int, 8, 65, {"minimum": 2, "maximum": 64}, "65 is not a whole number from 2 to 64"),
            (int, 8, -1, {"minimum": 2, "maximum": 64}, "-1 is not a whole number from 2 to 64"),
            (int, 8, 65, {"maximum": 64}, "65 is not a whole number, 64 or less"),
            (int, 8, 1, {"minimum": 2}, "1 is not a whole number, 2 or more"),
            (float, 0.5, 1.25, {"minimum": 0, "maximum": 1.0}, "1.25 is not a number from 0 to 1"),
            (float, 0.5, 2.0, {"maximum": 1}, "2 is not a number, 1 or less"),
            (int, 8, 64, {"minimum": 2, "maximum": 64}, None),
            (float, 0.5, 0.0, {"minimum": 0, "maximum": 1}, None),
        ):
            self.assertEqual(refused(kind, default, value, **bounds), reason)
        with self.assertRaises(BadPolicy):
            refused(str, "text", "text", maximum=1)

    def test_plans_say_what_only_some_need(self):
        plan = sample([Request(3, 8, until=Enough(1, 0, 4), sampling=Sampling(0.5, 64, 1))]).defer([5])
        self.assertEqual((plan.requests[0].until.portion, plan.deferred), (4, [5]))
        plan = train([Pick.all(4, advantage=Among([0, 2]))]).hold([7, Hold(4, [0, 2])]).update(Update(16, 2))
        plan.check()
        self.assertEqual(plan.held, [7, Hold(4, [0, 2])])
        self.assertEqual(plan.updated, Update(16, 2))

    def test_made_episodes_have_turns(self):
        group = made.episodes(3, [1, 0], turns=[[(0, 5), (20, 4)], []])
        self.assertEqual(group.turns, [[Turn(0, 5), Turn(20, 4)], []])
        self.assertEqual((group.lengths, group.stopped, group.origins), ([9, 0], ["done"] * 2, [None] * 2))
        alone = made.group(3, [1, 0])
        self.assertEqual((alone.turns, alone.stopped, alone.origins), ([], [], []))
        self.assertEqual(run_with(policy()).sampling.most.max_turns, 1)
        self.assertGreater(run_with(policy(needs=["turns"])).sampling.most.max_turns, 1)

    def test_a_draft_is_shown_turns_and_origins(self):
        shown = {name: value for name, value in vars(made.group(3, [1, 0])).items()}
        shown["turns"] = [[{"read": 0, "tokens": 10}], [{"read": 7, "tokens": 10}]]
        shown["stopped"] = ["Done", "MaxReadTokens"]
        shown["origins"] = [None, {"rollout": None, "turn": 2}]
        group = draft._group(**shown)
        self.assertEqual(group.turns, [[Turn(0, 10)], [Turn(7, 10)]])
        self.assertEqual(group.stopped, ["done", "max-read-tokens"])
        self.assertEqual(group.origins, [None, Origin(None, 2)])

    def test_plans_continue_rollouts_and_have_advantages_by_turn(self):
        requests = [Request(3, 3, starts=[None, Start(0, 2), (1, 0)]), Request(4, 1)]
        self.assertEqual(requests[0].starts, [None, Start(0, 2), Start(1, 0)])
        told = draft._plain(sample(requests))["action"]["sample"]
        self.assertEqual(told[0]["starts"], [None, {"rollout": 0, "turn": 2}, {"rollout": 1, "turn": 0}])
        self.assertNotIn("starts", told[1])
        picks = [
            Pick.all(3, advantage=[(0.5, -1), []]),
            Pick.all(4, advantage=[[], [1]]),
            Pick.all(5, advantage=[0.5, -1]),
        ]
        told = [pick["advantage"] for pick in draft._plain(train(picks))["action"]["train"]["picks"]]
        self.assertEqual(told, [{"by_turn": [[0.5, -1], []]}, {"by_turn": [[], [1]]}, {"given": [0.5, -1]}])

    def test_what_can_t_be_is_refused_where_it_is_written(self):
        for wrong in (
            lambda: Request(3, 8, until=4),
            lambda: Request(3, 8, sampling=0.5),
            lambda: Request(3, 8, sampling=Sampling(0.5, -1, 1)),
            lambda: Request(3, 8, sampling=Sampling(0.5, 64, -1)),
            lambda: Request(3, 2, starts=[None]),
            lambda: Request(3, 2, starts=[None, 4]),
            lambda: Request(3, 2, starts=[None, (0, -1)]),
            lambda: Start(0, 0.5),
            lambda: Pick.all(3, advantage=[[0.5], 1]),
            lambda: Pick.all(3, advantage=[0.5, [1]]),
            lambda: Pick.all(3, advantage=[[0.5], ["a"]]),
            lambda: made.episodes(3, [1, 0], [[(0, 5)]]),
            lambda: Enough(1, 0, 0.5),
            lambda: Among([-1]),
            lambda: Hold(3, ["a"]),
            lambda: sample([]).hold([3]),
            lambda: sample([]).update(Update(1, 1)),
            lambda: train([]).update(Update(-1, 1)).check(),
            lambda: train([]).defer([-1]),
        ):
            with self.assertRaises((TypeError, ValueError)):
                wrong()


if __name__ == "__main__":
    unittest.main()
