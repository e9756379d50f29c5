"""The state table of a job."""

import pytest

from rota.core.lifecycle.states import (
    MEANINGS,
    TABLE,
    IgnoredTrigger,
    JobState,
    Trigger,
    UnlistedTransitionError,
    next_state,
)

OVER = {JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED}
ASKED_BY_USERS = {Trigger.HOLD, Trigger.RELEASE, Trigger.CANCEL}
OURS = {Trigger.START, Trigger.RESIZE, Trigger.STOP}
"""Triggers that only the kernel pulls, and never in a state where they mean nothing."""


def test_every_state_has_its_row_and_its_meaning() -> None:
    assert TABLE.keys() == MEANINGS.keys() == set(JobState)


@pytest.mark.parametrize("state", sorted(OVER))
def test_terminal_is_final(state: JobState) -> None:
    assert all(next_state(state, trigger) is None for trigger in Trigger)


@pytest.mark.parametrize("state", JobState)
def test_user_requests_are_listed_in_every_state(state: JobState) -> None:
    assert TABLE[state].keys() >= ASKED_BY_USERS


@pytest.mark.parametrize("state", sorted(set(JobState) - OVER))
def test_cancelling_leads_to_the_end(state: JobState) -> None:
    after = next_state(state, Trigger.CANCEL)
    assert after is JobState.CANCELLED or after is JobState.STOPPING


def reachable(start: JobState) -> set[JobState]:
    reached, frontier = {start}, [start]
    while frontier:
        ways = [to for to in TABLE[frontier.pop()].values() if not isinstance(to, IgnoredTrigger)]
        frontier += set(ways) - reached
        reached |= set(ways)
    return reached


def test_every_state_is_reached_from_the_queue() -> None:
    assert reachable(JobState.QUEUED) == set(JobState)


@pytest.mark.parametrize("state", sorted(set(JobState) - OVER))
def test_every_state_leads_to_every_end(state: JobState) -> None:
    assert reachable(state) >= OVER


def test_workers_start_only_out_of_the_queue() -> None:
    leading = {state for state in JobState if TABLE[state].get(Trigger.START) is JobState.STARTING}
    assert leading == {JobState.QUEUED}


@pytest.mark.parametrize(
    ("state", "trigger"),
    [
        (JobState.HELD, Trigger.START),
        (JobState.QUEUED, Trigger.STOP),
        (JobState.STARTING, Trigger.RESIZE),
        (JobState.RUNNING, Trigger.START),
        (JobState.STOPPING, Trigger.START),
    ],
)
def test_kernel_triggers_are_listed_only_where_they_make_sense(
    state: JobState, trigger: Trigger
) -> None:
    assert trigger in OURS
    with pytest.raises(UnlistedTransitionError, match=f"no entry for '{trigger}' in state"):
        next_state(state, trigger)
