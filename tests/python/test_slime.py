"""slime's data source, rollout function and post-processing of rewards under policies, on a CPU. What samples is a
function, as `--custom-generate-function-path` has it; slime's own code calls it, and cuts the batch into steps.

Needs slime 0.3 (a checkout on PYTHONPATH, with its requirements but without SGLang and Megatron); skipped without it.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import unittest
from argparse import Namespace
from importlib.util import find_spec
from pathlib import Path

import allot
from recorded import ROOT, lines
from recorded import allot as program

if find_spec("slime") is None:
    raise unittest.SkipTest("no slime here")

from allot.slime import AllocatedSource, RunIsOver
from slime.observability.rollout_data_utils import validate_rollout_id_annotated
from slime.rollout.base_types import call_rollout_fn
from slime.utils.dp_schedule import build_dp_schedule
from slime.utils.misc import load_function
from slime.utils.types import Sample

SEEN: list[int] = []


async def generate(args, sample, sampling_params):
    """An answer and its reward, from the seed of the request."""
    seed = sampling_params["sampling_seed"]
    SEEN.append(seed)
    chance = random.Random(seed)
    n = chance.randint(1, 6)
    sample.tokens = [1, 2, 3] + [chance.randint(5, 200) for _ in range(n)]
    sample.response_length, sample.rollout_log_probs = n, [-1.0] * n
    sample.status = Sample.Status.TRUNCATED if n == 6 else Sample.Status.COMPLETED
    sample.reward = float(chance.random() < int(sample.label) / 4)
    return sample


def arguments(folder: str, **more) -> Namespace:
    """The arguments of slime that its data source and rollout function look at."""
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
        "rollout_stop rollout_stop_token_ids sglang_dp_size custom_rm_path reward_key load rollout_sample_hook_path"
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
        "sglang_server_concurrency": 64,
        "sglang_enable_deterministic_inference": True,
        "advantage_estimator": "grpo",
        "save": folder,
        "custom_generate_function_path": f"{__name__}.generate",
        "allot": {**run, "record": f"{folder}/record", **more.pop("allot", {})},
        **more,
    }
    return Namespace(**dict.fromkeys(none), **dict.fromkeys(no, False), **given)


def batch(source: AllocatedSource, step: int) -> tuple[list[Sample], list[float]]:
    """A batch as slime's rollout manager gets it, and the advantages that it trains with."""
    function = load_function("allot.slime.generate_rollout")
    samples = call_rollout_fn(function, source.args, step, source, evaluation=False).samples
    validate_rollout_id_annotated(samples)
    flat = [sample for group in samples for sample in group]
    raw, given = load_function("allot.slime.advantages")(source.args, flat)
    assert raw == [sample.reward for sample in flat]
    return flat, given


class Slime(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name
        sys.modules[__name__].SEEN.clear()

    def test_ragged_plans_are_the_host_s_and_batches_are_what_slime_s_steps_need(self):
        settings = {"pilot": 2, "commit": 6, "prompts": 9, "evict-at": 1.1}
        source = AllocatedSource(arguments(self.folder, allot={"settings": settings}))
        parallel = {"dp_size": 2, "cp_size": 1, "vpp_size": 1, "microbatch_group_size_per_vp_stage": 1}
        trained = []
        for step in range(8):
            try:
                flat, given = batch(source, step)
            except RunIsOver:
                break
            real = [sample for sample in flat if not sample.remove_sample]
            trained.append(len(real))
            self.assertEqual(len(flat) % 8, 0)
            self.assertEqual(len({sample.index for sample in flat}), len(flat))
            # The mean over all rollouts is that over the real ones.
            scale = len(flat) / len(real)
            expected = [a * scale for a in self.unscaled(source)]
            self.assertEqual([a for a, s in zip(given, flat, strict=True) if not s.remove_sample], expected)
            self.assertTrue(all(a == 0.0 for a, s in zip(given, flat, strict=True) if s.remove_sample))
            lengths, ids = [len(s.tokens) for s in flat], [s.index for s in flat]
            *_, sizes = build_dp_schedule(
                source.args, parallel, lengths, global_batch_size=8, rollout_indices=ids
            )
            self.assertEqual(sum(sizes), len(flat), "slime leaves none out")
        source.settle()
        with self.assertRaises(RunIsOver) as over:
            batch(source, 8)
        self.assertEqual(str(over.exception), "all steps are done")
        self.assertEqual(len(SEEN), source.allocator.spent["run_rollouts"])
        self.assertEqual(len(set(SEEN)), len(SEEN), "each rollout has its own seed")
        steps = lines(Path(self.folder) / "record", "step")
        self.assertEqual([step["trained"] for step in steps if step["updated"]], trained)
        self.assertTrue(any(step["held"] for step in steps), "nothing was ever held")
        program("replay", f"{self.folder}/record", "pilot-commit")

    def unscaled(self, source: AllocatedSource) -> list[float]:
        groups: dict[int, list[float]] = {}
        for learn in source.allocator._picked:
            groups.setdefault(learn.prompt, []).append(learn.advantage)
        return [advantage for group in groups.values() for advantage in group]

    def test_a_run_that_was_cut_off_goes_on_with_what_it_held(self):
        def seen(source, steps):
            return [[(s.tokens, a) for s, a in zip(*batch(source, step), strict=True)] for step in steps]

        whole = AllocatedSource(arguments(self.folder, allot={"record": f"{self.folder}/whole"}))
        expected = seen(whole, range(6))
        args = arguments(self.folder, allot={"record": f"{self.folder}/cut"})
        cut = AllocatedSource(args)
        first = seen(cut, range(3))
        cut.save(2)
        seen(cut, [3])
        args.load = self.folder
        again = AllocatedSource(args)
        again.load(2)
        self.assertEqual(first + seen(again, range(3, 6)), expected)
        records = [(Path(self.folder) / name / "record.jsonl").read_bytes() for name in ("whole", "cut")]
        self.assertEqual(*records)

    def test_what_can_t_be_done_right_is_refused_in_a_sentence(self):
        for more, what in [
            ({"group_rm": True}, "group rewards and partial rollouts can't be planned for"),
            ({"advantage_estimator": "ppo"}, "advantages are the allocator's"),
        ]:
            args = arguments(self.folder)
            vars(args).update(more)
            with self.assertRaises(allot.Error) as raised:
                AllocatedSource(args)
            self.assertEqual(raised.exception.what, f"slime can't be allotted rollouts: {what}")


if __name__ == "__main__":
    unittest.main()
