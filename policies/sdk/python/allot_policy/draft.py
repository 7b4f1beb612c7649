"""Runs `policy.py` as a draft: by this Python, without a component. A host starts it with the project's folder, and puts
the contract's three calls to it over standard input and output.

A message is two lengths of 8 bytes, a pickle and a state. Each call runs in a process of its own, forked once the
module is imported: like an instance of a component, it remembers nothing of the calls before.
"""

from __future__ import annotations

import faulthandler
import gc
import io
import os
import pickle
import re
import resource
import signal
import struct
import sys
import tempfile
from typing import IO, Any

from . import calls, facts, faults, log
from .error import BadSetting, BadState, GiveUp
from .plan import Among, Hold, Pick, Plan, Request
from .view import STOPPED, Budget, Column, Group, Origin, Past, Prompt, Run, Sampling, SamplingRange, Tally
from .view import Turn, Update, View

PRINTED = 64 << 10
"""Characters of what a call prints that are kept: the last ones."""


class Pipe:
    """The host's end of the conversation."""

    def __init__(self) -> None:
        # What the policy prints must not reach the host as a message.
        self.read, self.write = os.dup(0), os.dup(1)
        os.dup2(2, 1)

    def take(self) -> tuple[Any, bytes]:
        """The next message and its state. Ends this process where there is no more."""
        message, state = struct.unpack("<QQ", self._bytes(16))
        return pickle.loads(self._bytes(message)), self._bytes(state)

    def put(self, message: Any, state: bytes = b"") -> None:
        body = pickle.dumps(message, protocol=3)
        rest = memoryview(struct.pack("<QQ", len(body), len(state)) + body + state)
        while rest:
            rest = rest[os.write(self.write, rest) :]

    def _bytes(self, count: int) -> bytes:
        parts = []
        while count:
            part = os.read(self.read, count)
            if not part:
                os._exit(0)
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


class Facts:
    """`facts` asked of the host, in the words of the component's bindings."""

    Count = {name.upper(): name for name in facts.COUNTS}
    Measure = {name.upper(): name for name in facts.MEASURES}

    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe

    def Prompts_All(self) -> dict:
        return {}

    def Prompts_Between(self, ends: tuple[int, int]) -> dict:
        return {"between": ends}

    def Prompts_Listed(self, prompts: list[int]) -> dict:
        return {"listed": prompts}

    def counts(self, what: str, of: dict) -> list[int]:
        return self._ask("counts", what, of)

    def measures(self, what: str, of: dict) -> list[float]:
        return self._ask("measures", what, of)

    def column(self, name: str, of: dict) -> list[float]:
        return self._ask("column", name, of)

    def costs(self) -> facts.TokenCosts:
        return facts.TokenCosts(*self._ask("costs", "", {}))

    def _ask(self, kind: str, name: str, of: dict) -> Any:
        self.pipe.put({"reply": {"asked": {"kind": kind, "name": name, **of}}})
        return self.pipe.take()[0]


class Log:
    """What the policy logs in one call."""

    Level = {name: name.lower() for name in ("DEBUG", "INFO", "WARN", "ERROR")}

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def write(self, level: str, line: str) -> None:
        self.lines.append((level, line))


def main(folder: str) -> None:
    """Imports the policy of a project, and answers until the host goes away."""
    pipe = Pipe()
    facts.host = Facts(pipe)
    try:
        policy = _within(60, _import)
    except BaseException as error:
        pipe.put({"reply": {"failed": _trace(error, folder)}})
        return
    # The alarm ends a call wherever it is, in C code too. Before that, the call's stack goes into this file.
    stack = tempfile.TemporaryFile()
    faulthandler.register(signal.SIGALRM, file=stack, all_threads=False, chain=True)
    # A fork copies what it writes to, and a collector writes to all that there is.
    gc.freeze()
    while True:
        question, state = pipe.take()
        child = os.fork()
        if child == 0:
            _call(pipe, policy, folder, question, state)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            code = os.waitstatus_to_exitcode(status)
            late = code == -signal.SIGALRM
            pipe.put({"reply": {"late": _place(stack)} if late else {"died": code}})


def _place(stack: IO[bytes]) -> str | None:
    """The policy's own line of a stack that was written, innermost first."""
    stack.seek(0)
    text = stack.read().decode(errors="replace")
    stack.seek(0)
    stack.truncate()
    sdk = os.path.dirname(__file__)
    for path, line, function in re.findall(r'File "(.*)", line (\d+) in (\S+)', text):
        if os.path.dirname(path) != sdk and os.path.isfile(path):
            return f"{function} ({os.path.basename(path)}:{line})"
    return None


def _import() -> Any:
    import policy

    calls.describe(policy)
    return policy


def _within(seconds: float, call: Any, *arguments: Any) -> Any:
    """The answer of a call. One that takes longer ends this process: nothing in Python can stop it from outside."""
    signal.setitimer(signal.ITIMER_REAL, seconds)
    answer = call(*arguments)
    signal.setitimer(signal.ITIMER_REAL, 0)
    return answer


def _limit(memory: int) -> None:
    """Lets this process have so many bytes more, where the system tells what it has."""
    try:
        with open("/proc/self/statm") as file:
            most = int(file.read().split()[0]) * resource.getpagesize() + memory
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    except (OSError, ValueError):
        pass


def _call(pipe: Pipe, policy: Any, folder: str, question: dict, state: bytes) -> None:
    _limit(question["memory"])
    log.host = said = Log()
    sys.stdout = sys.stderr = printed = io.StringIO()
    kept = b""
    try:
        reply, kept = _within(question["seconds"], ANSWERS[question["call"]], policy, question, state)
    except BadSetting as bad:
        reply = {"refused": ["setting", bad.name, bad.reason]}
    except BadState as bad:
        reply = {"refused": ["state", "", str(bad)]}
    except GiveUp as given:
        reply = {"refused": ["other", "", str(given)]}
    except SystemExit as left:
        error = faults.exited("policy", left, "to stop the run it raises `GiveUp`")
        reply = {"failed": _trace(error, folder)}
    except BaseException as error:
        reply = {"failed": _trace(error, folder)}
    pipe.put({"reply": reply, "printed": printed.getvalue()[-PRINTED:], "log": said.lines}, kept)


def _trace(error: BaseException, folder: str) -> str:
    """A traceback as a component would print it."""
    output, sys.stderr = sys.stderr, io.StringIO()
    trace = error.__traceback__
    while trace and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    faults.show(type(error), error, trace)
    text, sys.stderr = sys.stderr.getvalue(), output
    return text.replace(f'File "{folder}/', 'File "')


def _describe(policy: Any, question: dict, state: bytes) -> tuple[Any, bytes]:
    described = calls.describe(policy)
    names = ("name", "default", "summary")
    described["settings"] = [dict(zip(names, setting)) for setting in described["settings"]]
    return {"described": described}, b""


def _begin(policy: Any, question: dict, state: bytes) -> tuple[Any, bytes]:
    return "begun", calls.begin(policy, _run(question["run"]))


def _decide(policy: Any, question: dict, state: bytes) -> tuple[Any, bytes]:
    plan = calls.decide(policy, _run(question["run"]), state, _view(question["view"]))
    return {"decided": _plain(plan)}, plan.state


ANSWERS = {"describe": _describe, "begin": _begin, "decide": _decide}

# === From the host ===

ENDS = {name.title().replace("-", ""): name for name in STOPPED}
"""Why an episode ended, by the host's own names: `MaxTurns`."""


def _run(run: dict) -> Run:
    settings = [(name, next(iter(value.values()))) for name, value in run.pop("settings")]
    columns = [Column(**column) for column in run.pop("columns")]
    sampling = SamplingRange(**{name: Sampling(**ends) for name, ends in run.pop("sampling").items()})
    update = Update(**run.pop("update"))
    return Run(settings=settings, columns=columns, sampling=sampling, update=update, **run)


def _view(view: dict) -> View:
    budget = Budget(**view.pop("budget"))
    pool = [_prompt(**prompt) for prompt in view.pop("pool")]
    groups = [_group(**group) for group in view.pop("groups")]
    tallies = {name: [Tally(**tally) for tally in view.pop(name)] for name in ("unscored", "under_way")}
    return View(budget=budget, pool=pool, groups=groups, **tallies, **view)


def _prompt(past: dict | None, **rest: Any) -> Prompt:
    return Prompt(past=past and Past(**past), **rest)


def _group(sampling: list[dict], turns: list[list[dict]], stopped: list, origins: list, **rest: Any) -> Group:
    return Group(
        sampling=[Sampling(**own) for own in sampling],
        turns=[[Turn(**turn) for turn in rollout] for rollout in turns],
        stopped=[ENDS[end] for end in stopped],
        origins=[origin and Origin(**origin) for origin in origins],
        **rest,
    )


# === To the host ===


def _plain(plan: Plan) -> dict:
    """A plan as the record has it."""
    if plan.picks is None:
        action: dict = {"sample": [_request(request) for request in plan.requests or []]}
    else:
        batch = {"picks": [_pick(pick) for pick in plan.picks], "hold": [_hold(held) for held in plan.held]}
        action = {"train": {**batch, "update": plan.updated and vars(plan.updated)}}
    lists = {"skip": plan.skipped, "defer": plan.deferred, "evict": plan.evicted}
    return {"action": action, **lists, "metrics": plan.metrics}


def _request(request: Request) -> dict:
    until, sampling = request.until, request.sampling
    plain = {**vars(request), "until": until and vars(until), "sampling": sampling and vars(sampling)}
    starts = [start and vars(start) for start in plain.pop("starts")]
    return {**plain, "starts": starts} if starts else plain


def _pick(pick: Pick) -> dict:
    advantage: Any = pick.advantage
    if isinstance(advantage, Among):
        advantage = {"among": advantage.rollouts}
    elif not isinstance(advantage, str):
        advantage = {"by_turn" if pick.by_turn else "given": advantage}
    return {**vars(pick), "advantage": advantage}


def _hold(held: int | Hold) -> Any:
    if isinstance(held, int) or held.rollouts is None:
        return held if isinstance(held, int) else held.prompt
    return vars(held)
