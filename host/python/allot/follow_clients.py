"""The clients of Weights & Biases, trackio and MLflow, behind the same three calls: begin, log, finish.

Each is the service's own client, as it is installed. This file does not know a run's folder.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from .errors import Error

#: MLflow takes this many parameters in one request (`MAX_PARAMS_TAGS_PER_BATCH` in mlflow/utils/validation.py).
MLFLOW_PARAMETERS = 100
#: The most characters of a parameter's value in MLflow (`MAX_PARAM_VAL_LENGTH`, same file).
MLFLOW_VALUE = 6000


@dataclass(frozen=True)
class ClientRun:
    """The run of the client that gets the metrics."""

    project: str
    name: str
    #: Runs of one comparison have one group.
    group: str | None
    #: The run's config, as `resolved.toml` has it.
    config: Mapping[str, Any]


class Client(Protocol):
    """A run of a client. Making one begins the run, or goes on with the one that `known` identifies."""

    #: The service, in sentences.
    title: str
    #: Identifies the client's run, for another process to go on with it.
    id: str

    def log(self, step: int, metrics: Mapping[str, float]) -> str | None:
        """Sends the metrics of a step. Returns a sentence if the client could not take all of them."""

    def finish(self, over: str) -> None:
        """Ends the client's run. `over` is `finished`, `failed`, or `stopped` if the run itself goes on."""


class Wandb:
    """A run of Weights & Biases."""

    title = "Weights & Biases"

    def __init__(self, run: ClientRun, known: str | None):
        wandb = installed("wandb")
        # Offline, this makes another folder of the same run. `wandb sync` uploads such folders in order of their start.
        again = {"id": known, "resume": "must"} if known else {}
        self._run = wandb.init(
            project=run.project, name=run.name, group=run.group, config=dict(run.config), **again
        )
        self.id = self._run.id

    def log(self, step: int, metrics: Mapping[str, float]) -> str | None:
        # Metrics of one step are one row, which is closed when the next step begins.
        if step < self._run.step:
            self._run.summary.update(dict(metrics))
            return f"{self.title} had closed step {step}; what came later is in the summary of its run"
        self._run.log(dict(metrics), step=step)
        return None

    def finish(self, over: str) -> None:
        self._run.finish(exit_code=1 if over == "failed" else 0)


class Trackio:
    """A run of trackio."""

    title = "trackio"

    def __init__(self, run: ClientRun, known: str | None):
        trackio = installed("trackio")
        self._run = trackio.init(
            project=run.project,
            name=known or run.name,
            group=run.group,
            config=dict(run.config),
            resume="must" if known else "never",
        )
        self.id = self._run.name

    def log(self, step: int, metrics: Mapping[str, float]) -> str | None:
        self._run.log(dict(metrics), step=step)
        return None

    def finish(self, over: str) -> None:
        self._run.finish()


class Mlflow:
    """A run of MLflow."""

    title = "MLflow"

    def __init__(self, run: ClientRun, known: str | None):
        self._mlflow = mlflow = installed("mlflow")
        mlflow.set_experiment(run.project)
        if known:
            begun = mlflow.start_run(run_id=known)
        else:
            begun = mlflow.start_run(run_name=run.name, tags={"group": run.group} if run.group else None)
            parameters = [(name, text[:MLFLOW_VALUE]) for name, text in flat(run.config)]
            for first in range(0, len(parameters), MLFLOW_PARAMETERS):
                mlflow.log_params(dict(parameters[first : first + MLFLOW_PARAMETERS]))
        self.id = begun.info.run_id

    def log(self, step: int, metrics: Mapping[str, float]) -> str | None:
        self._mlflow.log_metrics({mlflow_name(name): value for name, value in metrics.items()}, step=step)
        return None

    def finish(self, over: str) -> None:
        self._mlflow.end_run({"finished": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}[over])


#: The clients, by the name of their package.
CLIENTS: Mapping[str, type[Client]] = {"wandb": Wandb, "trackio": Trackio, "mlflow": Mlflow}


def installed(package: str) -> Any:
    """The module of a client. Raises an error with the command that installs it."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise Error(f"Python has no module `{package}`", f"pip install {package}") from None


def mlflow_name(name: str) -> str:
    """A metric's name as MLflow accepts it: `eval/held-out/avg@4` is `eval/held-out/avg_4`."""
    return re.sub(r"[^\w.\- /]", "_", name)


def flat(config: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """A config's values by dotted keys, such as `budget.rollouts`, each as text. Lists are JSON."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{above}{key}.")
        else:
            yield mlflow_name(f"{above}{key}"), value if isinstance(value, str) else json.dumps(value, default=str)
