"""Makes logs of the starts of `uniform`'s runs, as a user has them: `python3 benches/forecast/starts.py ALLOT STARTS`, then
`validate.py ALLOT STARTS --starts`. For each comparison of `measured.toml` whose `uniform` is known, it trains with what won there, on
three seeds of no comparison, for as many rollouts as `uniform` took to the target, and makes a bank of each log."""

import subprocess
import sys
import tomllib
from pathlib import Path

from validate import slug

SEEDS = [9001, 9002, 9003]

allot, starts = sys.argv[1], Path(sys.argv[2])
with open(Path(__file__).parent / "measured.toml", "rb") as file:
    comparisons = tomllib.load(file)["comparisons"]
for comparison in comparisons:
    uniform = comparison["uniform"]
    for seed in SEEDS if "config" in uniform else []:
        run = starts / "runs" / f"{slug(comparison)}-{seed}"
        values = {
            "run.seed": seed,
            "run.groups": uniform["groups"],
            "run.rollouts": uniform["rollouts"],
            "optimizer.learning_rate": uniform["rate"],
            "update.mini_batch": uniform["mini_batch"],
            "budget.rollouts": uniform["spent"],
        }
        overrides = [f"-o{key}={value}" for key, value in values.items()]
        subprocess.run([allot, "train", uniform["config"], *overrides, "--out", run], check=True, stdout=subprocess.DEVNULL)
        bank = starts / f"{slug(comparison)}-{seed}.parquet"
        subprocess.run([allot, "bank", run, "--out", bank], check=True, stdout=subprocess.DEVNULL)
