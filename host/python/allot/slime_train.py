"""slime's `train.py`, ended with the run: `python -m allot.slime_train train.py …` in the place of `python train.py …`.

slime's loop asks for `--num-rollout` batches, in another process than the one that knows when a budget is used up:
neither what a rollout function returns nor a change of `args` can shorten it. So the loop runs as it is; when there is
no further batch, the exception that says so ends it, and what slime does after its last step is done here.
"""

from __future__ import annotations

import importlib.util
import sys
from argparse import Namespace
from pathlib import Path
from types import ModuleType
from typing import Any

import ray

from .errors import Error, RunIsOver
from .slime_checks import check

#: The functions that `train.py` makes its parts by.
PARTS = ("create_rollout_manager", "create_training_models")


def main() -> None:
    try:
        script = load(sys.argv[1] if len(sys.argv) > 1 else "")
        del sys.argv[0]
        args = script.parse_args()
        args.allot_ends = True
        check(args)
    except Error as error:
        sys.exit(f"error: {error.what}\nhint: {error.hint}")
    follow(script, args)


def load(path: str) -> ModuleType:
    """slime's script, as a module."""
    hint = "python -m allot.slime_train …/slime/train.py and its options"
    if Path(path).name == "train_async.py":
        what = "slime's `train_async.py` asks for a batch before the update on the last one, and can't be followed"
        raise Error(what, hint)
    if Path(path).name != "train.py" or not Path(path).is_file():
        raise Error(f"`{path}` is not slime's `train.py`", hint)
    # As for any script, what lies beside it can be imported.
    sys.path.insert(0, str(Path(path).resolve().parent))
    spec = importlib.util.spec_from_file_location("train", path)
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    missing = [name for name in ("parse_args", "train", *PARTS) if not hasattr(script, name)]
    if missing:
        raise Error(f"`{path}` has no `{missing[0]}`, which slime's `train.py` has", hint)
    return script


def follow(script: ModuleType, args: Namespace) -> None:
    """Trains, until slime's steps are done or there is no further batch."""
    parts: dict[str, Any] = {}
    for name in PARTS:
        _keep(script, name, parts)
    try:
        script.train(args)
    except RunIsOver as over:
        # From Ray it comes wrapped.
        told = getattr(over, "cause", over)
        print(f"the run is over: {told.reason}", flush=True)
        _end(script, args, parts, told.step - 1)
    else:
        manager, _ = parts["create_rollout_manager"]
        ray.get(manager.__ray_call__.remote(lambda manager: manager.data_source.finish()))


def _keep(script: ModuleType, name: str, parts: dict[str, Any]) -> None:
    make = getattr(script, name)

    def kept(*given: Any, **named: Any) -> Any:
        parts[name] = make(*given, **named)
        return parts[name]

    setattr(script, name, kept)


def _end(script: ModuleType, args: Namespace, parts: dict[str, Any], last: int) -> None:
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
        if args.offload_rollout:
            # The engines hold the memory that the model needs.
            ray.get(manager.offload.remote())
        actor.save_model(last, force_sync=True)
        ray.get(manager.save.remote(last))
    ray.get(manager.dispose.remote())
    script.finish_tracking(args)


if __name__ == "__main__":
    main()
