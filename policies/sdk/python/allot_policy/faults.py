"""How what goes wrong in a component is told: a refusal in the contract's words, anything else as a traceback
of the author's own lines, and then the end."""

from __future__ import annotations

import linecache
import os
import re
import sys
import traceback
from collections.abc import Callable
from types import ModuleType, TracebackType
from typing import Any

from .error import BadPolicy, BadSetting, BadState, GiveUp
from .settings import Value


def told(who: str, call: Callable[..., Any], *arguments: Any) -> Any:
    """The answer of a call, or a clean refusal in the contract's words. `who` is what the module is."""
    # Bindings of a component: a draft has none.
    from componentize_py_types import Err
    from wit_world.imports import types

    try:
        return call(*arguments)
    except BadSetting as bad:
        raise Err(types.Error_Setting(types.BadSetting(bad.name, bad.reason))) from None
    except BadState as bad:
        raise Err(types.Error_State(str(bad))) from None
    except GiveUp as given:
        raise Err(types.Error_Other(str(given))) from None
    except SystemExit as left:
        raise exited(who, left, "to stop the run it raises `GiveUp`") from None


def exited(who: str, left: SystemExit, instead: str) -> RuntimeError:
    """The mistake that `sys.exit` is: a component has no process of its own to end, and would leave without a word."""
    return RuntimeError(f"the {who} called `sys.exit`; {instead}").with_traceback(left.__traceback__)


def value(value: Value) -> Any:
    """A setting's default as the contract has it."""
    from wit_world.imports import types

    kinds = {
        bool: types.Value_Flag,
        int: types.Value_Integer,
        float: types.Value_Number,
        str: types.Value_Text,
    }
    return kinds[type(value)](value)


def show(kind: type, error: BaseException, trace: TracebackType | None) -> None:
    """Writes a traceback as the author's own file has it: without the SDK's part."""
    told = link = traceback.TracebackException(kind, error, trace)
    while link:
        bad = issubclass(kind, BadPolicy)
        inner = [] if bad else [f for f in link.stack if f.name != "<module>"]
        link.stack[:] = [f for f in link.stack if not f.filename.startswith((*SDK, "<string>"))] or inner
        link = link.__cause__ or link.__context__
    text = re.sub(r"^allot_\w+\.error\.Bad(Policy|Grader): ", "", "".join(told.format()), flags=re.MULTILINE)
    # componentize-py numbers its folders: the author's file is `/0/policy.py`.
    print(re.sub(r'File "/\d+/', 'File "', text), end="", file=sys.stderr, flush=True)


def stop(kind: type, error: BaseException, trace: TracebackType | None) -> None:
    """The same, and the end: without the words that componentize-py would add."""
    show(kind, error, trace)
    os.abort()


def listen(author: ModuleType) -> None:
    """From here on what goes wrong in the author's module is told, and stops the call."""
    # There are no files where the component runs: the lines that a traceback quotes come along. No
    # date of change, so that nobody looks whether they are still the same.
    home = os.path.dirname(author.__file__)
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None) or ""
        if path.startswith(home):
            lines = linecache.getlines(path)
            linecache.cache[path] = (sum(map(len, lines)), None, lines, path)
    sys.excepthook = stop


SDKS = os.path.dirname(os.path.dirname(__file__))
SDK = tuple(os.path.join(SDKS, name) for name in ("allot_policy", "allot_grader"))
