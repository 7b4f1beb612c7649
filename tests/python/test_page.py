"""The code on docs/how-to/python.md that needs no trainer, as it stands there."""

from __future__ import annotations

import contextlib
import io
import re
import unittest

from recorded import ROOT


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


if __name__ == "__main__":
    unittest.main()
