"""The script of docs/how-to/trl.md, as it is printed: without a network, on a CPU.

Needs TRL 1.16; skipped without it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import unittest
from importlib.util import find_spec
from pathlib import Path

from recorded import ROOT, lines
from recorded import allot as program

if find_spec("trl") is None:
    raise unittest.SkipTest("no TRL here")

PAGE = (ROOT / "docs/how-to/trl.md").read_text()


class Page(unittest.TestCase):
    def test_the_whole_script_learns(self):
        code = re.search(r"```python\n(.*?)```", PAGE, re.S)[1]
        self.assertLessEqual(len(code.splitlines()), 40)
        offline = {"HF_HUB_OFFLINE": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-W", "ignore", "-c", code]
            done = subprocess.run(
                command,
                cwd=folder,
                env={**os.environ, **offline},
                capture_output=True,
                text=True,
                check=False,
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("'allot/waste'", done.stdout)
            record = Path(folder) / "runs/first"
            rewards = [step["reward"] for step in lines(record, "step")]
            self.assertEqual(len(rewards), 25)
            self.assertGreater(sum(rewards[-5:]) / 5, sum(rewards[:5]) / 5 + 0.25)
            settings = ("pilot=2", "commit=6", "evict-at=1.1")
            program("replay", record, "pilot-commit", *(word for s in settings for word in ("--set", s)))


if __name__ == "__main__":
    unittest.main()
