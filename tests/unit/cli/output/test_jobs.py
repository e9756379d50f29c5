"""Details of one job."""

from dataclasses import replace

import pytest

from rota.cli.output.jobs import details_lines
from tests.golden.fake_client import DETAILS


@pytest.mark.parametrize(("count", "words"), [(1.0, "1 epoch"), (0.5, "0.5 epochs"), (0.0, None)])
def test_epochs_singular_and_plural(count: float, words: str | None) -> None:
    told = [
        line
        for line in details_lines(replace(DETAILS, epochs_saved=count))
        if line.startswith("epochs_saved")
    ]
    assert [line.split("  ")[-1].strip() for line in told] == ([words] if words else [])


def test_zero_durations_are_left_out() -> None:
    names = [line.split("  ")[0] for line in details_lines(replace(DETAILS, gpu_s=0.4))]
    assert "gpu_s" not in names
