"""slime: its rollout function, data source and advantages, under a policy. Written for slime 0.3, synchronous.

    python train.py … --data-source-path allot.slime.AllocatedSource \\
        --rollout-function-path allot.slime.generate_rollout \\
        --custom-reward-post-process-path allot.slime.advantages \\
        --custom-config-path allot.yaml

    # allot.yaml
    allot: {policy: pilot-commit, settings: {pilot: 4, commit: 12}, groups: 16, rollouts: 16, budget: {rollouts: 20000}}

Rollouts are generated and judged by slime's own `generate_and_rm`, with counts that differ from prompt to prompt. slime
takes optimizer steps of `global_batch_size` rollouts: what is missing is filled with rollouts without a loss.
"""

from __future__ import annotations

import asyncio
import copy
import os
from argparse import Namespace
from typing import Any

import torch
from slime.rollout import sglang_rollout
from slime.rollout.base_types import RolloutFnTrainOutput
from slime.rollout.data_source import RolloutDataSource
from slime.utils.async_utils import run
from slime.utils.processing_utils import load_tokenizer
from slime.utils.types import Sample as Trajectory

from .allocator import Allocator, Draw, Learn, Over, Rollout, Sample, Train
from .errors import Error

#: Where a trajectory's advantage is, in its metadata.
ADVANTAGE = "allot_advantage"

#: slime's estimators that take a trajectory's reward, as it was post-processed, for the advantage of its tokens.
ESTIMATORS = ("grpo", "gspo", "cispo")


class RunIsOver(Exception):  # noqa: N818
    """There is no further batch. slime has no way to end a run early, so this ends its process."""


class AllocatedSource(RolloutDataSource):
    """slime's data source, with the allocator of its prompts."""

    def __init__(self, args: Namespace):
        super().__init__(args)
        _check(args, self.dataset)
        given = dict(args.allot)
        self.correct_above = given.pop("correct_above", 0.5)
        tokenizer = load_tokenizer(args.hf_checkpoint, trust_remote_code=True)
        prompts = self.dataset.samples
        self.allocator = Allocator(
            given.pop("policy"),
            [len(tokenizer.encode(prompt.prompt, add_special_tokens=False)) for prompt in prompts],
            **{
                "steps": args.num_rollout,
                "longest": args.rollout_max_response_len,
                "engine": "slime",
                "columns": lambda name: [prompt.metadata[name] for prompt in prompts],
                **given,
            },
        )
        #: Whether slime has a batch that it has not asked for the next one after.
        self._learning = False

    # === Sampling ===

    async def next_batch(self) -> RolloutFnTrainOutput:
        """Samples until there is something to train on."""
        step = self.settle()
        while True:
            match self.allocator.next():
                case Sample(draws=draws):
                    self.allocator.sampled(await self._sampled(draws))
                case Train(rollouts=[]):
                    step = self.allocator.trained(updated=False)
                case Train(rollouts=rollouts):
                    self._learning = True
                    return RolloutFnTrainOutput(self._filled(rollouts), self.allocator.metrics(step))
                case Over(reason=reason):
                    raise RunIsOver(reason)

    async def _sampled(self, draws: list[Draw]) -> list[Rollout]:
        params = sglang_rollout.GenerateState(self.args).sampling_params
        deterministic = getattr(self.args, "sglang_enable_deterministic_inference", False)
        tasks = []
        for draw in draws:
            for seed in draw.seeds:
                trajectory = self._numbered(self.dataset.samples[draw.prompt], self.sample_group_index)
                # SGLang takes signed numbers.
                seeded = {**params, "sampling_seed": seed >> 1} if deterministic else dict(params)
                tasks.append(sglang_rollout.generate_and_rm(self.args, trajectory, seeded))
            self.sample_group_index += 1
        return [self._told(done) for done in await asyncio.gather(*tasks)]

    def _told(self, trajectory: Trajectory | list[Trajectory]) -> Rollout:
        if isinstance(trajectory, list):
            raise Error("a rollout came back as several trajectories, which can't be trained on")
        whole = trajectory.status in (Trajectory.Status.COMPLETED, Trajectory.Status.TRUNCATED)
        reward = float(trajectory.get_reward_value(self.args)) if whole else None
        return Rollout(
            reward=reward,
            tokens=trajectory.effective_response_length,
            correct=reward is not None and reward > self.correct_above,
            truncated=trajectory.status == Trajectory.Status.TRUNCATED,
            answer=trajectory,
        )

    def _numbered(self, trajectory: Trajectory, group: int) -> Trajectory:
        numbered = copy.deepcopy(trajectory)
        numbered.group_index, numbered.index = group, self.sample_index
        self.sample_index += 1
        return numbered

    # === Passing rollouts to slime ===

    def _filled(self, rollouts: list[Learn]) -> list[list[Trajectory]]:
        """A list of groups, as slime has them, of as many rollouts as its optimizer steps need."""
        filling = -len(rollouts) % self.args.global_batch_size
        # A mean over rollouts counts those of the filling; one over tokens does not.
        by_rollouts = not self.args.calculate_per_token_loss
        scale = (len(rollouts) + filling) / len(rollouts) if by_rollouts else 1.0
        groups: dict[int, list[Trajectory]] = {}
        for learn in rollouts:
            learn.answer.metadata[ADVANTAGE] = learn.advantage * scale
            groups.setdefault(learn.prompt, []).append(learn.answer)
        spare = []
        for _ in range(filling):
            trajectory = self._numbered(rollouts[0].answer, self.sample_group_index)
            trajectory.remove_sample, trajectory.metadata[ADVANTAGE] = True, 0.0
            spare.append(trajectory)
        return [*groups.values(), *([spare] if spare else [])]

    # === Steps and checkpoints ===

    def settle(self) -> dict[str, Any] | None:
        """Ends a step whose update is done: slime then saves, or asks for the next batch."""
        if not self._learning:
            return None
        self._learning = False
        return self.allocator.trained()

    def save(self, rollout_id: int) -> None:
        super().save(rollout_id)
        self.settle()
        state = self.allocator.state_dict()
        answers = {number: answer.to_dict() for number, answer in state["answers"].items()}
        path = self._path(self.args.save, rollout_id)
        torch.save({"run": state["run"], "answers": answers}, f"{path}.unfinished")
        os.replace(f"{path}.unfinished", path)

    def load(self, rollout_id: int | None = None) -> None:
        super().load(rollout_id)
        if self.args.load is None or rollout_id is None or rollout_id < 0:
            return
        path = self._path(self.args.load, rollout_id)
        if not os.path.exists(path):
            raise Error(f"there is no `{path}`", "it is no checkpoint of this adapter")
        state = torch.load(path, weights_only=False)
        answers = {number: Trajectory.from_dict(answer) for number, answer in state["answers"].items()}
        self.allocator.load_state_dict({"run": state["run"], "answers": answers})

    def _path(self, folder: str, rollout_id: int) -> str:
        return os.path.join(folder, f"rollout/allot_{rollout_id}.pt")


def generate_rollout(
    args: Namespace, rollout_id: int, data_source: AllocatedSource, evaluation: bool = False
) -> Any:
    """slime's rollout function. Evaluation is slime's own."""
    if evaluation:
        return sglang_rollout.generate_rollout(args, rollout_id, data_source, evaluation=True)
    return run(data_source.next_batch())


def advantages(args: Namespace, samples: list[Trajectory]) -> tuple[list[float], list[float]]:
    """slime's post-processing of rewards: the raw ones, and the allocator's advantages."""
    raw = [float(sample.get_reward_value(args)) for sample in samples]
    return raw, [sample.metadata[ADVANTAGE] for sample in samples]


def _check(args: Namespace, dataset: Any) -> None:
    """Raises an error for settings of slime that this adapter does not support."""
    wrong = None
    if dataset is None:
        wrong = "it has no data set of its own", "take --rollout-global-dataset and --prompt-data"
    elif args.group_rm or args.partial_rollout:
        wrong = "group rewards and partial rollouts can't be planned for", "leave them out"
    elif args.advantage_estimator not in ESTIMATORS or args.normalize_advantages:
        names = ", ".join(ESTIMATORS)
        wrong = "advantages are the allocator's", f"take {names}, without --normalize-advantages"
    elif not getattr(args, "allot", None):
        wrong = "there is no section `allot`", "name a file that has one by --custom-config-path"
    if wrong is not None:
        raise Error(f"slime can't be allotted rollouts: {wrong[0]}", wrong[1])
