"""Membership of live jobs: the service together with a kernel."""

from __future__ import annotations

import math
from typing import Any, cast

from rota.core.lifecycle.states import JobState
from rota.core.model.commands import ChangeMembership, Command, KillWorkers
from rota.core.model.effects import Effects
from rota.core.model.events import Event, NodeDrained
from rota.core.model.job import Job, JobId, Running
from rota.core.model.node import Node
from rota.daemon.elastic.membership import LivenessPolicy, MembershipService
from rota.daemon.training.report_parser import parse_report
from rota.daemon.training.worker_progress import AttemptProgress
from rota_trainer.reporting.loop import BACKOFF_MAX_S
from rota_trainer.reporting.messages import Switch, TrainingReport, to_json
from tests.support.builders import Lab, cluster, job, live_job

A = JobId("a")
HEARTBEAT_S = 10.0


class Remarks:
    """Collects the remarks of all jobs."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def wake(self, job_id: JobId) -> None:
        pass

    def remark(self, job_id: JobId, words: str) -> None:  # noqa: ARG002 - protocol
        self.words.append(words)


class HouseController:
    """The controller's part that the membership service uses, on the kernel of a house."""

    def __init__(self, house: House) -> None:
        self._house = house

    @property
    def trouble(self) -> str:
        return self._house.trouble

    def job(self, job_id: JobId) -> Job | None:
        return self._house.kernel.job(job_id)

    def apply_event(self, event: Event) -> None:
        self._house.tell(event)


class House(Lab):
    """A kernel, its store and the membership service, which gets the kernel's commands."""

    trouble = ""

    def __init__(
        self, nodes: tuple[Node, ...] = cluster("1x4"), *, listener: Remarks | None = None
    ) -> None:
        self.service: MembershipService | None = None
        self.listener = listener or Remarks()
        self.commands: list[Command] = []
        super().__init__(nodes, policy="elastic-fifo")
        self.open()

    def open(self) -> None:
        """Start with an empty membership service."""
        controller = cast(Any, HouseController(self))
        liveness = LivenessPolicy(HEARTBEAT_S, replaces_stragglers=True)
        self.service = MembershipService(
            controller, self.listener, clock=lambda: self.now, liveness=liveness
        )

    def restart(self) -> None:
        self.open()
        self.recover()

    def _written(self, effects: Effects) -> list[Command]:
        commands = super()._written(effects)
        self.commands += commands
        for command in commands:
            if self.service is not None:
                self.service.on_command(command)
        return commands

    # -- what workers do ------------------------------------------------------------------------

    def report(self, worker: int, generation: int, **more: Any) -> Switch | None:
        """Report as a worker; returns the switch of the response."""
        assert self.service is not None
        here = {"address": f"127.0.0.1:{5000 + worker}", "identity": "same"}
        raw = to_json(TrainingReport(worker, 1, generation=generation, **{**here, **more}))
        found = self.job("a")
        self.service.on_report(found, parse_report(raw, now=self.now))
        switch, _ = self.service.orders(A, worker, attempt=found.attempt)
        return switch

    def refused(self, worker: int) -> str:
        assert self.service is not None
        return self.service.orders(A, worker, attempt=self.job("a").attempt)[1]

    def look(self, seconds: float = 0.0) -> list[Command]:
        """After so long, second by second; what the service caused."""
        assert self.service is not None
        before = len(self.commands)
        for _ in range(int(seconds)):
            self.wait(1.0)
            self.service.check_workers(self.now)
        return self.commands[before:]

    def is_joining(self) -> bool:
        phase = self.job("a").phase
        return isinstance(phase, Running) and bool(phase.joining)


def numbers(switch: Switch | None) -> list[int]:
    return [] if switch is None else [member.number for member in switch.members]


def training(n_workers: int) -> House:
    """A job whose workers train together, on as many GPUs as others have left."""
    house = House()
    if n_workers < 4:
        house.run(job("other", gpus=4 - n_workers))
    house.run(live_job("a", gpus="1..4"))
    for worker in range(n_workers):
        house.report(worker, -1)
    for worker in range(n_workers):
        assert house.report(worker, 0) is None
    assert not house.is_joining()
    return house


def growing() -> House:
    """Worker 0 trains, and 1, 2, 3 have started."""
    house = training(1)
    house.wait(100)
    house.exited("other")
    house.round()
    house.started("a", (1, 2, 3))
    assert house.is_joining()
    return house


def shrinking() -> House:
    """Workers 0 to 3 train, and 2, 3 are to leave."""
    house = training(4)
    house.wait(100)
    house.submit(job("other", gpus=2))
    house.round()
    assert house.is_joining()
    return house


def moving() -> House:
    """Workers 0 and 1 train on two nodes; 1 is to leave its own, and 2 has started elsewhere."""
    house = House(cluster("3x1"))
    house.run(live_job("a", gpus="1..2"))
    for generation in (-1, 0):
        for worker in (0, 1):
            house.report(worker, generation)
    house.wait(100)
    house.tell(NodeDrained(house.job("a").allocation[1].node))
    house.round()
    house.started("a", (2,))
    assert house.is_joining()
    return house


def test_the_first_generation_waits_for_all() -> None:
    house = House()
    house.run(live_job("a", gpus="1..4"))
    for worker in range(3):
        assert house.report(worker, -1) is None
    assert numbers(house.report(3, -1)) == [0, 1, 2, 3]
    assert numbers(house.report(0, -1)) == [0, 1, 2, 3]
    assert house.report(0, 0) is None


def test_fixed_job_with_live_training_forms_a_generation() -> None:
    house = House()
    house.run(job("a", gpus=2))
    house.report(0, -1)
    assert numbers(house.report(1, -1)) == [0, 1]


def test_survivors_of_a_failure_do_not_wait_for_new_workers() -> None:
    house = training(2)
    house.wait(100)
    house.exited("other")
    house.round()
    house.started("a", (2, 3))
    assert house.report(2, -1) is None
    house.exited("a", 137, workers=(1,))
    switch = house.report(0, 0)
    assert switch is not None
    assert (numbers(switch), switch.generation, switch.is_broken) == ([0], 1, True)
    assert house.report(0, 1) is None
    assert house.report(2, -1) is None
    assert house.is_joining()
    switch = house.report(3, -1)
    assert switch is not None
    assert (numbers(switch), switch.generation, switch.is_broken) == ([0, 2, 3], 2, False)
    for worker in (0, 2, 3):
        assert house.report(worker, 2) is None
    assert not house.is_joining()


def test_survivors_do_not_wait_for_a_replacement() -> None:
    house = moving()
    house.exited("a", 137, workers=(1,))
    switch = house.report(0, 0)
    assert switch is not None
    assert (numbers(switch), switch.generation) == ([0], 1)
    house.report(0, 1)
    assert numbers(house.report(2, -1)) == [0, 2]
    for worker in (0, 2):
        house.report(worker, 2)
    assert not house.is_joining()


def test_growth_is_complete_when_all_members_have_joined() -> None:
    house = growing()
    assert house.report(0, 0) is None
    for worker in (1, 2):
        assert house.report(worker, -1) is None
    switch = house.report(3, -1)
    assert numbers(switch) == [0, 1, 2, 3]
    assert switch is not None
    assert not switch.is_broken
    assert numbers(house.report(0, 0)) == [0, 1, 2, 3]
    for worker in (1, 2, 3):
        house.report(worker, 1, pause_s=30.0)
    assert house.is_joining()
    house.report(0, 1, pause_s=0.25)
    assert not house.is_joining()
    assert house.job("a").resize_s == 0.25


def test_shrink_is_complete_when_removed_workers_have_exited() -> None:
    house = shrinking()
    assert [numbers(house.report(worker, 0)) for worker in range(4)] == [[0, 1]] * 4
    house.report(0, 1)
    house.report(1, 1)
    assert house.is_joining()
    house.exited("a", 0, (2, 3))
    assert house.service is not None
    house.report(0, 1)
    assert not house.is_joining()


def test_removed_worker_is_killed_after_its_grace_period() -> None:
    house = shrinking()
    house.report(0, 1)
    house.report(1, 1)
    step = 0
    while not (caused := house.look(1)):
        step += 1
        for worker in range(4):
            house.report(worker, min(1, worker // 2 ^ 1), global_step=step)
    assert caused == [KillWorkers(A, 1, (2, 3))]
    assert step >= house.job("a").spec.grace_s
    assert house.reason("a") == "did not exit in time after its removal"


def test_incompatible_new_worker_is_refused_and_others_continue() -> None:
    house = growing()
    house.report(0, 0)
    house.report(1, -1)
    house.report(2, -1)
    house.report(3, -1, identity="other")
    assert house.refused(3) == "it has other; the others have same"
    house.exited("a", 78, (3,), finding="it may not join")
    assert house.state("a") is JobState.RUNNING
    assert "could not join" in str(house.job("a").cap)
    assert "it may not join" in house.reason("a")
    assert numbers(house.report(0, 0)) == [0, 1, 2]


def test_failure_breaks_the_training_generation() -> None:
    house = training(4)
    house.exited("a", 137, (1,))
    switch = house.report(0, 0)
    assert numbers(switch) == [0, 2, 3]
    assert switch is not None
    assert switch.is_broken


def test_failure_of_a_new_worker_breaks_nothing() -> None:
    house = growing()
    house.report(0, 0)
    for worker in (1, 2, 3):
        house.report(worker, -1)
    house.exited("a", 137, (2,))
    switch = house.report(0, 0)
    assert numbers(switch) == [0, 1, 3]
    assert switch is not None
    assert not switch.is_broken


def test_new_worker_that_exits_0_without_joining_is_missing() -> None:
    house = growing()
    house.report(0, 0)
    house.exited("a", 0, workers=(2,))
    assert house.look(1) == []
    house.wait(1)
    house.report(0, 0)
    house.look(1)
    assert house.reason("a") == "continues without worker 2; exited before it joined the others"
    house.report(1, -1)
    assert numbers(house.report(3, -1)) == [0, 1, 3]
    for worker in (0, 1, 3):
        house.report(worker, 2)
    assert not house.is_joining()
    assert house.look(2) == []


def test_new_worker_that_joined_and_finished_is_not_missing() -> None:
    house = growing()
    for worker in (0, 1, 2, 3):
        house.report(worker, worker and -1)
    for worker in (1, 2):
        house.report(worker, 1)
    house.exited("a", 0, workers=(3,))
    house.look(1)
    house.wait(1)
    house.report(0, 1)
    assert house.look(1) == []
    assert not house.is_joining()


def test_program_without_live_training_is_remarked_once() -> None:
    house = House()
    house.run(live_job("a", gpus="1..4"))
    house.look(300)
    house.restart()
    house.look(300)
    [words] = house.listener.words
    assert "does not use rota_trainer.torch.live" in words
    story = [each.transition.reason for each in house.store.story(A)]
    assert story.count(words) == 1


def test_live_program_gets_no_remark() -> None:
    house = training(1)
    for _ in range(200):
        house.report(0, 0)
        house.look(1)
    assert not any("live" in each.transition.reason for each in house.store.story(A))


def test_frozen_worker_is_killed_but_a_partition_kills_none() -> None:
    house = training(4)
    assert house.look(HEARTBEAT_S * 3) == []
    for worker in range(4):
        house.report(worker, 0, global_step=7)
    caused: list[Command] = []
    for _ in range(int(HEARTBEAT_S) + 2):
        caused += house.look(1)
        for worker in (0, 2, 3):
            house.report(worker, 0, global_step=7)
    assert caused == [KillWorkers(A, 1, (1,))]
    assert house.reason("a") == "no report for 10 s while the other workers wait"


def test_suspended_daemon_blames_no_worker() -> None:
    house = training(4)
    assert house.service is not None
    before = len(house.commands)
    house.wait(1000)
    house.report(0, 0)
    house.service.check_workers(house.now)
    assert house.commands[before:] == []


def test_change_continues_after_a_restart() -> None:
    house = growing()
    house.restart()
    house.report(0, 0)
    for worker in (1, 2):
        house.report(worker, -1)
    assert numbers(house.report(3, -1)) == [0, 1, 2, 3]


def test_generation_formed_during_a_restart_counts() -> None:
    house = growing()
    house.restart()
    for worker in range(4):
        assert house.report(worker, 1) is None
    assert not house.is_joining()


def test_first_generation_is_sent_again_after_a_restart() -> None:
    house = House()
    house.run(live_job("a", gpus="1..4"))
    house.restart()
    for worker in range(3):
        assert house.report(worker, -1) is None
    assert numbers(house.report(3, -1)) == [0, 1, 2, 3]


def test_worker_frozen_before_a_restart_is_killed_after_the_backoff() -> None:
    house = training(4)
    house.restart()
    waited_s = 0
    caused: list[Command] = []
    while not caused:
        for worker in (0, 2, 3):
            house.report(worker, 0, global_step=7)
        caused = house.look(1)
        waited_s += 1
    assert caused == [KillWorkers(A, 1, (1,))]
    assert waited_s >= BACKOFF_MAX_S


def test_reports_of_an_old_attempt_are_ignored() -> None:
    house = training(4)
    house.exited("a", 75)
    assert house.state("a") is not JobState.RUNNING
    assert house.service is not None
    house.service.check_workers(house.now + 1)
    assert house.service.orders(A, 0, attempt=1) == (None, "")


def test_slow_worker_leaves_after_its_replacement_joined() -> None:
    house = House()
    house.run(live_job("a", gpus=3))
    for generation in (-1, 0):
        for worker in range(3):
            house.report(worker, generation)
    assert house.service is not None
    before, slow = len(house.commands), house.job("a").allocation[1]
    house.service.replace_slow(A, 1, why="worker 1 takes twice as long")
    (change,) = house.commands[before:]
    assert isinstance(change, ChangeMembership)
    assert (change.workers, slow in change.allocation) == ((0, 3, 2), False)
    assert "worker 1 takes twice as long; it is replaced" in [
        each.transition.reason for each in house.store.story(A)
    ]
    house.started("a", (3,))
    assert numbers(house.report(3, -1)) == [0, 3, 2]
    for worker in (0, 2, 3):
        house.report(worker, 1)
    house.exited("a", 0, workers=(1,))
    house.report(0, 1)
    assert not house.is_joining()
    house.round()
    assert house.job("a").allocation == change.allocation


def test_slow_worker_without_replacement_is_killed_above_the_minimum() -> None:
    house = training(4)
    assert house.service is not None
    before = len(house.commands)
    house.service.replace_slow(A, 2, why="worker 2 takes twice as long")
    assert house.commands[before:] == [KillWorkers(A, 1, (2,))]
    assert house.reason("a") == "worker 2 takes twice as long; it is replaced"
    alone = training(1)
    assert alone.service is not None
    before = len(alone.commands)
    alone.service.replace_slow(A, 0, why="worker 0 takes twice as long")
    assert alone.commands[before:] == []


def test_drained_node_is_left_in_one_switch() -> None:
    house = House(cluster("2x2"))
    house.run(live_job("a", gpus=2))
    for worker in range(2):
        house.report(worker, -1)
    for worker in range(2):
        house.report(worker, 0)
    house.wait(100)
    node = house.job("a").allocation[0].node
    house.tell(NodeDrained(node))
    house.round()
    house.started("a", (2, 3))
    house.report(2, -1)
    assert numbers(house.report(3, -1)) == [2, 3]
    assert [numbers(house.report(worker, 0)) for worker in range(2)] == [[2, 3]] * 2
    house.report(2, 1)
    house.report(3, 1)
    house.exited("a", 0, (0, 1))
    house.report(2, 1)
    assert not house.is_joining()
    assert node not in {slot.node for slot in house.job("a").allocation}
    assert house.job("a").attempt == 1


def test_epochs_during_a_change_are_not_measured() -> None:
    house = growing()
    assert house.service is not None
    assert house.service.steady_since_s(house.job("a")) == math.inf
    house.wait(7)
    for worker in range(4):
        house.report(worker, 1)
    changed_at_s = house.now
    house.wait(5)
    house.report(0, 1)
    assert house.service.steady_since_s(house.job("a")) == changed_at_s
    attempt_progress = AttemptProgress(1)
    records = [{"at_s": house.now, "number": n, "seconds": n} for n in (4, 5, 6)]
    raw = {"worker": 0, "sequence": 1, "epochs": records}
    attempt_progress.add_epochs(parse_report(raw, now=house.now), since_s=changed_at_s)
    assert attempt_progress.epochs_s == [4, 5]
