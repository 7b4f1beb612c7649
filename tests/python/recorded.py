"""Runs of the program, recorded, for tests of the wheel to compare with. `ALLOT` names the program."""

from __future__ import annotations

import atexit
import json
import os
import re
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("ALLOT") or str(
    Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "allot"
)

FOLDERS = tempfile.TemporaryDirectory(prefix="allot-")
atexit.register(FOLDERS.cleanup)

COIN = """
[run]
seed = 7
steps = 40
groups = 6
rollouts = 8
pool = 32
max_age = 2

[budget]
rollouts = 4000
rounds = 6

[policy]
use = "uniform"

[world]
prompts = 150
held_out = 50
difficulty = 1.0
spread = 3.0
transfer = 0.08
memory = 0.5
tokens = 20.0
longest = 64
"""

MODEL = """
[run]
seed = 3
steps = 12
groups = 4
rollouts = 8
pool = 32
max_age = 3

[budget]
rollouts = 2000
rounds = 6

[policy]
use = "pilot-commit"

[policy.settings]
pilot = 2
commit = 6

[model]
use = "tiny-sums"

[sampling]
max_tokens = 8

[reward]
grader = "exact"

[optimizer]
learning_rate = 1e-3

[evaluation]
every = 100
rollouts = 1
problems = 20

[[tasks]]
kind = "sums"
style = "terse"
count = 200
held_out = 0.2
levels = [{ digits = 1, count = 50 }, { digits = 2 }, { digits = 3 }]
"""


def allot(*arguments: str | Path) -> str:
    """What the program says."""
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f"allot {' '.join(map(str, arguments))}: {done.stdout}{done.stderr}")
    return done.stdout


def run(command: str, config: str, *arguments: str) -> Path:
    """The folder of a run, which goes when all tests are over."""
    folder = Path(tempfile.mkdtemp(dir=FOLDERS.name))
    (folder / "run.toml").write_text(config)
    allot(command, folder / "run.toml", "--out", folder / "run", *arguments)
    return folder / "run"


def changed(before: bytes, state: str | list) -> bytes:
    """A state, from the one before and from how a record tells that it changed."""
    if isinstance(state, str):
        return bytes.fromhex(state)
    pieces = (bytes.fromhex(p) if isinstance(p, str) else before[p[0] : p[0] + p[1]] for p in state)
    return b"".join(pieces)


def lines(folder: Path, kind: str) -> list[dict]:
    """A record's lines of a kind."""
    all_lines = map(json.loads, (Path(folder) / "record.jsonl").read_text().splitlines())
    return [line for line in all_lines if line["kind"] == kind]


def counts(folder: Path) -> list[int]:
    """How many rollouts were sampled of each prompt at a time."""
    return [
        len(sampled["rewards"]) + sampled.get("unscorable", 0)
        for line in lines(folder, "rollouts")
        for sampled in line["sampled"]
    ]


def ran(command: list[str], folder: Path, environment: dict[str, str]) -> tuple[int, str]:
    """A trainer's program, run beside this folder, which gets its `log`: its status, and the log without colours."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "tests/python"), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "ALLOT_TEST_REQUESTS": str(folder / "requests"),
        "ALLOT_TEST_REWARDS": str(folder / "rewards"),
        **environment,
    }
    folder.mkdir(exist_ok=True)
    with (folder / "log").open("w") as out:
        done = subprocess.run(
            command, env=environment, cwd=folder.parent, stdout=out, stderr=subprocess.STDOUT, timeout=900
        )
    return done.returncode, re.sub(r"\x1b\[\d*m", "", (folder / "log").read_text())


def rollouts(line: dict) -> list[dict]:
    """A line's rollouts, one by one, unscorable ones last for their prompt."""
    told = []
    for sampled in line["sampled"]:
        for i, reward in enumerate(sampled["rewards"]):
            told.append(
                {
                    "reward": reward,
                    "tokens": sampled["tokens"][i],
                    "correct": sampled["correct"][i] == "1",
                    "truncated": sampled["truncated"][i] == "1",
                }
            )
        told += [{"reward": None, "tokens": 0, "correct": False}] * sampled.get("unscorable", 0)
    return told
