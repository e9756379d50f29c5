"""What is said of one job."""

from dataclasses import replace

import pytest

from rota.cli.output.details import lines
from tests.golden.stand_in import DETAILS


@pytest.mark.parametrize(("count", "words"), [(1.0, "1 epoch"), (0.5, "0.5 epochs"), (0.0, None)])
def test_epochs_are_counted_as_people_do(count: float, words: str | None) -> None:
    told = [line for line in lines(replace(DETAILS, epochs_saved=count)) if line[:5] == "saved"]
    assert [line.split("  ")[-1].strip() for line in told] == ([words] if words else [])


def test_no_time_at_all_is_not_worth_a_line() -> None:
    names = [line.split("  ")[0] for line in lines(replace(DETAILS, gpu_s=0.4))]
    assert "GPU time" not in names
