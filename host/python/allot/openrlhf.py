"""OpenRLHF's PPO trainer under a policy. For OpenRLHF 0.11, synchronous, with rewards of functions, servers
or agents.

OpenRLHF's loop asks for a batch, trains on it, saves and evaluates. Here its generator of samples follows the
policy's plans (openrlhf_rollouts.py), its experiences get the allocator's advantages (openrlhf_batch.py), and
its checkpoints take the allocator's state along.

    python -m allot.openrlhf_train --allot '{policy: …, budget: {rollouts: …}, record: …}' --actor.… …

The keys of `--allot` are those of `allot.Allocator`. `openrlhf_train.py` puts these classes in the place of
OpenRLHF's own.
"""

from __future__ import annotations

import hashlib
import json
import math
import pickle
from typing import Any

import ray
from openrlhf.datasets.utils import blending_datasets
from openrlhf.trainer.ppo_trainer import PPOTrainer
from openrlhf.trainer.ppo_utils.experience import Experience

from . import openrlhf_checks
from .allocator import Allocator
from .errors import Error
from .openrlhf_batch import AllocatedExperienceMaker, counts, plain
from .openrlhf_rollouts import AllocatedSamplesGenerator

#: The key of the run's state in a checkpoint, among OpenRLHF's client states.
STATE = "allot"


class State:
    """The run's state in a checkpoint, pickled. OpenRLHF logs client states: of this one only the size."""

    def __init__(self, state: dict[str, Any]):
        self.pickled = pickle.dumps(state)

    def __repr__(self) -> str:
        return f"<allot's state, {len(self.pickled)} bytes>"


class AllocatedTrainer(plain(PPOTrainer)):  # type: ignore[misc]
    """OpenRLHF's synchronous trainer, with the batches that a policy plans."""

    #: Set by `get_max_steps`, which OpenRLHF calls before models are loaded.
    allocator: Allocator
    #: The last step of this process, and what OpenRLHF keeps of it in a checkpoint.
    last: tuple[int, dict[str, Any]] | None = None

    def __init__(self, pretrain: str, strategy: Any, *groups: Any, **generate_kwargs: Any):
        super().__init__(pretrain, strategy, *groups, **generate_kwargs)
        self.samples_generator = AllocatedSamplesGenerator(
            strategy=strategy,
            prompts_dataloader=self.prompts_dataloader,
            eval_dataloader=self.eval_dataloader,
            tokenizer=self.tokenizer,
            vllm_engines=self.vllm_engines,
        )
        self.experience_maker = AllocatedExperienceMaker(
            self.actor_model_group,
            self.critic_model_group,
            self.reward_model_group,
            self.reference_model_group,
            self.kl_ctl,
            strategy,
            self.tokenizer,
        )

    def get_max_steps(self) -> int:
        """Sets the run up, and returns its number of optimizer steps, for the learning rate's schedule."""
        args, data = self.args, self.prompts_dataloader.dataset
        given = openrlhf_checks.kwargs(args)
        given.pop("any_version", None)
        steps, longest = openrlhf_checks.steps(args, len(data)), openrlhf_checks.longest(args)
        #: What the run is: a checkpoint of another run is refused by it.
        self.setup = {
            **{name: value for name, value in given.items() if name != "record"},
            **{"prompts": len(data), "data": _digest(data), "steps": steps, "longest": longest},
        }
        generator = self.samples_generator
        generator.correct_above = given.pop("correct_above", 0.5)
        self.allocator = generator.allocator = Allocator(
            given.pop("policy"),
            self._lengths(),
            **{
                **given,
                "steps": steps,
                "longest": longest,
                "engine": "openrlhf",
                "temperature": args.rollout.temperature,
                "columns": self._column,
            },
        )
        generator.ended = self._end
        a_step = math.ceil(self.allocator.batch / args.train.batch_size)
        self.max_steps = steps * a_step * args.train.max_epochs
        return self.max_steps

    def _lengths(self) -> list[int]:
        """The prompts' lengths, in tokens, as they are sampled from: a prompt that is too long is cut."""
        args, texts = self.args, self.prompts_dataloader.dataset.prompts
        most = args.data.max_len - (args.rollout.max_new_tokens or 1)
        ids = self.tokenizer(text=list(texts), add_special_tokens=False)["input_ids"]
        return [max(min(len(one), most), 1) for one in ids]

    def _column(self, name: str) -> list[Any]:
        """A column of the data set, which OpenRLHF itself does not keep."""
        args = self.args
        rows = blending_datasets(
            args.data.prompt_dataset,
            args.data.prompt_probs,
            self.strategy,
            args.train.seed,
            max_count=args.data.max_samples,
            dataset_split=args.data.prompt_split,
        )
        if name not in rows.column_names:
            raise Error(
                f"the policy wants the column `{name}`, which the data set does not have",
                f"add it to --data.prompt_dataset, whose columns are {', '.join(rows.column_names)}",
            )
        return list(rows[name])[: len(self.prompts_dataloader.dataset)]

    # === Steps ===

    def fit(self, global_step: int = 0) -> None:
        super().fit(global_step)
        spent = self.allocator.spent
        print(
            f"allot: {self.allocator.over}, after {self.allocator.steps} steps with {spent['run_rollouts']} "
            f"rollouts and {spent['run_tokens']} tokens",
            flush=True,
        )

    def train_step(self, rollout_samples: list[Experience], global_step: int) -> tuple[dict[str, Any], int]:
        status, global_step = super().train_step(rollout_samples, global_step)
        # Before OpenRLHF saves and evaluates, which it does right after this.
        step = self.allocator.trained()
        status.update(self.allocator.metrics(step))
        status["allot/filled"] = float(len(rollout_samples) - step["trained"])
        return status, global_step

    def _compute_rollout_stats(self, experiences: list[Experience]) -> dict[str, float]:
        """OpenRLHF's, of the rows that are rollouts."""
        real = [
            Experience(
                info={"reward": experience.info["reward"][counts(experience)]},
                response_length=experience.response_length[counts(experience)],
                truncated=experience.truncated[counts(experience)],
            )
            for experience in experiences
        ]
        stats: dict[str, float] = super()._compute_rollout_stats(real)
        return stats

    def evaluate(self, global_step: int, **generate_kwargs: Any) -> dict[str, float]:
        logs: dict[str, float] = super().evaluate(global_step, **generate_kwargs)
        if self.samples_generator.accuracy is not None:
            self.allocator.scored(self.samples_generator.accuracy)
        return logs

    def _end(self) -> None:
        """Saves and evaluates after the last step, unless that was done. Only now it is known as such."""
        if self.last is None:
            # The run was over when this process began.
            return
        step, states = self.last
        args = self.args
        if math.isfinite(args.ckpt.save_steps) and step % args.ckpt.save_steps != 0:
            self._save(step, states)
        if math.isfinite(args.eval.steps) and step % args.eval.steps != 0 and self.eval_dataloader:
            how = {
                "temperature": args.eval.temperature,
                "n_samples_per_prompt": args.eval.n_samples_per_prompt,
            }
            logs = self.evaluate(step, **{**self.generate_kwargs, **how})
            self.save_best_checkpoint(logs, step, states)

    # === Checkpoints ===

    def save_logs_and_checkpoints(
        self, global_step: int, logs_dict: dict[str, Any] | None = None, client_states: dict | None = None
    ) -> None:
        states = {} if client_states is None else client_states
        self.last = global_step, states
        if global_step % self.args.ckpt.save_steps == 0:
            states[STATE] = self._state()
        super().save_logs_and_checkpoints(global_step, logs_dict, states)

    def save_best_checkpoint(
        self, eval_metrics: dict[str, float], global_step: int, client_states: dict | None = None
    ) -> None:
        states = {**(client_states or {}), STATE: self._state()}
        super().save_best_checkpoint(eval_metrics, global_step, states)

    def _save(self, global_step: int, states: dict[str, Any]) -> None:
        """A checkpoint as OpenRLHF's own, whose method saves only after each `ckpt.save_steps` steps."""
        states = {
            **states,
            STATE: self._state(),
            "best_eval_metric_key": self.best_eval_metric_key,
            "best_eval_metric_value": self.best_eval_metric_value,
            "latest_eval_metric_value": self._latest_eval_metric_value,
        }
        ray.get(
            self.actor_model_group.async_run_method(
                method_name="save_checkpoint",
                tag=f"global_step{global_step}",
                client_states=states,
                metric_value=self._latest_eval_metric_value,
                metric_key=self.best_eval_metric_key or None,
            )
        )

    def _state(self) -> State:
        return State({"setup": self.setup, "run": self.allocator.state_dict()})

    def init_checkpoint_states(self) -> dict[str, Any]:
        """OpenRLHF's states, of a checkpoint or of a beginning. Continues the run from the checkpoint's."""
        states: dict[str, Any] = super().init_checkpoint_states()
        if not openrlhf_checks.resumes(self.args):
            return states
        if STATE not in states:
            raise Error(
                f"the checkpoint in {self.args.ckpt.path} has no state of allot's: its run had no --allot",
                "set --ckpt.path to another folder, or leave --ckpt.load_enable out",
            )
        kept = pickle.loads(states.pop(STATE).pickled)
        for what, option in openrlhf_checks.differences(kept["setup"], self.setup):
            raise Error(
                f"this is not the run of the checkpoint: {what}",
                f"set {option} as it was, or begin another run: another --ckpt.path and another `record`",
            )
        self.allocator.load_state_dict(kept["run"])
        return states


def _digest(data: Any) -> str:
    """Of all prompts and labels in their order: lengths alone would not tell two data sets apart."""
    told = json.dumps([data.prompts, data.labels], default=str)
    return hashlib.blake2b(told.encode(), digest_size=16).hexdigest()
