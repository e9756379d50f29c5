"""Workers that die, in jobs that can do without them."""

import pytest

from rota.core.commands import (
    AskToStop,
    ChangeMembership,
    KillWorkers,
    StartWorkers,
    StopWorkers,
)
from rota.core.events import WorkersExited, WorkersLost, WorkersSilent
from rota.core.model import JobId, Mode, Running
from rota.core.states import State
from rota_trainer.stops import CODE
from tests.builders import Lab, cluster, job, live_job, slots

A, B = JobId("a"), JobId("b")


def running(lab: Lab) -> Running:
    phase = lab.job("a").phase
    assert isinstance(phase, Running)
    return phase


def test_the_survivors_go_on_and_the_slot_is_free_at_once() -> None:
    lab = Lab(cluster("1x3"), policy="elastic-fifo")
    lab.run(live_job("a", gpus="1..3"))
    left = slots("1:0", "1:2")
    assert lab.exited("a", 137, workers=[1], reason="ended by SIGKILL") == [
        ChangeMembership(A, 1, 1, left, (0, 2))
    ]
    assert lab.reason("a") == "goes on without worker 1; exit code 137; ended by SIGKILL"
    assert lab.job("a").members == left
    lab.submit(job("b", priority=1))
    assert lab.round() == [StartWorkers(B, 1, 0, slots("1:1"))]
    lab.switched("a")
    assert (running(lab).numbers, running(lab).allocation) == ((0, 2), left)
    assert lab.round() == []


def test_a_replacement_is_the_next_round_s_business() -> None:
    lab = Lab(cluster("1x2"), policy="elastic-fifo")
    lab.run(live_job("a", gpus="1..2"))
    lab.exited("a", 137, workers=[0])
    assert lab.switched("a") == []
    assert lab.kernel.wants_round
    assert lab.round() == [ChangeMembership(A, 1, 2, slots("1:1", "1:0"), (1, 2))]


def test_two_deaths_at_once_are_two_generations() -> None:
    lab = Lab(cluster("1x4"), policy="elastic-fifo")
    lab.run(live_job("a", gpus="1..4"))
    lab.exited("a", 137, workers=[0])
    assert lab.exited("a", 137, workers=[2]) == [
        ChangeMembership(A, 1, 2, slots("1:1", "1:3"), (1, 3))
    ]
    lab.tell(WorkersExited(A, 1, {0: 137, 2: 137}))
    assert lab.job("a").generation == 2


def growing() -> Lab:
    """Workers 0 and 1 work, and 2 and 3 are on their way."""
    lab = Lab(cluster("1x4"), policy="elastic-fifo")
    lab.run(live_job("a", gpus="1..4"), live_job("b", gpus=2))
    lab.exited("b")
    lab.round()
    return lab


def test_a_newcomer_may_die_on_its_way() -> None:
    lab = growing()
    assert lab.exited("a", 137, workers=[2]) == [
        ChangeMembership(A, 1, 2, slots("1:0", "1:1", "1:3"), (0, 1, 3))
    ]
    assert lab.job("a").members == slots("1:0", "1:1", "1:3")


def test_an_old_member_may_die_while_others_come() -> None:
    lab = growing()
    assert lab.exited("a", 137, workers=[0]) == [
        ChangeMembership(A, 1, 2, slots("1:1", "1:2", "1:3"), (1, 2, 3))
    ]
    lab.switched("a")
    assert lab.job("a").allocation == slots("1:1", "1:2", "1:3")


def test_whoever_is_on_the_way_holds_no_state_to_go_on_with() -> None:
    lab = growing()
    lab.exited("a", 137, workers=[0])
    lab.exited("a", 137, workers=[1])
    assert lab.state("a") is State.STOPPING


def test_a_newcomer_that_fails_does_not_fail_the_job() -> None:
    """Nor is another one sent at once, which would fail for the same reason."""
    lab = growing()
    lab.exited("a", 78, workers=[2, 3])
    assert lab.reason("a") == "goes on without workers 2, 3; exit code 78"
    lab.switched("a")
    assert lab.round() == []
    lab.wait(1800)
    assert lab.round() == [
        ChangeMembership(A, 1, 3, slots("1:0", "1:1", "1:2", "1:3"), (0, 1, 4, 5))
    ]


def test_a_leaver_that_dies_is_not_missed() -> None:
    lab = Lab(cluster("1x4"), policy="elastic-fifo")
    lab.run(live_job("a", gpus="1..4"))
    lab.submit(job("b", gpus=2))
    lab.round()
    assert lab.exited("a", 137, workers=[3]) == []
    assert lab.job("a").generation == 1
    assert lab.job("a").members == slots("1:0", "1:1", "1:2")
    assert lab.switched("a") == [StartWorkers(B, 1, 0, slots("1:2", "1:3"))]


def test_a_leaver_that_dies_last_does_not_keep_a_job_from_having_finished() -> None:
    lab = Lab(cluster("1x4"), policy="elastic-fifo")
    lab.run(live_job("a", gpus="1..4"))
    lab.submit(job("b", gpus=3))
    lab.round()
    lab.exited("a", 0, workers=[0, 1, 2])
    lab.exited("a", 137, workers=[3])
    assert lab.state("a") is State.SUCCEEDED


def test_a_death_among_those_who_have_finished_is_no_success() -> None:
    lab = Lab(cluster("1x2"), policy="elastic-fifo")
    lab.run(live_job("a", gpus="1..2"))
    lab.exited("a", 0, workers=[0])
    lab.exited("a", 137, workers=[1])
    assert lab.state("a") is State.FAILED


def moving(gpus: int = 1) -> Lab:
    """All workers of a job are to go to another node."""
    lab = Lab(cluster("2x2"))
    lab.run(live_job("a", gpus=gpus, retries=1))
    lab.drain(1)
    lab.round()
    return lab


def test_who_takes_over_the_whole_work_and_dies_has_not_finished_it() -> None:
    lab = moving()
    lab.exited("a", 0, workers=[0])
    lab.exited("a", 137, workers=[1])
    assert lab.state("a") is State.QUEUED


def test_a_move_of_all_goes_on_while_one_of_the_old_is_left() -> None:
    """Which may train on until the others have come, in a generation that was never given."""
    lab = moving(gpus=2)
    assert lab.exited("a", 137, workers=[0]) == [
        ChangeMembership(A, 1, 2, slots("2:0", "2:1"), (2, 3))
    ]
    lab.switched("a")
    assert running(lab).numbers == (2, 3)


def test_a_move_fails_with_the_last_of_the_old() -> None:
    lab = moving()
    assert lab.exited("a", 137, workers=[0]) == [StopWorkers(A, 1, (0, 1), 30.0)]


def test_a_newcomer_that_fails_to_take_over_costs_a_restart_and_no_more() -> None:
    lab = moving()
    lab.exited("a", 78, workers=[1])
    assert lab.reason("a") == "too few workers are left: exit code 78"
    lab.exited("a", 143, workers=[0])
    assert (lab.state("a"), lab.job("a").failures) == (State.QUEUED, 0)


def test_below_the_minimum_a_lost_worker_sends_the_job_back_to_the_queue() -> None:
    lab = Lab(cluster("1x2"))
    lab.run(live_job("a", gpus=2))
    assert lab.tell(WorkersLost(A, 1, frozenset({1}))) == [StopWorkers(A, 1, (0, 1), 30.0)]
    lab.exited("a", 143)
    assert (lab.state("a"), lab.job("a").failures) == (State.QUEUED, 0)


def test_below_the_minimum_a_live_job_that_hears_is_asked() -> None:
    """What its survivors hold in memory is worth saving."""
    lab = Lab(cluster("1x2"))
    lab.run(live_job("a", gpus=2))
    lab.progress("a", 1.5, saved=1.0, hears=True)
    assert lab.exited("a", 137, workers=[1]) == [
        AskToStop(A, 1, (0, 1), "too few workers are left: exit code 137", 30.0)
    ]
    lab.progress("a", 1.5, saved=1.5)
    lab.exited("a", 75, workers=[0])
    assert (lab.state("a"), lab.job("a").epochs_done) == (State.QUEUED, 1.5)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_survivors_that_waited_in_vain_for_the_daemon_are_started_again(
    order: tuple[int, ...],
) -> None:
    """It is back, and hears of a death, and of those who saved and stopped because of it."""
    lab = Lab(cluster("1x3"), policy="elastic-fifo")
    lab.run(live_job("a", gpus="2..3"))
    for worker in order:
        lab.exited("a", 137 if worker == 0 else CODE, workers=[worker])
    assert (lab.state("a"), lab.job("a").failures) == (State.QUEUED, 0)


def test_below_the_minimum_torchrun_s_survivors_have_nothing_to_save() -> None:
    lab = Lab(cluster("1x2"))
    lab.run(job("a", gpus=2, retries=1, mode=Mode.TORCHRUN))
    lab.progress("a", 1.0, hears=True)
    assert lab.exited("a", 137, workers=[1]) == [StopWorkers(A, 1, (0, 1), 30.0)]


def test_a_worker_that_fails_by_itself_fails_the_job() -> None:
    lab = Lab(cluster("1x3"), policy="elastic-fifo")
    lab.run(live_job("a", gpus="1..3"))
    lab.exited("a", 1, workers=[1])
    lab.exited("a", 143)
    assert lab.state("a") is State.FAILED


def test_jobs_that_cannot_change_their_members_stop_as_ever() -> None:
    lab = Lab(cluster("1x3"), policy="elastic-fifo")
    lab.run(job("a", gpus="1..3"))
    assert lab.exited("a", 137, workers=[1]) == [StopWorkers(A, 1, (0, 1, 2), 30.0)]


def torchrun() -> Lab:
    lab = Lab(cluster("1x4"), policy="elastic-fifo")
    lab.run(job("a", gpus="1..4", mode=Mode.TORCHRUN))
    return lab


def test_an_agent_that_falls_with_its_peer_is_a_victim() -> None:
    lab = torchrun()
    lab.exited("a", 137, workers=[0])
    lab.wait(5)
    assert lab.exited("a", 1, workers=[2]) == [
        ChangeMembership(A, 1, 2, slots("1:1", "1:3"), (1, 3))
    ]
    lab.exited("a", 1, workers=[1, 3])
    assert (lab.state("a"), lab.job("a").failures) == (State.QUEUED, 0)
    assert lab.reason("a") == "too few workers are left: exit code 1"


def test_an_agent_that_fails_later_is_a_cause() -> None:
    lab = torchrun()
    lab.exited("a", 137, workers=[0])
    lab.wait(20)
    lab.exited("a", 1, workers=[2])
    assert lab.state("a") is State.STOPPING
    assert lab.reason("a") == "exit code 1"


def die_again(lab: Lab) -> None:
    lab.exited("a", 137, workers=[lab.job("a").numbers[-1]])


def test_three_deaths_in_a_row_fail_a_job() -> None:
    lab = Lab(cluster("1x4"), policy="elastic-fifo")
    lab.run(live_job("a", gpus="1..4", retries=5))
    lab.progress("a", 1.0)
    for _ in range(2):
        die_again(lab)
        lab.wait(100)
        assert lab.state("a") is State.RUNNING
    die_again(lab)
    assert lab.reason("a") == "exit code 137; 3 deaths in a row without progress"
    lab.exited("a", 143)
    assert lab.state("a") is State.FAILED


def test_three_deaths_fail_a_job_although_nobody_is_left_to_stop() -> None:
    lab = Lab(cluster("1x3"), policy="elastic-fifo")
    lab.run(live_job("a", gpus="1..3", retries=5))
    lab.progress("a", 1.0)
    for _ in range(3):
        die_again(lab)
        lab.wait(100)
    assert lab.state("a") is State.FAILED


def test_progress_ends_the_row() -> None:
    lab = Lab(cluster("1x4"), policy="elastic-fifo")
    lab.run(live_job("a", gpus="1..4"))
    for epochs in (1.0, 2.0, 3.0):
        die_again(lab)
        lab.wait(100)
        lab.progress("a", epochs)
    assert lab.state("a") is State.RUNNING


def test_deaths_at_one_time_are_one() -> None:
    lab = Lab(cluster("1x5"), policy="elastic-fifo")
    lab.run(live_job("a", gpus="1..5"))
    for _ in range(4):
        die_again(lab)
        lab.wait(1)
    assert lab.state("a") is State.RUNNING


def test_a_job_that_reports_nothing_is_judged_by_how_long_it_stood() -> None:
    lab = Lab(cluster("1x5"), policy="elastic-fifo")
    lab.run(live_job("a", gpus="1..5"))
    for _ in range(4):
        die_again(lab)
        lab.wait(100)
    assert lab.state("a") is State.RUNNING


def test_silent_workers_are_killed_and_then_outlived() -> None:
    lab = Lab(cluster("1x3"), policy="elastic-fifo")
    lab.run(live_job("a", gpus="1..3"))
    silent = WorkersSilent(A, 1, frozenset({1, 9}), "worker 1 has said nothing for 10 s")
    assert lab.tell(silent) == [KillWorkers(A, 1, (1,))]
    assert lab.reason("a") == "worker 1 has said nothing for 10 s"
    assert lab.state("a") is State.RUNNING
    lab.exited("a", 137, workers=[1])
    assert lab.tell(silent) == []
    assert lab.tell(WorkersSilent(A, 2, frozenset({0}))) == []


def test_a_crash_while_survivors_regroup_loses_nothing() -> None:
    lab = Lab(cluster("1x3"), policy="elastic-fifo")
    lab.run(live_job("a", gpus="1..3"))
    order = lab.exited("a", 137, workers=[1])
    assert order[0] in lab.recover()
    lab.switched("a")
    assert running(lab).numbers == (0, 2)


def test_a_lost_node_takes_its_workers_and_no_more() -> None:
    lab = Lab(cluster("2x2"), policy="elastic-fifo")
    lab.run(live_job("a", gpus="1..4"))
    here = tuple(slot for slot in lab.job("a").allocation if slot.node == "node-01")
    order = lab.lose(2)
    assert [type(each) for each in order] == [ChangeMembership]
    assert lab.job("a").members == here
    assert lab.job("a").deaths == 0
