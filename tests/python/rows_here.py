"""Trainers of rows (slime, and its fork miles) on a CPU, for tests of their adapters: functions that sample, and arguments.

Each needs a checkout of the trainer on PYTHONPATH, with its requirements but without SGLang and Megatron.
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
from collections.abc import Callable
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

import torch
from recorded import ROOT

#: What stands in for SGLang, for processes that Ray starts, too.
WITHOUT_GPU = Path(__file__).parent / "without_gpu"


@contextmanager
def stand_ins():
    """What trainers import and tests do not use. It is gone again later: other trainers look whether it is there."""
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
    sample.status = type(sample).Status.TRUNCATED if n == 6 else type(sample).Status.COMPLETED
    sample.reward = float(chance.random() < int(sample.label) / 4)
    return sample


async def several(args, sample, sampling_params):
    """An agent that loses its history twice at most: one to three rows, with tokens of a tool in between."""
    first = await generate(args, sample, sampling_params)
    chance = random.Random(sampling_params["sampling_seed"] + 1)
    rows = []
    for _ in range(chance.randint(1, 3)):
        # As slime's manual does it: what is not replaced is shared.
        row = copy.copy(first)
        n = chance.randint(1, 5)
        row.tokens = [1, 2, 3] + [chance.randint(5, 200) for _ in range(n)]
        row.response_length, row.rollout_log_probs = n, [-1.0] * n
        row.loss_mask = [chance.randint(0, 1) for _ in range(n - 1)] + [1]
        row.status = type(row).Status.COMPLETED
        rows.append(row)
    return rows


async def compare(args, samples, **_):
    """Who has the largest token is right; one that is too short can't be judged."""
    COMPARED.append(
        [[r.index for r in s] if isinstance(s, list) else (s.group_index, s.index) for s in samples]
    )
    last = [(s[-1] if isinstance(s, list) else s).tokens[3:] for s in samples]
    return [None if len(tokens) < 2 else float(max(tokens) == max(map(max, last))) for tokens in last]


def arguments(folder: str, trainer: str, names: dict[str, str], **more) -> Namespace:
    """The arguments that a trainer's process for rollouts looks at. `names` are its options for the adapter's names."""
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
        "custom_generate_function_path": f"{trainer}_here.generate",
        "eval_function_path": names["rollout_function_path"],
        **names,
        "allot_ends": True,
        "allot": {**run, "record": f"{folder}/record", **more.pop("allot", {})},
        **more,
    }
    return Namespace(**{**dict.fromkeys(none), **dict.fromkeys(no, False), **given})


class Process:
    """A trainer's process for rollouts, here, as far as batches pass through it."""

    args: Namespace
    #: The trainer's function that divides rows.
    divide: ClassVar[Callable]

    def batch(self, step: int) -> tuple[list, dict]:
        """A batch's rows, and what the trainer makes of them for training."""
        raise NotImplementedError

    def schedule(self, data: dict, parallel: dict) -> tuple:
        """How the trainer divides rows over data-parallel ranks, micro batches and steps."""
        return self.divide(
            self.args,
            parallel,
            [len(tokens) for tokens in data["tokens"]],
            global_batch_size=self.args.global_batch_size,
            rollout_indices=data["rollout_ids"],
        )

    def reducer(self, total: list[int], lengths: list[int], masks: list, sums):
        """The trainer's reducer of a step's loss."""
        raise NotImplementedError

    def steps(self, data: dict) -> list[list[int]]:
        """The rows of each optimizer step."""
        ranks = self.args.actor_num_nodes * self.args.actor_num_gpus_per_node
        parallel = {"dp_size": ranks, "cp_size": 1, "vpp_size": 1, "microbatch_group_size_per_vp_stage": 1}
        partitions, micro, numbers, sizes = self.schedule(data, parallel)
        assert sum(sizes) == len(set(data["rollout_ids"])), "none is left out"
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
        lengths = [data["response_lengths"][i] for i in rows]
        total = [len(data["tokens"][i]) for i in rows]
        tokens = [data["rewards"][i] * torch.tensor(worth[i], dtype=torch.float64) for i in rows]
        reduced = self.reducer(total, lengths, masks, sums)(torch.cat(tokens)).item()
        by_tokens = self.args.calculate_per_token_loss
        divided = (
            sum(max(mask.sum().item(), 1) for mask in masks) if by_tokens else self.args.global_batch_size
        )
        return reduced / divided


class InFolder(unittest.TestCase):
    """Tests with a folder of their own, in which nothing was sampled or compared yet."""

    #: The module of a trainer here: `slime_here` or `miles_here`.
    here: ClassVar[types.ModuleType]

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name
        for seen in (SEEN, LIMITS, COMPARED):
            seen.clear()

    def arguments(self, **more) -> Namespace:
        return self.here.arguments(self.folder, **more)

    def process(self, **more) -> Process:
        return self.here.Process(self.arguments(**more))

    def name(self, function: str) -> str:
        """A function of the trainer's module, as an option names it."""
        return f"{self.here.__name__}.{function}"

    def several(self) -> dict:
        """Options with which rollouts have one to three rows."""
        return {"custom_generate_function_path": self.name("several"), "allot": {"longest": 30}}
