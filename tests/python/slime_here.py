"""slime on a CPU, for its adapter's tests: its process for rollouts, its loss's reducer, and functions that sample.

Needs a checkout of slime on PYTHONPATH, with its requirements but without SGLang and Megatron; tests are skipped
without it.
"""

from __future__ import annotations

import copy
import json
import random
import sys
import tempfile
import types
import unittest
from argparse import Namespace
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from recorded import ROOT

if find_spec("slime") is None:
    raise unittest.SkipTest("no slime here")

#: What stands in for SGLang, for processes that Ray starts, too.
WITHOUT_GPU = Path(__file__).parent / "without_gpu"


@contextmanager
def stand_ins():
    """What slime imports and tests do not use. It is gone again later: other trainers look whether it is there."""
    before = set(sys.modules)
    if find_spec("sglang") is None:
        sys.path.append(str(WITHOUT_GPU))
        import_module("sglang")
    if find_spec("megatron") is None:
        mpu = types.ModuleType("megatron.core.mpu")
        mpu.get_context_parallel_world_size = lambda: 1
        core, megatron = types.ModuleType("megatron.core"), types.ModuleType("megatron")
        core.mpu = megatron.mpu = mpu
        megatron.core = core
        sys.modules |= {"megatron": megatron, "megatron.core": core, "megatron.core.mpu": mpu}
    yield
    if str(WITHOUT_GPU) in sys.path:
        sys.path.remove(str(WITHOUT_GPU))
        sys.meta_path.remove(sys.modules["sglang"].FINDER)
    for name in set(sys.modules) - before:
        if name.split(".")[0] in ("sglang", "sglang_router", "megatron"):
            del sys.modules[name]


with stand_ins():
    import slime.utils.arguments  # noqa: F401
    import torch
    from allot.slime import AllocatedSource
    from slime.backends.megatron_utils.cp_utils import get_sum_of_sample_mean
    from slime.ray.rollout import RolloutManager
    from slime.utils.dp_schedule import build_dp_schedule
    from slime.utils.misc import load_function
    from slime.utils.types import Sample

#: Seeds that were sampled with.
SEEN: list[int] = []

#: Length limits that were sampled with.
LIMITS: list[int] = []

#: What rewards of groups were asked for: for each time, the seeds' first tokens of what was compared.
COMPARED: list[list] = []


async def generate(args, sample, sampling_params):
    """An answer and its reward, from the seed of the request."""
    seed = sampling_params["sampling_seed"]
    SEEN.append(seed)
    LIMITS.append(sampling_params["max_new_tokens"])
    chance = random.Random(seed)
    n = chance.randint(1, 6)
    sample.tokens = [1, 2, 3] + [chance.randint(5, 200) for _ in range(n)]
    sample.response_length, sample.rollout_log_probs = n, [-1.0] * n
    sample.status = Sample.Status.TRUNCATED if n == 6 else Sample.Status.COMPLETED
    sample.reward = float(chance.random() < int(sample.label) / 4)
    return sample


async def several(args, sample, sampling_params):
    """An agent that loses its history twice at most: one to three rows, with tokens of a tool in between."""
    first = await generate(args, sample, sampling_params)
    chance = random.Random(sampling_params["sampling_seed"] + 1)
    rows = []
    for _ in range(chance.randint(1, 3)):
        # As slime's own manual does it: what is not replaced is shared.
        row = copy.copy(first)
        n = chance.randint(1, 5)
        row.tokens = [1, 2, 3] + [chance.randint(5, 200) for _ in range(n)]
        row.response_length, row.rollout_log_probs = n, [-1.0] * n
        row.loss_mask = [chance.randint(0, 1) for _ in range(n - 1)] + [1]
        row.status = Sample.Status.COMPLETED
        rows.append(row)
    return rows


async def compare(args, samples, **_):
    """Who has the largest token is right; one that is too short can't be judged."""
    COMPARED.append(
        [(s.group_index, s.index) if isinstance(s, Sample) else [r.index for r in s] for s in samples]
    )
    last = [(s if isinstance(s, Sample) else s[-1]).tokens[3:] for s in samples]
    return [None if len(tokens) < 2 else float(max(tokens) == max(map(max, last))) for tokens in last]


def arguments(folder: str, **more) -> Namespace:
    """The arguments of slime that its process for rollouts looks at."""
    rows = [{"text": f"{i} and {i} make", "label": str(i % 5), "metadata": {}} for i in range(18)]
    (Path(folder) / "prompts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    settings = {"pilot": 2, "commit": 2}
    run = {
        "policy": "pilot-commit",
        "settings": settings,
        "groups": 3,
        "rollouts": 4,
        "seed": 1,
        "max_age": 2,
    }
    none = (
        "dump_details rollout_max_prompt_len multimodal_keys tool_key apply_chat_template_kwargs rollout_top_k "
        "rollout_stop rollout_stop_token_ids sglang_dp_size custom_rm_path reward_key load rollout_sample_hook_path "
        "dynamic_sampling_filter_path custom_convert_samples_to_train_data_path load_debug_rollout_data eval_interval "
        "save_debug_rollout_data log_reward_category"
    ).split()
    no = (
        "rollout_shuffle apply_chat_template group_rm partial_rollout normalize_advantages ci_test "
        "calculate_per_token_loss mask_offpolicy_in_partial_rollout rollout_skip_special_tokens balance_data "
        "use_dynamic_batch_size balance_by_flops"
    ).split()
    given = {
        "hf_checkpoint": str(ROOT / "tests/cases/models/tiny-qwen2-tied"),
        "prompt_data": f"{folder}/prompts.jsonl",
        "input_key": "text",
        "label_key": "label",
        "metadata_key": "metadata",
        "rollout_seed": 1,
        "rollout_global_dataset": True,
        "rollout_max_response_len": 6,
        "rollout_temperature": 1.0,
        "rollout_top_p": 1.0,
        "n_samples_per_prompt": 4,
        "rollout_batch_size": 2,
        "global_batch_size": 8,
        "micro_batch_size": 4,
        "num_rollout": 8,
        "rollout_num_gpus": 1,
        "actor_num_nodes": 1,
        "actor_num_gpus_per_node": 2,
        "sglang_server_concurrency": 64,
        "sglang_enable_deterministic_inference": True,
        "advantage_estimator": "grpo",
        "save": folder,
        "custom_generate_function_path": "slime_here.generate",
        "data_source_path": "allot.slime.AllocatedSource",
        "rollout_function_path": "allot.slime.generate_rollout",
        "eval_function_path": "allot.slime.generate_rollout",
        "custom_reward_post_process_path": "allot.slime.advantages",
        "allot_ends": True,
        "allot": {**run, "record": f"{folder}/record", **more.pop("allot", {})},
        **more,
    }
    return Namespace(**{**dict.fromkeys(none), **dict.fromkeys(no, False), **given})


class InFolder(unittest.TestCase):
    """Tests with a folder of their own, in which nothing was sampled or compared yet."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name
        for seen in (SEEN, LIMITS, COMPARED):
            seen.clear()


class Slime:
    """slime's process for rollouts, here, as far as batches pass through it."""

    def __init__(self, args: Namespace):
        self.args, self.source = args, AllocatedSource(args)
        self.manager = object.__new__(RolloutManager.__ray_metadata__.modified_class)
        self.manager.args, self.manager.data_source = args, self.source
        self.manager.generate_rollout = load_function(args.rollout_function_path)
        self.manager.custom_reward_post_process_func = load_function(args.custom_reward_post_process_path)
        self.manager.custom_convert_samples_to_train_data_func = None

    def batch(self, step: int) -> tuple[list[Sample], dict]:
        """A batch's rows, and what slime makes of them for training."""
        rows, _ = self.manager._get_rollout_data(step)
        return rows, self.manager._convert_samples_to_train_data(rows)

    def steps(self, data: dict) -> list[list[int]]:
        """The rows of each optimizer step, as slime divides them over data-parallel ranks and micro batches."""
        ranks = self.args.actor_num_nodes * self.args.actor_num_gpus_per_node
        parallel = {"dp_size": ranks, "cp_size": 1, "vpp_size": 1, "microbatch_group_size_per_vp_stage": 1}
        lengths = [len(tokens) for tokens in data["tokens"]]
        partitions, micro, numbers, sizes = build_dp_schedule(
            self.args,
            parallel,
            lengths,
            global_batch_size=self.args.global_batch_size,
            rollout_indices=data["rollout_ids"],
        )
        assert sum(sizes) == len(set(data["rollout_ids"])), "slime leaves none out"
        steps = [[] for _ in sizes]
        for mine, batches in zip(partitions, micro, strict=True):
            at = 0
            for step, number in enumerate(numbers):
                steps[step] += [mine[i] for batch in batches[at : at + number] for i in batch]
                at += number
        return steps

    def loss(self, data: dict, rows: list[int], worth: list[list[float]]) -> float:
        """A step's loss as `loss_function` has it, of advantages times what each token is worth."""
        masks = [torch.tensor(data["loss_masks"][i], dtype=torch.float64) for i in rows]
        sums = torch.tensor([data["rollout_mask_sums"][i] for i in rows], dtype=torch.float64)
        lengths, by_tokens = [data["response_lengths"][i] for i in rows], self.args.calculate_per_token_loss
        total = [len(data["tokens"][i]) for i in rows]
        tokens = [data["rewards"][i] * torch.tensor(worth[i], dtype=torch.float64) for i in rows]
        reduced = get_sum_of_sample_mean(total, lengths, masks, sums, by_tokens)(torch.cat(tokens)).item()
        divided = (
            sum(max(mask.sum().item(), 1) for mask in masks) if by_tokens else self.args.global_batch_size
        )
        return reduced / divided
