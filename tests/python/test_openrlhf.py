"""Parts of allot's adapter for OpenRLHF, with OpenRLHF's own classes: rows of a batch, loss, rewards, seeds,
the command line.

Needs OpenRLHF with the packages of `.ci/trainers`; skipped without it. Whole runs are in
test_openrlhf_whole.py.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import tempfile
import unittest
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

if find_spec("openrlhf") is None:
    raise unittest.SkipTest("no OpenRLHF here")

import openrlhf_cpu

openrlhf_cpu.prepare()

import allot
import openrlhf.cli.train_ppo_ray as script
import torch
from allot import Error, Learn
from allot.openrlhf import AllocatedTrainer, State
from allot.openrlhf_batch import NOTHING, AllocatedExperienceMaker, counts, measured, rows
from allot.openrlhf_checks import REFUSED
from allot.openrlhf_rollouts import AllocatedRollouts, AllocatedSamplesGenerator
from allot.openrlhf_train import separated
from allot.turn_seeds import turn_seed
from openrlhf.datasets import PromptDataset
from openrlhf.datasets.utils import blending_datasets
from openrlhf.models import PolicyLoss
from openrlhf.trainer.ppo_utils.experience import Experience, make_experience_batch, split_experience_batch
from openrlhf.utils.loss_utils import iter_grad_accum_global_norm
from recorded import ROOT
from vllm import SamplingParams

SCRIPT = Path(script.__file__).read_text()


def sampled(tokens: int, reward: float | None = 1.0, score: float | None = None) -> Experience:
    """A rollout with a prompt of three tokens, in the form of OpenRLHF's generator."""
    length = 3 + tokens
    mask = torch.zeros(1, length - 1, dtype=torch.long)
    mask[:, 2:] = 1
    score = reward if score is None else score
    return Experience(
        sequences=torch.arange(length).unsqueeze(0),
        attention_mask=torch.ones(1, length, dtype=torch.long),
        action_mask=mask,
        prompts=["a"],
        labels=["b"],
        images=[None],
        mm_train_inputs=[None],
        rewards=None if reward is None else torch.tensor([reward]),
        scores=None if score is None else torch.tensor([score]),
        response_length=torch.tensor([tokens]),
        truncated=torch.tensor([tokens == 8]),
        total_length=torch.tensor([float(length)]),
        info={} if reward is None else {"reward": torch.tensor([reward])},
    )


def learn(advantages: list[float]) -> list[Learn]:
    return [Learn(i, i, 0, advantage, sampled(2 + i)) for i, advantage in enumerate(advantages)]


class Rows(unittest.TestCase):
    def test_a_batch_is_filled_up_with_empty_rows_evenly(self):
        made = rows(learn([1.0, -1.0, 0.5, 2.0, -2.0]), 8)
        real = [bool(counts(row)) for row in made]
        self.assertEqual(real, [True, False, True, True, False, True, False, True])
        self.assertEqual(len({id(row) for row in made}), 8)
        told = [row.info["advantage"].item() for row in made]
        self.assertEqual(told, [1.0, 0.0, -1.0, 0.5, 0.0, 2.0, 0.0, -2.0])
        self.assertEqual(len(rows(learn([1.0] * 8), 8)), 8)

    def test_a_rollout_stays_as_it_was_sampled(self):
        batch = learn([1.0, 2.0])
        for row in rows(batch, 4):
            row.index, row.action_mask = [0], None
        for picked in batch:
            self.assertIsNone(picked.answer.index)
            self.assertEqual(picked.answer.info.keys(), {"reward"})
            self.assertTrue(counts(picked.answer).all())

    def experiences(self, batch: list[Learn], size: int, micro: int) -> list[Experience]:
        """As OpenRLHF's trainer gets them: in micro batches, then row by row."""
        maker = object.__new__(AllocatedExperienceMaker)
        maker.args = SimpleNamespace(
            train=SimpleNamespace(dynamic_batch_enable=False), rollout=SimpleNamespace(micro_batch_size=micro)
        )
        maker.tokenizer = SimpleNamespace(pad_token_id=0)
        made = maker.split_rollout_samples(rows(batch, size))
        for experience in made:
            experience.action_log_probs = torch.zeros(experience.action_mask.shape)
            for name in ("kl", "logprobs_diff"):
                experience.info[name] = torch.zeros(len(experience.sequences)) / counts(experience)
        return maker.compute_advantages_and_returns(made)

    def test_advantages_are_the_allocator_s_at_each_generated_token(self):
        advantages = [1.0, -1.0, 0.5]
        done = [
            row for made in self.experiences(learn(advantages), 4, 2) for row in split_experience_batch(made)
        ]
        found = {}
        for row in done:
            mask = row.action_mask.bool()
            self.assertTrue((row.advantages[~mask] == 0).all())
            if mask.any():
                found[int(mask.sum())] = row.advantages[mask].unique().tolist()
            self.assertFalse(row.info["kl"].isnan())
        self.assertEqual(found, {2: [1.0], 3: [-1.0], 4: [0.5]})

    def gradients(self, batch: list[Learn], size: int, token_level: bool) -> dict[int, torch.Tensor]:
        """Of one optimizer step of `size` rows, in micro batches of two, by each rollout's length."""
        items = [row for made in self.experiences(batch, size, 2) for row in split_experience_batch(made)]
        pairs = [make_experience_batch(items[i : i + 2]) for i in range(0, len(items), 2)]
        strategy = SimpleNamespace(ds_device_mesh=None)
        loss = PolicyLoss(token_level_loss=token_level)
        found = {}
        gas = len(pairs)
        for experience, info in iter_grad_accum_global_norm(
            pairs, strategy, gas, lambda one: one.action_mask
        ):
            logp = torch.zeros(experience.action_mask.shape, requires_grad=True)
            value, *_ = loss(
                logp, experience.action_log_probs, experience.advantages, experience.action_mask, **info
            )
            # DeepSpeed divides each backward pass by their number.
            (value / gas).backward()
            for row, mask in zip(logp.grad, experience.action_mask.bool(), strict=True):
                self.assertTrue(torch.isfinite(row).all())
                if mask.any():
                    found[int(mask.sum())] = row[mask]
        return found

    def test_empty_rows_change_nothing_of_the_loss(self):
        advantages = [1.0, -1.0, 0.5, 2.0]
        tokens = [2, 3, 4, 5]
        for token_level in (True, False):
            whole = self.gradients(learn(advantages), 4, token_level)
            filled = self.gradients(learn(advantages), 12, token_level)
            self.assertEqual(whole.keys(), filled.keys())
            for count, advantage in zip(tokens, advantages, strict=True):
                torch.testing.assert_close(whole[count], filled[count])
                # At the weights that sampled: minus the advantage, by all tokens, or by rows and a row's
                # tokens.
                expected = -advantage / (sum(tokens) if token_level else len(tokens) * count)
                torch.testing.assert_close(whole[count], torch.full((count,), expected))

    def test_metrics_leave_empty_rows_out_and_never_divide_by_nothing(self):
        def told(mask: list[bool]) -> dict[str, Any]:
            step = {
                "metrics": {
                    "reward": torch.tensor([1.0, 3.0]),
                    "ppo_kl": torch.tensor(math.nan),
                    "actor_lr": 0.1,
                },
                "weights": {"reward": "sample", "ppo_kl": "token", "actor_lr": None},
                "num_samples": 2.0,
                "num_action_tokens": 5.0 * any(mask),
            }
            return measured(step, torch.tensor(mask))

        self.assertEqual(told([True, False])["metrics"]["reward"].tolist(), [1.0])
        self.assertEqual(told([True, False])["num_samples"], 1.0)
        self.assertEqual(told([True, True])["num_samples"], 2.0)
        empty = told([False, False])
        self.assertEqual((empty["num_samples"], empty["num_action_tokens"]), (NOTHING, NOTHING))
        self.assertEqual([float(value) for value in empty["metrics"].values()], [0.0, 0.0, 0.1])


class Rewards(unittest.TestCase):
    def generator(self, **reward: Any) -> AllocatedSamplesGenerator:
        made = object.__new__(AllocatedSamplesGenerator)
        made.correct_above = 0.5
        made.allocator = SimpleNamespace(longest=8, batch=3)
        made.args = SimpleNamespace(
            reward=SimpleNamespace(clip_range=(-10, 10), **reward),
            rollout=SimpleNamespace(max_new_tokens=8),
            data=SimpleNamespace(max_len=64),
        )
        return made

    def told(self, made: AllocatedSamplesGenerator, experience: Experience) -> allot.Rollout:
        made._shape([experience] if experience.rewards is not None else [])
        return made._told(experience)

    def test_a_policy_sees_rewards_with_openrlhf_s_penalties_and_correctness_without(self):
        made = self.generator(overlong_buffer_len=4, overlong_penalty_factor=1)
        told = self.told(made, sampled(8, reward=1))
        self.assertEqual((told.reward, told.correct, told.tokens, told.truncated), (0.0, True, 8, True))
        self.assertEqual(told.answer.info["reward"].item(), 0.0)
        made = self.generator(stop_properly_penalty_coef=-0.5)
        self.assertEqual(self.told(made, sampled(8)).reward, -0.5)
        self.assertEqual(self.told(made, sampled(5)).reward, 1.0)
        # OpenRLHF clips what it has normalized.
        self.assertEqual(self.told(made, sampled(5, reward=99.0)).reward, 99.0)

    def test_scores_say_what_is_right(self):
        self.assertFalse(self.told(self.generator(), sampled(2, reward=3.0, score=0.0)).correct)
        self.assertTrue(self.told(self.generator(), sampled(2, reward=-1.0, score=1.0)).correct)

    def test_a_rollout_without_a_reward_is_unscorable_and_a_batch_of_them_an_error(self):
        made = self.generator()
        for lost in (sampled(2, reward=None), sampled(2, reward=math.nan)):
            told = self.told(made, lost)
            self.assertEqual((told.reward, told.tokens, told.answer), (None, 2, None))
        self.told(made, sampled(2))
        for _ in range(2):
            self.told(made, sampled(2, reward=None))
        with self.assertRaises(Error) as error:
            self.told(made, sampled(2, reward=None))
        self.assertIn("the last 3 rollouts came back without a reward", error.exception.what)

    def test_a_rollout_that_is_longer_than_the_budget_counts_is_an_error(self):
        with self.assertRaises(Error) as error:
            self.told(self.generator(), sampled(9))
        self.assertIn("9 tokens, and 8 is the most", error.exception.what)
        self.assertIn("`longest` in --allot", error.exception.hint)


class Seeds(unittest.TestCase):
    def test_each_turn_of_each_rollout_has_a_seed_of_its_own(self):
        asked = []

        class Executor:
            async def execute(self, sampling_params: Any, llm_engine: Any, **named: Any) -> str:
                for tokens in ([1], [1, 2]):
                    sampling_params.max_tokens = len(tokens)
                    await llm_engine.generate(tokens, sampling_params, multi_modal_data=None)
                return named["prompt"]

        rollouts = object.__new__(AllocatedRollouts)
        rollouts.executor = Executor()

        async def generate(prompt_token_ids: list[int], params: Any, multi_modal_data: Any = None) -> None:
            asked.append((params.seed, params.max_tokens))

        rollouts.generate = generate
        given = SamplingParams(max_tokens=9)
        told = asyncio.run(
            rollouts.generate_responses(
                prompt="a",
                label="b",
                sampling_params=given,
                max_length=5,
                hf_tokenizer=None,
                num_samples=2,
                seeds=[7, 8],
            )
        )
        self.assertEqual(told, ["a", "a"])
        turns = [(turn_seed(seed, turn), turn + 1) for seed in (7, 8) for turn in range(2)]
        self.assertEqual(sorted(asked), sorted(turns))
        self.assertEqual((given.seed, given.max_tokens), (None, 9))


class Trainer(unittest.TestCase):
    def trainer(self, folder: str, allot: dict[str, Any]) -> AllocatedTrainer:
        """As far as a run is set up before models are loaded."""
        texts = [{"input": "a" * n, "label": "1", "difficulty": float(n)} for n in range(1, 11)]
        path = Path(folder) / "prompts.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in texts))
        made = object.__new__(AllocatedTrainer)
        made.args = SimpleNamespace(
            allot=allot,
            use_ms=False,
            data=SimpleNamespace(
                prompt_dataset=str(path),
                prompt_probs=None,
                prompt_split="train",
                max_samples=10,
                max_len=12,
                input_key="input",
                label_key="label",
            ),
            rollout=SimpleNamespace(batch_size=2, n_samples_per_prompt=4, max_new_tokens=8, temperature=1.0),
            train=SimpleNamespace(seed=1, batch_size=6, num_episodes=2, max_epochs=3, agent_func_path=None),
        )
        made.strategy = SimpleNamespace(args=made.args, print=lambda *_: None, is_rank_0=lambda: False)
        made.tokenizer = lambda text, add_special_tokens: {"input_ids": [list(one) for one in text]}
        rows = blending_datasets(str(path), None, made.strategy, 1, dataset_split="train")
        made.prompts_dataloader = SimpleNamespace(dataset=PromptDataset(rows, made.tokenizer, made.strategy))
        made.samples_generator = object.__new__(AllocatedSamplesGenerator)
        return made

    def test_a_run_is_set_up_from_openrlhf_s_numbers(self):
        with tempfile.TemporaryDirectory() as folder:
            made = self.trainer(folder, {"policy": "uniform"})
            # 10 steps of 8 rollouts are two optimizer steps each, in each of three passes.
            self.assertEqual(made.get_max_steps(), 10 * 2 * 3)
            # A prompt is cut where the longest answer would not fit.
            self.assertEqual(made._lengths(), [1, 2, 3, 4, 4, 4, 4, 4, 4, 4])
            self.assertIs(made.samples_generator.allocator, made.allocator)
            self.assertRegex(repr(State({"a": made.setup})), r"^<allot's state, \d+ bytes>$")

    def test_what_a_policy_needs_and_is_not_there_is_refused_before_models_are_loaded(self):
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaises(Error) as error:
                self.trainer(folder, {"policy": "tree-grpo"}).get_max_steps()
            self.assertIn("needs `turns`, which this run does not provide", error.exception.what)
            with self.assertRaises(Error) as error:
                self.trainer(folder, {"policy": "strata"}).get_max_steps()
            self.assertIn("wants the column `source`, which the data set does not have", error.exception.what)
            self.assertIn("input, label, difficulty", error.exception.hint)
            self.trainer(folder, {"policy": "adarft"}).get_max_steps()


class Command(unittest.TestCase):
    def test_allot_s_keys_are_taken_out_of_openrlhf_s_options(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "allot.yaml"
            path.write_text("policy: uniform\nbudget:\n  rollouts: 5\n")
            given = {"policy": "uniform", "budget": {"rollouts": 5}}
            for words in (["--allot", "{policy: uniform, budget: {rollouts: 5}}"], [f"--allot={path}"]):
                self.assertEqual(separated(["--a.b", "1", *words, "--c"]), (given, ["--a.b", "1", "--c"]))

    def test_what_can_t_be_read_is_refused(self):
        for words, why in [
            ([], "given 0 times"),
            (["--allot", "{}", "--allot", "{}"], "given 2 times"),
            (["--allot", "{policy: "], "can't be read"),
            (["--allot", "nowhere.yaml"], "a file that is there"),
        ]:
            with self.assertRaises(Error) as error:
                separated(words)
            self.assertIn(why, error.exception.what)

    def test_options_that_are_refused_are_openrlhf_s(self):
        for name, *_ in REFUSED:
            self.assertIn(f'"--{name}"', SCRIPT)

    def test_the_page_s_commands_have_options_of_openrlhf_s(self):
        page = (ROOT / "docs/how-to/openrlhf.md").read_text()
        found = set(re.findall(r"--([a-z_]+(?:\.[a-z_]+)+)", page))
        self.assertGreater(len(found), 30)
        # Those of a model that trains are made by its name.
        known = {*re.findall(r'"--([a-z_.]+)"', SCRIPT)}
        known |= {f"actor.{name}" for name in re.findall(r'f"--\{prefix\}\.([a-z_.]+)"', SCRIPT)}
        self.assertEqual(found - known, set())


if __name__ == "__main__":
    unittest.main()
