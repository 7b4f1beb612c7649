"""The policy as a plain function, no Wasm: `python3 -m unittest` in this folder."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "sdk/python"))

import policy
from allot_policy import BadSetting, BadState, Chance, begin, decide, made, run_with
from allot_policy.state import save


def small_run(**changes):
    """Two groups of 4 + 4 rollouts, three prompts a round."""
    run = run_with(policy, **{"pilot": 4, "commit": 4, "prompts": 3, "sampling": "max-variance", **changes})
    run.groups = 2
    return run


def state(**known):
    return save(policy.State(**known), policy.State)


def requests(plan):
    return [(request.prompt, request.count) for request in plan.requests]


def batch(plan):
    return [pick.prompt for pick in plan.picks], plan.held


class PilotCommit(unittest.TestCase):
    def test_pilots_and_commits_share_a_round(self):
        run = small_run()
        plan = decide(policy, run, begin(policy, run), made.view(range(9)))
        self.assertEqual(requests(plan), [(0, 4), (1, 4), (2, 4)])

        groups = [made.group(0, [1, 1, 1, 1]), made.group(1, [0, 1, 0, 0]), made.group(2, [0] * 4)]
        plan = decide(policy, run, plan.state, made.view(range(3, 9), groups, round=1))
        self.assertEqual(requests(plan), [(3, 4), (4, 4), (5, 4), (1, 4)])
        self.assertEqual(plan.evicted, [0])
        self.assertEqual(plan.metrics, [("survivors", 1.0), ("commits", 1.0)])

        groups[1] = made.group(1, [0, 1, 0, 0, 1, 1, 1, 1])
        groups += [made.group(3, [0, 1, 0, 0]), made.group(4, [0, 1, 0, 1]), made.group(5, [0] * 4)]
        plan = decide(policy, run, plan.state, made.view(range(6, 9), groups, round=2))
        self.assertEqual(requests(plan), [(6, 4), (7, 4), (8, 4), (4, 4)], "half solved goes first")
        self.assertEqual(plan.evicted, [], "once is enough")

        groups[4] = made.group(4, [0, 1, 0, 1, 1, 1, 1, 1])
        plan = decide(policy, run, plan.state, made.view([], groups, round=3))
        self.assertEqual(batch(plan), ([1, 4], [3]), "the survivor is held")

    def test_old_pilots_are_let_go(self):
        run = small_run(max_off=1)
        ages = [2, 0, 0, 2, 1]
        view = made.view([], [made.group(p, [1, 0, 0, 1], age) for p, age in enumerate(ages)])
        view.budget.rounds = 0
        plan = decide(policy, run, begin(policy, run), view)
        self.assertEqual(batch(plan), ([0, 1], [2, 4]), "trained on rather than lost")

    def test_a_commit_cut_by_the_budget_counts_if_anything_came(self):
        groups = [made.group(7, [1, 0, 1, 0]), made.group(8, [1, 0, 1, 0, 1])]
        view = made.view(range(9), groups, round=1)
        view.budget.run_rollouts = 0
        plan = decide(policy, small_run(), state(committed=[[7, 4], [8, 4]]), view)
        self.assertEqual(batch(plan), ([8], [7]))

    def test_pilots_that_could_not_be_judged_are_not_missed(self):
        run = small_run(pilot_kept=2)
        plan = decide(policy, run, begin(policy, run), made.view(range(9)))

        # Of three times four pilots these were judged.
        groups = [made.group(0, [0, 1, 0]), made.group(1, [1, 1, 1]), made.group(2, [0, 1])]
        plan = decide(policy, run, plan.state, made.view(range(3, 9), groups, round=1))
        self.assertEqual(requests(plan), [(3, 4), (4, 4), (5, 4), (0, 4), (2, 4)])
        self.assertEqual(plan.evicted, [1])

        groups[0], groups[2] = made.group(0, [0, 1, 0, 1, 1, 1]), made.group(2, [0, 1, 0])
        plan = decide(policy, run, plan.state, made.view([], groups, round=2))
        self.assertEqual(batch(plan), ([0, 2], []))
        self.assertEqual([len(pick.rollouts) for pick in plan.picks], [2 + 3, 2 + 1])

    def test_pilots_cut_short_by_the_budget_evict_nobody(self):
        run = small_run()
        plan = decide(policy, run, begin(policy, run), made.view(range(9)))
        groups = [made.group(0, [1, 1, 1]), made.group(1, [1])]
        plan = decide(policy, run, plan.state, made.view(range(9), groups, round=1))
        self.assertEqual(plan.evicted, [0], "what came after it shows that its pilots are whole")

    def test_an_epoch_may_end_for_good(self):
        run = small_run(epoch_end="discard")
        view = made.view(range(2), [made.group(9, [1, 0, 1, 0])], round=1)
        view.pool += [made.prompt(id, epoch=1) for id in range(2, 6)]
        plan = decide(policy, run, state(begun=True), view)
        self.assertEqual(batch(plan), ([], []), "all is let go")
        self.assertEqual(plan.skipped, [0, 1], "too few for a round")

        view.round, view.groups, view.pool = 0, [], view.pool[2:]
        plan = decide(policy, run, plan.state, view)
        self.assertEqual(requests(plan), [(2, 4), (3, 4), (4, 4)])

    def test_survivors_are_chosen_by_rule(self):
        marks = [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0]]
        groups = [made.group(p, marks[p], age) for p, age in enumerate([1, 2, 1, 0])]

        def chosen(sampling, size):
            return [g.prompt for g in policy.choose(sampling, groups, size, Chance(5))]

        self.assertEqual(chosen("max-variance", 3), [2, 1, 3], "newer ones first")
        self.assertEqual(chosen("most-recent", 3), [3, 0, 2], "as they stand where ages tie")
        self.assertEqual(chosen("random", 2), Chance(5).draw(4, 2))
        self.assertEqual(chosen("random", 4), [0, 1, 2, 3])

    def test_pilots_can_be_thinned_out(self):
        chance = Chance(1)
        kept = policy.downsample([True, False, True, True, False], 3, chance)
        self.assertIn(kept[0], [0, 2, 3])
        self.assertEqual(sorted(kept[1:]), [1, 4])
        self.assertEqual(len(policy.downsample([False] * 3, 2, chance)), 2)
        self.assertEqual(policy.downsample([True], 4, chance), [0])

        view = made.view(range(9), [made.group(7, [1, 0, 0, 0, 1, 1])], round=1)
        view.budget.rounds = 0
        plan = decide(policy, small_run(pilot_kept=2), state(committed=[[7, 4]]), view)
        kept = plan.picks[0].rollouts
        self.assertEqual((len(kept), kept[0], kept[2:]), (4, 0, [4, 5]))

    def test_rounds_fit_the_gpus(self):
        self.assertEqual(policy.gpu_cut(3, 24, 4, 1), 3)
        self.assertEqual(policy.gpu_cut(3, 24, 4, 8), 2, "commits in pairs")
        self.assertEqual(policy.gpu_cut(3, 21, 3, 2), 3)
        self.assertEqual(policy.gpu_cut(4, 21, 3, 2), 3)
        self.assertEqual(policy.gpu_cut(3, 1, 2, 2), 0)

    def test_what_does_not_fit_is_refused(self):
        for changes, told in [
            ({"pilot": 0}, "pilot: must be at least 1"),
            ({"pilot": 1}, "pilot: 1 pilot can't be solved at least 0.125 and failed .*; set 2 or more"),
            ({"solved_at_least": 0.8}, "solved-at-least: pilots can't be solved at least 0.8"),
            ({"pilot_kept": 5}, "pilot-kept: there are not as many pilots"),
            ({"prompts": 99, "epoch_end": "discard"}, "prompts: the pool has 64 prompts on offer, not 99"),
            ({"solved_at_least": "often"}, "solved-at-least: expected a number"),
        ]:
            with self.assertRaisesRegex(BadSetting, told):
                begin(policy, small_run(**changes))
        for bytes in (b"\xff", b"[]", b'{"committed":[]}'):
            with self.assertRaises(BadState):
                decide(policy, small_run(), bytes, made.view(range(9)))

    def test_chance_is_the_same_in_every_language(self):
        chance = Chance(0)
        self.assertEqual([chance.bits(), chance.bits()], [0xE220_A839_7B1D_CDAF, 0x6E78_9E6A_A1B9_65F4])


if __name__ == "__main__":
    unittest.main()
