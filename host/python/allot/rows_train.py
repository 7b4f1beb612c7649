"""The `train.py` of slime or its fork miles, ended with the run.

Their loop asks for `--num-rollout` batches, in another process than the one that knows when a budget is used up:
neither what a rollout function returns nor a change of `args` can shorten it. So the loop runs as it is; when there is
no further batch, the exception that says so ends it, and what a trainer does after its last step is done here.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import sys
from abc import abstractmethod
from argparse import Namespace
from collections.abc import Awaitable
from pathlib import Path
from types import ModuleType
from typing import Any

import ray

from .errors import Error, RunIsOver

#: The functions that `train.py` makes its parts by.
PARTS = ("create_rollout_manager", "create_training_models")


class Loop:
    """A trainer's script, and how it is ended."""

    #: The trainer's name.
    trainer: str

    @abstractmethod
    def check(self, args: Namespace) -> None:
        """Raises an error for what the adapter does not support."""

    @abstractmethod
    def save_model(self, args: Namespace, manager: Any, actor: Any, last: int) -> None:
        """Saves the model after the last step. Engines hold the GPUs, ready to sample, if they share them with training."""

    def main(self) -> None:
        """What `python -m` does."""
        try:
            script = self.load(sys.argv[1] if len(sys.argv) > 1 else "")
            del sys.argv[0]
            args = script.parse_args()
            args.allot_ends = True
            self.check(args)
        except Error as error:
            sys.exit(f"error: {error.what}\nhint: {error.hint}")
        self.follow(script, args)

    def load(self, path: str) -> ModuleType:
        """The trainer's script, as a module."""
        hint = f"python -m allot.{self.trainer}_train …/{self.trainer}/train.py and its options"
        if Path(path).name == "train_async.py":
            raise Error(
                f"{self.trainer}'s `train_async.py` asks for a batch before the update on the last one, and can't be"
                " followed",
                hint,
            )
        if Path(path).name != "train.py" or not Path(path).is_file():
            raise Error(f"`{path}` is not {self.trainer}'s `train.py`", hint)
        # As for any script, what lies beside it can be imported.
        sys.path.insert(0, str(Path(path).resolve().parent))
        spec = importlib.util.spec_from_file_location("train", path)
        assert spec is not None and spec.loader is not None
        script = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(script)
        missing = [name for name in ("parse_args", "train", *PARTS) if not hasattr(script, name)]
        if missing:
            raise Error(f"`{path}` has no `{missing[0]}`, which {self.trainer}'s `train.py` has", hint)
        return script

    def follow(self, script: ModuleType, args: Namespace) -> None:
        """Trains, until the trainer's steps are done or there is no further batch."""
        parts: dict[str, Any] = {}
        for name in PARTS:
            _keep(script, name, parts)
        try:
            done(script.train(args))
        except RunIsOver as over:
            # From Ray it comes wrapped.
            told = getattr(over, "cause", over)
            print(f"the run is over: {told.reason}", flush=True)
            self.end(script, args, parts, told.step - 1)
        else:
            manager, _ = parts["create_rollout_manager"]
            ray.get(manager.__ray_call__.remote(lambda manager: manager.data_source.finish()))

    def end(self, script: ModuleType, args: Namespace, parts: dict[str, Any], last: int) -> None:
        """Saves the last step's model and state, unless that is done, and takes leave as `train.py` does."""
        manager, per_epoch = parts["create_rollout_manager"]
        actor, _ = parts["create_training_models"]
        saved = getattr(args, "release_train", False) or script.should_run_periodic_action(
            last, args.save_interval, per_epoch, args.num_rollout
        )
        if (
            args.save is not None
            and args.save_interval is not None
            and last >= args.start_rollout_id
            and not saved
        ):
            self.save_model(args, manager, actor, last)
            ray.get(manager.save.remote(last))
        ray.get(manager.dispose.remote())


def done(result: Any) -> Any:
    """What a function of a trainer returned, or what its coroutine does: one trainer's are the other's, made coroutines."""
    return asyncio.run(result) if inspect.iscoroutine(result) else result


def _keep(script: ModuleType, name: str, parts: dict[str, Any]) -> None:
    make = getattr(script, name)

    def kept(*given: Any, **named: Any) -> Any:
        made = make(*given, **named)
        if inspect.iscoroutine(made):
            return awaited(made)
        parts[name] = made
        return made

    async def awaited(made: Awaitable[Any]) -> Any:
        parts[name] = await made
        return parts[name]

    setattr(script, name, kept)
