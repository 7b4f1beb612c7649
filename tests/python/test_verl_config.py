"""What allot's trainer for verl refuses of a configuration, by name and before anything is loaded. Needs no verl."""

from __future__ import annotations

import copy
import unittest
from typing import Any

from allot import Error
from allot.verl_config import KWARGS, TRIED, check, check_ranks, differences, kwargs, steps

CONFIG: dict[str, Any] = {
    "algorithm": {"adv_estimator": "grpo", "use_kl_in_reward": False, "filter_groups": None},
    "critic": {"enable": None},
    "data": {"train_batch_size": 64, "train_files": "a"},
    "actor_rollout_ref": {"actor": {"ppo_mini_batch_size": 16}, "rollout": {"n": 8}},
    "reward": {"reward_model": {"enable": False, "enable_resource_pool": False}},
    "trainer": {
        "critic_warmup": 0,
        "total_epochs": 15,
        "total_training_steps": None,
        "v1": {
            "sync": {},
            "sampler": {"sampler_kwargs": {"policy": "uniform"}, "custom_sampler": {"path": None}},
        },
    },
}


def config(**changed: Any) -> dict[str, Any]:
    """The configuration with other values, by keys with two underscores for each dot."""
    made = copy.deepcopy(CONFIG)
    for key, value in changed.items():
        *parts, last = key.split("__")
        inner = made
        for part in parts:
            inner = inner.setdefault(part, {}) or {}
        inner[last] = value
    return made


def with_kwargs(**given: Any) -> dict[str, Any]:
    return config(trainer__v1__sampler__sampler_kwargs=given)


class Refusals(unittest.TestCase):
    def refused(self, made: dict[str, Any], *words: str, version: str = TRIED[0]) -> None:
        """The error's sentence has the first word, its hint the others."""
        with self.assertRaises(Error) as error:
            check(made, version)
        self.assertIn(words[0], error.exception.what)
        for word in words[1:]:
            self.assertIn(word, error.exception.hint or "")

    def test_verl_s_own_example_passes(self):
        check(config(), TRIED[0])

    def test_a_version_that_was_not_tried_is_named_and_can_be_allowed(self):
        self.refused(
            config(), f"verl 0.7.1, and allot was tried with {TRIED[0]}", f"verl=={TRIED[0]}", version="0.7.1"
        )
        check(with_kwargs(policy="uniform", any_version=True), "0.7.1")

    def test_what_a_policy_may_not_choose_under_verl_is_named(self):
        self.refused(with_kwargs(policy="uniform", requests={"least_tokens": 4}), "`requests`", "leave it out")
        self.refused(with_kwargs(policy="uniform", replay=True), "`replay`", "leave it out")
        self.refused(with_kwargs(policy="uniform", temperature=0.5), "`temperature`", "rollout.temperature")

    def test_keys_that_allot_cannot_do_with_are_named_with_what_to_set(self):
        for changed, key, hint in [
            ({"algorithm__adv_estimator": "gae"}, "algorithm.adv_estimator", "algorithm.adv_estimator=grpo"),
            ({"critic__enable": True}, "critic.enable", "leave it out"),
            ({"trainer__critic_warmup": 5}, "trainer.critic_warmup", "trainer.critic_warmup=0"),
            ({"algorithm__use_kl_in_reward": True}, "algorithm.use_kl_in_reward", "use_kl_loss=True"),
            (
                {"algorithm__filter_groups": {"enable": True}},
                "algorithm.filter_groups.enable",
                "policy: dapo",
            ),
            ({"trainer__v1__sampler__custom_sampler": {"path": "a.py"}}, "custom_sampler.path", "path=null"),
            (
                {"trainer__v1__sampler__sync_refill_failed_groups": True},
                "sync_refill_failed_groups",
                "=False",
            ),
            (
                {"reward__reward_model__enable": True},
                "reward.reward_model.enable",
                "enable_resource_pool=True",
            ),
            (
                {"trainer__v1__sync": {"parameter_sync_step": 4}},
                "parameter_sync_step",
                "parameter_sync_step=1",
            ),
        ]:
            with self.subTest(key):
                self.refused(config(**changed), key, hint)

    def test_a_reward_model_with_gpus_of_its_own_passes(self):
        check(config(reward__reward_model={"enable": True, "enable_resource_pool": True}), TRIED[0])

    def test_wrong_keys_of_the_run_are_named(self):
        self.refused(with_kwargs(policy="uniform", rolouts=4), f"{KWARGS} has no key `rolouts`", "rollouts")
        self.refused(with_kwargs(groups=4), "which policy", "policy: pilot-commit")
        self.refused(with_kwargs(policy="uniform", steps=4), "`steps`", "trainer.total_training_steps")


class Numbers(unittest.TestCase):
    def test_groups_and_rollouts_are_verl_s_where_they_are_not_given(self):
        self.assertEqual(kwargs(config()), {"policy": "uniform", "groups": 64, "rollouts": 8})
        given = kwargs(with_kwargs(policy="uniform", groups=5, budget={"rollouts": 9}))
        self.assertEqual((given["groups"], given["rollouts"], given["budget"]), (5, 8, {"rollouts": 9}))

    def test_steps_are_those_of_verl_s_loop(self):
        self.assertEqual(steps(config(), 7473), 116 * 15)
        self.assertEqual(steps(config(trainer__total_training_steps=100), 7473), 100)
        # Epochs end the loop, whatever the steps.
        self.assertEqual(steps(config(trainer__total_training_steps=100_000), 7473), 116 * 15)
        with self.assertRaises(Error) as error:
            steps(config(), 63)
        self.assertIn("data.train_batch_size", error.exception.what)

    def test_an_optimizer_step_is_divided_over_the_ranks(self):
        self.assertIsNone(check_ranks(config(), 8))
        with self.assertRaises(Error) as error:
            check_ranks(config(), 24)
        self.assertIn("24 data-parallel ranks", error.exception.what)
        self.assertIn("a multiple of 3", error.exception.hint or "")
        small = config(trainer__v1__sampler__sampler_kwargs={"policy": "uniform", "groups": 4, "rollouts": 8})
        self.assertIn("from 32 to 128 rows", check_ranks(small, 8) or "")

    def test_what_differs_from_a_checkpoint_is_told_by_verl_s_keys(self):
        before = {"data": "a", "steps": 6, "seed": 1, "budget": {"rollouts": 5}}
        ((told, key),) = differences(before, {**before, "budget": {"rollouts": 9}})
        self.assertIn("`budget`", key)
        self.assertIn("9", told)
        ((what, key),) = differences(before, {**before, "steps": 60})
        self.assertIn("trainer.total_training_steps is 60, and was 6", what)
        ((what, key),) = differences(before, {**before, "data": "b"})
        self.assertEqual(key, "data.train_files")
        ((what, key),) = differences(before, {**before, "seed": 2})
        self.assertEqual(key, f"`seed` in {KWARGS}")


if __name__ == "__main__":
    unittest.main()
