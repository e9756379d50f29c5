"""The table of a job's life."""

import pytest

from rota.core.states import (
    MEANINGS,
    TABLE,
    Ignore,
    State,
    Trigger,
    UnlistedTransitionError,
    follow,
)

OVER = {State.SUCCEEDED, State.FAILED, State.CANCELLED}
ASKED_BY_USERS = {Trigger.HOLD, Trigger.RELEASE, Trigger.CANCEL}
OURS = {Trigger.START, Trigger.RESIZE, Trigger.STOP}
"""Triggers that only the kernel pulls, and never in a state where they mean nothing."""


def test_every_state_has_its_row_and_its_meaning() -> None:
    assert TABLE.keys() == MEANINGS.keys() == set(State)


@pytest.mark.parametrize("state", sorted(OVER))
def test_terminal_is_final(state: State) -> None:
    assert all(follow(state, trigger) is None for trigger in Trigger)


@pytest.mark.parametrize("state", State)
def test_users_may_ask_for_anything_at_any_time(state: State) -> None:
    assert TABLE[state].keys() >= ASKED_BY_USERS


@pytest.mark.parametrize("state", sorted(set(State) - OVER))
def test_cancelling_leads_to_the_end(state: State) -> None:
    after = follow(state, Trigger.CANCEL)
    assert after is State.CANCELLED or after is State.STOPPING


def reachable(start: State) -> set[State]:
    reached, frontier = {start}, [start]
    while frontier:
        ways = [to for to in TABLE[frontier.pop()].values() if not isinstance(to, Ignore)]
        frontier += set(ways) - reached
        reached |= set(ways)
    return reached


def test_every_state_is_reached_from_the_queue() -> None:
    assert reachable(State.QUEUED) == set(State)


@pytest.mark.parametrize("state", sorted(set(State) - OVER))
def test_every_state_leads_to_every_end(state: State) -> None:
    assert reachable(state) >= OVER


def test_workers_start_only_out_of_the_queue() -> None:
    leading = {state for state in State if TABLE[state].get(Trigger.START) is State.STARTING}
    assert leading == {State.QUEUED}


@pytest.mark.parametrize(
    ("state", "trigger"),
    [
        (State.HELD, Trigger.START),
        (State.QUEUED, Trigger.STOP),
        (State.STARTING, Trigger.RESIZE),
        (State.RUNNING, Trigger.START),
        (State.STOPPING, Trigger.START),
    ],
)
def test_what_we_never_do_is_not_listed(state: State, trigger: Trigger) -> None:
    assert trigger in OURS
    with pytest.raises(UnlistedTransitionError, match=f"no entry for '{trigger}' in state"):
        follow(state, trigger)
