"""TRL's tools, environments and `rollout_func` under policies: episodes of several turns, on a CPU, with a tiny model.

A tiny model makes no tool calls: in some first turns its answer is replaced by one. All else is TRL's and the model's.

Needs TRL 1.16; skipped without it.
"""

from __future__ import annotations

import json
import tempfile
import unittest
from importlib.util import find_spec
from pathlib import Path

from recorded import allot as program
from recorded import lines

if find_spec("trl") is None:
    raise unittest.SkipTest("no TRL here")

import allot
import torch
from allot.trl import lengths
from datasets import Dataset
from test_trl import MODEL, SETTINGS, Spy, Stop, weights
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig

#: Short, with the names of tools.
TEMPLATE = (
    "{%- for tool in tools or [] %}{{ tool.function.name }};{% endfor %}"
    "{%- for message in messages %}{{ '<|im_start|>' + message.role + '\n' + (message.content or '') }}"
    "{%- for call in message.tool_calls or [] %}{{ '<tool_call>' + call.function | tojson + '</tool_call>' }}"
    "{%- endfor %}{{ '<|im_end|>\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{%- endif %}"
)
#: How a tool call is found in an answer, in transformers' terms.
PARSED = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "tool_calls": {
            "open": "<tool_call>",
            "close_pattern": "</tool_call>\\s*",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close_pattern": "<\\|im_end\\|>\\s*", "content": "text"},
    },
}
PROMPTS = Dataset.from_list(
    [{"prompt": [{"role": "user", "content": f"{i}"}], "start": i} for i in range(24)]
)
LONGEST = 128


class Sum:
    """A number to which the model adds. Counts how often it begins."""

    began = 0

    def reset(self, start: int, **_) -> str:
        type(self).began += 1
        self.sum, self.calls = start, 0
        return f" from {start}"

    def add(self, number: int) -> str:
        """Adds a number.

        Args:
            number: The number.
        """
        self.sum, self.calls = self.sum + number, self.calls + 1
        return f"sum {self.sum}"

    def get_reward(self) -> float:
        return float(self.calls > 0 and self.sum % 3 > 0)


class Caller(Spy):
    """In some first turns the model's answer is replaced by a call of a tool. Its first token says in which."""

    called = "add"

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.turns, self.made, self.calls = 0, 0, 0
        # Short turns, so that nothing is cut off.
        self.generation_config.max_new_tokens = 8

    def _generate_single_turn(self, prompt_ids, *arguments, **named):
        ids, logprobs = super()._generate_single_turn(prompt_ids, *arguments, **named)
        ids = [[*turn, self._tokenizer.eos_token_id] for turn in ids]
        for i, prompt in enumerate(prompt_ids):
            first = ids[i][0]
            if "sum" not in self._tokenizer.decode(prompt) and first % 3 == 0:
                self.calls += 1
                call = json.dumps({"name": self.called, "arguments": {"number": first % 7}})
                ids[i] = self._tokenizer(f"<tool_call>{call}</tool_call><|im_end|>")["input_ids"]
        self.turns += len(ids)
        self.made += sum(map(len, ids))
        return ids, logprobs


def judge(completions, environments=None, **_):
    """Half a point for an answer with an even number of letters: beside the environment's own reward."""
    return [0.5 * (len(completion[-1].get("content") or "") % 2) for completion in completions]


def trainer(folder, policy="pilot-commit", run=None, kind=Caller, rewards=(judge,), dataset=PROMPTS, **more):
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    tokenizer.chat_template, tokenizer.response_template = TEMPLATE, PARSED
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    model.config.max_position_embeddings = 1024
    args = {name: more.pop(name) for name in list(more) if hasattr(GRPOConfig, name)}
    settings = {"pilot": 2, "commit": 2, "evict-at": 1.1} if policy == "pilot-commit" else {}
    allocator = allot.Allocator(
        policy,
        lengths(dataset, tokenizer, tools=[Sum().add]),
        **{
            "steps": 4,
            "groups": 3,
            "rollouts": 4,
            "longest": LONGEST,
            "seed": 1,
            "settings": settings,
            "record": f"{folder}/record",
            "engine": "trl",
            **(run or {}),
        },
    )
    return kind(
        model=model,
        reward_funcs=list(rewards),
        args=GRPOConfig(
            **{
                **SETTINGS,
                "output_dir": f"{folder}/trl",
                "per_device_train_batch_size": 16,
                "max_completion_length": LONGEST,
                "max_steps": 4,
                "learning_rate": 1e-3,
                **args,
            }
        ),
        train_dataset=dataset,
        processing_class=tokenizer,
        allocator=allocator,
        **more,
    )


class Environments(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name
        Sum.began = 0

    def test_an_episode_is_one_rollout_and_only_what_the_model_said_counts(self):
        spy = trainer(self.folder, environment_factory=Sum)
        before = weights(spy)
        spy.train()
        self.assertFalse(all(torch.equal(a, b) for a, b in zip(before, weights(spy), strict=True)))
        spent, record = spy.allocator.spent, Path(self.folder) / "record"
        self.assertGreater(spy.calls, 0)
        # One episode for each rollout: none began anew when its rows were passed to TRL.
        self.assertEqual(Sum.began, spent["run_rollouts"])
        self.assertEqual(spy.turns, spent["run_rollouts"] + spy.calls)
        self.assertEqual(spy.made, spent["run_tokens"])
        program("replay", record, "pilot-commit")
        sampled = [s for line in lines(record, "rollouts") for s in line["sampled"]]
        self.assertEqual(sum(len(s["tokens"]) for s in sampled), spent["run_rollouts"])
        self.assertGreater(len({reward for s in sampled for reward in s["rewards"]}), 2, "both rewards")

    def test_the_loss_is_of_the_model_s_own_tokens(self):
        spy = trainer(self.folder, "uniform", {"steps": 1}, max_steps=1, beta=0.0, environment_factory=Sum)
        spy.train()
        rows = spy.batches[0].rollouts
        several = [row for row in rows if 0 in row.answer.generated]
        self.assertTrue(several, "no episode of several turns")
        for row in several:
            read = [
                i for i, own in zip(row.answer.completion_ids, row.answer.generated, strict=True) if not own
            ]
            text = spy.processing_class.decode(read)
            self.assertIn("<|im_start|>tool\nsum ", text)
            self.assertTrue(text.endswith("<|im_start|>assistant\n"))
        for row in rows:
            self.assertIn(f" from {row.prompt}", spy.processing_class.decode(row.answer.prompt_ids))
        n = [sum(row.answer.generated) for row in rows]
        a = [row.advantage for row in rows]
        self.assertTrue(any(a))
        self.assertAlmostEqual(spy.losses[0], -sum(a * n for a, n in zip(a, n, strict=True)) / sum(n), 5)
        self.assertEqual(int(spy.output["num_items_in_batch"]), sum(n))

    def test_a_run_that_was_cut_off_goes_on_with_the_episodes_it_held(self):
        run = {"settings": {"pilot": 2, "commit": 6, "prompts": 9, "evict-at": 1.1}}
        more = {"environment_factory": Sum, "save_strategy": "steps", "save_steps": 2}
        more |= {"per_device_train_batch_size": 24}
        whole = trainer(f"{self.folder}/whole", run=run, **more)
        whole.train()
        self.assertTrue(
            any(row.age for batch in whole.batches[2:] for row in batch.rollouts), "none was held"
        )
        cut = trainer(f"{self.folder}/cut", run=run, **more)
        cut.add_callback(Stop(3))
        cut.train()
        again = trainer(f"{self.folder}/cut", run=run, **more)
        again.train(resume_from_checkpoint=f"{self.folder}/cut/trl/checkpoint-2")
        records = [
            (Path(self.folder) / name / "record/record.jsonl").read_bytes() for name in ("whole", "cut")
        ]
        self.assertEqual(*records)
        for a, b in zip(weights(whole), weights(again), strict=True):
            self.assertTrue(torch.equal(a, b))

    def test_each_prompt_has_its_environment_and_tools_stand_beside_them(self):
        class Product(Sum):
            began = 0

            def multiply(self, number: int) -> str:
                """Multiplies by a number.

                Args:
                    number: The number.
                """
                return f"sum {number}"

        class Mixed(Caller):
            called = "twice"

        def twice(number: int) -> str:
            """Doubles a number.

            Args:
                number: The number.
            """
            return f"sum {2 * number}"

        dataset = PROMPTS.map(lambda row: {"environment": ["sum", "product"][row["start"] % 2]})
        environments = {"sum": Sum, "product": Product}
        spy = trainer(
            self.folder,
            "uniform",
            kind=Mixed,
            dataset=dataset,
            environment_factory=environments,
            tools=[twice],
        )
        spy.train()
        self.assertEqual(Sum.began + Product.began, spy.allocator.spent["run_rollouts"])
        for batch in spy.batches:
            for row in batch.rollouts:
                shown = spy.processing_class.decode(row.answer.prompt_ids)
                self.assertEqual("multiply" in shown, row.prompt % 2 == 1)
        read = [
            m for b in spy.batches for row in b.rollouts for m in row.answer.completion if m["role"] == "tool"
        ]
        self.assertTrue(read)
        self.assertTrue(all(int(message["content"].split()[1]) % 2 == 0 for message in read))

    def test_tools_alone(self):
        def add(number: int) -> str:
            """Adds.

            Args:
                number: The number.
            """
            return f"sum {number}"

        spy = trainer(self.folder, "uniform", tools=[add])
        spy.train()
        self.assertGreater(spy.calls, 0)
        self.assertEqual(spy.made, spy.allocator.spent["run_tokens"])

    def test_a_rollout_func_of_the_user_s_own(self):
        asked = []

        def rollout(prompts, trainer, rows=1):
            asked.append(len(prompts))
            ids = trainer.processing_class.apply_chat_template(
                prompts, add_generation_prompt=True, tokenize=True, return_dict=True
            )["input_ids"]
            answers = [[40 + len(asked), 41, 42, trainer.processing_class.eos_token_id] for _ in ids]
            return {
                "prompt_ids": ids * rows,
                "completion_ids": answers * rows,
                "logprobs": [[-1.0] * 4 for _ in answers] * rows,
                "env_mask": [[1, 0, 1, 1] for _ in answers] * rows,
                "luck": [i % 2 for i in range(len(ids))] * rows,
            }

        def lucky(completions, luck, **_):
            return [float(value) for value in luck]

        spy = trainer(self.folder, "uniform", kind=Spy, rewards=[lucky], rollout_func=rollout)
        spy.train()
        spent = spy.allocator.spent
        self.assertEqual((sum(asked), 3 * sum(asked)), (spent["run_rollouts"], spent["run_tokens"]))
        self.assertTrue(any(row.advantage for batch in spy.batches for row in batch.rollouts))

        with tempfile.TemporaryDirectory() as folder:
            several = lambda prompts, trainer: rollout(prompts, trainer, rows=2)  # noqa: E731
            spy = trainer(folder, "uniform", kind=Spy, rewards=[lucky], rollout_func=several)
            with self.assertRaises(allot.Error) as raised:
                spy.train()
        self.assertEqual(raised.exception.what, "`rollout_func` returned 24 rows for 12 prompts")


if __name__ == "__main__":
    unittest.main()
