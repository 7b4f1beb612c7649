"""Components of contract 0.2 that do one thing, made by the program of `tests/guests/0.2`."""

from __future__ import annotations

from pathlib import Path

from recorded import ROOT
from recorded import allot as program


def made(component: Path, name: str, describe: str, *, temperature: str = "0.5", tokens: str = "40") -> str:
    """The guest of this name with this in its `describe`. `varies` asks for a temperature and a length limit."""
    folder, text = ROOT / "tests/guests/0.2", component.with_suffix(".wat")
    decide = (folder / f"{name}.wat").read_text()
    decide = decide.replace("0.5)) ;; TEMPERATURE", f"{temperature})) ;; TEMPERATURE")
    decide = decide.replace("40)) ;; TOKENS", f"{tokens})) ;; TOKENS")
    whole = (folder / "frame.wat").read_text().replace(";; DESCRIBE", describe)
    text.write_text(whole.replace(";; DECIDE", decide))
    program("build", text, "--out", component)
    return str(component)


def needs(which: int) -> str:
    """In the `describe` of a guest: its needs, 2 for `replay` and 4 for `sampling`."""
    return f"(i32.store8 offset=48 (local.get $d) (i32.const {which}))"
