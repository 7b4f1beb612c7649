"""Checkpoints of a run under TRL: the folder that transformers writes, with the allocator's state in it.

transformers writes a checkpoint file by file into the folder in which it is found later, `trainer_state.json` last. The
allocator's state is written before all of them. So a checkpoint with a readable `trainer_state.json` is whole, with both
parts, and a run that is killed at any other moment leaves an unfinished one, which is never gone on from.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import torch
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from .errors import Error
from .trl_batch import Answer

#: The allocator's part.
STATE = "allot.pt"


def begin(folder: str, state: Mapping[str, Any] | None) -> None:
    """Makes a checkpoint's folder, with the allocator's state. None if there is none to go on from."""
    os.makedirs(folder, exist_ok=True)
    # A run that went on from an earlier checkpoint writes over this one, which is unfinished until it is whole again.
    for name in (TRAINER_STATE_NAME, STATE):
        path = os.path.join(folder, name)
        if os.path.exists(path):
            os.remove(path)
    if state is not None:
        path = os.path.join(folder, STATE)
        torch.save(dict(state), f"{path}.unfinished")
        os.replace(f"{path}.unfinished", path)


def state(folder: str) -> dict[str, Any]:
    """The allocator's state in a checkpoint."""
    with torch.serialization.safe_globals([Answer]):
        return torch.load(os.path.join(folder, STATE), weights_only=True)


def lacks(folder: str) -> str | None:
    """Why a run can't go on from a checkpoint, if it can't."""
    try:
        with open(os.path.join(folder, TRAINER_STATE_NAME), encoding="utf-8") as file:
            json.load(file)
    except FileNotFoundError:
        return f"is unfinished: it has no `{TRAINER_STATE_NAME}`, which is written last"
    except ValueError:
        return f"is unfinished: its `{TRAINER_STATE_NAME}`, which is written last, is cut off"
    if not os.path.exists(os.path.join(folder, STATE)):
        return f"has no `{STATE}`: it was saved within a batch, or by another trainer"
    return None


def newest(output_dir: str) -> tuple[str | None, list[str]]:
    """The newest checkpoint that a run can go on from, and a sentence about each newer one."""
    found = []
    for name in os.listdir(output_dir) if os.path.isdir(output_dir) else []:
        number = name.removeprefix(f"{PREFIX_CHECKPOINT_DIR}-")
        if number != name and number.isdecimal() and os.path.isdir(os.path.join(output_dir, name)):
            found.append((int(number), os.path.join(output_dir, name)))
    passed: list[str] = []
    for _, folder in sorted(found, reverse=True):
        if (why := lacks(folder)) is None:
            return folder, passed
        passed.append(f"`{folder}` {why}")
    return None, passed


def chosen(output_dir: str, asked: str | os.PathLike[str] | bool) -> tuple[str | bool, list[str], tuple[str, str] | None]:
    """The checkpoint to go on from, what to say of newer ones, and what to refuse, with a hint.

    `asked` is what `train` got: a folder, or True for the newest one. True is left to transformers if there is none.
    """
    last, passed = newest(output_dir)
    if not isinstance(asked, bool):
        asked = os.fspath(asked)
        why = lacks(asked) if os.path.isdir(asked) else None
        other = f"name `{last}`, the newest whole one" if last else "begin another run, with another `record`"
        return asked, [], (f"`{asked}` {why}", other) if why else None
    if last is None and passed:
        hint = "begin another run: without resume_from_checkpoint, and with another `record`"
        return asked, [], (f"no checkpoint can be gone on from: {passed[0]}", hint)
    return last or asked, passed, None


def refuse(refused: tuple[str, str | None] | None) -> None:
    """Raises an error for what was refused."""
    if refused is not None:
        raise Error(*refused)
