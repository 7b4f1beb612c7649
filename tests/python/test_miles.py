"""miles' data source, rollout function and post-processing of rewards under policies, on a CPU."""

from __future__ import annotations

import json
import re
import unittest
from importlib.util import find_spec
from pathlib import Path

if find_spec("miles") is None:
    raise unittest.SkipTest("no miles here")

import allot
import miles
import miles_here
import rows_cases
from miles.rollout.base_types import GenerateFnOutput
from miles.utils.eval_config import EvalDatasetConfig
from recorded import ROOT
from rows_cases import worth
from rows_here import SEEN, InFolder, generate, several


class Batches(rows_cases.Batches):
    here = miles_here


class Rows(rows_cases.Rows):
    here = miles_here


class GroupRewards(rows_cases.GroupRewards):
    here = miles_here


class Miles(InFolder):
    """What only miles has."""

    here = miles_here

    def test_with_fsdp_steps_of_rows_have_the_loss_of_steps_of_rollouts(self):
        for balance in (False, True):
            run = {"record": f"{self.folder}/{balance}"}
            with self.subTest(balance=balance):
                self.same_loss(self.process(train_backend="fsdp", balance_data=balance, allot=run))

    def same_loss(self, process: miles_here.Process):
        filled = 0
        for step in range(6):
            rows, data = process.batch(step)
            picked = {learn.answer[0].rollout_id: learn for learn in process.source.allocator._picked}
            every = [worth(row, row.response_length) for row in rows]
            steps = process.steps_of_rows(data)
            self.assertEqual(sorted(row for step in steps for row in step), list(range(len(rows))))
            self.assertEqual({len(step) for step in steps}, {8})
            filled += len(rows) - len(picked)
            # FSDP has each row's own sum of its mask, and not the rollout's.
            own = {**data, "rollout_mask_sums": [sum(mask) for mask in data["loss_masks"]]}
            loss = sum(process.loss(own, step, every) for step in steps) / len(steps)
            values = [worth(learn.answer[0], learn.answer[0].response_length) for learn in picked.values()]
            means = [a.advantage * sum(v) / len(v) for a, v in zip(picked.values(), values, strict=True)]
            self.assertAlmostEqual(loss, sum(means) / len(means), places=6)
        self.assertGreater(filled, 0)

    def test_rollouts_of_several_rows_need_steps_of_rollouts(self):
        async def seen(args, sample, params):
            rows = await several(args, sample, params)
            for row in rows:
                row.multimodal_train_inputs = {"pixel_values": [1.0]}
            return rows

        miles_here.seen = seen
        for name, more in [
            ("fsdp", {"train_backend": "fsdp"}),
            ("images", {"custom_generate_function_path": "miles_here.seen"}),
        ]:
            allotted = {"longest": 30, "record": f"{self.folder}/{name}"}
            with self.subTest(name), self.assertRaises(allot.Error) as raised:
                self.process(**{**self.several(), "allot": allotted, **more}).batch(0)
            self.assertIn("a rollout has several rows, and a step is made of rows", raised.exception.what)
            self.assertIn("one row for each rollout", raised.exception.hint)

    def test_a_router_finds_the_engine_of_a_session_again(self):
        for policy, keys in [("consistent_hashing", 1), ("cache_aware", 0)]:
            run = {"record": f"{self.folder}/{policy}"}
            rows, _ = self.process(sglang_router_policy=policy, allot=run).batch(0)
            real = [row for row in rows if not row.remove_sample]
            self.assertEqual(len({row.routing_key for row in real} - {None}), keys * len(real))

    def test_functions_of_miles_own_form_generate(self):
        async def own(input):
            sample = await generate(input.args, input.sample, input.sampling_params)
            return GenerateFnOutput(samples=[sample])

        miles_here.own = own
        process = self.process(custom_generate_function_path="miles_here.own")
        rows, _ = process.batch(0)
        self.assertEqual(process.source.allocator.spent["run_rollouts"], len(SEEN))
        self.assertTrue(all(row.rollout_id is not None for row in rows))

    def test_an_evaluation_is_miles_own_and_its_accuracy_is_beside_the_record(self):
        names = "eval_max_prompt_len eval_reward_key".split()
        data = EvalDatasetConfig(
            name="held-out", path=f"{self.folder}/prompts.jsonl", input_key="text", label_key="label"
        )
        data.n_samples_per_eval_prompt, data.temperature, data.max_response_len = 1, 1.0, 6
        process = self.process(eval_datasets=[data], **dict.fromkeys(names))
        process.batch(0)
        sampled = len(SEEN)
        told = process.evaluated(0)["held-out"]["rewards"]
        self.assertEqual((len(told), len(SEEN) - sampled), (18, 18))
        self.assertEqual(process.source.allocator.spent["run_rollouts"], sampled)
        line = json.loads((Path(self.folder) / "record/evaluations.jsonl").read_text())
        self.assertEqual(line, {"steps": 1, "accuracy": sum(told) / 18})


class Page(unittest.TestCase):
    def test_the_options_of_the_command_are_miles_own(self):
        page = (ROOT / "docs/how-to/miles.md").read_text()
        command = page.split("-m allot.miles_train", 1)[1].split("```", 1)[0]
        here = Path(miles.__file__).parent
        source = "".join(
            (here / f"{name}/arguments.py").read_text() for name in ("utils", "backends/fsdp_utils")
        )
        options = re.findall(r"--([a-z-]+)", command)
        self.assertGreater(len(options), 30)
        for option in options:
            # FSDP's options are the fields of a class. SGLang's own are passed on with a prefix.
            known = f'"--{option}"' in source or f"    {option.replace('-', '_')}: " in source
            self.assertTrue(known or option == "sglang-mem-fraction-static", option)


if __name__ == "__main__":
    unittest.main()
