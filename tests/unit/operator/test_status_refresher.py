"""The status of a TrainingJob, and when a change is worth a write."""

import pytest

from rota.daemon.jobs.eta import JobEta
from rota.operator.status_refresher import refreshed_status
from rota.store.kubernetes.crd_codec import NO_STATUS_DETAILS, StatusDetails

NOW = 1000.0


def test_reason_progress_and_expected_end() -> None:
    note = ("SpecApplied", "Refused", "no")
    before = StatusDetails(observed=3, notes=(note,))
    told = refreshed_status("waits", JobEta(0.12345, finish_s=2000.0), before=before, now=NOW)
    assert told == StatusDetails("waits", 0.12, 2000.0, observed=3, notes=(note,))
    assert refreshed_status("", JobEta(), before=told, now=NOW) == before


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
def test_a_similar_expected_end_is_not_published(
    before_s: float, finish_s: float, told_s: float
) -> None:
    before = StatusDetails(finish_s=before_s)
    assert (
        refreshed_status("", JobEta(finish_s=finish_s), before=before, now=NOW).finish_s == told_s
    )
    assert refreshed_status("", JobEta(), before=NO_STATUS_DETAILS, now=NOW) == NO_STATUS_DETAILS
