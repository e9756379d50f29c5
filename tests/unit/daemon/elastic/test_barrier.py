"""The barrier of one attempt, step by step."""

import pytest

from rota.daemon.elastic.barrier import MasterAddress, RendezvousBarrier, RendezvousRound
from rota.daemon.elastic.barrier_session import BarrierSession, RestartTiming
from rota.daemon.elastic.membership import GenerationRoster
from rota_trainer.torchrun.messages import (
    FAILED,
    FINISHED,
    LEFT,
    MET,
    OVER,
    RUNNING,
    RendezvousAssignment,
)

NOWHERE = RendezvousRound(-1, 0)
ONE = RendezvousRound(0, 1)


def roster(
    generation: int, *numbers: int, held: tuple[int, ...] = (), **exits: int
) -> GenerationRoster:
    """`w3=137`: worker 3 has exited with 137."""
    codes = {int(name[1:]): code for name, code in exits.items()}
    return GenerationRoster(generation, numbers, held or numbers, codes)


def master(worker: int) -> MasterAddress:
    return MasterAddress(f"host-{worker}", 1000 + worker)


def arrive(
    barrier: RendezvousBarrier, worker: int, last: RendezvousRound = NOWHERE
) -> RendezvousAssignment | None:
    return barrier.arrive(worker, last, master=master(worker))


def gathered(*numbers: int) -> RendezvousBarrier:
    """A barrier whose members have met in the first round of generation 0."""
    barrier = RendezvousBarrier(1, roster(0, *numbers))
    for number in numbers:
        arrive(barrier, number)
    assert barrier.result is not None
    return barrier


def is_called(
    barrier: RendezvousBarrier, worker: int, at: RendezvousRound = ONE, state: str = RUNNING
) -> bool:
    return barrier.must_rejoin(worker, at, state=state)


def test_last_arrival_completes_the_round_with_the_schedulers_ranks() -> None:
    barrier = RendezvousBarrier(1, roster(0, 5, 3))
    assert arrive(barrier, 3) is None
    assert arrive(barrier, 5) == RendezvousAssignment(
        MET, 0, 1, rank=0, size=2, host="host-5", port=1005
    )
    assert arrive(barrier, 3) == RendezvousAssignment(
        MET, 0, 1, rank=1, size=2, host="host-5", port=1005
    )


def test_waiting_agents_move_to_a_newer_generation() -> None:
    barrier = RendezvousBarrier(1, roster(0, 0, 1))
    assert arrive(barrier, 0) is None
    assert barrier.update(roster(1, 0, held=(0, 1)))
    assert arrive(barrier, 0) == RendezvousAssignment(
        MET, 1, 1, rank=0, size=1, host="host-0", port=1000
    )


def test_staying_agents_are_called_when_new_ones_have_arrived() -> None:
    barrier = gathered(0)
    barrier.update(roster(1, 0, 1, 2))
    assert not is_called(barrier, 0)
    arrive(barrier, 1)
    assert not is_called(barrier, 0)
    arrive(barrier, 2)
    assert is_called(barrier, 0)


def test_removed_agent_is_called_after_the_others_have_met() -> None:
    barrier = gathered(0, 1)
    barrier.update(roster(1, 0, held=(0, 1)))
    assert is_called(barrier, 0)
    assert not is_called(barrier, 1)
    assert arrive(barrier, 1, ONE) is None
    assert arrive(barrier, 0, ONE) is not None
    assert is_called(barrier, 1)
    assert arrive(barrier, 1, ONE) == RendezvousAssignment(LEFT, 1)


@pytest.mark.parametrize("worker", [0, 1])
def test_agent_with_failed_processes_is_called_immediately(worker: int) -> None:
    barrier = gathered(0, 1)
    assert not is_called(barrier, worker, state=FAILED)
    barrier.update(roster(1, 0, 2, held=(0, 1, 2)))
    assert not is_called(barrier, worker)
    assert is_called(barrier, worker, state=FAILED)


def test_agent_that_joins_again_calls_its_generation() -> None:
    barrier = gathered(0, 1)
    assert arrive(barrier, 1, ONE) is None
    assert is_called(barrier, 0)
    found = arrive(barrier, 0, ONE)
    assert found is not None
    assert (found.generation, found.turn) == (0, 2)
    assert not is_called(barrier, 0, RendezvousRound(0, 2))


def test_lost_assignment_is_sent_again() -> None:
    barrier = gathered(0, 1)
    first = arrive(barrier, 0)
    assert first == arrive(barrier, 0)
    assert barrier.arrived == {}


def test_barrier_is_over_when_a_member_has_finished() -> None:
    barrier = gathered(0, 1)
    barrier.update(roster(0, 0, 1, w0=0))
    assert arrive(barrier, 1, ONE) == RendezvousAssignment(OVER, 0)


def test_finished_agent_is_not_waited_for() -> None:
    """Its agent waits for the others to be done as well, which they are in a moment."""
    barrier = gathered(0, 1)
    barrier.note(0, ONE, state=FINISHED)
    barrier.update(roster(1, 0, 1, 2))
    arrive(barrier, 2)
    assert not is_called(barrier, 1)


# -- a daemon that was started again -------------------------------------------------------------


def forgetful(generation: int, *numbers: int) -> RendezvousBarrier:
    return RendezvousBarrier(1, roster(generation, *numbers))


def test_agents_of_one_round_are_not_called_after_a_restart() -> None:
    barrier, at = forgetful(3, 0, 1), RendezvousRound(3, 2)
    assert not barrier.note(0, at, state=RUNNING)
    assert not is_called(barrier, 0, at)
    assert barrier.note(1, at, state=RUNNING)
    assert not is_called(barrier, 0, at)
    assert not barrier.note(1, at, state=RUNNING)


def test_agent_with_lost_assignment_calls_the_others_after_a_restart() -> None:
    barrier, at = forgetful(3, 0, 1), RendezvousRound(3, 2)
    assert arrive(barrier, 1, RendezvousRound(2, 1)) is None
    barrier.note(0, at, state=RUNNING)
    assert is_called(barrier, 0, at)
    found = arrive(barrier, 0, at)
    assert found is not None
    # No worker was in this turn before.
    assert (found.generation, found.turn) == (3, 3)


def test_round_numbers_continue_after_a_restart() -> None:
    barrier, at = forgetful(3, 0), RendezvousRound(3, 2)
    assert barrier.note(0, at, state=RUNNING)
    found = arrive(barrier, 0, at)
    assert found is not None
    assert (found.turn, found.host) == (3, "host-0")


# -- waiting in vain -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "is_broken"),
    [
        (roster(0, 0, 1), False),
        (roster(0, 0, 1, w1=137), True),
        (roster(1, 0, 1, 2), False),
        (roster(1, 0, held=(0, 1)), False),
        (roster(1, 0), True),
        (roster(1, 0, held=(0, 1), w1=137), True),
    ],
)
def test_round_is_broken_when_a_member_is_gone(after: GenerationRoster, is_broken: bool) -> None:
    barrier = gathered(0, 1)
    barrier.update(after)
    assert barrier.is_broken(ONE) == is_broken


def test_exits_of_the_previous_generation_break_nothing() -> None:
    """They are in the scheduler's books until the new generation stands."""
    barrier = gathered(0, 1)
    barrier.update(roster(1, 0, held=(0, 1), w1=137))
    arrive(barrier, 0, ONE)
    assert not barrier.is_broken(RendezvousRound(1, 1))


def test_round_is_broken_when_a_member_joins_again() -> None:
    barrier = gathered(0, 1)
    arrive(barrier, 1, ONE)
    assert barrier.is_broken(ONE)


def test_pause_is_gather_time_plus_last_start_time() -> None:
    session = BarrierSession(RendezvousBarrier(1, roster(0, 0, 1)))
    session.record_meeting(10.0)
    assert session.pause_s() is None  # No worker was called: all came by themselves.
    session.record_call(20.0)
    session.record_meeting(20.5)
    assert session.pause_s() == 0.5
    session.restart = RestartTiming(1, 2, gather_s=0.5, start_s=2.0)
    assert session.pause_s() == 2.5
