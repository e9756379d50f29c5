import pytest

from rota.core.model.job import GpuShare
from rota.core.model.units import GIB, GpuCount, parse_bytes, parse_gpus


@pytest.mark.parametrize(
    ("text", "amount"),
    [("6GiB", 6 * GIB), ("512MB", 512 * 10**6), ("1.5KiB", 1536), ("42", 42), (" 2 TiB ", 2**41)],
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
        ("1..4@2", GpuCount(1, 4, 2)),
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
