"""slime's `train.py` under `allot.slime_train`, with slime's process for rollouts in Ray. Only training is made up."""

from __future__ import annotations

import contextlib
import io
import os
import unittest
from argparse import Namespace
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

if find_spec("slime") is None:
    raise unittest.SkipTest("no slime here")

import ray
import slime
import slime_here
from allot import slime_train
from recorded import allot as program
from recorded import lines
from slime_here import arguments

SCRIPT = Path(slime.__file__).parents[1] / "train.py"


class Training:
    """slime's group of training processes, which learns nothing."""

    def __init__(self):
        self.trained: list[int] = []
        self.saved: list[tuple[int, bool]] = []

    def async_train(self, rollout_id: int, data: list) -> list:
        # What slime passes to each data-parallel rank.
        ranks = ray.get([box.inner for box in data])
        assert len({len(rank["micro_batch_indices"]) for rank in ranks}) == 1
        self.trained.append(rollout_id)
        return []

    def save_model(self, rollout_id: int, force_sync: bool = False):
        self.saved.append((rollout_id, force_sync))

    def update_weights(self):
        pass

    def clear_memory(self):
        pass


def trained(args: Namespace, start: int = 0) -> tuple[Training, str]:
    """A run of slime's script from a step on: what its training saw, and what was printed."""
    training = Training()
    script = slime_train.load(str(SCRIPT))
    script.create_placement_groups = lambda args: {"rollout": None}

    def models(args: Namespace, _pgs, manager):
        parallel = {"dp_size": 2, "cp_size": 1, "vpp_size": 1, "microbatch_group_size_per_vp_stage": 1}
        ray.get(manager.set_train_parallel_config.remote(parallel))
        args.start_rollout_id = start
        ray.get(manager.load.remote(start - 1))
        return training, None

    script.create_training_models = models
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        slime_train.follow(script, args)
    return training, printed.getvalue()


class End(slime_here.InFolder):
    @classmethod
    def setUpClass(cls):
        # Its processes import slime as this one did, and the function that samples.
        found = [
            str(slime_here.WITHOUT_GPU),
            str(slime_here.WITHOUT_GPU.parent),
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
        return arguments(self.folder, **more)

    def test_the_end_of_a_budget_is_the_end_of_the_run(self):
        # Engines and training share their GPUs, as they mostly do.
        run = {"budget": {"rollouts": 60}}
        args = self.arguments(save_interval=2, num_rollout=30, offload_rollout=True, allot=run)
        training, printed = trained(args)
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
        training, printed = trained(args, last + 1)
        self.assertEqual((training.trained, training.saved), ([], []))
        self.assertIn("the run is over: ", printed)
        self.assertEqual((Path(self.folder) / "record/record.jsonl").read_bytes(), before)

    def test_a_run_without_checkpoints_saves_none_at_its_end(self):
        args = self.arguments(save_interval=None, num_rollout=30, allot={"budget": {"rollouts": 30}})
        training, _ = trained(args)
        self.assertEqual(training.saved, [])
        self.assertGreater(len(training.trained), 0)

    def test_slime_s_last_step_is_in_the_record(self):
        # Each of its steps learns, so that slime's loop comes to its own end.
        run = {"policy": "uniform", "settings": {}}
        training, printed = trained(self.arguments(save_interval=None, num_rollout=3, allot=run))
        self.assertEqual((training.trained, training.saved, printed), ([0, 1, 2], [], ""))
        steps = lines(Path(self.folder) / "record", "step")
        self.assertEqual([step["updated"] for step in steps], [True] * 3)
        self.assertEqual(len(lines(Path(self.folder) / "record", "end")), 1)


if __name__ == "__main__":
    unittest.main()
