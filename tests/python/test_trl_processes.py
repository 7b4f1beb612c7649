"""TRL in two processes on a CPU, and after a process was killed in the middle of a batch.

Needs TRL 1.16; skipped without it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from importlib.util import find_spec
from pathlib import Path

from recorded import allot as program
from recorded import lines

if find_spec("trl") is None:
    raise unittest.SkipTest("no TRL here")

SCRIPT = Path(__file__).with_name("trl_process.py")
BATCH = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}


def launch(folder: Path, processes: int = 2, **given) -> list[dict] | None:
    """What each process saw; None if one of them was killed, and the others with it, as launchers do."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-W", "ignore", SCRIPT, folder, json.dumps({**BATCH, **given})]
    base = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    base |= {"WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    running = []
    for rank in map(str, range(processes)):
        with (folder / f"log-{rank}").open("w") as log:
            env = {**base, "RANK": rank, "LOCAL_RANK": rank}
            running.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=env))
    while any(process.poll() is None for process in running):
        time.sleep(0.2)
        if any(process.poll() for process in running):
            for process in running:
                process.kill()
    codes = [process.wait() for process in running]
    if any(codes):
        rank = given["kill_at"][0] if "kill_at" in given else 0 if "kill_in" in given else None
        if (
            rank is not None
            and codes[rank] == -signal.SIGKILL
            and not (folder / f"rank-{rank}.json").exists()
        ):
            return None
        raise AssertionError("\n".join((folder / f"log-{r}").read_text()[-3000:] for r in range(processes)))
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(processes)]


class Processes(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)

    def test_two_processes_share_one_plan_one_ledger_and_one_record(self):
        ranks = launch(self.folder, run={"budget": {"rollouts": 160}})
        main, other = ranks
        self.assertEqual(main["weights"], other["weights"])
        self.assertEqual(main["batches"], other["batches"])
        # Every rollout was sampled and judged in one of them; nothing is charged twice.
        self.assertEqual(main["judged"] + other["judged"], main["spent"]["run_rollouts"])
        self.assertEqual(main["tokens"] + other["tokens"], main["spent"]["run_tokens"])
        self.assertEqual(main["wrong_prompts"] + other["wrong_prompts"], 0)
        self.assertGreater(min(main["judged"], other["judged"]), 0)
        self.assertEqual(other["spent"]["run_rollouts"], 0, "only the main process's allocator decides")
        # Each learns from its part, and from nothing twice.
        steps = [step for step in lines(self.folder / "record", "step") if step["updated"]]
        self.assertEqual([step["trained"] for step in steps], [len(batch) for batch in main["batches"]])
        self.assertEqual(
            [a + b for a, b in zip(main["own"], other["own"], strict=True)],
            [len(batch) for batch in main["batches"]],
        )
        program("replay", self.folder / "record", "pilot-commit")

    def test_the_loss_of_two_processes_is_that_of_the_batch(self):
        # At the weights that sampled, a ratio is 1: the loss is known without a model.
        for loss_type in ("dapo", "grpo"):
            with self.subTest(loss_type):
                folder = self.folder / loss_type
                ranks = launch(
                    folder,
                    run={"steps": 1, "max_age": 0},
                    loss_type=loss_type,
                    max_steps=1,
                    gradient_accumulation_steps=1,
                    per_device_train_batch_size=10,
                    beta=0.0,
                )
                batch = ranks[0]["batches"][0]
                self.assertTrue(0 < len(batch) < 20)
                tokens = sum(n for _, _, _, n in batch)
                expected = {
                    "dapo": -sum(a * n for _, _, a, n in batch) / tokens,
                    "grpo": -sum(a for _, _, a, _ in batch) / len(batch),
                }[loss_type]
                # DDP takes the mean over processes.
                self.assertAlmostEqual(sum(rank["losses"][0] for rank in ranks) / 2, expected, 5)

    def test_episodes_of_two_processes_are_paid_for_once_and_learned_from_by_the_model_s_tokens(self):
        main, other = launch(
            self.folder,
            episodes=True,
            policy="uniform",
            run={"steps": 1},
            max_steps=1,
            per_device_train_batch_size=8,
            gradient_accumulation_steps=1,
            beta=0.0,
        )
        self.assertEqual(main["began"] + other["began"], main["spent"]["run_rollouts"])
        self.assertEqual(main["made"] + other["made"], main["spent"]["run_tokens"])
        rows = main["rows"]
        self.assertTrue(any(own < n for _, own, n in rows), "no episode of several turns")
        expected = -sum(a * own for a, own, _ in rows) / sum(own for _, own, _ in rows)
        self.assertAlmostEqual((main["losses"][0] + other["losses"][0]) / 2, expected, 5)

    def test_a_batch_that_does_not_divide_by_the_processes_is_refused_with_the_key_to_change(self):
        with self.assertRaisesRegex(
            AssertionError, r"generation_batch_size \(12\) must be divisible by the global"
        ):
            launch(self.folder, generation_batch_size=12, per_device_train_batch_size=4)

    def test_what_does_not_divide_by_two_is_padded_and_charged_once(self):
        ranks = launch(
            self.folder, policy="uniform", run={"rollouts": 3, "groups": 3, "steps": 2}, max_steps=2
        )
        self.assertEqual(ranks[0]["spent"]["run_rollouts"], 18)
        self.assertEqual(ranks[0]["judged"] + ranks[1]["judged"], 20)
        self.assertEqual([len(batch) for batch in ranks[0]["batches"]], [9, 9])

    def test_a_run_that_was_killed_in_the_middle_of_a_batch_goes_on_to_the_same_record(self):
        saved = {"save_strategy": "steps", "save_steps": 2}
        whole = launch(self.folder / "whole", **saved)
        # The other process dies in step 3, as it judges its part of what the policy asked for in the second round.
        rounds = lines(self.folder / "whole/record", "rollouts")
        second = next(i for i, line in enumerate(rounds) if line["step"] == 3 == rounds[i - 1]["step"])
        judged = sum(len(drawn["tokens"]) for line in rounds[:second] for drawn in line["sampled"]) // 2
        self.assertIsNone(launch(self.folder / "cut", kill_at=[1, judged + 1], **saved))
        cut = lines(self.folder / "cut/record", "rollouts")
        self.assertEqual(cut, rounds[:second], "what was judged before is recorded")
        checkpoint = self.folder / "cut/trl/checkpoint-2"
        self.assertFalse((self.folder / "cut/trl/checkpoint-4").exists())
        again = launch(self.folder / "cut", resume=str(checkpoint), **saved)
        records = [(self.folder / name / "record/record.jsonl").read_bytes() for name in ("whole", "cut")]
        self.assertEqual(*records)
        self.assertEqual([r["weights"] for r in whole], [r["weights"] for r in again])

    def test_a_run_that_was_killed_in_a_checkpoint_goes_on_from_the_newest_whole_one(self):
        saved = {"save_strategy": "steps", "save_steps": 2, "processes": 1, "per_device_train_batch_size": 8}
        whole = launch(self.folder / "whole", **saved)
        record = (self.folder / "whole/record/record.jsonl").read_bytes()
        missing = "it has no `trainer_state.json`"
        for moment, unfinished, limit in (
            ("before the last file", missing, 2),
            ("within the last file", "its `trainer_state.json`, which is written last, is cut off", 2),
            # Between transformers' part and callbacks, with the only other checkpoint about to be removed.
            ("after the last file", None, 1),
        ):
            with self.subTest(moment):
                folder = self.folder / moment
                more = {**saved, "save_total_limit": limit}
                self.assertIsNone(launch(folder, kill_in=["checkpoint-4", moment], **more))
                self.assertTrue((folder / "trl/checkpoint-4/allot.pt").exists())
                [again] = launch(folder, resume=True, **more)
                log = (folder / "log-0").read_text()
                if unfinished:
                    self.assertIn(f"checkpoint-4` is unfinished: {unfinished}", log)
                    self.assertIn(f"the run goes on from `{folder}/trl/checkpoint-2`", log)
                else:
                    self.assertNotIn("goes on from", log)
                self.assertEqual((folder / "record/record.jsonl").read_bytes(), record)
                self.assertEqual(again["weights"], whole[0]["weights"])
                self.assertLess(again["judged"], whole[0]["judged"], "it began again")

    def test_two_processes_that_were_killed_in_a_checkpoint_go_on_from_the_newest_whole_one(self):
        saved = {"save_strategy": "steps", "save_steps": 2}
        whole = launch(self.folder / "whole", **saved)
        self.assertIsNone(launch(self.folder / "cut", kill_in=["checkpoint-4", "before the last file"], **saved))
        # What the other process writes is there before what the main process writes last.
        self.assertTrue((self.folder / "cut/trl/checkpoint-4/rng_state_1.pth").exists())
        again = launch(self.folder / "cut", resume=True, **saved)
        records = [(self.folder / name / "record/record.jsonl").read_bytes() for name in ("whole", "cut")]
        self.assertEqual(*records)
        self.assertEqual([r["weights"] for r in whole], [r["weights"] for r in again])


if __name__ == "__main__":
    unittest.main()
