"""miles on a CPU, for its adapter's tests: its process for rollouts, and its loss's reducer.

Needs a checkout of miles on PYTHONPATH, with its requirements but without SGLang and Megatron; tests are skipped
without it.
"""

from __future__ import annotations

import asyncio
import unittest
from argparse import Namespace
from importlib.util import find_spec
from types import SimpleNamespace
from unittest import mock

if find_spec("miles") is None:
    raise unittest.SkipTest("no miles here")

import rows_here
from rows_here import compare, generate, several, stand_ins  # noqa: F401  # miles loads them from here

with stand_ins():
    import miles.utils.arguments  # noqa: F401
    from allot.miles_checks import MILES
    from miles.backends.training_utils import cp_utils
    from miles.backends.training_utils import data as training_data
    from miles.ray.rollout import train_data_conversion as conversion
    from miles.ray.rollout.rollout_manager import RolloutManager
    from miles.rollout.base_types import RolloutFnConstructorInput, RolloutFnEvalInput
    from miles.rollout.inference_rollout.compatibility import (
        call_rollout_function,
        load_rollout_function,
    )
    from miles.utils.dp_schedule import build_dp_schedule
    from miles.utils.misc import load_function
    from miles.utils.types import Sample

#: What Megatron's training processes say of themselves, on two data-parallel ranks.
PARALLEL = {"dp_size": 2, "cp_size": 1, "vpp_size": 1, "microbatch_group_size_per_vp_stage": 1}


def arguments(folder: str, **more) -> Namespace:
    """The arguments of miles that its process for rollouts looks at."""
    none = (
        "chat_template_path qkv_format rollout_max_context_len ci_inject_rollout_data_path "
        "sglang_speculative_algorithm"
    ).split()
    no = (
        "fully_async multi_lora use_dynamic_global_batch_size use_opd recompute_logprobs_via_prefill eval_uses_snapshots "
        "indep_dp delay_split_train_data_by_dp disable_rollout_trim_samples dumper_enable dumper_inference"
    ).split()
    own = {
        **dict.fromkeys(none),
        **dict.fromkeys(no, False),
        "sglang_router_policy": None,
        "rollout_num_gpus_per_engine": 1,
        "train_backend": "megatron",
    }
    return rows_here.arguments(folder, "miles", MILES.paths, **{**own, **more})


class Process(rows_here.Process):
    """miles' process for rollouts."""

    divide = staticmethod(build_dp_schedule)

    def __init__(self, args: Namespace):
        self.args, self.source = args, load_function(args.data_source_path)(args)
        self.manager = object.__new__(RolloutManager.__ray_metadata__.modified_class)
        self.manager.args, self.manager.data_source = args, self.source
        self.manager.use_legacy_rollout_v1, self.manager.weight_version = False, 1
        self.manager.train_parallel_config = PARALLEL
        made = RolloutFnConstructorInput(args=args, data_source=self.source)
        self.manager.generate_rollout = load_rollout_function(made, args.rollout_function_path)

    def batch(self, step: int) -> tuple[list[Sample], dict]:
        rows, metadata, _ = asyncio.run(self.manager._get_rollout_data(step))
        data = conversion.convert_samples_to_train_data(
            self.args,
            rows,
            metadata=metadata,
            custom_convert_samples_to_train_data_func=None,
            custom_reward_post_process_func=load_function(self.args.custom_reward_post_process_path),
        )
        return rows, data

    def evaluated(self, step: int) -> dict:
        """An evaluation, as miles makes it."""
        return call_rollout_function(self.manager.generate_rollout, RolloutFnEvalInput(rollout_id=step)).data

    def schedule(self, data: dict, parallel: dict) -> tuple:
        assert conversion.can_schedule_on_rollout_side(self.args, data, parallel)
        return super().schedule(data, parallel)

    def steps_of_rows(self, data: dict) -> list[list[int]]:
        """The rows of each optimizer step, where training processes make them: with FSDP, and of images."""
        ranks = PARALLEL["dp_size"]
        assert not conversion.can_schedule_on_rollout_side(self.args, data, {"dp_size": ranks})
        group = SimpleNamespace(size=ranks, group=None)
        state = SimpleNamespace(effective_dp=group, cp=SimpleNamespace(size=1), vpp_size=1)
        state.microbatch_group_size_per_vp_stage = None
        steps: list[list[int]] = []
        for shard in conversion.split_train_data_by_dp_raw(self.args, dict(data), dp_size=ranks):
            mine = {
                **conversion.process_rollout_data_shard(self.args, {**shard}),
                "row": list(shard["partition"]),
            }
            with mock.patch.object(training_data, "get_parallel_state", lambda: state):
                (iterator, *_), numbers = training_data.get_data_iterator(self.args, None, mine)
            for step, number in enumerate(numbers):
                steps += [[]] if step == len(steps) else []
                steps[step] += [row for _ in range(number) for row in iterator.get_next(["row"])["row"]]
        return steps

    def reducer(self, total: list[int], lengths: list[int], masks: list, sums):
        state = SimpleNamespace(cp=SimpleNamespace(size=1, rank=0))
        with mock.patch.object(cp_utils, "get_parallel_state", lambda: state):
            return cp_utils.get_sum_of_sample_mean(
                total, lengths, masks, self.args.calculate_per_token_loss, denominators=sums
            )
