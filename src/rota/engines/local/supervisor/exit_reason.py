"""Explain a worker's exit in words, where the exit code is not enough.

The supervisor calls this module when all processes of the worker have ended.
"""

from __future__ import annotations

import os
import resource
import signal
from typing import NamedTuple

from rota.engines.exit_reasons import OUT_OF_MEMORY
from rota.engines.local.supervisor.records import ExitRecord, WorkerSpec
from rota.engines.logfiles.writer import LogFile

AT_ONCE_S = 1.0
FIRST_SIGNAL_CODE = 128
REASON_CHARS_MAX = 300
"""Keeps the exit record within the space that is reserved for it (`ReservedFile`)."""


class MainProcessExit(NamedTuple):
    """The exit of the worker's main process. `code` is its exit code, or 128 + signal."""

    code: int
    is_signalled: bool
    cpu_s: float
    max_rss_bytes: int

    @classmethod
    def of_wait(cls, status: int, usage: resource.struct_rusage) -> MainProcessExit:
        code, cpu_s = os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime
        own = code if code >= 0 else FIRST_SIGNAL_CODE - code
        return cls(own, code < 0, cpu_s, usage.ru_maxrss * 1024)


def never_ran(exit_record: ExitRecord, exec_error: bytes) -> ExitRecord:
    """Return the record of a worker whose program did not run. `exec_error` is the message of
    `exec_worker`: code and reason."""
    code, _, words = exec_error.decode(errors="replace").partition(" ")
    return exit_record._replace(code=int(code), reason=_bounded(words))


def with_reason(
    exit_record: ExitRecord,
    spec: WorkerSpec,
    *,
    log: LogFile,
    is_signalled: bool,
    is_out_of_memory: bool,
) -> ExitRecord:
    """Return the record with a reason; empty if the exit code explains everything."""
    if is_out_of_memory:
        itself = f"{OUT_OF_MEMORY}: the limit is {size(spec.memory_bytes)}"
    else:
        itself = _main_process_reason(
            exit_record, is_signalled=is_signalled, is_silent=not log.n_bytes
        )
    words = [itself, _left_behind_reason(exit_record), *_output_reasons(log)]
    return exit_record._replace(reason=_bounded("; ".join(each for each in words if each)))


def _main_process_reason(exit_record: ExitRecord, *, is_signalled: bool, is_silent: bool) -> str:
    if exit_record.is_stopped:
        return "did not end within its grace period and was killed" if exit_record.is_killed else ""
    is_quick = exit_record.ended_s - exit_record.started_s < AT_ONCE_S
    when = " within a second of its start" if is_quick else ""
    if is_signalled:
        return f"ended by {_signal(exit_record.code - FIRST_SIGNAL_CODE)}{when}"
    if exit_record.code and is_quick:
        return f"exited{when} and wrote nothing" if is_silent else f"exited{when}"
    return ""


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _left_behind_reason(exit_record: ExitRecord) -> str:
    n = exit_record.n_left_behind
    if n == 0 or exit_record.is_stopped:
        return ""
    which = "1 process behind, which was" if n == 1 else f"{n} processes behind, which were"
    return f"left {which} {'killed' if exit_record.is_killed else 'ended'}"


def _output_reasons(log: LogFile) -> list[str]:
    words: list[str] = []
    if log.longest_line_bytes > log.file_bytes:
        words.append(
            f"wrote a line of {size(log.longest_line_bytes)}, which is longer than a log file"
        )
    if log.n_dropped_bytes:
        words.append(f"dropped {size(log.n_dropped_bytes)} of output: {log.problem}")
    return words


def size(n_bytes: float) -> str:
    """`100 MiB`, `1.5 GiB`."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if n_bytes < 1024:
            return f"{n_bytes:.4g} {unit}"
        n_bytes /= 1024
    return f"{n_bytes:.4g} TiB"


def _bounded(words: str) -> str:
    """Make the reason printable and short: it may contain names that a user chose."""
    clean = "".join(each if each.isprintable() else "?" for each in words[: 2 * REASON_CHARS_MAX])
    return clean if len(clean) <= REASON_CHARS_MAX else clean[: REASON_CHARS_MAX - 3] + "..."
