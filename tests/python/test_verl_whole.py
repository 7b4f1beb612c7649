"""Whole runs of verl under policies, on a CPU: its own entry point, trainer loop, TransferQueue, agent loops, reward
workers and checkpoints; FSDP with two data-parallel ranks over gloo updates a tiny model. In vLLM's place samples
transformers, and verl is told of CPUs as of other hardware: see verl_run.py.

Needs verl 0.9 with the packages of `.ci/trainers`; skipped without it. Some minutes on two cores.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import unittest
from importlib.util import find_spec
from pathlib import Path

from recorded import counts, lines
from recorded import allot as program

if find_spec("verl") is None:
    raise unittest.SkipTest("no verl here")

import torch
from allot import Error
from allot.verl import AllocatedTrainer
from hydra import compose, initialize_config_module
from safetensors.torch import load_file
from verl_run import PROMPTS, overrides, prepare, train

PILOT = {
    "policy": "pilot-commit",
    "settings": {"pilot": 2, "commit": 5},
    "groups": 3,
    "rollouts": 6,
    "max_age": 2,
}

#: The run that the tests look at.
WHOLE = {**PILOT, "budget": {"rollouts": 100}}


def logged(log: str, name: str) -> list[float]:
    """A metric, step by step, as verl printed it."""
    return [float(found) for found in re.findall(rf"step:\d.* - {re.escape(name)}:([-\d.e]+)", log)]


class Whole(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="allot-verl-", ignore_cleanup_errors=True)
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = Path(scratch.name)
        prepare(cls.folder)
        cls.more = ["trainer.test_freq=2", "trainer.val_before_train=true"]
        cls.log = train(cls.folder, "whole", WHOLE, *cls.more)

    def steps(self, name: str = "whole") -> list[dict]:
        return lines(self.folder / name / "record", "step")

    def weights(self, name: str, step: int) -> dict[str, torch.Tensor]:
        path = self.folder / name / f"verl/global_step_{step}/actor/huggingface/model.safetensors"
        return load_file(path)

    def test_the_budget_s_end_is_a_normal_end(self):
        (end,) = lines(self.folder / "whole/record", "end")
        self.assertEqual((end["reason"], end["normal"]), ("the budget is spent", True))
        self.assertLessEqual(end["spent"]["run_rollouts"], 100)
        self.assertIn("allot: the budget is spent", self.log)
        # As after verl's last step: a validation, and a checkpoint.
        self.assertRegex(self.log, r"val-core/numbers")
        newest = (self.folder / "whole/verl/latest_checkpointed_iteration.txt").read_text()
        self.assertEqual(int(newest), len(logged(self.log, "actor/grad_norm")))

    def test_steps_learn_from_uneven_groups(self):
        updates = [step for step in self.steps() if step["updated"]]
        self.assertGreater(len(updates), 2)
        self.assertEqual(len(updates), len(logged(self.log, "actor/grad_norm")))
        self.assertGreater(len(set(counts(self.folder / "whole/record"))), 1)
        self.assertTrue(any(step["held"] for step in updates), "nothing was ever held")
        before, after = (
            load_file(self.folder / "model/model.safetensors"),
            self.weights("whole", len(updates)),
        )
        self.assertEqual(before.keys(), after.keys())
        self.assertTrue(all(not torch.equal(before[name].float(), after[name].float()) for name in before))

    def test_uneven_batches_are_divided_over_the_ranks_and_none_is_lost(self):
        trained, filled = logged(self.log, "allot/trained"), logged(self.log, "allot/filled")
        self.assertGreater(len(set(trained)), 1)
        # Two ranks, and optimizer steps of 2 × 4 rollouts.
        self.assertTrue(
            all((a + b) % 8 == 0 for a, b in zip(trained, filled, strict=True)), (trained, filled)
        )
        self.assertTrue(any(filled))

    def test_what_samples_has_the_weights_that_learn(self):
        told = [json.loads(line) for line in (self.folder / "whole/requests").read_text().splitlines()]
        self.assertGreater(len({line["version"] for line in told}), 2)
        # verl compares the log-probabilities of both: in the first step nothing is held, and they are the same.
        self.assertLess(logged(self.log, "training/rollout_probs_diff_max")[0], 1e-3)

    def test_the_ledger_is_what_was_sampled_and_judged(self):
        (end,) = lines(self.folder / "whole/record", "end")
        validations = len(re.findall(r"step:\d.*val-core/numbers/acc/mean@1:", self.log))
        judged = len((self.folder / "whole/rewards").read_text().splitlines()) - validations * PROMPTS
        self.assertEqual(end["spent"]["run_rollouts"], judged)
        self.assertEqual(sum(counts(self.folder / "whole/record")), judged)

    def test_a_run_that_was_cut_off_goes_on_to_the_same_record_and_the_same_weights(self):
        shutil.copytree(self.folder / "whole", self.folder / "cut")
        verl = self.folder / "cut/verl"
        (verl / "latest_checkpointed_iteration.txt").write_text("2")
        last = len(logged(self.log, "actor/grad_norm"))
        for step in range(3, last + 1):
            shutil.rmtree(verl / f"global_step_{step}")
        state = torch.load(verl / "global_step_2/allot.pt", weights_only=False)
        self.assertIsNotNone(state["held"], "nothing was held, so this would show little")
        # The record is longer than the checkpoint, as after a run that was killed.
        log = train(self.folder, "cut", WHOLE, *self.more)
        self.assertEqual(len(logged(log, "actor/grad_norm")), last - 2)
        records = [(self.folder / name / "record/record.jsonl").read_bytes() for name in ("whole", "cut")]
        self.assertEqual(*records)
        whole, cut = (self.weights(name, last) for name in ("whole", "cut"))
        self.assertTrue(all(torch.equal(whole[name], cut[name]) for name in whole))

    def test_episodes_of_several_turns_count_once_and_a_run_ends_by_its_steps(self):
        more = [
            f"actor_rollout_ref.rollout.agent.agent_loop_config_path={self.folder}/loops.yaml",
            "trainer.total_training_steps=3",
        ]
        log = train(self.folder, "turns", {"policy": "prospect"}, *more, data="episodes")
        record = self.folder / "turns/record"
        (end,) = lines(record, "end")
        self.assertEqual((end["reason"], end["normal"], end["steps"]), ("all steps are done", True, 3))
        told = [json.loads(line) for line in (self.folder / "turns/requests").read_text().splitlines()]
        rollouts = end["spent"]["run_rollouts"]
        self.assertGreater(rollouts, 2 * 4 * 4)  # By verl's keys: four groups of four in a step.
        self.assertEqual(rollouts, sum(counts(record)))
        self.assertEqual(len((self.folder / "turns/rewards").read_text().splitlines()), rollouts)
        self.assertGreater(len(told), rollouts)
        # What a tool said is nobody's token.
        self.assertEqual(end["spent"]["run_tokens"], sum(line["tokens"] for line in told))
        self.assertEqual(set(counts(record)), {1})
        self.assertEqual(len(logged(log, "actor/grad_norm")), 3)
        program("replay", record, "prospect")

    def begun(self, name: str, kwargs: dict, *more: str, data: str = "prompts") -> AllocatedTrainer:
        """A run's trainer, as far as it is made before any model is loaded."""
        with initialize_config_module("verl.trainer.config", version_base=None):
            config = compose("ppo_trainer", overrides(self.folder, name, kwargs, *more, data=data))
        trainer = AllocatedTrainer(config)
        trainer._init_tokenizer()
        trainer._init_dataloader()
        return trainer

    def test_a_record_in_use_is_refused_before_a_model_is_loaded(self):
        for more, why in [
            (["trainer.resume_mode=disable"], "`trainer.resume_mode` is disable"),
            ([f"trainer.default_local_dir={self.folder}/nowhere"], "has no checkpoint of that run"),
        ]:
            with self.assertRaises(Error) as error:
                self.begun("whole", PILOT, *more)
            self.assertIn(
                f"{self.folder}/whole/record, has a record of a run already, and ", error.exception.what
            )
            self.assertIn(why, error.exception.what)
            self.assertIn("give `record` another folder", error.exception.hint)

    def test_a_checkpoint_of_another_run_is_refused_by_verl_s_key(self):
        state = torch.load(self.folder / "whole/verl/global_step_1/allot.pt", weights_only=False)
        for kwargs, more, data, words in [
            (WHOLE, [], "others", "the data set has other prompts"),
            (
                WHOLE,
                ["trainer.total_training_steps=9"],
                "prompts",
                "trainer.total_training_steps is 9, and was 30",
            ),
            (WHOLE, ["data.max_response_length=32"], "prompts", "data.max_response_length is 32, and was 16"),
            ({**PILOT, "budget": {"rollouts": 200}}, [], "prompts", "`budget` in trainer.v1.sampler.sampler_kwargs is"),
            (
                {**WHOLE, "groups": 5},
                [],
                "prompts",
                "`groups` in trainer.v1.sampler.sampler_kwargs is 5, and was 3",
            ),
        ]:
            buffer = self.begun("whole", kwargs, *more, data=data).replay_buffer
            with self.assertRaises(Error) as error:
                buffer.load_state_dict(state)
            self.assertIn(words, error.exception.what)
            self.assertIn("as it was, or begin another run", error.exception.hint)

    def test_the_record_is_read_as_any_other(self):
        self.assertIn("no difference", program("replay", self.folder / "whole/record", "pilot-commit"))
        told = [step["accuracy"] for step in self.steps() if "accuracy" in step]
        (head,) = lines(self.folder / "whole/record", "head")
        self.assertEqual(len(told), len(logged(self.log, "actor/grad_norm")) // 2)
        self.assertTrue(all(0 <= accuracy <= 1 for accuracy in [head["accuracy"], *told]))
        program("report", self.folder / "whole/record", "--out", self.folder / "report")
        self.assertIn("pilot-commit", (self.folder / "report/index.html").read_text())


if __name__ == "__main__":
    unittest.main()
