"""Bars and percentages, also in ASCII."""

from __future__ import annotations

import io
import time
from collections.abc import Generator
from contextlib import redirect_stdout
from dataclasses import replace

import pytest

from rota.cli.output.format import clock_time, short_time, span, time_error
from rota.cli.output.jobs import columns, finish_time, job_object, job_table, remaining_time
from rota.cli.output.table import bar, cell_width, draw, percent, progress, to_output_charset
from tests.golden.fake_client import FAILED, NOW, QUEUED, RUNNING


class Screen(io.TextIOWrapper):
    """A terminal that speaks one encoding."""

    def __init__(self, encoding: str = "utf-8") -> None:
        super().__init__(io.BytesIO(), encoding=encoding)

    def isatty(self) -> bool:
        return True


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("part", "drawn", "plain"),
    [
        (0.0, "░░░░░░░░░░", "[..........]"),
        (0.45, "████▌░░░░░", "[####......]"),
        (0.999, "█████████▉", "[#########.]"),
        (1.0, "██████████", "[##########]"),
        (7.0, "██████████", "[##########]"),
        (-1.0, "░░░░░░░░░░", "[..........]"),
    ],
)
def test_bars(part: float, drawn: str, plain: str):
    assert (bar(part, is_ascii=False), bar(part, is_ascii=True)) == (drawn, plain)


def test_only_finished_work_is_100_percent():
    assert [percent(each) for each in (None, 0.0, 0.29, 0.9999, 1.0)] == [
        "-",
        "0%",
        "29%",
        "99%",
        "100%",
    ]


def test_only_terminals_get_bars():
    assert progress(0.45) == "45%"
    with redirect_stdout(Screen()):
        assert progress(0.45) == "████▌░░░░░  45%"
        assert progress(None) == "-"


def test_ascii_terminal_gets_ascii_signs():
    screen = Screen("ascii")
    with redirect_stdout(screen):
        lines = draw(columns([RUNNING], now=NOW))
        assert to_output_charset("±") == "+-"
    text = "\n".join(lines)
    assert text.isascii()
    assert "[####......]  45%" in text
    assert "+-6 min" in text


def test_columns_without_values_are_left_out():
    titles = [[each.title for each in columns(jobs, now=NOW)] for jobs in ([FAILED], [QUEUED])]
    first = ["id", "name", "user", "state", "gpus", "age", "running"]
    assert titles == [[*first, "reason"], [*first, "remaining", "finish", "reason"]]


@pytest.mark.parametrize(
    ("remaining_s", "error", "words"),
    [
        (100.0, 0.1, "~14:15:00 ±10 s"),
        (3000.0, 0.12, "~15:03 ±6 min"),
        (40_000.0, 0.3, "~Sep 22 01:20 ±3 h"),
        (20_000_000.0, 0.5, "~2027-05-11 ±116 d"),
        (1e30, 0.5, "-"),
        (0.0, 0.5, "~14:13:20 ±0 s"),
    ],
)
@pytest.mark.usefixtures("utc")
def test_a_finish_time_has_its_error(remaining_s: float, error: float, words: str):
    job = replace(RUNNING, remaining_s=remaining_s, finish_s=NOW + remaining_s, finish_error=error)
    assert finish_time(job, now=NOW) == words
    assert remaining_time(replace(RUNNING, remaining_s=4800.0)) == "1h20m ±10 min"


def test_spans_of_any_length():
    assert [span(each) for each in (1e30, 86400.0 * 9999)] == [">9999d", "9999d00h"]
    assert [time_error(each) for each in (0.2, 59.0, 60.0, 7200.0)] == [
        "1 s",
        "59 s",
        "1 min",
        "2 h",
    ]
    shown = [short_time(each) for each in (None, float("nan"), 0.0, 2e-7, 0.0124, 1.53, 247.0)]
    assert shown == ["-", "-", "0 s", "0.2 us", "12.4 ms", "1.53 s", "4m07s"]
    assert clock_time(NOW, NOW, error_s=60.0).count(":") == 1


@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_table_of_jobs_fits_the_terminal(monkeypatch: pytest.MonkeyPatch, width: int):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    lines = job_table([RUNNING, QUEUED, replace(FAILED, name="a-long-name" * 5)], now=NOW)
    assert max(map(cell_width, lines)) <= width
    heading = lines[0].split()
    assert heading[:2] == ["id", "name"]
    assert {"state", "gpus", "reason"} <= set(heading)


@pytest.mark.parametrize("width", [80, 120])
def test_a_reason_keeps_room_beside_a_long_name(monkeypatch: pytest.MonkeyPatch, width: int):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    job = replace(QUEUED, name="a-long-name" * 5, reason="waits for 2 GPUs: 3 running, 1 ahead")
    lines = job_table([job], now=NOW)
    assert cell_width(lines[-1]) <= width
    assert "a-long-name" in lines[-1]
    assert "waits for 2 GPUs: 3 running," in lines[-1]


def test_headings_are_names_of_the_json():
    titles = {each.title for each in columns([RUNNING, QUEUED], now=NOW)}
    names = {name.removesuffix("_s") for name in job_object(RUNNING)}
    assert titles <= names
