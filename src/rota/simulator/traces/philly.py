"""Microsoft's Philly (msr-fiddle/philly-traces, CC-BY-4.0) as extracted for the OSDI'21 artifact.

The trace has durations at a fixed number of GPUs. How the jobs would have scaled is not known,
so that they neither grow nor shrink here. The virtual cluster stands for the project.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from rota.simulator.traces.fixed_size import fixed_size
from rota.simulator.traces.table import Row, read_rows
from rota.simulator.workload import Entry, Workload, workload_of

HEADER = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")

_EPOCH = datetime(2017, 1, 1)  # noqa: DTZ001 - the trace gives local times without a zone
_TIME_HINT = "write a time such as 2017-10-09 07:01:55"


def read(path: Path, file: str) -> Workload:
    """Submissions are counted from the first one; the file is not in their order."""
    return workload_of(file, _entries(path, file), gpus_field="num_gpus", from_first=True)


def _entries(path: Path, file: str) -> Iterator[Entry]:
    for row in read_rows(path, file, needed=HEADER):
        spec, truth = fixed_size(
            row,
            gpus_field="num_gpus",
            name=f"philly-{row.line}",
            project=row.text("cluster"),
        )
        yield Entry(_seconds(row), row.line, spec, truth)


def _seconds(row: Row) -> float:
    text = row.text("timestamp")
    try:
        return (datetime.fromisoformat(text).replace(tzinfo=None) - _EPOCH).total_seconds()
    except ValueError:
        raise row.wrong(
            "timestamp", f"'{row.shown('timestamp')}' is not a time", hint=_TIME_HINT
        ) from None
