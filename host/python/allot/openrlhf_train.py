"""OpenRLHF's `train_ppo_ray` under a policy: `python -m allot.openrlhf_train --allot '{policy: …}'` and
OpenRLHF's own options.

OpenRLHF's script makes its parts by name, and has no option to replace them. So its own code runs as it is,
after those names were given to parts that know a policy; arguments are checked where the script asks for its
strategy, before it loads anything.
"""

from __future__ import annotations

import os
import runpy
import sys
from importlib.metadata import PackageNotFoundError, version
from types import SimpleNamespace
from typing import Any

from . import openrlhf_checks
from .errors import Error

SCRIPT = "openrlhf.cli.train_ppo_ray"

HINT = "give --allot '{policy: pilot-commit, budget: {rollouts: 10000}}', or a YAML file with such keys"


def main() -> None:
    try:
        found = installed()
        given, options = separated(sys.argv[1:])
        openrlhf_checks.check_version(found, given)
        replace_parts(given)
        sys.argv = [SCRIPT, *options]
        runpy.run_module(SCRIPT, run_name="__main__")
    except Error as error:
        # From another process of Ray's it comes wrapped.
        told = getattr(error, "cause", error)
        sys.exit(f"error: {told.what}" + (f"\nhint: {told.hint}" if told.hint else ""))


def installed() -> str:
    """The version of OpenRLHF."""
    try:
        return version("openrlhf")
    except PackageNotFoundError as error:
        hint = f"install openrlhf=={openrlhf_checks.TRIED[-1]}, or run the Python that has it"
        raise Error(f"OpenRLHF is not installed for {sys.executable}", hint) from error


def separated(arguments: list[str]) -> tuple[dict[str, Any], list[str]]:
    """The keys of `--allot`, and OpenRLHF's own options."""
    # It comes with Ray.
    import yaml

    found: list[str] = []
    options: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        if argument == "--allot":
            found.append(next(rest, ""))
        elif argument.startswith("--allot="):
            found.append(argument.removeprefix("--allot="))
        else:
            options.append(argument)
    if len(found) != 1:
        raise Error(f"--allot is given {len(found)} times, and a run has one", HINT)
    text = found[0]
    if os.path.isfile(text):
        with open(text, encoding="utf-8") as file:
            text = file.read()
    try:
        given = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise Error(f"--allot can't be read: {' '.join(str(error).split())}", HINT) from error
    if not isinstance(given, dict):
        raise Error(f"--allot is `{text}`; it must be a mapping, or a file that is there", HINT)
    return given, options


def replace_parts(given: dict[str, Any]) -> None:
    """Puts parts that know a policy where OpenRLHF's script looks for its own."""
    import openrlhf.utils
    import ray
    from openrlhf.trainer import ppo_trainer
    from openrlhf.trainer.ray import ppo_actor, vllm_engine

    from . import openrlhf as trainer
    from . import openrlhf_batch, openrlhf_rollouts

    ppo_trainer.PPOTrainer = ray.remote(trainer.AllocatedTrainer)
    ppo_actor.PolicyModelActor = ray.remote(num_gpus=1)(openrlhf_batch.AllocatedPolicyModel)
    vllm_engine.RolloutRayActor = ray.remote(openrlhf_rollouts.AllocatedRollouts)
    get_strategy = openrlhf.utils.get_strategy

    def checked(args: SimpleNamespace) -> Any:
        args.allot = openrlhf_checks.whole(given)
        openrlhf_checks.check(args)
        return get_strategy(args)

    openrlhf.utils.get_strategy = checked


if __name__ == "__main__":
    main()
