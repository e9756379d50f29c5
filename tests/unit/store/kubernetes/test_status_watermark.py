"""The watermark advances over jobs whose object has a status."""

from rota.core.model.job import JobId
from rota.store.kubernetes.status_watermark import ROW, StatusWatermark

A, B, C, D = map(JobId, "abcd")


def test_the_watermark_stays_below_a_job_without_status() -> None:
    watermark = StatusWatermark({ROW: A})
    assert watermark.covers(A)
    assert watermark.next_row() == {}
    watermark.expect([B, C, D])
    watermark.settle(C)
    assert watermark.next_row() == {}
    watermark.settle(B)
    assert watermark.next_row() == {ROW: C}
    assert not watermark.covers(C), "not acknowledged yet"
    watermark.acknowledge({ROW: C})
    assert watermark.covers(B)
    assert not watermark.covers(D)
    assert watermark.next_row() == {}


def test_an_older_job_does_not_move_the_watermark() -> None:
    watermark = StatusWatermark({ROW: C})
    watermark.expect([B])
    watermark.settle(B)
    assert watermark.next_row() == {}
