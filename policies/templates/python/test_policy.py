"""The policy as a plain function, no Wasm."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "sdk"))

import policy
from allot_policy import BadSetting, Pick, Request, begin, decide, made, run_with

RUN = run_with(policy)


class Test(unittest.TestCase):
    def test_tries_twice_as_many_prompts_as_it_needs(self):
        plan = decide(policy, RUN, begin(policy, RUN), made.view(pool=range(20)))
        self.assertEqual(plan.requests, [Request(id, 4) for id in range(8)])

    def test_commits_only_where_the_pilots_vary(self):
        groups = [made.group(1, [1, 0, 1, 1]), made.group(2, [0, 0, 0, 0])]
        plan = decide(policy, RUN, b"", made.view(groups=groups, round=1))
        self.assertEqual(plan.requests, [Request(1, 12)])

        plan = decide(policy, RUN, b"", made.view(groups=groups, round=2))
        self.assertEqual(plan.picks, [Pick.all(1)])

    def test_one_pilot_tells_nothing(self):
        with self.assertRaises(BadSetting):
            begin(policy, run_with(policy, pilot=1))


if __name__ == "__main__":
    unittest.main()
