"""TRL: a GRPO trainer whose rollouts a policy allocates. Written for, and tested with, TRL 1.16.

    allocator = allot.Allocator(policy, lengths(dataset, tokenizer), steps=…, groups=…, rollouts=…, longest=…)
    AllocatedGRPOTrainer(model, reward_funcs=…, args=…, train_dataset=dataset, allocator=allocator).train()

TRL needs the same number of rows in each batch. Sampling follows the policy's plans, with any number of
rounds and uneven counts; then the picked rollouts are passed to TRL by `rollout_func`, and unused rows are
padded with one masked token, which has no effect on training. The allocator computes advantages and counts
rollouts and tokens: TRL's own counts would include the padding, and not what was sampled and discarded.

The order of prompts is the allocator's, not the data loader's. With several processes the allocator of the main
process decides, and its record is the run's: each process samples an equal part of what was granted, results are
gathered, and each gets its part of the batch. The other processes' allocators are never used.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from accelerate.utils import broadcast_object_list, gather_object
from transformers import TrainerCallback
from trl import GRPOTrainer

from .allocator import Allocator, Learn, Over, Rollout, Sample, Train
from .errors import Error

logger = logging.getLogger("allot.trl")

Item, Result, Told = TypeVar("Item"), TypeVar("Result"), TypeVar("Told")

#: The signals that the trainer can measure for each rollout: Allocator(…, signals=SIGNALS).
SIGNALS = ("mean-log-prob", "mean-entropy")

#: Losses that TRL divides by tokens: padding rows have none.
BY_TOKENS = ("dapo", "cispo", "vespo")
#: Losses that TRL divides by rows: advantages are scaled by all rows / real rows.
BY_ROWS = ("grpo", "sapo", "dr_grpo", "luspo")

#: The file in a checkpoint's folder.
STATE = "allot.pt"


@dataclass
class Answer:
    """What TRL needs for a rollout, from its sampling until it is trained on or discarded."""

    prompt_ids: list[int]
    completion_ids: list[int]
    #: From the sampler, if it reports them: vLLM does.
    logprobs: list[float] | None
    #: One from each reward function, NaN for none.
    rewards: list[float]
    #: Under the model that sampled it, if it may be trained on after a later update.
    logps: torch.Tensor | None = None


def lengths(dataset: Sequence[dict[str, Any]], tokenizer: Any) -> list[int]:
    """Each prompt's length, in tokens, as an `Allocator` needs it."""

    def length(prompt: Any) -> int:
        if isinstance(prompt, str):
            return len(tokenizer(text=prompt)["input_ids"])
        ids = tokenizer.apply_chat_template(
            prompt, add_generation_prompt=True, tokenize=True, return_dict=True
        )
        return len(ids["input_ids"])

    return [length(row["prompt"]) for row in dataset]


class AllocatedGRPOTrainer(GRPOTrainer):
    """TRL's GRPO trainer, with the rollouts that a policy's plans ask for."""

    def __init__(
        self,
        *arguments: Any,
        allocator: Allocator,
        correct: Callable[[float], bool] = lambda reward: reward > 0.5,
        **named: Any,
    ):
        """`correct` says whether a reward is that of a right answer: policies see both."""
        super().__init__(*arguments, **named)
        self.allocator = allocator
        self.correct = correct
        #: The rows that are currently passed to TRL, of all processes.
        self._rows: list[Learn] | None = None
        #: Whether TRL is about to compute log-probabilities that were computed when the rows were sampled.
        self._logps_are_known = False
        #: Whether TRL asked for a batch after the run's end.
        self._past_the_end = False
        self._check()
        self.add_callback(_Steps(self))

    def _check(self) -> None:
        """Raises an error for settings of TRL that this trainer does not support."""
        args, wrong = self.args, None
        optimizer_steps = max(
            1, args.steps_per_generation * self.num_iterations // args.gradient_accumulation_steps
        )
        if self.tools or self.environment_factories is not None or self.rollout_func is not None:
            wrong = "it has tools, environments or a rollout_func of its own", "leave them out"
        elif not isinstance(self.train_dataset, Sequence) and not hasattr(self.train_dataset, "__getitem__"):
            wrong = (
                "its data set is a stream, and a policy asks for prompts by their place",
                "load it as a whole",
            )
        elif {"image", "images"} & set(self.train_dataset[0]):
            wrong = "its prompts have images", None
        elif self.loss_type not in BY_TOKENS + BY_ROWS:
            losses = ", ".join(BY_TOKENS + BY_ROWS)
            wrong = f"its loss `{self.loss_type}` counts rows of filling", f"losses that do not: {losses}"
        elif self.loss_type in BY_ROWS and self.beta != 0.0:
            wrong = (
                f"its loss `{self.loss_type}` with a KL term counts rows of filling",
                'take loss_type="dapo"',
            )
        elif args.gradient_accumulation_steps > args.steps_per_generation * self.num_iterations:
            wrong = (
                "an optimizer step of it goes over several batches",
                "let steps_per_generation be gradient_accumulation_steps, or a multiple",
            )
        elif (
            str(args.save_strategy) in ("steps", "SaveStrategy.STEPS")
            and args.save_steps % optimizer_steps != 0
        ):
            wrong = (
                f"it saves every {args.save_steps:g} optimizer steps, and a batch has {optimizer_steps}",
                f"let save_steps be a multiple of {optimizer_steps}",
            )
        elif self.max_completion_length > self.allocator.longest:
            lengths = self.max_completion_length, self.allocator.longest
            wrong = (
                "its answers get {} tokens, and the allocator's {}".format(*lengths),
                "let `longest` be max_completion_length",
            )
        if wrong is not None:
            raise Error(f"this trainer can't be allotted rollouts: {wrong[0]}", wrong[1])

    # === Sampling ===

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        if not self.model.training:
            return super()._generate_and_score_completions(inputs)
        batch = self._next_batch()
        self._past_the_end = batch is None
        rows = batch.rollouts if batch is not None else []
        total = len(inputs) * self.accelerator.num_processes
        if len(rows) > total:
            raise Error(
                f"the plan of step {self.allocator.steps} trains on {len(rows)} rollouts, and TRL's batch "
                f"has {total} rows",
                "raise generation_batch_size; rows that are left over cost next to nothing",
            )
        mine = self._part(rows)
        filling = len(inputs) - len(mine)
        prompts = [row.prompt for row in mine] + [mine[0].prompt if mine else 0] * filling
        inputs = [dict(self.train_dataset[prompt]) for prompt in prompts]

        metrics = self._metrics["train"]
        # TRL would count the padding; what was sampled is already counted.
        counted = {name: list(values) for name, values in metrics.items() if _of_lengths(name)}
        seen = self.state.num_input_tokens_seen
        late = any(row.age > 0 for row in rows)
        self._rows, self.rollout_func = rows, self._hand_over
        # TRL corrects for a sampler that computes otherwise, by the log-probabilities of the weights that sampled.
        self._logps_are_known = late and self.use_vllm and self.vllm_importance_sampling_correction
        try:
            output = super()._generate_and_score_completions(inputs)
        finally:
            self._rows, self.rollout_func, self._logps_are_known = None, None, False
        metrics.update(counted)
        self.state.num_input_tokens_seen = seen

        scale = total / len(rows) if rows and self.loss_type in BY_ROWS else 1.0
        advantages = [row.advantage * scale for row in mine] + [0.0] * filling
        output["advantages"] = torch.tensor(advantages, dtype=torch.float32, device=self.accelerator.device)
        if late:
            output["old_per_token_logps"] = self._logps_of(mine, output["completion_ids"])
        return output

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
            self.allocator.trained(updated=False)
        return order, []

    def _sampled(self, order: Sample) -> Iterator[Rollout]:
        """The rollouts that were granted, draw by draw."""
        prompts = [draw.prompt for draw in order.draws for _ in range(draw.count)]
        most = self.args.generation_batch_size
        for start in range(0, len(prompts), most):
            sampled = self._shared(prompts[start : start + most], self._answered)
            answers = [answer for answer, _ in sampled]
            signals = self._score(answers) if self.allocator.signals else [{} for _ in answers]
            for (answer, reward), measured in zip(sampled, signals, strict=True):
                yield Rollout(
                    reward=reward,
                    tokens=len(answer.completion_ids),
                    correct=reward is not None and self.correct(reward),
                    truncated=answer.completion_ids[-1] not in self.eos_token_ids,
                    signals=measured,
                    answer=answer,
                )

    def _answered(self, prompts: list[int]) -> list[tuple[Answer, float | None]]:
        """An answer to each of this process's prompts, and its reward: None if it has none."""
        rows = [dict(self.train_dataset[prompt]) for prompt in prompts]
        texts = [row["prompt"] for row in rows]
        # One by one: TRL would treat `num_generations` consecutive rows as the same prompt.
        several, self.num_generations = self.num_generations, 1
        try:
            prompt_ids, completion_ids, _, completions, logprobs, *_ = self._generate(texts)
        finally:
            self.num_generations = several
        # TRL gathers the rewards of all processes.
        rewards = super()._calculate_rewards(rows, texts, completions, completion_ids)
        rewards = rewards[self.accelerator.process_index * len(rows) :][: len(rows)]
        totals = (rewards * self.reward_weights.to(rewards.device).unsqueeze(0)).nansum(dim=1)
        unscorable = torch.isnan(rewards).all(dim=1)
        answered = []
        for i, (prompt, ids) in enumerate(zip(prompt_ids, completion_ids, strict=True)):
            told = None if logprobs is None else list(logprobs[i])
            answer = Answer(list(prompt), list(ids), told, rewards[i].tolist())
            answered.append((answer, None if unscorable[i] else totals[i].item()))
        return answered

    def _score(self, answers: list[Answer]) -> list[dict[str, float]]:
        """Stores log-probabilities under the current model in the answers; returns their signals."""
        signals = []
        size = self.args.per_device_train_batch_size * self.accelerator.num_processes
        for start in range(0, len(answers), size):
            chunk = answers[start : start + size]
            for answer, (logps, measured) in zip(chunk, self._shared(chunk, self._measured), strict=True):
                answer.logps = logps
                signals.append(measured)
        return signals

    def _measured(self, answers: list[Answer]) -> list[tuple[torch.Tensor, dict[str, float]]]:
        """The log-probabilities of each of this process's answers, and its signals."""
        prompts, prompt_mask = self._padded([a.prompt_ids for a in answers], left=True)
        tokens, mask = self._padded([a.completion_ids for a in answers], left=False)
        with torch.no_grad():
            logps, entropies, _ = self._get_per_token_logps_and_entropies(
                self.model,
                torch.cat([prompts, tokens], dim=1),
                torch.cat([prompt_mask, mask], dim=1),
                tokens.size(1),
                compute_entropy=bool(self.allocator.signals),
            )
        measured = []
        for i, answer in enumerate(answers):
            n = len(answer.completion_ids)
            # A copy: what is sent to other processes would be the whole chunk's.
            own, signals = logps[i, :n].float().cpu().clone(), {}
            if entropies is not None:
                means = (own.mean().item(), entropies[i, :n].float().mean().item())
                signals = dict(zip(SIGNALS, means, strict=True))
            measured.append((own, signals))
        return measured

    def _padded(self, lists: list[list[int]], *, left: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Padded token ids, and the mask of real ones."""
        side = "left" if left else "right"
        pad = torch.nn.utils.rnn.pad_sequence
        ids = pad([torch.tensor(x) for x in lists], True, self._tokenizer.pad_token_id, side)
        mask = pad([torch.ones(len(x), dtype=torch.long) for x in lists], True, 0, side)
        return ids.to(self.accelerator.device), mask.to(self.accelerator.device)

    # === Several processes ===

    def _from_main(self, tell: Callable[[], Told]) -> Told:
        """What `tell` returns in the main process, in all of them."""
        if self.accelerator.num_processes == 1:
            return tell()
        told = [tell() if self.accelerator.is_main_process else None]
        broadcast_object_list(told)
        return told[0]

    def _shared(self, items: list[Item], work: Callable[[list[Item]], list[Result]]) -> list[Result]:
        """The results of `work`, of which each process does an equal part: TRL's own calls want equal numbers.

        If the items don't divide, some are done twice, and counted once.
        """
        processes = self.accelerator.num_processes
        if processes == 1:
            return work(items)
        each = -(-len(items) // processes)
        padded = items + items[:1] * (each * processes - len(items))
        start = self.accelerator.process_index * each
        return gather_object(work(padded[start : start + each]))[: len(items)]

    def _part(self, rows: list[Learn], process: int | None = None) -> list[Learn]:
        """The rows that a process trains on: by default this one."""
        first = self.accelerator.process_index if process is None else process
        return rows[first :: self.accelerator.num_processes]

    # === Passing rollouts to TRL ===

    def _hand_over(self, prompts: list[Any], _trainer: GRPOTrainer) -> dict[str, Any]:
        """TRL's `rollout_func`: the rows to train on, and padding."""
        answers = [row.answer for row in self._part(self._rows or [])]
        filling = len(prompts) - len(answers)
        end = [self.eos_token_ids[0]]
        return {
            "prompt_ids": [a.prompt_ids for a in answers] + [[*end]] * filling,
            "completion_ids": [a.completion_ids for a in answers] + [[*end]] * filling,
            # vLLM says them of each rollout: TRL then expects them, of padding too.
            "logprobs": [a.logprobs for a in answers] + [[0.0]] * filling if self.use_vllm else None,
            "env_mask": [[1] * len(a.completion_ids) for a in answers] + [[0]] * filling,
        }

    def _get_per_token_logps_and_entropies(self, *arguments: Any, **named: Any) -> Any:
        """TRL's; for rollouts that were sampled before the last update, those of the weights that sampled them."""
        logps, *more = super()._get_per_token_logps_and_entropies(*arguments, **named)
        if self._logps_are_known:
            # Only the first call in a batch asks for them. Others are about a reference model.
            self._logps_are_known = False
            mine = self._part(self._rows or [])
            logps = torch.cat([self._logps_of(mine, logps)[: len(mine)], logps[len(mine) :].float()])
        return logps, *more

    def _calculate_rewards(
        self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any
    ) -> torch.Tensor:
        """Rewards were computed when the rollouts were sampled, and are not computed again."""
        if self._rows is None:
            return super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        none = [float("nan")] * len(self.reward_funcs)
        rewards: list[list[float]] = []
        # As TRL gathers them: process by process.
        for process in range(self.accelerator.num_processes):
            part = [row.answer.rewards for row in self._part(self._rows, process)]
            rewards += part + [none] * (len(prompts) - len(part))
        return torch.tensor(rewards, dtype=torch.float32, device=self.accelerator.device)

    def _logps_of(self, rows: list[Learn], like: torch.Tensor) -> torch.Tensor:
        """Log-probabilities under the weights that sampled each row, in a batch of this shape."""
        logps = torch.zeros(like.shape, dtype=torch.float32)
        for i, row in enumerate(rows):
            logps[i, : len(row.answer.logps)] = row.answer.logps
        return logps.to(like.device)

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        loss = super().training_step(model, inputs, num_items_in_batch)
        if self._past_the_end:
            # There was nothing to train on: without gradients the optimizer does not change the weights.
            for parameter in self.model.parameters():
                parameter.grad = None
        return loss

    # === Steps and checkpoints ===

    def _at_the_end_of_a_batch(self) -> bool:
        return self._step % (self.args.steps_per_generation * self.num_iterations) == 0

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        if not self.accelerator.is_main_process:
            return
        path = os.path.join(resume_from_checkpoint, STATE)
        if not os.path.exists(path):
            raise Error(f"`{resume_from_checkpoint}` has no `{STATE}`", "it is no checkpoint of this trainer")
        with torch.serialization.safe_globals([Answer]):
            self.allocator.load_state_dict(torch.load(path, weights_only=True))


class _Steps(TrainerCallback):
    """Ends the allocator's steps with TRL's, and saves its state with TRL's."""

    def __init__(self, trainer: AllocatedGRPOTrainer):
        self.trainer = trainer

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        trainer = self.trainer
        if not trainer._past_the_end and not trainer._at_the_end_of_a_batch():
            return control
        told, over = trainer._from_main(self._end_of_step)
        for name, value in told.items():
            trainer._metrics["train"][name].append(value)
        control.should_training_stop |= over
        return control

    def _end_of_step(self) -> tuple[dict[str, float], bool]:
        """Metrics, and whether the run is over."""
        allocator = self.trainer.allocator
        step = None if self.trainer._past_the_end else allocator.trained()
        return allocator.metrics(step), allocator.over is not None

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        folder = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
        if not self.trainer._past_the_end and not self.trainer._at_the_end_of_a_batch():
            logger.warning("`%s` is within a batch: it holds the model, and can't be resumed from", folder)
            return
        if not self.trainer.accelerator.is_main_process:
            return
        unfinished = os.path.join(folder, f"{STATE}.unfinished")
        torch.save(self.trainer.allocator.state_dict(), unfinished)
        os.replace(unfinished, os.path.join(folder, STATE))


def _of_lengths(name: str) -> bool:
    return name.startswith("completions/") or name == "num_tokens"
