"""What a worker reports, looked through: sense is taken, nonsense is left out and named.

A report comes from a training script, which may do anything. Nothing in it is a reason to refuse
the rest, except that nobody can tell which worker it is from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from rota.daemon.fields import RefusedError
from rota.daemon.generations import NOBODY
from rota.errors import shown
from rota_trainer.messages import (
    LONGEST_ADDRESS,
    LONGEST_NAME,
    MOST_METRICS,
    MOST_RECORDS,
    EpochRecord,
    StepsRecord,
)

MOST_NUMBER = 2**53
MOST_EPOCHS = 1e9
MOST_BYTES = 2**60
LONGEST_S = 366 * 86400.0
LONGEST_IDENTITY = 500
LAST_PORT = 65535
SKEW_S = 86400.0
"""How far the clock of a worker may be off, or its report late."""

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Told:
    """What made sense of a report; what was not told is None or empty. `faults` are sentences
    about the rest, by the kind of nonsense."""

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
    generation: int = NOBODY
    address: str = ""
    identity: str = ""
    global_step: int = 0
    pause_s: float | None = None
    own_s: float | None = None


def told(raw: object, *, now: float) -> Told:
    """Raises only where there is no telling who reports."""
    if not isinstance(raw, dict):
        raise RefusedError("body", "it is not an object", "see /openapi.json for its fields")
    reading = _Reading(cast("dict[str, Any]", raw), now)
    done, saved = reading.number("epochs_done"), reading.number("epochs_saved")
    total = reading.number("epochs_total") or None
    if done is not None and total is not None and done > total:
        reading.fault("epochs_done", f"{done:g} epochs done of {total:g} make no sense")
        done = None
    if done is not None and saved is not None and saved > done:
        reading.fault("epochs_saved", f"{saved:g} epochs saved of {done:g} done make no sense")
        saved = None
    return Told(
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


@dataclass(slots=True)
class _Reading:
    raw: dict[str, Any]
    now: float
    faults: dict[str, str] = field(default_factory=dict[str, str])

    def fault(self, kind: str, sentence: str) -> None:
        """The first of a kind is enough."""
        self.faults.setdefault(kind, sentence)

    def required(self, name: str) -> int:
        found = self.raw.get(name)
        if type(found) is not int or not 0 <= found <= MOST_NUMBER:
            what = "it is missing" if found is None else f"{_given(found)} is no number from 0 on"
            raise RefusedError(name, what, "see /openapi.json for the fields of a report")
        return found

    def number(self, name: str, *, most: float = MOST_EPOCHS) -> float | None:
        found = self.raw.get(name)
        if found is None or _is_number(found, most):
            return found
        self.fault(name, f"{name} was {_given(found)}, which makes no sense, and was left out")
        return None

    def whole(self, name: str, *, most: int = MOST_NUMBER) -> int | None:
        found = self.number(name, most=most)
        return None if found is None else int(found)

    def flag(self, name: str) -> bool:
        found = self.raw.get(name, True)
        if isinstance(found, bool):
            return found
        self.fault(name, f"{name} was {_given(found)} instead of true or false")
        return False

    def generation(self) -> int:
        """One who was in none says -1."""
        return NOBODY if self.raw.get("generation") == NOBODY else self.whole("generation") or 0

    def address(self) -> str:
        found = self.text("address", most=LONGEST_ADDRESS)
        host, _, port = found.rpartition(":")
        if host and port.isdecimal() and 0 < int(port) <= LAST_PORT:
            return found
        if found:
            self.fault("address", f"'{shown(found)}' is no HOST:PORT where others could meet")
        return ""

    def text(self, name: str, *, most: int) -> str:
        found = self.raw.get(name, "")
        if isinstance(found, str) and len(found) <= most and (found.isprintable() or not found):
            return found
        self.fault(name, f"{name} was {_given(found)}, which makes no sense")
        return ""

    def records(self, name: str, read: Callable[[Any, float], R | None]) -> list[R]:
        """Of too many the newest, which come last."""
        found = self.raw.get(name)
        if found is None:
            return []
        if not isinstance(found, list):
            self.fault(name, f"{name} was {_given(found)} instead of a list")
            return []
        listed = cast("list[Any]", found)
        if len(listed) > MOST_RECORDS:
            many = f"{len(listed)} records in '{name}' of one report are too many"
            self.fault(f"{name}_count", f"{many}; the newest {MOST_RECORDS} count")
        kept: list[R] = []
        for each in listed[-MOST_RECORDS:]:
            record = read(each, self.now)
            if record is None:
                self.fault(
                    name, f"a record in '{name}' made no sense and was left out: {_brief(each)}"
                )
            else:
                kept.append(record)
        return kept

    def metrics(self) -> dict[str, float]:
        """Of too many the first."""
        found = self.raw.get("metrics")
        if found is None:
            return {}
        if not isinstance(found, dict):
            self.fault("metrics", f"metrics were {_given(found)} instead of names and numbers")
            return {}
        named = cast("dict[str, Any]", found)
        kept: dict[str, float] = {}
        for name, value in named.items():
            if len(kept) == MOST_METRICS:
                many = f"{len(named)} metrics in one report are too many"
                self.fault("metrics_count", f"{many}; the first {MOST_METRICS} count")
                break
            if not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
                self.fault(
                    "metrics_name",
                    f"a metric was left out because of its name, '{shown(name)}': names have up to"
                    f" {LONGEST_NAME} printable characters",
                )
            elif not _is_finite(value):
                what = f"metric '{name}' was {_given(value)} and was left out"
                self.fault("metrics_value", f"{what}; other such values are left out silently")
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
    """A comparison is false for what is not a number (NaN), and true for no infinity."""
    return (type(value) is float or type(value) is int) and 0 <= value <= most


def _is_finite(value: Any) -> bool:
    """An integer may be too large to be a float at all."""
    if type(value) is float:
        return math.isfinite(value)
    return type(value) is int and abs(value) <= MOST_BYTES


def _given(value: object) -> str:
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return f"'{shown(value)}'" if isinstance(value, str) else shown(_digits(value))


def _digits(value: object) -> str:
    """Python refuses to write an integer of thousands of digits."""
    try:
        return str(value).lower()
    except ValueError:
        return "a number of thousands of digits"


def _brief(value: object) -> str:
    if not isinstance(value, dict):
        return _given(value)
    some = list(cast("dict[str, object]", value).items())[:6]
    return ", ".join(f"{shown(name)} {_given(each)}" for name, each in some)
