"""Parses the report of a worker: valid fields are used, invalid fields are ignored and described.

A report comes from a training script, which may send anything. An invalid field must not reject the
rest of the report; only a report without a valid worker and sequence number is refused.

This module alone decides which numbers are valid: code behind it compares reports with each other
and with the job, and does not check for NaN, negative or huge numbers again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from rota.daemon.elastic.generation_rules import NO_GENERATION
from rota.daemon.errors import RefusedError
from rota.errors import shown
from rota_trainer.reporting.limits import (
    LONGEST_NAME,
    LONGEST_S,
    MOST_EPOCHS,
    MOST_METRICS,
    MOST_RECORDS,
)
from rota_trainer.reporting.messages import LONGEST_ADDRESS, EpochRecord, StepsRecord

MOST_NUMBER = 2**53
MOST_BYTES = 2**60
LONGEST_IDENTITY = 500
LAST_PORT = 65535
SKEW_S = 86400.0
"""How far the clock of a worker may differ, or its report be late."""

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """The valid fields of a report; missing ones are None or empty. `faults` describes the invalid
    ones: kind of the fault -> sentence for the job's log."""

    worker: int
    sequence: int
    wait_s: float
    hears: bool
    epochs_done: float | None
    epochs_total: float | None
    epochs_saved: float | None
    steps_done: int
    steps_total: int | None
    steps: list[StepsRecord]
    epochs: list[EpochRecord]
    metrics: dict[str, float]
    memory_bytes: int
    gpu_memory_bytes: int
    start_s: float | None
    load_s: float | None
    save_s: float | None
    dropped: int
    faults: dict[str, str]
    generation: int = NO_GENERATION
    address: str = ""
    identity: str = ""
    global_step: int = 0
    pause_s: float | None = None
    own_s: float | None = None


def parse_report(raw: object, *, now: float) -> WorkerReport:
    """Raises RefusedError only if the worker or the sequence number is unknown."""
    if not isinstance(raw, dict):
        raise RefusedError("body", "not a JSON object", "see /openapi.json for its fields")
    reading = _ReportReader(cast("dict[str, Any]", raw), now)
    done, total, saved = _epoch_counts(reading)
    return WorkerReport(
        worker=reading.required("worker"),
        sequence=reading.required("sequence"),
        wait_s=reading.number("wait_s", most=LONGEST_S) or 0.0,
        hears=reading.flag("hears"),
        epochs_done=done,
        epochs_total=total,
        epochs_saved=saved,
        steps_done=reading.whole("steps_done") or 0,
        steps_total=reading.whole("steps_total"),
        steps=reading.records("steps", _steps),
        epochs=reading.records("epochs", _epoch),
        metrics=reading.metrics(),
        memory_bytes=reading.whole("memory_bytes", most=MOST_BYTES) or 0,
        gpu_memory_bytes=reading.whole("gpu_memory_bytes", most=MOST_BYTES) or 0,
        start_s=reading.number("start_s", most=LONGEST_S),
        load_s=reading.number("load_s", most=LONGEST_S),
        save_s=reading.number("save_s", most=LONGEST_S),
        dropped=reading.whole("dropped") or 0,
        faults=reading.faults,
        generation=reading.generation(),
        address=reading.address(),
        identity=reading.text("identity", most=LONGEST_IDENTITY),
        global_step=reading.whole("global_step") or 0,
        pause_s=reading.number("pause_s", most=LONGEST_S),
        own_s=reading.number("own_s", most=LONGEST_S),
    )


def _epoch_counts(reading: _ReportReader) -> tuple[float | None, float | None, float | None]:
    """The epochs done, in total and saved. A count that contradicts another one is ignored."""
    done, saved = reading.number("epochs_done"), reading.number("epochs_saved")
    total = reading.number("epochs_total") or None
    if done is not None and total is not None and done > total:
        reading.fault(
            "epochs_done", f"epochs_done {done:g} is more than epochs_total {total:g}; ignored"
        )
        done = None
    if done is not None and saved is not None and saved > done:
        reading.fault(
            "epochs_saved", f"epochs_saved {saved:g} is more than epochs_done {done:g}; ignored"
        )
        saved = None
    return done, total, saved


@dataclass(slots=True)
class _ReportReader:
    raw: dict[str, Any]
    now: float
    faults: dict[str, str] = field(default_factory=dict[str, str])

    def fault(self, kind: str, sentence: str) -> None:
        """Record a fault; only the first one of a kind is kept."""
        self.faults.setdefault(kind, sentence)

    def required(self, name: str) -> int:
        found = self.raw.get(name)
        if type(found) is not int or not 0 <= found <= MOST_NUMBER:
            what = "missing" if found is None else f"{_given(found)} is not a non-negative integer"
            raise RefusedError(name, what, "see /openapi.json for the fields of a report")
        return found

    def number(self, name: str, *, most: float = MOST_EPOCHS) -> float | None:
        found = self.raw.get(name)
        if found is None or _is_number(found, most):
            return found
        self.fault(name, f"{name} {_given(found)} is not a valid number; ignored")
        return None

    def whole(self, name: str, *, most: int = MOST_NUMBER) -> int | None:
        found = self.number(name, most=most)
        return None if found is None else int(found)

    def flag(self, name: str) -> bool:
        found = self.raw.get(name, True)
        if isinstance(found, bool):
            return found
        self.fault(name, f"{name} {_given(found)} is not true or false; false is used")
        return False

    def generation(self) -> int:
        """The reported generation; -1 means none."""
        return (
            NO_GENERATION
            if self.raw.get("generation") == NO_GENERATION
            else self.whole("generation") or 0
        )

    def address(self) -> str:
        found = self.text("address", most=LONGEST_ADDRESS)
        host, _, port = found.rpartition(":")
        if host and port.isdecimal() and 0 < int(port) <= LAST_PORT:
            return found
        if found:
            self.fault("address", f"address '{shown(found)}' is not HOST:PORT; ignored")
        return ""

    def text(self, name: str, *, most: int) -> str:
        found = self.raw.get(name, "")
        if isinstance(found, str) and len(found) <= most and (found.isprintable() or not found):
            return found
        self.fault(name, f"{name} {_given(found)} is not a valid text; ignored")
        return ""

    def records(self, name: str, read: Callable[[Any, float], R | None]) -> list[R]:
        """The valid records of a list; of too many, the newest ones, which are last."""
        found = self.raw.get(name)
        if found is None:
            return []
        if not isinstance(found, list):
            self.fault(name, f"{name} {_given(found)} is not a list; ignored")
            return []
        listed = cast("list[Any]", found)
        if len(listed) > MOST_RECORDS:
            many = f"{len(listed)} records in '{name}' exceed the limit of a report"
            self.fault(f"{name}_count", f"{many}; the newest {MOST_RECORDS} are used")
        kept: list[R] = []
        for each in listed[-MOST_RECORDS:]:
            record = read(each, self.now)
            if record is None:
                self.fault(name, f"invalid record in '{name}' ignored: {_brief(each)}")
            else:
                kept.append(record)
        return kept

    def metrics(self) -> dict[str, float]:
        """The valid metrics; of too many, the first ones."""
        found = self.raw.get("metrics")
        if found is None:
            return {}
        if not isinstance(found, dict):
            self.fault("metrics", f"metrics {_given(found)} is not an object; ignored")
            return {}
        named = cast("dict[str, Any]", found)
        kept: dict[str, float] = {}
        for name, value in named.items():
            if len(kept) == MOST_METRICS:
                many = f"{len(named)} metrics exceed the limit of a report"
                self.fault("metrics_count", f"{many}; the first {MOST_METRICS} are used")
                break
            if not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
                self.fault(
                    "metrics_name",
                    f"metric '{shown(name)}' ignored: a name has up to {LONGEST_NAME} printable"
                    " characters",
                )
            elif not _is_finite(value):
                what = f"metric '{name}' {_given(value)} is not a finite number; ignored"
                self.fault("metrics_value", f"{what}, and so are later ones without a message")
            else:
                kept[name] = float(value)
        return kept


def _steps(raw: Any, now: float) -> StepsRecord | None:
    if not isinstance(raw, dict):
        return None
    get = cast("dict[str, Any]", raw).get
    at_s, count, seconds = get("at_s", math.nan), get("count", 0), get("seconds", math.nan)
    slowest_s, samples = get("slowest_s", 0.0), get("samples", 0)
    if (
        _is_time(at_s, now)
        and _is_number(count, MOST_NUMBER)
        and count >= 1
        and _is_number(seconds, LONGEST_S)
        and _is_number(slowest_s, LONGEST_S)
        and _is_number(samples, MOST_NUMBER)
    ):
        return StepsRecord(at_s, int(count), seconds, slowest_s, int(samples))
    return None


def _epoch(raw: Any, now: float) -> EpochRecord | None:
    if not isinstance(raw, dict):
        return None
    get = cast("dict[str, Any]", raw).get
    at_s, number, seconds = get("at_s", math.nan), get("number", 0), get("seconds", math.nan)
    steps, samples = get("steps", 0), get("samples", 0)
    if (
        _is_time(at_s, now)
        and _is_number(number, MOST_EPOCHS)
        and number >= 1
        and _is_number(seconds, LONGEST_S)
        and _is_number(steps, MOST_NUMBER)
        and _is_number(samples, MOST_NUMBER)
    ):
        return EpochRecord(at_s, int(number), seconds, int(steps), int(samples))
    return None


def _is_time(value: Any, now: float) -> bool:
    return _is_finite(value) and abs(value - now) <= SKEW_S


def _is_number(value: Any, most: float) -> bool:
    """Whether a value is a number from 0 to `most`; the comparison excludes NaN and infinity."""
    return (type(value) is float or type(value) is int) and 0 <= value <= most


def _is_finite(value: Any) -> bool:
    """Whether a value is a finite number; an integer may be too large for a float."""
    if type(value) is float:
        return math.isfinite(value)
    return type(value) is int and abs(value) <= MOST_BYTES


def _given(value: object) -> str:
    if isinstance(value, Mapping):
        return "(an object)"
    if isinstance(value, list):
        return "(a list)"
    return f"'{shown(value)}'" if isinstance(value, str) else shown(_digits(value))


def _digits(value: object) -> str:
    """The value as text. Python cannot convert integers of thousands of digits."""
    try:
        return str(value).lower()
    except ValueError:
        return "(a number with thousands of digits)"


def _brief(value: object) -> str:
    if not isinstance(value, dict):
        return _given(value)
    some = list(cast("dict[str, object]", value).items())[:6]
    return ", ".join(f"{shown(name)} {_given(each)}" for name, each in some)
