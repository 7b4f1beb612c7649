"""slime's data source, rollout function and post-processing of rewards under policies, on a CPU."""

from __future__ import annotations

import unittest
from importlib.util import find_spec

if find_spec("slime") is None:
    raise unittest.SkipTest("no slime here")

import rows_cases
import slime_here


class Batches(rows_cases.Batches):
    here = slime_here


class Rows(rows_cases.Rows):
    here = slime_here


class GroupRewards(rows_cases.GroupRewards):
    here = slime_here


if __name__ == "__main__":
    unittest.main()
