"""verl: its replay buffer and its per-prompt counts, under a policy. For verl 0.9, trainer V1, synchronous.

verl asks a replay buffer for the next batch. This one does not wait for prompts that are submitted elsewhere:
it follows the policy's plans, submits the granted rollouts with `__rollout_n__` of each prompt, reads rewards
and lengths of the results from the TransferQueue, and calls the policy again; the picked rollouts are the
batch. Rollouts that a policy holds stay in the queue. The trainer passes advantages to verl, updates the
rollout buffer after each update, and stores the run's state and held rollouts beside verl's checkpoints.

    python -m verl.trainer.main_ppo … trainer.v1.trainer_mode=allot \\
        '+trainer.v1.sampler.sampler_kwargs={policy: …, budget: {rollouts: …}, record: …}'

The other keys are those of `allot.Allocator`. verl finds the trainer by itself: see `verl_plugin.py`. Each rollout is
sampled with the seed that the allocator gives it. This module does not depend on how verl samples or trains.
"""

from __future__ import annotations

import hashlib
import inspect
import os
from typing import Any

import numpy as np
import torch
import transfer_queue as tq
import verl
from omegaconf import DictConfig, open_dict
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils import tensordict_utils as tu
from verl.utils.checkpoint.checkpoint_manager import find_latest_ckpt_path
from verl.utils.dataset.rl_dataset import collate_fn
from verl.utils.debug import marked_timer

from . import verl_config
from .allocator import Allocator, Draw
from .errors import Error
from .verl_buffer import AllocatedReplayBuffer, RunIsOver
from .verl_config import KWARGS
from .verl_seeds import SEEDS, hand_seeds_over

#: The file in a checkpoint's folder.
STATE = "allot.pt"


@register_trainer("allot")
class AllocatedTrainer(PPOTrainerSync):
    """verl's synchronous trainer, with the batches that a policy plans."""

    #: The step of the last validation and what verl found, and its share of right answers.
    validated: tuple[int, dict[str, float]] | None = None
    accuracy: float | None = None

    def __init__(self, config: DictConfig):
        verl_config.check(config, verl.__version__)
        with open_dict(config):
            # verl checks the mode by its name; this trainer behaves like the synchronous mode.
            config.trainer.v1.trainer_mode = "sync"
            self.seeded = hand_seeds_over(config.actor_rollout_ref.rollout)
        super().__init__(config)

    def _build_replay_buffer(self) -> AllocatedReplayBuffer:
        sampler = self.config.trainer.v1.sampler
        return AllocatedReplayBuffer(
            trainer_mode="sync",
            trainer_config=self.config.trainer.v1.get("sync", {}),
            max_off_policy_threshold=sampler.max_off_policy_threshold,
            max_off_policy_strategy=sampler.max_off_policy_strategy,
            sampler_kwargs=sampler.sampler_kwargs,
            # A policy may sample in several rounds, each of which waits for its end.
            poll_interval=0.25,
        )

    def _init_dataloader(self) -> None:
        super()._init_dataloader()
        prompts = len(self.train_dataset)
        steps, told = verl_config.steps(self.config, prompts), self.total_training_steps
        if steps < told:
            print(
                f"allot: {steps} steps and not {told}, because `trainer.total_epochs` ends verl's loop there"
            )
        self.total_training_steps = steps
        given = verl_config.kwargs(self.config)
        given.pop("any_version", None)
        threshold = given.pop("correct_above", 0.5)
        rows = [self.train_dataset[i] for i in range(prompts)]
        longest = given.pop("longest", self.config.data.max_response_length)
        setup = {"prompts": prompts, "data": _digest(rows), "steps": steps, "longest": longest}
        buffer = self.replay_buffer
        buffer.setup = {**setup, **{name: value for name, value in given.items() if name != "record"}}
        buffer.correct = lambda reward: reward > threshold
        buffer.most_lost = given["groups"] * given["rollouts"]
        buffer.full = self.config.data.max_response_length
        buffer.submit = self._submit
        self._check_record(given.get("record"))
        buffer.allocator = Allocator(
            given.pop("policy"),
            [self._length(row) for row in rows],
            steps=steps,
            longest=longest,
            engine="verl",
            temperature=self.config.actor_rollout_ref.rollout.temperature,
            # verl clears from its queue what it has updated on.
            replay=False,
            columns=lambda name: _column(rows, name),
            **given,
        )

    def _check_record(self, record: str | None) -> None:
        """Refuses a record of another run before the model is loaded, not at the first step."""
        if record is None or not os.path.exists(os.path.join(record, "record.jsonl")) or self._resumed_from():
            return
        trainer = self.config.trainer
        where = (
            "`trainer.resume_mode` is disable"
            if trainer.resume_mode == "disable"
            else f"`trainer.default_local_dir`, {trainer.default_local_dir}, has no checkpoint of that run"
        )
        raise Error(
            f"`record` in {KWARGS}, {record}, has a record of a run already, and {where}",
            "give `record` another folder, or trainer.default_local_dir the one that the run began with",
        )

    def _length(self, row: dict[str, Any]) -> int:
        """A prompt's length, in tokens."""
        more = self.config.data.get("apply_chat_template_kwargs") or {}
        ids = self.tokenizer.apply_chat_template(
            list(row["raw_prompt"]), add_generation_prompt=True, tokenize=True, return_dict=True, **more
        )
        return len(ids["input_ids"])

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

    def on_init_end(self) -> None:
        group = self.actor_rollout_wg
        told = verl_config.check_ranks(self.config, max(group._query_dispatch_info("actor")) + 1)
        if told:
            print(f"allot: {told}")
        super().on_init_end()

    def _balance_batch(self, batch: KVBatchMeta, metrics: dict, *arguments: Any, **named: Any) -> KVBatchMeta:
        """Tells how many rows verl fills the batch up with, so that it can be divided."""
        batch = super()._balance_batch(batch, metrics, *arguments, **named)
        metrics["allot/filled"] = float(sum(bool(tag.get("is_padding")) for tag in batch.tags))
        return batch

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
        trainer, accuracy = self.config.trainer, None
        last = self.global_steps >= self.total_training_steps
        if trainer.test_freq > 0 and (last or self.global_steps % trainer.test_freq == 0):
            # verl validates after its checkpoint, but a step's accuracy belongs to the step, and that to the
            # checkpoint. So the samplers get the new weights once more often.
            with marked_timer("testing", timing_raw, color="green"):
                self.checkpoint_manager.update_weights(self.global_steps)
                self._validate_now()
                self.checkpoint_manager.sleep_replicas()
            accuracy = self.accuracy
        # Before verl's checkpoint, which is written right after this.
        metrics.update(self.replay_buffer.settle(accuracy))
        return batch

    def _validate_now(self) -> dict[str, float]:
        self.on_validate_begin()
        metrics = self._validate()
        self.on_validate_end()
        return metrics

    def _validate(self) -> dict[str, float]:
        """verl's, once for a step: what it finds after the checkpoint is what was found before it."""
        if self.validated is None or self.validated[0] != self.global_steps:
            self.validated = self.global_steps, super()._validate()
            if (
                self.replay_buffer.allocator.steps == 0
                and self.global_steps == 0
                and self.accuracy is not None
            ):
                self.replay_buffer.allocator.scored(self.accuracy)
        return self.validated[1]

    def _val_metrics_update(self, *arguments: Any, **named: Any) -> dict[str, float]:
        """Keeps the share of right answers, by the rule that tells them apart in training, for the record."""
        told = inspect.signature(super()._val_metrics_update).bind(*arguments, **named).arguments
        rewards = told["reward_extra_infos_dict"]["reward"]
        self.accuracy = sum(map(self.replay_buffer.correct, rewards)) / len(rewards) if rewards else None
        return super()._val_metrics_update(*arguments, **named)

    def fit(self, agent_loop_manager: Any) -> None:
        try:
            super().fit(agent_loop_manager)
        except RunIsOver:
            self._end_early()
        allocator = self.replay_buffer.allocator
        if allocator.over:
            spent = allocator.spent
            print(
                f"allot: {allocator.over}, after {allocator.steps} steps with {spent['run_rollouts']} rollouts and "
                f"{spent['run_tokens']} tokens"
            )

    def _end_early(self) -> None:
        """What verl does after its last step. Here no step is known as the last one before the next has begun."""
        # The step that found no batch does not count.
        self.global_steps -= 1
        trainer = self.config.trainer
        if trainer.test_freq > 0 and self.global_steps % trainer.test_freq != 0:
            self.logger.log(data=self._validate_now(), step=self.global_steps)
            if self.accuracy is not None:
                self.replay_buffer.allocator.scored(self.accuracy)
        # A checkpoint that is there already is not written again: verl, which keeps the newest, would remove it.
        if trainer.save_freq > 0 and self.global_steps % trainer.save_freq != 0:
            # As after sampling: verl writes checkpoints while the samplers have given their memory back.
            self.on_sample_end()
            self._save_checkpoint()
        self.on_train_end()
        self._shutdown_dump_executor()

    def _save_checkpoint(self) -> None:
        # Before verl's part, whose last act is to name the checkpoint as the newest.
        folder = os.path.join(self.config.trainer.default_local_dir, f"global_step_{self.global_steps}")
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, STATE)
        torch.save(self.replay_buffer.state_dict(), f"{path}.unfinished")
        os.replace(f"{path}.unfinished", path)
        super()._save_checkpoint()

    def _load_checkpoint(self) -> None:
        super()._load_checkpoint()
        if folder := self._resumed_from():
            path = os.path.join(folder, STATE)
            if not os.path.exists(path):
                raise Error(
                    f"the checkpoint {folder} has no `{STATE}`: it is of another trainer of verl's",
                    "set trainer.default_local_dir to another folder, or trainer.resume_mode=disable",
                )
            self.replay_buffer.load_state_dict(torch.load(path, weights_only=False))

    def _resumed_from(self) -> str | None:
        """The folder of the checkpoint that verl goes on from, by verl's own rules."""
        trainer = self.config.trainer
        if trainer.resume_mode == "resume_path":
            return os.path.abspath(trainer.resume_from_path)
        if trainer.resume_mode == "auto":
            return find_latest_ckpt_path(os.path.abspath(trainer.default_local_dir))
        return None


def _column(rows: list[dict[str, Any]], name: str) -> list[Any]:
    """What each row has under this name, by itself or in its `extra_info`."""

    def value(row: dict[str, Any]) -> Any:
        inner = row.get("extra_info") or {}
        if name not in row and name not in inner:
            raise Error(
                f"the policy wants the column `{name}`, which the data set does not have",
                "add it to the rows of data.train_files, or to their `extra_info`",
            )
        return row[name] if name in row else inner[name]

    return [value(row) for row in rows]


def _digest(rows: list[dict[str, Any]]) -> str:
    """Of all prompts in their order: lengths alone would not tell two data sets apart."""
    digest = hashlib.blake2b(digest_size=16)
    for row in rows:
        digest.update(repr(list(row["raw_prompt"])).encode())
    return digest.hexdigest()
