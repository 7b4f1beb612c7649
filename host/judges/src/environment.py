"""Environments of reasoning-gym and of verifiers: makes their problems, and judges answers to them.

Called with `make` it reads a request from its standard input and writes a line for each problem. Called with `judge` and the
names of environments it speaks the lines of a grader. A problem's gold answer says which task it is and the how-many-eth of it:
the task is made again to judge, because what it knows of a problem does not always survive JSON."""

import asyncio
import functools
import hashlib
import importlib.metadata as packages
import inspect
import itertools
import json
import os
import pickle
import platform
import sys

PACKAGES = {"reasoning-gym": "reasoning_gym", "verifiers": "verifiers"}


def version(environment):
    try:
        return packages.version(PACKAGES[environment])
    except packages.PackageNotFoundError:
        raise SystemExit(f"there is no package {environment} in {sys.executable}")


def refuse(task, why):
    raise SystemExit(f"{task} {why}")


class ReasoningGym:
    """A task of reasoning-gym: problems by their numbers."""

    def __init__(self, task, settings, seed, size, episodes=False):
        from reasoning_gym.factory import DATASETS, create_dataset
        from reasoning_gym.utils import extract_answer

        self.task, self.stamp, self.extract = task, None, extract_answer
        if task not in DATASETS:
            refuse(task, "is no task of reasoning-gym")
        try:
            self.dataset = create_dataset(task, seed=seed or 0, size=size or 500, **settings)
        except (TypeError, ValueError, AssertionError) as e:
            refuse(task, f"does not take these settings: {e}")

    @functools.lru_cache(maxsize=4096)
    def entry(self, index):
        return self.dataset[index]

    def problems(self):
        for index in range(len(self.dataset)):
            entry = self.entry(index)
            yield index, entry["question"], {"metadata": entry["metadata"], "oracle": entry["answer"]}

    def question(self, index):
        return self.entry(index)["question"]

    def rewards(self, index, answer, tag):
        entry = self.entry(index)
        found = self.extract(answer, tag_name=tag) if tag else answer.strip()
        try:
            return {"score": float(self.dataset.score_answer(found, entry))}
        except Exception:
            # Some tasks fail at a text that is no answer. At their own they would not.
            self.dataset.score_answer(entry["answer"], entry)
            return {"score": 0.0}


class Verifiers:
    """A task set of verifiers: a model reads a prompt, answers once, and is scored by what it said."""

    def __init__(self, task, settings, seed, size, episodes=False):
        import verifiers.v1 as vf
        from verifiers.v1.utils import loaders

        self.vf, self.task, self.episodes = vf, task, episodes
        try:
            module = loaders.import_taskset(task)
            kind = loaders.taskset_class(task)
        except (ImportError, AttributeError, TypeError, ValueError) as e:
            refuse(task, f"is no task set: {e}")
        # What it is: the package that it is in, or its file.
        try:
            top = module.__name__.partition(".")[0]
            self.stamp = [f"{name} {packages.version(name)}" for name in packages.packages_distributions()[top]]
        except (KeyError, packages.PackageNotFoundError):
            with open(module.__file__, "rb") as file:
                self.stamp = ["sha256:" + hashlib.sha256(file.read()).hexdigest()]
        from verifiers.v1.envs.single_agent.env import SingleAgentEnv

        if not episodes and loaders.environment_class(task) is not SingleAgentEnv:
            refuse(task, "has an environment of its own: more than a prompt and an answer")
        try:
            config = loaders.taskset_config_type(task).model_validate({"id": task, **settings})
        except ValueError as e:
            refuse(task, f"does not take these settings: {e}")
        taskset = kind(config)
        if not episodes and kind.toolsets(config):
            refuse(task, "has tools: it needs [environment] with use = \"verifiers\"")
        if seed is not None:
            if not taskset.bounded:
                refuse(task, "has no end, and can't be shuffled by a seed")
            taskset = taskset.shuffle(seed)
        if size is None and not taskset.bounded:
            refuse(task, "has no end: it needs a size")
        self.tasks = list(itertools.islice(taskset, size))
        for one in [] if episodes else self.tasks[:1]:
            self.check(one)

    def check(self, one):
        kind = type(one)
        if one.NEEDS_CONTAINER or one.data.image:
            refuse(self.task, "needs a container")
        if kind.toolsets(one.config):
            refuse(self.task, "has tools: it needs [environment] with use = \"verifiers\"")
        for name in ("setup", "finalize"):
            if getattr(kind, name) is not getattr(self.vf.Task, name):
                refuse(self.task, f"has a `{name}` that needs a machine")
        for fn in one.hooks("reward") + [judge.score for judge in one.plugged_judges()]:
            runtime = inspect.signature(fn).parameters.get("runtime")
            if runtime is not None and runtime.default is inspect.Parameter.empty:
                refuse(self.task, f"has a reward `{fn.__name__}` that needs a machine")

    def question(self, index):
        data = self.tasks[index].data
        if data.prompt is None and self.episodes:
            # Its user begins, whose words are read in the episode.
            return data.name or f"{self.task} {index}"
        if data.prompt is None:
            refuse(self.task, "has no prompt: its user begins")
        if isinstance(data.prompt, str) and not data.system_prompt:
            return data.prompt
        prompt = data.prompt
        if isinstance(prompt, str):
            prompt = [self.vf.UserMessage(content=prompt)]
        if data.system_prompt:
            prompt = [self.vf.SystemMessage(content=data.system_prompt), *prompt]
        if not all(isinstance(message.content, str) for message in prompt):
            refuse(self.task, "has prompts that are not text alone")
        return [{"role": message.role, "content": message.content} for message in prompt]

    def problems(self):
        for index, one in enumerate(self.tasks):
            yield index, self.question(index), {"metadata": one.data.model_dump(mode="json", exclude_none=True)}

    def rewards(self, index, answer, tag):
        from verifiers.v1.configs.agent import AgentConfig
        from verifiers.v1.graph import MessageNode
        from verifiers.v1.state import state_cls
        from verifiers.v1.trace import AgentInfo, Trace, TraceTask

        one, vf, nodes = self.tasks[index], self.vf, []
        asked = self.question(index)
        if isinstance(asked, str):
            asked = [{"role": "user", "content": asked}]
        kinds = {"system": vf.SystemMessage, "user": vf.UserMessage, "assistant": vf.AssistantMessage}
        said = [(kinds[m["role"]](content=m["content"]), False) for m in asked]
        for message, sampled in [*said, (vf.AssistantMessage(content=answer), True)]:
            parent = len(nodes) - 1 if nodes else None
            nodes.append(MessageNode(parent=parent, message=message, sampled=sampled))
        about = TraceTask(type=type(one).__name__, data=one.data, key=one.key, hash=one.hash)
        agent = AgentInfo(config=AgentConfig())
        trace = Trace(task=about, agent=agent, nodes=nodes, state=state_cls(type(one))(), is_completed=True, ok=True)
        asyncio.run(one.score(trace))
        unscored = [name for name, reward in trace.rewards.items() if reward is None]
        if unscored or not trace.rewards:
            raise ValueError(f"no reward from {', '.join(unscored) or 'the task'}")
        return {name: reward.value for name, reward in trace.rewards.items()}


KINDS = {"reasoning-gym": ReasoningGym, "verifiers": Verifiers}


@functools.lru_cache(maxsize=64)
def made(environment, task, settings, seed, size, episodes=False):
    return KINDS[environment](task, json.loads(settings), seed, size, episodes)


def where(gold):
    """The arguments of `made` for a gold answer."""
    environment, task, settings, seed, size = (gold[key] for key in ("environment", "task", "settings", "seed", "size"))
    return environment, task, json.dumps(settings, sort_keys=True), seed, size, gold.get("episodes", False)


@functools.lru_cache(maxsize=4096)
def read(text):
    """A gold answer, read once: where its problem is, the how-many-eth it is, and the tag of answers to it."""
    gold = json.loads(text)
    return where(gold), gold["index"], gold["tag"]


def plain(value):
    """What JSON has no words for, in words."""
    return value.item() if hasattr(value, "item") else str(value)


def make(requests, out):
    request = json.load(requests)
    environment, tag = request["environment"], request.get("tag")
    stamp = f"{environment} {version(environment)}"
    for number, task in enumerate(request["tasks"]):
        gold = {"environment": environment, "task": task["name"], "settings": task["settings"]}
        gold |= {"seed": request.get("seed"), "size": task["size"], "tag": tag}
        if request.get("episodes"):
            gold["episodes"] = True
        one = made(*where(gold))
        gold["version"] = [stamp, *(one.stamp or [])]
        for index, question, columns in one.problems():
            try:
                known = json.dumps(columns, default=plain, skipkeys=True, allow_nan=False)
            except ValueError:
                columns, known = {}, repr(columns)
            digest = hashlib.sha256((json.dumps(question) + known).encode()).hexdigest()
            answer = {**gold, "index": index, "sha256": digest[:16]}
            if request.get("episodes"):
                answer["data"] = one.tasks[index].data.model_dump(mode="json")
            row = json.dumps({**columns, "question": question, "answer": answer}, default=plain, skipkeys=True)
            print(json.dumps({"task": number, "row": row}), file=out)
    out.flush()


def part(name):
    """A name as a reward's part may have it."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "_-.") else "_" for c in name)[:64]


def verdict(asked):
    """What is said of an answer, whatever becomes of others."""
    try:
        problem, index, tag = read(asked["gold"][0])
        rewards = made(*problem).rewards(index, asked["answer"], tag)
    except Exception as e:
        return {"error": f"{type(e).__name__}: {e}"}
    if len(rewards) == 1:
        return {"reward": next(iter(rewards.values()))}
    return {"rewards": {part(name): value for name, value in rewards.items()}}


def judge(requests, out, environments):
    name = ", ".join(f"{environment} {version(environment)}" for environment in environments)
    hello = {"name": name, "version": f"Python {platform.python_version()}", "lists": "pickle"}
    print(json.dumps(hello), file=out, flush=True)
    for line in requests:
        asked = json.loads(line)
        if "pickle" in asked:
            asked["list"] = pickle.loads(requests.read(asked["pickle"]))
        said = {"list": [verdict(one) for one in asked["list"]]} if "list" in asked else verdict(asked)
        print(json.dumps({"id": asked["id"], **said}), file=out, flush=True)


def main():
    # What a task prints is no answer, and what it reads is no request, in its own processes, too.
    out, requests = os.fdopen(os.dup(1), "w", encoding="utf-8"), os.fdopen(os.dup(0), "rb", buffering=1 << 16)
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdout = sys.stderr
    verb, *environments = sys.argv[1:]
    make(requests, out) if verb == "make" else judge(requests, out, environments)


main()
