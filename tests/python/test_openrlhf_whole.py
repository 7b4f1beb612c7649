"""Whole runs of OpenRLHF under policies, on a CPU: its own script, trainer loop, agent executors, reward
functions, evaluations and checkpoints, with Ray; DeepSpeed on two data-parallel ranks over gloo updates a
tiny model, whose weights go to the sampler by OpenRLHF's own way. In vLLM's place samples transformers: see
openrlhf_cpu.py.

Needs OpenRLHF with the packages of `.ci/trainers`, and a C++ compiler for DeepSpeed's optimizer; skipped
without them. Some minutes on two cores.
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

if find_spec("openrlhf") is None:
    raise unittest.SkipTest("no OpenRLHF here")
if shutil.which("g++") is None:
    raise unittest.SkipTest("no g++ here, which DeepSpeed compiles its optimizer for CPUs with")

import torch
from openrlhf_run import PROMPTS, prepare, train
from safetensors.torch import load_file

#: The run that the tests look at.
WHOLE = {
    "policy": "pilot-commit",
    "settings": {"pilot": 2, "commit": 5},
    "groups": 3,
    "rollouts": 6,
    "max_age": 2,
    "budget": {"rollouts": 130},
}


def logged(log: str, name: str) -> list[float]:
    """A metric, step by step, as OpenRLHF logged it."""
    return [
        float(found) for found in re.findall(rf"Global step \d+: .*'{re.escape(name)}': ([-\d.e]+|nan)", log)
    ]


class Whole(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="allot-openrlhf-", ignore_cleanup_errors=True)
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = Path(scratch.name)
        prepare(cls.folder)
        evaluation = [f"--eval.dataset={cls.folder}/prompts.jsonl", "--eval.n_samples_per_prompt=1"]
        #: A step that saves and evaluates, and is not the last one.
        cls.every = 3
        cls.more = [
            *evaluation,
            f"--eval.steps={cls.every}",
            f"--ckpt.save_steps={cls.every}",
            "--algo.advantage.is_correction_level=token",
        ]
        cls.log = train(cls.folder, "whole", WHOLE, *cls.more)

    def steps(self, name: str = "whole") -> list[dict]:
        return lines(self.folder / name / "record", "step")

    def requests(self, name: str, *what: str) -> list[dict]:
        """What the sampler was asked for: by default for rollouts."""
        told = [json.loads(line) for line in (self.folder / name / "requests").read_text().splitlines()]
        return [line for line in told if line["what"] in (what or ("generate",))]

    def test_the_budget_s_end_is_a_normal_end(self):
        (end,) = lines(self.folder / "whole/record", "end")
        self.assertEqual((end["reason"], end["normal"]), ("the budget is spent", True))
        self.assertLessEqual(end["spent"]["run_rollouts"], 130)
        self.assertIn("allot: the budget is spent", self.log)
        last = len(logged(self.log, "actor_grad_norm"))
        self.assertNotEqual(last % self.every, 0, "the last step saves anyway: nothing is tested")
        # A checkpoint and an evaluation of the last step, and OpenRLHF's own last act.
        actor = self.folder / "whole/ckpt/_actor"
        self.assertTrue((actor / f"global_step{last}").is_dir())
        # OpenRLHF saves once more after its best evaluation.
        self.assertIn((actor / "latest").read_text(), (f"global_step{last}", f"best_global_step{last}"))
        self.assertRegex(self.log, rf"Evaluation completed in .*, global_step {last}, ")
        self.assertTrue((self.folder / "whole/model/model.safetensors").exists())

    def test_steps_learn_from_uneven_groups(self):
        updates = [step for step in self.steps() if step["updated"]]
        self.assertGreater(len(updates), 2)
        self.assertEqual(len(updates), len(logged(self.log, "actor_grad_norm")))
        self.assertGreater(len(set(counts(self.folder / "whole/record"))), 1)
        self.assertTrue(any(step["held"] for step in updates), "nothing was ever held")
        before = load_file(self.folder / "model/model.safetensors")
        after = load_file(self.folder / "whole/model/model.safetensors")
        # OpenRLHF saves the tied head, too.
        self.assertLessEqual(before.keys(), after.keys())
        self.assertTrue(all(not torch.equal(before[name].bfloat16(), after[name]) for name in before))

    def test_batches_are_filled_up_and_what_is_logged_is_of_rollouts(self):
        trained, filled = logged(self.log, "allot/trained"), logged(self.log, "allot/filled")
        self.assertGreater(len(set(trained)), 1)
        # Optimizer steps of 8 rows.
        self.assertTrue(
            all((a + b) % 8 == 0 for a, b in zip(trained, filled, strict=True)), (trained, filled)
        )
        self.assertTrue(any(filled))
        self.assertEqual(trained, logged(self.log, "rollout/num_samples"))
        self.assertNotIn("nan", self.log[self.log.index("Global step") :])

    def test_what_samples_has_the_weights_that_learn(self):
        self.assertGreater(len({line["weights"] for line in self.requests("whole")}), 2)
        # OpenRLHF compares the log-probabilities of both. In the first step nothing is held, and they differ
        # by bf16 alone.
        self.assertLess(abs(logged(self.log, "vllm_kl")[0]), 0.05)

    def test_the_ledger_is_what_was_sampled_and_judged(self):
        (end,) = lines(self.folder / "whole/record", "end")
        seeded = [line for line in self.requests("whole") if line["seed"] is not None]
        self.assertEqual(end["spent"]["run_rollouts"], len(seeded))
        self.assertEqual(end["spent"]["run_tokens"], sum(line["tokens"] for line in seeded))
        self.assertEqual(sum(counts(self.folder / "whole/record")), len(seeded))
        self.assertEqual(len({line["seed"] for line in seeded}), len(seeded))
        judged = len((self.folder / "whole/rewards").read_text().splitlines())
        self.assertEqual(judged, len(seeded) + PROMPTS * self.log.count("Evaluation completed"))

    def test_the_record_is_read_as_any_other(self):
        self.assertIn("no difference", program("replay", self.folder / "whole/record", "pilot-commit"))
        told = [
            json.loads(line)
            for line in (self.folder / "whole/record/evaluations.jsonl").read_text().splitlines()
        ]
        self.assertEqual(len(told), self.log.count("Evaluation completed"))
        self.assertTrue(all(0 <= line["accuracy"] <= 1 for line in told))

    def cut(self, name: str) -> None:
        """A copy of the run, as if it had been cut off after a step that saved."""
        shutil.copytree(self.folder / "whole", self.folder / name)
        actor = self.folder / name / "ckpt/_actor"
        for path in actor.glob("*global_step*"):
            if path.name != f"global_step{self.every}":
                shutil.rmtree(path)
        (actor / "latest").write_text(f"global_step{self.every}")
        (self.folder / name / "requests").unlink()

    def test_a_run_that_was_cut_off_goes_on(self):
        self.cut("cut")
        log = train(self.folder, "cut", WHOLE, "--ckpt.load_enable", *self.more)
        whole, cut = (
            (self.folder / name / "record/record.jsonl").read_text().splitlines() for name in ("whole", "cut")
        )
        # OpenRLHF shuffles an update's rows by a state that no checkpoint of its keeps, so later weights may
        # differ by a bit. All that is decided and sampled with the checkpoint's weights is the same.
        updates = [i for i, line in enumerate(whole) if json.loads(line).get("updated")]
        until = updates[self.every] + 1
        self.assertEqual(whole[:until], cut[:until])
        self.assertEqual(
            {line["weights"] for line in self.requests("cut")} & {0}, set(), "old weights were sampled with"
        )
        self.assertEqual(
            len(logged(log, "actor_grad_norm")), len(logged(self.log, "actor_grad_norm")) - self.every
        )
        (end,) = lines(self.folder / "cut/record", "end")
        self.assertEqual(end["reason"], "the budget is spent")

    def test_a_checkpoint_of_another_run_and_a_record_in_use_are_refused(self):
        self.cut("refused")
        log = train(self.folder, "refused", WHOLE, "--ckpt.load_enable", *self.more, status=1, data="others")
        self.assertIn("this is not the run of the checkpoint: the data set has other prompts", log)
        self.assertIn("hint: set --data.prompt_dataset as it was", log)
        log = train(self.folder, "refused", WHOLE, *self.more, status=1)
        self.assertIn("refused/record, has a record of a run already, and --ckpt.load_enable is not set", log)
        self.assertFalse((self.folder / "refused/requests").exists(), "something was sampled")

    def test_an_agent_s_turns_are_one_rollout(self):
        kwargs = {"policy": "prospect", "steps": 3, "groups": 3, "rollouts": 4}
        more = [
            f"--train.agent_func_path={self.folder}/agent.py",
            "--actor.num_gpus_per_node=1",
            "--train.batch_size=4",
        ]
        more += [
            "--algo.kl.init_coef=1e-3",
            "--algo.kl.use_loss",
            "--algo.kl.estimator=k3",
            "--ref.num_gpus_per_node=1",
        ]
        # The samplers give their memory back while the model learns.
        more += ["--train.colocate_all", "--vllm.enable_sleep", "--vllm.sync_backend=gloo"]
        log = train(self.folder, "agent", kwargs, *more)
        (end,) = lines(self.folder / "agent/record", "end")
        rollouts, told = end["spent"]["run_rollouts"], self.requests("agent")
        self.assertEqual(len(told), 2 * rollouts)
        # What the environment said is nobody's token.
        self.assertEqual(end["spent"]["run_tokens"], sum(line["tokens"] for line in told))
        self.assertEqual(len({line["seed"] for line in told}), len(told))
        self.assertEqual(set(counts(self.folder / "agent/record")), {1})
        self.assertEqual(len(logged(log, "actor_grad_norm")), 3)
        self.assertTrue(all(kl > 0 for kl in logged(log, "kl")[1:]), logged(log, "kl"))
        awake = [
            line["what"] == "wake_up"
            for line in self.requests("agent", "wake_up", "sleep")
            if line.get("tags") != ["weights"]
        ]
        # At first OpenRLHF puts them to sleep; then they are awake for each batch, and for the one that did
        # not come.
        self.assertEqual(awake, [False, *[True, False] * 4])


if __name__ == "__main__":
    unittest.main()
