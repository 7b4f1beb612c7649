"""OpenRLHF: rollouts of a policy's plans. Its generator of samples, and its vLLM actor with a seed for each
rollout.

A request is carried out by OpenRLHF's own engines and agent executors, with a count that differs from prompt
to prompt. What its penalties make of a reward is applied here, before the policy decides, and not after the
batch is chosen.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import ray
import torch
from openrlhf.trainer.ppo_utils.experience import Experience
from openrlhf.trainer.ppo_utils.length_penalty import apply_length_penalties
from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator
from openrlhf.trainer.ray.vllm_engine import RolloutRayActor, batch_vllm_engine_call
from vllm import SamplingParams

from .allocator import Allocator, Draw, Over, Rollout, Sample, Train
from .errors import Error
from .openrlhf_batch import plain, rows
from .turn_seeds import turn_seed


class AllocatedSamplesGenerator(SamplesGenerator):
    """OpenRLHF's generator of samples, with the batches that a policy plans."""

    #: Set by the trainer before the first batch.
    allocator: Allocator
    #: The score above which an answer is right.
    correct_above: float
    #: Called when there is no further batch.
    ended: Callable[[], None]
    #: The share of right answers in the last evaluation.
    accuracy: float | None = None
    #: Rollouts without a reward since the last one with a reward.
    lost = 0
    #: Whether there is no further batch.
    is_over = False

    @torch.no_grad()
    def generate_samples(self, **generate_kwargs: Any) -> tuple[list[Experience], None, int, bool]:
        """The next batch, no filter's pass rate, the prompts sampled, and whether the run is over."""
        prompts = 0
        if self.is_over:
            # OpenRLHF asks once more in each episode that is left.
            return [], None, prompts, True
        with self._awake():
            while True:
                match self.allocator.next():
                    case Sample(draws=draws):
                        self.allocator.sampled(list(self._sampled(draws, generate_kwargs)))
                        prompts += len(draws)
                    case Train(rollouts=[]):
                        self.allocator.trained(updated=False)
                    case Train(rollouts=rollouts):
                        return rows(rollouts, self.args.train.batch_size), None, prompts, False
                    case Over():
                        break
        self.is_over = True
        self.ended()
        return [], None, prompts, True

    @contextmanager
    def _awake(self) -> Iterator[None]:
        if self.args.vllm.enable_sleep:
            batch_vllm_engine_call(self.vllm_engines, "wake_up")
        try:
            yield
        finally:
            if self.args.vllm.enable_sleep:
                batch_vllm_engine_call(self.vllm_engines, "sleep")

    def _sampled(self, draws: list[Draw], generate_kwargs: dict[str, Any]) -> Iterator[Rollout]:
        """The rollouts of the draws, in their order."""
        responses = ray.get(self._requested(draws, generate_kwargs))
        done = [
            self._process_response_into_experience(response, **generate_kwargs)
            for group in responses
            for response in group
        ]
        self._shape([experience for experience in done if experience.rewards is not None])
        return map(self._told, done)

    def _requested(self, draws: list[Draw], generate_kwargs: dict[str, Any]) -> list[ray.ObjectRef]:
        """References to the responses of each draw."""
        data = self.prompts_dataloader.dataset
        params = SamplingParams(
            temperature=generate_kwargs["temperature"],
            top_p=generate_kwargs["top_p"],
            top_k=generate_kwargs.get("top_k", -1),
            max_tokens=generate_kwargs["max_new_tokens"],
            min_tokens=generate_kwargs.get("min_new_tokens", 1),
            skip_special_tokens=generate_kwargs.get("skip_special_tokens", False),
            logprobs=1 if self.args.algo.advantage.is_correction_level != "off" else None,
        )
        tokenizer = ray.put(self.tokenizer)
        # Nothing else is under way: each request goes to the engine that has been asked for the fewest
        # rollouts.
        loads = [0] * len(self.vllm_engines)
        refs = []
        for draw in draws:
            engine = loads.index(min(loads))
            loads[engine] += draw.count
            refs.append(
                self.vllm_engines[engine].generate_responses.remote(
                    prompt=data.prompts[draw.prompt],
                    label=data.labels[draw.prompt],
                    sampling_params=params,
                    max_length=generate_kwargs["max_len"],
                    hf_tokenizer=tokenizer,
                    num_samples=draw.count,
                    seeds=draw.seeds,
                )
            )
        return refs

    def _shape(self, experiences: list[Experience]) -> None:
        """Applies to rewards what OpenRLHF applies to them before it normalizes them. What it clips is normalized."""
        for experience in experiences:
            experience.rewards = experience.rewards.reshape(-1)[:1].float()
        apply_length_penalties(experiences, self.args)
        for experience in experiences:
            experience.info["reward"] = experience.rewards.clone()

    def _told(self, experience: Experience) -> Rollout:
        tokens = int(experience.action_mask.sum())
        if tokens > self.allocator.longest:
            raise Error(
                f"a rollout has {tokens} tokens, and {self.allocator.longest} is the most that the budget is "
                "counted with",
                "set `longest` in --allot to the most that the model generates in all turns of a rollout",
            )
        reward = math.nan if experience.rewards is None else experience.rewards.item()
        truncated = bool(experience.truncated.item())
        if not math.isfinite(reward):
            self._count_lost()
            return Rollout(reward=None, tokens=tokens, correct=False, truncated=truncated)
        self.lost = 0
        return Rollout(reward, tokens, self._right(experience), truncated, answer=experience)

    def _right(self, experience: Experience) -> bool:
        return experience.scores is not None and experience.scores.reshape(-1)[0].item() > self.correct_above

    def _count_lost(self) -> None:
        self.lost += 1
        if self.lost >= self.allocator.batch:
            raise Error(
                f"the last {self.lost} rollouts came back without a reward, and they are paid for",
                "see `Failed to fetch reward` in OpenRLHF's log: the reward function or server fails",
            )

    @torch.no_grad()
    def generate_eval_samples(self, **generate_kwargs: Any) -> list[Experience]:
        """OpenRLHF's own. Keeps the share of right answers, by the rule that tells them apart in training."""
        samples: list[Experience] = super().generate_eval_samples(**generate_kwargs)
        self.accuracy = sum(map(self._right, samples)) / len(samples) if samples else None
        return samples


class SeededEngine:
    """An engine for one rollout: each of its turns is sampled with a seed of its own."""

    def __init__(self, engine: Any, seed: int):
        self._engine, self._seed = engine, seed
        self._turns = itertools.count()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def generate(
        self, prompt_token_ids: list[int], sampling_params: Any, *more: Any, **named: Any
    ) -> Any:
        params = copy.deepcopy(sampling_params)
        params.seed = turn_seed(self._seed, next(self._turns))
        return await self._engine.generate(prompt_token_ids, params, *more, **named)


class AllocatedRollouts(plain(RolloutRayActor)):  # type: ignore[misc]
    """OpenRLHF's vLLM actor, which samples each rollout with its seed."""

    async def generate_responses(
        self, *arguments: Any, num_samples: int = 1, seeds: list[int] | None = None, **named: Any
    ) -> list[dict[str, Any]]:
        """A response for each seed. Without seeds: OpenRLHF's own, as in its evaluations."""
        if seeds is None:
            return await super().generate_responses(*arguments, num_samples=num_samples, **named)
        params = named.pop("sampling_params")
        tasks = [
            # An executor of several turns changes its parameters.
            self.executor.execute(
                *arguments,
                **{"images": None, **named},
                sampling_params=copy.deepcopy(params),
                llm_engine=SeededEngine(self, seed),
            )
            for seed in seeds
        ]
        return await asyncio.gather(*tasks)
