"""`python -m allot.follow`: a run's metrics in Weights & Biases, trackio and MLflow while the run goes on.

What is sent, and when, is tested with a client that writes down its calls. Then the same with each real client that this Python
has: offline or in a folder, read back from what it stored.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

import allot
from allot import follow_clients
from allot.follow import Lines, _config, follow, waste
from recorded import COIN, MODEL, PROGRAM, run

CONFIG = '[run]\nseed = 7\nsteps = 3\n\n[policy]\nuse = "uniform"\n\n[[tasks]]\nkind = "sums"\nlevels = [1, 2]\n'

#: A wandb that writes down its calls, one a line, in the working directory.
FAKE = """
import json

def told(*call):
    with open("calls.jsonl", "a") as file:
        file.write(json.dumps(call) + "\\n")

class Run:
    def __init__(self, id):
        self.id, self.step = id, 0
        self.summary = self

    def log(self, metrics, step):
        told("log", step, metrics)
        self.step = step

    def update(self, metrics):
        told("summary", metrics)

    def finish(self, exit_code):
        told("finish", exit_code)

def init(**given):
    told("init", given)
    return Run(given.get("id", "made"))
"""

#: The real clients, with what their environment says of where they keep what they get.
REAL = {
    "wandb": {"WANDB_MODE": "offline", "WANDB_SILENT": "true"},
    "trackio": {"TRACKIO_DIR": "{folder}/trackio"},
    "mlflow": {"MLFLOW_TRACKING_URI": "sqlite:///{folder}/mlflow.db"},
}


def step(number: int, **more) -> dict:
    """A step's line: 12 rollouts whose fate is known, 6 of them with an advantage."""
    counts = {"trained": 8.0, "effective": 6.0, "released": 2.0, "stale": 1.0, "unscorable": 1.0}
    told = {"step": number, "reward": number / 100, "step_time": 0.5 + number}
    return told | {f"alloc/{name}": count for name, count in counts.items()} | more


class Fabricated:
    """A run's folder as `allot train` writes it, line by line."""

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir(parents=True)
        (folder / "resolved.toml").write_text(CONFIG)
        self.record({"kind": "head", "training": {}, "engine": "cpu"})
        (folder / "metrics.jsonl").touch()

    def metrics(self, *lines: dict, rest: str = "") -> None:
        with (self.folder / "metrics.jsonl").open("a") as file:
            file.write("".join(json.dumps(line) + "\n" for line in lines) + rest)

    def record(self, line: dict) -> None:
        with (self.folder / "record.jsonl").open("a") as file:
            file.write(json.dumps(line, separators=(",", ":")) + "\n")

    def end(self, steps: int, normal: bool = True, **more) -> None:
        self.record({"kind": "end", "reason": "the budget is spent", "normal": normal, "steps": steps, **more})

    def cut(self, lines: int) -> None:
        """Truncates the metrics as a run that goes on from a checkpoint does."""
        path = self.folder / "metrics.jsonl"
        os.truncate(path, sum(map(len, path.read_bytes().splitlines(keepends=True)[:lines])))


class Told:
    """A client in this process."""

    title = "the client"

    def __init__(self, about, known):
        self.about, self.known, self.id = about, known, known or "made"
        self.rows, self.over = [], None
        Told.last = self

    def log(self, step, metrics):
        self.rows.append((step, metrics))

    def finish(self, over):
        self.over = over


class Scratch(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = Path(scratch.name)

    def until(self, what: str, done, seconds: float = 60.0):
        for _ in range(int(seconds / 0.05)):
            if found := done():
                return found
            time.sleep(0.05)
        raise AssertionError(f"no {what} in {seconds} s")


class Followed(Scratch):
    """With a client in this process."""

    def setUp(self):
        super().setUp()
        for patch in (
            mock.patch.dict(follow_clients.CLIENTS, {"told": Told}),
            mock.patch("allot.follow.installed"),
            mock.patch("allot.follow.EVERY", 0.02),
        ):
            patch.start()
            self.addCleanup(patch.stop)
        self.said, self.stop = [], threading.Event()

    def follow(self, folder, **more):
        return follow(folder, "told", stop=self.stop, say=self.said.append, **more)

    def begin(self, folder, **more) -> threading.Thread:
        thread = threading.Thread(target=self.follow, args=(folder,), kwargs=more, daemon=True)
        thread.start()
        self.addCleanup(thread.join, 10)
        self.addCleanup(self.stop.set)
        return thread

    def steps(self) -> list[int]:
        return [step for step, _ in Told.last.rows]

    def test_a_run_that_is_over_is_sent_whole(self):
        made = Fabricated(self.scratch / "mine")
        made.metrics({"step": 0, "accuracy": 0.25}, step(1), step(2, loss=None), {"step": 2, "accuracy": 0.5})
        made.end(2, accuracy=0.5)
        self.assertEqual(self.follow(made.folder), "the budget is spent")
        self.assertEqual(self.steps(), [0, 1, 2, 2])
        self.assertEqual(Told.last.rows[0], (0, {"accuracy": 0.25}))
        self.assertEqual(Told.last.rows[1][1]["allot/waste"], 0.5)
        self.assertNotIn("loss", Told.last.rows[2][1], "what was not finite is null")
        about = Told.last.about
        self.assertEqual((about.project, about.name, about.group), ("allot", "mine", None))
        self.assertEqual(about.config["tasks"], [{"kind": "sums", "levels": [1, 2]}])
        self.assertEqual(Told.last.over, "finished")
        self.assertEqual(self.said, ["the run ended after step 2: the budget is spent"])

    def test_a_run_is_followed_from_before_its_folder_to_its_end(self):
        thread = self.begin(self.scratch / "mine")
        self.until("waiting", lambda: self.said)
        self.assertIn("waiting for a run", self.said[0])
        made = Fabricated(self.scratch / "mine")
        made.metrics({"step": 0, "accuracy": 0.25}, rest='{"step":1,"reward":')
        self.until("first line", lambda: hasattr(Told, "last") and self.steps() == [0])
        time.sleep(0.2)
        self.assertEqual(self.steps(), [0], "an incomplete line waits")
        made.metrics(rest="0.5}\n")
        self.until("second line", lambda: self.steps() == [0, 1])
        # The end is recorded before the last evaluation is written.
        made.end(1, accuracy=0.75)
        time.sleep(0.2)
        self.assertTrue(thread.is_alive())
        made.metrics({"step": 1, "accuracy": 0.75})
        thread.join(10)
        self.assertEqual(self.steps(), [0, 1, 1])
        self.assertEqual(Told.last.over, "finished")

    def test_steps_that_are_done_again_are_not_sent_again(self):
        made = Fabricated(self.scratch / "mine")
        made.metrics(*map(step, (1, 2, 3, 4)))
        thread = self.begin(made.folder)
        self.until("four steps", lambda: hasattr(Told, "last") and self.steps() == [1, 2, 3, 4])
        made.cut(2)
        # Longer than before when it is looked at again.
        made.metrics(*(step(n, again=1.0) for n in (3, 4, 5)))
        made.end(5)
        thread.join(10)
        self.assertEqual(self.steps(), [1, 2, 3, 4, 5])
        self.assertNotIn("again", Told.last.rows[2][1])
        self.assertIn("again", Told.last.rows[4][1])
        self.assertEqual(
            self.said[0],
            "the run went on from an earlier step and does step 3 again; up to step 4, the client keeps what it had",
        )

    def test_a_run_that_starts_over_is_told_once(self):
        made = Fabricated(self.scratch / "mine")
        made.metrics(*map(step, (1, 2)))
        thread = self.begin(made.folder)
        self.until("two steps", lambda: hasattr(Told, "last") and self.steps() == [1, 2])
        (made.folder / "metrics.jsonl").unlink()
        time.sleep(0.1)
        for number in (1, 2, 3):
            made.metrics(step(number, other=1.0))
            time.sleep(0.1)
        made.end(3)
        thread.join(10)
        self.assertEqual(self.steps(), [1, 2, 3])
        self.assertEqual(len([words for words in self.said if "again" in words]), 1, self.said)

    def test_another_follower_goes_on_where_the_last_one_stopped(self):
        made = Fabricated(self.scratch / "mine")
        made.metrics(step(1), step(2))
        self.assertIsNone(self.follow(made.folder, wait=False, name="yours"))
        left = "the run has not ended; sent: up to step 2. The same command goes on from there"
        self.assertEqual(self.said, [left])
        first = Told.last
        made.metrics(step(3), {"step": 3, "accuracy": 0.5})
        made.end(3, accuracy=0.5)
        self.follow(made.folder)
        self.assertEqual((first.over, Told.last.known, self.steps()), ("stopped", "made", [3, 3]))
        self.assertEqual(Told.last.about.name, "yours")
        self.follow(made.folder)
        self.assertEqual(self.steps(), [])
        with self.assertRaisesRegex(allot.Error, "was sent to `yours` in project `allot` before"):
            self.follow(made.folder, project="another")
        self.follow(made.folder, project="another", again=True)
        self.assertEqual((Told.last.known, self.steps(), Told.last.about.name), (None, [1, 2, 3, 3], "mine"))

    def test_a_run_that_failed_is_a_failed_run_of_the_client(self):
        made = Fabricated(self.scratch / "mine")
        made.metrics(step(1))
        made.end(1, normal=False, accuracy=0.5)
        self.follow(made.folder)
        self.assertEqual((Told.last.over, self.steps()), ("failed", [1]))

    def test_a_comparison_s_runs_are_one_group(self):
        made = Fabricated(self.scratch / "compare-tiny-001/runs/pilot-commit 16+48/seed-0002")
        made.end(0)
        self.follow(made.folder)
        about = Told.last.about
        self.assertEqual((about.name, about.group), ("pilot-commit 16+48 seed-0002", "compare-tiny-001"))

    def test_what_is_refused(self):
        empty = self.scratch / "empty"
        empty.mkdir()
        file = self.scratch / "file"
        file.touch()
        other = self.scratch / "other"
        other.mkdir()
        (other / "record.jsonl").write_text('{"kind":"head","engine":"trl"}\n')
        broken = Fabricated(self.scratch / "broken")
        broken.metrics(step(1), {"reward": 1})
        marked = Fabricated(self.scratch / "marked")
        (marked.folder / "followed-told.json").write_text('{"run": "a"}')
        for folder, words in (
            (empty, "there is no run of `allot train` in"),
            (file, "is a file"),
            (run("simulate", COIN), "is a simulation, which writes no metrics"),
            (other, "is a record of the trainer `trl`, which reports its metrics itself"),
            (Fabricated(self.scratch / "all/runs/uniform/seed-0001").folder.parents[2], "is a comparison"),
            (broken.folder, "line 2 of `.*metrics.jsonl` is not a step's metrics"),
            (marked.folder, "followed-told.json` can't be read"),
        ):
            with self.subTest(words), self.assertRaisesRegex(allot.Error, words):
                self.follow(folder, wait=False)

    def test_a_run_is_not_sent_on_where_another_one_was(self):
        made = Fabricated(self.scratch / "mine")
        made.metrics(step(1))
        self.follow(made.folder, wait=False)
        shutil.copytree(made.folder, self.scratch / "copy")
        (made.folder / "record.jsonl").write_text('{"kind":"head","training":{},"engine":"cpu","seed":8}\n')
        for folder in (self.scratch / "copy", made.folder):
            with self.subTest(folder), self.assertRaisesRegex(allot.Error, "is of another run.*\n\nhint: --again"):
                self.follow(folder, wait=False)
            self.follow(folder, wait=False, again=True)
            self.assertEqual((Told.last.known, len(Told.last.rows)), (None, 1))

    def test_a_run_has_one_follower_for_a_client(self):
        made = Fabricated(self.scratch / "mine")
        made.metrics(step(1))
        thread = self.begin(made.folder)
        self.until("a mark", (made.folder / "followed-told.json").exists)
        with self.assertRaisesRegex(allot.Error, "is being followed already, to told"):
            self.follow(made.folder, wait=False)
        self.stop.set()
        thread.join()
        self.assertIsNone(self.follow(made.folder, wait=False), "stopped")

    def test_a_follower_that_is_stopped_has_not_followed_a_run_to_its_end(self):
        made = Fabricated(self.scratch / "mine")
        made.metrics(step(1), step(2))
        made.end(2)
        with mock.patch.object(Told, "log", lambda told, *_: self.stop.set()):
            self.assertIsNone(self.follow(made.folder))
        self.assertEqual(Told.last.over, "stopped")
        self.stop.clear()
        self.assertEqual(self.follow(made.folder), "the budget is spent")
        self.assertEqual([at for at, _ in Told.last.rows], [2])

    def test_a_client_s_own_error_is_told_with_what_to_do(self):
        made = Fabricated(self.scratch / "mine")
        made.metrics(step(1))
        self.follow(made.folder, wait=False)
        with mock.patch.object(Told, "__init__", side_effect=ValueError("no such run")):
            words = "does not go on with run `made`: no such run\n\nhint: .*--again"
            with self.assertRaisesRegex(allot.Error, words):
                self.follow(made.folder, wait=False)


class Parts(Scratch):
    def test_waste_is_that_of_trl_s_adapter(self):
        told = {"alloc/" + name: n for name, n in COUNTS.items()}
        self.assertEqual(waste(told), allot.allocator._waste(COUNTS, trained=8, learned=6, unscorable=1))
        self.assertIsNone(waste(step(1, **{"alloc/again": 2.0})), "how many of these had an advantage is not told")
        self.assertIsNone(waste({"accuracy": 0.5}))
        nothing = dict.fromkeys(COUNTS, 0.0)
        self.assertIsNone(waste({"alloc/" + name: n for name, n in nothing.items()}))

    def test_lines_come_once_wherever_the_file_is_cut(self):
        path = self.scratch / "metrics.jsonl"
        lines = [json.dumps(step(n)) + "\n" for n in range(1, 6)]
        for kept in range(6):
            path.write_text("".join(lines))
            read = Lines(path)
            found = [(line.step, line.redone) for line in read.new()]
            self.assertEqual(found, [(n, False) for n in range(1, 6)])
            self.assertEqual(list(read.new()), [])
            again = [json.dumps(step(n, other=1)) + "\n" for n in range(kept + 1, 8)]
            path.write_text("".join(lines[:kept] + again))
            found = {line.step: line.redone for line in read.new()}
            self.assertEqual([n for n, redone in found.items() if redone], list(range(kept + 1, 6)))
            self.assertEqual(max(found), 7)

    def test_mlflow_s_names_and_parameters(self):
        self.assertEqual(follow_clients.mlflow_name("eval/held-out/avg@4"), "eval/held-out/avg_4")
        config = {"run": {"seed": 1}, "policy": {"use": "dapo", "settings": {"a.b": True}}, "tasks": [{"n": 1}]}
        expected = {"run.seed": "1", "policy.use": "dapo", "policy.settings.a.b": "true", "tasks": '[{"n": 1}]'}
        self.assertEqual(dict(follow_clients.flat(config)), expected)

    def test_python_3_10_needs_a_reader_of_toml(self):
        made = Fabricated(self.scratch / "mine")
        missing = mock.patch.dict(sys.modules, {"tomllib": None, "tomli": None})
        with missing, self.assertRaisesRegex(allot.Error, "hint: pip install tomli"):
            _config(made.folder)

    def test_a_client_that_is_missing_is_named_with_its_command(self):
        for client in REAL:
            with mock.patch.dict(sys.modules, {client: None}), self.assertRaises(allot.Error) as raised:
                follow(self.scratch / "never", client)
            self.assertEqual(raised.exception.hint, f"pip install {client}")


COUNTS = {"trained": 8, "effective": 6, "released": 2, "stale": 1, "unscorable": 1}


class Commands(Scratch):
    """The command, in processes of its own."""

    def command(self, to: str, *more: str, fake: bool = False) -> subprocess.Popen:
        places = {name: place.format(folder=self.scratch) for name, place in REAL.get(to, {}).items()}
        # Not the folder of the tests: `trackio` and the others are names of modules.
        paths = [str(Path(allot.__file__).parents[1]), *([str(self.scratch / "fake")] if fake else [])]
        paths += filter(None, sys.path[1:])
        self.environment = {**os.environ, **places, "PYTHONPATH": os.pathsep.join(paths)}
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "allot.follow", "run", "--to", to, *more],
            cwd=self.scratch, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        self.addCleanup(lambda: (process.poll() is None and process.kill(), process.communicate()))
        return process

    def calls(self) -> list[list]:
        path = self.scratch / "calls.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def fake(self) -> None:
        (self.scratch / "fake").mkdir()
        (self.scratch / "fake/wandb.py").write_text(FAKE)

    def test_ctrl_c_and_sigterm_end_it_between_two_lines(self):
        self.fake()
        made = Fabricated(self.scratch / "run")
        made.metrics(step(1))
        process = self.command("wandb", fake=True)
        self.until("a step", lambda: [call for call in self.calls() if call[0] == "log"])
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=20)[0]
        self.assertEqual((process.returncode, self.calls()[-1]), (130, ["finish", 0]), said)
        self.assertIn("the run has not ended; sent: up to step 1", said)
        self.assertNotIn("Traceback", said)
        made.metrics(step(2))
        process = self.command("wandb", fake=True)
        self.until("another step", lambda: sum(call[0] == "log" for call in self.calls()) == 2)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
        self.assertEqual(process.returncode, 130)
        began = [call[1] for call in self.calls() if call[0] == "init"]
        self.assertEqual(began[1], {**began[0], "id": "made", "resume": "must"})

    def test_what_weights_and_biases_can_t_add_to_a_closed_step_is_in_its_summary(self):
        self.fake()
        with mock.patch.dict(sys.modules):
            sys.path.insert(0, str(self.scratch / "fake"))
            self.addCleanup(sys.path.remove, str(self.scratch / "fake"))
            sys.modules.pop("wandb", None)
            before = os.getcwd()
            self.addCleanup(os.chdir, before)
            os.chdir(self.scratch)
            client = follow_clients.Wandb(follow_clients.ClientRun("p", "n", None, {}), "known")
            client._run.step = 4
            self.assertIn("had closed step 3", client.log(3, {"accuracy": 0.5}))
            self.assertIsNone(client.log(4, {"accuracy": 0.75}))
            self.assertEqual(self.calls()[1:], [["summary", {"accuracy": 0.5}], ["log", 4, {"accuracy": 0.75}]])

    def test_errors_are_sentences(self):
        # An isolated Python has none of the clients.
        said = self.command("wandb", fake=True) if find_spec("wandb") is None else None
        if said is not None:
            text = said.communicate(timeout=20)[0]
            self.assertEqual(said.returncode, 1)
            self.assertEqual(text, "error: Python has no module `wandb`\n\nhint: pip install wandb\n")
        process = self.command("mlflow", "--to", "comet")
        self.assertIn("invalid choice: 'comet'", process.communicate(timeout=20)[0])

    def test_a_real_run_that_is_killed_and_resumed(self):
        self.fake()
        longer = MODEL.replace("steps = 12", "steps = 30").replace("rollouts = 2000", "rollouts = 6000")
        longer = longer.replace("every = 100", "every = 4") + "\n[checkpoint]\nevery = 2\n"
        (self.scratch / "run.toml").write_text(longer)
        process = self.command("wandb", fake=True)
        whole = self.killed_and_resumed()
        said = process.communicate(timeout=60)[0]
        self.assertEqual(process.returncode, 0, said)
        self.assertIn("does step", said)
        logged = [call for call in self.calls() if call[0] == "log"]
        self.assertEqual([step for _, step, _ in logged], [line["step"] for line in whole])
        for (_, number, metrics), line in zip(logged, whole, strict=True):
            # The same run, so a step that was done again has the same numbers, apart from its seconds.
            timed = {"step", "step_time", "tokens_per_second"}
            self.assertEqual(
                {name: value for name, value in metrics.items() if name not in {*timed, "allot/waste"}},
                {name: value for name, value in line.items() if name not in timed},
                number,
            )
            if "reward" in line:
                self.assertEqual(metrics.get("allot/waste"), waste(line))
        self.assertEqual(self.calls()[-1], ["finish", 0])

    def killed_and_resumed(self) -> list[dict]:
        """The metrics of a run of `allot train` in `run` that was killed after a step that it then did again."""
        arguments = [PROGRAM, "train", "run.toml", "--out", "run"]
        with (self.scratch / "log").open("w") as log:
            process = subprocess.Popen(arguments, cwd=self.scratch, stdout=log, stderr=log)
        path = self.scratch / "run/metrics.jsonl"

        def steps() -> list[dict]:
            return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

        self.until("a fifth step", lambda: any(line["step"] >= 5 for line in steps()))
        process.kill()
        process.wait()
        # Without the checkpoint of the last step, if it has one: a step that was sent is then done again.
        last = max(line["step"] for line in steps())
        shutil.rmtree(self.scratch / f"run/checkpoints/step-{last:06}", ignore_errors=True)
        sent = self.scratch / "run/followed-wandb.json"
        self.until("the last step", lambda: sent.exists() and json.loads(sent.read_text())["sent"][0] >= last)
        again = [PROGRAM, "train", "--resume", "run"]
        done = subprocess.run(again, cwd=self.scratch, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return steps()

    def real(self, client: str) -> None:
        """Follows a run that is cut back in the middle, with a follower that is stopped in the middle."""
        made = Fabricated(self.scratch / "run")
        made.metrics({"step": 0, "accuracy": 0.25, "eval/held-out/avg@4": 0.25}, *map(step, (1, 2, 3)))
        process = self.command(client, "--project", "tried", "--name", "mine")
        sent = self.scratch / f"run/followed-{client}.json"
        self.until("three steps", lambda: sent.exists() and json.loads(sent.read_text())["sent"] == [3, 1])
        made.cut(3)
        made.metrics(step(3, reward=0.9), step(4))
        self.until("a fourth step", lambda: json.loads(sent.read_text())["sent"] == [4, 1])
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[0]
        self.assertEqual(process.returncode, 130, said)
        made.metrics(step(5), {"step": 5, "accuracy": 0.5})
        made.end(5, accuracy=0.5)
        process = self.command(client, "--project", "tried")
        said = process.communicate(timeout=60)[0]
        self.assertEqual(process.returncode, 0, said)
        reader = [sys.executable, "-W", "ignore", Path(__file__).with_name("followed.py"), client, "tried"]
        read = subprocess.run(reader, cwd=self.scratch, env=self.environment, capture_output=True, text=True)
        self.assertEqual(read.returncode, 0, read.stderr)
        [stored] = json.loads(read.stdout.splitlines()[-1])
        self.assertEqual((stored["name"], stored["group"]), ("mine", None))
        metrics = stored["metrics"]
        self.assertEqual(metrics["reward"], [[1, 0.01], [2, 0.02], [3, 0.03], [4, 0.04], [5, 0.05]])
        self.assertEqual(metrics["allot/waste"], [[n, 0.5] for n in range(1, 6)])
        self.assertEqual(metrics["accuracy"], [[0, 0.25], [5, 0.5]])
        if client == "mlflow":
            self.assertEqual(metrics["eval/held-out/avg_4"], [[0, 0.25]])
            self.assertEqual(stored["state"], "FINISHED")
            self.assertEqual(stored["config"]["policy.use"], "uniform")
        else:
            self.assertEqual(metrics["eval/held-out/avg@4"], [[0, 0.25]])
            self.assertEqual(stored["config"]["policy"], {"use": "uniform"})
        if client == "wandb":
            self.assertEqual(stored["state"], 0)
            self.assertEqual(len(list((self.scratch / "wandb").glob("offline-run-*"))), 2)


def _real(client: str):
    @unittest.skipUnless(find_spec(client), f"{client} is not installed")
    def test(self):
        self.real(client)

    test.__doc__ = f"{client}, as it is installed."
    return test


for _client in REAL:
    setattr(Commands, f"test_{_client}_itself", _real(_client))


if __name__ == "__main__":
    unittest.main()
