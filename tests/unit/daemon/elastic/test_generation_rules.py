"""The rules for generations of live jobs."""

from dataclasses import replace

import pytest

from rota.daemon.elastic import generation_rules
from rota.daemon.elastic.generation_rules import DesiredGeneration, MemberState
from rota_trainer.reporting.messages import Member

NOW = 1000.0
HEARTBEAT_S = 10.0
TRAINS = MemberState(generation=1, address="127.0.0.1:5000", identity="torch 2", heard_at_s=NOW)
READY = replace(TRAINS, generation=-1)
WANTED = DesiredGeneration(attempt=1, generation=2, numbers=(0, 1))


def address(said: MemberState, port: int) -> MemberState:
    return replace(said, address=f"127.0.0.1:{port}")


def test_a_switch_waits_for_all_and_keeps_their_order() -> None:
    wanted = replace(WANTED, numbers=(4, 0, 2))
    said = {0: address(TRAINS, 1), 4: address(TRAINS, 2)}
    assert generation_rules.switch_to(wanted, said, is_broken=True) is None
    assert generation_rules.switch_to(wanted, {**said, 2: MemberState()}, is_broken=True) is None
    switch = generation_rules.switch_to(wanted, {**said, 2: address(READY, 3)}, is_broken=True)
    assert switch is not None
    assert (switch.generation, switch.is_broken) == (2, True)
    assert switch.members == [
        Member(4, "127.0.0.1:2"),
        Member(0, "127.0.0.1:1"),
        Member(2, "127.0.0.1:3"),
    ]


def test_a_newcomer_that_differs_is_refused_and_holds_up_the_switch() -> None:
    other = replace(READY, identity="torch 3")
    said = {0: TRAINS, 1: other}
    assert generation_rules.refusals(WANTED, said) == {1: "it has torch 3; the others have torch 2"}
    assert generation_rules.switch_to(WANTED, said, is_broken=False) is None


def test_a_refusal_names_what_differs_and_nothing_else() -> None:
    trains = replace(TRAINS, identity="code 1, torch 2, dataset of 64")
    other = replace(READY, identity="code 1, torch 3, dataset of 63")
    words = "it has torch 3, dataset of 63; the others have torch 2, dataset of 64"
    assert generation_rules.refusals(WANTED, {0: trains, 1: other}) == {1: words}


def test_training_worker_is_never_refused() -> None:
    other = replace(READY, identity="torch 3")
    wanted = replace(WANTED, numbers=(0, 1, 2))
    assert set(generation_rules.refusals(wanted, {0: TRAINS, 1: other, 2: other})) == {1, 2}


def test_first_generation_refuses_none_before_all_are_ready() -> None:
    wanted = DesiredGeneration(1, 0, (0, 1, 2))
    said = {0: replace(READY, identity="torch 3"), 1: READY}
    assert generation_rules.refusals(wanted, said) == {}
    assert set(generation_rules.refusals(wanted, {**said, 2: READY})) == {0}


def test_identity_of_a_removed_worker_is_ignored() -> None:
    leaver = replace(TRAINS, identity="torch 3")
    assert generation_rules.refusals(WANTED, {0: TRAINS, 1: READY, 7: leaver}) == {}


def test_generation_has_formed_when_all_members_are_in_it() -> None:
    there = replace(TRAINS, generation=2)
    assert not generation_rules.has_formed(WANTED, {0: there}, finished=())
    assert not generation_rules.has_formed(WANTED, {0: there, 1: TRAINS}, finished=())
    assert generation_rules.has_formed(WANTED, {0: there, 1: there}, finished=())
    assert generation_rules.has_formed(WANTED, {0: there}, finished=(1,))
    assert not generation_rules.has_formed(WANTED, {}, finished=(0, 1))


def test_pause_is_the_longest_of_staying_workers() -> None:
    there = replace(TRAINS, generation=2)
    said = {
        0: replace(there, pause_s=0.2),
        1: replace(there, pause_s=0.4),
        2: replace(there, pause_s=9.0),
        3: replace(TRAINS, pause_s=5.0),
    }
    wanted = replace(WANTED, numbers=(0, 1, 2, 3))
    assert generation_rules.pause_s(wanted, said, before=(0, 1, 3)) == 0.4
    assert generation_rules.pause_s(wanted, said, before=()) is None


def quiet(said: MemberState) -> MemberState:
    return replace(said, heard_at_s=NOW - HEARTBEAT_S - 1)


def moved(said: MemberState, ago_s: float) -> MemberState:
    return replace(said, advanced_at_s=NOW - ago_s)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        pytest.param({0: moved(TRAINS, 20), 1: quiet(TRAINS)}, {1}, id="holds up the other"),
        pytest.param({0: moved(TRAINS, 1), 1: quiet(TRAINS)}, set(), id="the other gets on"),
        pytest.param({0: quiet(TRAINS), 1: quiet(TRAINS)}, set(), id="all silent: partition"),
        pytest.param(
            {0: moved(TRAINS, 20), 1: quiet(READY)}, {1}, id="a newcomer that is waited for"
        ),
        pytest.param({0: quiet(TRAINS), 1: moved(READY, 20)}, set(), id="a newcomer cannot tell"),
        pytest.param({0: quiet(READY), 1: moved(READY, 20)}, {0}, id="before the first step"),
        pytest.param(
            {0: moved(TRAINS, 20), 1: quiet(TRAINS), 2: quiet(TRAINS)}, {1, 2}, id="two at once"
        ),
        pytest.param({0: moved(TRAINS, 20), 1: moved(TRAINS, 20)}, set(), id="a long step"),
    ],
)
def test_silent_workers(said: dict[int, MemberState], expected: set[int]) -> None:
    found = generation_rules.silent(said, now=NOW, heartbeat_s=HEARTBEAT_S)
    assert found == expected
