"""miles: what can't be done right is refused in a sentence, before anything is sampled, and with a hint."""

from __future__ import annotations

import os
import unittest
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

if find_spec("miles") is None:
    raise unittest.SkipTest("no miles here")

import miles_here
import rows_refusals
from allot import miles_checks, rows_checks
from allot.miles_checks import COMMIT, MILES
from allot.miles_train import LOOP

OTHER = "778227d6d7cf7b581d1eb07910c873516b6baca9"


class Refusals(rows_refusals.Refusals):
    here, checks, loop = miles_here, MILES, LOOP

    def test_what_only_miles_has(self):
        for option, hint, attribute, value in [
            ("--fully-async", "samples while it trains", "fully_async", True),
            ("--multi-lora-n-adapters", "steps of their own", "multi_lora", True),
            ("--use-dynamic-global-batch-size", "--global-batch-size", "use_dynamic_global_batch_size", True),
            ("--use-opd", "penalty", "use_opd", True),
            (
                "--recompute-logprobs-via-prefill",
                "own rollout function",
                "recompute_logprobs_via_prefill",
                True,
            ),
            ("--dumper-inference", "SGLang's dumper", "dumper_inference", ["enable=true"]),
            ("an evaluation of snapshots", "--eval-num-gpus", "eval_uses_snapshots", True),
            ("--indep-dp", "--ft-components", "indep_dp", True),
            (
                "--delay-split-train-data-by-dp",
                "rows instead of rollouts",
                "delay_split_train_data_by_dp",
                True,
            ),
            ("--ci-inject-rollout-data-path", "not trained on", "ci_inject_rollout_data_path", "a.pt"),
        ]:
            self.refused(f"{option} can't be used", hint, **{attribute: value})

    def test_a_loss_by_tokens_where_steps_are_made_of_rows(self):
        what = "--calculate-per-token-loss can't be used with --train-backend fsdp or --multimodal-keys"
        for more in ({"train_backend": "fsdp"}, {"multimodal_keys": {"image": "images"}}):
            self.refused(what, "mean over rollouts", calculate_per_token_loss=True, **more)

    def test_rollout_functions_of_the_older_form(self):
        with mock.patch.dict(os.environ, MILES_USE_LEGACY_ROLLOUT_V1="1"):
            self.refused("MILES_USE_LEGACY_ROLLOUT_V1 is set, with which miles calls no class", "unset it")

    def test_a_commit_that_was_not_tried(self):
        git = Path(self.folder) / ".git"
        (git / "refs/heads").mkdir(parents=True)
        (Path(self.folder) / "setup.py").write_text('setup(\n    version="0.1.0",\n)\n')
        fake = str(Path(self.folder) / "miles/__init__.py")
        with mock.patch.object(MILES.package, "__file__", fake):
            # An archive has no commit, and the version is one that was tried.
            self.source(self.arguments())
            for head, name, text in [
                (OTHER, "refs/heads/other", ""),
                ("ref: refs/heads/main", "refs/heads/main", OTHER),
                (
                    "ref: refs/heads/packed",
                    "packed-refs",
                    f"# pack-refs with: peeled\n{OTHER} refs/heads/packed\n",
                ),
            ]:
                (git / "HEAD").write_text(head + "\n")
                (git / name).write_text(text)
                self.assertEqual(miles_checks.commit(), OTHER)
                self.refused(
                    "miles 0.1.0 at commit 778227d was not tried", "check out 31f1ca9, or say `untried: true`"
                )
            self.source(self.arguments(allot={"untried": True}))
            (git / "HEAD").write_text(COMMIT + "\n")
            self.source(self.arguments())

    def test_a_commit_that_pip_installed(self):
        told = mock.Mock(read_text=lambda _: f'{{"url": "…", "vcs_info": {{"commit_id": "{OTHER}"}}}}')
        fake = str(Path(self.folder) / "miles/__init__.py")
        with (
            mock.patch.object(MILES.package, "__file__", fake),
            mock.patch.object(miles_checks.metadata, "distribution", return_value=told),
            mock.patch.object(rows_checks.metadata, "version", return_value="0.1.0"),
        ):
            self.refused("miles 0.1.0 at commit 778227d was not tried", "check out 31f1ca9")


if __name__ == "__main__":
    unittest.main()
