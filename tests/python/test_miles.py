"""miles' data source, rollout function and post-processing of rewards under policies, on a CPU."""

from __future__ import annotations

import unittest

import miles_here

import rows_cases


class Batches(rows_cases.Batches):
    here = miles_here


class Rows(rows_cases.Rows):
    here = miles_here


class GroupRewards(rows_cases.GroupRewards):
    here = miles_here


if __name__ == "__main__":
    unittest.main()
