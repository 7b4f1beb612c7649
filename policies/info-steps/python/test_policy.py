"""The policy as a plain function, no Wasm: `python3 -m unittest` in this folder."""

import sys
import unittest
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "sdk/python"))

import policy
from allot_policy import BadSetting, Pick, Request, Update, begin, decide, made, run_with


def after(*groups):
    return replace(made.view(range(20, 30)), round=1, groups=list(groups))


class InfoSteps(unittest.TestCase):
    def test_half_right_is_worth_all_of_its_rollouts(self):
        self.assertEqual(policy.information(made.group(0, [1, 1, 0, 0])), 4)
        self.assertEqual(policy.information(made.group(0, [1, 0, 0, 0])), 3)
        self.assertEqual(policy.information(made.group(0, [1, 1])), 0)

    def test_it_goes_on_until_there_is_enough_for_a_step(self):
        view = after(made.group(0, [1, 0, 0, 0]), made.group(1, [1, 1, 0, 0]))
        plan = decide(policy, run_with(policy, info=8.0), b"", view)
        self.assertEqual(plan.requests, [Request(p, 8) for p in range(20, 24)])

    def test_what_is_enough_for_three_is_cut_into_three(self):
        half = [made.group(p, [1, 1, 0, 0]) for p in (0, 2, 3)]
        view = after(half[0], made.group(1, [1] * 4), *half[1:])
        plan = decide(policy, run_with(policy, info=4.0), b"", view)
        self.assertEqual(plan.picks, [Pick.all(p) for p in (0, 2, 3)])
        self.assertEqual(plan.updated, Update(4, 4))

    def test_steps_get_about_the_same(self):
        groups = [made.group(p, [1] * k + [0] * (8 - k)) for p, k in enumerate((4, 3, 1, 7))]
        self.assertEqual(policy.deal(groups, 2), [0, 3, 1, 2])

    def test_settings_that_make_no_step(self):
        for changes in ({"info": 0.0}, {"most": 0}):
            with self.assertRaises(BadSetting):
                begin(policy, run_with(policy, **changes))


if __name__ == "__main__":
    unittest.main()
