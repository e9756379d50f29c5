"""The order of jobs in the queue."""

from itertools import pairwise

from rota.core.model.rank import rank_of
from tests.unit.core.view_builders import job


def test_ranks_are_totally_ordered_by_priority_then_time_then_id() -> None:
    jobs = [
        job("urgent", priority=1, submitted_s=9.0),
        job("early", submitted_s=1.0),
        job("a", submitted_s=2.0),
        job("b", submitted_s=2.0),
        job("idle", priority=-1),
    ]
    ranks = [rank_of(each) for each in jobs]
    assert all(before < after for before, after in pairwise(ranks))


def test_a_job_outranks_others_by_its_tier_and_not_by_its_time() -> None:
    early, late = rank_of(job("early")), rank_of(job("late", submitted_s=5.0))
    urgent = rank_of(job("urgent", priority=1, submitted_s=9.0))
    assert early < late
    assert not early.outranks(late)
    assert urgent.outranks(early)
    assert not early.outranks(urgent)
