"""What Weights & Biases, trackio and MLflow have stored of a run, read back from their own files.

    PYTHON followed.py wandb|trackio|mlflow PROJECT

prints JSON: a list of runs, each with its name, group, config, state, and its metrics as lists of [step, value] by name. It runs
where `allot.follow` ran, with the same environment: Weights & Biases offline, the others in a folder.
"""

from __future__ import annotations

import glob
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path


def wandb(project: str) -> list[dict]:
    from wandb.proto import wandb_internal_pb2 as protobuf

    # A run that another process went on with has a file of each process.
    runs: dict[str, dict] = {}
    for path in sorted(glob.glob("wandb/offline-run-*/run-*.wandb")):
        for record in records(Path(path).read_bytes()):
            message = protobuf.Record.FromString(record)
            match message.WhichOneof("record_type"):
                case "run":
                    told = message.run
                    config = {one.key: json.loads(one.value_json) for one in told.config.update}
                    run = runs.setdefault(
                        told.run_id,
                        {
                            "name": told.display_name,
                            "group": told.run_group or None,
                            "config": config,
                            "metrics": defaultdict(list),
                        },
                    )
                    assert told.project == project, told.project
                case "history":
                    row = {one.key or one.nested_key[0]: json.loads(one.value_json) for one in message.history.item}
                    for name, value in row.items():
                        if not name.startswith("_"):
                            run["metrics"][name].append([row["_step"], value])
                case "exit":
                    run["state"] = message.exit.exit_code
    return list(runs.values())


def records(data: bytes) -> Iterator[bytes]:
    """The records of a LevelDB log, which a `.wandb` file is after 7 bytes of its own."""
    at, whole, block = 7, b"", 1 << 15
    while at + 7 <= len(data):
        if block - at % block < 7:
            at += block - at % block
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a record in one piece, or its last piece
            yield whole
            whole = b""


def trackio(project: str) -> list[dict]:
    import trackio
    from trackio.sqlite_storage import SQLiteStorage

    runs = []
    for run in trackio.Api().runs(project):
        metrics = defaultdict(list)
        for row in SQLiteStorage.get_logs(project, run.name, run_id=run.id):
            for name, value in row.items():
                if name not in ("step", "timestamp"):
                    metrics[name].append([row["step"], value])
        runs.append(
            {
                "name": run.name,
                "group": run.config["_Group"],
                "config": {name: value for name, value in run.config.items() if not name.startswith("_")},
                "state": None,
                "metrics": metrics,
            }
        )
    return runs


def mlflow(project: str) -> list[dict]:
    from mlflow import MlflowClient

    client, runs = MlflowClient(), []
    experiment = client.get_experiment_by_name(project)
    for run in client.search_runs([experiment.experiment_id]):
        metrics = {
            name: [[one.step, one.value] for one in client.get_metric_history(run.info.run_id, name)]
            for name in run.data.metrics
        }
        runs.append(
            {
                "name": run.info.run_name,
                "group": run.data.tags.get("group"),
                "config": run.data.params,
                "state": run.info.status,
                "metrics": metrics,
            }
        )
    return runs


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](sys.argv[2])))
