"""TRL's GRPO trainer under policies, on a CPU, with a tiny model: plans, ledger, losses, checkpoints.

Needs TRL 1.16; skipped without it.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import tempfile
import unittest
import warnings
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import patch

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
warnings.simplefilter("ignore")

import allot
from guest import made, needs
from recorded import ROOT, lines
from recorded import allot as program

if find_spec("trl") is None:
    raise unittest.SkipTest("no TRL here")

import pandas
import torch
import transformers
from allot import trl_checkpoints
from allot.trl import SIGNALS, AllocatedGRPOTrainer, Answer, lengths
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig

transformers.utils.logging.disable_progress_bar()

MODEL = ROOT / "tests/cases/models/tiny-qwen2-tied"
#: Settings of TRL that all tests have.
SETTINGS = {
    "num_generations": 4,
    "logging_steps": 1,
    "save_strategy": "no",
    "report_to": "none",
    "use_cpu": True,
    "bf16": False,
    "disable_tqdm": True,
    "seed": 1,
}
PROMPTS = Dataset.from_list([{"prompt": f"{i} and {i} make", "easy": i % 5} for i in range(24)])


class Judge:
    """Some prompts are always right, some never, most now and then. It counts what it is shown."""

    __name__ = "judge"

    def __init__(self):
        self.rollouts, self.tokens, self.wrong_prompts = 0, 0, 0

    def __call__(self, prompts, completions, completion_ids, easy, **_):
        self.rollouts += len(completions)
        self.tokens += sum(map(len, completion_ids))
        self.wrong_prompts += sum(
            int(prompt.split()[0]) % 5 != e for prompt, e in zip(prompts, easy, strict=True)
        )
        return [float(sum(ids) % 4 < e) for ids, e in zip(completion_ids, easy, strict=True)]


class Spy(AllocatedGRPOTrainer):
    """Keeps the batches that TRL was given."""

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.batches, self.losses, self.own = [], [], []

    def _next_batch(self):
        self.batches.append(super()._next_batch())
        return self.batches[-1]

    def _generate_and_score_completions(self, inputs):
        self.output = super()._generate_and_score_completions(inputs)
        if self.model.training and self.batches[-1]:
            # Rows of filling are masked: so many are real in this process.
            self.own.append(int((self.output["tool_mask"] * self.output["completion_mask"]).any(1).sum()))
        return self.output

    def _compute_loss(self, model, inputs):
        loss = super()._compute_loss(model, inputs)
        self.losses.append(loss.item())
        return loss


class Stop(TrainerCallback):
    """A machine that goes down after so many steps."""

    def __init__(self, at: int):
        self.at = at

    def on_step_end(self, args, state, control, **_):
        control.should_training_stop |= state.global_step >= self.at
        return control


def trainer(
    folder: str, policy="pilot-commit", run=None, allocator=None, dataset=PROMPTS, eval_dataset=None, **more
):
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    allocator = allocator or allot.Allocator(
        policy,
        lengths(dataset, tokenizer),
        **{
            "steps": 6,
            "groups": 3,
            "rollouts": 4,
            "longest": 6,
            "seed": 1,
            "max_age": 2,
            "settings": {"pilot": 2, "commit": 2, "evict-at": 1.1} if policy == "pilot-commit" else {},
            "record": f"{folder}/record",
            "engine": "trl",
            **(run or {}),
        },
    )
    args = {
        **SETTINGS,
        "output_dir": f"{folder}/trl",
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": 2,
        "max_completion_length": 6,
        "max_steps": 6,
        "learning_rate": 1e-2,
        **more,
    }
    judge = Judge()
    return Spy(
        model=AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32),
        reward_funcs=judge,
        args=GRPOConfig(**args),
        train_dataset=dataset,
        eval_dataset=eval_dataset,
        processing_class=tokenizer,
        allocator=allocator,
    ), judge


def weights(trainer) -> list[torch.Tensor]:
    return [p.detach().clone() for p in trainer.model.parameters()]


class Trl(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name

    def test_ragged_plans_are_the_host_s_and_the_ledger_is_right_to_the_rollout(self):
        for policy in ("pilot-commit", "knapsack"):
            with self.subTest(policy), tempfile.TemporaryDirectory() as folder:
                spy, judge = trainer(folder, policy, {"steps": 12, "budget": {"rollouts": 400}}, max_steps=12)
                before = weights(spy)
                spy.train()
                record = Path(folder) / "record"
                self.assertFalse(all(torch.equal(a, b) for a, b in zip(before, weights(spy), strict=True)))

                # Every rollout was judged once, with its own prompt, and paid for once.
                spent = spy.allocator.spent
                self.assertEqual((judge.rollouts, judge.tokens), (spent["run_rollouts"], spent["run_tokens"]))
                self.assertEqual(judge.wrong_prompts, 0)
                self.assertEqual(lines(record, "end")[0]["spent"], spent)
                drawn = [
                    s["prompt"]
                    for line in lines(record, "rollouts")
                    for s in line["sampled"]
                    for _ in s["tokens"]
                ]
                prompts = sum(
                    len(spy.processing_class(text=PROMPTS[p]["prompt"])["input_ids"]) for p in drawn
                )
                self.assertEqual(spy.state.num_input_tokens_seen, spent["run_tokens"] + prompts)
                logged = [log for log in spy.state.log_history if "allot/rollouts" in log]
                self.assertEqual(logged[-1]["allot/rollouts"], spent["run_rollouts"])

                # The program, shown the same, plans the same.
                program("replay", record, policy)
                trained = [batch.rollouts for batch in spy.batches if batch]
                steps = [step for step in lines(record, "step") if step["updated"]]
                self.assertEqual([len(rows) for rows in trained], [step["trained"] for step in steps])
                groups = {
                    len([r for r in rows if r.prompt == p])
                    for rows in trained
                    for p in {r.prompt for r in rows}
                }
                if policy == "knapsack":
                    self.assertGreater(len(groups), 1, "groups of several sizes")

    def test_trl_is_handed_the_advantages_and_learns_nothing_from_filling(self):
        # At the weights that sampled, a ratio is 1: the loss is known without a model.
        for loss_type in ("dapo", "grpo", "dr_grpo"):
            with self.subTest(loss_type), tempfile.TemporaryDirectory() as folder:
                spy, _ = trainer(
                    folder,
                    "pilot-commit",
                    {"steps": 1, "max_age": 0},
                    loss_type=loss_type,
                    max_steps=1,
                    gradient_accumulation_steps=1,
                    per_device_train_batch_size=20,
                    beta=0.0,
                )
                spy.train()
                rows = spy.batches[0].rollouts
                self.assertTrue(0 < len(rows) < 20)
                n = [len(row.answer.completion_ids) for row in rows]
                a = [row.advantage for row in rows]
                self.assertTrue(any(a))
                expected = {
                    "dapo": -sum(a * n for a, n in zip(a, n, strict=True)) / sum(n),
                    "grpo": -sum(a) / len(rows),
                    "dr_grpo": -sum(a * n for a, n in zip(a, n, strict=True)) / (len(rows) * 6),
                }[loss_type]
                self.assertAlmostEqual(spy.losses[0], expected, 5)
                self.assertEqual(int(spy.output["num_items_in_batch"]), sum(n))

    def test_rollouts_that_were_held_are_measured_from_the_weights_that_sampled_them(self):
        spy, _ = trainer(
            self.folder,
            "pilot-commit",
            {"steps": 8, "settings": {"pilot": 2, "commit": 6, "prompts": 9, "evict-at": 1.1}},
            max_steps=8,
            per_device_train_batch_size=16,
            learning_rate=1e-3,
        )
        seen = []
        original = Spy._generate_and_score_completions

        def watched(inputs):
            output = original(spy, inputs)
            batch = spy.batches[-1]
            if batch and any(row.age for row in batch.rollouts):
                with torch.no_grad():
                    now, _, _ = spy._get_per_token_logps_and_entropies(
                        spy.model,
                        torch.cat([output["prompt_ids"], output["completion_ids"]], 1),
                        torch.cat([output["prompt_mask"], output["completion_mask"]], 1),
                        output["completion_ids"].size(1),
                    )
                for i, row in enumerate(batch.rollouts):
                    n = len(row.answer.completion_ids)
                    gap = (now[i, :n] - output["old_per_token_logps"][i, :n]).abs().max().item()
                    seen.append((row.age > 0, gap))
            return output

        spy._generate_and_score_completions = watched
        spy.train()
        self.assertTrue(any(late for late, _ in seen), "none was ever held")
        self.assertTrue(all(gap < 1e-5 for late, gap in seen if not late))
        self.assertTrue(all(gap > 1e-5 for late, gap in seen if late), "the weights have moved since")

    def test_a_request_has_a_length_limit_of_its_own(self):
        varies = made(Path(self.folder) / "guest.wasm", "varies", needs(4), temperature="1.0", tokens="2")
        spy, _ = trainer(self.folder, varies, {"steps": 1, "requests": {"least_tokens": 2}}, max_steps=1)
        with patch.object(spy, "_sampled", wraps=spy._sampled) as sampled:
            spy.train()
        draws = sampled.call_args_list[0].args[0].draws
        short, long = (
            [len(row.answer.completion_ids) for row in spy.batches[0].rollouts if row.prompt == draw.prompt]
            for draw in draws
        )
        self.assertEqual((max(short), len(short), len(long)), (2, 3, 3))
        self.assertGreater(max(long), 2)
        self.assertEqual(spy.max_completion_length, 6)
        program("replay", f"{self.folder}/record", varies)

    def test_what_is_learned_from_again_is_measured_from_the_weights_that_sampled_it(self):
        replays = made(Path(self.folder) / "guest.wasm", "replays", needs(2))
        spy, judge = trainer(self.folder, replays, {"steps": 3}, max_steps=3, per_device_train_batch_size=16)
        spy.train()
        first, second, third = ({row.id: row for row in batch.rollouts} for batch in spy.batches[:3])
        again = first.keys() & second.keys()
        self.assertTrue(again and again & third.keys())
        for number in again:
            self.assertEqual((first[number].age, second[number].age), (0, 1))
            self.assertIsNotNone(second[number].answer.logps)
            self.assertIs(second[number].answer, first[number].answer)
        self.assertEqual(judge.rollouts, spy.allocator.spent["run_rollouts"])
        program("replay", f"{self.folder}/record", replays)

    def test_a_run_that_was_cut_off_goes_on_to_the_same_weights_and_the_same_record(self):
        whole, _ = trainer(f"{self.folder}/whole", save_strategy="steps", save_steps=2)
        whole.train()
        cut, _ = trainer(f"{self.folder}/cut", save_strategy="steps", save_steps=2, max_steps=6)
        cut.add_callback(Stop(5))
        cut.train()
        again, _ = trainer(f"{self.folder}/cut", save_strategy="steps", save_steps=2)
        again.train(resume_from_checkpoint=f"{self.folder}/cut/trl/checkpoint-4")
        self.assertEqual(
            (Path(self.folder) / "whole/record/record.jsonl").read_bytes(),
            (Path(self.folder) / "cut/record/record.jsonl").read_bytes(),
        )
        for a, b in zip(weights(whole), weights(again), strict=True):
            self.assertTrue(torch.equal(a, b))

    def test_an_unfinished_checkpoint_is_refused_by_name_and_passed_over_otherwise(self):
        spy, judge = trainer(self.folder, save_strategy="steps", save_steps=2)
        folder = Path(self.folder, "trl")
        # The oldest is of another trainer, or was saved within a batch. The next two were being written at a kill.
        for number, files in ((2, {"trainer_state.json": "{}"}), (4, {"allot.pt": ""}), (6, {"trainer_state.json": "{"})):
            (folder / f"checkpoint-{number}").mkdir(parents=True)
            for name, text in files.items():
                (folder / f"checkpoint-{number}" / name).write_text(text)
        for asked, what in (
            (f"{folder}/checkpoint-2", "has no `allot.pt`: it was saved within a batch, or by another trainer"),
            (folder / "checkpoint-4", "is unfinished: it has no `trainer_state.json`, which is written last"),
            (True, "is unfinished: its `trainer_state.json`, which is written last, is cut off"),
        ):
            with self.subTest(asked), self.assertRaises(allot.Error) as raised:
                spy.train(resume_from_checkpoint=asked)
            self.assertIn(what, raised.exception.what)
            self.assertIn("begin another run", raised.exception.hint)
        self.assertEqual(judge.rollouts, 0)
        (folder / "checkpoint-2/allot.pt").touch()
        with self.assertRaises(allot.Error) as raised:
            spy.train(resume_from_checkpoint=f"{folder}/checkpoint-6")
        self.assertEqual(raised.exception.hint, f"name `{folder}/checkpoint-2`, the newest whole one")
        last, passed = trl_checkpoints.newest(str(folder))
        self.assertEqual((last, len(passed)), (f"{folder}/checkpoint-2", 2))
        self.assertIn("checkpoint-6` is unfinished", passed[0])

    def test_a_checkpoint_that_is_written_over_is_unfinished_until_it_is_whole(self):
        folder = f"{self.folder}/checkpoint-2"
        trl_checkpoints.begin(folder, {"run": "state", "dataset": "before"})
        Path(folder, "trainer_state.json").write_text("{}")
        self.assertIsNone(trl_checkpoints.lacks(folder))
        trl_checkpoints.begin(folder, {"run": "state", "dataset": "after"})
        self.assertIn("is unfinished", trl_checkpoints.lacks(folder))
        self.assertEqual(trl_checkpoints.state(folder)["dataset"], "after")
        Path(folder, "trainer_state.json").write_text("{}")
        trl_checkpoints.begin(folder, None)
        self.assertEqual(list(Path(folder).iterdir()), [])

    def test_the_end_of_the_budget_is_the_end_of_the_training(self):
        spy, judge = trainer(self.folder, "uniform", {"budget": {"rollouts": 30}})
        spy.train()
        self.assertEqual((judge.rollouts, spy.allocator.over), (30, "the budget is spent"))
        self.assertLess(spy.state.global_step, 6)

    def test_nothing_is_learned_from_a_batch_after_the_end(self):
        # Every group is flat: the policy samples until the budget ends, and never trains.
        spy, _ = trainer(self.folder, "dapo", {"budget": {"rollouts": 60}})
        spy.reward_funcs[0] = lambda completions, **_: [1.0] * len(completions)
        before = weights(spy)
        spy.train()
        self.assertEqual(spy.allocator.over, "the budget is spent")
        for a, b in zip(before, weights(spy), strict=True):
            self.assertTrue(torch.equal(a, b))

    def test_signals_are_means_over_an_answer_s_tokens(self):
        spy, _ = trainer(self.folder)
        spy.allocator.signals = list(SIGNALS)
        spy.model.train()
        rollout = next(iter(spy._sampled(allot.Sample(0, 0, [allot.Draw(3, 2, [0, 0])]))))
        self.assertAlmostEqual(rollout.signals["mean-log-prob"], rollout.answer.logps.mean().item(), 6)
        self.assertTrue(rollout.signals["mean-log-prob"] < 0 < rollout.signals["mean-entropy"])

    def test_signals_leave_out_what_a_tool_said(self):
        spy, _ = trainer(self.folder)
        answer = Answer([5, 6], [7, 8, 9, 10], None, [1.0], mask=[1, 0, 0, 1])
        logps, signals = spy._measured([answer], signals=True)[0]
        self.assertAlmostEqual(signals["mean-log-prob"], (logps[0] + logps[3]).item() / 2, 6)

    def test_curves_reach_the_trainer_s_log_with_the_waste_beside_the_reward(self):
        reports = "tensorboard" if find_spec("tensorboard") else "none"
        spy, _ = trainer(self.folder, "pilot-commit", {"steps": 4}, max_steps=4, report_to=reports)
        judge, seen = spy.reward_funcs[0], []

        def now_and_then(completions, **more):
            # Each seventh answer can't be judged.
            seen.extend(completions)
            told = judge(completions=completions, **more)
            return [None if i % 7 == 0 else r for i, r in enumerate(told, len(seen))]

        spy.reward_funcs[0] = now_and_then
        spy.train()
        steps = lines(Path(self.folder) / "record", "step")
        unscorable = [0] * len(steps)
        for line in lines(Path(self.folder) / "record", "rollouts"):
            unscorable[line["step"]] += sum(s.get("unscorable", 0) for s in line["sampled"])
        self.assertTrue(any(unscorable))
        # A step without an update is logged with the next one that has one: their mean.
        waste, since = [], []
        for step, n in zip(steps, unscorable, strict=True):
            since.append(1 - step["effective"] / (step["trained"] + step["released"] + step["stale"] + n))
            if step["updated"]:
                waste.append(sum(since) / len(since))
                since = []
        if since:
            waste.append(sum(since) / len(since))
        logged = [log for log in spy.state.log_history if "allot/waste" in log]
        for log, expected in zip(logged, waste, strict=True):
            self.assertAlmostEqual(log["allot/waste"], expected, 6)
            self.assertIn("allot/reward", log)
            self.assertNotIn("frac_reward_zero_std", log)
        if reports == "none":
            self.skipTest("no tensorboard here")
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        events = next(Path(self.folder).rglob("events.out.*"))
        told = EventAccumulator(str(events.parent))
        told.Reload()
        curve = [event.value for event in told.Scalars("train/allot/waste")]
        self.assertEqual(len(curve), len(waste))
        self.assertAlmostEqual(curve[-1], waste[-1], 5)
        self.assertTrue({"train/allot/reward", "train/reward"} <= set(told.Tags()["scalars"]))

    def test_counts_are_the_last_ones_and_a_step_without_a_batch_is_part_of_the_curve(self):
        spy, judge = trainer(self.folder, "dapo", {"steps": 6}, max_steps=3, logging_steps=3)
        # What is sampled first teaches nothing: a step without an update.
        spy.reward_funcs[0] = lambda completions, **more: (
            [1.0] * len(completions) if spy.allocator.steps < 1 else judge(completions=completions, **more)
        )
        spy.train()
        steps = lines(Path(self.folder) / "record", "step")
        self.assertFalse(steps[0]["updated"])
        log = next(log for log in spy.state.log_history if "allot/waste" in log)
        self.assertEqual(log["allot/rollouts"], steps[-1]["spent"]["run_rollouts"])
        known = [step["trained"] + step["released"] + step["stale"] for step in steps]
        wastes = [1 - step["effective"] / n for step, n in zip(steps, known, strict=True)]
        self.assertAlmostEqual(log["allot/waste"], sum(wastes) / len(wastes), 6)

    def test_the_table_of_completions_is_of_what_was_trained_on(self):
        spy, judge = trainer(
            self.folder,
            "pilot-commit",
            {"steps": 1},
            max_steps=1,
            log_completions=True,
            per_device_train_batch_size=10,
        )

        def telling(completions, log_extra, **more):
            log_extra("length", [len(c) for c in completions])
            return judge(completions=completions, **more)

        spy.reward_funcs[0] = telling
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            spy.train()
        rows = spy.batches[0].rollouts
        self.assertGreater(20, len(rows))
        table = pandas.read_parquet(next(Path(self.folder).rglob("completions_*.parquet")))
        self.assertEqual(table["advantage"].tolist(), [row.advantage for row in rows])
        self.assertEqual(table["prompt"].tolist(), [PROMPTS[row.prompt]["prompt"] for row in rows])
        self.assertEqual(table["completion"].tolist(), [row.answer.completion for row in rows])
        self.assertEqual(table["length"].tolist(), [len(row.answer.completion) for row in rows])
        self.assertEqual(table["judge"].tolist(), [row.answer.rewards[0] for row in rows])

    def test_what_can_t_be_done_right_is_refused_in_a_sentence(self):
        fewer = PROMPTS.select(range(20))
        tokenizer = AutoTokenizer.from_pretrained(MODEL)
        of_all = allot.Allocator(
            "uniform", lengths(PROMPTS, tokenizer), steps=6, groups=3, rollouts=4, longest=6, engine="trl"
        )
        for more, what in [
            ({"loss_type": "bnpo"}, "its loss `bnpo` counts rows of filling"),
            ({"loss_type": "grpo", "beta": 0.1}, "its loss `grpo` with a KL term counts rows of filling"),
            (
                {"entropy_coef": 0.1},
                "its entropy bonus is a mean for each part of a batch, and parts have unequal filling",
            ),
            (
                {"multi_objective_aggregation": "normalize_then_sum"},
                'its rewards are aggregated as "normalize_then_sum", and the allocator computes advantages of their sum',
            ),
            ({"max_completion_length": 7}, "its answers get 7 tokens, and the allocator's 6"),
            (
                {"save_strategy": "epoch", "steps_per_generation": 4},
                "it saves after each epoch, which may end within a batch of 2 optimizer steps",
            ),
            (
                {"enable_jit_checkpoint": True},
                "enable_jit_checkpoint saves within a batch, where no run can be gone on from",
            ),
            (
                {"save_strategy": "steps", "save_steps": 3, "steps_per_generation": 4},
                "it saves every 3 optimizer steps, and a batch has 2",
            ),
            (
                {"per_device_train_batch_size": 4},
                "a step of the run trains on 12 rollouts, and TRL's batch has 8 rows",
            ),
            (
                {"run": {"update": {"mini_batch": 4, "passes": 2}}},
                "the allocator's policy may change how a batch is updated on, and TRL's own settings do that",
            ),
            (
                {"dataset": fewer, "allocator": of_all},
                "its data set has 20 prompts, and the allocator 24",
            ),
        ]:
            with self.subTest(what), self.assertRaises(allot.Error) as raised:
                trainer(self.folder, **more)
            self.assertEqual(raised.exception.what, f"this trainer can't be allotted rollouts: {what}")
            self.assertTrue(raised.exception.hint)
        # A plan may pick more than groups times rollouts.
        run = {"settings": {"pilot": 2, "commit": 6, "prompts": 9, "evict-at": 1.1}}
        spy, _ = trainer(self.folder, "pilot-commit", run)
        with self.assertRaises(allot.Error) as raised:
            spy.train()
        self.assertEqual(
            raised.exception.what, "the plan of step 0 trains on 24 rollouts, and TRL's batch has 16 rows"
        )

    def test_accuracies_are_beside_the_record(self):
        held_out = {"even": PROMPTS.select(range(0, 24, 2)), "odd": PROMPTS.select(range(1, 24, 2))}
        spy, judge = trainer(
            self.folder,
            eval_dataset=held_out,
            eval_strategy="steps",
            eval_steps=2,
            eval_on_start=True,
            per_device_eval_batch_size=8,
            num_generations_eval=1,
        )
        spy.train()
        path = Path(self.folder) / "record"
        told = [json.loads(line) for line in (path / "evaluations.jsonl").read_text().splitlines()]
        self.assertEqual((told[0]["steps"], told[-1]["steps"]), (2, spy.allocator.steps))
        (head,) = lines(path, "head")
        self.assertIsNotNone(head["accuracy"])
        for line in told:
            self.assertEqual([name for name, _ in line["scores"]], ["eval_even", "eval_odd"])
            self.assertAlmostEqual(line["accuracy"], sum(part for _, part in line["scores"]) / 2)
        # Evaluations are no rollouts of the run.
        self.assertLess(spy.allocator.spent["run_rollouts"], judge.rollouts)

    def test_evaluations_in_the_middle_of_a_batch_are_refused(self):
        with self.assertRaises(allot.Error) as raised:
            trainer(
                self.folder, eval_dataset=PROMPTS, eval_strategy="steps", eval_steps=3, num_iterations=2,
                gradient_accumulation_steps=1, steps_per_generation=2, num_generations_eval=1,
            )  # fmt: skip
        self.assertIn("it evaluates every 3 optimizer steps, and a batch has 4", raised.exception.what)

    def test_the_end_of_the_budget_is_evaluated_and_saved_as_the_last_step_is(self):
        spy, _ = trainer(
            self.folder, "uniform", {"budget": {"rollouts": 20}}, eval_dataset=PROMPTS.select(range(8)),
            eval_strategy="steps", eval_steps=100, save_strategy="steps", save_steps=100,
            per_device_eval_batch_size=8, num_generations_eval=1,
        )  # fmt: skip
        spy.train()
        self.assertEqual(spy.allocator.over, "the budget is spent")
        (line,) = (Path(self.folder) / "record/evaluations.jsonl").read_text().splitlines()
        self.assertEqual(json.loads(line)["steps"], spy.allocator.steps)
        (kept,) = Path(self.folder, "trl").glob("checkpoint-*")
        self.assertTrue((kept / "allot.pt").exists())

    def test_settings_that_would_do_something_else_are_refused(self):
        for more, what, hint in [
            ({"temperature": 0.3}, "it samples at a temperature of 0.3", "in GRPOConfig and in Allocator"),
            (
                {"generation_batch_size": 128, "gradient_accumulation_steps": 16},
                "its data loader wants 32 prompts for a batch",
                "raise num_generations",
            ),
            (
                {"steps_per_generation": 3, "gradient_accumulation_steps": 2},
                "an optimizer step of it goes over several batches",
                "or a multiple",
            ),
        ]:
            with self.assertRaises(allot.Error) as raised:
                trainer(self.folder, **more)
            self.assertIn(what, raised.exception.what)
            self.assertIn(hint, raised.exception.hint)

    def test_a_temperature_by_request_is_refused(self):
        with self.assertRaises(allot.Error) as raised:
            trainer(self.folder, "uniform", {"requests": {"temperature": [0.5, 1.5]}})
        self.assertIn("let a policy choose the temperature", raised.exception.what)
        self.assertIn("leave `temperature` out of `requests`", raised.exception.hint)

    def test_a_trl_that_was_not_tried_is_refused_before_its_trainer_is_made(self):
        for version in ("1.15.0", "1.160.0", "2.0.0"):
            with (
                self.subTest(version),
                patch("trl.__version__", version),
                patch("trl.GRPOTrainer.__init__", side_effect=AssertionError),
                self.assertRaises(allot.Error) as raised,
            ):
                trainer(self.folder)
            self.assertEqual(
                raised.exception.what, f"this adapter was not tried with TRL {version}, but with 1.16"
            )

    def test_a_record_that_is_there_and_another_data_set_are_refused_before_anything_is_sampled(self):
        first, _ = trainer(self.folder, run={"steps": 2}, max_steps=2, save_strategy="steps", save_steps=1)
        first.train()
        kept = (Path(self.folder) / "record/record.jsonl").read_bytes()
        spy, judge = trainer(self.folder, run={"steps": 2}, max_steps=2)
        with self.assertRaises(allot.Error) as raised:
            spy.train()
        self.assertEqual(raised.exception.what, f"there is a record in `{self.folder}/record` already")
        self.assertIn("another `record`", raised.exception.hint)

        # Prompts as long as those, in a column that rewards read.
        other = Dataset.from_list([{**row, "easy": (row["easy"] + 1) % 5} for row in PROMPTS])
        spy, judge = trainer(self.folder, run={"steps": 2}, dataset=other, max_steps=2)
        checkpoint = f"{self.folder}/trl/checkpoint-1"
        with self.assertRaises(allot.Error) as raised:
            spy.train(resume_from_checkpoint=checkpoint)
        self.assertEqual(raised.exception.what, f"`{checkpoint}` is of a run on another data set")
        self.assertIn("`train_dataset`", raised.exception.hint)
        self.assertEqual(judge.rollouts, 0)
        self.assertEqual((Path(self.folder) / "record/record.jsonl").read_bytes(), kept)

    def test_a_batch_that_does_not_divide_is_refused_by_trl(self):
        with self.assertRaisesRegex(
            ValueError, r"generation_batch_size \(20\) must be divisible by the global"
        ):
            trainer(self.folder, gradient_accumulation_steps=1, generation_batch_size=20)

    def test_policies_that_ship_run_or_say_what_trl_does_not_give_them(self):
        page = (ROOT / "docs/how-to/trl.md").read_text()
        table = dict(re.findall(r"^\| `([\w-]+)`.* \| (.*) \|$", page, re.M))
        tokenizer = AutoTokenizer.from_pretrained(MODEL)
        columns = {"difficulty": [i % 100 for i in range(24)], "source": ["a", "b"] * 12}
        for policy in allot.shipped():
            given = {
                "steps": 3,
                "groups": 2,
                "rollouts": 4,
                "longest": 6,
                "engine": "trl",
                "columns": columns,
            }
            try:
                allot.Allocator(policy, lengths(PROMPTS, tokenizer), signals=SIGNALS, **given)
            except allot.Error as error:
                missing = re.search(r"needs `([\w-]+)`", error.what)[1]
                self.assertIn(f"`{missing}`", table.get(policy, ""), f"{policy} is refused without a reason")
            else:
                self.assertNotIn(policy, table, f"{policy} is not refused")


if __name__ == "__main__":
    unittest.main()
