"""The state table of a job: which trigger leads from which state to which state.

All transitions are in this table, and no other code assigns a state. The reducer turns events into
triggers; this module knows triggers only. A pair that the table maps to `IGNORE` is a late or
repeated event and changes nothing. A pair that the table does not list is a bug in rota: the kernel
holds that one job and continues with all others.

The drawings in `docs/explain/job-life.md` are generated from this table, and a test checks that
they are current.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class JobState(StrEnum):
    """The state of a job in its life."""

    HELD = "held"
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)


MEANINGS: Mapping[JobState, str] = {
    JobState.HELD: "waits until a user releases it",
    JobState.QUEUED: "waits for GPUs, for other jobs, or for the end of a back-off",
    JobState.STARTING: "has slots; some of its workers have not started yet",
    JobState.RUNNING: "runs with all its workers; its membership may be changing",
    JobState.STOPPING: "is being stopped; some of its workers have not exited yet",
    JobState.SUCCEEDED: "has ended: all its workers exited with 0, or all its epochs are done",
    JobState.FAILED: "has ended: it failed with no retry left, or can never run",
    JobState.CANCELLED: "has ended: a user cancelled it",
}


class Purpose(StrEnum):
    """Why a running job is being stopped, from the least final purpose to the most final one."""

    RESIZE = "resize"
    PREEMPT = "preempt"
    LOST = "lost"
    RETRY = "retry"
    HOLD = "hold"
    FAIL = "fail"
    CANCEL = "cancel"
    FINISH = "finish"
    """The work is done; workers that joined too late are stopped."""


class Trigger(StrEnum):
    """The meaning of an event for a job."""

    HOLD = "hold"
    RELEASE = "release"
    CANCEL = "cancel"
    START = "start"
    STARTED = "started"
    PROGRESS = "progress"
    RESIZE = "resize"
    RESIZED = "resized"
    OUTLIVED = "outlived"
    STOP = "stop"
    INSIST = "insist"
    WORKER_LOST = "worker lost"
    FINISHED = "finished"
    BROKE_DOWN = "broke down"
    GAVE_UP = "gave up"
    STOPPED = "stopped"
    STOPPED_TO_HOLD = "stopped to hold"
    STOPPED_TO_CANCEL = "stopped to cancel"


class IgnoredTrigger:
    """Marks an event that is late or repeated."""


IGNORE = IgnoredTrigger()
Table = Mapping[JobState, Mapping[Trigger, JobState | IgnoredTrigger]]

_WORKER_TRIGGERS = (
    Trigger.STARTED,
    Trigger.PROGRESS,
    Trigger.RESIZED,
    Trigger.OUTLIVED,
    Trigger.WORKER_LOST,
    Trigger.FINISHED,
    Trigger.BROKE_DOWN,
    Trigger.GAVE_UP,
    Trigger.STOPPED,
    Trigger.STOPPED_TO_HOLD,
    Trigger.STOPPED_TO_CANCEL,
)
_NO_WORKERS: dict[Trigger, JobState | IgnoredTrigger] = dict.fromkeys(_WORKER_TRIGGERS, IGNORE)
_OVER: dict[Trigger, JobState | IgnoredTrigger] = dict.fromkeys(Trigger, IGNORE)

TABLE: Table = {
    JobState.HELD: {
        **_NO_WORKERS,
        Trigger.HOLD: IGNORE,
        Trigger.RELEASE: JobState.QUEUED,
        Trigger.CANCEL: JobState.CANCELLED,
        # A failed dependency fails the jobs that wait for it, also when they are held.
        Trigger.GAVE_UP: JobState.FAILED,
    },
    JobState.QUEUED: {
        **_NO_WORKERS,
        Trigger.HOLD: JobState.HELD,
        Trigger.RELEASE: IGNORE,
        Trigger.CANCEL: JobState.CANCELLED,
        Trigger.START: JobState.STARTING,
        Trigger.GAVE_UP: JobState.FAILED,
    },
    JobState.STARTING: {
        Trigger.HOLD: JobState.STOPPING,
        Trigger.RELEASE: IGNORE,
        Trigger.CANCEL: JobState.STOPPING,
        Trigger.STARTED: JobState.RUNNING,
        Trigger.PROGRESS: IGNORE,
        Trigger.RESIZED: IGNORE,
        Trigger.STOP: JobState.STOPPING,
        Trigger.WORKER_LOST: JobState.STOPPING,
        Trigger.FINISHED: JobState.SUCCEEDED,
        Trigger.BROKE_DOWN: JobState.QUEUED,
        Trigger.GAVE_UP: JobState.FAILED,
    },
    JobState.RUNNING: {
        Trigger.HOLD: JobState.STOPPING,
        Trigger.RELEASE: IGNORE,
        Trigger.CANCEL: JobState.STOPPING,
        Trigger.STARTED: IGNORE,
        Trigger.PROGRESS: JobState.RUNNING,
        Trigger.RESIZE: JobState.RUNNING,
        Trigger.RESIZED: JobState.RUNNING,
        # Some workers died; the job continues without them.
        Trigger.OUTLIVED: JobState.RUNNING,
        Trigger.STOP: JobState.STOPPING,
        Trigger.WORKER_LOST: JobState.STOPPING,
        Trigger.FINISHED: JobState.SUCCEEDED,
        Trigger.BROKE_DOWN: JobState.QUEUED,
        Trigger.GAVE_UP: JobState.FAILED,
    },
    JobState.STOPPING: {
        Trigger.HOLD: JobState.STOPPING,
        # Cancels a hold: the job returns to the queue after the stop.
        Trigger.RELEASE: JobState.STOPPING,
        Trigger.CANCEL: JobState.STOPPING,
        Trigger.STARTED: IGNORE,
        Trigger.PROGRESS: JobState.STOPPING,
        Trigger.RESIZED: IGNORE,
        Trigger.STOP: IGNORE,
        # The program was asked to stop and did not: stop its workers.
        Trigger.INSIST: JobState.STOPPING,
        Trigger.WORKER_LOST: IGNORE,
        Trigger.FINISHED: JobState.SUCCEEDED,
        Trigger.STOPPED: JobState.QUEUED,
        Trigger.STOPPED_TO_HOLD: JobState.HELD,
        Trigger.STOPPED_TO_CANCEL: JobState.CANCELLED,
        Trigger.GAVE_UP: JobState.FAILED,
    },
    JobState.SUCCEEDED: _OVER,
    JobState.FAILED: _OVER,
    JobState.CANCELLED: _OVER,
}


class UnlistedTransitionError(Exception):
    """The table does not list this pair: a bug in rota, never a user's mistake."""

    def __init__(self, state: JobState, trigger: Trigger) -> None:
        super().__init__(f"the state table has no entry for '{trigger}' in state '{state}'")
        self.state = state
        self.trigger = trigger


def next_state(state: JobState, trigger: Trigger) -> JobState | None:
    """The state that `trigger` leads to from `state`; None if the trigger changes nothing."""
    try:
        entry = TABLE[state][trigger]
    except KeyError:
        raise UnlistedTransitionError(state, trigger) from None
    return None if isinstance(entry, IgnoredTrigger) else entry
