"""How far it is known that every object has a status."""

from rota.core.model import JobId
from rota.store.settled import ROW, Settled

A, B, C, D = map(JobId, "abcd")


def test_nothing_is_settled_past_a_job_without_a_status() -> None:
    settled = Settled({ROW: A})
    assert settled.covers(A)
    assert settled.due() == {}
    settled.expect([B, C, D])
    settled.settle(C)
    assert settled.due() == {}
    settled.settle(B)
    assert settled.due() == {ROW: C}
    assert not settled.covers(C), "nobody else knows it yet"
    settled.told({ROW: C})
    assert settled.covers(B)
    assert not settled.covers(D)
    assert settled.due() == {}


def test_what_is_older_than_the_mark_does_not_move_it() -> None:
    settled = Settled({ROW: C})
    settled.expect([B])
    settled.settle(B)
    assert settled.due() == {}
