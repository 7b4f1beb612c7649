"""Which TRL, and which of its settings, the adapter can keep its promises with."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import trl

from .errors import Error

#: The versions that the tests were run with.
TRIED = ("1.16",)

#: Losses that TRL divides by tokens: padding rows have none.
BY_TOKENS = ("dapo", "cispo", "vespo")
#: Losses that TRL divides by rows: advantages are scaled by all rows / real rows.
BY_ROWS = ("grpo", "sapo", "dr_grpo", "luspo")


def check_version() -> None:
    """Refuses a TRL that was not tried: the adapter overrides methods of which TRL promises nothing."""
    if not any(f"{trl.__version__}.".startswith(f"{tried}.") for tried in TRIED):
        raise Error(
            f"this adapter was not tried with TRL {trl.__version__}, but with {', '.join(TRIED)}",
            f"pip install 'trl=={TRIED[-1]}.*'",
        )


def check(trainer: Any) -> None:
    """Raises an error for settings of TRL that the trainer does not support."""
    wrong = _of_data(trainer) or _of_loss(trainer) or _of_steps(trainer) or _of_sizes(trainer)
    if wrong is not None:
        raise Error(f"this trainer can't be allotted rollouts: {wrong[0]}", wrong[1])


#: What is wrong, and what to change.
Wrong = tuple[str, str | None]


def _of_data(trainer: Any) -> Wrong | None:
    data, prompts = trainer.train_dataset, trainer.allocator.prompts
    if not hasattr(data, "__getitem__"):
        return "its data set is a stream, and a policy asks for prompts by their place", "load it as a whole"
    if {"image", "images"} & set(data[0]):
        return "its prompts have images", None
    if len(data) != prompts:
        return (
            f"its data set has {len(data)} prompts, and the allocator {prompts}",
            "let the allocator's `lengths` be those of `train_dataset`: lengths(dataset, tokenizer)",
        )
    return None


def _of_loss(trainer: Any) -> Wrong | None:
    loss = trainer.loss_type
    if loss not in BY_TOKENS + BY_ROWS:
        return (
            f"its loss `{loss}` counts rows of filling",
            f"losses that do not: {', '.join(BY_TOKENS + BY_ROWS)}",
        )
    if loss in BY_ROWS and trainer.beta != 0.0:
        return f"its loss `{loss}` with a KL term counts rows of filling", 'take loss_type="dapo"'
    if trainer.entropy_coef != 0.0 or trainer.use_adaptive_entropy:
        return (
            "its entropy bonus is a mean for each part of a batch, and parts have unequal filling",
            "let entropy_coef be 0 and use_adaptive_entropy False",
        )
    if trainer.multi_objective_aggregation != "sum_then_normalize":
        return (
            f'its rewards are aggregated as "{trainer.multi_objective_aggregation}", and the allocator computes '
            "advantages of their sum",
            'let multi_objective_aggregation be "sum_then_normalize"',
        )
    return None


def _of_steps(trainer: Any) -> Wrong | None:
    args = trainer.args
    steps = args.steps_per_generation * trainer.num_iterations
    optimizer_steps = max(1, steps // args.gradient_accumulation_steps)
    if steps % args.gradient_accumulation_steps != 0:
        return (
            "an optimizer step of it goes over several batches",
            "let steps_per_generation be gradient_accumulation_steps, or a multiple",
        )
    if trainer.allocator.updates_as_told:
        return (
            "the allocator's policy may change how a batch is updated on, and TRL's own settings do that",
            "leave out the allocator's `update`; num_iterations and steps_per_generation say how TRL updates",
        )
    if "temperature" in (trainer.allocator.requests or {}):
        return (
            "the allocator's `requests` let a policy choose the temperature, and TRL computes log-probabilities at one",
            "leave `temperature` out of `requests`; `least_tokens` is carried out",
        )
    if getattr(args, "enable_jit_checkpoint", False):
        return (
            "enable_jit_checkpoint saves within a batch, where no run can be gone on from",
            "leave it out; a run goes on from its last checkpoint, and save_steps says how often there is one",
        )
    if getattr(args.save_strategy, "value", args.save_strategy) == "epoch" and optimizer_steps > 1:
        return (
            f"it saves after each epoch, which may end within a batch of {optimizer_steps} optimizer steps",
            f'let save_strategy be "steps", and save_steps a multiple of {optimizer_steps}',
        )
    for does, name in (("evaluates", "eval"), ("saves", "save")):
        strategy, every = getattr(args, f"{name}_strategy"), getattr(args, f"{name}_steps")
        if by_steps(strategy) and every % optimizer_steps != 0:
            return (
                f"it {does} every {every:g} optimizer steps, and a batch has {optimizer_steps}",
                f"let {name}_steps be a multiple of {optimizer_steps}",
            )
    return None


def _of_sizes(trainer: Any) -> Wrong | None:
    args, allocator = trainer.args, trainer.allocator
    if trainer.max_completion_length > allocator.longest:
        return (
            f"its answers get {trainer.max_completion_length} tokens, and the allocator's {allocator.longest}",
            "let `longest` be max_completion_length",
        )
    if abs(args.temperature - allocator.temperature) > 1e-6:
        return (
            f"it samples at a temperature of {args.temperature:g}, and the allocator's policy is told {allocator.temperature:g}",
            "let `temperature` be the same in GRPOConfig and in Allocator",
        )
    least = args.generation_batch_size // trainer.num_generations
    if allocator.prompts < least:
        return (
            f"its data loader wants {least} prompts for a batch, generation_batch_size ÷ num_generations, and there are "
            f"{allocator.prompts}",
            "raise num_generations, which has no other effect here, or lower generation_batch_size",
        )
    if allocator.batch > args.generation_batch_size:
        return (
            f"a step of the run trains on {allocator.batch} rollouts, and TRL's batch has "
            f"{args.generation_batch_size} rows",
            "raise generation_batch_size: rows that are left over cost next to nothing",
        )
    return None


def by_steps(strategy: Any) -> bool:
    """Whether TRL saves or evaluates every so many steps."""
    return getattr(strategy, "value", strategy) == "steps"


def fingerprint(dataset: Any) -> str:
    """Tells one data set from another, by all of its rows."""
    digest = hashlib.sha256()
    for row in dataset:
        digest.update(json.dumps(row, sort_keys=True, default=str).encode())
    return digest.hexdigest()
