"""Microsoft ITP jobs of 2021 (microsoft/elasticflow-traces, MIT), in their two forms.

`raw/cluster*.csv` has times and sizes; the file of 195 jobs adds model, batch size, iterations
and a deadline. Both give durations at a fixed number of GPUs, so that jobs neither grow nor
shrink here. The deadline is not used.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rota.simulator.traces.fixed_size import fixed_size
from rota.simulator.traces.table import read_rows
from rota.simulator.workload import Entry, Workload, workload_of

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
    """Submissions are counted from the first one, which may be weeks into the recording."""
    return workload_of(file, _entries(path, file), gpus_field="num_gpu", from_first=True)


def _entries(path: Path, file: str) -> Iterator[Entry]:
    for row in read_rows(path, file, needed=HEADER):
        spec, truth = fixed_size(
            row, gpus_field="num_gpu", name=row.name("job_id"), category=row.text("model_name")
        )
        yield Entry(row.number("submission_time"), row.line, spec, truth)
