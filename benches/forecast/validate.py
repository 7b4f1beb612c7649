"""Holds forecasts against measured ratios: `python3 benches/forecast/validate.py ALLOT BANKS`, with the program and a folder of the banks
that `measured.toml` names. Prints each forecast beside its measurement, and how far off they are."""

import json
import math
import subprocess
import sys
import tomllib
from pathlib import Path


def forecast(allot, bank, groups, rollouts, policy, settings):
    """Information for a rollout: `uniform`'s, and the policy's."""
    sets = [f"--set={policy}.{name}={json.dumps(value)}" for name, value in settings.items()]
    command = [allot, "forecast", bank, "--json", f"--groups={groups}", f"--rollouts={rollouts}", *sets]
    said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    rates = {arm["policy"]: arm["information_per_1000_rollouts"] for arm in [*said["policies"], said["baseline"]]}
    uniform = said["baseline"]["information_per_1000_rollouts"]
    return uniform, uniform if policy in said["as_baseline"] else rates[policy]


def off(pairs):
    logs = [math.log(told / measured) for told, measured in pairs]
    rms = math.exp(math.sqrt(sum(x * x for x in logs) / len(logs)))
    return f"{len(logs)} ratios, off by a factor of {rms:.2f} (root mean square of logarithms), {math.exp(max(map(abs, logs))):.2f} at worst"


def main(allot, banks):
    chosen, held_out = [], []
    with open(Path(__file__).parent / "measured.toml", "rb") as file:
        comparisons = tomllib.load(file)["comparisons"]
    for comparison in comparisons:
        bank = str(Path(banks) / f"{comparison['bank']}.parquet")
        at, told = comparison["uniform"], []
        base, _ = forecast(allot, bank, at["groups"], at["rollouts"], "uniform", {})
        for arm in comparison["arms"]:
            settings = arm.get("settings", {})
            _, rate = forecast(allot, bank, arm["groups"], arm["rollouts"], arm["policy"], settings)
            told.append((rate / base, arm["measured"]))
            words = " ".join(f"{name}={value}" for name, value in settings.items())
            print(f"{comparison['name']:15} {arm['policy']:13} {words:24} forecast {rate / base:5.2f}  measured {arm['measured']:5.2f}")
        (held_out if comparison.get("held_out") else chosen).extend(told)
    print("chosen on: ", off(chosen))
    print("held out:  ", off(held_out))


main(*sys.argv[1:])
