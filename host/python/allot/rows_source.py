"""A data source whose prompts an allocator chooses, for slime and its fork miles. What they call a `Sample` is a row here.

It goes before a trainer's own data source among the bases of a class, which says how one rollout is generated and judged.
It knows no trainer's modules.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
import os
from abc import abstractmethod
from argparse import Namespace
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import torch

from .allocator import Allocator, Draw, Over, Rollout, Sample, Sampling, Train
from .errors import Error, RunIsOver
from .rows_batch import ADVANTAGE, Row, filled, is_whole, told

#: What a trainer's functions return for a rollout: a row, or a list of them.
Done: TypeAlias = "Row | list[Row]"


class RowsSource:
    """The part of a data source that is the same in every trainer of rows."""

    #: The trainer's name, for the record.
    engine: ClassVar[str]
    #: Its class of rows.
    row: ClassVar[type]

    def __init__(self, args: Namespace):
        self.check(args)
        super().__init__(args)
        given = dict(args.allot)
        given.pop("untried", None)
        self.correct_above = given.pop("correct_above", 0.5)
        #: How many of the last rollouts had no reward.
        self.lost = 0
        # A reward of a group is one for each rollout, whatever rows it has.
        self.row_rewards = "same" if args.group_rm else given.get("row_rewards", "same")
        given.pop("row_rewards", None)
        self._refuse_a_record(given.get("record"))
        prompts = self.dataset.samples
        self.allocator = Allocator(
            given.pop("policy"),
            _lengths(self.tokenizer(args), prompts),
            **{
                "steps": args.num_rollout,
                "longest": args.rollout_max_response_len,
                "engine": self.engine,
                "temperature": args.rollout_temperature,
                "columns": lambda name: [_column(name, i, prompt) for i, prompt in enumerate(prompts)],
                **given,
            },
        )
        #: The allocator's steps: one for each of the trainer's, and those without an update.
        self._steps: int = given.get("steps", args.num_rollout)
        #: Whether the trainer has a batch that it has not asked for the next one after.
        self._learning = False
        #: The last step that ended, for the metrics of the next batch.
        self._step: dict[str, Any] | None = None

    # === The trainer's part ===

    @abstractmethod
    def check(self, args: Namespace) -> None:
        """Raises an error for what the adapter does not support."""

    @abstractmethod
    def tokenizer(self, args: Namespace) -> Any:
        """The model's tokenizer, with the chat template that the trainer takes."""

    @abstractmethod
    def sampling_params(self) -> dict[str, Any]:
        """The sampling parameters of a rollout, as the trainer's options have them."""

    @abstractmethod
    async def generated(self, prompt: Row, params: dict[str, Any]) -> Done:
        """A rollout by the trainer's own function, which also judges it, but for rewards of groups."""

    @abstractmethod
    async def group_rewards(self, rollouts: list[Done]) -> list[float | None]:
        """The rewards of the rollouts of one prompt, by the trainer's own function."""

    # === Sampling ===

    async def next_batch(self, number: int) -> tuple[list[list[Row]], dict[str, Any]]:
        """Samples until there is something to train on in the trainer's step of this number: rows by prompt, and metrics."""
        self.settle()
        step, self._step = self._step, None
        while True:
            match self.allocator.next():
                case Sample(draws=draws):
                    self.allocator.sampled(await self._sampled(draws))
                case Train(rollouts=[]):
                    step = self.allocator.trained(updated=False)
                case Train(rollouts=rollouts):
                    self._learning = True
                    return filled(self.args, rollouts, self._sibling), self.allocator.metrics(step)
                case Over(reason=reason):
                    raise RunIsOver(reason, number)

    async def _sampled(self, draws: list[Draw]) -> list[Rollout]:
        groups = []
        for draw in draws:
            prompts = [self._sibling(self.dataset.samples[draw.prompt]) for _ in draw.seeds]
            pairs = zip(prompts, draw.seeds, strict=True)
            groups.append([self._numbered(prompt, seed, draw.sampling) for prompt, seed in pairs])
            self.sample_group_index += 1
        done = iter(await asyncio.gather(*[task for group in groups for task in group]))
        sampled = [[next(done) for _ in group] for group in groups]
        if self.args.group_rm:
            # Only now: what is compared is all that a request has of a prompt.
            await asyncio.gather(*[self._judge(group) for group in sampled])
        return [self.told(rows_of(rollout)) for group in sampled for rollout in group]

    async def _numbered(self, prompt: Row, seed: int, sampling: Sampling | None) -> Done:
        """A rollout whose rows have its number."""
        params = dict(self.sampling_params())
        if sampling is not None:
            params["max_new_tokens"] = sampling.max_tokens
        if getattr(self.args, "sglang_enable_deterministic_inference", False):
            # SGLang takes signed numbers.
            params["sampling_seed"] = seed >> 1
        group, number = prompt.group_index, prompt.index
        done = await self.generated(prompt, params)
        for row in rows_of(done):
            # By this number the loss counts rows as one rollout. Functions that return several need not know of it.
            row.group_index, row.rollout_id = group, number
            row.index = number if row.index is None else row.index
        return done

    async def _judge(self, group: list[Done]) -> None:
        """Asks the trainer's reward function about the rollouts of one prompt, in the order of sampling."""
        whole = [rollout for rollout in group if is_whole(rows_of(rollout))]
        if not whole:
            return
        rewards = await self.group_rewards(whole)
        if len(rewards) != len(whole):
            asked, given = len(whole), len(rewards)
            raise Error(
                f"the reward function `{self.args.custom_rm_path}` gave {given} rewards for {asked} rollouts",
                "with --group-rm it gives one for each, in their order; None if one can't be judged",
            )
        for rollout, reward in zip(whole, rewards, strict=True):
            for row in rows_of(rollout):
                row.reward = reward

    def told(self, rows: list[Row]) -> Rollout:
        """A rollout, as the allocator is told of it."""
        rollout = told(self.args, rows, self.row_rewards, self.correct_above)
        longest = self.allocator.longest
        if rollout.tokens > longest:
            raise Error(
                f"a rollout has {rollout.tokens} tokens in {len(rows)} rows, and {longest} is the longest",
                "say `longest: TOKENS` in the section `allot`: the most that all rows of a rollout may have together",
            )
        self.lost = self.lost + 1 if rollout.reward is None else 0
        if self.lost >= self.allocator.batch:
            raise Error(
                f"the last {self.lost} rollouts came back without a reward, and they are paid for",
                f"see {self.engine}'s log for why: its servers, or what judges, may have failed",
            )
        return rollout

    def _sibling(self, row: Row) -> Row:
        """A copy of a prompt or a row, in the current group, with a number of its own."""
        copied = copy.deepcopy(row)
        copied.group_index, copied.index = self.sample_group_index, self.sample_index
        self.sample_index += 1
        return copied

    # === Steps and checkpoints ===

    def settle(self) -> None:
        """Ends a step whose update is done: the trainer then saves, evaluates, or asks for the next batch."""
        if self._learning:
            self._learning = False
            self._step = self.allocator.trained()

    def evaluated(self, data: dict[str, dict[str, Any]]) -> None:
        """Tells the accuracy of an evaluation: the share of right answers in all of its sets."""
        self.settle()
        right = {
            name: [reward is not None and reward > self.correct_above for reward in told["rewards"]]
            for name, told in data.items()
        }
        every = [one for part in right.values() for one in part]
        if every:
            parts = {name: sum(part) / len(part) for name, part in right.items() if part}
            self.allocator.scored(sum(every) / len(every), parts if len(parts) > 1 else None)

    def finish(self) -> None:
        """Ends the run after the trainer's last step, for a complete record."""
        self.settle()
        if self.allocator.steps >= self._steps:
            self.allocator.next()

    def save(self, rollout_id: int) -> None:
        super().save(rollout_id)
        self.settle()
        state = self.allocator.state_dict()
        answers = {number: [row.to_dict() for row in rows] for number, rows in state["answers"].items()}
        kept = {**state, "answers": answers, "data": self._data()}
        path = self._path(self.args.save, rollout_id)
        torch.save(kept, f"{path}.unfinished")
        os.replace(f"{path}.unfinished", path)

    def load(self, rollout_id: int | None = None) -> None:
        super().load(rollout_id)
        if self.args.load is None or rollout_id is None or rollout_id < 0:
            return
        path = self._path(self.args.load, rollout_id)
        if not os.path.exists(path):
            raise Error(f"there is no `{path}`", "it is no checkpoint of this adapter")
        state = torch.load(path, weights_only=False)
        if state["data"] != self._data():
            raise Error(
                f"the checkpoint `{path}` is from a run with another data set",
                "go on with the --prompt-data that the run began with, and its options, or begin another run",
            )
        answers = {
            number: [self.row.from_dict(row) for row in rows] for number, rows in state["answers"].items()
        }
        self.allocator.load_state_dict({**state, "answers": answers})

    def _refuse_a_record(self, folder: str | None) -> None:
        """The allocator refuses one, too, but only once all models are there and the first batch is asked for."""
        load = self.args.load
        goes_on = load is not None and any(Path(load, "rollout").glob("allot_*.pt"))
        if folder is not None and Path(folder, "record.jsonl").exists() and not goes_on:
            hint = (
                "name another folder as `record` in the section `allot`, or go on from a checkpoint by --load"
            )
            raise Error(
                f"there is a record in `{folder}` already, and --load names no checkpoint to go on from", hint
            )

    def _data(self) -> str:
        """A hash of the prompts in their order, and of what their answers are compared with."""
        told = json.dumps([[row.prompt, row.label] for row in self.dataset.samples], default=str)
        return hashlib.sha256(told.encode()).hexdigest()

    def _path(self, folder: str, rollout_id: int) -> str:
        return os.path.join(folder, f"rollout/allot_{rollout_id}.pt")


def advantages(args: Namespace, samples: list[Row]) -> tuple[list[float], list[float]]:
    """A trainer's post-processing of rewards: the raw ones, and the allocator's advantages."""
    raw = [float(row.get_reward_value(args)) for row in samples]
    return raw, [row.metadata[ADVANTAGE] for row in samples]


def rows_of(done: Done) -> list[Row]:
    return done if isinstance(done, list) else [done]


def _column(name: str, number: int, prompt: Row) -> Any:
    if name not in (prompt.metadata or {}):
        what = f"the policy wants the column `{name}`, which prompt {number} does not have in its metadata"
        raise Error(what, "it is read from the field that --metadata-key names")
    return prompt.metadata[name]


def _lengths(tokenizer: Any, prompts: list[Row]) -> list[int]:
    """The prompts' lengths in tokens. One that is a conversation is templated by whoever generates."""

    def text(prompt: str | list[dict[str, Any]]) -> str:
        if isinstance(prompt, str):
            return prompt
        return tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)

    return [len(tokenizer.encode(text(row.prompt), add_special_tokens=False)) for row in prompts]
