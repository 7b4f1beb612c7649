"""The judge of grader `functions`: reward functions as Python trainers have them, in a file of the user's.

A function with a parameter `completions` is called as TRL calls its `reward_funcs`, with lists; one with `solution_strs` as
verl's batched reward manager calls its, with lists; any other as verl calls its `compute_score`: data_source, solution_str,
ground_truth and extra_info, by these names. Each gets what it has parameters for.

Asked about a `list` of answers, it calls each function for one answer after the other, with lists of one element where it
takes lists; of several gold answers the one counts that gives the highest reward. Asked about a `group`, it calls each
function once for all answers, which may be to one prompt or to several; only the first gold answer is used.

Called with the file, whether completions are messages (1 or 0), and the functions' names."""

import asyncio
import importlib.util
import inspect
import json
import math
import os
import pickle
import platform
import sys

VERL = ("data_source", "solution_str", "ground_truth", "extra_info")
# What is no awaitable, which takes long to find out of other objects.
PLAIN = {float, int, bool, dict, list, tuple, type(None)}
# `json.loads` and `json.dumps` look these two up in each call.
DECODE, ENCODE = json.JSONDecoder().decode, json.JSONEncoder().encode


def load(path, names):
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec = importlib.util.spec_from_file_location(os.path.splitext(os.path.basename(path))[0], path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    missing = [name for name in names if not callable(getattr(module, name, None))]
    if missing:
        raise SystemExit(f"{path} has no function {missing[0]}")
    return [Function(name, getattr(module, name)) for name in names]


class Function:
    """A reward function, and what it takes, looked up once: that takes longer than many a function does."""

    def __init__(self, name, function):
        self.name, self.function = name, function
        taken = inspect.signature(function).parameters
        self.takes = None if any(p.kind is p.VAR_KEYWORD for p in taken.values()) else set(taken)
        self.is_trl, self.is_batched = "completions" in taken, "solution_strs" in taken
        # verl's own four, which most functions take.
        self.verl = tuple(field in taken or self.takes is None for field in VERL)

    def call(self, given):
        """Calls the function with what it has parameters for, of what is given, and waits for it if it is async."""
        if self.takes is not None:
            given = {name: value for name, value in given.items() if name in self.takes}
        return waited(self.function(**given))

    def of_one(self, asked, gold, messages):
        """The function's reward of one answer, and whether it is correct where the function says so."""
        if self.is_trl or self.is_batched:
            return self.of_many([asked], [gold], messages)[0]
        # What starts like a row is read; most gold answers do not.
        row = as_row(gold) if gold[:1] in "{ \t\r\n" else None
        source, answer, truth, extra = self.verl
        given = {}
        if answer:
            given["solution_str"] = asked["answer"]
        if truth:
            given["ground_truth"] = gold if row is None else truth_of(row, gold)
        if source:
            given["data_source"] = asked["source"] if row is None else row.get("data_source", asked["source"])
        if extra:
            given["extra_info"] = None if row is None else row.get("extra_info")
        said = self.function(**given)
        return (said, None) if type(said) is float else told_of(waited(said))

    def of_many(self, group, golds, messages):
        """The function's rewards of answers that it is told of together, each with a gold answer."""
        rows = [as_row(gold) for gold in golds]
        if self.is_trl:
            prompts, answers = [asked["prompt"] for asked in group], [asked["answer"] for asked in group]
            if messages:
                prompts = [[{"role": "user", "content": prompt}] for prompt in prompts]
                answers = [[{"role": "assistant", "content": answer}] for answer in answers]
            rows = [row if row is not None else truths(gold) for row, gold in zip(rows, golds)]
            given = {name: [row.get(name) for row in rows] for name in dict.fromkeys(name for row in rows for name in row)}
            given |= {"prompts": prompts, "completions": answers, "completion_ids": [[] for _ in group]}
            said = self.call({**given, "trainer_state": None})
        elif self.is_batched:
            rows = [row if row is not None else {} for row in rows]
            given = {
                "data_sources": [row.get("data_source", asked["source"]) for row, asked in zip(rows, group)],
                "solution_strs": [asked["answer"] for asked in group],
                "ground_truths": [truth_of(row, gold) for row, gold in zip(rows, golds)],
                "extra_infos": [row.get("extra_info") or {} for row in rows],
            }
            said = self.call(given)
        else:
            raise TypeError(f"{self.name} takes one answer; with `compares` it takes `completions` or `solution_strs`")
        said = list(said)
        if len(said) != len(group):
            raise ValueError(f"{self.name} gave {counted(said, 'reward')} for {counted(group, 'answer')}")
        return [told_of(one) for one in said]


def counted(things, name):
    return f"{len(things)} {name}" if len(things) == 1 else f"{len(things)} {name}s"


def waited(said):
    return said if type(said) in PLAIN or not inspect.isawaitable(said) else asyncio.run(said)


def as_row(gold):
    """A gold answer that is a whole row of the data set, as `answer = "*"` gives it."""
    if gold is None or not gold.lstrip().startswith("{"):
        return None
    try:
        return json.loads(gold)
    except ValueError:
        return None


def truths(gold):
    """The columns of a gold answer that is no row."""
    return {name: gold for name in ("answer", "solution", "ground_truth")}


def truth_of(row, gold):
    model = row.get("reward_model")
    return model.get("ground_truth", gold) if isinstance(model, dict) else row.get("ground_truth", gold)


def told_of(said):
    """A reward, and whether the answer is correct where it says so."""
    correct = None
    if isinstance(said, dict):
        correct = said.get("acc", said.get("correct"))
        said = said.get("score", said.get("reward"))
    if isinstance(said, (tuple, list)) and said:
        said = said[0]
    if said is None:
        return None
    return (float(said), None if correct is None else bool(correct))


def judge(function, asked, messages):
    """A function's reward of an answer by its best gold answer, and whether it is correct where it says so."""
    golds = asked["gold"]
    if len(golds) == 1:
        return function.of_one(asked, golds[0], messages)
    told = [function.of_one(asked, gold, messages) for gold in golds]
    return max((one for one in told if one is not None), key=lambda one: one[0], default=None)


def verdict(names, told):
    """What is said of an answer, from each function's reward of it."""
    if len(told) == 1 and told[0] is not None and told[0][1] is None and math.isfinite(told[0][0]):
        return {"reward": told[0][0]}
    for name, one in zip(names, told):
        if one is None:
            return {"error": f"{name} gave no reward"}
        if not math.isfinite(one[0]):
            return {"error": f"{name} gave a reward of {one[0]}"}
    said = {}
    verdicts = [correct for _, correct in told if correct is not None]
    if verdicts:
        said["correct"] = all(verdicts)
    if len(told) == 1:
        said["reward"] = told[0][0]
    else:
        said["rewards"] = dict(zip(names, [reward for reward, _ in told]))
    return said


def on_each(functions, names, answers, messages):
    """A verdict on each answer, whatever becomes of the others."""
    said = []
    for asked in answers:
        try:
            said.append(verdict(names, [judge(function, asked, messages) for function in functions]))
        except Exception as e:
            said.append(raised(e))
    return said


def on_all(functions, names, group, messages):
    golds = [asked["gold"][0] if asked["gold"] else None for asked in group]
    each = [function.of_many(group, golds, messages) for function in functions]
    return [verdict(names, told) for told in zip(*each)]


def raised(e):
    return {"error": f"{type(e).__name__}: {e}"}


def tell(said, out):
    out.write(ENCODE(said).encode() + b"\n")
    out.flush()


def main():
    path, messages, *names = sys.argv[1:]
    # What a function prints is no answer, and what it reads is no request, in its own processes, too.
    out, requests = os.fdopen(os.dup(1), "wb"), os.fdopen(os.dup(0), "rb", buffering=1 << 16)
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdout = sys.stderr
    functions = load(path, names)
    hello = {"name": ", ".join(names), "version": f"Python {platform.python_version()}", "lists": "pickle"}
    tell(hello, out)
    for line in requests:
        asked = DECODE(line.decode())
        if "pickle" in asked:
            asked["list"] = pickle.loads(requests.read(asked["pickle"]))
        said = {"id": asked["id"]}
        if "list" in asked:
            said["list"] = on_each(functions, names, asked["list"], messages == "1")
        elif "group" in asked:
            try:
                said["group"] = on_all(functions, names, asked["group"], messages == "1")
            except Exception as e:
                said |= raised(e)
        else:
            said |= on_each(functions, names, [asked], messages == "1")[0]
        tell(said, out)


main()
