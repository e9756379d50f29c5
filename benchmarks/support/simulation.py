"""What the benchmarks have in common: their flags, and one simulated run as its figures."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from benchmarks.page import RESULTS
from rota.policies.registry import parse_many
from rota.simulator.cluster import parse_cluster
from rota.simulator.results import Measures, measures
from rota.simulator.runner import Options, simulate
from rota.simulator.traces.open import TRACES_VARIABLE
from rota.simulator.workload import Workload


def flags(about: str, *, page: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument(
        "--out", type=Path, default=RESULTS / page, metavar="FILE", help="the page to write"
    )
    return parser


def add_traces(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--traces",
        type=Path,
        default=os.environ.get(TRACES_VARIABLE),
        metavar="DIR",
        help=f"the folder of the public traces; also {TRACES_VARIABLE}",
    )


def trace_file(traces: Path | None, name: str, *, origin: str) -> Path:
    """A file of the traces' folder. Without it there is nothing to measure: say what to get."""
    if traces is None:
        raise SystemExit(
            f"this needs {name} ({origin}): name the folder that holds it"
            f" with --traces DIR or {TRACES_VARIABLE}"
        )
    path = Path(traces) / name
    if not path.exists():
        raise SystemExit(f"'{traces}' has no {name}, which this needs; it comes from {origin}")
    return path


def measure(workload: Workload, cluster: str, *, policy: str, options: Options) -> Measures:
    (parsed,) = parse_many([policy])
    run = simulate(
        workload,
        parse_cluster(cluster),
        policy=parsed,
        options=options,
        progress=lambda _: None,
    )
    return measures(run)
