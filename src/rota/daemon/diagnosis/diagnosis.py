"""Finds the cause of a worker's failure in the end of its log. Pure functions.

The daemon calls `with_finding` on a `WorkersExited` event before the kernel gets the event. A
finding is a guess from text that the program itself wrote. It is shown to the job's owner and may
cause a retry; it must have no other effect.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from rota.core.model.events import WorkersExited
from rota.daemon.diagnosis.catalogue import FAILURES, KnownFailure
from rota.engines.exit_reasons import OUT_OF_MEMORY

TAIL_BYTES = 256 * 1024
"""How much of the end of a log is searched. Callers need not read more."""
MESSAGE_MAX = 120
HEAD_MAX = 40
"""How much of the beginning of a long message is kept, if its end is more important."""
NOT_FOUND_CODE = 127
FIRST = -1
"""The rank of a finding that explains all others."""
REFUSED_CODES = (125, 126, NOT_FOUND_CODE)
"""Exit codes of podman and docker: the tool failed, the program is not executable, or the program
is not in the image."""
REFUSALS = ("Error: ", "docker: ")
MAY_NOT_JOIN_CODE = 78
MAY_NOT_JOIN = "rota: this worker may not join: "
"""The line that `rota_trainer` prints in a live worker that is incompatible with the others."""
OTHER_STATE = "OtherStateError: "
"""The error of `rota_trainer` for a checkpoint that does not fit. The other workers then fail only
because they lose this one."""
TRACEBACK = "Traceback (most recent call last):"
ERROR = re.compile(r"[A-Za-z_][\w.]{0,99}(?:: |:?$)")
"""The beginning of the last line of a traceback: a class, perhaps with its module, then a
message."""
BAD_SYNTAX = ("SyntaxError: ", "IndentationError: ", "TabError: ")
"""Errors that Python prints without a traceback."""
RANK = re.compile(r"\[(?:rank|default)\d{1,6}\]: ?")
"""The prefix of torch and torchrun for each line of a worker."""
COLOUR = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]")
NAME = re.compile(r"\(([\w ]{1,20})\)")
"""A failure's name, which `Finding` appends to its message."""
MEMORY_HINT = "request more memory (`--memory`), use fewer data loaders, or load less data at once"
AGENT = "ChildFailedError"
"""The error of torchrun's own traceback, which follows those of its workers and adds nothing."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A known failure, or (without a name) the last error message of the program."""

    message: str
    name: str = ""
    hint: str = ""
    is_retriable: bool = False
    rank: int = len(FAILURES)
    """The index in the table. Of several findings, the lowest rank is the cause."""

    def __str__(self) -> str:
        return f"{self.message} ({self.name})" if self.name else self.message


def diagnose(tail: str, code: int) -> Finding | None:
    """The finding for a worker that exited with this code, from the end of its log."""
    if code == 0:
        return None
    tail = tail[-TAIL_BYTES:]
    if code == MAY_NOT_JOIN_CODE and MAY_NOT_JOIN in tail:
        why = tail.rpartition(MAY_NOT_JOIN)[2].splitlines()[:1]
        return Finding(one_line(f"worker may not join: {''.join(why)}"), rank=FIRST)
    if OTHER_STATE in tail:
        why = tail.rpartition(OTHER_STATE)[2].splitlines()[:1]
        return Finding(one_line("".join(why)), rank=FIRST)
    refusal = _refusal(_lines(tail)) if code in REFUSED_CODES else ""
    for rank, failure in enumerate(FAILURES):
        if _shows(failure, tail):
            # The message of a container tool has more detail than the failure's message.
            detail = f": {refusal}" if _shows(failure, refusal) else ""
            message, hint = failure.message + detail, failure.hint
            return Finding(message, failure.name, hint, failure.is_retriable, rank)
    message = _last_message(tail, code) or refusal
    return Finding(message) if message else None


def with_finding(exited: WorkersExited, found: Iterable[Finding | None]) -> WorkersExited:
    """The event, with the best of the findings in the logs of all workers: the first reported exit
    is not always the first failure."""
    best = min((each for each in found if each), key=lambda each: each.rank, default=None)
    if best is None:
        return exited
    is_retriable = exited.is_retriable or best.is_retriable
    return replace(exited, finding=str(best), is_retriable=is_retriable)


def hint_for(reason: str) -> str:
    """The hint for a failure, found by the stored reason of the job."""
    if OUT_OF_MEMORY in reason:
        return MEMORY_HINT
    names = NAME.findall(reason)
    return next((each.hint for each in FAILURES if each.name in names), "")


def _shows(failure: KnownFailure, text: str) -> bool:
    return any(each.is_in(text) for each in failure.matchers)


# -- the last error message of the program ------------------------------------------------------


def _last_message(tail: str, code: int) -> str:
    lines = _lines(tail)
    if error := _last_error(lines):
        return one_line(error)
    if code == NOT_FOUND_CODE and lines and lines[-1].endswith("not found"):
        return one_line(lines[-1])
    return ""


def _lines(tail: str) -> list[str]:
    return [RANK.sub("", COLOUR.sub("", line), count=1) for line in tail.splitlines()]


def _refusal(lines: list[str]) -> str:
    """The last message of a container tool about a container that it did not start. The cause is at
    the end of such a message, so the end of a long one is kept too."""
    last = next((line for line in reversed(lines) if line.startswith(REFUSALS)), "")
    clean = "".join(each for each in last if each.isprintable()).strip()
    if len(clean) <= MESSAGE_MAX:
        return clean
    return f"{clean[:HEAD_MAX]}...{clean[HEAD_MAX + 3 - MESSAGE_MAX :]}"


def _last_error(lines: list[str]) -> str:
    """The error of the last traceback, or the last syntax error."""
    error, is_in_traceback = "", False
    for line in lines:
        if line.endswith(TRACEBACK):
            is_in_traceback = True
        elif is_in_traceback and line and not line[0].isspace():
            is_in_traceback = False
            if ERROR.match(line) and AGENT not in line:
                error = line
        elif line.startswith(BAD_SYNTAX):
            error = line
    return error


def one_line(text: str) -> str:
    """The text on one line, printable, and cut to `MESSAGE_MAX` characters."""
    clean = "".join(each for each in text[: 4 * MESSAGE_MAX] if each.isprintable()).strip()
    return clean if len(clean) <= MESSAGE_MAX else clean[: MESSAGE_MAX - 3] + "..."
