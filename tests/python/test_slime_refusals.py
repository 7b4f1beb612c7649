"""slime: what can't be done right is refused in a sentence, before anything is sampled, and with a hint."""

from __future__ import annotations

import unittest
from importlib.util import find_spec

if find_spec("slime") is None:
    raise unittest.SkipTest("no slime here")

import rows_refusals
import slime_here
from allot.slime_checks import SLIME
from allot.slime_train import LOOP


class Refusals(rows_refusals.Refusals):
    here, checks, loop = slime_here, SLIME, LOOP


if __name__ == "__main__":
    unittest.main()
