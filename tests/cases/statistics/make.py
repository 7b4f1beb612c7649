"""Records what rliable, arch, lifelines, scipy and statsmodels make of small data: python make.py

Needs rliable 1.2.0 (with arch below 8; its plots are not needed), lifelines, scipy and statsmodels. Each
file tells the versions that it was made with. Indices of resamples are recorded as the bootstrap drew them,
so that intervals can be held against it to the last digit. What is infinite or undefined is null.
"""

import json
import math
import warnings
from fractions import Fraction
from importlib.metadata import version
from itertools import product
from pathlib import Path

import numpy as np
from arch.bootstrap import IIDBootstrap
from lifelines import KaplanMeierFitter
from lifelines.utils import median_survival_times
from rliable import library, metrics
from scipy import stats
from scipy.integrate import quad
from scipy.optimize import brentq
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestPower

warnings.simplefilter("ignore")
here = Path(__file__).parent
packages = ["arch", "lifelines", "numpy", "rliable", "scipy", "statsmodels"]
data = np.random.default_rng(20_240_917)
RESAMPLES = 200


def plain(value):
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(each) for each in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write(name, packages=tuple(packages), **kinds):
    """A line for each case, so that differences can be read."""
    parts = ['"versions": ' + json.dumps({package: version(package) for package in packages})]
    for kind, cases in kinds.items():
        lines = ",\n".join(json.dumps(plain(case), separators=(",", ":")) for case in cases)
        parts.append(f'"{kind}": [\n{lines}\n]')
    (here / name).write_text("{" + ",\n".join(parts) + "}\n")


def recording(bootstrap):
    """The same bootstrap, which keeps the indices of runs that it draws, flat."""

    class Recording(bootstrap):
        def update_indices(self):
            drawn = super().update_indices()
            if not isinstance(drawn, tuple):  # arch, IIDBootstrap: runs
                runs = [drawn]
            elif isinstance(
                drawn[0], list
            ):  # rliable, StratifiedIndependentBootstrap: ([(runs, tasks), ..], {})
                runs = [each[0] for each in drawn[0]]
            else:  # rliable, StratifiedBootstrap: (runs, tasks)
                runs = [drawn[0]]
            self.__dict__.setdefault("drawn", []).append(
                np.concatenate([each.ravel() for each in runs]).tolist()
            )
            return drawn

    return Recording


def interval(bootstrap, func, size=0.95, reps=RESAMPLES):
    low, high = bootstrap.conf_int(
        lambda *a: np.atleast_1d(func(*a)), reps=reps, size=size, method="percentile"
    )
    return low, high


def brackets(bootstrap):
    """Between which numbers another 50,000 resamples put either end of a 95% interval.

    The rank of an end differs between two sets of N resamples by a standard deviation of sqrt(2 N p (1 - p));
    four of them either way.
    """
    values = np.sort(bootstrap._results[:, 0])
    n = len(values)
    reach = 4 * math.sqrt(2 * n * 0.025 * 0.975)
    return [[values[math.floor(n * p - reach)], values[math.ceil(n * p + reach)]] for p in (0.025, 0.975)]


# --- Scores: rliable's aggregates ---

aggregates = {
    "mean": metrics.aggregate_mean,
    "median": metrics.aggregate_median,
    "iqm": metrics.aggregate_iqm,
    "optimality_gap": metrics.aggregate_optimality_gap,
}
tables = {
    "five runs, three tasks": data.normal(0.5, 0.2, (5, 3)),
    "ten runs, four tasks of unlike scale": data.normal(0, 1, (10, 4)) * [0.1, 1, 10, 100],
    "ties": data.integers(0, 4, (6, 3)) / 4,
    "one task": data.uniform(0, 2, (7, 1)),
    "one run": data.uniform(0, 2, (1, 4)),
    "one run, one task": np.array([[0.75]]),
    "constant": np.full((4, 2), 0.3),
}
scores = []
for name, table in tables.items():
    np.random.seed(len(scores))  # rliable draws from numpy's global state, whatever random_state it is given
    size = [0.95, 0.9, 0.5][len(scores) % 3]
    bootstrap = recording(library.StratifiedBootstrap)(table)
    low, high = interval(bootstrap, lambda s: np.array([a(s) for a in aggregates.values()]), size)
    expected = {
        name: {"value": aggregate(table), "low": low[i], "high": high[i]}
        for i, (name, aggregate) in enumerate(aggregates.items())
    }
    scores.append(
        {"name": name, "scores": table, "level": size, "draws": bootstrap.drawn, "expected": expected}
    )

arms = {
    "five runs against four": (data.normal(0.6, 0.2, (5, 3)), data.normal(0.5, 0.2, (4, 3))),
    "ties": (data.integers(0, 4, (6, 2)) / 4, data.integers(0, 4, (6, 2)) / 4),
    "one run against one": (np.array([[0.5, 0.7]]), np.array([[0.5, 0.6]])),
    "the same": (tables["ties"], tables["ties"]),
    "always better": (data.uniform(2, 3, (3, 1)), data.uniform(0, 1, (4, 1))),
}
improvements = []
for name, (x, y) in arms.items():
    np.random.seed(100 + len(improvements))
    bootstrap = recording(library.StratifiedIndependentBootstrap)(x, y)
    low, high = interval(bootstrap, metrics.probability_of_improvement)
    value = metrics.probability_of_improvement(x, y)
    expected = {"value": value, "low": low[0], "high": high[0]}
    improvements.append(
        {"name": name, "x": x, "y": y, "level": 0.95, "draws": bootstrap.drawn, "expected": expected}
    )

curves = []
for runs, points in [(5, 8), (1, 3), (8, 4)]:
    table = np.cumsum(data.normal(0.1, 0.2, (runs, points)), axis=1)
    expected = {}
    for name, func in {
        "mean": lambda s: s.mean(axis=0),
        "iqm": lambda s: stats.trim_mean(s, 0.25, axis=0),
    }.items():
        bootstrap = recording(IIDBootstrap)(table, seed=7)
        low, high = interval(bootstrap, func)
        expected[name] = {"middle": func(table), "low": low, "high": high}
    curves.append({"scores": table, "level": 0.95, "draws": bootstrap.drawn, "expected": expected})

monte_carlo = []
for name in ["five runs, three tasks", "ten runs, four tasks of unlike scale"]:
    np.random.seed(11)
    for kind, aggregate in aggregates.items():
        bootstrap = library.StratifiedBootstrap(tables[name])
        low, high = interval(bootstrap, aggregate, reps=50_000)
        case = {"aggregate": kind, "scores": tables[name], "low": low[0], "high": high[0]}
        monte_carlo.append(case | {"brackets": brackets(bootstrap)})
x, y = arms["five runs against four"]
bootstrap = library.StratifiedIndependentBootstrap(x, y)
low, high = interval(bootstrap, metrics.probability_of_improvement, reps=50_000)
case = {"aggregate": "improvement", "scores": x, "other": y, "low": low[0], "high": high[0]}
monte_carlo.append(case | {"brackets": brackets(bootstrap)})

write("scores.json", aggregates=scores, improvement=improvements, curves=curves, monte_carlo=monte_carlo)

# --- Survival: lifelines ---


def fitted(times, reached, level=0.95):
    return KaplanMeierFitter(alpha=1 - level).fit(times, reached)


def median_by_fractions(times, reached):
    """The median without rounding: lifelines adds logarithms, and so may miss an exact half."""
    survival = Fraction(1)
    for time in sorted(set(times)):
        at_risk = sum(t >= time for t in times)
        survival *= 1 - Fraction(sum(t == time and r for t, r in zip(times, reached)), at_risk)
        if survival <= Fraction(1, 2):
            return time
    return None


fixed = [
    ("ties", [3, 3, 3, 5, 7, 7], [1, 1, 0, 1, 0, 1]),
    ("all censored", [3, 3, 5, 7], [0, 0, 0, 0]),
    ("none censored", [2, 4, 5, 9, 11], [1, 1, 1, 1, 1]),
    ("median not reached", [3, 8, 8, 8, 8], [1, 0, 0, 0, 0]),
    ("median reached, its upper end not", [3, 4, 5, 8, 8], [1, 1, 1, 0, 0]),
    ("one run, reached", [5], [1]),
    ("one run, not reached", [5], [0]),
    ("two runs", [2, 4], [1, 1]),
    ("all at once", [4, 4, 4], [1, 1, 1]),
    ("reached at 0", [0, 1, 2], [1, 1, 0]),
    ("not reached at 0", [0, 1, 2], [0, 1, 1]),
    ("six runs, which lifelines halves wrongly", [1, 2, 3, 4, 5, 6], [1] * 6),
    ("twenty runs, which lifelines halves wrongly", list(range(1, 21)), [1] * 20),
]
drawn = []
for at in range(24):
    n = int(data.integers(3, 15))
    times = np.minimum(data.integers(1, 20, n), 15)
    drawn.append((f"drawn {at}", times.tolist(), (data.uniform(size=n) < 0.7).astype(int).tolist()))
drawn.append(("fractions", (data.uniform(0, 1e6, 10)).tolist(), data.integers(0, 2, 10).tolist()))
survival = []
for at, (name, times, reached) in enumerate(fixed + drawn):
    level = [0.95, 0.8][at % 2]
    model = fitted(times, reached, level)
    low, high = np.ravel(median_survival_times(model.confidence_interval_))
    last = max(times)
    survival.append(
        {
            "name": name,
            "times": times,
            "reached": reached,
            "level": level,
            "timeline": model.timeline,
            "survival": model.survival_function_.values[:, 0],
            "low": model.confidence_interval_.values[:, 0],
            "high": model.confidence_interval_.values[:, 1],
            "median": model.median_survival_time_,
            "median_by_fractions": median_by_fractions(times, reached),
            "median_low": low,
            "median_high": high,
        }
    )

# --- Two arms over the same seeds ---



def bounds(arm, baseline, budget):
    """The factors that the sign test does not refuse at 0.05, by trying many, and the test at 1."""

    def tails(factor):
        cheaper = (arm * factor < baseline) & (arm <= budget)
        dearer = (arm * factor > baseline) & (baseline <= budget)
        # Where the dearer one did not get there, it is at least the budget.
        cheaper &= (baseline <= budget) | (arm * factor <= budget)
        dearer &= (arm <= budget) | (baseline <= budget * factor)
        n, k = int((cheaper | dearer).sum()), int(cheaper.sum())
        if n == 0:
            return 0, 1.0, 1.0
        one = [stats.binomtest(k, n, alternative=side).pvalue for side in ("greater", "less")]
        return n, *one

    # Between the pairs' own ratios nothing changes.
    times = np.concatenate([np.minimum(baseline, budget) / np.minimum(arm, budget), [1.0]])
    grid = np.unique(np.concatenate([times * (1 - 1e-9), times * (1 + 1e-9)]))
    low = [factor for factor in grid if tails(factor)[1] <= 0.025]
    high = [factor for factor in grid if tails(factor)[2] <= 0.025]
    known, greater, less = tails(1.0)
    return {
        "budget": budget,
        "known": known,
        "p": min(1.0, 2 * min(greater, less)),
        "low": max(low, default=None),
        "high": min(high, default=None),
    }


ratios = []
for n in [5, 10, 2]:
    baseline = data.uniform(50, 100, n)
    arm = baseline * data.uniform(0.4, 1.1, n)
    result = stats.ttest_rel(np.log(baseline), np.log(arm))
    low, high = np.exp(result.confidence_interval(0.95))
    mean_low, mean_high = np.exp(stats.ttest_1samp(np.log(arm), 0).confidence_interval(0.95))
    ratios.append(
        {
            "arm": arm,
            "baseline": baseline,
            "level": 0.95,
            "ratio": {"value": stats.gmean(baseline / arm), "low": low, "high": high},
            "p": result.pvalue,
            "mean": {"value": stats.gmean(arm), "low": mean_low, "high": mean_high},
            "bounds": [bounds(arm, baseline, budget) for budget in (45.0, 60.0, 70.0, 80.0, 200.0)],
        }
    )

write("survival.json", survival=survival, ratios=ratios)

# --- Tests ---

differences = []
for at, n in enumerate([2, 3, 5, 8, 10, 16]):
    level = [0.95, 0.99][at % 2]
    baseline = data.normal(0.5, 0.1, n)
    arm = baseline + data.normal(0.05, 0.08, n) if at != 3 else np.round(baseline + 0.05, 1)
    result = stats.ttest_rel(arm, baseline)
    low, high = result.confidence_interval(level)
    d = arm - baseline
    flip = stats.permutation_test(
        (d,), np.sum, permutation_type="samples", n_resamples=np.inf, alternative="two-sided"
    )
    differences.append(
        {
            "arm": arm,
            "baseline": baseline,
            "level": level,
            "mean": d.mean(),
            "deviation": d.std(ddof=1),
            "t": result.statistic,
            "p": result.pvalue,
            "low": low,
            "high": high,
            "effect": d.mean() / d.std(ddof=1),
            "flip": flip.pvalue,
        }
    )

flips = []
for shift in [0.1, 0.5, 1.0]:
    d = np.round(data.normal(shift, 1, 20), 3)
    flips.append(
        {
            "differences": d,
            "p": np.mean(
                [  # all flips, eight of the signs at a time
                    np.abs(np.array(list(product([1, -1], repeat=12))) @ d[8:] + np.dot(signs, d[:8]))
                    >= abs(d.sum()) - 1e-9
                    for signs in product([1, -1], repeat=8)
                ]
            ),
        }
    )

families = [
    [0.01, 0.04, 0.03],
    [0.5],
    [0.02, 0.02, 0.02, 0.9],
    [0.0, 1.0, 0.3],
    [0.049, 0.011, 0.26, 0.0012, 0.7],
    data.uniform(0, 0.2, 12).tolist(),
]
holm = [{"p": family, "corrected": multipletests(family, method="holm")[1]} for family in families]


def power_by_integral(effect, pairs, alpha):
    """The power by its definition: statsmodels' is NaN, or wrong, where scipy's nctdtr is."""
    freedom, shift = pairs - 1, effect * math.sqrt(pairs)
    critical = stats.t.isf(alpha / 2, freedom)
    spread = stats.chi(freedom, scale=1 / math.sqrt(freedom))
    norm = stats.norm

    def at(s):
        return (norm.sf(critical * s - shift) + norm.cdf(-critical * s - shift)) * spread.pdf(s)

    reach = 12 / math.sqrt(2 * freedom)
    ends = sorted(
        {
            max(0.0, 1 - reach),
            *np.clip([shift / critical, (shift + 8) / critical, 1], max(0.0, 1 - reach), 1 + reach),
            1 + reach,
        }
    )
    return sum(quad(at, *part, limit=500, epsabs=1e-12)[0] for part in zip(ends, ends[1:]))


powers = [
    {
        "effect": effect,
        "pairs": pairs,
        "alpha": alpha,
        "power": TTestPower().power(effect, pairs, alpha),
        "integral": power_by_integral(effect, pairs, alpha),
    }
    for effect, pairs, alpha in product(
        [0.05, 0.3, 0.8, 2.0, 6.0], [2, 3, 5, 10, 40, 300, 1000], [0.05, 0.01, 0.001]
    )
]
seeds = []
for effect, alpha in product(
    [0.05, 0.09, 0.1, 0.2, 0.35, 0.5, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0], [0.05, 0.025, 0.005]
):
    pairs = float(np.ravel(TTestPower().solve_power(effect_size=effect, alpha=alpha, power=0.8))[0])
    if abs(power_by_integral(effect, pairs, alpha) - 0.8) > 1e-6:
        print("statsmodels is wrong about effect", effect, "at", alpha, "with", pairs)
        pairs = None
    exact = brentq(lambda n: power_by_integral(effect, n, alpha) - 0.8, 1.5, 1e4)
    seeds.append({"effect": effect, "alpha": alpha, "pairs": pairs, "integral": exact})


def chen(n, c, k):
    """As printed in arXiv 2107.03374, figure 3."""
    return 1.0 if n - c < k else 1.0 - np.prod(1.0 - k / np.arange(n - c + 1, n + 1))


passes = []
for n, c, k in [
    (1, 0, 1),
    (1, 1, 1),
    (8, 1, 1),
    (8, 1, 8),
    (8, 3, 4),
    (16, 2, 8),
    (200, 7, 100),
    (10_000, 3, 64),
    (10_000, 9_000, 5),
    (64, 60, 5),
    (5, 5, 5),
    (5, 0, 5),
]:
    exact = 1 - Fraction(math.comb(n - c, k), math.comb(n, k))
    assert abs(float(exact) - chen(n, c, k)) < 1e-12
    passes.append({"n": n, "c": c, "k": k, "pass": float(exact)})

write("tests.json", differences=differences, flips=flips, holm=holm, power=powers, seeds=seeds, passes=passes)

# --- Two samples ---

# Numbers of its own, so that what is above stays as it is.
data = np.random.default_rng(20_261_128)
apart = []
for at, (ours, theirs) in enumerate([(2, 2), (3, 5), (5, 5), (10, 4), (2, 9)]):
    level = [0.95, 0.99][at % 2]
    baseline = data.normal(0.5, 0.1, theirs)
    arm = data.normal(0.6, [0.1, 0.02, 0.3][at % 3], ours)
    result = stats.ttest_ind(arm, baseline, equal_var=False)
    low, high = result.confidence_interval(level)
    deviation = math.sqrt(arm.var(ddof=1) + baseline.var(ddof=1))
    costs = stats.ttest_ind(np.log(baseline + 1), np.log(arm + 1), equal_var=False)
    cost_low, cost_high = np.exp(costs.confidence_interval(level))
    apart.append(
        {
            "arm": arm,
            "baseline": baseline,
            "level": level,
            "mean": arm.mean() - baseline.mean(),
            "deviation": deviation,
            "t": result.statistic,
            "p": result.pvalue,
            "low": low,
            "high": high,
            "effect": (arm.mean() - baseline.mean()) / (deviation / math.sqrt(2)),
            # Of one more than each, as costs are above 0.
            "ratio": {"value": stats.gmean(baseline + 1) / stats.gmean(arm + 1), "low": cost_low, "high": cost_high},
            "ratio_p": costs.pvalue,
        }
    )

write("apart.json", packages=("numpy", "scipy"), differences=apart)
