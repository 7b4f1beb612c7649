"""slime on a CPU, for its adapter's tests: its process for rollouts, and its loss's reducer.

Needs a checkout of slime on PYTHONPATH, with its requirements but without SGLang and Megatron; tests are skipped
without it.
"""

from __future__ import annotations

import unittest
from argparse import Namespace
from importlib.util import find_spec

if find_spec("slime") is None:
    raise unittest.SkipTest("no slime here")

import rows_here
from rows_here import compare, generate, several, stand_ins  # noqa: F401  # slime loads them from here

with stand_ins():
    import slime.utils.arguments  # noqa: F401
    from allot.slime import AllocatedSource
    from allot.slime_checks import SLIME
    from slime.backends.megatron_utils.cp_utils import get_sum_of_sample_mean
    from slime.ray.rollout import RolloutManager
    from slime.utils.dp_schedule import build_dp_schedule
    from slime.utils.misc import load_function
    from slime.utils.types import Sample


def arguments(folder: str, **more) -> Namespace:
    """The arguments of slime that its process for rollouts looks at."""
    return rows_here.arguments(folder, "slime", SLIME.paths, **more)


class Process(rows_here.Process):
    """slime's process for rollouts."""

    divide = staticmethod(build_dp_schedule)

    def __init__(self, args: Namespace):
        self.args, self.source = args, AllocatedSource(args)
        self.manager = object.__new__(RolloutManager.__ray_metadata__.modified_class)
        self.manager.args, self.manager.data_source = args, self.source
        self.manager.generate_rollout = load_function(args.rollout_function_path)
        self.manager.custom_reward_post_process_func = load_function(args.custom_reward_post_process_path)
        self.manager.custom_convert_samples_to_train_data_func = None

    def batch(self, step: int) -> tuple[list[Sample], dict]:
        rows, _ = self.manager._get_rollout_data(step)
        return rows, self.manager._convert_samples_to_train_data(rows)

    def reducer(self, total: list[int], lengths: list[int], masks: list, sums):
        return get_sum_of_sample_mean(total, lengths, masks, sums, self.args.calculate_per_token_loss)
