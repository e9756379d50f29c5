"""Bars, percentages, and what stands for them where signs are missing."""

from __future__ import annotations

import io
import time
from collections.abc import Generator
from contextlib import redirect_stdout
from dataclasses import replace

import pytest

from rota.cli.output.jobs import columns, finish, left
from rota.cli.output.marks import bar, percent, progress, told
from rota.cli.output.table import draw
from rota.cli.output.times import clock_time, give_or_take, short_time, span
from tests.golden.stand_in import FAILED, NOW, QUEUED, RUNNING


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
    assert (bar(part, plain=False), bar(part, plain=True)) == (drawn, plain)


def test_only_what_is_done_is_a_hundred_percent():
    assert [percent(each) for each in (None, 0.0, 0.29, 0.9999, 1.0)] == [
        "-",
        "0%",
        "29%",
        "99%",
        "100%",
    ]


def test_a_bar_is_for_terminals():
    assert progress(0.45) == "45%"
    with redirect_stdout(Screen()):
        assert progress(0.45) == "████▌░░░░░  45%"
        assert progress(None) == "-"


def test_ascii_is_enough_for_a_terminal_without_more():
    screen = Screen("ascii")
    with redirect_stdout(screen):
        lines = draw(columns([RUNNING], now=NOW))
        assert told("±") == "+-"
    text = "\n".join(lines)
    assert text.isascii()
    assert "[####......]  45%" in text
    assert "+-6 min" in text


def test_columns_that_nothing_is_known_for_are_left_out():
    titles = [[each.title for each in columns(jobs, now=NOW)] for jobs in ([FAILED], [QUEUED])]
    assert titles[0] == ["id", "name", "user", "state", "gpus", "age", "ran", "why"]
    assert titles[1] == ["id", "name", "user", "state", "gpus", "age", "ran", "left", "ends", "why"]


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
    assert finish(job, now=NOW) == words
    assert left(replace(RUNNING, remaining_s=4800.0)) == "1h20m ±10 min"


def test_spans_of_any_length():
    assert [span(each) for each in (1e30, 86400.0 * 9999)] == [">9999d", "9999d00h"]
    assert [give_or_take(each) for each in (0.2, 59.0, 60.0, 7200.0)] == [
        "1 s",
        "59 s",
        "1 min",
        "2 h",
    ]
    shown = [short_time(each) for each in (None, float("nan"), 0.0, 2e-7, 0.0124, 1.53, 247.0)]
    assert shown == ["-", "-", "0 s", "0.2 us", "12.4 ms", "1.53 s", "4m07s"]
    assert clock_time(NOW, NOW, error_s=60.0).count(":") == 1
