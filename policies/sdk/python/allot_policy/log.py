"""Words for the policy's author. They go to the run's log and change nothing.

In a component the host writes them; natively they go to standard error.
"""

import sys

try:
    from wit_world.imports import log as host
except ImportError:
    host = None


def debug(line: str) -> None:
    """Writes a line of interest to the policy's author alone."""
    _write("DEBUG", line)


def info(line: str) -> None:
    """Writes a line of interest to anyone."""
    _write("INFO", line)


def warn(line: str) -> None:
    """Writes a line about something that looks wrong."""
    _write("WARN", line)


def error(line: str) -> None:
    """Writes a line about something that is wrong."""
    _write("ERROR", line)


def _write(level: str, line: str) -> None:
    if host:
        host.write(host.Level[level], str(line))
    else:
        print(f"{level.lower()}: {line}", file=sys.stderr)
