"""miles' `train.py`, ended with the run: `python -m allot.miles_train train.py …` in the place of `python train.py …`."""

from __future__ import annotations

from argparse import Namespace
from types import ModuleType
from typing import Any

import ray

from .miles_checks import check
from .rows_train import Loop, done


class MilesLoop(Loop):
    """miles' script."""

    trainer = "miles"

    def check(self, args: Namespace) -> None:
        check(args)

    def follow(self, script: ModuleType, args: Namespace) -> None:
        try:
            super().follow(script, args)
        finally:
            # As the script does when it is run by itself.
            script.finish_tracking()

    def save_model(self, args: Namespace, manager: Any, actor: Any, last: int) -> None:
        if args.offload_rollout:
            # The engines hold the memory that the model needs.
            ray.get(manager.offload.remote())
        if args.offload_train:
            done(actor.onload())
        done(actor.save_model(last, force_sync=True))


LOOP = MilesLoop()
main, load, follow = LOOP.main, LOOP.load, LOOP.follow

if __name__ == "__main__":
    main()
