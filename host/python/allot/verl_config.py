"""What of verl's configuration allot's trainer reads, and what it refuses before anything is loaded. Nothing of verl is
imported here: a configuration is whatever has its keys.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .allocator import Allocator
from .changes import changes
from .errors import Error

#: The versions of verl that whole runs were made with.
TRIED = ("0.9.1",)

#: Where the run's own keys stand among verl's.
KWARGS = "trainer.v1.sampler.sampler_kwargs"

#: Keys of `sampler_kwargs` that are not the allocator's.
OURS = ("correct_above", "any_version")

#: What the trainer tells the allocator by itself, with the key that it comes from.
TAKEN = {
    "lengths": "data.train_files",
    "columns": "data.train_files",
    "steps": "trainer.total_training_steps",
    "temperature": "actor_rollout_ref.rollout.temperature",
    "training": None,
    "replay": None,
    "engine": None,
    "update": None,
}

#: What is told of a run in a checkpoint, and verl's key for it.
KEYS = {
    "data": "data.train_files",
    "prompts": "data.train_files",
    "steps": "trainer.total_training_steps, or trainer.total_epochs and data.train_batch_size",
    "longest": "data.max_response_length",
}


def get(config: Any, key: str, otherwise: Any = None) -> Any:
    """A value by its key with dots; `otherwise` where there is none on the way."""
    for part in key.split("."):
        config = config.get(part) if hasattr(config, "get") else None
        if config is None:
            return otherwise
    return config


#: A key of verl's, when it is refused, why, and what to do.
Refusal = tuple[str, Callable[[Any], bool], str, str]

REFUSED: tuple[Refusal, ...] = (
    (
        "algorithm.adv_estimator",
        lambda name: str(getattr(name, "value", name)) != "grpo",
        "advantages are the allocator's here, and GRPO is the estimator that they were tried in the place of",
        f"set algorithm.adv_estimator=grpo; how advantages are measured says `advantage` in {KWARGS}",
    ),
    (
        "critic.enable",
        bool,
        "a critic would learn from returns, and there are only the allocator's advantages",
        "leave it out",
    ),
    (
        "trainer.critic_warmup",
        lambda steps: steps > 0,
        "the model would not learn in the first steps, and their rollouts would count as learned from",
        "set trainer.critic_warmup=0",
    ),
    (
        "algorithm.use_kl_in_reward",
        bool,
        "a policy decides by rewards before the update, so a KL term in them comes too late",
        "set algorithm.use_kl_in_reward=False, and actor_rollout_ref.actor.use_kl_loss=True for a KL term in the loss",
    ),
    (
        "algorithm.filter_groups.enable",
        bool,
        "which groups are sampled again is the policy's decision",
        f"set algorithm.filter_groups.enable=False; `policy: dapo` in {KWARGS} is that rule",
    ),
    (
        "trainer.v1.sampler.custom_sampler.path",
        bool,
        "the allocator's replay buffer stands in the place of a sampler",
        "set trainer.v1.sampler.custom_sampler.path=null",
    ),
    (
        "trainer.v1.sampler.sync_refill_failed_groups",
        bool,
        "rollouts that failed are paid for and are shown to no policy; none is drawn in their place",
        "set trainer.v1.sampler.sync_refill_failed_groups=False",
    ),
    (
        "skip.rollout_tq.enable",
        bool,
        "rollouts from a file are not what a policy asked for",
        "set skip.rollout_tq.enable=False",
    ),
)


def check(config: Any, version: str) -> None:
    """Raises an error that names the first key that allot's trainer cannot do with."""
    given = kwargs(config)
    if version not in TRIED and not given.get("any_version"):
        raise Error(
            f"this is verl {version}, and allot was tried with {' and '.join(TRIED)}",
            f"install verl=={TRIED[-1]}, or set `any_version: true` in {KWARGS} and look closely at the first steps",
        )
    for key, refused, why, hint in REFUSED:
        value = get(config, key)
        if value is not None and refused(value):
            raise Error(f"`{key}` is {getattr(value, 'value', value)}: {why}", hint)
    model = get(config, "reward.reward_model", {})
    if get(model, "enable") and not get(model, "enable_resource_pool"):
        raise Error(
            "`reward.reward_model.enable` is True, and the reward model shares the trainer's GPUs: "
            "its rewards come after the batch is chosen, and a policy chooses by them",
            "set reward.reward_model.enable_resource_pool=True, with n_gpus_per_node and nnodes beside it",
        )
    if (step := get(config, "trainer.v1.sync.parameter_sync_step", 1)) != 1:
        raise Error(
            f"`trainer.v1.sync.parameter_sync_step` is {step}: rollouts are to be sampled with the newest weights",
            "set trainer.v1.sync.parameter_sync_step=1",
        )


def kwargs(config: Any) -> dict[str, Any]:
    """The run's own keys. Groups and rollouts are verl's where they are not given."""
    given = get(config, KWARGS, {})
    # A configuration of OmegaConf's has its own types of dicts and lists.
    given = _plain(given)
    known = set(inspect.signature(Allocator).parameters) - TAKEN.keys() | set(OURS)
    for name in given:
        if name in TAKEN:
            key = TAKEN[name]
            raise Error(
                f"`{name}` in {KWARGS} is what the trainer says by itself",
                f"set {key}" if key else "leave it out",
            )
        if name == "requests":
            raise Error(
                f"`requests` in {KWARGS} lets a policy choose how its rollouts are sampled, and verl samples all alike",
                "leave it out; TRL and slime carry out a length limit by request",
            )
        if name not in known:
            raise Error(f"{KWARGS} has no key `{name}`", f"it has {', '.join(sorted(known))}")
    if "policy" not in given:
        raise Error(f"{KWARGS} does not say which policy", "add `policy: pilot-commit`, or another")
    otherwise = {
        "groups": get(config, "data.train_batch_size"),
        "rollouts": get(config, "actor_rollout_ref.rollout.n"),
    }
    return {**otherwise, **given}


def _plain(value: Any) -> Any:
    if hasattr(value, "items"):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        return value
    return [_plain(inner) for inner in value]


def steps(config: Any, prompts: int) -> int:
    """How many steps verl's loop makes: by its epochs, or fewer if `total_training_steps` says so."""
    batch, epochs = get(config, "data.train_batch_size"), get(config, "trainer.total_epochs")
    by_epochs = prompts // batch * epochs
    if by_epochs == 0:
        raise Error(
            f"there are no steps: {prompts} prompts make no batch of `data.train_batch_size`, {batch}, "
            f"or `trainer.total_epochs`, {epochs}, is 0",
            "set data.train_batch_size to at most the number of prompts",
        )
    told = get(config, "trainer.total_training_steps")
    return by_epochs if told is None else min(int(told), by_epochs)


def check_ranks(config: Any, ranks: int) -> str | None:
    """Raises an error if an optimizer step's rollouts can't be divided over the data-parallel ranks. Returns a sentence
    for the log if batches will be filled up by much.
    """
    actor = get(config, "actor_rollout_ref.actor.ppo_mini_batch_size")
    n = get(config, "actor_rollout_ref.rollout.n")
    if actor * n % ranks != 0:
        raise Error(
            f"an optimizer step has actor_rollout_ref.actor.ppo_mini_batch_size × actor_rollout_ref.rollout.n = "
            f"{actor} × {n} rollouts, which can't be divided over {ranks} data-parallel ranks",
            f"set ppo_mini_batch_size to a multiple of {ranks // math.gcd(n, ranks)}",
        )
    given = kwargs(config)
    batch = given["groups"] * given["rollouts"]
    rows = -(-batch // (actor * n)) * actor * n
    if rows >= 1.5 * batch:
        return (
            f"a batch of {given['groups']} groups × {given['rollouts']} rollouts is filled up from {batch} to {rows} "
            f"rows: verl fills to a multiple of ppo_mini_batch_size × rollout.n = {actor * n}. A smaller "
            f"ppo_mini_batch_size wastes less"
        )
    return None


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What a run is that was another in its checkpoint: a clause, and the key to change."""
    keys = {name: KEYS.get(name, f"`{name}` in {KWARGS}") for name in {*before, *now}}
    return changes(before, now, keys, {name: key.split(",")[0] for name, key in keys.items()})
