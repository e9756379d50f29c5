"""The job's life as one table: which trigger leads from which state to which.

Everything about transitions is here, and nothing else assigns a state. The kernel turns facts
(events) into triggers by looking at the job; this file does not know events, only their meaning.
A pair that the table maps to `IGNORE` is a late or repeated fact and changes nothing. A pair that
the table does not list is a bug of ours: the kernel holds that job alone and goes on.
`docs/explain/job-life.md` is drawn from this table, and a test sees to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class State(StrEnum):
    """Where a job is in its life."""

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
        return self in (State.SUCCEEDED, State.FAILED, State.CANCELLED)


MEANINGS: Mapping[State, str] = {
    State.HELD: "waits until somebody releases it",
    State.QUEUED: "waits for its turn, for other jobs, or for a back-off to end",
    State.STARTING: "has slots; some of its workers are not up yet",
    State.RUNNING: "all its workers are up; it may be changing its members",
    State.STOPPING: "was asked to stop; some of its workers are not gone yet",
    State.SUCCEEDED: "is over: all its workers exited with 0, or all its epochs are done",
    State.FAILED: "is over: it broke down for good, or can never run",
    State.CANCELLED: "is over: somebody cancelled it",
}


class Purpose(StrEnum):
    """Why a running job is being stopped, from what ends least to what ends most for it."""

    RESIZE = "resize"
    PREEMPT = "preempt"
    LOST = "lost"
    RETRY = "retry"
    HOLD = "hold"
    FAIL = "fail"
    CANCEL = "cancel"
    FINISH = "finish"
    """The work is done; those who came too late for it are stopped."""


class Trigger(StrEnum):
    """What a fact means for a job."""

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


class Ignore:
    """The table's word for a fact that comes too late or twice."""


IGNORE = Ignore()
Table = Mapping[State, Mapping[Trigger, State | Ignore]]

_FACTS_OF_WORKERS = (
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
_NO_WORKERS: dict[Trigger, State | Ignore] = dict.fromkeys(_FACTS_OF_WORKERS, IGNORE)
_OVER: dict[Trigger, State | Ignore] = dict.fromkeys(Trigger, IGNORE)

TABLE: Table = {
    State.HELD: {
        **_NO_WORKERS,
        Trigger.HOLD: IGNORE,
        Trigger.RELEASE: State.QUEUED,
        Trigger.CANCEL: State.CANCELLED,
        # A dependency that failed ends a job that waits for it, held or not.
        Trigger.GAVE_UP: State.FAILED,
    },
    State.QUEUED: {
        **_NO_WORKERS,
        Trigger.HOLD: State.HELD,
        Trigger.RELEASE: IGNORE,
        Trigger.CANCEL: State.CANCELLED,
        Trigger.START: State.STARTING,
        Trigger.GAVE_UP: State.FAILED,
    },
    State.STARTING: {
        Trigger.HOLD: State.STOPPING,
        Trigger.RELEASE: IGNORE,
        Trigger.CANCEL: State.STOPPING,
        Trigger.STARTED: State.RUNNING,
        Trigger.PROGRESS: IGNORE,
        Trigger.RESIZED: IGNORE,
        Trigger.STOP: State.STOPPING,
        Trigger.WORKER_LOST: State.STOPPING,
        Trigger.FINISHED: State.SUCCEEDED,
        Trigger.BROKE_DOWN: State.QUEUED,
        Trigger.GAVE_UP: State.FAILED,
    },
    State.RUNNING: {
        Trigger.HOLD: State.STOPPING,
        Trigger.RELEASE: IGNORE,
        Trigger.CANCEL: State.STOPPING,
        Trigger.STARTED: IGNORE,
        Trigger.PROGRESS: State.RUNNING,
        Trigger.RESIZE: State.RUNNING,
        Trigger.RESIZED: State.RUNNING,
        # Some of its workers died, and it goes on without them.
        Trigger.OUTLIVED: State.RUNNING,
        Trigger.STOP: State.STOPPING,
        Trigger.WORKER_LOST: State.STOPPING,
        Trigger.FINISHED: State.SUCCEEDED,
        Trigger.BROKE_DOWN: State.QUEUED,
        Trigger.GAVE_UP: State.FAILED,
    },
    State.STOPPING: {
        Trigger.HOLD: State.STOPPING,
        # Takes back a hold; the job goes on to the queue when it has stopped.
        Trigger.RELEASE: State.STOPPING,
        Trigger.CANCEL: State.STOPPING,
        Trigger.STARTED: IGNORE,
        Trigger.PROGRESS: State.STOPPING,
        Trigger.RESIZED: IGNORE,
        Trigger.STOP: IGNORE,
        # Whoever was only asked to stop is told to.
        Trigger.INSIST: State.STOPPING,
        Trigger.WORKER_LOST: IGNORE,
        Trigger.FINISHED: State.SUCCEEDED,
        Trigger.STOPPED: State.QUEUED,
        Trigger.STOPPED_TO_HOLD: State.HELD,
        Trigger.STOPPED_TO_CANCEL: State.CANCELLED,
        Trigger.GAVE_UP: State.FAILED,
    },
    State.SUCCEEDED: _OVER,
    State.FAILED: _OVER,
    State.CANCELLED: _OVER,
}


class UnlistedTransitionError(Exception):
    """The table has no entry for this pair: a bug of ours, never the user's."""

    def __init__(self, state: State, trigger: Trigger) -> None:
        super().__init__(f"no entry for '{trigger}' in state '{state}'")
        self.state = state
        self.trigger = trigger


def follow(state: State, trigger: Trigger) -> State | None:
    """The state that `trigger` leads to from `state`; None where it changes nothing."""
    try:
        entry = TABLE[state][trigger]
    except KeyError:
        raise UnlistedTransitionError(state, trigger) from None
    return None if isinstance(entry, Ignore) else entry
