"""verl: its replay buffer and its per-prompt counts, under a policy. For verl 0.9, trainer V1, synchronous.

verl asks a replay buffer for the next batch. This one does not wait for prompts that are submitted elsewhere:
it follows the policy's plans, submits the granted rollouts with `__rollout_n__` of each prompt, reads rewards
and lengths of the results from the TransferQueue, and calls the policy again; the picked rollouts are the
batch. Rollouts that a policy holds stay in the queue. The trainer passes advantages to verl, updates the
rollout buffer after each update, and stores the run's state and held rollouts beside verl's checkpoints.

    python -m verl.trainer.main_ppo … trainer.v1.trainer_mode=allot \\
        +trainer.v1.sampler.sampler_kwargs='{policy: …, groups: …, rollouts: …, budget: {rollouts: …}}'

The other keys are those of `allot.Allocator`. verl finds the trainer by itself: see `verl_plugin.py`. Each rollout is
sampled with the seed that the allocator gives it. This module does not depend on how verl samples or trains.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import os
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray
import torch
import transfer_queue as tq
from omegaconf import DictConfig, OmegaConf, open_dict
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils import tensordict_utils as tu
from verl.utils.dataset.rl_dataset import collate_fn

from .allocator import Allocator, Draw, Over, Rollout, Sample, Train
from .errors import Error

#: The file in a checkpoint's folder.
STATE = "allot.pt"

#: How each of verl's samplers calls the seed of a request. SGLang heeds it only with deterministic inference.
SEED_NAMES = {"vllm": "seed", "sglang": "sampling_seed", "trtllm": "seed"}

#: The field of a prompt that has the seeds of its rollouts.
SEEDS = "__allot_seeds__"


@dataclass(frozen=True)
class Answer:
    """A rollout in the TransferQueue: the keys of its trajectories; a session may have several."""

    keys: list[str]
    tags: list[dict[str, Any]]


class RunIsOver(Exception):  # noqa: N818
    """There is no further batch. This is a normal end."""


class AllocatedReplayBuffer(ReplayBuffer):
    """A replay buffer that decides what is sampled, and how often."""

    #: Set by the trainer before the first batch.
    allocator: Allocator
    #: Submits draws, each under the name at the same position.
    submit: Callable[[list[Draw], list[str]], None]
    #: Whether a reward is that of a right answer.
    correct: Callable[[float], bool] = staticmethod(lambda reward: reward > 0.5)

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[KVBatchMeta, dict]:
        """The policy's next batch. verl handles validation itself."""
        if partition_id != "train":
            return super().sample(global_steps=global_steps, partition_id=partition_id, batch_size=batch_size)
        while True:
            match self.allocator.next():
                case Sample(draws=draws):
                    names = [str(uuid.uuid4()) for _ in draws]
                    self.submit(draws, names)
                    self.allocator.sampled(list(self._sampled(partition_id, draws, names)))
                case Train(rollouts=[]):
                    self._settle(updated=False)
                case Train(rollouts=rollouts):
                    self.advantages = {key: r.advantage for r in rollouts for key in r.answer.keys}
                    tags = [tag for r in rollouts for tag in r.answer.tags]
                    return KVBatchMeta(partition_id=partition_id, keys=list(self.advantages), tags=tags), {}
                case Over(reason=reason):
                    raise RunIsOver(reason)

    def _sampled(self, partition_id: str, draws: list[Draw], names: list[str]) -> Iterator[Rollout]:
        """The results of the draws, in order. A failed session is an unscorable rollout."""
        waiting, asked = set(names), time.time()
        while waiting:
            self._sync_metadata_from_transfer_queue()
            waiting -= self.finished_keys[partition_id] | self.failure_keys[partition_id]
            if waiting:
                asked = self._wait_for_next_poll(partition_id, asked)
        tq.kv_clear(partition_id=partition_id, keys=names)

        sessions: dict[tuple[str, int], Answer] = {}
        # A session's outputs in the order of their index: the last one has the reward.
        keys = [key for key in self.partitions[partition_id] if key.split("_")[0] in set(names)]
        for key in sorted(keys, key=lambda key: int(key.rsplit("_", 1)[1])):
            name, session, _ = key.split("_")
            answer = sessions.setdefault((name, int(session)), Answer([], []))
            answer.keys.append(key)
            answer.tags.append(self.partitions[partition_id][key])
        told = self._told(partition_id, keys)
        for draw, name in zip(draws, names, strict=True):
            for session in range(draw.count):
                answer = sessions.get((name, session))
                if answer is None:
                    yield Rollout(reward=None, tokens=0, correct=False)
                    continue
                reward = told[answer.keys[-1]][0]
                tokens = sum(told[key][1] for key in answer.keys)
                yield Rollout(
                    reward=reward,
                    tokens=tokens,
                    correct=self.correct(reward),
                    truncated=answer.tags[-1]["response_len"] >= self.allocator.longest,
                    answer=answer,
                )

    def _told(self, partition_id: str, keys: list[str]) -> dict[str, tuple[float, int]]:
        """Each trajectory's reward, and how many tokens of it the model generated."""
        if not keys:
            return {}
        try:
            data = tq.kv_batch_get(
                keys=keys, partition_id=partition_id, select_fields=["rm_scores", "response_mask"]
            )
            scores, masks = data["rm_scores"], data["response_mask"]
        except (KeyError, ValueError, RuntimeError) as error:
            raise Error(
                "what verl sampled comes without rewards, and a policy decides by them",
                "let the agent loop compute rewards: by a function, or a reward model with its own workers",
            ) from error
        both = zip(scores.unbind(), masks.unbind(), strict=True)
        return {
            key: (score.sum().item(), int(mask.sum())) for key, (score, mask) in zip(keys, both, strict=True)
        }

    def settle(self) -> dict[str, float]:
        """Called after a model update. Removes what is not held from the queue; verl clears the batch."""
        return self._settle(updated=True)

    def _settle(self, updated: bool) -> dict[str, float]:
        trained = set(self.advantages) if updated else set()
        before = set(self._keys_on_hand())
        step = self.allocator.trained(updated=updated)
        gone = before - set(self._keys_on_hand()) - trained
        if gone:
            tq.kv_clear(partition_id="train", keys=sorted(gone))
        return self.allocator.metrics(step)

    def _keys_on_hand(self) -> list[str]:
        return [
            key
            for group in self.allocator.groups
            for answer in self._answers(group["prompt"])
            for key in answer.keys
        ]

    def _answers(self, prompt: int) -> list[Answer]:
        return list(self.allocator.on_hand(prompt).values())

    def state_dict(self) -> dict[str, Any]:
        """The run's state, and the held rollouts, because the queue ends with its process."""
        state = self.allocator.state_dict()
        answers = state.pop("answers")
        keys = [key for answer in answers.values() for key in answer.keys]
        return {
            "run": state["run"],
            "answers": {rollout: (answer.keys, answer.tags) for rollout, answer in answers.items()},
            "held": tq.kv_batch_get(keys=keys, partition_id="train") if keys else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from this state, and puts the held rollouts back into the queue."""
        answers = {rollout: Answer(*both) for rollout, both in state["answers"].items()}
        if state["held"] is not None:
            keys = [key for answer in answers.values() for key in answer.keys]
            tags = [tag for answer in answers.values() for tag in answer.tags]
            tq.kv_batch_put(keys=keys, partition_id="train", fields=state["held"], tags=tags)
        self.allocator.load_state_dict({"run": state["run"], "answers": answers})


class SeededClient:
    """verl's client of the sampler, for one rollout: each of its turns is sampled with a seed of its own."""

    def __init__(self, client: Any, name: str, seed: int):
        self._client, self._name, self._seed = client, name, seed
        self._turns = itertools.count()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def generate(self, *arguments: Any, sampling_params: dict[str, Any], **named: Any) -> Any:
        # With the same seed for all, the noise of a turn would be that of the turn before.
        params = {**sampling_params, self._name: turn_seed(self._seed, next(self._turns))}
        return await self._client.generate(*arguments, sampling_params=params, **named)


def turn_seed(seed: int, turn: int) -> int:
    """The seed of a turn, of 63 bits: samplers take signed numbers."""
    if turn > 0:
        seed = int.from_bytes(hashlib.blake2b(f"{seed}/{turn}".encode(), digest_size=8).digest(), "big")
    return seed >> 1


def _workers() -> Any:
    """verl's agent loop workers, whose loops have the seeds of their rollouts.

    A class in a function: Ray then sends it whole to other processes. Of a class by its name it would send verl's part,
    which is not there by its name, and find another in its place.
    """

    class AllocatedAgentLoopWorker(AgentLoopWorkerTQ.__ray_metadata__.modified_class.__ray_actor_class__):
        async def _run_agent_loop(
            self, sampling_params: dict[str, Any], *arguments: Any, **named: Any
        ) -> Any:
            seeds, worker = named.pop(SEEDS, None), self
            if seeds is not None:
                # Loops run side by side in one worker: each has a client of its own.
                worker = copy.copy(self)
                name = SEED_NAMES[self.rollout_config.name]
                worker.llm_client = SeededClient(self.llm_client, name, seeds[named["session_id"]])
            run = super(AllocatedAgentLoopWorker, worker)._run_agent_loop
            return await run(sampling_params, *arguments, **named)

    return ray.remote(AllocatedAgentLoopWorker)


class AllocatedAgentLoopManager(AgentLoopManagerTQ):
    """verl's agent loop manager, with workers that know seeds."""

    def __init__(self, *arguments: Any, **named: Any):
        super().__init__(*arguments, **named)
        self.agent_loop_workers_class = _workers()


@register_trainer("allot")
class AllocatedTrainer(PPOTrainerSync):
    """verl's synchronous trainer, with the batches that a policy plans."""

    def __init__(self, config: DictConfig):
        with open_dict(config):
            # verl checks the mode by its name; this trainer behaves like the synchronous mode.
            config.trainer.v1.trainer_mode = "sync"
            self.seeded = _hand_seeds_over(config.actor_rollout_ref.rollout)
        super().__init__(config)
        if self.parameter_sync_step != 1:
            raise Error(
                f"`parameter_sync_step` is {self.parameter_sync_step}; in step with the weights it is 1"
            )

    def _build_replay_buffer(self) -> AllocatedReplayBuffer:
        sampler = self.config.trainer.v1.sampler
        return AllocatedReplayBuffer(
            trainer_mode="sync",
            trainer_config=self.config.trainer.v1.get("sync", {}),
            max_off_policy_threshold=sampler.max_off_policy_threshold,
            max_off_policy_strategy=sampler.max_off_policy_strategy,
            sampler_kwargs=sampler.sampler_kwargs,
        )

    def _init_dataloader(self) -> None:
        super()._init_dataloader()
        buffer, given = (
            self.replay_buffer,
            OmegaConf.to_container(self.config.trainer.v1.sampler.sampler_kwargs),
        )
        threshold = given.pop("correct_above", 0.5)
        buffer.correct = lambda reward: reward > threshold
        buffer.submit = self._submit
        buffer.allocator = Allocator(
            given.pop("policy"),
            [self._length(self.train_dataset[i]) for i in range(len(self.train_dataset))],
            **{
                "steps": self.total_training_steps,
                "longest": self.config.data.max_response_length,
                "engine": "verl",
                "columns": self._column,
                **given,
            },
        )

    def _length(self, row: dict[str, Any]) -> int:
        """A prompt's length, in tokens."""
        ids = self.tokenizer.apply_chat_template(
            list(row["raw_prompt"]), add_generation_prompt=True, tokenize=True, return_dict=True
        )
        return len(ids["input_ids"])

    def _column(self, name: str) -> list[Any]:
        """What each row has under this name, by itself or in its `extra_info`."""

        def value(row: dict[str, Any]) -> Any:
            inner = row.get("extra_info") or {}
            if name not in row and name not in inner:
                raise Error(f"the policy wants the column `{name}`, which the data set does not have")
            return row[name] if name in row else inner[name]

        return [value(self.train_dataset[i]) for i in range(len(self.train_dataset))]

    def _add_batch_to_generate(self) -> None:
        """Does nothing: the policy decides what is sampled when the replay buffer is asked for a batch."""

    def _submit(self, draws: list[Draw], names: list[str]) -> None:
        rows = collate_fn([self.train_dataset[draw.prompt] for draw in draws])
        rows["uid"] = np.array(names, dtype=object)
        rows["__rollout_n__"] = np.array([draw.count for draw in draws], dtype=object)
        if self.seeded:
            rows[SEEDS] = np.fromiter((draw.seeds for draw in draws), dtype=object, count=len(draws))
        batch = tu.get_tensordict(rows)
        tu.assign_non_tensor_data(batch, "global_steps", self.global_steps)
        self._submit_batch_to_rollout(batch)

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """Runs verl's own for what else it computes there, then sets the allocator's. Padding has none."""
        batch = super()._compute_advantage(batch, metrics)
        masks = tq.kv_batch_get(
            keys=batch.keys, partition_id=batch.partition_id, select_fields=["response_mask"]
        )
        given = self.replay_buffer.advantages
        rows = zip(batch.keys, masks["response_mask"].unbind(), strict=True)
        advantages = torch.nested.as_nested_tensor(
            [mask.float() * given.get(key, 0.0) for key, mask in rows], layout=torch.jagged
        )
        fields = TensorDict({"advantages": advantages, "returns": advantages}, batch_size=len(batch))
        return tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=fields)

    def step(self, metrics: dict, timing_raw: dict) -> KVBatchMeta:
        batch = super().step(metrics, timing_raw)
        # Before verl's checkpoint, which is written right after this.
        metrics.update(self.replay_buffer.settle())
        return batch

    def fit(self, agent_loop_manager: Any) -> None:
        try:
            super().fit(agent_loop_manager)
        except RunIsOver as over:
            print(f"the run is over: {over}")
            # The step that found no batch does not count.
            self.global_steps -= 1
            if self.config.trainer.save_freq > 0:
                self._save_checkpoint()
            self._shutdown_dump_executor()

    def _save_checkpoint(self) -> None:
        super()._save_checkpoint()
        path = self._state_of(self.global_steps)
        torch.save(self.replay_buffer.state_dict(), f"{path}.unfinished")
        os.replace(f"{path}.unfinished", path)

    def _load_checkpoint(self) -> None:
        super()._load_checkpoint()
        if self.global_steps > 0:
            path = self._state_of(self.global_steps)
            if not os.path.exists(path):
                raise Error(f"there is no `{path}`", "it is no checkpoint of this trainer")
            self.replay_buffer.load_state_dict(torch.load(path, weights_only=False))

    def _state_of(self, global_steps: int) -> str:
        return os.path.join(self.config.trainer.default_local_dir, f"global_step_{global_steps}", STATE)


def _hand_seeds_over(rollout: DictConfig) -> bool:
    """Whether rollouts get seeds: verl's agent loop manager is replaced by one that knows them."""
    agent = rollout.agent
    manager = f"{AllocatedAgentLoopManager.__module__}.{AllocatedAgentLoopManager.__name__}"
    if agent.get("agent_loop_manager_class") in (None, manager) and rollout.name in SEED_NAMES:
        agent.agent_loop_manager_class = manager
        return True
    print(
        "rollouts are sampled without the allocator's seeds: the agent loop manager or the sampler is another"
    )
    return False
