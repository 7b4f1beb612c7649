"""What of OpenRLHF's arguments the adapter reads, and what it refuses before a model is loaded.

Nothing of OpenRLHF is imported here: arguments are whatever has its names, as
`openrlhf.utils.config.hierarchize` makes them.
"""

from __future__ import annotations

import difflib
import inspect
import math
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .allocator import Allocator
from .changes import changes
from .errors import Error

#: The versions of OpenRLHF that whole runs were made with.
TRIED = ("0.11.2",)

#: Keys of `--allot` that are not the allocator's.
OURS = ("correct_above", "any_version")

#: What the adapter tells the allocator by itself, and what to do instead of giving it.
TAKEN = {
    "lengths": "set --data.prompt_dataset",
    "columns": "leave it out: columns are those of --data.prompt_dataset",
    "temperature": "set --rollout.temperature",
    "engine": "leave it out",
    "replay": "leave it out: rollouts can always be trained on again",
    "signals": "leave it out: OpenRLHF measures none",
    "training": "leave it out",
    "update": "leave it out: --train.batch_size and --train.max_epochs say how OpenRLHF updates",
    "requests": "leave it out: OpenRLHF samples all rollouts alike. TRL and slime have a length limit",
}

#: OpenRLHF's option for what a checkpoint says of its run, where the run's own key is not its name.
OPTIONS = {"data": "--data.prompt_dataset", "prompts": "--data.prompt_dataset"}

#: An option, when it is refused, why, and what to do.
Refusal = tuple[str, Callable[[Any], bool], str, str]

REFUSED: tuple[Refusal, ...] = (
    (
        "reward.clip_range",
        lambda ends: tuple(ends) != (-10, 10),
        "OpenRLHF clips rewards after it has normalized them, and here the allocator normalizes",
        "leave it out; let the reward function clip its rewards",
    ),
    (
        "algo.kl.target",
        bool,
        "OpenRLHF adapts the coefficient by --rollout.batch_size × --rollout.n_samples_per_prompt, and batches have other sizes",
        "leave it out: --algo.kl.init_coef then stays as it is",
    ),
    (
        "train.async_enable",
        bool,
        "a batch would be asked for before the update on the last one, and rollouts would have no age",
        "leave --train.async_enable and --train.partial_rollout_enable out",
    ),
    (
        "algo.advantage.estimator",
        lambda name: name != "group_norm",
        "advantages are the allocator's, and GRPO is the estimator that they were tried in the place of",
        "set --algo.advantage.estimator group_norm; `advantage` in --allot says how advantages are computed",
    ),
    (
        "critic.freezing_steps",
        lambda steps: steps >= 0,
        "the model would not learn in the first steps, and their rollouts would count as learned from",
        "leave it out",
    ),
    (
        "algo.dynamic_filtering_enable",
        bool,
        "which groups are replaced is the policy's decision",
        "leave it out; `policy: dapo` in --allot is that rule",
    ),
    (
        "train.dynamic_batch_enable",
        bool,
        "OpenRLHF then drops all rollouts beyond --rollout.batch_size × --rollout.n_samples_per_prompt",
        "leave it out, and set --train.micro_batch_size and --rollout.micro_batch_size",
    ),
    (
        "data.max_images_per_prompt",
        lambda images: images > 0,
        "the adapter was not tried with images in prompts",
        "leave it out, and take a data set of texts",
    ),
)


def get(args: Any, name: str, otherwise: Any = None) -> Any:
    """A value by its name with dots; `otherwise` where there is none."""
    for part in name.split("."):
        args = getattr(args, part, None)
        if args is None:
            return otherwise
    return args


def check_version(version: str, given: Mapping[str, Any]) -> None:
    """Raises an error for a version of OpenRLHF that was not tried, unless `any_version` allows it."""
    if version not in TRIED and not given.get("any_version"):
        raise Error(
            f"this is OpenRLHF {version}, and allot was tried with {' and '.join(TRIED)}",
            f"install openrlhf=={TRIED[-1]}, or set `any_version: true` in --allot and look closely at the "
            "first steps",
        )


def check(args: Any) -> None:
    """Raises an error that names the first option, or the first key of `--allot`, that can't be used."""
    given = kwargs(args)
    for name, refused, why, hint in REFUSED:
        value = get(args, name)
        if value is not None and refused(value):
            raise Error(f"--{name} is {value}: {why}", hint)
    if not get(args, "reward.remote_url"):
        raise Error(
            "rewards are a reward model's in the trainer: they come after the batch is chosen, and a policy "
            "chooses by them",
            "set --reward.remote_url to a reward function's file or a server, or set --train.agent_func_path",
        )
    if not get(args, "vllm.num_engines"):
        raise Error("--vllm.num_engines is not set, and vLLM samples the rollouts", "set it to 1 or more")
    if get(args, "algo.kl.init_coef", 0) > 0 and not get(args, "algo.kl.use_loss"):
        raise Error(
            f"--algo.kl.init_coef is {args.algo.kl.init_coef} without --algo.kl.use_loss: "
            "a KL term in rewards comes after the policy has decided by them",
            "set --algo.kl.use_loss for a KL term in the loss, or --algo.kl.init_coef 0",
        )
    _divisible(args)
    _check_record(args, given.get("record"))


def kwargs(args: Any) -> dict[str, Any]:
    """The keys of `--allot`. Groups and rollouts are OpenRLHF's where not given."""
    given = dict(args.allot)
    known = set(inspect.signature(Allocator).parameters) - TAKEN.keys() | set(OURS)
    for name in given:
        if name in TAKEN:
            raise Error(f"`{name}` in --allot is what the adapter says by itself", TAKEN[name])
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"it has {', '.join(sorted(known))}"
            raise Error(f"--allot has no key `{name}`", hint)
    if "policy" not in given:
        raise Error("--allot does not say which policy", "add `policy: pilot-commit`, or another")
    return {"groups": args.rollout.batch_size, "rollouts": args.rollout.n_samples_per_prompt, **given}


def whole(given: dict[str, Any]) -> dict[str, Any]:
    """The keys of `--allot` with the record's path whole. Processes of Ray may have another working directory."""
    record = given.get("record")
    return given if record is None else {**given, "record": os.path.abspath(record)}


def steps(args: Any, prompts: int) -> int:
    """How many steps a run has: `steps` of `--allot`, by default as many as OpenRLHF itself would make."""
    given = kwargs(args).get("steps")
    return args.train.num_episodes * math.ceil(prompts / args.rollout.batch_size) if given is None else given


def longest(args: Any) -> int:
    """The most tokens that a rollout may have: `longest` of `--allot`, else OpenRLHF's own limit."""
    given = kwargs(args).get("longest")
    # An agent's turns may fill all of the context.
    limit = None if get(args, "train.agent_func_path") else args.rollout.max_new_tokens
    return given or limit or args.data.max_len


def resumes(args: Any) -> bool:
    """Whether OpenRLHF goes on from a checkpoint, by its own rule."""
    return bool(args.ckpt.load_enable) and os.path.exists(os.path.join(args.ckpt.path, "_actor"))


def ranks(args: Any) -> int:
    """The number of data-parallel ranks that train."""
    gpus = args.actor.num_nodes * args.actor.num_gpus_per_node
    return gpus // args.ds.ring_attn_size // args.ds.tensor_parallel_size


def _divisible(args: Any) -> None:
    """Raises an error where ranks would not get as many rows each, in whole micro batches."""
    # Batches are filled up to a multiple of `train.batch_size`.
    for name in ("train.micro_batch_size", "rollout.micro_batch_size"):
        micro = get(args, name)
        if args.train.batch_size % (micro * ranks(args)) != 0:
            raise Error(
                f"--train.batch_size {args.train.batch_size} can't be divided over {ranks(args)} "
                f"data-parallel ranks with --{name} {micro}",
                f"set --train.batch_size to a multiple of {micro * ranks(args)}, or lower --{name}",
            )


def _check_record(args: Any, folder: str | None) -> None:
    """Refuses a record of another run before models are loaded, not at the first step."""
    if folder is None or not os.path.exists(os.path.join(folder, "record.jsonl")) or resumes(args):
        return
    why = (
        f"--ckpt.path, {args.ckpt.path}, has no checkpoint of that run"
        if args.ckpt.load_enable
        else "--ckpt.load_enable is not set"
    )
    raise Error(
        f"`record` in --allot, {folder}, has a record of a run already, and {why}",
        "give `record` another folder, or go on with that run: --ckpt.load_enable and its --ckpt.path",
    )


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What a run is that was another in its checkpoint: a clause, and the option to change."""
    options = {name: OPTIONS.get(name, f"`{name}` in --allot") for name in {*before, *now}}
    return changes(before, now, options, {name: name for name in options})
