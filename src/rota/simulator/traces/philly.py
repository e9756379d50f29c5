"""Reads Microsoft's Philly trace (msr-fiddle/philly-traces, CC-BY-4.0), as in the OSDI'21 artifact.

The trace has durations at a fixed number of GPUs and no scaling data, so the jobs have a fixed
size. The virtual cluster becomes the project.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from rota.simulator.traces.csv_table import CsvRow, read_rows
from rota.simulator.traces.fixed_size import fixed_size
from rota.simulator.workload import TraceEntry, Workload, workload_of

HEADER = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")

_EPOCH = datetime(2017, 1, 1)  # noqa: DTZ001 - the trace gives local times without a zone
_TIME_HINT = "write a time such as 2017-10-09 07:01:55"


def read(path: Path, file: str) -> Workload:
    """Time starts at the first submission. The rows of the file are not sorted by time."""
    return workload_of(file, _entries(path, file), gpus_field="num_gpus", from_first=True)


def _entries(path: Path, file: str) -> Iterator[TraceEntry]:
    for row in read_rows(path, file, needed=HEADER):
        spec, runtime = fixed_size(
            row,
            gpus_field="num_gpus",
            name=f"philly-{row.line}",
            project=row.text("cluster"),
        )
        yield TraceEntry(_seconds(row), row.line, spec, runtime)


def _seconds(row: CsvRow) -> float:
    text = row.text("timestamp")
    try:
        return (datetime.fromisoformat(text).replace(tzinfo=None) - _EPOCH).total_seconds()
    except ValueError:
        raise row.error(
            "timestamp", f"'{row.shown('timestamp')}' is not a time", hint=_TIME_HINT
        ) from None
