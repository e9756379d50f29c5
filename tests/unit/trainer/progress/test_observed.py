"""Progress from output lines and CSV rows."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota_trainer.progress.csv_file import CsvFile
from rota_trainer.progress.observed import ProgressObserver, ProgressUpdate, parse_progress
from rota_trainer.progress.tally import Tally
from rota_trainer.wrapper import LONGEST_LINE, LineSplitter


@pytest.mark.parametrize(
    ("words", "progress"),
    [
        ({"epoch": "3", "epochs": "90", "loss": "1e-2"}, (3, 90, None, None, {"loss": 0.01})),
        ({"epoch": "3", "step": "10", "steps": "40"}, (2, None, 10, 40, {})),
        ({"epoch": "0", "step": "1"}, (0, None, 1, None, {})),
        ({"epoch": None, "loss": None}, (None, None, None, None, {})),
        ({"epoch": "-1", "loss": "nan", "accuracy": "."}, (None, None, None, None, {})),
        ({"epoch": "9" * 400, "steps": "1e300"}, (None, None, None, None, {})),
    ],
)
def test_invalid_numbers_are_ignored(
    words: dict[str, str | None], progress: tuple[object, ...]
) -> None:
    found = parse_progress(words)
    assert (found.epoch, found.epochs, found.step, found.steps, found.metrics) == progress


def test_programs_may_count_from_zero() -> None:
    assert parse_progress({"epoch": "0"}, from_zero=True).epoch == 1
    assert parse_progress({"epoch": "0", "step": "2"}, from_zero=True).epoch == 0


def test_steps_are_counted_between_two_lines() -> None:
    tally = Tally()
    observed = ProgressObserver(tally)
    for step in (5, 15, 25):
        observed.advance(ProgressUpdate(epoch=0, step=step, steps=100))
    taken = tally.take()
    assert sum(record[1] for record in taken["steps"]) == 20
    assert (taken["epochs_done"], taken["steps_done"]) == (0.25, 25)


def test_an_epoch_whose_length_is_not_known_is_not_recorded() -> None:
    tally = Tally()
    observed = ProgressObserver(tally)
    observed.advance(ProgressUpdate(epoch=1))
    observed.advance(ProgressUpdate(epoch=2))
    observed.advance(ProgressUpdate(epoch=7))
    observed.advance(ProgressUpdate(epoch=8, epoch_s=3.5, steps=10, samples=20))
    records = [record[1:] for record in tally.take()["epochs"]]
    assert [record[0] for record in records] == [2, 8]
    assert records[1] == (8, 3.5, 10, 20)


@given(st.lists(st.binary(max_size=30)))
def test_lines_do_not_depend_on_chunks(chunks: list[bytes]) -> None:
    in_parts, at_once = LineSplitter(), LineSplitter()
    parts = [line for chunk in chunks for line in in_parts.take(chunk)]
    whole = at_once.take(b"".join(chunks))
    assert parts + in_parts.rest() == whole + at_once.rest()


@pytest.mark.parametrize("size", [1, 1000, 10**6])
def test_a_long_line_is_cut(size: int) -> None:
    lines = LineSplitter()
    found = [line for _ in range(10**6 // size) for line in lines.take(b"x" * size)]
    assert found + lines.take(b"x\ny\n") == ["x" * LONGEST_LINE, "y"]


HEADER = "epoch,epoch_time_sec,step_time_sec,start_time,workers,total_epochs,local_batch_size,"
HEADER += "global_batch_size,loss,accuracy\n"
ROW = "{},12.5,0.25,2024-01-01 00:00:00.000001,2,90,32,64,0.5,0.75\n"


def test_rows_are_read_as_the_file_grows(tmp_path: Path) -> None:
    path = tmp_path / "job.csv"
    file = CsvFile(str(path))
    assert file.poll() == []
    path.write_text(HEADER + ROW.format(0)[:20])
    assert file.poll() == []
    path.write_text(HEADER + ROW.format(0) + ROW.format(1))
    metrics = {"loss": 0.5, "accuracy": 0.75}
    expected = [ProgressUpdate(n, 90.0, None, 50, 12.5, 1600, metrics) for n in (1, 2)]
    assert file.poll() == expected
    assert file.poll() == []


def test_replaced_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "job.csv"
    file = CsvFile(str(path))
    path.write_text("epoch,loss\n0,1\n1,2\n")
    assert [row.epoch for row in file.poll()] == [1, 2]
    path.write_text("loss,epoch\n5,0\n")
    assert [(row.epoch, row.metrics) for row in file.poll()] == [(1, {"loss": 5.0})]


@pytest.mark.parametrize(
    "junk",
    [
        *(b"\n\n", b"x,y\n", b"\xff\xfe\x00,1\n", b'"a\n', b"nan,1\n", b"-4,1\n", b",\n"),
        *(b"1e400,1\n", b"7" * 300_000 + b",1\n", b",".join([b"0"] * 10_000) + b"\n"),
    ],
)
def test_invalid_rows_are_ignored(
    junk: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.csv"
    path.write_bytes(b"epoch,loss\n3,1\n" + junk + junk + b"4,1\n")
    assert {row.epoch for row in CsvFile(str(path)).poll()} - {1} == {4, 5}
    assert capsys.readouterr().err.count("left out") <= 1


def test_header_without_epoch_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.csv"
    path.write_text("step,loss\n1,2\n")
    assert CsvFile(str(path)).poll() == []
    assert "names no column 'epoch'" in capsys.readouterr().err
