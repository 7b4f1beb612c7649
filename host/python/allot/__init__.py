"""Rollout allocation for group-based RL post-training: what to sample, how often, and what to train on.

A policy is a WebAssembly component, the same file that the program `allot` runs. `Policy` calls one;
`Allocator` is a whole run without sampling and updates, which the trainer does. `allot.trl` and
`allot.verl` are trainers that use it. `report` shows what `allot report` wrote, in a notebook.
"""

from ._allot import CONTRACT, VERSION, Policy, calls, shipped
from .allocator import Allocator, Draw, Learn, Over, Rollout, Sample, Sampling, Train
from .errors import BrokenRule, Error, LoadError, PolicyFault
from .evaluations import evaluated
from .reports import Report, report

__version__ = VERSION

__all__ = [
    "CONTRACT",
    "Allocator",
    "BrokenRule",
    "Draw",
    "Error",
    "Learn",
    "LoadError",
    "Over",
    "Policy",
    "PolicyFault",
    "Report",
    "Rollout",
    "Sample",
    "Sampling",
    "Train",
    "calls",
    "evaluated",
    "report",
    "shipped",
]
