"""The judge of grader `functions`: reward functions as Python trainers have them, in a file of the user's.

Asked about a group, it calls each function once for all answers to a prompt: TRL's with lists of them, and verl's batched
ones with data_sources, solution_strs, ground_truths and extra_infos.

A function with a parameter `completions` is called as TRL calls its `reward_funcs`, with lists of one element each; any
other as verl calls its `compute_score`: data_source, solution_str, ground_truth and extra_info, by these names. Each gets
what it has parameters for. Of several gold answers the one counts that gives the highest reward.

Called with the file, whether completions are messages (1 or 0), and the functions' names."""

import asyncio
import importlib.util
import inspect
import json
import math
import os
import platform
import sys


def load(path, names):
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec = importlib.util.spec_from_file_location(os.path.splitext(os.path.basename(path))[0], path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    missing = [name for name in names if not callable(getattr(module, name, None))]
    if missing:
        raise SystemExit(f"{path} has no function {missing[0]}")
    return [getattr(module, name) for name in names]


TAKEN = {}


def parameters(function):
    """What a function takes, looked up once: that takes longer than many a function does."""
    if id(function) not in TAKEN:
        TAKEN[id(function)] = inspect.signature(function).parameters
    return TAKEN[id(function)]


def call(function, given):
    """Calls a function with what it has parameters for, of what is given, and waits for it if it is async."""
    taken = parameters(function)
    if not any(p.kind is p.VAR_KEYWORD for p in taken.values()):
        given = {name: value for name, value in given.items() if name in taken}
    said = function(**given)
    return asyncio.run(said) if inspect.isawaitable(said) else said


def trl(function, asked, row, gold, messages):
    prompt, answer = asked["prompt"], asked["answer"]
    if messages:
        prompt = [{"role": "user", "content": prompt}]
        answer = [{"role": "assistant", "content": answer}]
    columns = row if row is not None else {name: gold for name in ("answer", "solution", "ground_truth")}
    columns = {name: [value] for name, value in columns.items()}
    given = {**columns, "prompts": [prompt], "completions": [answer], "completion_ids": [[]], "trainer_state": None}
    rewards = call(function, given)
    if len(rewards) != 1:
        raise ValueError(f"{function.__name__} gave {len(rewards)} rewards for one completion")
    return rewards[0]


def verl(function, asked, row, gold):
    row = row if row is not None else {}
    model = row.get("reward_model")
    truth = model.get("ground_truth", gold) if isinstance(model, dict) else row.get("ground_truth", gold)
    return call(
        function,
        {
            "data_source": row.get("data_source", asked["source"]),
            "solution_str": asked["answer"],
            "ground_truth": truth,
            "extra_info": row.get("extra_info"),
        },
    )


def rewards_of(function, group, messages):
    """A function's rewards of all answers to a prompt, and whether they are correct where it says so."""
    first = group[0]
    gold = first["gold"][0] if first["gold"] else None
    row = as_row(gold)
    answers = [asked["answer"] for asked in group]
    if "completions" in parameters(function):
        prompt = first["prompt"]
        if messages:
            prompt = [{"role": "user", "content": prompt}]
            answers = [[{"role": "assistant", "content": answer}] for answer in answers]
        columns = row if row is not None else {name: gold for name in ("answer", "solution", "ground_truth")}
        given = {name: [value] * len(group) for name, value in columns.items()}
        given |= {"prompts": [prompt] * len(group), "completions": answers, "completion_ids": [[]] * len(group)}
        said = call(function, {**given, "trainer_state": None})
    elif "solution_strs" in parameters(function):
        row = row if row is not None else {}
        model = row.get("reward_model")
        truth = model.get("ground_truth", gold) if isinstance(model, dict) else row.get("ground_truth", gold)
        given = {
            "data_sources": row.get("data_source", first["source"]),
            "ground_truths": truth,
            "extra_infos": row.get("extra_info"),
        }
        given = {name: [value] * len(group) for name, value in given.items()}
        said = call(function, {**given, "solution_strs": answers})
    else:
        raise TypeError(f"{function.__name__} takes one answer; with `group` it takes `completions` or `solution_strs`")
    said = list(said)
    if len(said) != len(group):
        raise ValueError(f"{function.__name__} gave {len(said)} rewards for {len(group)} answers")
    return [told_of(function, one) for one in said]


def told_of(function, said):
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


def as_row(gold):
    """A gold answer that is a whole row of the data set, as `answer = "*"` gives it."""
    try:
        row = json.loads(gold)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def judge(function, asked, messages):
    """A function's reward, and whether the answer is correct where it says so."""
    best = None
    for gold in asked["gold"]:
        row = as_row(gold)
        if "completions" in parameters(function):
            said = trl(function, asked, row, gold, messages)
        else:
            said = verl(function, asked, row, gold)
        told = told_of(function, said)
        if told is None:
            continue
        best = told if best is None or told[0] > best[0] else best
    if best is None:
        raise ValueError(f"{function.__name__} gave no reward")
    return best


def verdict(names, told):
    """What is said of an answer, from each function's reward of it."""
    for name, one in zip(names, told):
        if one is not None and not math.isfinite(one[0]):
            return {"error": f"{name} gave a reward of {one[0]}"}
    if any(one is None for one in told):
        return {"error": f"{names[[one is None for one in told].index(True)]} gave no reward"}
    said = {}
    verdicts = [correct for _, correct in told if correct is not None]
    if verdicts:
        said["correct"] = all(verdicts)
    if len(told) == 1:
        said["reward"] = told[0][0]
    else:
        said["rewards"] = dict(zip(names, [reward for reward, _ in told]))
    return said


def main():
    path, messages, *names = sys.argv[1:]
    # What a function prints is no answer, and what it reads is no request, in its own processes, too.
    out, requests = os.fdopen(os.dup(1), "w", encoding="utf-8"), os.fdopen(os.dup(0), encoding="utf-8")
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdout = sys.stderr
    functions = load(path, names)
    hello = {"name": ", ".join(names), "version": f"Python {platform.python_version()}"}
    print(json.dumps(hello), file=out, flush=True)
    for line in requests:
        asked = json.loads(line)
        said = {"id": asked["id"]}
        try:
            if "group" in asked:
                each = [rewards_of(function, asked["group"], messages == "1") for function in functions]
                said["group"] = [verdict(names, told) for told in zip(*each)]
            else:
                said |= verdict(names, [judge(function, asked, messages == "1") for function in functions])
        except Exception as e:
            said = {"id": asked["id"], "error": f"{type(e).__name__}: {e}"}
        print(json.dumps(said), file=out, flush=True)


main()
