"""Does what a policy must not, as the setting `how` says; else a uniform policy."""

import os
import random
import sys
import time
from dataclasses import dataclass

from allot_policy import BadSetting, Enough, GiveUp, Pick, Request, log, sample, setting, train

name = "faulty"
version = "0.1.0"
summary = "does what it must not"

WAYS = [
    "fine",
    "raise",
    "loop",
    "grow",
    "recurse",
    "exit",
    "print",
    "none",
    "wrong-type",
    "wrong-field",
    "wrong-state",
    "give-up",
    "needless",
    "clock",
    "files",
]


@dataclass
class Settings:
    how: str = setting("fine", f"What to do: {', '.join(WAYS)}.")
    few: int = setting(4, "A number with bounds.", minimum=2, maximum=64)


def begin(settings, run):
    if settings.how not in WAYS:
        raise BadSetting("how", f"there is no way `{settings.how}`")
    return {}


def decide(settings, run, state, view):
    plan = uniform(run, view)
    how = settings.how
    if how == "needless":
        return sample(Request(p.id, run.rollouts, until=Enough(1, 1, 2)) for p in view.pool)
    if how == "raise":
        parse(view)
    elif how == "loop":
        # One line, so that the line it is interrupted on is known.
        while True: pass
    elif how == "grow":
        hoard = []
        while True:
            hoard.append(bytes(1 << 20))
    elif how == "recurse":
        descend(0)
    elif how == "exit":
        sys.exit(3)
    elif how == "print":
        print("printed in step", view.step)
        print("printed as an error", file=sys.stderr)
        log.info("logged for anyone")
        log.warn("logged as a warning")
    elif how == "none":
        return None
    elif how == "wrong-type":
        return sample([Request("seven", 8)])
    elif how == "wrong-field":
        # Past the SDK, which looks at what it is given when it is given.
        plan.skipped = "everything"
    elif how == "wrong-state":
        state[view.step] = view.round
    elif how == "give-up":
        raise GiveUp("the data set is not for this policy")
    elif how == "clock":
        plan.metric("time", time.time()).metric("monotonic", time.monotonic())
        plan.metric("urandom", int.from_bytes(os.urandom(4), "big")).metric("random", random.random())
        plan.metric("hash", hash("a text") % 1000)
    elif how == "files":
        for what, attempt in ATTEMPTS.items():
            log.info(f"{what}: {outcome(attempt)}")
    return plan


def uniform(run, view):
    if view.round == 0 and view.can_sample:
        return sample(Request(p.id, run.rollouts) for p in view.offer(run.groups))
    return train(Pick.all(g.prompt) for g in view.groups)


def parse(view):
    number(f"step {view.step}")


def number(text):
    return int(text)


def descend(depth):
    return 1 + descend(depth + 1)


def connect():
    import socket

    socket.create_connection(("localhost", 80))


ATTEMPTS = {
    "open": lambda: open("/etc/passwd").read(),
    "write": lambda: open("left-behind", "w"),
    "list": lambda: os.listdir("/"),
    "environ": lambda: dict(os.environ),
    "arguments": lambda: sys.argv,
    "input": lambda: sys.stdin.read(),
    "socket": connect,
    "system": lambda: os.system("true"),
    "sleep": lambda: time.sleep(3600),
}


def outcome(attempt):
    try:
        return repr(attempt())
    except Exception as error:
        return f"{type(error).__name__}: {error}"
