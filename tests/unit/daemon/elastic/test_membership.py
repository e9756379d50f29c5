"""The desk where live workers hear whom to train with, and the kernel that hears of it."""

import math
from typing import Any, cast

from rota.core.commands import ChangeMembership, Command, KillWorkers
from rota.core.effects import Effects
from rota.core.events import NodeDrained
from rota.core.model import JobId, Node, Running
from rota.core.states import State
from rota.daemon.membership import Care, Membership
from rota.daemon.reports import told
from rota.daemon.trainees import Team
from rota_trainer.messages import Report, Switch, to_json
from rota_trainer.reporting import BACKOFF_MAX_S
from tests.builders import Lab, cluster, job, live_job

A = JobId("a")
HEARTBEAT_S = 10.0


class House(Lab):
    """A kernel, its store and the desk. Commands reach the desk as the shell sends them."""

    trouble = ""

    def __init__(self, nodes: tuple[Node, ...] = cluster("1x4")) -> None:
        self.desk: Membership | None = None
        self.commands: list[Command] = []
        super().__init__(nodes, policy="elastic-fifo")
        self.open()

    def open(self) -> None:
        """A desk that knows nothing."""
        shell = cast(Any, self)
        care = Care(HEARTBEAT_S, replaces_stragglers=True)
        self.desk = Membership(shell, clock=lambda: self.now, care=care)

    def restart(self) -> None:
        self.open()
        self.recover()

    def _written(self, effects: Effects) -> list[Command]:
        commands = super()._written(effects)
        self.commands += commands
        for command in commands:
            if self.desk is not None:
                self.desk.order(command)
        return commands

    # -- what workers do ------------------------------------------------------------------------

    def report(self, worker: int, generation: int, **more: Any) -> Switch | None:
        """What a worker hears when it reports."""
        assert self.desk is not None
        here = {"address": f"127.0.0.1:{5000 + worker}", "identity": "same"}
        raw = to_json(Report(worker, 1, generation=generation, **{**here, **more}))
        found = self.job("a")
        self.desk.heard(found, told(raw, now=self.now))
        switch, _ = self.desk.orders(A, worker, attempt=found.attempt)
        return switch

    def refused(self, worker: int) -> str:
        assert self.desk is not None
        return self.desk.orders(A, worker, attempt=self.job("a").attempt)[1]

    def look(self, seconds: float = 0.0) -> list[Command]:
        """After so long, second by second; what the desk caused."""
        assert self.desk is not None
        before = len(self.commands)
        for _ in range(int(seconds)):
            self.wait(1.0)
            self.desk.look_around(self.now)
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


def test_a_fixed_job_that_trains_live_comes_together_as_well() -> None:
    house = House()
    house.run(job("a", gpus=2))
    house.report(0, -1)
    assert numbers(house.report(1, -1)) == [0, 1]


def test_who_outlives_a_death_does_not_wait_for_newcomers_that_are_on_their_way() -> None:
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


def test_who_outlives_a_leaver_does_not_wait_for_its_successor() -> None:
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


def test_growth_waits_for_the_newcomers_and_is_told_when_all_are_in() -> None:
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


def test_a_shrink_is_told_when_the_leavers_are_gone() -> None:
    house = shrinking()
    assert [numbers(house.report(worker, 0)) for worker in range(4)] == [[0, 1]] * 4
    house.report(0, 1)
    house.report(1, 1)
    assert house.is_joining()
    house.exited("a", 0, (2, 3))
    assert house.desk is not None
    house.report(0, 1)
    assert not house.is_joining()


def test_a_leaver_that_stays_is_ended_after_its_grace_period() -> None:
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
    assert house.reason("a") == "did not leave in time"


def test_a_newcomer_that_differs_is_refused_and_the_others_go_on() -> None:
    house = growing()
    house.report(0, 0)
    house.report(1, -1)
    house.report(2, -1)
    house.report(3, -1, identity="other")
    assert house.refused(3) == "it has other; the others have same"
    house.exited("a", 78, (3,), finding="it may not join")
    assert house.state("a") is State.RUNNING
    assert "could not join" in str(house.job("a").cap)
    assert "it may not join" in house.reason("a")
    assert numbers(house.report(0, 0)) == [0, 1, 2]


def test_a_death_breaks_the_generation_that_stands() -> None:
    house = training(4)
    house.exited("a", 137, (1,))
    switch = house.report(0, 0)
    assert numbers(switch) == [0, 2, 3]
    assert switch is not None
    assert switch.is_broken


def test_a_newcomer_that_dies_breaks_nothing() -> None:
    house = growing()
    house.report(0, 0)
    for worker in (1, 2, 3):
        house.report(worker, -1)
    house.exited("a", 137, (2,))
    switch = house.report(0, 0)
    assert numbers(switch) == [0, 1, 3]
    assert switch is not None
    assert not switch.is_broken


def test_a_newcomer_that_ends_well_and_never_came_is_not_waited_for() -> None:
    house = growing()
    house.report(0, 0)
    house.exited("a", 0, workers=(2,))
    assert house.look(1) == []
    house.wait(1)
    house.report(0, 0)
    house.look(1)
    assert house.reason("a") == "goes on without worker 2; ended before the others had met it"
    house.report(1, -1)
    assert numbers(house.report(3, -1)) == [0, 1, 3]
    for worker in (0, 1, 3):
        house.report(worker, 2)
    assert not house.is_joining()
    assert house.look(2) == []


def test_a_newcomer_that_came_and_finished_first_is_not_missed() -> None:
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


def test_a_program_that_knows_nothing_of_generations_is_told_so_once() -> None:
    house = House()
    house.run(live_job("a", gpus="1..4"))
    words: list[str] = []
    assert house.desk is not None
    house.desk.remark = lambda _job, told: words.append(told)
    house.look(300)
    house.restart()
    house.look(300)
    assert len(words) == 1
    assert "does not use rota_trainer.torch.live" in words[0]
    story = [each.transition.reason for each in house.store.story(A)]
    assert story.count(words[0]) == 1


def test_who_speaks_of_generations_is_told_nothing() -> None:
    house = training(1)
    for _ in range(200):
        house.report(0, 0)
        house.look(1)
    assert not any("live" in each.transition.reason for each in house.store.story(A))


def test_one_frozen_worker_is_ended_and_a_partition_ends_nobody() -> None:
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
    assert house.reason("a") == "said nothing for 10 s, and the others cannot go on"


def test_after_a_sleep_of_the_daemon_nobody_is_to_blame() -> None:
    house = training(4)
    assert house.desk is not None
    before = len(house.commands)
    house.wait(1000)
    house.report(0, 0)
    house.desk.look_around(house.now)
    assert house.commands[before:] == []


def test_after_a_restart_a_change_goes_on() -> None:
    house = growing()
    house.restart()
    house.report(0, 0)
    for worker in (1, 2):
        house.report(worker, -1)
    assert numbers(house.report(3, -1)) == [0, 1, 2, 3]


def test_what_was_committed_meanwhile_counts() -> None:
    house = growing()
    house.restart()
    for worker in range(4):
        assert house.report(worker, 1) is None
    assert not house.is_joining()


def test_after_a_restart_the_first_generation_is_given_if_nobody_is_in_it() -> None:
    house = House()
    house.run(live_job("a", gpus="1..4"))
    house.restart()
    for worker in range(3):
        assert house.report(worker, -1) is None
    assert numbers(house.report(3, -1)) == [0, 1, 2, 3]


def test_who_froze_before_a_restart_is_found_when_it_had_time_to_come_back() -> None:
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


def test_the_word_of_an_attempt_that_is_over_counts_for_nothing() -> None:
    house = training(4)
    house.exited("a", 75)
    assert house.state("a") is not State.RUNNING
    assert house.desk is not None
    house.desk.look_around(house.now + 1)
    assert house.desk.orders(A, 0, attempt=1) == (None, "")


def test_a_slow_worker_leaves_when_another_has_come_in_its_place() -> None:
    house = House()
    house.run(live_job("a", gpus=3))
    for generation in (-1, 0):
        for worker in range(3):
            house.report(worker, generation)
    assert house.desk is not None
    before, slow = len(house.commands), house.job("a").allocation[1]
    house.desk.replace_slow(A, 1, why="worker 1 takes twice as long")
    (change,) = house.commands[before:]
    assert isinstance(change, ChangeMembership)
    assert (change.workers, slow in change.allocation) == ((0, 3, 2), False)
    assert "worker 1 takes twice as long, and is replaced" in [
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


def test_where_there_is_no_room_a_slow_worker_is_ended_unless_the_others_are_too_few() -> None:
    house = training(4)
    assert house.desk is not None
    before = len(house.commands)
    house.desk.replace_slow(A, 2, why="worker 2 takes twice as long")
    assert house.commands[before:] == [KillWorkers(A, 1, (2,))]
    assert house.reason("a") == "worker 2 takes twice as long, and is replaced"
    alone = training(1)
    assert alone.desk is not None
    before = len(alone.commands)
    alone.desk.replace_slow(A, 0, why="worker 0 takes twice as long")
    assert alone.commands[before:] == []


def test_a_drained_machine_is_left_in_one_switch() -> None:
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


def test_what_is_measured_during_a_change_is_no_measure_of_either_size() -> None:
    house = growing()
    assert house.desk is not None
    assert house.desk.steady_since_s(house.job("a")) == math.inf
    house.wait(7)
    for worker in range(4):
        house.report(worker, 1)
    changed_at_s = house.now
    house.wait(5)
    house.report(0, 1)
    assert house.desk.steady_since_s(house.job("a")) == changed_at_s
    team = Team(1)
    records = [{"at_s": house.now, "number": n, "seconds": n} for n in (4, 5, 6)]
    raw = {"worker": 0, "sequence": 1, "epochs": records}
    team.note_epochs(told(raw, now=house.now), since_s=changed_at_s)
    assert team.epochs_s == [4, 5]
