"""What allot's adapter for OpenRLHF refuses of its arguments before a model is loaded. Needs no OpenRLHF."""

from __future__ import annotations

import os
import tempfile
import unittest
from types import SimpleNamespace
from typing import Any

from allot import Error
from allot.openrlhf_checks import (
    TRIED,
    check,
    check_version,
    differences,
    kwargs,
    longest,
    ranks,
    resumes,
    steps,
    whole,
)

ARGS: dict[str, Any] = {
    "actor.num_nodes": 1,
    "actor.num_gpus_per_node": 4,
    "algo.advantage.estimator": "group_norm",
    "algo.dynamic_filtering_enable": False,
    "algo.kl.init_coef": 0.001,
    "algo.kl.use_loss": True,
    "ckpt.load_enable": False,
    "ckpt.path": "nowhere",
    "critic.freezing_steps": -1,
    "data.max_images_per_prompt": 0,
    "data.max_len": 2048,
    "ds.ring_attn_size": 1,
    "ds.tensor_parallel_size": 1,
    "reward.remote_url": ["reward.py"],
    "rollout.batch_size": 128,
    "rollout.max_new_tokens": 1024,
    "rollout.micro_batch_size": 8,
    "rollout.n_samples_per_prompt": 8,
    "train.agent_func_path": None,
    "train.async_enable": False,
    "train.batch_size": 128,
    "train.dynamic_batch_enable": False,
    "train.micro_batch_size": 4,
    "train.num_episodes": 2,
    "vllm.num_engines": 4,
}


def args(allot: dict[str, Any] | None = None, **changed: Any) -> SimpleNamespace:
    """OpenRLHF's arguments with other values, by names with two underscores for each dot."""
    made = SimpleNamespace(allot={"policy": "uniform"} if allot is None else allot)
    named = {name.replace("__", "."): value for name, value in changed.items()}
    for name, value in {**ARGS, **named}.items():
        *parts, last = name.split(".")
        inner = made
        for part in parts:
            if not hasattr(inner, part):
                setattr(inner, part, SimpleNamespace())
            inner = getattr(inner, part)
        setattr(inner, last, value)
    return made


class Refusals(unittest.TestCase):
    def refused(self, made: SimpleNamespace, *words: str) -> None:
        """The error's sentence has the first word, its hint the others."""
        with self.assertRaises(Error) as error:
            check(made)
        self.assertIn(words[0], error.exception.what)
        for word in words[1:]:
            self.assertIn(word, error.exception.hint or "")

    def test_openrlhf_s_options_for_grpo_pass(self):
        check(args())
        check(args(train__agent_func_path="agent.py", algo__kl__init_coef=0, algo__kl__use_loss=False))

    def test_a_version_that_was_not_tried_is_named_and_can_be_allowed(self):
        with self.assertRaises(Error) as error:
            check_version("0.10.2", {})
        self.assertIn(f"OpenRLHF 0.10.2, and allot was tried with {TRIED[0]}", error.exception.what)
        self.assertIn(f"openrlhf=={TRIED[0]}", error.exception.hint)
        check_version("0.10.2", {"any_version": True})
        check_version(TRIED[0], {})

    def test_options_that_would_make_a_run_wrong_are_named_with_what_to_do(self):
        self.refused(args(train__async_enable=True), "--train.async_enable is True", "leave")
        self.refused(args(algo__advantage__estimator="gae"), "estimator is gae", "estimator group_norm")
        self.refused(args(critic__freezing_steps=10), "--critic.freezing_steps is 10", "leave it out")
        self.refused(args(algo__dynamic_filtering_enable=True), "the policy's decision", "`policy: dapo`")
        self.refused(args(train__dynamic_batch_enable=True), "drops all rollouts beyond", "micro_batch_size")
        self.refused(args(data__max_images_per_prompt=1), "images", "texts")
        self.refused(
            args(reward__remote_url=None), "a reward model's", "--reward.remote_url", "agent_func_path"
        )
        self.refused(args(vllm__num_engines=0), "--vllm.num_engines is not set", "1 or more")
        self.refused(args(algo__kl__use_loss=False), "--algo.kl.init_coef is 0.001", "--algo.kl.use_loss")

    def test_batches_that_ranks_can_t_divide_are_refused(self):
        self.refused(
            args(train__batch_size=100), "can't be divided over 4 data-parallel ranks", "multiple of 16"
        )
        self.refused(
            args(rollout__micro_batch_size=64), "with --rollout.micro_batch_size 64", "multiple of 256"
        )
        check(args(rollout__micro_batch_size=64, ds__ring_attn_size=2))
        self.assertEqual(ranks(args(ds__ring_attn_size=2, ds__tensor_parallel_size=2)), 1)

    def test_keys_of_the_run_are_known_or_refused(self):
        self.refused(args({}), "does not say which policy", "policy: pilot-commit")
        self.refused(args({"policy": "uniform", "buget": {}}), "no key `buget`", "did you mean `budget`?")
        self.refused(args({"policy": "uniform", "temperature": 1}), "`temperature`", "--rollout.temperature")
        self.refused(args({"policy": "uniform", "requests": {}}), "`requests`", "samples all rollouts alike")

    def test_a_record_in_use_is_refused_unless_its_run_goes_on(self):
        with tempfile.TemporaryDirectory() as folder:
            open(os.path.join(folder, "record.jsonl"), "w").close()
            told = {"policy": "uniform", "record": folder}
            self.refused(
                args(told), "has a record of a run already, and --ckpt.load_enable", "another folder"
            )
            more = {"ckpt__load_enable": True, "ckpt__path": folder}
            self.refused(args(told, **more), "has no checkpoint of that run", "its --ckpt.path")
            os.mkdir(os.path.join(folder, "_actor"))
            check(args(told, **more))
            self.assertTrue(resumes(args(told, **more)))


class Numbers(unittest.TestCase):
    def test_groups_and_rollouts_are_openrlhf_s_by_default(self):
        found = kwargs(args({"policy": "uniform", "rollouts": 4, "record": "a"}))
        self.assertEqual((found["groups"], found["rollouts"]), (128, 4))
        self.assertEqual(whole(found)["record"], os.path.abspath("a"))

    def test_steps_are_openrlhf_s_by_default(self):
        # OpenRLHF's last batch of an episode may be smaller.
        self.assertEqual(steps(args(), 1000), 2 * 8)
        self.assertEqual(steps(args({"policy": "uniform", "steps": 5}), 1000), 5)

    def test_the_longest_rollout_is_openrlhf_s_limit(self):
        self.assertEqual(longest(args()), 1024)
        self.assertEqual(longest(args(rollout__max_new_tokens=None)), 2048)
        self.assertEqual(longest(args(train__agent_func_path="agent.py")), 2048)
        self.assertEqual(longest(args({"policy": "uniform", "longest": 7})), 7)

    def test_what_differs_from_a_checkpoint_is_told_with_its_option(self):
        before = {"data": "a", "steps": 5, "groups": 4}
        self.assertEqual(list(differences(before, before)), [])
        told = list(differences(before, {**before, "data": "b", "steps": 6}))
        self.assertEqual([option for _, option in told], ["--data.prompt_dataset", "`steps` in --allot"])
        self.assertIn("other prompts", told[0][0])
        self.assertEqual(told[1][0], "steps is 6, and was 5 when the run began")


if __name__ == "__main__":
    unittest.main()
