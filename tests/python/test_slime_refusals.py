"""slime: what can't be done right is refused in a sentence, before anything is sampled, and with a hint."""

from __future__ import annotations

import unittest
from pathlib import Path
from unittest import mock

import allot
import slime_here  # noqa: F401
from allot import rows_checks, slime_checks, slime_train
from slime_here import AllocatedSource, InFolder, arguments

WORDS = "slime can't be allotted rollouts: "


class Refusals(InFolder):
    def refused(self, what: str, hint: str, **more):
        args = arguments(self.folder)
        vars(args).update(more)
        with self.assertRaises(allot.Error) as raised:
            AllocatedSource(args)
        self.assertEqual(raised.exception.what, WORDS + what)
        self.assertIn(hint, raised.exception.hint)

    def test_settings(self):
        self.refused("partial rollouts can't be planned for", "--partial-rollout", partial_rollout=True)
        self.refused("advantages are the allocator's", "grpo, gspo, cispo", advantage_estimator="ppo")
        self.refused("advantages are the allocator's", "--normalize-advantages", normalize_advantages=True)
        self.refused("it has no data set of its own", "--prompt-data", rollout_global_dataset=False)
        self.refused("it has no data set of its own", "--prompt-data", prompt_data=None)
        self.refused("--num-rollout is missing", "--num-epoch", num_rollout=None)
        self.refused("there is no section `allot`", "--custom-config-path", allot=None)

        requests = arguments(self.folder).allot | {"requests": {"temperature": [0.5, 1.5]}}
        what = "`requests` in the section `allot` lets a policy choose the temperature"
        self.refused(what, "--rollout-temperature", allot=requests)

    def test_what_slime_says_by_itself_is_not_for_the_section_to_say(self):
        for name, value, hint in [
            ("update", {"mini_batch": 8, "passes": 1}, "--global-batch-size"),
            ("temperature", 0.5, "--rollout-temperature"),
            ("signals", ["mean-entropy"], "measures none"),
        ]:
            section = arguments(self.folder).allot | {name: value}
            self.refused(f"`{name}` in the section `allot` is not for you to say", hint, allot=section)
        what = "--custom-advantage-function-path can't be used"
        self.refused(what, "the allocator's", custom_advantage_function_path="a.b")

    def test_names_of_the_adapter_that_are_missing(self):
        # Without it slime would normalize rewards itself.
        what = "--custom-reward-post-process-path is None"
        self.refused(what, "allot.slime.advantages", custom_reward_post_process_path=None)
        what = "--rollout-function-path is slime.rollout.sglang_rollout.generate_rollout"
        self.refused(what, "allot.slime.generate_rollout", rollout_function_path=what.split(" is ")[1])

    def test_functions_that_would_never_be_called(self):
        what = "--dynamic-sampling-filter-path can't be used"
        self.refused(what, "`dapo`", dynamic_sampling_filter_path="a.b")
        what = "--custom-convert-samples-to-train-data-path can't be used"
        self.refused(what, "leave it out", custom_convert_samples_to_train_data_path="a.b")

    def test_rewards_of_groups_in_slime_s_evaluation(self):
        what = "its evaluation can't be done with --group-rm"
        self.refused(what, "--eval-interval", group_rm=True, eval_interval=5)
        args = arguments(self.folder, group_rm=True, eval_interval=5, eval_function_path="mine.evaluate")
        AllocatedSource(args)

    def test_a_batch_that_can_t_be_divided(self):
        what = "--global-batch-size 8 can't be divided over 3 data-parallel ranks with micro batches of 4"
        self.refused(what, "take a multiple of 12", actor_num_gpus_per_node=3)
        more = {"actor_num_nodes": 2, "actor_num_gpus_per_node": 12, "tensor_model_parallel_size": 2}
        what = "--global-batch-size 8 can't be divided over 6 data-parallel ranks"
        more |= {
            "context_parallel_size": 2,
            "use_dynamic_batch_size": True,
            "pipeline_model_parallel_size": 1,
        }
        self.refused(what, "take a multiple of 6", **more)
        AllocatedSource(arguments(self.folder, global_batch_size=12, **more))
        more |= {"pipeline_model_parallel_size": 2, "virtual_pipeline_model_parallel_size": 2}
        what = "--global-batch-size 8 can't be divided over 3 data-parallel ranks in groups of 2"
        self.refused(what, "take a multiple of 6", **more)

    def test_the_section(self):
        given = arguments(self.folder).allot
        what = "the section `allot` has `setings`, which means nothing"
        self.refused(what, "did you mean `settings`?", allot={**given, "setings": {}})
        missing = {name: given[name] for name in given if name != "groups"}
        self.refused("the section `allot` lacks `groups`", "add `groups`", allot=missing)
        what = "`row_rewards` is `mean` in the section `allot`"
        self.refused(what, "same, sum, last", allot={**given, "row_rewards": "mean"})

    def test_a_column_that_is_not_there(self):
        args = arguments(self.folder, allot={"policy": "adarft", "settings": {}})
        with self.assertRaises(allot.Error) as raised:
            AllocatedSource(args)
        what = "the policy wants the column `difficulty`, which prompt 0 does not have in its metadata"
        self.assertEqual(raised.exception.what, what)
        self.assertIn("--metadata-key", raised.exception.hint)

    def test_a_version_that_was_not_tried(self):
        fake = Path(self.folder) / "slime/__init__.py"
        (Path(self.folder) / "setup.py").write_text('setup(\n    name="slime",\n    version="0.9.0",\n)\n')
        with mock.patch.object(slime_checks.slime, "__file__", str(fake)):
            self.refused("slime 0.9.0 was not tried", "take 0.3.1, or say `untried: true`")
            AllocatedSource(arguments(self.folder, allot={"untried": True}))
            (Path(self.folder) / "setup.py").unlink()
            what = "this slime, which has no version, was not tried"
            with mock.patch.object(
                rows_checks.metadata, "version", side_effect=rows_checks.metadata.PackageNotFoundError
            ):
                self.refused(what, "take 0.3.1")

    def test_a_loop_that_it_can_t_follow(self):
        started = (
            "it was not started by `python -m allot.slime_train train.py …`, which ends it with the budget"
        )
        self.refused(started, "`train_async.py` can't be followed", allot_ends=False)
        for path, what in [
            ("slime/train_async.py", "asks for a batch before the update on the last one"),
            ("", "`` is not slime's `train.py`"),
            (f"{self.folder}/train.py", "is not slime's `train.py`"),
        ]:
            with self.assertRaises(allot.Error) as raised:
                slime_train.load(path)
            self.assertIn(what, raised.exception.what)
            self.assertIn("python -m allot.slime_train", raised.exception.hint)


if __name__ == "__main__":
    unittest.main()
