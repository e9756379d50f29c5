"""Parses the amounts that users write: GPUs, bytes, durations and array indices.

Every parser raises `ValueError` with a message that names the bad text and the expected form.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rota.core.model.job import GpuShare
from rota.errors import shown

GIB = 1024**3
UNITS = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": GIB,
    "TiB": 2**40,
}
MAX_BYTES = 2**60
MAX_GPUS = 100_000
GPUS_EXAMPLES = "write 2, 1..4, 1..4@2, 0.5 or 6GiB"
_BYTES = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*([A-Za-z]*)", re.ASCII)
_RANGE = re.compile(r"([0-9]{1,9})(?:\.\.([0-9]{1,9}))?(?:@([0-9]{1,9}))?", re.ASCII)
_FRACTION = re.compile(r"[0-9]*\.[0-9]+", re.ASCII)
_SECONDS = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)\s*([smhd]?)", re.ASCII)
_UNITS_OF_TIME = re.compile(
    r"(?:([0-9]{1,6})d)?(?:([0-9]{1,6})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,9})s)?", re.ASCII
)
_CLOCK = re.compile(r"(?:([0-9]{1,5})-)?([0-9]{1,5}):([0-5][0-9])(?::([0-5][0-9]))?", re.ASCII)
TIME_EXAMPLES = "90s, 15m, 2h, 1d, 1h30m, 1:30 (H:MM), 1:30:00 or 2-12:00 (D-HH:MM)"
_LIMIT = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)
_INDICES = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", re.ASCII)
SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
MAX_SECONDS = 10 * 365 * 86400
HOURS_OF_A_DAY = 24
MAX_ARRAY = 10_000


@dataclass(frozen=True, slots=True)
class GpuCount:
    """The GPUs of a whole job as a range and a requested number, or a share of one GPU."""

    least: int
    most: int
    requested: int
    share: GpuShare | None = None
    is_start_given: bool = False
    """Whether the user chose the size that the job starts with."""


@dataclass(frozen=True, slots=True)
class ArrayRequest:
    """The indices of an array, and how many of its jobs may run at once; 0: no limit."""

    indices: tuple[int, ...]
    limit: int = 0


def parse_bytes(text: str) -> int:
    """Parse `6GiB` or `512MB`. A number needs a unit: `6` could mean bytes or gigabytes."""
    found = _BYTES.fullmatch(text.strip())
    if found is not None and not found.group(2):
        number = found.group(1)
        raise ValueError(f"'{shown(text)}' is not clear: give a unit, as {number}GiB or {number}MB")
    unit = found.group(2) if found else ""
    if found is None or unit not in UNITS:
        raise ValueError(f"'{shown(text)}' is not an amount of memory like 6GiB")
    amount = int(float(found.group(1)) * UNITS[unit])
    if not 0 < amount <= MAX_BYTES:
        raise ValueError(f"'{shown(text)}' is not between 1 B and {MAX_BYTES // 2**40} TiB")
    return amount


def parse_gpus(text: str) -> GpuCount:
    """Parse `2`, `1..4`, `1..4@2` (GPUs), `0.5` or `6GiB` (a share of one GPU), or `0` (none)."""
    found = _RANGE.fullmatch(text)
    if found is not None:
        return _range(found)
    if _FRACTION.fullmatch(text):
        fraction = float(text)
        if not 0 < fraction < 1:
            raise ValueError(f"'{shown(text)}' is not a GPU share: a share is between 0 and 1")
        return GpuCount(1, 1, 1, GpuShare(fraction=fraction))
    if text and text[0].isdigit() and text[-1] == "B":
        return GpuCount(1, 1, 1, GpuShare(memory_bytes=parse_bytes(text)))
    raise ValueError(f"'{shown(text)}' is not a number of GPUs")


def _range(found: re.Match[str]) -> GpuCount:
    low = int(found[1])
    high = int(found[2]) if found[2] else low
    wanted = int(found[3]) if found[3] else low
    if low > high:
        raise ValueError(f"the minimum {low} is above the maximum {high}")
    if not low <= wanted <= high:
        raise ValueError(f"the requested {wanted} is not within {low}..{high}")
    if low == 0 < high:
        raise ValueError("a range of GPUs must start at 1 or more")
    if high > MAX_GPUS:
        raise ValueError(f"{high} is above {MAX_GPUS}, the most GPUs that a job may request")
    return GpuCount(low, high, wanted, is_start_given=bool(found[3]))


def parse_seconds(text: str) -> float:
    """Parse a time: `90` and `90s` (seconds), `15m`, `1.5h`, `1d`, `1h30m`, `1:30` (H:MM),
    `1:30:00` (H:MM:SS) or `2-12:00` (D-HH:MM)."""
    seconds = _seconds(text.strip())
    if seconds is None:
        raise ValueError(f"'{shown(text)}' is not a time; write {TIME_EXAMPLES}")
    if seconds > MAX_SECONDS:
        raise ValueError(f"'{shown(text)}' is more than ten years")
    return seconds


def _seconds(text: str) -> float | None:
    if found := _SECONDS.fullmatch(text):
        return float(found.group(1)) * SECONDS[found.group(2)]
    if text and (found := _UNITS_OF_TIME.fullmatch(text)):
        days, hours, minutes, seconds = (int(each or 0) for each in found.groups())
        return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
    if found := _CLOCK.fullmatch(text):
        days, hours, minutes, seconds = (int(each or 0) for each in found.groups())
        if days and hours >= HOURS_OF_A_DAY:
            return None
        return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
    return None


def format_seconds(seconds: float) -> str:
    """A time as `parse_seconds` reads it, in the fewest units: `90s` is `1m30s`."""
    rest, parts = seconds, list[str]()
    for unit in ("d", "h", "m"):
        count, rest = divmod(rest, SECONDS[unit])
        parts += [f"{count:.0f}{unit}"] if count else []
    if rest != int(rest):
        return f"{seconds:.9g}s"
    parts += [f"{rest:.0f}s"] if rest or not parts else []
    return "".join(parts)


def format_bytes(count: int) -> str:
    """An amount of memory as `parse_bytes` reads it, in the largest unit that divides it."""
    units = [unit for unit in ("TiB", "GiB", "MiB", "KiB") if count % UNITS[unit] == 0]
    return f"{count // UNITS[units[0]]}{units[0]}" if count and units else f"{count}B"


def parse_array(text: str) -> ArrayRequest:
    """Parse `10` (0 to 9), `3-7`, `1,5,9` or `0-3,8` into indices, each once, in the given order.
    `%8` at the end: at most 8 of the jobs run at once."""
    text, has_limit, limit = text.partition("%")
    if has_limit and not _LIMIT.fullmatch(limit):
        raise ValueError(f"'{shown(limit)}' is not a number of jobs, as in 0-99%8")
    if text.isascii() and text.isdigit():
        if not int(text[:9]):
            raise ValueError("an array of 0 jobs is empty; write 1, or 0-0 for the index 0")
        text = f"0-{int(text[:9]) - 1}"
    indices: dict[int, None] = {}
    for part in text.split(","):
        found = _INDICES.fullmatch(part.strip())
        low = int(found[1]) if found else 0
        high = int(found[2] or found[1]) if found else -1
        if high < low:
            raise ValueError(f"'{shown(part)}' is not a list of indices like 10, 0-9 or 1,5,9")
        if len(indices) + high - low >= MAX_ARRAY:
            raise ValueError(f"the array has more than {MAX_ARRAY} indices")
        indices.update(dict.fromkeys(range(low, high + 1)))
    return ArrayRequest(tuple(indices), int(limit or 0))
