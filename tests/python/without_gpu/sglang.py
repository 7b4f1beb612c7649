"""Stands in for SGLang and its router where they are not installed: slime imports names of them that tests do not use."""

from __future__ import annotations

import sys
import types
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec

# So that modules are looked for in it.
__path__: list[str] = []


class Anything(types.ModuleType):
    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class Finder(MetaPathFinder, Loader):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("sglang", "sglang_router"):
            return ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return Anything(spec.name)

    def exec_module(self, module):
        pass


FINDER = Finder()
sys.meta_path.append(FINDER)
