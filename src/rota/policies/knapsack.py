"""Divides GPUs between jobs so that their total value is maximal: the dynamic program of `ffdl`.

`best[x]` is the largest value that the jobs so far reach with at most x GPUs beyond their minima.
This is the paper's table without the columns that no division can reach.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.int32]
Places = NDArray[np.int64]

MAX_CELLS = 2**25
"""Choices that are kept in memory at a time: 128 MiB."""
FEW_SIZES = 8
"""Up to this many sizes, trying them one by one is as fast as any other way."""
MANY_SIZES = 256
"""Above this many sizes, trying them one by one takes too long, even where values are fractions."""
VALUE_DIGITS = 9
"""Values that differ only beyond this digit count as equal, because sums of fractions are
rounded."""


class Option(NamedTuple):
    """A job's speed-ups at its minimum and with 1, 2, ... more workers, of `cost` GPUs each.

    The value of a job is its speed-up in GPUs: a job with workers of two GPUs that is twice as fast
    on two workers counts as four.
    """

    speedups: Floats
    cost: int

    @property
    def most_gpus(self) -> int:
        return (len(self.speedups) - 1) * self.cost


def best_extras(options: Sequence[Option], room: int) -> list[int]:
    """The workers beyond its minimum for each job. Of two equal divisions, the one that gives less
    to later jobs.

    The choices of all jobs for all numbers of GPUs may need too much memory. Then the jobs are
    processed in blocks, and the choices of all blocks but the last are computed twice.
    """
    if not options:
        return []
    room = min(room, sum(option.most_gpus for option in options))
    n_jobs = max(1, MAX_CELLS // (room + 1))
    blocks = [options[start : start + n_jobs] for start in range(0, len(options), n_jobs)]
    tables = [np.zeros(room + 1)]
    for block in blocks[:-1]:
        best = tables[-1]
        for option in block:
            best, _ = _with_job(best, option)
        tables.append(best)
    extras: list[int] = []
    for block, best in zip(reversed(blocks), reversed(tables), strict=True):
        for option, choice in zip(reversed(block), reversed(_choices(block, best)), strict=True):
            extras.append(int(choice[room]))
            room -= extras[-1] * option.cost
    return extras[::-1]


def _choices(options: Sequence[Option], best: Floats) -> list[Counts]:
    choices: list[Counts] = []
    for option in options:
        best, choice = _with_job(best, option)
        choices.append(choice)
    return choices


def _with_job(best: Floats, option: Option) -> tuple[Floats, Counts]:
    """The table with one more job, and the job's workers beyond its minimum at each entry."""
    if _is_linear(option):
        gains = best - np.arange(len(best))
        if _is_whole(best):
            return _with_linear(best, option, gains=gains)
        if len(option.speedups) > MANY_SIZES:
            return _with_linear(best, option, gains=gains.round(VALUE_DIGITS))
    return _with_any(best, option)


def _is_linear(option: Option) -> bool:
    """Whether every additional GPU is worth exactly one, starting from a whole number."""
    speedups = option.speedups
    return (
        len(speedups) > FEW_SIZES
        and option.cost == 1
        and speedups[-1] - speedups[0] == len(speedups) - 1
        and float(speedups[0]).is_integer()
        and bool(np.all(np.diff(speedups) == 1.0))
    )


def _is_whole(best: Floats) -> bool:
    """Whether all values are whole. Then no sum is rounded, and equal divisions have equal sums in
    any order."""
    return bool(np.all(best == np.floor(best)))


def _with_any(best: Floats, option: Option) -> tuple[Floats, Counts]:
    """Add a job with any speed-ups. Only a strictly better size replaces a smaller one. A size with
    the same value as a smaller one is never better, because `best` never falls."""
    values: list[float] = (option.cost * option.speedups).tolist()
    with_job = values[0] + best
    choice = np.zeros(len(best), dtype=np.int32)
    highest = values[0]
    for extra, value in enumerate(values[1:], start=1):
        if value <= highest:
            continue
        highest = value
        shift = extra * option.cost
        rival = value + best[:-shift]
        is_better = rival > with_job[shift:]
        np.copyto(with_job[shift:], rival, where=is_better)
        np.copyto(choice[shift:], extra, where=is_better)
    return with_job, choice


def _with_linear(best: Floats, option: Option, *, gains: Floats) -> tuple[Floats, Counts]:
    """Add a job to which every GPU is worth one. At x, it leaves y GPUs to the other jobs, where y
    maximizes the gain `best[y] - y` between x minus the most that the job can take and x. Of
    several such y, the largest one gives the job the least."""
    width = len(option.speedups)
    never_rises = bool(np.all(gains[1:] <= gains[:-1]))
    left = _last_like_first(gains, width) if never_rises else _last_highest(gains, width)
    choice = np.arange(len(best)) - left
    return option.speedups[choice] + best[left], choice.astype(np.int32)


def _last_like_first(gains: Floats, width: int) -> Places:
    """For gains that never rise: the position of the highest of the `width` gains up to each
    position. The first gain in the window is the highest, and of equal gains the last one
    counts."""
    places = np.arange(len(gains))
    ends = np.flatnonzero(np.append(gains[1:] != gains[:-1], True))
    end_of_run = np.repeat(ends, np.diff(ends, prepend=-1))
    return np.minimum(end_of_run[np.maximum(places - (width - 1), 0)], places)


def _last_highest(gains: Floats, width: int) -> Places:
    """The same for any gains.

    A window covers parts of two neighbouring blocks of its width: the end of one and the start of
    the next. The highest gain up to each position of a block, and from there on, is computed for
    all blocks together (van Herk 1992, Gil and Werman 1993).
    """
    # An empty block comes first, for windows that would begin before the first gain.
    n_blocks = 1 - (-len(gains) // width)
    padded = np.full(n_blocks * width, -np.inf)
    padded[width : width + len(gains)] = gains
    blocks = padded.reshape(n_blocks, width)
    places = np.arange(padded.size).reshape(blocks.shape)
    up_to = _record_places(blocks, places)[width : width + len(gains)]
    # In reverse order a tie is no new record, so that the last one counts.
    back = _record_places(blocks[:, ::-1], places[:, ::-1], ties=False)
    onwards = back.reshape(blocks.shape)[:, ::-1].ravel()[1 : 1 + len(gains)]
    return np.where(padded[up_to] >= padded[onwards], up_to, onwards) - width


def _record_places(blocks: Floats, places: Places, *, ties: bool = True) -> Places:
    """The position of the highest value so far, at each step along each row."""
    highest = np.maximum.accumulate(blocks, axis=1)
    is_record = blocks == highest
    if not ties:
        is_record[:, 1:] = blocks[:, 1:] > highest[:, :-1]
    steps = np.arange(len(blocks[0]))
    latest = np.maximum.accumulate(is_record * steps, axis=1)
    return np.take_along_axis(places, latest, axis=1).ravel()
