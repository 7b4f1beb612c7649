"""Times a policy's `decide` in plain Python: python3 decide.py FOLDER QUESTION.json prints seconds."""

import json
import sys
import time
from pathlib import Path

folder, question = sys.argv[1:]
sys.path[:0] = [folder, str(Path(__file__).parents[2] / "policies/sdk/python")]

import allot_policy as sdk  # noqa: E402
import policy  # noqa: E402
from allot_policy.view import Budget, Group, Past, Prompt, Run, View  # noqa: E402

asked = json.loads(Path(question).read_text())
settings = [(name, value) for name, value in asked["run"].pop("settings")]
run = Run(settings, **asked["run"])
view = asked["view"]
pool = [Prompt(**{**p, "past": Past(**p["past"]) if p.get("past") else None}) for p in view["pool"]]
groups = [Group(**{"signals": [], **g}) for g in view["groups"]]
view = View(**{**view, "budget": Budget(**view["budget"]), "pool": pool, "groups": groups})

state = sdk.begin(policy, run)
best = float("inf")
for _ in range(20):
    start = time.perf_counter()
    sdk.decide(policy, run, state, view)
    best = min(best, time.perf_counter() - start)
print(best)
