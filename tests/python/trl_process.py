"""One process of a run under TRL, which test_trl_processes.py starts: trl_process.py FOLDER JSON

It writes what it saw to FOLDER/rank-N.json. `kill_at` names a rank and a rollout at which that process is killed, as
by a machine that goes down, `kill_in` a moment of a checkpoint; `resume` names a checkpoint, or is true; with `episodes` the run
is of test_trl_environments.py.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from pathlib import Path

import test_trl_environments
import torch
import transformers.trainer
from test_trl import Judge, trainer
from transformers import TrainerState, TrainingArguments


class Mortal(Judge):
    """A judge in a process that is killed when it has judged so many."""

    kill_at: int | None = None

    def __call__(self, *arguments, **named):
        rewards = super().__call__(*arguments, **named)
        if self.kill_at is not None and self.rollouts >= self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return rewards


def killed_in(checkpoint: Path, moment: str) -> None:
    """Kills this process while a checkpoint is written: before what transformers writes last, in the middle of
    that, or after it, when older checkpoints are removed."""
    owner, name = {
        "before the last file": (TrainerState, "save_to_json"),
        "within the last file": (TrainerState, "save_to_json"),
        "after the last file": (transformers.trainer, "rotate_checkpoints"),
    }[moment]
    proceed = getattr(owner, name)

    def killed(*arguments, **named):
        if moment == "within the last file" or not checkpoint.exists():
            proceed(*arguments, **named)
        if checkpoint.exists():
            if moment == "within the last file":
                os.truncate(checkpoint / "trainer_state.json", 100)
            os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, killed)


def episodes(folder: str, given: dict) -> None:
    spy = test_trl_environments.trainer(folder, environment_factory=test_trl_environments.Sum, **given)
    spy.train()
    seen = {"began": test_trl_environments.Sum.began, "made": spy.made, "spent": spy.allocator.spent}
    seen["losses"] = spy.losses
    seen["rows"] = [
        (row.advantage, sum(row.answer.generated), len(row.answer.completion_ids))
        for batch in spy.batches
        for row in batch.rollouts
    ]
    (Path(folder) / f"rank-{spy.accelerator.process_index}.json").write_text(json.dumps(seen))


def main(folder: str, given: dict) -> None:
    rank = int(os.environ.get("RANK", 0))
    if given.pop("episodes", False):
        return episodes(folder, given)
    resume, kill_at, kill_in = (given.pop(name, None) for name in ("resume", "kill_at", "kill_in"))
    spy, _ = trainer(folder, **given)
    judge = Mortal()
    if kill_at is not None and kill_at[0] == rank:
        judge.kill_at = kill_at[1]
    spy.reward_funcs[0] = judge
    if kill_in is not None and rank == 0:
        killed_in(Path(folder, "trl", kill_in[0]), kill_in[1])
    # transformers 5.10 loads an optimizer onto `cpu:0`, a name that torch.load does not know.
    TrainingArguments.device = property(lambda _: torch.device("cpu"))
    spy.train(resume_from_checkpoint=resume)
    digest = hashlib.sha256()
    for parameter in spy.model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    seen = {
        "weights": digest.hexdigest(),
        "judged": judge.rollouts,
        "tokens": judge.tokens,
        "wrong_prompts": judge.wrong_prompts,
        "losses": spy.losses,
        "batches": [
            [(row.prompt, row.age, row.advantage, len(row.answer.completion_ids)) for row in batch.rollouts]
            for batch in spy.batches
            if batch
        ],
        "own": spy.own,
        "spent": spy.allocator.spent,
        "steps": spy.state.global_step,
    }
    (Path(folder) / f"rank-{rank}.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
    # All is written. Python's own end is left out: gloo's threads, which a destroyed process group leaves running, abort it now
    # and then as they release tensors in it (pytorch#190489; it was seen in one process too).
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
