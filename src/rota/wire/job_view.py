"""The list of jobs. A module of its own, so that `rota list` defines no other class of the API."""

from __future__ import annotations

from dataclasses import dataclass

LIVE_STATES = ("held", "queued", "starting", "running", "stopping")
FINAL_STATES = ("succeeded", "failed", "cancelled")
STATES = LIVE_STATES + FINAL_STATES


@dataclass(frozen=True, slots=True)
class JobView:
    """A line of `rota list`. `reason` explains why the job waits, how it ended, or, if the policy
    did not choose the size of a running job, why it has this size.

    `progress` is 0 to 1 for a job that reports progress. `finish_s` is the estimated end time,
    `remaining_s` the time from now to that end, and `finish_error` the relative error of
    `remaining_s`. Unknown values are None.
    """

    id: str
    name: str
    user: str
    project: str
    state: str
    reason: str
    priority: int
    gpus: str
    gpus_held: float
    nodes: list[str]
    attempt: int
    submitted_s: float
    started_s: float | None
    ended_s: float | None
    running_s: float
    epochs: float | None
    epochs_done: float
    progress: float | None = None
    remaining_s: float | None = None
    finish_s: float | None = None
    finish_error: float | None = None


@dataclass(frozen=True, slots=True)
class JobList:
    """A page of jobs, newest first. Pass `next` as `before` to get the next page.

    In the order of the queue (`order=queue`): running jobs, then queued jobs in the order in which
    they are served, then held jobs, then ended jobs, newest first. `more` is the number of jobs
    after this page. If `next` is None and `more` is not 0, `skip` selects the next page."""

    jobs: list[JobView]
    next: int | None = None
    more: int = 0
