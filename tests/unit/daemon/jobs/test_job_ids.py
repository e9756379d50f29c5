"""Ids grow, however the clock goes."""

from itertools import pairwise

from rota.daemon.ids import EPOCH_S, Ids, decode, encode


def test_ids_grow_with_time_and_within_a_moment():
    times = iter([EPOCH_S + 1.0, EPOCH_S + 1.0, EPOCH_S + 1.0, EPOCH_S + 0.5, EPOCH_S + 9.0])
    ids = Ids(lambda: next(times))
    given = [ids.next() for _ in range(5)]
    assert all(first < second for first, second in pairwise(given))
    assert len({len(each) for each in given}) == 1


def test_after_a_restart_they_go_on_from_the_newest():
    newest = encode(10**9)
    assert Ids(lambda: EPOCH_S, newest=newest).next() == encode(10**9 + 1)


def test_an_id_stands_for_its_number():
    assert [decode(encode(number)) for number in (0, 1, 31, 32, 2**40 - 1)] == [
        0,
        1,
        31,
        32,
        2**40 - 1,
    ]
