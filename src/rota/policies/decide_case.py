"""Asks a policy to size the jobs of one test case, for `rota policy decide`.

A case is a JSON object with `gpus` and `jobs`, in any order. Every job needs `name`, `min` and
`max`. Defaults of the other fields: `requested` is the minimum, `priority_queue` 0, `submitted_s`
the position in the list, `first_started_s` never, `remaining_s` unknown (as with `null`), `speedup`
linear.
"""

from __future__ import annotations

import difflib
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

from rota.core.estimation.speed_model import SpeedModel
from rota.core.model.job import Job, JobId, JobSpec, Queued, ServiceTime
from rota.core.scheduling.policy_api import BadTargetsError, Budget, Policy, ask
from rota.errors import PolicyError, UserError, shown

MAX_GPUS = 100_000
"""Limit for a case and for a job. Above it, a policy that compares every size takes too long."""
CASE_FIELDS: dict[str, None] = dict.fromkeys(("gpus", "jobs"))
REQUIRED = ("name", "min", "max")
OPTIONAL = (
    "requested",
    "priority_queue",
    "submitted_s",
    "first_started_s",
    "remaining_s",
    "speedup",
)
JOB_FIELDS: dict[str, None] = dict.fromkeys(REQUIRED + OPTIONAL)

LARGEST = sys.float_info.max
NOW_S = 0.0
WAITING = Queued(since_s=NOW_S)
NO_SERVICE = ServiceTime(as_of_s=NOW_S)

Fields = Mapping[str, object]


def decide_case(policy: Policy, case: object) -> dict[str, int]:
    """The policy's targets: workers for every job, in the order of the case; 0 for a job that
    waits."""
    gpus, jobs = _read_case(case)
    in_order = sorted(jobs, key=lambda job: (job.submitted_s, job.id))
    try:
        targets = ask(policy, in_order, budget=Budget(gpus), now=NOW_S)
    except BadTargetsError as error:
        raise PolicyError(f"bad targets: {error}") from error
    return {job.id: targets.get(job.id, 0) for job in jobs}


@dataclass(frozen=True, slots=True)
class GivenSpeed(SpeedModel):
    """The speed model of a job whose time on one worker is known although its table has no speed-up
    for one worker."""

    def epoch_s(self, workers: int) -> float:
        return 1.0 if workers == 1 else SpeedModel.epoch_s(self, workers)


def _read_case(case: object) -> tuple[int, list[Job]]:
    fields = _object(case, "a case", known=CASE_FIELDS)
    for name in CASE_FIELDS:
        if name not in fields:
            raise UserError(f"field '{name}' is missing", "a case is {'gpus': 8, 'jobs': [...]}")
    gpus = _whole(fields["gpus"], "gpus", least=0, most=MAX_GPUS)
    jobs: dict[JobId, Job] = {}
    for place, each in enumerate(_list(fields["jobs"], "jobs")):
        job = _read_job(each, place, gpus=gpus)
        if job.id in jobs:
            raise UserError(f"field 'jobs[{place}].name': two jobs have the name '{shown(job.id)}'")
        jobs[job.id] = job
    return gpus, list(jobs.values())


def _read_job(given: object, place: int, *, gpus: int) -> Job:
    where = f"jobs[{place}]"
    fields = _object(given, where, known=JOB_FIELDS)
    for name in REQUIRED:
        if name not in fields:
            raise UserError(f"field '{where}.{name}' is missing")
    name = fields["name"]
    if not isinstance(name, str) or not name:
        raise UserError(f"field '{where}.name' must be a name, not {shown(repr(name))}")
    least = _whole(fields["min"], f"{where}.min", least=1)
    most = _whole(fields["max"], f"{where}.max", least=1, most=MAX_GPUS)
    if least > most:
        raise UserError(f"field '{where}.min' is {least}, more than max, which is {most}")
    requested = _whole(fields.get("requested", least), f"{where}.requested", least=least, most=most)
    remaining_s = _number_or_unknown(fields.get("remaining_s"), f"{where}.remaining_s", least=0.0)
    first_started_s = fields.get("first_started_s")
    return Job(
        id=JobId(name),
        spec=JobSpec(
            name=name,
            min_workers=least,
            max_workers=most,
            requested_workers=requested,
            # One epoch takes one second on one worker, so that the remaining time is not rounded.
            epochs=remaining_s,
        ),
        submitted_s=_number(fields.get("submitted_s", place), f"{where}.submitted_s"),
        phase=WAITING,
        service=NO_SERVICE,
        first_started_s=_number_or_unknown(first_started_s, f"{where}.first_started_s"),
        queue=_whole(fields.get("priority_queue", 0), f"{where}.priority_queue", least=0),
        speed=_speed(fields, where, gpus=gpus),
    )


def _speed(fields: Fields, where: str, *, gpus: int) -> SpeedModel:
    if "speedup" in fields:
        table = _speedups(fields["speedup"], f"{where}.speedup")
    else:
        # Jobs share one table for all sizes up to a power of two.
        table = _linear((gpus + 1).bit_length())
    on_one = table[1] if len(table) > 1 else 0.0
    if on_one > 0:
        return SpeedModel(one_s=on_one, error=0.0, assumed=table)
    return GivenSpeed(one_s=1.0, error=0.0, assumed=table)


@lru_cache(maxsize=MAX_GPUS.bit_length() + 1)
def _linear(bits: int) -> tuple[float, ...]:
    """Linear speed-ups on 0, 1, 2, ... GPUs, for all numbers of `bits` bits."""
    return tuple(map(float, range(2**bits)))


def _speedups(value: object, where: str) -> tuple[float, ...]:
    table = tuple(_number(each, where, least=0.0) for each in _list(value, where))
    if not table or table[0] != 0:
        raise UserError(f"field '{where}' must start with 0, the speed-up on no GPUs")
    return table


def _list(value: object, where: str) -> list[object]:
    if not isinstance(value, list):
        raise UserError(f"field '{where}' must be a list, not {shown(repr(value))}")
    return cast("list[object]", value)


def _object(value: object, what: str, *, known: Mapping[str, None]) -> Fields:
    if not isinstance(value, dict):
        raise UserError(f"{what} must be an object, not {shown(repr(value))}")
    fields = cast("dict[str, object]", value)
    if not fields.keys() <= known.keys():
        unknown = next(name for name in fields if name not in known)
        close = difflib.get_close_matches(unknown, known, n=1)
        guess = f", did you mean '{close[0]}'?" if close else ""
        raise UserError(
            f"{what} has no field '{shown(unknown)}'{guess}", f"known: {', '.join(known)}"
        )
    return fields


def _whole(value: object, where: str, *, least: int, most: int | None = None) -> int:
    if type(value) is int and value >= least and (most is None or value <= most):
        return value
    bounds = f"from {least}" if most is None else f"from {least} to {most}"
    raise UserError(f"field '{where}' must be a whole number {bounds}, not {shown(repr(value))}")


def _number(value: object, where: str, *, least: float = -LARGEST) -> float:
    if (type(value) is float or type(value) is int) and least <= value <= LARGEST:
        return float(value)
    wanted = "finite numbers" if where.endswith("speedup") else "a finite number"
    bound = "" if least < 0 else f" from {least:g}"
    raise UserError(f"field '{where}' must be {wanted}{bound}, not {shown(repr(value))}")


def _number_or_unknown(value: object, where: str, *, least: float = -LARGEST) -> float:
    """A number; infinite if it is unknown or has not happened yet."""
    return math.inf if value is None else _number(value, where, least=least)
