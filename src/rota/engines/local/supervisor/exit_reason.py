"""How a worker's end is put into words: all that its exit code does not say.

Called by the keeper when everything has ended.
"""

from __future__ import annotations

import os
import resource
import signal
from typing import NamedTuple

from rota.engines.local.order import Ending, Order
from rota.engines.logfiles.writing import LogFile
from rota.engines.words import OUT_OF_MEMORY

AT_ONCE_S = 1.0
FIRST_SIGNAL_CODE = 128
REASON_CHARS_MAX = 300
"""So that the words fit into the space that is reserved for them, whatever they are made of."""


class Main(NamedTuple):
    """How the worker's first process ended. `code` is its own, or 128 + signal."""

    code: int
    is_signalled: bool
    cpu_s: float
    max_rss_bytes: int

    @classmethod
    def of_wait(cls, status: int, usage: resource.struct_rusage) -> Main:
        code, cpu_s = os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime
        own = code if code >= 0 else FIRST_SIGNAL_CODE - code
        return cls(own, code < 0, cpu_s, usage.ru_maxrss * 1024)


def never_ran(ending: Ending, complaint: bytes) -> Ending:
    """`complaint` is the code and the words that `child.py` left instead of running a program."""
    code, _, words = complaint.decode(errors="replace").partition(" ")
    return ending._replace(code=int(code), reason=_bounded(words))


def in_words(
    ending: Ending, order: Order, *, log: LogFile, is_signalled: bool, is_out_of_memory: bool
) -> Ending:
    """The reason stays empty for an end that its code tells in full."""
    if is_out_of_memory:
        itself = f"{OUT_OF_MEMORY}: the limit is {size(order.memory_bytes)}"
    else:
        itself = _of_itself(ending, is_signalled=is_signalled, is_silent=not log.n_bytes)
    words = [itself, _of_the_rest(ending), *_of_output(log)]
    return ending._replace(reason=_bounded("; ".join(each for each in words if each)))


def _of_itself(ending: Ending, *, is_signalled: bool, is_silent: bool) -> str:
    if ending.is_stopped:
        return "did not end within its grace period and was killed" if ending.is_killed else ""
    is_quick = ending.ended_s - ending.started_s < AT_ONCE_S
    when = " within a second of its start" if is_quick else ""
    if is_signalled:
        return f"ended by {_signal(ending.code - FIRST_SIGNAL_CODE)}{when}"
    if ending.code and is_quick:
        return f"exited{when} and wrote nothing" if is_silent else f"exited{when}"
    return ""


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _of_the_rest(ending: Ending) -> str:
    n = ending.n_left_behind
    if n == 0 or ending.is_stopped:
        return ""
    which = "1 process behind, which was" if n == 1 else f"{n} processes behind, which were"
    return f"left {which} {'killed' if ending.is_killed else 'ended'}"


def _of_output(log: LogFile) -> list[str]:
    words: list[str] = []
    if log.longest_line_bytes > log.file_bytes:
        words.append(
            f"wrote a line of {size(log.longest_line_bytes)}, which is longer than a log file"
        )
    if log.n_dropped_bytes:
        words.append(f"{size(log.n_dropped_bytes)} of output were dropped: {log.problem}")
    return words


def size(n_bytes: float) -> str:
    """`100 MiB`, `1.5 GiB`."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if n_bytes < 1024:
            return f"{n_bytes:.4g} {unit}"
        n_bytes /= 1024
    return f"{n_bytes:.4g} TiB"


def _bounded(words: str) -> str:
    """The words may hold what a user named: a program, a folder, a PATH."""
    clean = "".join(each if each.isprintable() else "?" for each in words[: 2 * REASON_CHARS_MAX])
    return clean if len(clean) <= REASON_CHARS_MAX else clean[: REASON_CHARS_MAX - 3] + "..."
