import pytest

from rota.core.model.job import GpuShare
from rota.core.model.units import (
    GIB,
    ArrayRequest,
    GpuCount,
    format_bytes,
    format_seconds,
    parse_array,
    parse_bytes,
    parse_gpus,
    parse_seconds,
)


@pytest.mark.parametrize(
    ("text", "amount"),
    [("6GiB", 6 * GIB), ("512MB", 512 * 10**6), ("1.5KiB", 1536), ("42B", 42), (" 2 TiB ", 2**41)],
)
def test_amounts_of_memory(text: str, amount: int):
    assert parse_bytes(text) == amount


@pytest.mark.parametrize("text", ["", "GiB", "-1GiB", "6gib", "nan", "0", "0.1B", "9999999TiB"])
def test_bad_amounts_of_memory(text: str):
    with pytest.raises(ValueError, match="is not"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("2", GpuCount(2, 2, 2)),
        ("1..4", GpuCount(1, 4, 1)),
        ("1..4@2", GpuCount(1, 4, 2, is_start_given=True)),
        ("0", GpuCount(0, 0, 0)),
        ("0.5", GpuCount(1, 1, 1, GpuShare(fraction=0.5))),
        (".25", GpuCount(1, 1, 1, GpuShare(fraction=0.25))),
        ("6GiB", GpuCount(1, 1, 1, GpuShare(memory_bytes=6 * GIB))),
    ],
)
def test_numbers_of_gpus(text: str, count: GpuCount):
    assert parse_gpus(text) == count


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("4..2", "the minimum 4 is above the maximum 2"),
        ("2..4@5", "the requested 5 is not within 2..4"),
        ("2..4@1", "the requested 1 is not within 2..4"),
        ("0..4", "a range of GPUs must start at 1 or more"),
        ("1.5", "'1.5' is not a GPU share"),
        ("0.0", "'0.0' is not a GPU share"),
        ("100001", "100001 is above 100000"),
        ("-1", "'-1' is not a number of GPUs"),
        ("nan", "'nan' is not a number of GPUs"),
        ("two", "'two' is not a number of GPUs"),
        ("1e3", "'1e3' is not a number of GPUs"),
        ("6XB", "'6XB' is not an amount of memory"),
        ("\u0661", "is not a number of GPUs"),
    ],
)
def test_bad_numbers_of_gpus(text: str, message: str):
    with pytest.raises(ValueError, match=message):
        parse_gpus(text)


def test_an_amount_of_memory_without_a_unit_asks_for_one():
    with pytest.raises(ValueError, match="'6' is not clear: give a unit, as 6GiB or 6MB"):
        parse_bytes("6")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("90s", 90),
        ("15m", 900),
        ("1.5h", 5400),
        ("1d", 86400),
        ("1h30m", 5400),
        ("2d04h", 187200),
        ("1:30", 5400),
        ("01:30", 5400),
        ("1:30:05", 5405),
        ("100:00", 360000),
        ("2-12:00", 216000),
        ("2-12:00:30", 216030),
    ],
)
def test_times(text: str, seconds: float):
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "1:3", "1:60", ":30", "1:30:", "2-30:00", "30m1h", "1w"])
def test_bad_times(text: str):
    with pytest.raises(ValueError, match=r"is not a time; write 90s, 15m, 2h, 1d, 1h30m, 1:30"):
        parse_seconds(text)


def test_a_time_above_ten_years_is_refused():
    with pytest.raises(ValueError, match="is more than ten years"):
        parse_seconds("9999-00:00")


def test_an_empty_array_is_refused_in_words():
    with pytest.raises(ValueError, match="an array of 0 jobs is empty; write 1, or 0-0 for the"):
        parse_array("0")
    assert (parse_array("1").indices, parse_array("0-0").indices) == ((0,), (0,))


def test_an_array_may_limit_how_many_of_its_jobs_run_at_once():
    assert parse_array("0-3,8%2") == ArrayRequest((0, 1, 2, 3, 8), limit=2)


@pytest.mark.parametrize("text", ["4%", "4%0", "4%-1", "4%x", "4%1%2"])
def test_a_wrong_limit_of_an_array_is_refused(text: str):
    with pytest.raises(ValueError, match="is not a number of jobs, as in 0-99%8"):
        parse_array(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (90, "1m30s"), (7200, "2h"), (93784, "1d2h3m4s"), (0.25, "0.25s"), (61.5, "61.5s")],
)
def test_a_formatted_time_reads_as_the_same_time(seconds: float, text: str):
    assert format_seconds(seconds) == text
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize(
    ("count", "text"),
    [(1, "1B"), (1536, "1536B"), (2**10, "1KiB"), (6 * GIB, "6GiB"), (3 * 2**39, "1536GiB")],
)
def test_a_formatted_amount_of_memory_reads_as_the_same_amount(count: int, text: str):
    assert format_bytes(count) == text
    assert parse_bytes(text) == count
