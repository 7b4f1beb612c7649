"""What verl loads in each of its processes: `allot` is registered as a trainer as soon as verl's own trainers are.

verl imports the modules of the entry point group `verl.plugins` at the end of its own import, in each worker too, and
keeps their errors to itself. So nothing of verl is imported here: a process without a trainer pays nothing, and what
fails later is a warning that says why the trainer `allot` is missing.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from importlib.metadata import version
from types import ModuleType
from typing import Any

from .verl_config import TRIED

logger = logging.getLogger("allot.verl")

#: Importing it registers verl's trainers.
TRAINERS = "verl.trainer.ppo.v1"


class _AfterTrainers:
    """A finder of modules that finds what others do, and registers the trainer once verl's are imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != TRAINERS:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                register()

            loader.exec_module = exec_module
        return spec


def register() -> None:
    """Registers the trainer, or warns why it cannot be registered."""
    try:
        importlib.import_module("allot.verl")
    except Exception as error:
        verl, tried = version("verl"), " and ".join(TRIED)
        logger.warning(
            "verl %s does not get the trainer `allot`, which was tried with verl %s: %s", verl, tried, error
        )


if TRAINERS in sys.modules:
    register()
else:
    sys.meta_path.insert(0, _AfterTrainers())
