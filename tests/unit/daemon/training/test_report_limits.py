"""The trainer sends no number that the daemon's parser, which decides, would ignore."""

import math
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rota.daemon.jobs.admission import EPOCHS
from rota.daemon.training.report_parser import WorkerReport, parse_report
from rota_trainer.progress.csv_file import CsvFile
from rota_trainer.progress.observed import ProgressObserver, parse_progress
from rota_trainer.progress.tally import Tally
from rota_trainer.reporting.limits import LONGEST_S, MOST_EPOCHS
from rota_trainer.reporting.messages import EpochRecord, StepsRecord, TrainingReport, to_json

numbers = st.floats().map(str) | st.integers().map(str)
LIMITS = [MOST_EPOCHS, math.nextafter(MOST_EPOCHS, math.inf), LONGEST_S, 2 * LONGEST_S, 1e308]
NONSENSE = ["nan", "inf", "-inf", "-1", "0", "9" * 400, *map(str, LIMITS)]


def parsed(tally: Tally) -> WorkerReport:
    """The report that the trainer would send now, as the daemon reads it."""
    taken = tally.take()
    taken["steps"] = [StepsRecord(*each) for each in taken["steps"]]
    taken["epochs"] = [EpochRecord(*each) for each in taken["epochs"]]
    now = max([each.at_s for each in (*taken["steps"], *taken["epochs"])], default=0.0)
    return parse_report(to_json(TrainingReport(0, 1, **taken)), now=now)


@pytest.mark.parametrize("name", ["epoch", "epochs", "step", "steps", "loss"])
@pytest.mark.parametrize("text", NONSENSE)
def test_numbers_from_output_lines_are_valid_in_a_report(name: str, text: str) -> None:
    tally = Tally()
    ProgressObserver(tally).advance(parse_progress({name: text}))
    assert parsed(tally).faults == {}


@given(words=st.dictionaries(st.sampled_from(["epoch", "step", "steps", "loss"]), numbers))
def test_any_output_line_is_valid_in_a_report(words: dict[str, str | None]) -> None:
    tally = Tally()
    ProgressObserver(tally).advance(parse_progress(words, from_zero=True))
    assert parsed(tally).faults == {}


@pytest.mark.parametrize(
    "column", ["epoch", "total_epochs", "epoch_time_sec", "step_time_sec", "local_batch_size"]
)
@pytest.mark.parametrize("text", NONSENSE)
def test_numbers_from_csv_rows_are_valid_in_a_report(
    tmp_path: Path, column: str, text: str
) -> None:
    row = {"epoch": "0", "epoch_time_sec": "2.0", "step_time_sec": "1.0", "local_batch_size": "4"}
    row[column] = text
    file = tmp_path / "metrics.csv"
    file.write_text(f"{','.join(row)}\n{','.join(row.values())}\n")
    tally = Tally()
    observer = ProgressObserver(tally)
    for progress in CsvFile(str(file)).poll():
        observer.advance(progress)
    assert parsed(tally).faults == {}


@given(total=st.floats(min_value=1.0, max_value=MOST_EPOCHS))
@example(total=MOST_EPOCHS)
def test_every_submitted_number_of_epochs_is_valid_in_a_report(total: float) -> None:
    assert EPOCHS[1] == MOST_EPOCHS
    assert parsed(Tally(epochs_total=total)).epochs_total == total


@pytest.mark.parametrize("total", [math.nextafter(MOST_EPOCHS, math.inf), -1.0, math.nan, math.inf])
def test_daemon_ignores_other_numbers_of_epochs(total: float) -> None:
    found = parsed(Tally(epochs_total=total))
    assert (found.epochs_total, list(found.faults)) == (None, ["epochs_total"])
