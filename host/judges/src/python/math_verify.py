"""The judge of grader `math-verify`: math-verify 0.8.0 as verl configures it (math_verify.py there, by
math_metric): gold answers in a box and read as LaTeX, answers read as expressions or LaTeX, six decimals.

It departs in one thing. math-verify's own timers make a wrong answer of one that takes too long; here they
are off. Whoever asks has a timer, and such an answer is unscorable; or, in the sandbox, counts instructions,
and such an answer is wrong."""

import json
import logging
import platform
import sys
from importlib.metadata import PackageNotFoundError, version

from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

GOLD = (LatexExtractionConfig(),)
ANSWER = (ExprExtractionConfig(), LatexExtractionConfig())


def read(golds):
    read = [parse("\\boxed{" + gold + "}", GOLD, parsing_timeout=None) for gold in golds]
    if not any(read):
        raise ValueError(f"math-verify reads nothing out of the gold answer {golds[0][:80]!r}")
    return [gold for gold in read if gold]


def judge(read, answer):
    found = parse(answer, ANSWER, parsing_timeout=None)
    return any(verify(gold, found, 6, timeout_seconds=None) for gold in read)


def versions():
    """Of all that has a say in a verdict."""
    told = []
    for package in ("math-verify", "latex2sympy2-extended", "sympy"):
        try:
            told.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            told.append(f"{package} unknown")
    return ", ".join([*told, f"Python {platform.python_version()}"])


def main():
    # What libraries print is no answer.
    out, sys.stdout = sys.stdout, sys.stderr
    logging.disable(logging.WARNING)
    print(json.dumps({"name": "math-verify", "version": versions()}), file=out, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        said = {"id": asked["id"]}
        try:
            said["correct"] = judge(read(asked["gold"]), asked["answer"])
        except Exception as e:
            said["error"] = f"{type(e).__name__}: {e}"
        print(json.dumps(said), file=out, flush=True)


if __name__ == "__main__":
    main()
