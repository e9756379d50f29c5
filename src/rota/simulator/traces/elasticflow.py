"""Reads traces of Microsoft ITP from 2021 (microsoft/elasticflow-traces, MIT), in two formats.

`raw/cluster*.csv` has times and sizes; the file of 195 jobs adds model, batch size, iterations and
a deadline. Both give durations at a fixed number of GPUs, so the jobs have a fixed size. The
deadline is ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rota.simulator.traces.csv_table import read_rows
from rota.simulator.traces.fixed_size import fixed_size
from rota.simulator.workload import TraceEntry, Workload, workload_of

HEADER = ("job_id", "submission_time", "duration", "num_gpu")
HEADER_WITH_MODELS = (
    "job_id",
    "submission_time",
    "num_iteration",
    "model_name",
    "deadline",
    "batch_size",
    "num_gpu",
    "duration",
)


def read(path: Path, file: str) -> Workload:
    """Time starts at the first submission, which may be weeks after the zero of the trace."""
    return workload_of(file, _entries(path, file), gpus_field="num_gpu", from_first=True)


def _entries(path: Path, file: str) -> Iterator[TraceEntry]:
    for row in read_rows(path, file, needed=HEADER):
        spec, runtime = fixed_size(
            row, gpus_field="num_gpu", name=row.name("job_id"), category=row.text("model_name")
        )
        yield TraceEntry(row.number("submission_time"), row.line, spec, runtime)
