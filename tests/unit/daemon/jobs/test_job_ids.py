"""Ids increase, also if the clock goes back."""

from itertools import pairwise

from rota.daemon.jobs.job_ids import EPOCH_S, JobIdGenerator, decode, encode


def test_ids_grow_with_time_and_within_a_moment():
    times = iter([EPOCH_S + 1.0, EPOCH_S + 1.0, EPOCH_S + 1.0, EPOCH_S + 0.5, EPOCH_S + 9.0])
    ids = JobIdGenerator(lambda: next(times))
    given = [ids.next() for _ in range(5)]
    assert all(first < second for first, second in pairwise(given))
    assert len({len(each) for each in given}) == 1


def test_after_a_restart_ids_continue_from_the_newest():
    newest = encode(10**9)
    assert JobIdGenerator(lambda: EPOCH_S, newest=newest).next() == encode(10**9 + 1)


def test_an_id_encodes_a_number():
    assert [decode(encode(number)) for number in (0, 1, 31, 32, 2**40 - 1)] == [
        0,
        1,
        31,
        32,
        2**40 - 1,
    ]
