"""Holds forecasts against measured ratios: `python3 benches/forecast/validate.py ALLOT BANKS`, with the program and a folder of the banks
that `measured.toml` names. Prints each forecast beside its measurement, and how far off they are. `--group again` forecasts the comparisons of
that group alone. With `--spent` a simulated run is as long as `uniform` took to the target, and not as long as the log. With
`--cost tokens` or `--cost operations` it compares these instead of rollouts, where they were measured. With `--starts` the folder has logs of the starts of
`uniform`'s runs, several of a comparison, as starts.py makes them: a forecast is then the geometric mean over these."""

import argparse
import itertools
import json
import math
import subprocess
import tomllib
from pathlib import Path


def forecast(allot, bank, groups, rollouts, budget, arms, cost):
    """Returns the information for a rollout, or for another cost, of `uniform` and of each of the arms, which are of different policies."""
    sets = [f"--set={arm['policy']}.{name}={json.dumps(value)}" for arm in arms for name, value in arm.get("settings", {}).items()]
    command = [allot, "forecast", bank, "--json", f"--groups={groups}", f"--rollouts={rollouts}", *budget, *sets]
    said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    # What each pays for as much information as `uniform` has from the simulated rollouts.
    whole = said["baseline"]["information_per_1000_rollouts"] * said["baseline"]["pays"]["rollouts"]
    rates = {arm["policy"]: whole / arm["pays"][cost] for arm in [said["baseline"], *said["policies"]]}
    uniform = rates["uniform"]
    rates |= {policy: uniform for policy in said["as_baseline"]}
    return uniform, [rates[arm["policy"]] for arm in arms]


def told(allot, bank, at, arms, budget, cost):
    """Returns how many times less than `uniform` each arm is forecast to need. One call forecasts all arms of a step, except
    that an arm of a policy which the call has already needs another."""
    base, rates, left = None, {}, list(enumerate(arms))
    step = (at["groups"], at["rollouts"])
    while left or base is None:
        here, policies = [], set()
        for i, arm in left:
            if (arm["groups"], arm["rollouts"]) == step and arm["policy"] not in policies:
                here.append((i, arm))
                policies.add(arm["policy"])
        uniform, found = forecast(allot, bank, *step, budget, [arm for _, arm in here], cost)
        base = uniform if base is None else base
        rates |= {i: rate for (i, _), rate in zip(here, found)}
        left = [(i, arm) for i, arm in left if i not in rates]
        step = (left[0][1]["groups"], left[0][1]["rollouts"]) if left else step
    return [rates[i] / base for i in range(len(arms))]


def slug(comparison):
    """Returns the name of a comparison as its logs' files begin with it."""
    return comparison["name"].lower().replace(", ", "-")


def mean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def off(pairs):
    logs = [math.log(told / measured) for told, measured in pairs]
    rms = math.exp(math.sqrt(sum(x * x for x in logs) / len(logs)))
    right = sum((told - 1) * (measured - 1) >= 0 for told, measured in pairs)
    return (
        f"{len(logs)} ratios, off by a factor of {rms:.2f} (root mean square of logarithms), {math.exp(max(map(abs, logs))):.2f} at worst; "
        f"fewer or more than `uniform`: right for {right}"
    )


def tau(pairs):
    """Returns Kendall's tau. Pairs of arms with equal measurements are left out."""
    signs = [(a[0] - b[0]) * (a[1] - b[1]) for a, b in itertools.combinations(pairs, 2) if a[1] != b[1]]
    return sum((sign > 0) - (sign < 0) for sign in signs) / len(signs)


def main(asked):
    groups, alone = {}, []
    key = "measured" if asked.cost == "rollouts" else asked.cost
    with open(Path(__file__).parent / "measured.toml", "rb") as file:
        comparisons = tomllib.load(file)["comparisons"]
    for comparison in comparisons:
        group = comparison.get("group", "chosen on")
        if asked.group not in (None, group):
            continue
        arms, uniform = [arm for arm in comparison["arms"] if key in arm], comparison["uniform"]
        if not arms:
            continue
        name = f"{slug(comparison)}-*.parquet" if asked.starts else f"{comparison['bank']}.parquet"
        banks = [str(bank) for bank in sorted(asked.banks.glob(name))] if asked.starts else [str(asked.banks / name)]
        if not banks:
            print(f"{comparison['name']}: left out, as {asked.banks} has no {name}")
            continue
        budget = [f"--budget={uniform['spent']}"] if asked.spent else []
        each = list(zip(*(told(asked.allot, bank, uniform, arms, budget, asked.cost) for bank in banks)))
        pairs = list(zip(map(mean, each), [arm[key] for arm in arms]))
        alone.extend((ratio, measured) for ratios, (_, measured) in zip(each, pairs) for ratio in ratios)
        for arm, ratios, (ratio, measured) in zip(arms, each, pairs):
            words = " ".join(f"{name}={value}" for name, value in arm.get("settings", {}).items())
            print(
                f"{comparison['name']:15} {arm['policy']:16} {words:24} forecast {ratio:5.2f}  measured {measured:5.2f}  "
                f"forecast / measured {ratio / measured:5.2f}" + (f"  from {min(ratios):.2f} to {max(ratios):.2f}" if asked.starts else ""),
                flush=True,
            )
        if group in ("again", "parts"):
            print(f"{comparison['name']}: {off(pairs)}; Kendall's tau {tau(pairs):.2f}", flush=True)
        if group == "again":
            once = [pair for arm, pair in zip(arms, pairs) if arm["policy"] != "advantage-replay"]
            groups.setdefault("again, without advantage-replay", []).extend(once)
        groups.setdefault(group, []).extend(pairs)
    for group, pairs in groups.items():
        print(f"{group}: {off(pairs)}")
    if alone and asked.starts:
        print(f"each log by itself: {off(alone)}")


def parsed():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("allot")
    parser.add_argument("banks", type=Path)
    parser.add_argument("--group")
    parser.add_argument("--spent", action="store_true")
    parser.add_argument("--starts", action="store_true")
    parser.add_argument("--cost", choices=["rollouts", "tokens", "operations"], default="rollouts")
    return parser.parse_args()


if __name__ == "__main__":
    main(parsed())
