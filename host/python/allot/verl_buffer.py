"""verl's replay buffer under a policy: it follows plans, has draws submitted, and reads what came of them from the
TransferQueue. What a policy holds stays in the queue.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import transfer_queue as tq
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from .allocator import Allocator, Draw, Over, Rollout, Sample, Train
from .errors import Error
from .verl_config import KWARGS, differences


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
    #: What the run is, by verl's keys: a checkpoint of another run is refused by it.
    setup: Mapping[str, Any] = MappingProxyType({})
    #: Submits draws, each under the name at the same position.
    submit: Callable[[list[Draw], list[str]], None]
    #: After how many rollouts that all failed the run stops: they would go on being paid for.
    most_lost: int | None = None
    lost = 0
    #: How many tokens a trajectory has that was cut off, tools' included.
    full: int | None = None
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
        mine = frozenset(names)
        while waiting:
            self._sync_metadata_from_transfer_queue()
            waiting -= self.finished_keys[partition_id] | self.failure_keys[partition_id]
            if waiting:
                asked = self._wait_for_next_poll(partition_id, asked)
        tq.kv_clear(partition_id=partition_id, keys=names)

        sessions: dict[tuple[str, int], Answer] = {}
        # A session's outputs in the order of their index: the last one has the reward.
        keys = [key for key in self.partitions[partition_id] if key.split("_")[0] in mine]
        for key in sorted(keys, key=lambda key: int(key.rsplit("_", 1)[1])):
            name, session, _ = key.split("_")
            answer = sessions.setdefault((name, int(session)), Answer([], []))
            answer.keys.append(key)
            answer.tags.append(self.partitions[partition_id][key])
        told = self._told(partition_id, keys)
        for draw, name in zip(draws, names, strict=True):
            for session in range(draw.count):
                answer = sessions.get((name, session))
                self.lost = self.lost + 1 if answer is None else 0
                if self.most_lost is not None and self.lost >= self.most_lost:
                    raise Error(
                        f"the last {self.lost} rollouts failed, and none of them came back from verl's agent loops",
                        "their errors are in verl's log, as `Error in _run_prompt`",
                    )
                if answer is None:
                    yield Rollout(reward=None, tokens=0, correct=False)
                    continue
                reward = told[answer.keys[-1]][0]
                tokens = sum(told[key][1] for key in answer.keys)
                if not math.isfinite(reward):
                    # No policy sees it, so it is never let go again.
                    tq.kv_clear(partition_id=partition_id, keys=answer.keys)
                    yield Rollout(reward=None, tokens=tokens, correct=False)
                    continue
                if tokens > self.allocator.longest:
                    raise Error(
                        f"a rollout of prompt {draw.prompt} has {tokens} tokens in {len(answer.keys)} trajectories, "
                        f"and {self.allocator.longest} is the most that the budget is counted with",
                        f"set `longest` in {KWARGS} to the most that the model generates in all turns of a rollout",
                    )
                yield Rollout(
                    reward=reward,
                    tokens=tokens,
                    correct=self.correct(reward),
                    truncated=answer.tags[-1]["response_len"] >= (self.full or self.allocator.longest),
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

    def settle(self, accuracy: float | None = None) -> dict[str, float]:
        """Called after a model update. Removes what is not held from the queue; verl clears the batch."""
        return self._settle(updated=True, accuracy=accuracy)

    def _settle(self, updated: bool, accuracy: float | None = None) -> dict[str, float]:
        trained = set(self.advantages) if updated else set()
        before = set(self._keys_on_hand())
        step = self.allocator.trained(updated=updated, accuracy=accuracy)
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
            "setup": dict(self.setup),
            "run": state["run"],
            "answers": {rollout: (answer.keys, answer.tags) for rollout, answer in answers.items()},
            "held": tq.kv_batch_get(keys=keys, partition_id="train") if keys else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from this state, and puts the held rollouts back into the queue."""
        for what, key in differences(state.get("setup", self.setup), self.setup):
            raise Error(
                f"this is not the run of the checkpoint: {what}",
                f"set {key} as it was, or begin another run: another trainer.default_local_dir and another `record`",
            )
        answers = {rollout: Answer(*both) for rollout, both in state["answers"].items()}
        self.allocator.load_state_dict({"run": state["run"], "answers": answers})
        if state["held"] is not None:
            keys = [key for answer in answers.values() for key in answer.keys]
            tags = [tag for answer in answers.values() for tag in answer.tags]
            tq.kv_batch_put(keys=keys, partition_id="train", fields=state["held"], tags=tags)
