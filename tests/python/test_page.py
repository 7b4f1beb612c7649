"""The code on docs/how-to/python.md that needs no trainer, and that on trainer-adapter.md, as it stands there."""

from __future__ import annotations

import contextlib
import io
import re
import unittest

from recorded import ROOT
from recorded import allot as program


class Page(unittest.TestCase):
    def test_the_page_s_code_runs(self):
        page = (ROOT / "docs/how-to/python.md").read_text()
        blocks = [b for b in re.findall(r"```python\n(.*?)```", page, re.S) if "trl" not in b]
        self.assertEqual(len(blocks), 2)
        printed = []
        for block in blocks:
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(block, "docs/how-to/python.md", "exec"), {})  # noqa: S102
            printed.append(out.getvalue().splitlines())
        self.assertIn("{'prompt': ", printed[0][-1])
        reason, spent = printed[1][-1].rsplit(" ", 1)
        self.assertIn(reason, ("all steps are done", "the budget is spent"))
        self.assertLessEqual(int(spent), 1000)

    def test_the_adapter_s_code_and_tests_run(self):
        page = (ROOT / "docs/how-to/trainer-adapter.md").read_text()
        blocks = re.findall(r"```python\n(.*?)```", page, re.S)
        self.assertEqual(len(blocks), 2)
        names = {}
        with contextlib.redirect_stdout(io.StringIO()) as out:
            for block in blocks:
                exec(compile(block, "docs/how-to/trainer-adapter.md", "exec"), names)  # noqa: S102
        reason, sampled = out.getvalue().rsplit(" ", 1)
        self.assertIn(reason, ("all steps are done", "the budget is spent"))
        self.assertGreater(int(sampled), 100)
        program("replay", f"{names['folder']}/cut", "pilot-commit")


if __name__ == "__main__":
    unittest.main()
