"""Pairs of a gold answer and an answer, drawn from a seed, with the verdicts of math-verify.

    math_pairs.py JUDGE SEED COUNT    lines of JSON: gold, answer, verdict (null where math-verify gave none)

JUDGE is host/judges/src/python/math_verify.py. Numbers, fractions, percentages, tuples, intervals, sets and
letters are written in many forms, right and malformed ones, into sentences like those of models."""

import json
import logging
import random
import signal
import sys


class Late(BaseException):
    pass


def late(*_):
    raise Late


def integer(r):
    n = r.choice([r.randint(0, 12), r.randint(0, 12), r.randint(0, 999), r.randint(1000, 9999999)])
    return -n if r.random() < 0.15 else n


def whole(r, n):
    sign, n = ("-" if n < 0 else "", abs(n))
    forms = [f"{n}", f"{n}", f"{n}", f"{n:,}", f"{n:,}".replace(",", "{,}"), f"{n:,}".replace(",", ",\\!"), f"{n}.0", f"{n}.00", f"0{n}"]
    forms += [f"{n:,}".replace(",", " "), f"{n:,}".replace(",", "\\,"), f"{n}.", f"{n}e0", f"{n}E1", f"{n}\\%", f"{n}%", f"{n} \\%"]
    forms += [f"\\${n}", f"{n}\\text{{ cm}}", f"{n} \\text{{ cm}}^2", f"{n} cm", f"{n}^\\circ", f"{n}^{{\\circ}}", f"{n}\\text{{ and }}"]
    forms += [f"\\frac{{{n}}}{{1}}", f"{n}/1", f"\\text{{{n}}}", f"{{{n}}}", f"({n})", f"+{n}", f"{n} \\text{{ percent}}", f"x={n}", f"{n}:00"]
    form = r.choice(forms[:9] if r.random() < 0.6 else forms)
    if sign:
        sign = r.choice(["-", "-", "-", "- ", "−", "\\$-"])
    return sign + form


def fraction(r, a, b):
    sign, a = ("-" if a < 0 else "", abs(a))
    forms = [f"\\frac{{{a}}}{{{b}}}", f"\\dfrac{{{a}}}{{{b}}}", f"\\tfrac{{{a}}}{{{b}}}", f"{a}/{b}", f"{a} / {b}", f"\\frac{{ {a} }}{{ {b} }}"]
    forms += [f"\\frac{a}{b}", f"\\frac {a}{b}", f"\\frac{a}{{{b}}}", f"\\frac{{{a}}}{b}", f"\\frac{{-{a}}}{{{b}}}", f"\\frac{{{a}}}{{-{b}}}"]
    forms += [f"{a//b}\\frac{{{a%b}}}{{{b}}}", f"{a//b} \\frac{{{a%b}}}{{{b}}}", f"{a//b} {a%b}/{b}", f"\\left(\\frac{{{a}}}{{{b}}}\\right)"]
    forms += [f"{round(a / b, r.randint(1, 8))}", f"{round(a / b, r.randint(1, 8))}", f"{round(100 * a / b, 2)}\\%", f"\\frac{{{2*a}}}{{{2*b}}}", f"{a}\\div{b}"]
    return sign + r.choice(forms[:5] if r.random() < 0.4 else forms)


def scalar(r, value):
    kind, *rest = value
    return whole(r, *rest) if kind == "whole" else fraction(r, *rest)


def tuple_(r, parts):
    texts = [scalar(r, part) if r.random() < 0.3 else plain(part) for part in parts]
    inner = r.choice([",", ",", ", ", ", ", " , ", ";"]).join(texts)
    forms = [f"({inner})", f"({inner})", f"\\left({inner}\\right)", f"\\left( {inner} \\right)", f"[{inner}]", f"[{inner})", f"\\{{{inner}\\}}", inner, f"( {inner} )"]
    return r.choice(forms[:4] if r.random() < 0.6 else forms)


def plain(value):
    return str(value[1]) if value[0] == "whole" else f"\\frac{{{value[1]}}}{{{value[2]}}}"


OTHERS = r"""A B C D E F a b \text{A} \text{(A)} (A) \textbf{C} x+1 1+x x^2+2x+1 x^{2}+2x+1 \sqrt{2} \sqrt2 2\sqrt{3} \sqrt{12} \pi 2\pi
\frac{\sqrt{3}}{2} x=5 5=x \infty (-\infty,2] [0,1) (0,1)\cup(2,3) x\le3 3\gex 1,2,3 3,2,1 2^{10} 1024 10! \emptyset \text{even} 1.5\times10^3
1500 0.5 .5 -.5 0.333333 0.3333333 \frac{1}{3} 33.3\% -0 0 0.0 5\% 0.05 1e3 0,5 1,22 m \$m 3\text{th} 2+3i ab""".split()


def value(r):
    one = lambda: ("whole", integer(r)) if r.random() < 0.6 else ("fraction", r.choice([-1, 1, 1, 1]) * r.randint(0, 30), r.randint(1, 20))
    draw = r.random()
    if draw < 0.65:
        return one()
    return ("tuple", [one() for _ in range(r.choice([2, 2, 2, 3, 4]))]) if draw < 0.8 else ("other", r.choice(OTHERS))


def text(r, value):
    kind, *rest = value
    return rest[0] if kind == "other" else tuple_(r, *rest) if kind == "tuple" else scalar(r, value)


def near(r, value):
    kind, *rest = value
    if kind == "other" or r.random() < 0.15:
        return ("other", r.choice(OTHERS))
    if kind == "tuple":
        parts = list(rest[0])
        parts[r.randrange(len(parts))] = near(r, parts[0]) if parts[0][0] != "other" else parts[0]
        return ("tuple", [part if part[0] in ("whole", "fraction") else ("whole", 1) for part in parts][:: r.choice([1, -1])])
    if kind == "whole":
        n = rest[0]
        return ("whole", r.choice([n + 1, n - 1, -n, n * 10, n * 100, n // 10, n + 1000, integer(r)]))
    a, b = rest
    return r.choice([("fraction", a + 1, b), ("fraction", a, b + 1), ("fraction", -a, b), ("whole", a), ("fraction", a, 1)])


WORDS = ["", "First, $x$ is 3.\n", "We have 3 + 4 = 7 and 7 * 2 = 14.\n", "It costs $5 and $6.\n", "\\[ a = 4 \\]\n", "Let \\(n = 7\\).\n", "So $n$ and ",
         "The answer is near.\n", "We want the final answer.\n", "About 50% of 12 is 6.\n", "Try $\\boxed{7}$ first.\n\nThat was wrong, so we go on and look for another way to solve it here.\n",
         "<<48/2=24>>24 clips\n", "1. One\n2. Two\n", "Since [3] shows, ", "**Step 1**: 12\n", "x = 3\n", "$$y=2$$\n", "\\boxed{3} ",
         "\\[1, 4, 9\\]\nSo it is \\(\\boxed{3}\\).\n\nNo: each of these is a square, as we saw above, and so we have to look once more at all of them.\n",
         "\\[ a = \\boxed{4}\n and then we go on, over the end of this line, as it is displayed, and do so for long enough to be apart: ",
         "The final answer is 5.\n", "First \\[ n = 2 \\\\[2pt] m = 3 \\]\n$\\boxed{2}$ is too small.\nThen we try what comes next, which is larger by one, and see that it is not enough, either.\n"]
TAILS = ["", "", "", ".", ".", "\n", " apples.", " dollars", " %", " percent", ". I hope it is correct.", " and 3 more.", "\nDone in 5 steps.", " = 8", " $", " so $x=5$.", "**", "]", ")", " cm", " and $4$", ", which is $\\frac{1}{2}$.", "\n\nThat is all [1] "]
FORMS = ["\\boxed{%s}", "\\boxed{%s}", "$\\boxed{%s}$", "$\\boxed{%s}$", "\\(\\boxed{%s}\\)", "\\[\\boxed{%s}\\]", "\\[\n\\boxed{%s}\n\\]", "$$\\boxed{%s}$$", "$x = \\boxed{%s}$",
         "The final answer is $\\boxed{%s}$", "The final answer is: \\boxed{%s}", "The final answer is \\(\\boxed{%s}\\)", "The final answer is:\n\n\\[\n\\boxed{%s}\n\\]",
         "The final answer is $ \\boxed{%s} $", "The final answer is \\( \\boxed{%s}\n\\)", "The final answer is:\n$$\n\\boxed{%s}\n$$", "The final answer is \n\\boxed{%s} \\]",
          "**Final Answer**\n\\boxed{%s}", "\\boxed{ %s }", "\\boxed{\\boxed{%s}}", "\\fbox{%s}", "\\boxed %s",
         "#### %s", "#### %s", "#### %s", "The answer is %s", "The answer is %s", "The answer is $%s", "The answer is: %s", "Answer: %s", "answer = %s", "ANSWER: **%s**", "%s", "The answer is $%s$", "So it is %s", "= %s", "The final answer is %s", "the final answer is $%s$", "so x = %s", "It is $%s$", "\\(%s\\)"]


def pair(r):
    gold = value(r)
    shown = gold if r.random() < 0.55 else near(r, gold)
    wanted = text(r, gold)
    given = wanted if r.random() < 0.15 and shown is gold else text(r, shown)
    answer = r.choice(WORDS) + r.choice(FORMS).replace("%s", given) + r.choice(TAILS)
    return wanted, r.choice(WORDS) + answer if r.random() < 0.3 else answer


def main():
    source, seed, count = sys.argv[1:4]
    module = {"__name__": "judge"}
    exec(compile(open(source).read(), source, "exec"), module)
    logging.disable(logging.WARNING)
    signal.signal(signal.SIGALRM, late)
    r = random.Random(int(seed))
    for _ in range(int(count)):
        gold, answer = pair(r)
        signal.alarm(20)
        try:
            verdict = bool(module["judge"](module["read"]([gold]), answer))
        except (Exception, Late):
            verdict = None
        finally:
            signal.alarm(0)
        print(json.dumps([gold, answer, verdict]))


if __name__ == "__main__":
    main()
