"""Reads rota's own trace format: CSV with a header, or one JSON object per line.

`docs/reference/traces.md` describes the columns. Only name, submit_s, gpus and duration_s are
required. A JSON object is converted to the fields of a CSV row, so that the same rules and error
messages apply to both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

from rota.core.estimation.speed_model import PRIOR_SPEEDUPS
from rota.core.model.job import Estimate, JobSpec, Mode, Processes
from rota.core.model.node import Labels
from rota.core.model.units import GPUS_EXAMPLES, GpuCount, parse_bytes, parse_gpus
from rota.errors import InputError, InputLocation, json_error_message
from rota.simulator.traces import csv_table
from rota.simulator.traces.csv_table import CsvRow
from rota.simulator.traces.fixed_size import MAX_WORKERS
from rota.simulator.workload import Scaling, TraceEntry, Workload, workload_of

REQUIRED = ("name", "submit_s", "gpus", "duration_s")
OPTIONAL = (
    "gpus_per_worker",
    "processes",
    "nodes",
    "gpu_types",
    "node_labels",
    "cpus",
    "memory",
    "user",
    "project",
    "priority",
    "mode",
    "category",
    "epochs",
    "speedups",
    "estimate_s",
    "min_runtime_s",
)
COLUMNS = REQUIRED + OPTIONAL

SEPARATOR = "|"
"""Separates the items of a list in one field."""

MAX_PRIORITY = 1_000_000
_COLUMN_INDEX = {name: index for index, name in enumerate(COLUMNS)}


def is_native(header: tuple[str, ...]) -> bool:
    return set(REQUIRED) <= set(header)


def read(path: Path, file: str) -> Workload:
    unknown = [name for name in csv_table.read_header(path, file) if name not in COLUMNS]
    if unknown:
        raise InputError(
            InputLocation(file, 1, unknown[0]), "unknown column", f"known: {', '.join(COLUMNS)}"
        )
    return _workload(file, csv_table.read_rows(path, file, needed=REQUIRED))


def read_jsonl(path: Path, file: str) -> Workload:
    return _workload(file, _json_rows(path, file))


def _workload(file: str, rows: Iterable[CsvRow]) -> Workload:
    tables: dict[tuple[float, ...], tuple[float, ...]] = {}
    return workload_of(file, (_entry(row, tables) for row in rows))


def _entry(row: CsvRow, tables: dict[tuple[float, ...], tuple[float, ...]]) -> TraceEntry:
    count = _gpus(row)
    per_worker = row.whole("gpus_per_worker") if row.text("gpus_per_worker") else 1
    least, most, requested = _workers(row, count, per_worker=per_worker)
    given = _speedups(row, most)
    # Jobs with equal speed-ups share one table, to save memory.
    given = tables.setdefault(given, given)
    duration_s = row.positive("duration_s")
    speedups = given or PRIOR_SPEEDUPS
    spec = JobSpec(
        name=row.name("name"),
        user=row.text("user"),
        project=row.text("project"),
        priority=_priority(row),
        mode=_mode(row),
        min_workers=least,
        max_workers=most,
        requested_workers=requested,
        gpus=per_worker if count.most and count.share is None else 0,
        share=count.share,
        processes=_processes(row, per_worker),
        max_nodes=row.whole("nodes") if row.text("nodes") else 0,
        gpu_types=_list(row, "gpu_types"),
        node_labels=_labels(row),
        cpus=row.number("cpus") if row.text("cpus") else 0.0,
        memory_bytes=_memory(row),
        epochs=row.positive("epochs") if row.text("epochs") else 1.0,
        estimate=Estimate(
            row.positive("estimate_s") if row.text("estimate_s") else duration_s, requested, given
        ),
        category=row.text("category"),
        min_runtime_s=row.number("min_runtime_s") if row.text("min_runtime_s") else None,
    )
    runtime = Scaling(duration_s * speedups[requested], speedups)
    return TraceEntry(row.number("submit_s"), row.line, spec, runtime)


def _gpus(row: CsvRow) -> GpuCount:
    try:
        return parse_gpus(row.name("gpus"))
    except ValueError as error:
        raise row.error("gpus", str(error), hint=GPUS_EXAMPLES) from None


def _workers(row: CsvRow, count: GpuCount, *, per_worker: int) -> tuple[int, int, int]:
    """Return minimum, maximum and requested workers. A job without whole GPUs has one worker."""
    if count.share is not None or count.most == 0:
        if per_worker > 1:
            raise row.error("gpus_per_worker", "only a job with whole GPUs can have more than 1")
        return 1, 1, 1
    sizes = (count.least, count.most, count.requested)
    for size in sizes:
        if size % per_worker:
            raise row.error("gpus", f"{size} is not a multiple of {per_worker} GPUs per worker")
    least, most, requested = (size // per_worker for size in sizes)
    return least, most, requested


def _speedups(row: CsvRow, most: int) -> tuple[float, ...]:
    """Return the speed-ups on 0, 1, 2, ... workers; empty if the trace has none."""
    parts = _list(row, "speedups")
    if not parts:
        if most > MAX_WORKERS:
            message = f"is required for a job with more than {MAX_WORKERS} workers"
            raise row.error("speedups", message)
        return ()
    values = tuple(map(csv_table.number_in, parts))
    if not all(0 < value <= csv_table.MAX_NUMBER for value in values):
        raise row.error(
            "speedups", "is not a list of numbers above 0", hint="write a list such as 1|1.8|2.5"
        )
    if values[0] != 1:
        raise row.error(
            "speedups",
            f"starts with {values[0]:g}",
            hint="the first number is for one worker and must be 1",
        )
    if len(values) < most:
        message = f"ends at {len(values)} workers, but the job may have {most}"
        raise row.error("speedups", message)
    return (0.0, *values)


def _list(row: CsvRow, field: str) -> tuple[str, ...]:
    text = row.text(field)
    return tuple(part.strip() for part in text.split(SEPARATOR)) if text else ()


def _labels(row: CsvRow) -> Labels:
    pairs = [part.partition("=") for part in _list(row, "node_labels")]
    if any(not key or not equals for key, equals, _ in pairs):
        raise row.error(
            "node_labels",
            f"'{row.shown('node_labels')}' is not a list of key=value",
            hint="write labels such as disk=ssd|room=2",
        )
    return frozenset((key, value) for key, _, value in pairs)


def _memory(row: CsvRow) -> int:
    text = row.text("memory")
    try:
        return parse_bytes(text) if text else 0
    except ValueError as error:
        raise row.error("memory", str(error)) from None


def _priority(row: CsvRow) -> int:
    text = row.text("priority") or "0"
    try:
        value = int(text)
    except ValueError:
        value = MAX_PRIORITY + 1
    if abs(value) > MAX_PRIORITY:
        raise row.error(
            "priority",
            f"'{row.shown('priority')}' is not a whole number"
            f" between -{MAX_PRIORITY:,} and {MAX_PRIORITY:,}",
        )
    return value


def _processes(row: CsvRow, per_worker: int) -> Processes:
    given = row.text("processes") or Processes.PER_GPU
    if given not in list(Processes):
        raise row.error("processes", f"must be one of {', '.join(Processes)}")
    if given == Processes.PER_NODE and per_worker > 1:
        raise row.error("gpus_per_worker", "a worker has all GPUs of its node with per-node")
    return Processes(given)


def _mode(row: CsvRow) -> Mode:
    text = row.text("mode")
    try:
        return Mode(text) if text else Mode.RESTART
    except ValueError:
        known = ", ".join(Mode)
        raise row.error(
            "mode", f"unknown mode '{row.shown('mode')}'", hint=f"known: {known}"
        ) from None


def _json_rows(path: Path, file: str) -> Iterator[CsvRow]:
    try:
        with path.open(encoding="utf-8-sig") as stream:
            for line, text in enumerate(stream, start=1):
                if line > csv_table.MAX_ROWS:
                    raise csv_table.too_many_rows(file)
                if text.strip():
                    yield _json_row(InputLocation(file, line), text)
    except UnicodeDecodeError:
        raise csv_table.not_text(path, file) from None


def _json_row(where: InputLocation, text: str) -> CsvRow:
    try:
        parsed: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(where, f"is {json_error_message(error)}") from None
    if not isinstance(parsed, dict):
        raise InputError(where, "is not a JSON object", 'write {"name": ..., ...}')
    values = [""] * len(COLUMNS)
    for key, value in cast("dict[str, object]", parsed).items():
        index = _COLUMN_INDEX.get(key)
        here = replace(where, field=key)
        if index is None:
            raise InputError(here, "unknown field", f"known: {', '.join(COLUMNS)}")
        values[index] = _json_text(here, value)
    for name in REQUIRED:
        if not values[_COLUMN_INDEX[name]]:
            raise InputError(replace(where, field=name), "is missing")
    return CsvRow(where.file, where.row or 0, _COLUMN_INDEX, values)


def _json_text(where: InputLocation, value: object) -> str:
    """Convert a JSON value to the text of a CSV field."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, list):
        return SEPARATOR.join(_json_part(where, part) for part in cast("list[object]", value))
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, object]", value).items()
        return SEPARATOR.join(f"{key}={_json_part(where, part)}" for key, part in pairs)
    raise InputError(where, f"{json.dumps(value)} is neither a string nor a number")


def _json_part(where: InputLocation, value: object) -> str:
    """Convert an item of a list. A CSV field cannot hold nested lists."""
    if isinstance(value, list | Mapping):
        raise InputError(where, "is a nested list", "use strings and numbers only")
    return _json_text(where, value)
