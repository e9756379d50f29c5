"""Asks a policy to size the jobs of one test case, for `rota policy decide`.

A case is a JSON object with `gpus` and `jobs`, in any order. Every job needs `name`, `min` and
`max`. Defaults of the other fields: `requested` is the minimum, `priority_queue` 0, `submitted_s`
the position in the list, `first_started_s` never, `remaining_s` unknown (as with `null`), `speedup`
linear.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from rota.case_fields import (
    Fields,
    list_of,
    name_of,
    number,
    number_or_unknown,
    object_of,
    whole,
)
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

NOW_S = 0.0
WAITING = Queued(since_s=NOW_S)
NO_SERVICE = ServiceTime(as_of_s=NOW_S)


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
    hint = "a case is {'gpus': 8, 'jobs': [...]}"
    fields = object_of(case, "", known=CASE_FIELDS, required=CASE_FIELDS, hint=hint)
    gpus = whole(fields["gpus"], "gpus", least=0, most=MAX_GPUS)
    jobs: dict[JobId, Job] = {}
    for place, each in enumerate(list_of(fields["jobs"], "jobs")):
        job = _read_job(each, place, gpus=gpus)
        if job.id in jobs:
            raise UserError(f"field 'jobs[{place}].name': two jobs have the name '{shown(job.id)}'")
        jobs[job.id] = job
    return gpus, list(jobs.values())


def _read_job(given: object, place: int, *, gpus: int) -> Job:
    where = f"jobs[{place}]"
    fields = object_of(given, where, known=JOB_FIELDS, required=REQUIRED)
    name = name_of(fields["name"], f"{where}.name")
    least = whole(fields["min"], f"{where}.min", least=1)
    most = whole(fields["max"], f"{where}.max", least=1, most=MAX_GPUS)
    if least > most:
        raise UserError(f"field '{where}.min' is {least}, more than max, which is {most}")
    requested = whole(fields.get("requested", least), f"{where}.requested", least=least, most=most)
    remaining_s = number_or_unknown(fields.get("remaining_s"), f"{where}.remaining_s", least=0.0)
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
        submitted_s=number(fields.get("submitted_s", place), f"{where}.submitted_s"),
        phase=WAITING,
        service=NO_SERVICE,
        first_started_s=number_or_unknown(first_started_s, f"{where}.first_started_s"),
        queue=whole(fields.get("priority_queue", 0), f"{where}.priority_queue", least=0),
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
    table = tuple(
        number(each, where, least=0.0, what="finite numbers") for each in list_of(value, where)
    )
    if not table or table[0] != 0:
        raise UserError(f"field '{where}' must start with 0, the speed-up on no GPUs")
    return table
