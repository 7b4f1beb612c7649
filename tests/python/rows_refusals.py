"""Trainers of rows: what can't be done right is refused in a sentence, before anything is sampled, and with a hint."""

from __future__ import annotations

from argparse import Namespace
from importlib import import_module
from pathlib import Path
from typing import ClassVar
from unittest import mock

import allot
from allot import rows_checks
from allot.rows_train import Loop
from rows_here import InFolder


def load(path: str):
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


class Refusals(InFolder):
    """What any trainer of rows refuses."""

    #: The trainer's checks, and its script.
    checks: ClassVar[rows_checks.Trainer]
    loop: ClassVar[Loop]

    def refused(self, what: str, hint: str, **more):
        args = self.arguments()
        vars(args).update(more)
        with self.assertRaises(allot.Error) as raised:
            self.source(args)
        what = f"{self.checks.name} can't be allotted rollouts: {what}"
        self.assertEqual(raised.exception.what, what)
        self.assertIn(hint, raised.exception.hint)

    def source(self, args: Namespace):
        return load(args.data_source_path)(args)

    def test_settings(self):
        self.refused("partial rollouts can't be planned for", "--partial-rollout", partial_rollout=True)
        self.refused(
            "advantages are the allocator's", ", ".join(self.checks.estimators), advantage_estimator="ppo"
        )
        self.refused("advantages are the allocator's", "--normalize-advantages", normalize_advantages=True)
        self.refused("it has no data set of its own", "--prompt-data", rollout_global_dataset=False)
        self.refused("it has no data set of its own", "--prompt-data", prompt_data=None)
        self.refused("--num-rollout is missing", "--num-epoch", num_rollout=None)
        self.refused(
            "--loss-type is sft_loss, which takes no advantages", "policy_loss", loss_type="sft_loss"
        )
        what = "advantages would not reach the loss"
        self.refused(what, "--disable-compute", compute_advantages_and_returns=False)
        self.refused("there is no section `allot`", "--custom-config-path", allot=None)

        requests = self.arguments().allot | {"requests": {"temperature": [0.5, 1.5]}}
        what = "`requests` in the section `allot` lets a policy choose the temperature"
        self.refused(what, "--rollout-temperature", allot=requests)

    def test_what_the_trainer_says_by_itself_is_not_for_the_section_to_say(self):
        for name, value, hint in [
            ("update", {"mini_batch": 8, "passes": 1}, "--global-batch-size"),
            ("temperature", 0.5, "--rollout-temperature"),
            ("signals", ["mean-entropy"], "measures none"),
        ]:
            section = self.arguments().allot | {name: value}
            self.refused(f"`{name}` in the section `allot` is not for you to say", hint, allot=section)
        what = "--custom-advantage-function-path can't be used"
        self.refused(what, "the allocator's", custom_advantage_function_path="a.b")

    def test_names_of_the_adapter_that_are_missing(self):
        # Without it slime would normalize rewards itself.
        what = "--custom-reward-post-process-path is None"
        self.refused(
            what, self.checks.paths["custom_reward_post_process_path"], custom_reward_post_process_path=None
        )
        what = "--rollout-function-path is mine.rollout.generate"
        self.refused(
            what, self.checks.paths["rollout_function_path"], rollout_function_path=what.split(" is ")[1]
        )

    def test_functions_that_would_never_be_called(self):
        what = "--dynamic-sampling-filter-path can't be used"
        self.refused(what, "`dapo`", dynamic_sampling_filter_path="a.b")
        self.refused(
            "--load-debug-rollout-data can't be used", "never sampled", load_debug_rollout_data="a.pt"
        )
        what = "--custom-convert-samples-to-train-data-path can't be used"
        self.refused(what, "leave it out", custom_convert_samples_to_train_data_path="a.b")

    def test_rewards_of_groups_in_the_trainer_s_own_evaluation(self):
        what = "its evaluation can't be done with --group-rm"
        self.refused(what, "--eval-interval", group_rm=True, eval_interval=5)
        args = self.arguments(group_rm=True, eval_interval=5, eval_function_path="mine.evaluate")
        self.source(args)

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
        self.source(self.arguments(global_batch_size=12, **more))
        more |= {"pipeline_model_parallel_size": 2, "virtual_pipeline_model_parallel_size": 2}
        what = "--global-batch-size 8 can't be divided over 3 data-parallel ranks in groups of 2"
        self.refused(what, "take a multiple of 6", **more)

    def test_the_section(self):
        given = self.arguments().allot
        what = "the section `allot` has `setings`, which means nothing"
        self.refused(what, "did you mean `settings`?", allot={**given, "setings": {}})
        missing = {name: given[name] for name in given if name != "groups"}
        self.refused("the section `allot` lacks `groups`", "add `groups`", allot=missing)
        what = "`row_rewards` is `mean` in the section `allot`"
        self.refused(what, "same, sum, last", allot={**given, "row_rewards": "mean"})

    def test_a_column_that_is_not_there(self):
        args = self.arguments(allot={"policy": "adarft", "settings": {}})
        with self.assertRaises(allot.Error) as raised:
            self.source(args)
        what = "the policy wants the column `difficulty`, which prompt 0 does not have in its metadata"
        self.assertEqual(raised.exception.what, what)
        self.assertIn("--metadata-key", raised.exception.hint)

    def test_a_version_that_was_not_tried(self):
        name, tried = self.checks.name, self.checks.tried[0]
        fake = Path(self.folder) / name / "__init__.py"
        (Path(self.folder) / "setup.py").write_text(f'setup(\n    name="{name}",\n    version="0.9.0",\n)\n')
        with mock.patch.object(self.checks.package, "__file__", str(fake)):
            self.refused(f"{name} 0.9.0 was not tried", f"take {tried}, or say `untried: true`")
            self.source(self.arguments(allot={"untried": True}))
            (Path(self.folder) / "setup.py").unlink()
            missing = rows_checks.metadata.PackageNotFoundError
            with mock.patch.object(rows_checks.metadata, "version", side_effect=missing):
                self.refused(f"this {name}, which has no version, was not tried", f"take {tried}")

    def test_a_loop_that_it_can_t_follow(self):
        name = self.checks.name
        started = (
            f"it was not started by `python -m allot.{name}_train train.py …`, which ends it with the budget"
        )
        self.refused(started, "`train_async.py` can't be followed", allot_ends=False)
        for path, what in [
            (f"{name}/train_async.py", "asks for a batch before the update on the last one"),
            ("", f"`` is not {name}'s `train.py`"),
            (f"{self.folder}/train.py", f"is not {name}'s `train.py`"),
        ]:
            with self.assertRaises(allot.Error) as raised:
                self.loop.load(path)
            self.assertIn(what, raised.exception.what)
            self.assertIn(f"python -m allot.{name}_train", raised.exception.hint)
