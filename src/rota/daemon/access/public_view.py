"""What users see of jobs that belong to others: copies of the listed fields only.

A field that is not listed has its empty value, so that a new field of a message is hidden until it
is listed here. Reasons are built from typed values, never from sentences: a sentence may hold the
output of a program, a path or a command.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol, TypeVar

from rota.core.explain.reasons import Reason, public_text
from rota.core.lifecycle.size_caps import size_reason
from rota.core.lifecycle.states import Purpose
from rota.core.model.job import Ended, Job, Running, Stopping
from rota.wire.jobs import AttemptView, JobDetails, JobRequest, JobView, StoryEntry, WorkerView

HIDDEN = "(only its owner may see it)"


def _fields(names: str) -> tuple[str, ...]:
    return tuple(names.split())


JOB_FIELDS = _fields("""
    id name user project state priority gpus gpus_held nodes attempt submitted_s started_s ended_s
    running_s epochs epochs_done progress remaining_s finish_s finish_error
""")
REQUEST_FIELDS = _fields("""
    name project gpus gpus_per_worker processes nodes gpu_memory gpu_types node_labels cpus memory
    priority mode epochs hours time_limit retries grace after after_any after_failed array hold
""")
WORKER_FIELDS = _fields("worker node gpus share_bytes started_s exit_code ended_s cards")
ATTEMPT_FIELDS = _fields("attempt started_s ended_s outcome")
DETAILS_FIELDS = _fields("""
    failures gpu_s queued_s after array_index epochs_saved lost_s after_any after_failed
    retries_left
""")
STORY_FIELDS = _fields("number at_s job_id attempt before after cause actor")
_STOP_REASONS = {
    Purpose.RESIZE: "stops to start again at another size",
    Purpose.PREEMPT: "stops for other jobs",
    Purpose.LOST: "stops because it lost workers",
    Purpose.RETRY: "stops before a retry",
    Purpose.HOLD: "stops to be held",
    Purpose.FAIL: "stops because it failed",
    Purpose.CANCEL: "stops because it was cancelled",
    Purpose.FINISH: "stops because its work is done",
}

_NO_JOB = JobView("", "", "", "", "", "", 0, "", 0, [], 0, 0, None, None, 0, None, 0)
_NO_REQUEST = JobRequest([HIDDEN])
_NO_WORKER = WorkerView(0, "", [])
_NO_ATTEMPT = AttemptView(0, 0, None, "", "", [])
_NO_DETAILS = JobDetails(_NO_JOB, _NO_REQUEST, [], 0, 0, 0, [])
_NO_ENTRY = StoryEntry(0, 0, "", 0, "", "", "", "", "")

T = TypeVar("T", JobView, JobRequest, WorkerView, AttemptView, JobDetails, StoryEntry)


class _WaitExplainer(Protocol):
    def wait_reason(self, job: Job) -> Reason | None: ...


def public_job_view(view: JobView, reason: str) -> JobView:
    """`reason` is that of `public_reason`."""
    return replace(_only(view, JOB_FIELDS, empty=_NO_JOB), reason=reason)


def public_details(details: JobDetails, job: JobView) -> JobDetails:
    """`job` is the public view of the job."""
    return replace(
        _only(details, DETAILS_FIELDS, empty=_NO_DETAILS),
        job=job,
        request=_only(details.request, REQUEST_FIELDS, empty=_NO_REQUEST),
        attempts=[_public_attempt(each) for each in details.attempts],
    )


def public_story_entry(entry: StoryEntry) -> StoryEntry:
    return _only(entry, STORY_FIELDS, empty=_NO_ENTRY)


def public_reason(job: Job, newest: _WaitExplainer | None, *, now: float) -> str:
    """Why the job waits, stops or has its size. How it ended is in its state and its exit codes."""
    match job.phase:
        case Stopping(purpose=purpose):
            return _STOP_REASONS[purpose]
        case Ended():
            return ""
        case Running() as phase:
            held = phase.joining or phase.allocation
            reason = size_reason(job, job.spec.units_in(held), now=now)
        case _:
            reason = newest.wait_reason(job) if newest is not None else None
    return "" if reason is None else public_text(reason)


def _public_attempt(attempt: AttemptView) -> AttemptView:
    workers = [_only(each, WORKER_FIELDS, empty=_NO_WORKER) for each in attempt.workers]
    return replace(_only(attempt, ATTEMPT_FIELDS, empty=_NO_ATTEMPT), workers=workers)


def _only(value: T, fields: Iterable[str], *, empty: T) -> T:
    return replace(empty, **{name: getattr(value, name) for name in fields})
