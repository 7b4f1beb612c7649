"""README's snippets for trainers: TRL's runs as it stands, with a tiny model; those for verl and slime are held to the adapters."""

from __future__ import annotations

import ast
import inspect
import os
import re
import tempfile
import unittest
from importlib.util import find_spec
from pathlib import Path

import allot
from recorded import ROOT
from recorded import allot as program

README = (ROOT / "README.md").read_text()


def section(name: str) -> str:
    """From a trainer's name on, up to the next one's."""
    return README.split(f"**{name}** (", 1)[1].split("\n**", 1)[0].split("\n## ", 1)[0]


def table(text: str) -> dict:
    """YAML's flow style, where every key and word is plain."""
    return ast.literal_eval(re.sub(r"[A-Za-z][\w/-]*", lambda word: repr(word[0]), text))


class Readme(unittest.TestCase):
    def allocator(self, given: dict, names: tuple[str, ...]):
        """The keys are those of `allot.Allocator`, which takes their values, with what the trainer says itself."""
        taken = inspect.signature(allot.Allocator).parameters
        self.assertLessEqual(set(given), set(taken))
        self.assertGreaterEqual(set(given), set(names))
        with tempfile.TemporaryDirectory() as folder:
            if "record" in given:
                given["record"] = str(Path(folder) / given["record"])
            sizes = {"groups": 16, "rollouts": 16, **given}
            allocator = allot.Allocator(lengths=[40] * 200, steps=2, longest=64, **sizes)
            order = next(iter(allocator))
        self.assertIsInstance(order, allot.Sample)
        self.assertEqual({draw.count for draw in order.draws}, {given["settings"]["pilot"]})

    def test_the_policy_s_settings_in_verl_are_the_allocator_s(self):
        text = section("verl")
        # On one line: Hydra reads no value that is broken.
        given = re.search(r"sampler_kwargs=(\{.*\})'", text)[1]
        # Groups and rollouts are verl's own, if they are not given.
        self.allocator(table(given), ("policy", "budget"))
        source = (ROOT / "host/python/allot/verl.py").read_text()
        mode = re.search(r"trainer_mode=(\w+)", text)[1]
        self.assertIn(f'@register_trainer("{mode}")', source)

    @unittest.skipIf(find_spec("hydra") is None, "no Hydra here")
    def test_hydra_reads_the_overrides_of_verl(self):
        from hydra.core.override_parser.overrides_parser import OverridesParser

        page = (ROOT / "docs/how-to/verl.md").read_text()
        for text in (section("verl"), page):
            (override,) = re.findall(r"'(\+trainer\.v1[^']*)'", text.replace("'+trainer…'", ""))
            (parsed,) = OverridesParser.create().parse_overrides([override])
            self.assertEqual(parsed.value()["policy"], "pilot-commit")

    def test_slime_s_paths_are_names_of_the_adapter(self):
        text = section("slime")
        self.paths(text, "slime", r"^allot: (\{.*?\}\})")
        page = (ROOT / "docs/how-to/slime.md").read_text()
        for option in re.findall(r"--[a-z-]+", text):
            self.assertIn(option, page)

    def test_the_paths_of_miles_page_are_names_of_the_adapter(self):
        page = (ROOT / "docs/how-to/miles.md").read_text().split("\n## ", 1)[0]
        self.paths(page, "miles", r"^allot: (\{.*?\n.*?\})\n")

    def paths(self, text: str, trainer: str, section: str):
        """An adapter has what a command names, and the allocator takes what the section beside it says."""
        source = ast.parse((ROOT / f"host/python/allot/{trainer}.py").read_text())
        (there,) = [node.value for node in source.body if isinstance(node, ast.Assign)]
        named = re.findall(rf"allot\.{trainer}\.(\w+)", text)
        self.assertEqual(len(named), 3)
        self.assertLessEqual(set(named), set(ast.literal_eval(there)))
        given = re.search(section, text, re.S | re.M)[1]
        self.allocator(table(given), ("policy", "groups", "rollouts", "budget"))

    @unittest.skipIf(find_spec("trl") is None, "no TRL here")
    def test_trl_s_code_runs(self):
        code = re.search(r"```python\n(.*?)```", section("TRL"), re.S)[1]
        for printed, here in [
            ('"Qwen/Qwen2.5-0.5B-Instruct"', repr(str(ROOT / "tests/cases/models/tiny-qwen2-tied"))),
            ("steps=20, groups", "steps=2, groups"),
            ("max_steps=20", "max_steps=2, report_to=[], use_cpu=True"),
        ]:
            self.assertIn(printed, code)
            code = code.replace(printed, here)
        before = Path.cwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                exec(compile(code, "README.md", "exec"), {})  # noqa: S102
                program(
                    "replay", f"{folder}/runs/trl", "pilot-commit", "--set", "pilot=2", "--set", "commit=6"
                )
            finally:
                os.chdir(before)


if __name__ == "__main__":
    unittest.main()
