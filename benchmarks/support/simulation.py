"""Finds trace files and runs one simulation for a benchmark."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from rota.policies.registry import parse_many
from rota.simulator.cluster_spec import parse_cluster
from rota.simulator.metrics import RunMetrics, compute_metrics
from rota.simulator.runner import Options, simulate
from rota.simulator.traces.loader import TRACES_VARIABLE
from rota.simulator.workload import Workload


def add_traces(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--traces",
        type=Path,
        default=os.environ.get(TRACES_VARIABLE),
        metavar="DIR",
        help=f"the folder of the public traces; also {TRACES_VARIABLE}",
    )


def trace_file(traces: Path | None, name: str, *, origin: str) -> Path:
    """A file of the folder of traces. If it is missing, the error says where to get it."""
    if traces is None:
        raise SystemExit(
            f"this needs {name} ({origin}): name the folder that holds it"
            f" with --traces DIR or {TRACES_VARIABLE}"
        )
    path = Path(traces) / name
    if not path.exists():
        raise SystemExit(f"'{traces}' has no {name}, which this needs; it comes from {origin}")
    return path


def measure(workload: Workload, cluster: str, *, policy: str, options: Options) -> RunMetrics:
    (parsed,) = parse_many([policy])
    run = simulate(
        workload,
        parse_cluster(cluster),
        policy=parsed,
        options=options,
        progress=lambda _: None,
    )
    return compute_metrics(run)
