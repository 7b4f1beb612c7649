"""The grader as a plain function, no Wasm."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "sdk"))

import grader
from allot_grader import Question, correct, judge


class Test(unittest.TestCase):
    def test_white_space_around_makes_no_difference(self):
        self.assertEqual(judge(grader, Question(gold=["Paris"], answer=" Paris\n")), correct(True))
        self.assertEqual(judge(grader, Question(gold=["Paris"], answer="paris")), correct(False))

    def test_capitals_make_none_where_a_run_says_so(self):
        question = Question(gold=["Paris"], answer="PARIS")
        self.assertEqual(judge(grader, question, caseless=True), correct(True))


if __name__ == "__main__":
    unittest.main()
