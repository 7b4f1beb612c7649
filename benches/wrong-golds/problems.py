"""Makes the problems of workload W8: sums, of which one gold answer in seven is wrong.

    python3 benches/wrong-golds/problems.py runs/w8

writes train.jsonl and held-out.jsonl there. Needs nothing but Python, and writes the same files each time.

A wrong gold differs from the sum in one digit, as a typing error does. Held-out problems have right golds. No sum comes twice,
in another order neither.
"""

import json
import pathlib
import random
import sys


def problem(chance):
    digits, terms = chance.choice([(2, 2), (2, 2), (2, 3), (3, 2)])
    numbers = [chance.randrange(10 ** (digits - 1), 10**digits) for _ in range(terms)]
    return numbers, "+".join(map(str, numbers)) + "="


def mistyped(number, chance):
    digits = list(str(number))
    place = chance.randrange(len(digits))
    others = [d for d in "0123456789" if d != digits[place] and (place > 0 or d != "0")]
    digits[place] = chance.choice(others)
    return int("".join(digits))


def main(folder):
    chance = random.Random(8)
    seen, problems = set(), []
    while len(problems) < 7000:
        numbers, question = problem(chance)
        if tuple(sorted(numbers)) not in seen:
            seen.add(tuple(sorted(numbers)))
            problems.append((numbers, question))
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in [("train", problems[:6000]), ("held-out", problems[6000:])]:
        with open(folder / f"{name}.jsonl", "w", encoding="utf-8") as file:
            for numbers, question in part:
                gold = sum(numbers)
                if name == "train" and chance.random() < 1 / 7:
                    gold = mistyped(gold, chance)
                print(json.dumps({"question": question, "answer": str(gold)}), file=file)


main(pathlib.Path(sys.argv[1]))
