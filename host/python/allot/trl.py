"""TRL: a GRPO trainer whose rollouts a policy allocates. Written for, and tested with, TRL 1.16.

    allocator = allot.Allocator(policy, lengths(dataset, tokenizer), steps=…, groups=…, rollouts=…, longest=…)
    AllocatedGRPOTrainer(model, reward_funcs=…, args=…, train_dataset=dataset, allocator=allocator).train()

Sampling is TRL's own, of the prompts and counts that the policy's plans ask for, in any number of rounds: with
TRL's tools, environments and `rollout_func`, as far as there are some. TRL is stopped after it, and asked once more
when the plan has picked what to train on: it then finds those rollouts as if it had just generated them. TRL needs
the same number of rows in each batch; unused rows are padded with one masked token, which has no effect on training.
The allocator computes advantages and counts rollouts and tokens: TRL's own counts would not include what was sampled
and discarded.

The order of prompts is the allocator's, not the data loader's. With several processes the allocator of the main
process decides, and its record is the run's: each process samples an equal part of what was granted, results are
gathered, and each gets its part of the batch. The other processes' allocators are never used.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from . import trl_checkpoints as checkpoints
from .allocator import Allocator, Draw, Over, Rollout, Sample, Train
from .errors import Error
from .trl_batch import Answer, Batch, lengths
from .trl_sampler import SIGNALS, Sampler, one_for_each
from .trl_settings import BY_ROWS, by_steps, check, check_version, fingerprint

__all__ = ["SIGNALS", "AllocatedGRPOTrainer", "Answer", "lengths"]

logger = logging.getLogger("allot.trl")

#: What was spent so far.
COUNTS = ("allot/rollouts", "allot/tokens")


class AllocatedGRPOTrainer(Sampler):
    """TRL's GRPO trainer, with the rollouts that a policy's plans ask for."""

    def __init__(
        self,
        *arguments: Any,
        allocator: Allocator,
        correct: Callable[[float], bool] = lambda reward: reward > 0.5,
        **named: Any,
    ):
        """`correct` says whether a reward is that of a right answer: policies see both."""
        check_version()
        super().__init__(*arguments, **named)
        self.allocator = allocator
        self.correct = correct
        #: The rows that are currently passed to TRL.
        self._batch: Batch | None = None
        #: Whether TRL is about to compute log-probabilities that were computed when the rows were sampled.
        self._logps_are_known = False
        #: Whether TRL asked for a batch after the run's end.
        self._past_the_end = False
        #: What is being evaluated, by TRL's name of it, and which of its answers were right.
        self._evaluating: str | None = None
        self._evaluated: dict[str, list[bool]] = {}
        #: The data set's fingerprint, once it is needed.
        self._fingerprint: str | None = None
        check(self)
        if self.rollout_func is not None:
            self.rollout_func = one_for_each(self.rollout_func)
        self.add_callback(_Steps(self))

    # === Sampling ===

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        if not self.model.training:
            return super()._generate_and_score_completions(inputs)
        order = self._next_batch()
        self._past_the_end = order is None
        rows = order.rollouts if order is not None else []
        accelerator, size = self.accelerator, len(inputs)
        total = size * accelerator.num_processes
        if len(rows) > total:
            raise Error(
                f"the plan of step {self.allocator.steps} trains on {len(rows)} rollouts, and TRL's batch "
                f"has {total} rows",
                "raise generation_batch_size; rows that are left over cost next to nothing",
            )
        place = accelerator.process_index, accelerator.num_processes
        batch = Batch(rows, size, *place, self.eos_token_ids[0])
        late = any(row.age > 0 for row in rows)
        # TRL corrects for a sampler that computes otherwise, by the log-probabilities of the weights that sampled.
        self._logps_are_known = late and self.use_vllm and self.vllm_importance_sampling_correction
        with self._passing(batch):
            output = super()._generate_and_score_completions(batch.inputs)
        batch.tell(self._logs)
        # TRL took rows in a line for groups.
        del self._metrics["train"]["frac_reward_zero_std"]

        scale = total / len(rows) if rows and self.loss_type in BY_ROWS else 1.0
        advantages = batch.advantages(scale)
        output["advantages"] = torch.tensor(advantages, dtype=torch.float32, device=accelerator.device)
        if late:
            output["old_per_token_logps"] = batch.logps(output["completion_ids"])
        return output

    @contextmanager
    def _passing(self, batch: Batch) -> Iterator[None]:
        """While TRL takes this batch for what it has just generated. Tools and environments have done their part."""
        kept = self.environment_factories, self.environments, self.tools
        self._batch, self.environment_factories, self.environments, self.tools = batch, None, None, []
        self._pending_extra_logs.update(batch.extra())
        try:
            yield
        finally:
            self.environment_factories, self.environments, self.tools = kept
            self._batch, self._logps_are_known = None, False

    def _generate(self, prompts: list[Any]) -> tuple[Any, ...]:
        if self._batch is not None:
            # vLLM says log-probabilities of each rollout: TRL then expects them, of padding too.
            told = self.use_vllm or any(row.answer.logprobs is not None for row in self._batch.rows)
            return self._batch.generated(told=told)
        return super()._generate(prompts)

    def _next_batch(self) -> Train | None:
        """Samples until there is something to train on, or the run is over. The same in all processes."""
        while True:
            order, answers = self._from_main(self._next_order)
            match order:
                case Sample():
                    rollouts = list(self._sampled(order))
                    if self.accelerator.is_main_process:
                        self.allocator.sampled(rollouts)
                case Train():
                    self._score(answers)
                    return order
                case Over():
                    return None

    def _next_order(self) -> tuple[Sample | Train | Over, list[Answer]]:
        """What to do next, and the answers whose log-probabilities could not be computed after the update."""
        while isinstance(order := self.allocator.next(), Train):
            if order.rollouts:
                held = [a for prompt in order.hold for a in self.allocator.on_hand(prompt).values()]
                late = any(row.age > 0 for row in order.rollouts)
                fresh = [row.answer for row in order.rollouts] if late else []
                return order, [answer for answer in held + fresh if answer.logps is None]
            self._log(self.allocator.metrics(self.allocator.trained(updated=False)))
        return order, []

    def _sampled(self, order: Sample) -> Iterator[Rollout]:
        """The rollouts that were granted, draw by draw."""
        for prompts, limit in _requests(order, self.args.generation_batch_size):
            with self._at_most(limit):
                sampled = self._shared(prompts, self._answered)
            answers = [answer for answer, _ in sampled]
            signals = self._score(answers) if self.allocator.signals else [{} for _ in answers]
            for (answer, reward), measured in zip(sampled, signals, strict=True):
                yield Rollout(
                    reward=reward,
                    tokens=sum(answer.generated),
                    correct=reward is not None and self.correct(reward),
                    truncated=answer.completion_ids[-1] not in self.eos_token_ids,
                    signals=measured,
                    answer=answer,
                )

    def _score(self, answers: list[Answer]) -> list[dict[str, float]]:
        """Stores log-probabilities under the current model in the answers; returns their signals."""
        signals = []
        size = self.args.per_device_train_batch_size * self.accelerator.num_processes
        for start in range(0, len(answers), size):
            chunk = answers[start : start + size]
            results = self._shared(
                chunk, lambda part: self._measured(part, signals=bool(self.allocator.signals))
            )
            for answer, (logps, measured) in zip(chunk, results, strict=True):
                answer.logps = logps
                signals.append(measured)
        return signals

    # === Passing rollouts to TRL ===

    def _get_per_token_logps_and_entropies(self, *arguments: Any, **named: Any) -> Any:
        """TRL's; for rollouts that were sampled before the last update, those of the weights that sampled them."""
        logps, *more = super()._get_per_token_logps_and_entropies(*arguments, **named)
        if self._logps_are_known and self._batch is not None:
            # Only the first call in a batch asks for them. Others are about a reference model.
            self._logps_are_known = False
            mine = len(self._batch.mine)
            logps = torch.cat([self._batch.logps(logps)[:mine], logps[mine:].float()])
        return logps, *more

    def _calculate_rewards(
        self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any
    ) -> torch.Tensor:
        """Rewards were computed when the rollouts were sampled, and are not computed again."""
        if self._batch is None:
            rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
            if self._evaluating is not None:
                right = [total is not None and self.correct(total) for total in self._totals(rewards)]
                self._evaluated.setdefault(self._evaluating, []).extend(right)
            return rewards
        rewards = self._batch.rewards(len(self.reward_funcs))
        return torch.tensor(rewards, dtype=torch.float32, device=self.accelerator.device)

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        loss = super().training_step(model, inputs, num_items_in_batch)
        if self._past_the_end:
            # There was nothing to train on: without gradients the optimizer does not change the weights.
            for parameter in self.model.parameters():
                parameter.grad = None
        return loss

    # === Steps and checkpoints ===

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """TRL's; the accuracy is told to the allocator. Of several data sets, TRL calls this for each."""
        before, self._evaluating = self._evaluating, metric_key_prefix
        try:
            metrics = super().evaluate(eval_dataset, ignore_keys, metric_key_prefix)
        finally:
            self._evaluating = before
        if before is None:
            evaluated, self._evaluated = self._evaluated, {}
            right = [one for part in evaluated.values() for one in part]
            if right and not self._at_the_end_of_a_batch():
                logger.warning("an accuracy in the middle of a batch belongs to no step, and is not in the record")
            elif right and self.accelerator.is_main_process:
                parts = {name: sum(part) / len(part) for name, part in evaluated.items()}
                self.allocator.scored(sum(right) / len(right), parts if len(parts) > 1 else None)
        return metrics

    def _log(self, told: dict[str, float]) -> None:
        """Into TRL's log, which takes means between two lines of it: of counts it gets the last."""
        metrics = self._metrics["train"]
        for name, value in told.items():
            if name in COUNTS:
                metrics[name] = [value]
            else:
                metrics[name].append(value)

    def _at_the_end_of_a_batch(self) -> bool:
        return self._past_the_end or self._step % (self.args.steps_per_generation * self.num_iterations) == 0

    def train(self, resume_from_checkpoint: str | bool | None = None, *arguments: Any, **named: Any) -> Any:
        """TRL's. With True it goes on from the newest checkpoint that is whole, and says which newer ones are not."""
        if resume_from_checkpoint:
            output_dir, asked = self.args.output_dir, resume_from_checkpoint
            resume_from_checkpoint, passed, refused = self._from_main(lambda: checkpoints.chosen(output_dir, asked))
            checkpoints.refuse(refused)
            for words in passed if self.accelerator.is_main_process else ():
                logger.warning("%s; the run goes on from `%s`", words, resume_from_checkpoint)
        return super().train(resume_from_checkpoint, *arguments, **named)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """TRL's, after the allocator's state: whenever the run is killed, both parts are there or it is unfinished."""
        folder = os.path.join(
            self._get_output_dir(trial=trial), f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        )
        ends = self._at_the_end_of_a_batch()
        if not ends:
            logger.warning("`%s` is within a batch: it holds the model, and can't be resumed from", folder)
        if self.accelerator.is_main_process:
            state = {**self.allocator.state_dict(), "dataset": self._of_dataset()} if ends else None
            checkpoints.begin(folder, state)
        # What other processes write belongs to this checkpoint, not to an earlier one of the same name.
        self.accelerator.wait_for_everyone()
        super()._save_checkpoint(model, trial)

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)
        # `trainer_state.json`, which comes next, says that all is there, and each process writes a file here.
        self.accelerator.wait_for_everyone()

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        checkpoints.refuse(self._from_main(lambda: self._resumed(resume_from_checkpoint)))

    def _resumed(self, resume_from_checkpoint: str) -> tuple[str, str | None] | None:
        """Goes on from a checkpoint's state, or says why not: all processes must hear of it."""
        state = checkpoints.state(resume_from_checkpoint)
        if state.pop("dataset") != self._of_dataset():
            return (
                f"`{resume_from_checkpoint}` is of a run on another data set",
                "let `train_dataset` be what the run began with, or begin another: without "
                "resume_from_checkpoint, and with another `record`",
            )
        try:
            self.allocator.load_state_dict(state)
        except Error as error:
            return error.what, error.hint
        return None

    def _of_dataset(self) -> str:
        """The data set's fingerprint."""
        if self._fingerprint is None:
            self._fingerprint = fingerprint(self.train_dataset)
        return self._fingerprint


def _requests(order: Sample, most: int) -> Iterator[tuple[list[int], int | None]]:
    """The prompts of an order for TRL to sample, at most so many at a time, and their length limit if it is not the run's.

    TRL samples all of a request with the same parameters.
    """

    def limit(draw: Draw) -> int | None:
        return None if draw.sampling is None else draw.sampling.max_tokens

    for tokens, draws in itertools.groupby(order.draws, key=limit):
        prompts = [draw.prompt for draw in draws for _ in range(draw.count)]
        for start in range(0, len(prompts), most):
            yield prompts[start : start + most], tokens


class _Steps(TrainerCallback):
    """Ends the allocator's steps with TRL's."""

    def __init__(self, trainer: AllocatedGRPOTrainer):
        self.trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if (record := self.trainer._from_main(self._record_in_use)) is not None:
            raise Error(
                f"there is a record in `{record}` already",
                "give the allocator another `record`, or go on with that run: train(resume_from_checkpoint=…)",
            )
        # Now, and not in the middle of a checkpoint.
        self.trainer._of_dataset()

    def _record_in_use(self) -> str | None:
        """The folder of the record, if it has one that this run does not go on with."""
        record = self.trainer.allocator.record
        if record is None or self.trainer.allocator.steps > 0:
            return None
        return record if os.path.exists(os.path.join(record, "record.jsonl")) else None

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        trainer = self.trainer
        if not trainer._at_the_end_of_a_batch():
            return control
        told, over = trainer._from_main(self._end_of_step)
        trainer._log(told)
        if over and not control.should_training_stop:
            # As transformers does after the last of `max_steps`.
            control.should_training_stop = True
            control.should_evaluate |= by_steps(args.eval_strategy)
            control.should_save |= by_steps(args.save_strategy)
        return control

    def _end_of_step(self) -> tuple[dict[str, float], bool]:
        """Metrics, and whether the run is over."""
        allocator = self.trainer.allocator
        step = None if self.trainer._past_the_end else allocator.trained()
        return allocator.metrics(step), allocator.over is not None
