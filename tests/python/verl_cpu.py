"""A machine without a GPU as a platform of verl's, for tests: its workers train with FSDP over gloo.

verl imports this module in each of its processes (VERL_USE_EXTERNAL_MODULES=verl_cpu). It uses verl's own place for
other hardware, `verl.plugin.platform`, and changes nothing of verl. What samples is in verl_cpu_rollout.py.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry, set_platform

#: verl has a list of engines for each kind of device, and none for CPUs. FSDP's own code runs there as it is.
os.environ.setdefault("VERL_ENGINE_DEVICE", "cuda")


class Device(ModuleType):
    """torch.cpu, and of what torch.cuda has beside it an answer that does nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(torch.cpu, name, lambda *_, **__: 0)

    def is_available(self) -> bool:
        # verl asks this to know whether there is memory of a device to look after.
        return False

    def get_device_name(self, *_: Any) -> str:
        return "CPU"

    def mem_get_info(self, *_: Any) -> tuple[int, int]:
        return 0, 0


DEVICE = Device("verl_cpu_device")


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformBase):
    device_name = "cpu"
    vendor_name = "cpu"
    device_module = DEVICE

    def is_available(self) -> bool:
        return True

    def current_device(self) -> torch.device:
        # FSDP takes a number for one of CUDA's.
        return torch.device("cpu")

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None:
        pass

    def synchronize(self, device_index: int | None = None) -> None:
        pass

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        pass

    def empty_cache(self) -> None:
        pass

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str):
        yield

    def profiler_start(self) -> None:
        pass

    def profiler_stop(self) -> None:
        pass

    def ray_resource_name(self) -> str:
        # verl counts GPUs before it starts. Ray believes how many it is told (ray_kwargs.ray_init.num_gpus).
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> None:
        return None


set_platform(PlatformCPU())
