"""Whether a job that waits for other jobs may start, from the final states of those jobs.

A job starts after all jobs in `after` have succeeded and all jobs in `after_any` and `after_failed`
have ended, at least one of the latter with a failure. A job that can never start ends: it fails
with a dependency, and it is cancelled if the failure that it waits for did not happen.
"""

from __future__ import annotations

from collections.abc import Mapping

from rota.core.lifecycle.states import JobState, Trigger
from rota.core.model.job import JobId, JobSpec

OUTCOME_TEXT = {JobState.FAILED: "failed", JobState.CANCELLED: "was cancelled"}


def is_ready(spec: JobSpec, outcomes: Mapping[JobId, JobState]) -> bool:
    """Whether the job may start. `outcomes` has the final states of ended jobs."""
    if not (spec.after or spec.after_any or spec.after_failed):
        return True  # Each round asks for each queued job.
    return (
        all(outcomes.get(each) is JobState.SUCCEEDED for each in spec.after)
        and all(each in outcomes for each in spec.after_any)
        and all(each in outcomes for each in spec.after_failed)
    )


def blocking_end(spec: JobSpec, outcomes: Mapping[JobId, JobState]) -> tuple[Trigger, str] | None:
    """How a job that can never start ends, with the reason; None if it may still start."""
    for needed in spec.after:
        outcome = outcomes.get(needed, JobState.SUCCEEDED)
        if outcome is not JobState.SUCCEEDED:
            return Trigger.GAVE_UP, f"dependency {needed} {OUTCOME_TEXT[outcome]}"
    states = [outcomes.get(each) for each in spec.after_failed]
    if states and all(states) and JobState.FAILED not in states:
        what = f"{spec.after_failed[0]} has" if len(states) == 1 else f"{len(states)} jobs have"
        return Trigger.CANCEL, f"not needed: {what} ended without a failure"
    return None
