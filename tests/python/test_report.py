"""A report in a notebook, as `allot report` writes it: of real runs, and of folders that have none."""

from __future__ import annotations

import importlib.util
import json
import shutil
import tempfile
import unittest
from pathlib import Path

import allot
from recorded import COIN, run
from recorded import allot as program


class Shown(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="allot-"))
        runs = [
            run("simulate", COIN, "--policy", policy, "--seed", str(seed))
            for policy in ("uniform", "dapo")
            for seed in (7, 8)
        ]
        program("report", *runs, "--target", "0.5", "--out", cls.folder / "report")
        cls.report = allot.report(cls.folder)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def test_numbers_are_those_of_the_report(self):
        written = json.loads((self.folder / "report" / "report.json").read_text())
        result = self.report.tables["result"]
        self.assertEqual([row["arm"] for row in result], [arm["name"] for arm in written["arms"]])
        self.assertEqual(result.column("last"), [final["last"]["value"] for final in written["finals"]])
        self.assertIsInstance(result[0]["reached"], int)
        self.assertIsNone(result[0]["difference"], "the baseline has none")
        self.assertEqual(self.report.json, written)
        self.assertEqual(len(self.report.verdicts), 2 * (len(written["arms"]) - 1))
        self.assertIn("dapo", self.report.verdicts[0])

    def test_it_shows_itself(self):
        page = self.report._repr_html_()
        self.assertIn("<h3>2 policies, 2 seeds, 4 runs</h3>", page)
        self.assertEqual(page.count("<img"), sum(name in self.report.figures for name in ("accuracy-rollouts", "frontier")))
        self.assertIn("there are at most 2 seeds", page)
        self.assertIn("result", repr(self.report))
        figure = self.report.figures["accuracy-rollouts"]
        self.assertTrue(figure.svg.startswith("<svg") or "<svg" in figure.svg[:300])

    def test_the_report_s_own_folder_does_as_well(self):
        self.assertEqual(allot.report(str(self.folder / "report")).title, self.report.title)

    @unittest.skipUnless(importlib.util.find_spec("pandas"), "pandas is not installed")
    def test_a_table_becomes_a_frame(self):
        frame = self.report.tables["result"].to_pandas()
        self.assertEqual(list(frame["arm"]), ["uniform", "dapo"])
        self.assertTrue(frame["last"].between(0, 1).all())


class Mistakes(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="allot-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def told(self) -> allot.Error:
        with self.assertRaises(allot.Error) as raised:
            allot.report(self.folder)
        return raised.exception

    def test_a_folder_without_a_report_is_told(self):
        self.assertEqual(self.told().what, f"there is no report in `{self.folder}`")
        self.assertIn(f"allot report {self.folder}", self.told().hint)

    def test_a_damaged_report_is_told(self):
        for text in ("", "[1]", "{}", "{\"title\":"):
            (self.folder / "report.json").write_text(text)
            self.assertIn("is no report", self.told().what)

    def test_names_of_strangers_are_shown_and_never_run(self):
        bad = "<script>alert(1)</script>"
        (self.folder / "report.json").write_text(json.dumps({"title": bad, "notes": [bad], "axis": bad}))
        (self.folder / "tables").mkdir()
        (self.folder / "tables" / "result.csv").write_text(f"{bad},x\n{bad},nan\n1_000,\n")
        report = allot.report(self.folder)
        self.assertNotIn("<script", report._repr_html_())
        self.assertEqual(report.tables["result"].column("x"), ["nan", None])
        self.assertEqual(report.tables["result"].column(bad), [bad, "1_000"])
        with self.assertRaises(allot.Error):
            report.tables["result"].column("y")


if __name__ == "__main__":
    unittest.main()
