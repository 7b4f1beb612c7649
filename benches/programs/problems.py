"""Makes problems whose answers are programs: find a Python expression of a and b from its values at five points.

    python3 benches/programs/problems.py runs/programs

writes train.jsonl and held-out.jsonl there. Needs nothing but Python, and writes the same files each time.

A question is `000,001,004,014,037=`: the values at (0, 0), (1, 0), (0, 1), (2, 3) and (9, 7), which are the same points in
all questions, with three characters each. An expression such as `b*4+a` is judged on eight other points, with larger
numbers as well. So many expressions are right, and one that fits the five values only is wrong. Where several functions have
the same five values, only the simplest is there.

Which functions are in held-out.jsonl depends on their values at 64 points, however they are written, and pretrain.py
demonstrates none of them. Of those in train.jsonl it demonstrates about half.
"""

import ast
import hashlib
import itertools
import json
import random
import sys
from pathlib import Path

LEAVES = ["a", "b", *"123456789"]
OPERATORS = ["+", "-", "*", "//", "%"]
SHOWN = [(0, 0), (1, 0), (0, 1), (2, 3), (9, 7)]
HIDDEN = 8
LONGEST = 30  # characters of what is asked and an answer together, with the answer's end
POINTS = [(a, b) for a in (1, 2, 3, 5, 8, 11, 16, 20) for b in (1, 2, 4, 6, 7, 9, 13, 19)]
ALL = [(a, b) for a in range(1, 21) for b in range(1, 21)]


def bracketed(part, operator, right):
    """A part of an expression, in brackets if it needs them next to an operator."""
    text, inner = part
    weak = inner is not None and (operator in ("*", "//", "%")) and (inner in ("+", "-") or right)
    weak |= right and operator == "-" and inner in ("+", "-")
    return f"({text})" if weak else text


def joined(left, operator, right):
    return bracketed(left, operator, False) + operator + bracketed(right, operator, True), operator


def variant(text, rng):
    """The same expression, with the operands of some sums and products exchanged."""
    signs = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%"}

    def written(node):
        if not isinstance(node, ast.BinOp):
            return ast.unparse(node), None
        left, operator, right = written(node.left), signs[type(node.op)], written(node.right)
        if operator in "+*" and rng.random() < 0.5:
            left, right = right, left
        return joined(left, operator, right)

    return written(ast.parse(text, mode="eval").body)[0]


def function(text):
    return eval(f"lambda a, b: {text}")  # noqa: S307: made here, of the characters above


def values(text):
    """What an expression gives at the points that tell functions apart; None if it is no function that we want."""
    call = function(text)
    try:
        found = tuple(call(a, b) for a, b in POINTS + SHOWN)
        if len(set(found)) < 3:
            return None
        return found
    except ZeroDivisionError:
        return None


def functions(seed=1, sampled=40_000):
    """Functions by the number of operators that they need: lists of (text, values)."""
    rng = random.Random(seed)
    leaves = [(leaf, None) for leaf in LEAVES]
    seen = {values("a"), values("b")}
    levels = []
    ones = [joined(x, o, y) for x, o, y in itertools.product(leaves, OPERATORS, leaves)]
    twos = [joined(x, o, y) for x, o, y in itertools.product(ones, OPERATORS, leaves)]
    twos += [joined(x, o, y) for x, o, y in itertools.product(leaves, OPERATORS, ones)]
    threes = []
    for _ in range(sampled):
        o = rng.choice(OPERATORS)
        kind = rng.randrange(3)
        x = rng.choice((leaves, ones, twos)[kind])
        y = rng.choice((twos, ones, leaves)[kind])
        threes.append(joined(x, o, y))
    for expressions in (ones, twos, threes):
        level = []
        for text, _ in expressions:
            if not set("ab") & set(text):
                continue
            found = values(text)
            if found is None or found in seen:
                continue
            seen.add(found)
            if asked(text) and len(asked(text)) + len(text) < LONGEST:
                level.append((text, found))
        levels.append(level)
    return levels


def part(found):
    """Of five functions four are demonstrated to a model that pretrain.py makes; of the rest, two in five are held out."""
    first, second = hashlib.sha256(repr(found).encode()).digest()[:2]
    return "demonstrated" if first >= 51 else "held-out" if second < 102 else "new"


def divides(text):
    return "/" in text or "%" in text


def asked(text):
    """What a model reads; None if a value takes more than three characters, or nearly all are the same."""
    call = function(text)
    shown = [call(a, b) for a, b in SHOWN]
    if min(shown) < -99 or max(shown) > 999 or len(set(shown)) < 3:
        return None
    return ",".join(f"{value:03d}" for value in shown) + "="


def problem(text, kind, rng):
    call = function(text)
    hidden = rng.sample([point for point in ALL if point not in SHOWN], HIDDEN)
    try:
        outputs = [call(a, b) for a, b in hidden]
    except ZeroDivisionError:
        return None
    trial = {"prompt": "def f(a, b): return ", "fn_name": "f", "inputs": hidden, "outputs": outputs}
    return {"question": asked(text), "answer": trial, "kind": kind, "text": text}


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    one, two, three = functions()
    kinds = {
        "one operator": one,
        "two operators": [of for of in two if not divides(of[0])],
        "two, dividing": [of for of in two if divides(of[0])],
        "three operators": three,
    }
    # Of each kind that many, or all there are.
    wanted = {"demonstrated": (20, 250, 80, 0), "new": (10, 165, 60, 60), "held-out": (10, 110, 30, 20)}
    made, taken = {}, set()
    for name, counts in wanted.items():
        rng = random.Random(name)
        made[name] = []
        for (kind, of_kind), count in zip(kinds.items(), counts):
            own = []
            for text, found in of_kind:
                if part(found) == name and asked(text) not in taken:
                    taken.add(asked(text))
                    own.append(text)
            rng.shuffle(own)
            rows = [row for row in (problem(text, kind, rng) for text in own) if row][:count]
            made[name] += [{**row, "part": name} for row in rows]
            print(f"{name}, {kind}: {len(rows)} problems of {len(own)} functions")
    for name, rows in (("train", made["demonstrated"] + made["new"]), ("held-out", made["held-out"])):
        with open(folder / f"{name}.jsonl", "w") as file:
            for row in rows:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
