"""Times a policy's `decide` in plain Python: python3 decide.py FOLDER QUESTION.json prints seconds."""

import json
import sys
import time
from pathlib import Path

folder, question = sys.argv[1:]
sys.path[:0] = [folder, str(Path(__file__).parents[2] / "policies/sdk/python")]

import allot_policy as sdk  # noqa: E402
import policy  # noqa: E402
from allot_policy.view import Budget, Group, Past, Prompt, View  # noqa: E402

# A record has some names of contract 0.1, and leaves out what is as nothing.
asked = json.loads(Path(question).read_text())
given, view = asked["run"], asked["view"]
run = sdk.run_with(policy)
run.settings = [(name, value) for name, value in given["settings"]]
for constant in ("prompts", "steps", "groups", "rollouts", "pool", "max_age"):
    setattr(run, constant, given[constant])


def past(p):
    n = p["rollouts"]
    std = p.pop("deviation") * (n / max(n - 1, 1)) ** 0.5
    length = p.pop("tokens")
    return Past(**p, std=std, mean_length=length)


def prompt(p):
    return Prompt(p["id"], p["epoch"], p["tokens"], past(p["past"]) if p.get("past") else None)


def group(g):
    lists = g["rewards"], g["correct"], g["tokens"], g["ages"], g["truncated"], g.get("signals", [])
    return Group(g["prompt"], g.get("epoch", 0), *lists, [], [], [], [], [], [])


budget = Budget(**{"run_flops": sys.float_info.max, **view["budget"]})
pool, groups = [prompt(p) for p in view["pool"]], [group(g) for g in view["groups"]]
view = View(view["step"], view["round"], view["seed"], budget, pool, groups, [], [])

state = sdk.begin(policy, run)
best = float("inf")
for _ in range(20):
    start = time.perf_counter()
    sdk.decide(policy, run, state, view)
    best = min(best, time.perf_counter() - start)
print(best)
