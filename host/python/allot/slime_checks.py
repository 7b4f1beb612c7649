"""slime: what its adapter refuses, before anything is sampled. Imports nothing that needs a GPU."""

from __future__ import annotations

from argparse import Namespace

import slime

from . import rows_checks
from .rows_checks import Trainer

SLIME = Trainer(
    name="slime",
    package=slime,
    tried=("0.3.1",),
    estimators=("grpo", "gspo", "cispo"),
    paths={
        "data_source_path": "allot.slime.AllocatedSource",
        "rollout_function_path": "allot.slime.generate_rollout",
        "custom_reward_post_process_path": "allot.slime.advantages",
    },
)


def check(args: Namespace) -> None:
    """Raises an error for a version or settings of slime that the adapter does not support."""
    rows_checks.check(args, SLIME)
