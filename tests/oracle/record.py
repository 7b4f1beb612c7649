"""Records decisions of the authors' own code, for methods whose decisions are plain functions of Python.

    python3 tests/oracle/record.py METHOD FILE... > tests/cases/oracle/METHOD.jsonl

FILE is the authors' source, which is executed and not copied here. numpy stands in for torch where a few
lines need it. With the same versions the same lines come out.

    method    source, and what of it runs
    coba_rl   Within-yao/CoBA-RL aa6b834 recipe/coba_rl/budget_allocators.py: BetaAllocator, whole
    vip       HieuNT91/VIP 0c17c79 src/vip/allocation/bernoulli_allocation.py: solve, allocation_rounding
    c_grpo    trl-cgrpo 0.2.0 conformal.py and cgrpo_trainer.py: thresholds, CGRPOTrainer._resolved
    spo       verl-recipe 48ea0a7 spo/spo_ray_trainer.py: values, weights and advantages of fit()
    mopps     thu-rllab/MoPPS a883f51 recipe/ours/mopps.py: PosteriorSampler, whole
    repo      SihengLi99/RePO 119fef6 src/replay_grpo_trainer.py: which stored rollouts _replay_step() takes
    adarft    uscnlp-lime/verl bf2dd7e verl/trainer/ppo/custom_sampler.py and ray_trainer.py: prompts, target
"""

import ast
import contextlib
import io
import itertools
import json
import random
import sys
import textwrap
import types

import numpy as np


def load(path, stubs=()):
    """A source file as a module; packages in `stubs` are there and empty."""
    for name in stubs:
        sys.modules.setdefault(name, types.ModuleType(name))
    module = types.ModuleType(path)
    exec(compile(open(path).read(), path, "exec"), module.__dict__)
    return module


def method(path, name, scope):
    """One method of a file, as a function."""
    for node in ast.walk(ast.parse(open(path).read())):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            exec(compile(ast.Module([node], []), path, "exec"), scope)
            return scope[name]
    raise KeyError(name)


def lines(path, first, last):
    """The lines of a file from the one that starts with `first` to the one that starts with `last`."""
    source = open(path).read().splitlines()
    start = next(i for i, line in enumerate(source) if line.strip().startswith(first))
    end = next(i for i, line in enumerate(source) if i >= start and line.strip().startswith(last))
    return compile(textwrap.dedent("\n".join(source[start : end + 1])), path, "exec")


def coba_rl(path):
    upstream = load(path)
    for case in range(24):
        rng = random.Random(case)
        (rollouts, batch), prompts = rng.choice([(8, 4), (8, 8), (4, 6), (16, 5)]), rng.choice([4, 8, 12])
        batch = min(batch, prompts)
        n_low, n_up = rng.choice([(2, 4 * rollouts), (1, 32), (2, rollouts + 3)])
        allocator = upstream.BetaAllocator(n_low=n_low, n_up=n_up)
        ability = [rng.choice([0.0, 0.02, 0.2, 0.5, 0.8, 1.0]) for _ in range(prompts)]
        steps = []
        for step in range(14):
            ids = rng.sample(range(prompts), batch)
            with contextlib.redirect_stdout(io.StringIO()):
                alpha, counts = float(allocator.beta_alpha), allocator.allocate(np.array(ids), batch * rollouts)
            correct = [sum(rng.random() < ability[i] + step * 0.03 for _ in range(n)) for i, n in zip(ids, counts)]
            for i, n, k in zip(ids, counts, correct):
                allocator.update_stats(np.full(n, i), np.array([1.0] * k + [0.0] * (n - k)))
            with contextlib.redirect_stdout(io.StringIO()):
                allocator.commit_step_stats()
            steps.append({"prompts": ids, "alpha": alpha, "counts": [int(n) for n in counts], "correct": correct})
        yield {"tag": f"{batch} of {prompts} prompts, {rollouts} rollouts", "fn": "BetaAllocator", "rollouts": rollouts,
               "n_low": n_low, "n_up": n_up, "steps": steps}


def vip(path):
    upstream = load(path)
    for case in range(60):
        rng = np.random.default_rng(case)
        size, rollouts, rule = int(rng.integers(2, 40)), int(rng.choice([6, 8, 16])), ["rloo", "grpo"][case % 2]
        rates = np.clip(np.round(rng.beta(*[(1, 1), (0.3, 0.3), (2, 5)][case % 3], size), 5), 1e-6, 1 - 1e-6)
        upper, a = 4 * rollouts, rates * (1 - rates)
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exact = upstream.solve(a, rates, rollouts * size, lower=4, upper=upper, allocation_rule=rule)
        counts = None
        with contextlib.suppress(ValueError, AssertionError), contextlib.redirect_stdout(io.StringIO()):
            counts = [int(n) for n in upstream.allocation_rounding(exact, a, rollouts * size, upper)]
        yield {"tag": f"{size} prompts, {rule}", "fn": "allocate_rollout", "rule": rule, "rollouts": rollouts,
               "upper": upper, "rates": rates.tolist(), "success": "success: True" in said.getvalue(),
               "exact": exact.tolist(), "counts": counts}


def c_grpo(conformal, trainer):
    upstream = load(conformal)
    resolved = method(trainer, "_resolved", dict(vars(upstream)))
    for case in range(60):
        rng = random.Random(case)
        grid, score = rng.choice([[2, 4, 8, 16, 32], [1, 3, 9], [4, 8]]), rng.choice(["first_success", "pass_rate"])
        delta, margin = rng.choice([None, 0.1, 0.5]), rng.choice([0.05, 0.2])
        of = upstream.first_success_score if score == "first_success" else upstream.pass_rate_score
        ability = rng.random()
        outcomes = [[rng.random() < ability * rng.random() * 1.5 for _ in range(grid[-1])] for _ in range(rng.randrange(0, 40))]
        scores = {k: [of(o, k) for o in outcomes] for k in grid}
        used = delta or upstream.select_delta_auto(scores[grid[-1]], margin=margin)[0]
        qhats = {k: upstream.conformal_quantile(scores[k], used) for k in grid}
        trainer_self = types.SimpleNamespace(qhats=qhats, args=types.SimpleNamespace(score=score), _rng=rng)
        asked = [[rng.random() < 0.3 for _ in range(grid[-1])] for _ in range(6)]
        yield {"tag": f"{len(outcomes)} prompts, {score}", "fn": "CGRPOTrainer.calibrate", "grid": grid, "score": score,
               "delta": delta or 0, "margin": margin, "outcomes": outcomes, "used_delta": used,
               "thresholds": [qhats[k] for k in grid], "asked": asked,
               "resolved": [[bool(resolved(trainer_self, o, k)) for k in grid] for o in asked]}


class Tensor(np.ndarray):
    """As much of a torch tensor as SPO's lines use."""

    def to(self, _):
        return self

    def std(self):
        return np.asarray(self).std(ddof=1)

    def mean(self):
        return np.asarray(self).mean()


def spo(path):
    torch = types.SimpleNamespace(float=np.float32)
    torch.tensor = lambda values, dtype=np.float32: np.array(values, dtype).view(Tensor)
    before = lines(path, "alpha = [prompt2alpha", "beta = [prompt2beta")
    tensors = lines(path, "alpha = torch.tensor(alpha", "beta = torch.tensor(beta")
    neff, hats = lines(path, "Neff = alpha + beta", "Neff = "), lines(path, "p_hats = alpha", "p_hats = ")
    raw, scaled = lines(path, "advantages = r - p_hats", "advantages"), lines(path, "advantages = (advantages -", "advantages")
    weigh = lines(path, "prompt2phat = {", "}"), lines(path, "prompt2weight = {", "}")
    after = lines(path, "alpha = rho * alpha + r", "beta = rho * beta")
    for case in range(20):
        rng = random.Random(case)
        prompts, rho = rng.choice([3, 6, 20]), rng.choice([0.875, 0.5, 0.96])
        names = list(range(prompts))
        scope = {"torch": torch, "full_prompts": names, "rho": np.float32(rho), "EXPLORATION_EPSILON": 0.05,
                 "prompt2alpha": {i: 0.5 for i in names}, "prompt2beta": {i: 0.5 for i in names}}
        steps = []
        for _ in range(12):
            ids = rng.sample(names, min(prompts, 5))
            for code in weigh:
                exec(code, scope)
            weights = [scope["prompt2weight"][i] for i in ids]
            scope["micro_prompts"], scope["r"] = ids, torch.tensor([float(rng.random() < i / prompts) for i in ids])
            for code in (before, tensors, neff, hats, raw, scaled, after):
                exec(code, scope)
            for i, a, b in zip(ids, scope["alpha"], scope["beta"]):
                scope["prompt2alpha"][i], scope["prompt2beta"][i] = float(a), float(b)
            steps.append({"prompts": ids, "weights": weights, "rewards": [float(r) for r in scope["r"]],
                          "advantages": [float(a) for a in scope["advantages"]],
                          "alpha": [float(a) for a in scope["alpha"]], "beta": [float(b) for b in scope["beta"]]})
        yield {"tag": f"{prompts} prompts, rho {rho}", "fn": "RayPPOTrainer.fit", "rho": rho, "steps": steps}


def mopps(path):
    upstream = load(path, stubs=["torch"])
    upstream.torch.tensor = lambda values: values
    for case in range(24):
        rng = random.Random(case)
        rollouts, decay = rng.choice([8, 4]), rng.choice([1.0, 0.9, 0.5])
        batch, prompts = rng.choice([2, 4]), rng.choice([8, 16])
        names = types.SimpleNamespace
        args = names(data=names(train_batch_size=batch), actor_rollout_ref=names(rollout=names(n=rollouts)),
                     tasksampler=names(bandit_decay_ratio=decay, bandit_target_mean=0.5, bandit_lower_bound=0.3,
                                       bandit_upper_bound=0.7, bandit_sample_strategy="topk", bandit_no_update=False))
        sampler = upstream.PosteriorSampler(args, prompts)
        ability, steps = [rng.random() for _ in range(prompts)], []
        for step in range(10):
            np.random.seed(1000 * case + step)
            candidates = sorted(rng.sample(range(prompts), prompts // 2 + batch))
            chosen, draws = sampler.sample_batch({"index": np.array(candidates)})
            ids = [int(i) for i in chosen["index"]]
            # The same draws again: the choice is theirs, by its distance from the target.
            np.random.seed(1000 * case + step)
            all_draws = np.random.beta(*[np.array([part[str(i)] for i in candidates]) for part in (sampler.alpha, sampler.beta)])
            correct = [sum(rng.random() < ability[i] for _ in range(rollouts)) for i in ids]
            sampler.train({"index": ids}, [k / rollouts for k in correct])
            steps.append({"candidates": candidates, "draws": all_draws.tolist(), "chosen": ids, "correct": correct,
                          "alpha": [float(sampler.alpha[str(i)]) for i in ids],
                          "beta": [float(sampler.beta[str(i)]) for i in ids]})
        yield {"tag": f"decay {decay}", "fn": "PosteriorSampler", "rollouts": rollouts, "decay": decay, "steps": steps}


def repo(path):
    torch = types.SimpleNamespace(tensor=lambda values, device=None: np.array(values, np.float32))
    torch.var = lambda values, unbiased: np.var(values)
    choose = lines(path, 'if strat == "all":', "records = [buf[j] for j in best_subset]")
    for case in range(48):
        rng = random.Random(case)
        strat = ["highest_k", "recent_k", "max_variance_k", "all"][case % 4]
        kinds = rng.choice([[0.0, 1.0], [0.0, 0.25, 0.5, 1.0], [-1.0, 0.1, 1.0]])
        rewards = [rng.choice(kinds) for _ in range(rng.randrange(4, 13))]
        buf = [{"at": i, "rewards_per_func": np.array([r])} for i, r in enumerate(rewards)]
        k = len(buf) if strat == "all" else min(len(buf), rng.randrange(1, 7))
        scope = {"torch": torch, "itertools": itertools, "random": rng, "buf": buf, "k": k, "strat": strat, "device": None}
        exec(choose, scope)
        yield {"tag": f"{k} of {len(buf)}", "fn": "ReplayGRPOTrainer._replay_step", "strategy": strat, "k": k,
               "rewards": rewards, "chosen": sorted(r["at"] for r in scope["records"])}


def adarft(sampler, trainer):
    torch = types.ModuleType("torch.utils.data")
    torch.Sampler = object
    sys.modules.update({"torch": types.ModuleType("torch"), "torch.utils": types.ModuleType("u"), "torch.utils.data": torch})
    upstream = load(sampler)
    move = lines(trainer, "new_target_difficulty = self.sampler", "self.sampler.update_target_difficulty(")
    for case in range(24):
        rng = random.Random(case)
        difficulties, batch = [rng.random() * 100 for _ in range(rng.choice([20, 300]))], rng.choice([2, 16])
        of = upstream.CurriculumSampler([{"difficulty": d} for d in difficulties], batch, 0)
        scope = {"np": np, "self": types.SimpleNamespace(sampler=of), "d_min": 0, "d_max": 100, "beta": 0.5,
                 "alpha": rng.choice([1, 2]), "eta": rng.choice([50, 10])}
        steps = []
        for _ in range(10):
            target, chosen = float(of.target_difficulty), [int(i) for i in of._select_closest_to_target()]
            scope["current_reward"] = rng.random()
            exec(move, scope)
            steps.append({"target": target, "chosen": chosen, "reward": scope["current_reward"]})
        yield {"tag": f"{batch} of {len(difficulties)}", "fn": "CurriculumSampler", "sensitivity": scope["alpha"],
               "step": scope["eta"], "difficulties": difficulties, "steps": steps}


if __name__ == "__main__":
    name, *paths = sys.argv[1:]
    for number, case in enumerate(globals()[name](*paths)):
        print(json.dumps({"id": f"{name}-{number}", "algo": name.replace("_", "-"), **case}))
