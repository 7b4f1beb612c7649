"""Sends a run's metrics to Weights & Biases, trackio or MLflow while the run goes on.

    python -m allot.follow runs/mine --to wandb

It reads the folder that `allot train` writes, and only adds `followed-CLIENT.json` to it, with the client's run and the last line
that was sent, and `.followed-CLIENT.lock`, which holds off a second follower. The run does not know that it is followed: either may begin, stop and go on without the other.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from .errors import Error
from .follow_clients import CLIENTS, Client, ClientRun, installed

#: Seconds between two looks at the folder.
EVERY = 1.0
#: Seconds to wait for the last evaluation, which a run writes after its record's end.
LAST_LINE = 30.0
#: Bytes at a record's end that are searched for its last line. A reason may be a traceback.
TAIL = 1 << 16


def follow(
    run: str | PathLike[str],
    to: str,
    *,
    project: str = "allot",
    name: str | None = None,
    wait: bool = True,
    again: bool = False,
    stop: threading.Event | None = None,
    say: Callable[[str], None] = lambda words: print(words, file=sys.stderr),
) -> str | None:
    """Sends each step's metrics until the run ends. Returns why it ended, or None if it has not ended.

    `run` is the folder of a run of `allot train`, which may begin later, `to` one of `wandb`, `trackio` and `mlflow`. Without
    `wait`, what is there is sent. With `again`, all lines are sent to another run of the client. `stop` ends the following.
    """
    if to not in CLIENTS:
        raise Error(f"there is no client `{to}`", f"choose one of {', '.join(CLIENTS)}")
    installed(to)
    folder, stop = Path(run), stop or threading.Event()
    if not _begun(folder, wait, stop, say):
        return None
    with _alone(folder, to):
        return _follow(folder, to, project, name, wait, again, stop, say)


def _follow(
    folder: Path,
    to: str,
    project: str,
    name: str | None,
    wait: bool,
    again: bool,
    stop: threading.Event,
    say: Callable[[str], None],
) -> str | None:
    mark = None if again else Mark.read(folder, to)
    if mark is not None and (project != mark.project or name not in (None, mark.name)):
        raise Error(
            f"`{folder}` was sent to `{mark.name}` in project `{mark.project}` before",
            "leave out --project and --name to go on there, or add --again for another run with all its steps",
        )
    usual, group = _names(folder)
    about = ClientRun(project, name or (mark.name if mark else usual), group, _config(folder))
    client = _client(to, about, mark.run if mark else None)
    mark = mark or Mark(client.id, project, about.name, _identity(folder))
    over = "stopped"
    try:
        end = _send(folder, client, mark, (folder / f"followed-{to}.json"), wait, stop, say)
        if end is not None:
            over = "finished" if end["normal"] else "failed"
    finally:
        client.finish(over)
    if end is None:
        sent = f"up to step {mark.sent[0]}" if mark.sent[1] else "nothing"
        say(f"the run has not ended; sent: {sent}. The same command goes on from there")
        return None
    say(f"the run ended after step {end['steps']}: {end['reason']}")
    return str(end["reason"])


@contextlib.contextmanager
def _alone(folder: Path, to: str) -> Iterator[None]:
    """Holds a lock: a second follower would send everything once more. A file system over a network may know no locks."""
    with (folder / f".followed-{to}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Error(f"`{folder}` is being followed already, to {to}", "stop the other command first") from None
        except OSError:
            pass
        yield


def _identity(folder: Path) -> str:
    """A hash of the folder's path and of the record's head."""
    return hashlib.sha256(str(folder.resolve()).encode() + b"\n" + _head(folder)).hexdigest()


def _head(folder: Path) -> bytes:
    """The first line of the run's record; empty if it is not whole yet."""
    try:
        with (folder / "record.jsonl").open("rb") as file:
            head = file.readline()
    except FileNotFoundError:
        return b""
    return head if head.endswith(b"\n") else b""


@dataclass
class Mark:
    """How far a run was sent, and to which run of the client. A file in the run's folder."""

    run: str
    project: str
    name: str
    #: Tells the run from another one in this folder, and from a copy of it.
    of: str
    #: The last line: its step, and which line of that step it is, from 1. (0, 0) before the first.
    sent: tuple[int, int] = (0, 0)

    @classmethod
    def read(cls, folder: Path, to: str) -> Mark | None:
        path = folder / f"followed-{to}.json"
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
            mark = cls(told["run"], told["project"], told["name"], told["of"], (told["sent"][0], told["sent"][1]))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise Error(f"`{path}` can't be read: {error!r}", "remove it; all steps are then sent again") from None
        if mark.of != _identity(folder):
            raise Error(
                f"`{path}` is of another run: the folder was copied, moved or begun anew",
                "--again sends all steps to another run of the client",
            )
        return mark

    def write(self, path: Path) -> None:
        aside = path.with_name(f"{path.name}.unfinished")
        aside.write_text(json.dumps(self.__dict__), encoding="utf-8")
        os.replace(aside, path)


@dataclass(frozen=True)
class Line:
    """A line of `metrics.jsonl`."""

    step: int
    #: Which line of its step it is, from 1. The evaluation after the last step is that step's second one.
    nth: int
    #: Without those that were not finite, which a run writes as null.
    metrics: dict[str, float]
    #: Whether this line was another one before the run went on from a checkpoint.
    redone: bool


class Lines:
    """The complete lines of a growing `metrics.jsonl`. A run that goes on from a checkpoint truncates it."""

    def __init__(self, path: Path):
        self.path = path
        #: How often the file was read from its start again.
        self.restarts = 0
        self._seen: dict[tuple[int, int], int] = {}
        self._start()

    def _start(self) -> None:
        self._taken, self._last, self._place, self._number = 0, b"", (0, 0), 0

    def new(self) -> Iterator[Line]:
        """The lines since the last call. If the last line that was read is gone, all lines."""
        try:
            with self.path.open("rb") as file:
                # The file may have been truncated and have grown past this place since.
                file.seek(self._taken - len(self._last))
                if file.read(len(self._last)) != self._last:
                    self._start()
                    self.restarts += 1
                file.seek(self._taken)
                # All at once: a client may take its time between two lines.
                found = file.read()
        except FileNotFoundError:
            return
        for line in found[: found.rfind(b"\n") + 1].splitlines(keepends=True):
            self._number += 1
            try:
                metrics = json.loads(line)
                step = int(metrics.pop("step"))
            except (ValueError, KeyError, AttributeError, TypeError):
                raise Error(f"line {self._number} of `{self.path}` is not a step's metrics") from None
            self._place = (step, self._place[1] + 1 if step == self._place[0] else 1)
            self._taken, self._last = self._taken + len(line), line
            before = self._seen.get(self._place)
            self._seen[self._place] = hash(line)
            finite = {name: value for name, value in metrics.items() if value is not None}
            yield Line(*self._place, finite, before not in (None, hash(line)))


def waste(metrics: Mapping[str, float]) -> float | None:
    """Of the rollouts whose fate a step decided, the share not trained on with an advantage: TRL's `allot/waste`.

    None if the step decided none, or if it trained on rollouts again: how many of those had an advantage is not in the metrics.
    """
    names = ("alloc/trained", "alloc/released", "alloc/stale", "alloc/unscorable")
    if "alloc/again" in metrics or not all(name in metrics for name in (*names, "alloc/effective")):
        return None
    known = sum(metrics[name] for name in names)
    return 1.0 - metrics["alloc/effective"] / known if known else None


def _send(
    folder: Path,
    client: Client,
    mark: Mark,
    path: Path,
    wait: bool,
    stop: threading.Event,
    say: Callable[[str], None],
) -> dict[str, Any] | None:
    """Sends lines until the record ends. Returns its end; None if the run has not ended."""
    lines, told, evaluated = Lines(folder / "metrics.jsonl"), 0, -1
    late: float | None = None
    mark.write(path)
    while True:
        # Before the lines: those that were written before the end are then read.
        end = _end(folder)
        for line in lines.new():
            if "accuracy" in line.metrics:
                evaluated = line.step
            if (line.step, line.nth) > mark.sent:
                wasted = waste(line.metrics)
                more = {} if wasted is None else {"allot/waste": wasted}
                trouble = client.log(line.step, line.metrics | more)
                if trouble:
                    say(trouble)
                mark.sent = (line.step, line.nth)
                mark.write(path)
            elif line.redone and told < lines.restarts:
                told = lines.restarts
                say(
                    f"the run went on from an earlier step and does step {line.step} again; up to step "
                    f"{mark.sent[0]}, {client.title} keeps what it had"
                )
            if stop.is_set():
                return None
        if end is not None:
            late = late or time.monotonic()
            complete = end.get("accuracy") is None or evaluated == end["steps"] or not end["normal"]
            if complete or not wait or time.monotonic() - late > LAST_LINE:
                return end
        if not wait or stop.wait(EVERY):
            return None


def _end(folder: Path) -> dict[str, Any] | None:
    """The end of a run's record, if its last line is one."""
    try:
        with (folder / "record.jsonl").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            tail = file.read()
    except FileNotFoundError:
        return None
    last = tail.rstrip(b"\n").rpartition(b"\n")[2]
    if not (tail.endswith(b"\n") and last.startswith(b'{"kind":"end"')):
        return None
    end = json.loads(last)
    return end if isinstance(end, dict) else None


def _client(to: str, about: ClientRun, known: str | None) -> Client:
    """The client's run. What a client raises here is about its account, its server, or a run that is gone."""
    kind = CLIENTS[to]
    try:
        return kind(about, known)
    except Exception as error:
        if known is None:
            raise Error(f"{kind.title} began no run: {error}") from error
        raise Error(
            f"{kind.title} does not go on with run `{known}`: {error}", "to send all steps to another run: --again"
        ) from error


def _begun(folder: Path, wait: bool, stop: threading.Event, say: Callable[[str], None]) -> bool:
    """Waits until the run writes metrics. False if it was stopped before."""
    said = False
    while not (all((folder / name).is_file() for name in ("resolved.toml", "metrics.jsonl")) and _head(folder)):
        if folder.exists() and not folder.is_dir():
            raise Error(f"`{folder}` is a file", "name the folder of a run")
        if (folder / "runs").is_dir():
            example = f"{folder}/runs/uniform/seed-0001"
            raise Error(f"`{folder}` is a comparison", f"name one of its runs, such as {example}")
        _refuse_other_engines(folder)
        if not wait:
            raise Error(f"there is no run of `allot train` in `{folder}`", "leave out --no-wait to wait for it")
        if not said:
            say(f"waiting for a run of `allot train` in {folder}")
        said = True
        if stop.wait(EVERY):
            return False
    return True


def _refuse_other_engines(folder: Path) -> None:
    """Raises an error for a record of a run that will never write metrics."""
    head = _head(folder)
    if not head:
        return
    told = json.loads(head)
    if told.get("world") is not None:
        raise Error(f"`{folder}` is a simulation, which writes no metrics", f"for its curves: allot report {folder}")
    if told.get("training") is None:
        raise Error(
            f"`{folder}` is a record of the trainer `{told.get('engine')}`, which reports its metrics itself",
            "in TRL: report_to; in verl: trainer.logger; in slime: --use-wandb",
        )


def _names(folder: Path) -> tuple[str, str | None]:
    """The usual name of a run, and its group: in a comparison its policy and seed, and the comparison's folder."""
    folder = folder.resolve()
    if folder.name.startswith("seed-") and folder.parent.parent.name == "runs":
        return f"{folder.parent.name} {folder.name}", folder.parents[2].name
    return folder.name, None


def _config(folder: Path) -> dict[str, Any]:
    """The run's config. Python reads TOML from 3.11 on."""
    try:
        import tomllib as toml
    except ModuleNotFoundError:
        try:
            import tomli as toml
        except ModuleNotFoundError:
            raise Error("Python 3.10 can't read `resolved.toml`", "pip install tomli, or use Python 3.11") from None
    return toml.loads((folder / "resolved.toml").read_text(encoding="utf-8"))


def main(arguments: list[str] | None = None) -> int:
    """The command. Returns its exit code: 0, 1 for an error, 130 if it was stopped before the run's end."""
    what = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m allot.follow", description=what)
    parser.add_argument("run", help="folder of a run of `allot train`; it may begin later")
    parser.add_argument("--to", required=True, choices=list(CLIENTS), help="client to send to")
    parser.add_argument("--project", default="allot", help="project, or MLflow's experiment (default: allot)")
    parser.add_argument("--name", help="name of the client's run (default: the folder's name)")
    parser.add_argument("--no-wait", action="store_true", help="send what is there, without waiting for more")
    parser.add_argument("--again", action="store_true", help="send all steps, to another run of the client")
    asked = parser.parse_args(arguments)
    stop = threading.Event()

    def ask(number: int, frame: Any) -> None:
        # The first one ends between two lines; a second one ends at once.
        stop.set()
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ask)
    try:
        follow(
            asked.run,
            asked.to,
            project=asked.project,
            name=asked.name,
            wait=not asked.no_wait,
            again=asked.again,
            stop=stop,
        )
    except Error as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 130 if stop.is_set() else 0


if __name__ == "__main__":
    sys.exit(main())
