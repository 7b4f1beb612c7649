"""slime's `train.py`, ended with the run: `python -m allot.slime_train train.py …` in the place of `python train.py …`."""

from __future__ import annotations

from argparse import Namespace
from types import ModuleType
from typing import Any

import ray

from .rows_train import Loop
from .slime_checks import check


class SlimeLoop(Loop):
    """slime's script."""

    trainer = "slime"

    def check(self, args: Namespace) -> None:
        check(args)

    def save_model(self, args: Namespace, manager: Any, actor: Any, last: int) -> None:
        if args.offload_rollout:
            # The engines hold the memory that the model needs.
            ray.get(manager.offload.remote())
        actor.save_model(last, force_sync=True)

    def end(self, script: ModuleType, args: Namespace, parts: dict[str, Any], last: int) -> None:
        super().end(script, args, parts, last)
        script.finish_tracking(args)


LOOP = SlimeLoop()
main, load, follow = LOOP.main, LOOP.load, LOOP.follow

if __name__ == "__main__":
    main()
