"""What the adapters of slime and its fork miles refuse, before anything is sampled. Imports neither, nor what needs a GPU."""

from __future__ import annotations

import difflib
import inspect
import re
from argparse import Namespace
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from .allocator import Allocator
from .errors import Error

#: Keys of the section `allot` that are not names of `Allocator`.
OWN = ("policy", "correct_above", "row_rewards", "untried")

#: What a trainer says by itself, or can't do, and what to do about it.
TAKEN = {
    "columns": "columns are read from the prompts' metadata: --metadata-key",
    "engine": "leave it out",
    "replay": "leave it out: rollouts can always be learned from again",
    "signals": "leave it out: {trainer} measures none",
    "temperature": "set --rollout-temperature",
    "training": "leave it out",
    "update": "leave it out: --global-batch-size says how {trainer} updates",
}

#: How a rollout's reward follows from those of its rows.
ROW_REWARDS = ("same", "sum", "last")

#: Options with functions that a trainer's own rollout function calls, or that would replace rollouts, advantages or their
#: weights.
NEVER_CALLED = {
    "dynamic_sampling_filter_path": "the policy decides what is learned from; `dapo` drops what this filter drops",
    "rollout_sample_filter_path": "leave it out, or set `remove_sample` in --custom-generate-function-path",
    "rollout_all_samples_process_path": "leave it out; the record has all that was sampled",
    "buffer_filter_path": "leave it out; rollouts are kept and dropped by the policy",
    "custom_advantage_function_path": "leave it out: advantages are the allocator's, by `advantage` in the section `allot`",
    "custom_pg_loss_reducer_function_path": "leave it out: rows that fill up a batch are weighed for {trainer}'s own reducer",
    "custom_convert_samples_to_train_data_path": "leave it out: {trainer}'s own passes advantages on",
    "load_debug_rollout_data": "leave it out: a policy would plan for rollouts that are never sampled",
}


@dataclass(frozen=True)
class Trainer:
    """A trainer of rows, as its adapter's checks know it."""

    name: str
    package: ModuleType
    #: Versions that the adapter's tests have passed with.
    tried: tuple[str, ...]
    #: Estimators that take a rollout's reward, as it was post-processed, for the advantage of its tokens.
    estimators: tuple[str, ...]
    #: Options for the adapter's names.
    paths: dict[str, str]

    def wrong(self, what: str, hint: str) -> Error:
        """The error of a check."""
        return Error(f"{self.name} can't be allotted rollouts: {what}", hint)


def check(args: Namespace, trainer: Trainer) -> None:
    """Raises an error for a version or settings of a trainer that its adapter does not support."""
    section = getattr(args, "allot", None)
    if not isinstance(section, dict) or not section:
        raise trainer.wrong("there is no section `allot`", "name a file that has one by --custom-config-path")
    _names(section, trainer)
    if not section.get("untried"):
        _version(trainer)
    if not getattr(args, "allot_ends", False):
        started = f"python -m allot.{trainer.name}_train train.py …"
        raise trainer.wrong(
            f"it was not started by `{started}`, which ends it with the budget",
            "start it so; `train_async.py` can't be followed: it asks for a batch before the last update",
        )
    for option, path in trainer.paths.items():
        if getattr(args, option, None) != path:
            raise trainer.wrong(f"{flag(option)} is {getattr(args, option, None)}", f"it must be {path}")
    for option, hint in NEVER_CALLED.items():
        if getattr(args, option, None) is not None:
            raise trainer.wrong(f"{flag(option)} can't be used", hint.format(trainer=trainer.name))
    _settings(args, trainer)
    _divisible(args, trainer)


def _names(section: dict[str, Any], trainer: Trainer) -> None:
    """Raises an error for a key that means nothing, or one that is missing."""
    known = [
        *OWN,
        *(
            name
            for name in inspect.signature(Allocator).parameters
            if name != "lengths" and name not in TAKEN
        ),
    ]
    for name in section:
        if name in TAKEN:
            hint = TAKEN[name].format(trainer=trainer.name)
            raise trainer.wrong(f"`{name}` in the section `allot` is not for you to say", hint)
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(sorted(known))}"
            raise trainer.wrong(f"the section `allot` has `{name}`, which means nothing", hint)
    for name in ("policy", "groups", "rollouts"):
        if name not in section:
            raise trainer.wrong(f"the section `allot` lacks `{name}`", f"add `{name}` to it")
    if "temperature" in (section.get("requests") or {}):
        raise trainer.wrong(
            "`requests` in the section `allot` lets a policy choose the temperature",
            f"leave `temperature` out of it: {trainer.name} computes log-probabilities at one, --rollout-temperature",
        )
    rewards = section.get("row_rewards", "same")
    if rewards not in ROW_REWARDS:
        raise trainer.wrong(
            f"`row_rewards` is `{rewards}` in the section `allot`", f"it is one of {', '.join(ROW_REWARDS)}"
        )


def root(trainer: Trainer) -> Path:
    """The folder that a trainer's package is in: of a checkout, or of installed packages."""
    assert trainer.package.__file__ is not None
    return Path(trainer.package.__file__).parents[1]


def _version(trainer: Trainer) -> None:
    # They are used from a checkout, where only this file has the version. PyPI has other packages of these names.
    setup = root(trainer) / "setup.py"
    if setup.is_file():
        found = re.search(r"version=\"([^\"]+)\"", setup.read_text())
        version = found[1] if found else None
    else:
        try:
            version = metadata.version(trainer.name)
        except metadata.PackageNotFoundError:
            version = None
    if version not in trainer.tried:
        named = f"{trainer.name} {version}" if version else f"this {trainer.name}, which has no version,"
        hint = f"take {' or '.join(trainer.tried)}, or say `untried: true` in the section `allot`"
        raise trainer.wrong(f"{named} was not tried", hint)


def _settings(args: Namespace, trainer: Trainer) -> None:
    wrong = None
    own_evaluation = getattr(args, "eval_function_path", None) not in (
        None,
        trainer.paths["rollout_function_path"],
    )
    if not args.rollout_global_dataset or args.prompt_data is None:
        wrong = (
            "it has no data set of its own",
            "give --prompt-data, without --disable-rollout-global-dataset",
        )
    elif args.num_rollout is None:
        wrong = "--num-rollout is missing", "give the number of steps; --num-epoch is not looked at"
    elif args.partial_rollout:
        wrong = "partial rollouts can't be planned for", "leave --partial-rollout out"
    elif args.advantage_estimator not in trainer.estimators or args.normalize_advantages:
        names = ", ".join(trainer.estimators)
        wrong = "advantages are the allocator's", f"take {names}, without --normalize-advantages"
    elif getattr(args, "loss_type", "policy_loss") != "policy_loss":
        wrong = f"--loss-type is {args.loss_type}, which takes no advantages", "take policy_loss"
    elif not getattr(args, "compute_advantages_and_returns", True):
        wrong = (
            "advantages would not reach the loss",
            "leave --disable-compute-advantages-and-returns out",
        )
    elif args.group_rm and getattr(args, "eval_interval", None) is not None and not own_evaluation:
        hint = "leave --eval-interval out, or give --eval-function-path"
        wrong = "its evaluation can't be done with --group-rm", hint
    if wrong is not None:
        raise trainer.wrong(*wrong)


def _divisible(args: Namespace, trainer: Trainer) -> None:
    size, even = args.global_batch_size, rows_of_a_step(args)
    if size % even != 0:
        by = f"{data_parallel(args)} data-parallel ranks"
        if not args.use_dynamic_batch_size and args.micro_batch_size > 1:
            by += f" with micro batches of {args.micro_batch_size}"
        if _stages(args) > 1:
            by += f" in groups of {_stages(args)}"
        raise trainer.wrong(
            f"--global-batch-size {size} can't be divided over {by}", f"take a multiple of {even}"
        )


def data_parallel(args: Namespace) -> int:
    """The number of data-parallel ranks, as Megatron divides the training GPUs."""
    gpus = getattr(args, "actor_num_nodes", 1) * getattr(args, "actor_num_gpus_per_node", 1)
    model = 1
    for kind in ("tensor_model", "pipeline_model", "context"):
        model *= getattr(args, f"{kind}_parallel_size", None) or 1
    # With --debug-rollout-only nothing is trained.
    return max(gpus // model, 1)


def rows_of_a_step(args: Namespace) -> int:
    """What the rows of an optimizer step must be a multiple of, so that the trainer finds micro batches for all ranks."""
    micro = 1 if args.use_dynamic_batch_size else args.micro_batch_size
    return data_parallel(args) * _stages(args) * micro


def _stages(args: Namespace) -> int:
    """With virtual pipeline stages, micro batches come in groups."""
    if (getattr(args, "virtual_pipeline_model_parallel_size", None) or 1) == 1:
        return 1
    own = getattr(args, "microbatch_group_size_per_vp_stage", None)
    return own or getattr(args, "pipeline_model_parallel_size", None) or 1


def flag(option: str) -> str:
    """An option as it is given."""
    return "--" + option.replace("_", "-")
