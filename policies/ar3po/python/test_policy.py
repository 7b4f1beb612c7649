"""The policy as a plain function, no Wasm: `python3 -m unittest` in this folder."""

import sys
import unittest
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "sdk/python"))

import policy
from allot_policy import Among, BadSetting, Enough, Hold, Pick, Request, begin, decide, made, run_with


def trained(reuse, groups):
    """The batch after a round, of which prompts 0 and 1 had one stored rollout."""
    run = replace(run_with(policy, reuse=reuse), groups=3)
    stored = [made.group(0, [1]), made.group(1, [1])]
    first = decide(policy, run, begin(policy, run), replace(made.view([0, 1, 2]), groups=stored))
    return decide(policy, run, first.state, replace(made.view(range(5, 9)), round=1, groups=groups))


class Ar3po(unittest.TestCase):
    def test_a_request_ends_with_the_first_correct_rollout(self):
        run = replace(run_with(policy), groups=2)
        plan = decide(policy, run, begin(policy, run), made.view(range(9)))
        self.assertEqual(plan.requests, [Request(p, 8, until=Enough(1, 0, 4)) for p in (0, 1)])

    def test_a_stored_answer_measures_where_none_is_correct(self):
        groups = [
            made.group(0, [1, 0, 0, 0]),
            made.group(1, [1, 0, 1, 0]),
            made.group(2, [0, 0]),
            made.group(3, [1]),
        ]
        plan = trained("measures", groups)
        self.assertEqual(
            plan.picks,
            [
                Pick.some(0, [1, 2, 3], advantage=Among([0, 1, 2, 3])),
                Pick.some(1, [1, 2, 3]),
                Pick.some(2, [0, 1]),
            ],
        )
        self.assertEqual(plan.held, [Hold(0, [0]), Hold(1, [2]), Hold(3, [0])])

    def test_or_trains_as_well(self):
        self.assertEqual(trained("trains", [made.group(0, [1, 0, 0])]).picks, [Pick.some(0, [0, 1, 2])])

    def test_portions_are_neither_too_large_nor_too_small(self):
        for rollouts, portion in ((8, 9), (1024, 3)):
            with self.assertRaises(BadSetting):
                begin(policy, run_with(policy, rollouts=rollouts, portion=portion))

    def test_one_rollout_needs_a_stored_one(self):
        with self.assertRaisesRegex(BadSetting, "stored: must be at least 1"):
            begin(policy, run_with(policy, rollouts=1, stored=0))
        begin(policy, run_with(policy, rollouts=1))


if __name__ == "__main__":
    unittest.main()
