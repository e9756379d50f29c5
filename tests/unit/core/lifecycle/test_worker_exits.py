"""Workers that die in jobs that can continue without them."""

import pytest

from rota.core.lifecycle.states import JobState
from rota.core.model.commands import (
    AskToStop,
    ChangeMembership,
    KillWorkers,
    StartWorkers,
    StopWorkers,
)
from rota.core.model.events import (
    NewcomersMissing,
    WorkersExited,
    WorkersLost,
    WorkersSilent,
)
from rota.core.model.job import JobId, Mode, Running
from rota_trainer.exceptions import STOPPED_EXIT_CODE
from tests.support.builders import Lab, cluster, job, live_job, slots

A, B = JobId("a"), JobId("b")


def running(lab: Lab) -> Running:
    phase = lab.job("a").phase
    assert isinstance(phase, Running)
    return phase


def test_survivors_continue_and_the_slot_is_free_at_once() -> None:
    lab = Lab(cluster("1x3"), policy="elastic-fifo")
    lab.run(live_job("a", gpus="1..3"))
    left = slots("1:0", "1:2")
    assert lab.exited("a", 137, workers=[1], reason="ended by SIGKILL") == [
        ChangeMembership(A, 1, 1, left, (0, 2))
    ]
    assert lab.reason("a") == "continues without worker 1; exit code 137; ended by SIGKILL"
    assert lab.job("a").members == left
    lab.submit(job("b", priority=1))
    assert lab.round() == [StartWorkers(B, 1, 0, slots("1:1"))]
    lab.switched("a")
    assert (running(lab).numbers, running(lab).allocation) == ((0, 2), left)
    assert lab.round() == []


def test_the_next_round_replaces_a_dead_worker() -> None:
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


def test_a_new_worker_may_die_before_it_joins() -> None:
    lab = growing()
    assert lab.exited("a", 137, workers=[2]) == [
        ChangeMembership(A, 1, 2, slots("1:0", "1:1", "1:3"), (0, 1, 3))
    ]
    assert lab.job("a").members == slots("1:0", "1:1", "1:3")


def test_an_old_member_may_die_while_new_workers_join() -> None:
    lab = growing()
    assert lab.exited("a", 137, workers=[0]) == [
        ChangeMembership(A, 1, 2, slots("1:1", "1:2", "1:3"), (1, 2, 3))
    ]
    lab.switched("a")
    assert lab.job("a").allocation == slots("1:1", "1:2", "1:3")


def test_new_workers_alone_cannot_continue() -> None:
    lab = growing()
    lab.exited("a", 137, workers=[0])
    lab.exited("a", 137, workers=[1])
    assert lab.state("a") is JobState.STOPPING


def test_a_newcomer_that_fails_does_not_fail_the_job() -> None:
    """Nor is another one sent at once, which would fail for the same reason."""
    lab = growing()
    lab.exited("a", 78, workers=[2, 3])
    assert lab.reason("a") == "continues without workers 2, 3; exit code 78"
    lab.switched("a")
    assert lab.round() == []
    lab.wait(1800)
    assert lab.round() == [
        ChangeMembership(A, 1, 3, slots("1:0", "1:1", "1:2", "1:3"), (0, 1, 4, 5))
    ]


def test_the_death_of_a_leaving_worker_changes_nothing() -> None:
    lab = Lab(cluster("1x4"), policy="elastic-fifo")
    lab.run(live_job("a", gpus="1..4"))
    lab.submit(job("b", gpus=2))
    lab.round()
    assert lab.exited("a", 137, workers=[3]) == []
    assert lab.job("a").generation == 1
    assert lab.job("a").members == slots("1:0", "1:1", "1:2")
    assert lab.switched("a") == [StartWorkers(B, 1, 0, slots("1:2", "1:3"))]


def test_a_job_finishes_although_a_leaving_worker_dies_last() -> None:
    lab = Lab(cluster("1x4"), policy="elastic-fifo")
    lab.run(live_job("a", gpus="1..4"))
    lab.submit(job("b", gpus=3))
    lab.round()
    lab.exited("a", 0, workers=[0, 1, 2])
    lab.exited("a", 137, workers=[3])
    assert lab.state("a") is JobState.SUCCEEDED


def test_a_death_among_those_who_have_finished_is_no_success() -> None:
    lab = Lab(cluster("1x2"), policy="elastic-fifo")
    lab.run(live_job("a", gpus="1..2"))
    lab.exited("a", 0, workers=[0])
    lab.exited("a", 137, workers=[1])
    assert lab.state("a") is JobState.FAILED


def moving(gpus: int = 1) -> Lab:
    """All workers of a job are to go to another node."""
    lab = Lab(cluster("2x2"))
    lab.run(live_job("a", gpus=gpus, retries=1))
    lab.drain(1)
    lab.round()
    return lab


def test_a_replacement_of_all_workers_that_dies_has_not_finished() -> None:
    lab = moving()
    lab.exited("a", 0, workers=[0])
    lab.exited("a", 137, workers=[1])
    assert lab.state("a") is JobState.QUEUED


def test_a_move_of_all_workers_continues_while_one_old_worker_is_left() -> None:
    """Which may train on until the others have come, in a generation that was never given."""
    lab = moving(gpus=2)
    assert lab.exited("a", 137, workers=[0]) == [
        ChangeMembership(A, 1, 2, slots("2:0", "2:1"), (2, 3))
    ]
    lab.switched("a")
    assert running(lab).numbers == (2, 3)


def test_a_move_of_all_workers_fails_with_the_last_old_worker() -> None:
    lab = moving()
    assert lab.exited("a", 137, workers=[0]) == [StopWorkers(A, 1, (0, 1), 30.0)]


def test_a_replacement_that_fails_costs_one_restart() -> None:
    lab = moving()
    lab.exited("a", 78, workers=[1])
    assert lab.reason("a") == "too few workers are left: exit code 78"
    lab.exited("a", 143, workers=[0])
    assert (lab.state("a"), lab.job("a").failures) == (JobState.QUEUED, 0)


def test_below_the_minimum_a_lost_worker_sends_the_job_back_to_the_queue() -> None:
    lab = Lab(cluster("1x2"))
    lab.run(live_job("a", gpus=2))
    assert lab.tell(WorkersLost(A, 1, frozenset({1}))) == [StopWorkers(A, 1, (0, 1), 30.0)]
    lab.exited("a", 143)
    assert (lab.state("a"), lab.job("a").failures) == (JobState.QUEUED, 0)


def test_below_the_minimum_a_listening_live_job_is_asked() -> None:
    """What its survivors hold in memory is worth saving."""
    lab = Lab(cluster("1x2"))
    lab.run(live_job("a", gpus=2))
    lab.progress("a", 1.5, saved=1.0, hears=True)
    assert lab.exited("a", 137, workers=[1]) == [
        AskToStop(A, 1, (0, 1), "too few workers are left: exit code 137", 30.0)
    ]
    lab.progress("a", 1.5, saved=1.5)
    lab.exited("a", 75, workers=[0])
    assert (lab.state("a"), lab.job("a").epochs_done) == (JobState.QUEUED, 1.5)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_survivors_that_gave_up_on_the_daemon_are_restarted(
    order: tuple[int, ...],
) -> None:
    """It is back, and hears of a death, and of those who saved and stopped because of it."""
    lab = Lab(cluster("1x3"), policy="elastic-fifo")
    lab.run(live_job("a", gpus="2..3"))
    for worker in order:
        lab.exited("a", 137 if worker == 0 else STOPPED_EXIT_CODE, workers=[worker])
    assert (lab.state("a"), lab.job("a").failures) == (JobState.QUEUED, 0)


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
    assert lab.state("a") is JobState.FAILED


def test_jobs_that_cannot_change_their_members_stop() -> None:
    lab = Lab(cluster("1x3"), policy="elastic-fifo")
    lab.run(job("a", gpus="1..3"))
    assert lab.exited("a", 137, workers=[1]) == [StopWorkers(A, 1, (0, 1, 2), 30.0)]


def torchrun() -> Lab:
    lab = Lab(cluster("1x4"), policy="elastic-fifo")
    lab.run(job("a", gpus="1..4", mode=Mode.TORCHRUN))
    return lab


def test_an_agent_that_fails_soon_after_a_peer_is_a_victim() -> None:
    lab = torchrun()
    lab.exited("a", 137, workers=[0])
    lab.wait(5)
    assert lab.exited("a", 1, workers=[2]) == [
        ChangeMembership(A, 1, 2, slots("1:1", "1:3"), (1, 3))
    ]
    lab.exited("a", 1, workers=[1, 3])
    assert (lab.state("a"), lab.job("a").failures) == (JobState.QUEUED, 0)
    assert lab.reason("a") == "too few workers are left: exit code 1"


def test_an_agent_that_fails_later_is_a_cause() -> None:
    lab = torchrun()
    lab.exited("a", 137, workers=[0])
    lab.wait(20)
    lab.exited("a", 1, workers=[2])
    assert lab.state("a") is JobState.STOPPING
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
        assert lab.state("a") is JobState.RUNNING
    die_again(lab)
    assert lab.reason("a") == "exit code 137; 3 worker deaths in a row without progress"
    lab.exited("a", 143)
    assert lab.state("a") is JobState.FAILED


def test_three_deaths_fail_a_job_without_remaining_workers() -> None:
    lab = Lab(cluster("1x3"), policy="elastic-fifo")
    lab.run(live_job("a", gpus="1..3", retries=5))
    lab.progress("a", 1.0)
    for _ in range(3):
        die_again(lab)
        lab.wait(100)
    assert lab.state("a") is JobState.FAILED


def test_progress_resets_the_deaths() -> None:
    lab = Lab(cluster("1x4"), policy="elastic-fifo")
    lab.run(live_job("a", gpus="1..4"))
    for epochs in (1.0, 2.0, 3.0):
        die_again(lab)
        lab.wait(100)
        lab.progress("a", epochs)
    assert lab.state("a") is JobState.RUNNING


def test_deaths_close_together_count_as_one() -> None:
    lab = Lab(cluster("1x5"), policy="elastic-fifo")
    lab.run(live_job("a", gpus="1..5"))
    for _ in range(4):
        die_again(lab)
        lab.wait(1)
    assert lab.state("a") is JobState.RUNNING


def test_without_reports_a_stable_period_resets_the_deaths() -> None:
    lab = Lab(cluster("1x5"), policy="elastic-fifo")
    lab.run(live_job("a", gpus="1..5"))
    for _ in range(4):
        die_again(lab)
        lab.wait(100)
    assert lab.state("a") is JobState.RUNNING


def test_silent_workers_are_killed_and_the_job_continues() -> None:
    lab = Lab(cluster("1x3"), policy="elastic-fifo")
    lab.run(live_job("a", gpus="1..3"))
    silent = WorkersSilent(A, 1, frozenset({1, 9}), "worker 1 has said nothing for 10 s")
    assert lab.tell(silent) == [KillWorkers(A, 1, (1,))]
    assert lab.reason("a") == "worker 1 has said nothing for 10 s"
    assert lab.state("a") is JobState.RUNNING
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


def test_replacements_that_never_join_stop_a_job_that_needs_them() -> None:
    lab = Lab(cluster("2x2"), policy="elastic-fifo")
    lab.run(live_job("a", gpus=2))
    lab.wait(100)
    lab.drain(int(lab.job("a").allocation[0].node[-2:]))
    lab.round()
    lab.started("a", (2, 3))
    lab.exited("a", 0, workers=(2, 3))
    orders = lab.tell(NewcomersMissing(A, 1, frozenset({2, 3})))
    why = "too few workers are left: workers 2, 3 exited before they joined the others"
    assert (lab.state("a"), lab.reason("a")) == (JobState.STOPPING, why)
    assert orders == [StopWorkers(A, 1, (0, 1, 2, 3), 30.0)]
    lab.exited("a", 0, workers=(0, 1))
    assert lab.state("a") is JobState.QUEUED
