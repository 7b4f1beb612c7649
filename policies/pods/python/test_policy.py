"""The policy as a plain function, no Wasm: `python3 -m unittest` in this folder."""

import sys
import unittest
from itertools import combinations
from pathlib import Path
from statistics import pvariance

sys.path.insert(0, str(Path(__file__).parents[2] / "sdk/python"))

import policy
from allot_policy import BadSetting, BadState, Chance, Pick, Request, begin, decide, made, run_with


class Pods(unittest.TestCase):
    def test_a_step_is_one_round(self):
        run = run_with(policy, generate=16)
        plan = decide(policy, run, begin(policy, run), made.view(range(9)))
        self.assertEqual(plan.requests, [Request(id, 16) for id in range(4)])
        plan = decide(policy, run_with(policy), b"", made.view(range(2)))
        self.assertEqual(plan.requests, [Request(0, 8), Request(1, 8)], "the run's own number")

    def test_no_subset_has_more_variance(self):
        chance = Chance(7)
        for turn in range(60):
            n = 2 + chance.below(8)
            offset = [0.0, 1000.0, -3.0][turn % 3]
            rewards = [round((chance.unit() + offset) * 1024) / 1024 for _ in range(n)]
            for m in range(1, n + 1):
                kept = [rewards[i] for i in policy.max_variance(rewards, m)]
                most = max(pvariance(subset) for subset in combinations(rewards, m))
                self.assertEqual(len(kept), m)
                self.assertGreaterEqual(pvariance(kept), most * (1 - 1e-9), (rewards, m))

    def test_right_and_wrong_are_kept_in_equal_parts(self):
        rewards = [float(i % 3 == 0) for i in range(128)]
        for m in (32, 33):
            right = sum(rewards[i] for i in policy.max_variance(rewards, m))
            self.assertEqual(right, m // 2, "of two balanced splits the one tried first")

    def test_equal_rewards_keep_the_first(self):
        self.assertEqual(policy.max_variance([0.1] * 5, 3), [0, 1, 2])
        self.assertEqual(policy.max_variance([0.0, -0.0, 0.0], 2), [0, 1])
        self.assertEqual(policy.descending([-0.0, 0.0, 1.0, -0.0]), [2, 0, 1, 3])

    def test_the_edges_are_defined(self):
        for keep in (0, 1):
            with self.assertRaisesRegex(BadSetting, "keep: must be at least 2"):
                begin(policy, run_with(policy, keep=keep))
        with self.assertRaisesRegex(BadSetting, "generate: it is 1, and an advantage"):
            begin(policy, run_with(policy, generate=1))
        with self.assertRaisesRegex(BadSetting, "rule: `best` is unknown; expected one of max-variance"):
            begin(policy, run_with(policy, rule="best"))
        with self.assertRaisesRegex(BadSetting, "keep: -1 is not a whole number, 0 or more"):
            begin(policy, run_with(policy, keep=-1))
        with self.assertRaisesRegex(BadState, "it is not JSON"):
            decide(policy, run_with(policy), b"\xff", made.view(range(9)))
        self.assertEqual(policy.max_variance([1.0, 0.0, 0.5], 5), [0, 2, 1])

        view = made.view(range(9), [made.group(4, [0, 1, 0])], round=1)
        plan = decide(policy, run_with(policy, keep=1), b"", view)
        self.assertEqual(plan.picks, [Pick.some(4, [1], [0.0])])

    def test_the_other_rules(self):
        view = made.view(range(9), [made.group(4, [0, 1, 0]), made.group(5, [0])], round=1)
        plan = decide(policy, run_with(policy, keep=2, rule="max-reward"), b"", view)
        self.assertEqual([pick.rollouts for pick in plan.picks], [[1, 0], [0]])
        plan = decide(policy, run_with(policy, keep=2, rule="random"), b"", view)
        chance = Chance(view.seed)
        self.assertEqual([pick.rollouts for pick in plan.picks], [chance.draw(3, 2), [0]])
        self.assertEqual(len(set(plan.picks[0].rollouts)), 2)


if __name__ == "__main__":
    unittest.main()
