"""A machine without a GPU for OpenRLHF, for tests: `prepare` runs first in each of its processes.

OpenRLHF has no CPU among its devices: it names CUDA in its own code. Here CUDA's names stand for the CPU,
DeepSpeed trains by its CPU accelerator over gloo, and of two packages that need a GPU to be installed only
the names are there: flash-attn, which no test calls, and vLLM, in whose place openrlhf_cpu_vllm.py samples.
Nothing of OpenRLHF, DeepSpeed or Ray is changed.
"""

from __future__ import annotations

import importlib.machinery
import os
import sys
from types import ModuleType
from typing import Any

import torch
import torch.distributed.device_mesh


class Device(str):
    """The CPU, as a device to move tensors to. OpenRLHF also writes it as the number in `cuda:0`."""

    def __format__(self, _: str) -> str:
        return "0"


def prepare() -> None:
    os.environ["DS_ACCELERATOR"] = "cpu"
    torch.set_num_threads(1)
    cuda: Any = torch.cuda
    cuda.current_device = lambda: Device("cpu")
    for name in ("set_device", "empty_cache", "synchronize", "current_stream"):
        setattr(cuda, name, lambda *_, **__: None)
    torch.empty = _on_cpu(torch.empty)
    mesh: Any = torch.distributed.device_mesh
    make = mesh.init_device_mesh
    mesh.init_device_mesh = lambda device, *more, **named: make("cpu", *more, **named)
    _flash_attn()
    import openrlhf_cpu_vllm

    openrlhf_cpu_vllm.install()


def _on_cpu(make: Any) -> Any:
    def made(*arguments: Any, device: Any = None, **named: Any) -> torch.Tensor:
        return make(*arguments, device="cpu" if device == "cuda" else device, **named)

    return made


def module(name: str, **named: Any) -> ModuleType:
    """A module that is there by its name, with these names in it."""
    made = ModuleType(name)
    made.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    made.__path__ = []  # type: ignore[attr-defined]
    made.__dict__.update(named)
    sys.modules[name] = made
    parent, _, last = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], last, made)
    return made


def _flash_attn() -> None:
    def missing(*_: Any, **__: Any) -> None:
        raise RuntimeError("flash-attn needs a GPU")

    module("flash_attn")
    names = ("index_first_axis", "pad_input", "rearrange", "unpad_input")
    module("flash_attn.bert_padding", **dict.fromkeys(names, missing))
    module("flash_attn.utils")
    module("flash_attn.utils.distributed", all_gather=missing)
