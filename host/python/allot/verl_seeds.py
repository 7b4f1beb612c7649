"""Seeds of rollouts under verl: its agent loops ask for each turn with a seed that follows from the allocator's."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import ray
from omegaconf import DictConfig
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ

from .turn_seeds import turn_seed

#: How each of verl's samplers calls the seed of a request. SGLang heeds it only with deterministic inference.
SEED_NAMES = {"vllm": "seed", "sglang": "sampling_seed", "trtllm": "seed"}

#: The field of a prompt that has the seeds of its rollouts.
SEEDS = "__allot_seeds__"


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


def hand_seeds_over(rollout: DictConfig) -> bool:
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
