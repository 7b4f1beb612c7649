"""Trainers of rows: `train.py` under `allot.slime_train` or `allot.miles_train`, up to its end."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from argparse import Namespace
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import ray
from allot.rows_train import Loop
from recorded import allot as program
from recorded import lines
from rows_here import WITHOUT_GPU, InFolder


class End(InFolder):
    """A trainer's script up to the end of a run, with its process for rollouts in Ray. Only training is made up."""

    def trained(self, args: Namespace, start: int = 0) -> tuple[Any, str]:
        """A run of the trainer's script from a step on: what its training saw, and what was printed."""
        raise NotImplementedError

    def printed(self, loop: Loop, script: ModuleType, args: Namespace) -> str:
        """Does what `python -m allot.…_train` does with these arguments: an exit code other than 0 is an exception."""
        args.allot_ends = False
        script.parse_args = lambda: args
        here = mock.patch.object(loop, "load", lambda path: script)
        argv = mock.patch.object(sys, "argv", ["allot", "train.py"])
        with here, argv, contextlib.redirect_stdout(io.StringIO()) as printed:
            loop.main()
        return printed.getvalue()

    @classmethod
    def setUpClass(cls):
        # Its processes import the trainer as this one did, and the function that samples.
        found = [
            str(WITHOUT_GPU),
            str(WITHOUT_GPU.parent),
            os.environ.get("PYTHONPATH", ""),
        ]
        path = mock.patch.dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, found)))
        path.start()
        cls.addClassCleanup(path.stop)
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
        cls.addClassCleanup(ray.shutdown)

    def arguments(self, **more) -> Namespace:
        no = (
            "release_train offload_rollout offload_train check_weight_update_equal use_critic use_fault_tolerance "
            "use_wandb use_tensorboard wandb_always_use_train_step debug_rollout_only"
        ).split()
        # Without engines: the function that samples asks none.
        more = {
            **dict.fromkeys(no, False),
            "debug_train_only": True,
            "custom_rollout_log_function_path": None,
            **more,
        }
        return super().arguments(**more)

    def test_the_end_of_a_budget_is_the_end_of_the_run(self):
        # Engines and training share their GPUs, as they mostly do.
        run = {"budget": {"rollouts": 60}}
        args = self.arguments(save_interval=2, num_rollout=30, offload_rollout=True, allot=run)
        training, printed = self.trained(args)
        last = training.trained[-1]
        self.assertEqual(training.trained, list(range(last + 1)))
        self.assertLess(last, 29)
        self.assertIn("the run is over: ", printed)
        # What `--save-interval` asked for, and the last step.
        every = [(step, False) for step in range(1, last + 1, 2)]
        self.assertEqual(training.saved, every if last % 2 else [*every, (last, True)])
        self.assertTrue((Path(self.folder) / f"rollout/allot_{last}.pt").is_file())
        self.assertEqual(len(lines(Path(self.folder) / "record", "end")), 1)
        program("replay", f"{self.folder}/record", "pilot-commit")
        # Going on from there ends at once, and leaves what was saved alone.
        before = (Path(self.folder) / "record/record.jsonl").read_bytes()
        args = self.arguments(save_interval=2, num_rollout=30, allot=args.allot, load=self.folder)
        training, printed = self.trained(args, last + 1)
        self.assertEqual((training.trained, training.saved), ([], []))
        self.assertIn("the run is over: ", printed)
        self.assertEqual((Path(self.folder) / "record/record.jsonl").read_bytes(), before)

    def test_a_run_without_checkpoints_saves_none_at_its_end(self):
        args = self.arguments(save_interval=None, num_rollout=30, allot={"budget": {"rollouts": 30}})
        training, _ = self.trained(args)
        self.assertEqual(training.saved, [])
        self.assertGreater(len(training.trained), 0)

    def test_the_trainer_s_last_step_is_in_the_record(self):
        # Each of its steps learns, so that slime's loop comes to its own end.
        run = {"policy": "uniform", "settings": {}}
        training, printed = self.trained(self.arguments(save_interval=None, num_rollout=3, allot=run))
        self.assertEqual((training.trained, training.saved, printed), ([0, 1, 2], [], ""))
        steps = lines(Path(self.folder) / "record", "step")
        self.assertEqual([step["updated"] for step in steps], [True] * 3)
        self.assertEqual(len(lines(Path(self.folder) / "record", "end")), 1)
