"""slime's `train.py` under `allot.slime_train`, with slime's process for rollouts in Ray. Only training is made up."""

from __future__ import annotations

import unittest
from argparse import Namespace
from importlib.util import find_spec
from pathlib import Path

if find_spec("slime") is None:
    raise unittest.SkipTest("no slime here")

import ray
import rows_train_cases
import slime
import slime_here
from allot.slime_train import LOOP

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


class End(rows_train_cases.End):
    here = slime_here

    def trained(self, args: Namespace, start: int = 0) -> tuple[Training, str]:
        training = Training()
        script = LOOP.load(str(SCRIPT))
        script.create_placement_groups = lambda args: {"rollout": None}

        def models(args: Namespace, _pgs, manager):
            parallel = {"dp_size": 2, "cp_size": 1, "vpp_size": 1, "microbatch_group_size_per_vp_stage": 1}
            ray.get(manager.set_train_parallel_config.remote(parallel))
            args.start_rollout_id = start
            ray.get(manager.load.remote(start - 1))
            return training, None

        script.create_training_models = models
        return training, self.printed(LOOP, script, args)


if __name__ == "__main__":
    unittest.main()
