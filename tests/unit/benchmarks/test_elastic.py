"""Times of a resize and the results page, with made-up values."""

from pathlib import Path

import pytest

from benchmarks.elastic import __main__, ways
from benchmarks.elastic.journal import Change, Stamp, change, hooks_s, rate_mb_s, read
from benchmarks.elastic.measurement import Measured
from benchmarks.support.markdown import NO_VALUE


def step(at_s: float, size: int) -> Stamp:
    return Stamp(at_s, "step", (size, 0))


STEPS = [step(9, 1), step(10, 1), step(13, 2), step(14, 2), step(20, 1)]


def test_pause_is_measured_between_sizes() -> None:
    grown = change(STEPS, decided_s=9.5, sizes=(1, 2))
    assert grown == Change(pause_s=3, decided_s=3.5, own_s=0)
    assert change(STEPS, decided_s=14.5, sizes=(2, 1)) == Change(6, 5.5, 0)
    with pytest.raises(ValueError, match="no step with 2"):
        change(STEPS, decided_s=14.5, sizes=(1, 2))


@pytest.mark.parametrize(
    ("began_s", "ready_s", "own_s"),
    [
        (10.5, 12.5, 2.0),
        pytest.param(9.6, 12.5, 2.5, id="in part while the others still trained"),
        pytest.param(9.6, 9.9, 0.0, id="wholly in the background"),
        pytest.param(1.0, 5.0, 0.0, id="before the decision"),
    ],
)
def test_only_a_start_within_the_pause_counts(began_s: float, ready_s: float, own_s: float) -> None:
    stamps = [*STEPS, Stamp(ready_s, "ready", (began_s,))]
    assert change(stamps, decided_s=9.5, sizes=(1, 2)).own_s == own_s


def test_incomplete_line_is_ignored(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    assert read(journal) == []
    journal.write_text("9.0 step 1 0\n10.0 st")
    assert read(journal) == [step(9, 1)]


def test_medians_of_rate_and_hooks() -> None:
    steps = [0.1, 0.1, 0.1, 0.5] * 8 + [9.0] * 16
    stamps = [Stamp(0, "hooks", (2, each, each / 2)) for each in steps]
    stamps += [Stamp(0, "received", (5e6, 0.5)), Stamp(0, "received", (0, 0.1))]
    assert hooks_s(stamps, size=2) == pytest.approx((0.2, 0.1))
    assert hooks_s(stamps, size=1) is None
    assert rate_mb_s(stamps) == 10
    assert rate_mb_s([]) is None


def test_page_compares_measured_methods() -> None:
    live = Measured([Change(0.25, 5, 0)] * 3, [Change(0.125, 1, 0)], 100.0, (0.001, 0.0004))
    etcd = Measured([Change(10, 20, 6)])
    text = __main__.render(
        {ways.LIVE: live, ways.ETCD: etcd}, ["a boat, which needs water"], load=""
    )
    assert "| live | grows | 0.25 | 0.00 | 0.25 | 5.00 | 3 |" in text
    assert "| torchrun, etcd | shrinks" not in text
    assert "| over 10 | 40.0 |" in text
    assert f"| under 3 s | {NO_VALUE} |" in text
    assert "0.80% of the processor, 2.00% by the clock" in text
    assert "Not measured: a boat, which needs water." in text


def test_names_of_methods_may_contain_commas() -> None:
    assert __main__.chosen("live; torchrun, etcd") == [ways.LIVE, ways.ETCD]
    with pytest.raises(SystemExit, match="no such way: a boat; there are live;"):
        __main__.chosen("a boat")
