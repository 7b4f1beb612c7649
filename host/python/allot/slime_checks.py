"""slime: what its adapter refuses, before anything is sampled. Imports nothing that needs a GPU."""

from __future__ import annotations

import difflib
import inspect
import re
from argparse import Namespace
from importlib import metadata
from pathlib import Path
from typing import Any

import slime

from .allocator import Allocator
from .errors import Error

#: Versions that the adapter's tests have passed with.
TRIED = ("0.3.1",)

#: slime's estimators that take a rollout's reward, as it was post-processed, for the advantage of its tokens.
ESTIMATORS = ("grpo", "gspo", "cispo")

#: Keys of the section `allot` that are not names of `Allocator`.
OWN = ("policy", "correct_above", "row_rewards", "untried")

#: What slime says by itself, or can't do, and what to do about it.
TAKEN = {
    "columns": "columns are read from the prompts' metadata: --metadata-key",
    "engine": "leave it out",
    "replay": "leave it out: rollouts can always be learned from again",
    "signals": "leave it out: slime measures none",
    "temperature": "set --rollout-temperature",
    "training": "leave it out",
    "update": "leave it out: --global-batch-size says how slime updates",
}

#: How a rollout's reward follows from those of its rows.
ROW_REWARDS = ("same", "sum", "last")

#: slime's options for the adapter's names.
PATHS = {
    "data_source_path": "allot.slime.AllocatedSource",
    "rollout_function_path": "allot.slime.generate_rollout",
    "custom_reward_post_process_path": "allot.slime.advantages",
}

#: Options with functions that slime's own rollout function calls, or that would replace advantages and their weights.
NEVER_CALLED = {
    "dynamic_sampling_filter_path": "the policy decides what is learned from; `dapo` drops what this filter drops",
    "rollout_sample_filter_path": "leave it out, or set `remove_sample` in --custom-generate-function-path",
    "rollout_all_samples_process_path": "leave it out; the record has all that was sampled",
    "buffer_filter_path": "leave it out; rollouts are kept and dropped by the policy",
    "custom_advantage_function_path": "leave it out: advantages are the allocator's, by `advantage` in the section `allot`",
    "custom_pg_loss_reducer_function_path": "leave it out: rows that fill up a batch are weighed for slime's own reducer",
    "custom_convert_samples_to_train_data_path": "leave it out: slime's own passes advantages on",
}


def check(args: Namespace) -> None:
    """Raises an error for a version or settings of slime that the adapter does not support."""
    section = getattr(args, "allot", None)
    if not isinstance(section, dict) or not section:
        raise _wrong("there is no section `allot`", "name a file that has one by --custom-config-path")
    _names(section)
    if not section.get("untried"):
        _version()
    if not getattr(args, "allot_ends", False):
        what = "it was not started by `python -m allot.slime_train train.py …`, which ends it with the budget"
        raise _wrong(
            what,
            "start it so; `train_async.py` can't be followed: it asks for a batch before the last update",
        )
    for option, path in PATHS.items():
        if getattr(args, option, None) != path:
            raise _wrong(f"{_flag(option)} is {getattr(args, option, None)}", f"it must be {path}")
    for option, hint in NEVER_CALLED.items():
        if getattr(args, option, None) is not None:
            raise _wrong(f"{_flag(option)} can't be used", hint)
    _settings(args)
    _divisible(args)


def _names(section: dict[str, Any]) -> None:
    """Raises an error for a key that means nothing, or one that is missing."""
    known = [*OWN, *(name for name in inspect.signature(Allocator).parameters if name != "lengths" and name not in TAKEN)]
    for name in section:
        if name in TAKEN:
            raise _wrong(f"`{name}` in the section `allot` is not for you to say", TAKEN[name])
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(sorted(known))}"
            raise _wrong(f"the section `allot` has `{name}`, which means nothing", hint)
    for name in ("policy", "groups", "rollouts"):
        if name not in section:
            raise _wrong(f"the section `allot` lacks `{name}`", f"add `{name}` to it")
    if "temperature" in (section.get("requests") or {}):
        raise _wrong(
            "`requests` in the section `allot` lets a policy choose the temperature",
            "leave `temperature` out of it: slime computes log-probabilities at one, --rollout-temperature",
        )
    rewards = section.get("row_rewards", "same")
    if rewards not in ROW_REWARDS:
        raise _wrong(
            f"`row_rewards` is `{rewards}` in the section `allot`", f"it is one of {', '.join(ROW_REWARDS)}"
        )


def _version() -> None:
    # slime is used from a checkout, where only this file has its version. PyPI has another package of this name.
    setup = Path(slime.__file__).parents[1] / "setup.py"
    if setup.is_file():
        found = re.search(r"version=\"([^\"]+)\"", setup.read_text())
        version = found[1] if found else None
    else:
        try:
            version = metadata.version("slime")
        except metadata.PackageNotFoundError:
            version = None
    if version not in TRIED:
        named = f"slime {version}" if version else "this slime, which has no version,"
        hint = f"take {' or '.join(TRIED)}, or say `untried: true` in the section `allot`"
        raise _wrong(f"{named} was not tried", hint)


def _settings(args: Namespace) -> None:
    wrong = None
    own_evaluation = getattr(args, "eval_function_path", None) not in (None, PATHS["rollout_function_path"])
    if not args.rollout_global_dataset or args.prompt_data is None:
        wrong = (
            "it has no data set of its own",
            "give --prompt-data, without --disable-rollout-global-dataset",
        )
    elif args.num_rollout is None:
        wrong = "--num-rollout is missing", "give the number of steps; --num-epoch is not looked at"
    elif args.partial_rollout:
        wrong = "partial rollouts can't be planned for", "leave --partial-rollout out"
    elif args.advantage_estimator not in ESTIMATORS or args.normalize_advantages:
        names = ", ".join(ESTIMATORS)
        wrong = "advantages are the allocator's", f"take {names}, without --normalize-advantages"
    elif args.group_rm and getattr(args, "eval_interval", None) is not None and not own_evaluation:
        hint = "leave --eval-interval out, or give --eval-function-path"
        wrong = "its evaluation can't be done with --group-rm", hint
    if wrong is not None:
        raise _wrong(*wrong)


def _divisible(args: Namespace) -> None:
    size, even = args.global_batch_size, rows_of_a_step(args)
    if size % even != 0:
        by = f"{data_parallel(args)} data-parallel ranks"
        if not args.use_dynamic_batch_size and args.micro_batch_size > 1:
            by += f" with micro batches of {args.micro_batch_size}"
        if _stages(args) > 1:
            by += f" in groups of {_stages(args)}"
        raise _wrong(f"--global-batch-size {size} can't be divided over {by}", f"take a multiple of {even}")


def data_parallel(args: Namespace) -> int:
    """The number of data-parallel ranks, as Megatron divides the training GPUs."""
    gpus = getattr(args, "actor_num_nodes", 1) * getattr(args, "actor_num_gpus_per_node", 1)
    model = 1
    for kind in ("tensor_model", "pipeline_model", "context"):
        model *= getattr(args, f"{kind}_parallel_size", None) or 1
    # With --debug-rollout-only nothing is trained.
    return max(gpus // model, 1)


def rows_of_a_step(args: Namespace) -> int:
    """What the rows of an optimizer step must be a multiple of, so that slime finds micro batches for all ranks."""
    micro = 1 if args.use_dynamic_batch_size else args.micro_batch_size
    return data_parallel(args) * _stages(args) * micro


def _stages(args: Namespace) -> int:
    """With virtual pipeline stages, micro batches come in groups."""
    if (getattr(args, "virtual_pipeline_model_parallel_size", None) or 1) == 1:
        return 1
    own = getattr(args, "microbatch_group_size_per_vp_stage", None)
    return own or getattr(args, "pipeline_model_parallel_size", None) or 1


def _flag(option: str) -> str:
    return "--" + option.replace("_", "-")


def _wrong(what: str, hint: str) -> Error:
    return Error(f"slime can't be allotted rollouts: {what}", hint)
