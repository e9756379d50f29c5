"""What the object of a job says of it, and when that is worth another write."""

import pytest

from rota.daemon.outlook import Outlook
from rota.daemon.showing import shown_of
from rota.store.training_jobs import NOTHING_SHOWN, Shown

NOW = 1000.0


def test_why_how_far_and_until_when() -> None:
    note = ("SpecApplied", "Refused", "no")
    before = Shown(observed=3, notes=(note,))
    told = shown_of("waits", Outlook(0.12345, finish_s=2000.0), before=before, now=NOW)
    assert told == Shown("waits", 0.12, 2000.0, observed=3, notes=(note,))
    assert shown_of("", Outlook(), before=told, now=NOW) == before


@pytest.mark.parametrize(
    ("before_s", "finish_s", "told_s"),
    [
        (NOW + 100, NOW + 129, NOW + 100),
        (NOW + 100, NOW + 131, NOW + 131),
        (NOW + 10_000, NOW + 11_000, NOW + 10_000),
        (NOW + 10_000, NOW + 12_000, NOW + 12_000),
        (NOW + 10_000, NOW + 8_000, NOW + 8_000),
    ],
)
def test_an_end_that_is_about_the_same_is_not_told_again(
    before_s: float, finish_s: float, told_s: float
) -> None:
    before = Shown(finish_s=before_s)
    assert shown_of("", Outlook(finish_s=finish_s), before=before, now=NOW).finish_s == told_s
    assert shown_of("", Outlook(), before=NOTHING_SHOWN, now=NOW) == NOTHING_SHOWN
