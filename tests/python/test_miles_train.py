"""miles' `train.py` under `allot.miles_train`, with miles' process for rollouts in Ray. Only training is made up."""

from __future__ import annotations

import unittest
from argparse import Namespace
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

if find_spec("miles") is None:
    raise unittest.SkipTest("no miles here")

import miles
import miles_here
import rows_train_cases
from allot.miles_train import LOOP
from miles.utils import object_store
from miles_here import PARALLEL
from rows_here import stand_ins

SCRIPT = Path(miles.__file__).parents[1] / "train.py"


class Training:
    """miles' group of training processes, which learns nothing."""

    def __init__(self, args: Namespace):
        self.offloads = args.offload_train
        self.on_gpu = not args.offload_train
        self.trained: list[int] = []
        self.saved: list[tuple[int, bool]] = []

    async def train(self, rollout_id: int, pack: dict):
        self.on_gpu = True
        # What miles passes to each data-parallel rank.
        ranks = [object_store.get_instance().get(ref).value for ref in pack["data_ref"]]
        assert len(ranks) == PARALLEL["dp_size"]
        assert len({len(rank["micro_batch_indices"]) for rank in ranks}) == 1
        self.trained.append(rollout_id)

    async def save_model(self, rollout_id: int, force_sync: bool = False):
        assert self.on_gpu, "miles saves what is on the GPU"
        self.saved.append((rollout_id, force_sync))

    async def update_weights(self, rollout_id: int | None = None):
        pass

    async def clear_memory(self):
        assert not self.offloads

    async def offload(self):
        self.on_gpu = False

    async def onload(self):
        self.on_gpu = True


class End(rows_train_cases.End):
    here = miles_here

    def arguments(self, **more) -> Namespace:
        none = (
            "control_server_port save_trigger_sentinel debug_exit_after_rollout save_debug_event_data env_report "
            "ci_metric_checker_key sglang_router_ip sglang_router_port save_debug_trajectory_data"
        ).split()
        no = (
            "mini_ft_controller_enable use_mlflow use_prometheus use_miles_dashboard ci_enable_metrics_capture "
            "pin_rollout_manager_to_head enable_event_analyzer log_passrate"
        ).split()
        own = {**dict.fromkeys(none), **dict.fromkeys(no, False)}
        own |= {"object_store_backend": "ray", "eval_num_gpus": 0, "ft_components": []}
        # Where engines and training share GPUs, both are offloaded.
        own |= {"offload_train": more.get("offload_rollout", False)}
        own |= {"offload_rollout_level": ["kv_cache", "weight"]}
        return super().arguments(**{**own, **more})

    def trained(self, args: Namespace, start: int = 0) -> tuple[Training, str]:
        training = Training(args)
        with stand_ins():
            script = LOOP.load(str(SCRIPT))
        script.create_placement_groups = lambda args: {"rollout": None}

        async def models(args: Namespace, _pgs, manager):
            await manager.set_train_parallel_config.remote(PARALLEL)
            args.start_rollout_id = start
            await manager.load.remote(start - 1)
            return training, None

        script.create_training_models = models
        # A process of miles has one, and one run.
        with mock.patch.object(object_store, "_INSTANCE", None):
            return training, self.printed(LOOP, script, args)


if __name__ == "__main__":
    unittest.main()
