"""OpenRLHF: the rows of a batch, their advantages, and what is logged of them.

OpenRLHF takes optimizer steps of `train.batch_size` rows. Without a whole number of them it would carry
gradients into the next batch, so a batch is filled up with rows whose action mask is empty. They have no part
in the loss or its normalizers, but OpenRLHF's means of metrics would divide by their tokens: what is logged
leaves them out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from openrlhf.trainer.ppo_utils.experience import Experience
from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker
from openrlhf.trainer.ray.ppo_actor import PolicyModelActor

from .allocator import Learn

#: Where a row's advantage is, in its `info`. It is logged under this name.
ADVANTAGE = "advantage"

#: The weight of a micro batch without a row that counts: OpenRLHF divides by it.
NOTHING = 1e-9


def plain(actor: Any) -> Any:
    """The class that Ray made this actor's class from."""
    return actor.__ray_metadata__.modified_class.__ray_actor_class__


def rows(rollouts: list[Learn], size: int) -> list[Experience]:
    """A row for each rollout, and evenly between them empty ones, up to a multiple of `size`."""
    real = [_row(learn.answer, learn.advantage) for learn in rollouts]
    shortest = min(real, key=lambda row: row.sequences.shape[-1])
    empty = replace(_row(shortest, 0.0), action_mask=torch.zeros_like(shortest.action_mask))
    missing = -len(real) % size
    total = len(real) + missing
    # Ranks take contiguous parts of a batch: each gets about as many empty rows.
    places = {(2 * i + 1) * total // (2 * missing) for i in range(missing)}
    following = iter(real)
    # Each row has its own `index` from OpenRLHF, so none may be there twice.
    return [replace(empty) if place in places else next(following) for place in range(total)]


def _row(experience: Experience, advantage: float) -> Experience:
    """A row that shares its tensors with the rollout, which may be trained on again."""
    return replace(experience, info={**experience.info, ADVANTAGE: torch.tensor([advantage])})


def counts(experience: Experience) -> torch.Tensor:
    """Which rows of a batch are rollouts, and not there to fill it up. Shape (B,)."""
    return experience.action_mask.sum(dim=-1) > 0


class AllocatedExperienceMaker(RemoteExperienceMaker):
    """OpenRLHF's maker of experiences, with the allocator's advantages."""

    @torch.no_grad()
    def compute_advantages_and_returns(self, experiences: list[Experience]) -> list[Experience]:
        """Sets advantages and returns, of shape (B, A), to the rollout's at each generated token."""
        for experience in experiences:
            advantage = experience.info[ADVANTAGE].float()
            experience.advantages = advantage.unsqueeze(-1) * experience.action_mask
            experience.returns = experience.advantages.clone()
            experience.info["return"] = advantage
            # Means over no token.
            for name in ("kl", "logprobs_diff"):
                experience.info[name] = torch.nan_to_num(experience.info[name])
            experience.kl = None
        return experiences


class AllocatedPolicyModel(plain(PolicyModelActor)):  # type: ignore[misc]
    """OpenRLHF's actor that trains the model, whose metrics leave empty rows out."""

    def init_model_from_pretrained(self, *arguments: Any, **named: Any) -> None:
        super().init_model_from_pretrained(*arguments, **named)
        step = self.trainer.training_step

        def training_step(experience: Experience, *more: Any, **also: Any) -> dict[str, Any]:
            return measured(step(experience, *more, **also), counts(experience).cpu())

        self.trainer.training_step = training_step


def measured(told: dict[str, Any], real: torch.Tensor) -> dict[str, Any]:
    """What a micro batch's step says, of the rows that are rollouts."""
    if real.all():
        return told
    metrics, weights = told["metrics"], told["weights"]
    for name, weight in weights.items():
        value = metrics[name]
        if (
            weight == "sample"
            and isinstance(value, torch.Tensor)
            and value.shape[:1] == real.shape
            and real.any()
        ):
            metrics[name] = value[real.to(value.device)]
        elif weight is not None and not real.any():
            metrics[name] = torch.zeros(())
    return {
        **told,
        "num_samples": max(float(real.sum()), NOTHING),
        "num_action_tokens": max(told["num_action_tokens"], NOTHING),
    }
