"""Writes jobs of a daemon's history in rota's own trace format, which `native` reads."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from io import StringIO

from rota.core.model.units import parse_gpus
from rota.simulator.traces.fixed_size import MAX_WORKERS
from rota.simulator.traces.native import COLUMNS, SEPARATOR
from rota.wire.history import HistoryJob


def trace_text(jobs: Iterable[HistoryJob]) -> str:
    """The jobs as CSV, in the order of their submits. Time starts at the first submit."""
    ordered = sorted(jobs, key=lambda job: (job.submitted_s, job.id))
    start_s = ordered[0].submitted_s if ordered else 0.0
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for job in ordered:
        row = _row(job, start_s)
        writer.writerow(row[name] for name in COLUMNS)
    return text.getvalue().removesuffix("\n")


def fits_trace(job: HistoryJob) -> bool:
    """Whether the format can hold the job: a trace without speed-ups has a limit of workers."""
    return bool(job.speedups) or parse_gpus(job.gpus).most <= MAX_WORKERS * job.gpus_per_worker


def _row(job: HistoryJob, start_s: float) -> dict[str, object]:
    return {
        "name": job.name,
        "submit_s": round(job.submitted_s - start_s, 3),
        "gpus": job.gpus,
        "duration_s": job.duration_s,
        "gpus_per_worker": job.gpus_per_worker,
        "processes": job.processes,
        "nodes": job.nodes or "",
        "gpu_types": SEPARATOR.join(job.gpu_types),
        "node_labels": SEPARATOR.join(f"{key}={value}" for key, value in job.node_labels.items()),
        "cpus": job.cpus or "",
        "memory": f"{job.memory_bytes}B" if job.memory_bytes else "",
        "user": job.user,
        "project": job.project,
        "priority": job.priority,
        "mode": job.mode,
        "category": job.category,
        "epochs": "" if job.epochs is None else job.epochs,
        "speedups": SEPARATOR.join(map(str, job.speedups)),
        "estimate_s": job.estimate_s or "",
        "min_runtime_s": "" if job.min_runtime_s is None else job.min_runtime_s,
    }
