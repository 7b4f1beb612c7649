"""TRL's GRPO trainer as a sampler: an answer and its reward for each of some prompts, and what a model thinks of it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from accelerate.utils import broadcast_object_list, gather_object
from trl import GRPOTrainer

from .errors import Error
from .trl_batch import Answer

Item, Result, Told = TypeVar("Item"), TypeVar("Result"), TypeVar("Told")

#: The signals that the trainer can measure for each rollout: Allocator(…, signals=SIGNALS).
SIGNALS = ("mean-log-prob", "mean-entropy")


class _Generated(Exception):  # noqa: N818
    """Leaves TRL's computation of a batch once it has generated: what follows is not about this batch."""

    def __init__(self, prompts: list[Any], generated: tuple[Any, ...]):
        super().__init__()
        self.prompts, self.generated = prompts, generated


class Sampler(GRPOTrainer):
    """TRL's trainer, asked for answers alone."""

    #: Whether TRL is to stop after it has generated.
    _only_generates = False

    def _generate(self, prompts: list[Any]) -> tuple[Any, ...]:
        generated = super()._generate(prompts)
        if self._only_generates:
            raise _Generated(prompts, generated)
        return generated

    def _answered(self, prompts: list[int]) -> list[tuple[Answer, float | None]]:
        """An answer to each of this process's prompts, and its reward: None if it has none."""
        rows = [dict(self.train_dataset[prompt]) for prompt in prompts]
        # One by one: TRL would treat `num_generations` consecutive rows as the same prompt.
        several, self.num_generations, self._only_generates = self.num_generations, 1, True
        try:
            super()._generate_and_score_completions(rows)
            raise AssertionError("TRL generated nothing")
        except _Generated as done:
            texts, generated = done.prompts, done.generated
        finally:
            self.num_generations, self._only_generates = several, False
        prompt_ids, completion_ids, masks, completions, logprobs, further, images, _ = generated
        if images is not None:
            raise Error("a tool or an environment answered with an image", "let it answer with text")
        for name, values in further.items():
            for i, row in enumerate(rows):
                row[name] = values[i] if isinstance(values, list) else values
        # TRL gathers the rewards of all processes.
        rewards = super()._calculate_rewards(rows, texts, completions, completion_ids)
        rewards = rewards[self.accelerator.process_index * len(rows) :][: len(rows)]
        totals = self._totals(rewards)
        extra = {name: _plain(values) for name, values in self._pending_extra_logs.items()}
        self._pending_extra_logs.clear()
        answered = []
        for i, (prompt, ids) in enumerate(zip(prompt_ids, completion_ids, strict=True)):
            answer = Answer(
                [int(token) for token in prompt],
                [int(token) for token in ids],
                None if logprobs is None else [None if x is None else float(x) for x in logprobs[i]],
                rewards[i].tolist(),
                mask=None if masks is None else [int(one) for one in masks[i]],
                prompt=texts[i],
                completion=completions[i],
                extra={name: values[i] for name, values in extra.items() if len(values) == len(rows)},
            )
            answered.append((answer, totals[i]))
        return answered

    def _totals(self, rewards: torch.Tensor) -> list[float | None]:
        """Each answer's reward, from those of all reward functions: None if no function gave one."""
        totals = (rewards * self.reward_weights.to(rewards.device).unsqueeze(0)).nansum(dim=1)
        unscorable = torch.isnan(rewards).all(dim=1)
        return [None if none else total.item() for none, total in zip(unscorable, totals, strict=True)]

    @contextmanager
    def _at_most(self, tokens: int | None) -> Iterator[None]:
        """While TRL's answers have at most so many tokens, if a number is given."""
        if tokens is None or tokens >= self.max_completion_length:
            yield
            return
        # The first is read by its loop of tools, the others by what samples: transformers or vLLM.
        longest, self.max_completion_length = self.max_completion_length, tokens
        sampler = self.vllm_generation if self.use_vllm else self
        name = "generation_kwargs" if self.use_vllm else "generation_config"
        kept = getattr(sampler, name)
        if self.use_vllm:
            shorter = {**(kept or {}), "max_tokens": tokens}
        else:
            shorter = copy.deepcopy(kept)
            shorter.max_new_tokens = tokens
        setattr(sampler, name, shorter)
        try:
            yield
        finally:
            self.max_completion_length = longest
            setattr(sampler, name, kept)

    def _measured(
        self, answers: list[Answer], *, signals: bool
    ) -> list[tuple[torch.Tensor, dict[str, float]]]:
        """The log-probabilities of each of this process's answers, and its signals."""
        prompts, prompt_mask = self._padded([a.prompt_ids for a in answers], left=True)
        tokens, mask = self._padded([a.completion_ids for a in answers], left=False)
        with torch.no_grad():
            logps, entropies, _ = self._get_per_token_logps_and_entropies(
                self.model,
                torch.cat([prompts, tokens], dim=1),
                torch.cat([prompt_mask, mask], dim=1),
                tokens.size(1),
                compute_entropy=signals,
            )
        measured = []
        for i, answer in enumerate(answers):
            n = len(answer.completion_ids)
            # A copy: what is sent to other processes would be the whole chunk's.
            own, told = logps[i, :n].float().cpu().clone(), {}
            if entropies is not None:
                by_model = torch.tensor(answer.generated, dtype=torch.bool)
                means = (own[by_model].mean().item(), entropies[i, :n].float().cpu()[by_model].mean().item())
                told = dict(zip(SIGNALS, means, strict=True))
            measured.append((own, told))
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


def one_for_each(rollout_func: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """This `rollout_func`, which must return a row for each prompt: TRL looks at prompts and rows in pairs."""

    def checked(prompts: list[Any], trainer: Any) -> dict[str, Any]:
        returned = rollout_func(prompts, trainer)
        rows = len(returned.get("completion_ids", prompts))
        if rows != len(prompts):
            raise Error(
                f"`rollout_func` returned {rows} rows for {len(prompts)} prompts",
                "let it return one for each, with what the model did not say masked by `env_mask`: several rows of "
                "a rollout are known only to TRL's asynchronous trainer",
            )
        return returned

    return checked


def _plain(values: list[Any]) -> list[Any]:
    """As a checkpoint can hold them."""
    return [value if isinstance(value, (str, int, float, type(None))) else str(value) for value in values]
