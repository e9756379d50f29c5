"""The barrier of one attempt, step by step."""

import pytest

from rota.daemon.meeting import Meeting, Offer, Turn
from rota.daemon.meeting_room import Restart, Room
from rota.daemon.membership import Roll
from rota_trainer.meetings import FAILED, FINISHED, LEFT, MET, OVER, RUNNING, Seat

NOWHERE = Turn(-1, 0)
ONE = Turn(0, 1)


def roll(generation: int, *numbers: int, held: tuple[int, ...] = (), **exits: int) -> Roll:
    """`w3=137`: worker 3 has exited with 137."""
    codes = {int(name[1:]): code for name, code in exits.items()}
    return Roll(generation, numbers, held or numbers, codes)


def offer(worker: int) -> Offer:
    return Offer(f"host-{worker}", 1000 + worker)


def arrive(meeting: Meeting, worker: int, last: Turn = NOWHERE) -> Seat | None:
    return meeting.arrive(worker, last, offer=offer(worker))


def gathered(*numbers: int) -> Meeting:
    """These have met in the first turn of generation 0."""
    meeting = Meeting(1, roll(0, *numbers))
    for number in numbers:
        arrive(meeting, number)
    assert meeting.met is not None
    return meeting


def is_called(meeting: Meeting, worker: int, at: Turn = ONE, state: str = RUNNING) -> bool:
    return meeting.calls(worker, at, state=state)


def test_the_last_to_come_completes_it_and_ranks_are_the_schedulers() -> None:
    meeting = Meeting(1, roll(0, 5, 3))
    assert arrive(meeting, 3) is None
    assert arrive(meeting, 5) == Seat(MET, 0, 1, rank=0, size=2, host="host-5", port=1005)
    assert arrive(meeting, 3) == Seat(MET, 0, 1, rank=1, size=2, host="host-5", port=1005)


def test_a_newer_generation_sends_those_who_wait_on() -> None:
    meeting = Meeting(1, roll(0, 0, 1))
    assert arrive(meeting, 0) is None
    assert meeting.update(roll(1, 0, held=(0, 1)))
    assert arrive(meeting, 0) == Seat(MET, 1, 1, rank=0, size=1, host="host-0", port=1000)


def test_who_stays_is_called_when_newcomers_are_there() -> None:
    meeting = gathered(0)
    meeting.update(roll(1, 0, 1, 2))
    assert not is_called(meeting, 0)
    arrive(meeting, 1)
    assert not is_called(meeting, 0)
    arrive(meeting, 2)
    assert is_called(meeting, 0)


def test_who_leaves_goes_after_the_others_have_met() -> None:
    meeting = gathered(0, 1)
    meeting.update(roll(1, 0, held=(0, 1)))
    assert is_called(meeting, 0)
    assert not is_called(meeting, 1)
    assert arrive(meeting, 1, ONE) is None
    assert arrive(meeting, 0, ONE) is not None
    assert is_called(meeting, 1)
    assert arrive(meeting, 1, ONE) == Seat(LEFT, 1)


@pytest.mark.parametrize("worker", [0, 1])
def test_whose_processes_failed_is_called_as_soon_as_members_change(worker: int) -> None:
    meeting = gathered(0, 1)
    assert not is_called(meeting, worker, state=FAILED)
    meeting.update(roll(1, 0, 2, held=(0, 1, 2)))
    assert not is_called(meeting, worker)
    assert is_called(meeting, worker, state=FAILED)


def test_one_who_comes_again_calls_the_others_of_its_generation() -> None:
    meeting = gathered(0, 1)
    assert arrive(meeting, 1, ONE) is None
    assert is_called(meeting, 0)
    found = arrive(meeting, 0, ONE)
    assert found is not None
    assert (found.generation, found.turn) == (0, 2)
    assert not is_called(meeting, 0, Turn(0, 2))


def test_a_seat_that_got_lost_is_given_again() -> None:
    meeting = gathered(0, 1)
    first = arrive(meeting, 0)
    assert first == arrive(meeting, 0)
    assert meeting.arrived == {}


def test_nobody_waits_for_one_who_has_finished() -> None:
    meeting = gathered(0, 1)
    meeting.update(roll(0, 0, 1, w0=0))
    assert arrive(meeting, 1, ONE) == Seat(OVER, 0)


def test_nobody_is_called_to_meet_one_who_is_done() -> None:
    """Its agent waits for the others to be done as well, which they are in a moment."""
    meeting = gathered(0, 1)
    meeting.note(0, ONE, state=FINISHED)
    meeting.update(roll(1, 0, 1, 2))
    arrive(meeting, 2)
    assert not is_called(meeting, 1)


# -- a daemon that was started again -------------------------------------------------------------


def forgetful(generation: int, *numbers: int) -> Meeting:
    return Meeting(1, roll(generation, *numbers))


def test_those_who_run_together_are_left_alone() -> None:
    meeting, at = forgetful(3, 0, 1), Turn(3, 2)
    assert not meeting.note(0, at, state=RUNNING)
    assert not is_called(meeting, 0, at)
    assert meeting.note(1, at, state=RUNNING)
    assert not is_called(meeting, 0, at)
    assert not meeting.note(1, at, state=RUNNING)


def test_one_whose_seat_was_lost_calls_the_others() -> None:
    meeting, at = forgetful(3, 0, 1), Turn(3, 2)
    assert arrive(meeting, 1, Turn(2, 1)) is None
    meeting.note(0, at, state=RUNNING)
    assert is_called(meeting, 0, at)
    found = arrive(meeting, 0, at)
    assert found is not None
    # A turn that nobody was in before.
    assert (found.generation, found.turn) == (3, 3)


def test_turns_after_one_from_before_go_on_counting() -> None:
    meeting, at = forgetful(3, 0), Turn(3, 2)
    assert meeting.note(0, at, state=RUNNING)
    found = arrive(meeting, 0, at)
    assert found is not None
    assert (found.turn, found.host) == (3, "host-0")


# -- waiting in vain -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "is_broken"),
    [
        (roll(0, 0, 1), False),
        (roll(0, 0, 1, w1=137), True),
        (roll(1, 0, 1, 2), False),
        (roll(1, 0, held=(0, 1)), False),
        (roll(1, 0), True),
        (roll(1, 0, held=(0, 1), w1=137), True),
    ],
)
def test_a_turn_is_broken_when_a_member_is_gone(after: Roll, is_broken: bool) -> None:
    meeting = gathered(0, 1)
    meeting.update(after)
    assert meeting.is_broken(ONE) == is_broken


def test_the_dead_of_the_generation_before_break_nothing() -> None:
    """They are in the scheduler's books until the new generation stands."""
    meeting = gathered(0, 1)
    meeting.update(roll(1, 0, held=(0, 1), w1=137))
    arrive(meeting, 0, ONE)
    assert not meeting.is_broken(Turn(1, 1))


def test_a_turn_is_broken_when_a_member_comes_again() -> None:
    meeting = gathered(0, 1)
    arrive(meeting, 1, ONE)
    assert meeting.is_broken(ONE)


def test_a_change_takes_what_gathering_took_and_what_the_last_start_took() -> None:
    room = Room(Meeting(1, roll(0, 0, 1)))
    room.has_met(10.0)
    assert room.pause_s() is None  # Nobody was called: they had come by themselves.
    room.has_called(20.0)
    room.has_met(20.5)
    assert room.pause_s() == 0.5
    room.restart = Restart(1, 2, gather_s=0.5, start_s=2.0)
    assert room.pause_s() == 2.5
