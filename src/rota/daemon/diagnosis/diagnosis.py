"""Why a worker failed, as far as its log shows: from the log's last part to a finding in words.

Pure. The daemon calls `with_finding` on the fact that workers exited, before the kernel hears of
it. A finding is a guess from words that the program wrote itself: it is told to its owner and may
earn the job another try, and nothing else rests on it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from rota.core.events import WorkersExited
from rota.daemon.failures import FAILURES, Failure
from rota.engines.words import OUT_OF_MEMORY

TAIL_BYTES = 256 * 1024
"""How much of the end of a log is looked at. A caller need not read more."""
WORDS_MAX = 120
HEAD_MAX = 40
"""Of a message that is too long and ends with what counts."""
NOT_FOUND_CODE = 127
FIRST = -1
"""The rank of a finding that explains all others."""
REFUSED_CODES = (125, 126, NOT_FOUND_CODE)
"""Podman's and docker's own: they failed, or the program may not be run, or is not in the image."""
REFUSALS = ("Error: ", "docker: ")
MAY_NOT_JOIN_CODE = 78
MAY_NOT_JOIN = "rota: this worker may not join: "
"""How a live worker says that it does not fit to the others."""
OTHER_STATE = "OtherStateError: "
"""How our library refuses a checkpoint; the other workers then only lose one of them."""
TRACEBACK = "Traceback (most recent call last):"
ERROR = re.compile(r"[A-Za-z_][\w.]{0,99}(?:: |:?$)")
"""How the last line of a traceback begins: a class, perhaps of a module, and its message."""
BAD_SYNTAX = ("SyntaxError: ", "IndentationError: ", "TabError: ")
"""Python says these about the program itself, without a traceback."""
RANK = re.compile(r"\[(?:rank|default)\d{1,6}\]: ?")
"""What torch and torchrun put before each line of a worker."""
COLOUR = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]")
NAME = re.compile(r"\(([\w ]{1,20})\)")
"""A failure's name, as `Finding` puts it behind its words."""
MEMORY_HINT = "more memory: `--memory`; or fewer data loaders, or less of the data at once"
AGENT = "ChildFailedError"
"""Torchrun's own traceback below those of its workers says nothing that they do not."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A failure with a name, or (without one) the program's own last words."""

    words: str
    name: str = ""
    hint: str = ""
    is_retriable: bool = False
    rank: int = len(FAILURES)
    """Its place in the table: of several findings, the lowest is the cause."""

    def __str__(self) -> str:
        return f"{self.words} ({self.name})" if self.name else self.words


def diagnose(tail: str, code: int) -> Finding | None:
    """What the end of a worker's log says about its exit with this code."""
    if code == 0:
        return None
    tail = tail[-TAIL_BYTES:]
    if code == MAY_NOT_JOIN_CODE and MAY_NOT_JOIN in tail:
        why = tail.rpartition(MAY_NOT_JOIN)[2].splitlines()[:1]
        return Finding(printable(f"it may not join: {''.join(why)}"), rank=FIRST)
    if OTHER_STATE in tail:
        why = tail.rpartition(OTHER_STATE)[2].splitlines()[:1]
        return Finding(printable("".join(why)), rank=FIRST)
    refusal = _refusal(_lines(tail)) if code in REFUSED_CODES else ""
    for rank, failure in enumerate(FAILURES):
        if _shows(failure, tail):
            # A container tool's own message says more than the failure's name.
            said = f": {refusal}" if _shows(failure, refusal) else ""
            words, hint = failure.words + said, failure.hint
            return Finding(words, failure.name, hint, failure.is_retriable, rank)
    words = _last_words(tail, code) or refusal
    return Finding(words) if words else None


def with_finding(exited: WorkersExited, tails: Mapping[int, str]) -> WorkersExited:
    """The fact, with what the logs say. `tails` may hold the logs of other workers of the attempt,
    too: who failed first is not always who is heard of first."""
    worst = max(exited.codes.values(), default=0)
    # The engine knows better than any log that a memory limit was reached, and what broke because
    # of that is no news.
    if worst == 0 or exited.reason.startswith(OUT_OF_MEMORY):
        return exited
    found = [diagnose(tails[number], exited.codes.get(number, worst)) for number in sorted(tails)]
    best = min((each for each in found if each), key=lambda each: each.rank, default=None)
    if best is None:
        return exited
    is_retriable = exited.is_retriable or best.is_retriable
    return replace(exited, finding=str(best), is_retriable=is_retriable)


def hint_for(reason: str) -> str:
    """What to do about a failure, of which only the reason in the job's story is left."""
    if OUT_OF_MEMORY in reason:
        return MEMORY_HINT
    names = NAME.findall(reason)
    return next((each.hint for each in FAILURES if each.name in names), "")


def _shows(failure: Failure, text: str) -> bool:
    return any(each.is_in(text) for each in failure.evidence)


# -- the program's own last words ---------------------------------------------------------------


def _last_words(tail: str, code: int) -> str:
    lines = _lines(tail)
    if error := _last_error(lines):
        return printable(error)
    if code == NOT_FOUND_CODE and lines and lines[-1].endswith("not found"):
        return printable(lines[-1])
    return ""


def _lines(tail: str) -> list[str]:
    return [RANK.sub("", COLOUR.sub("", line), count=1) for line in tail.splitlines()]


def _refusal(lines: list[str]) -> str:
    """What a container tool said last about the container that it did not start. Its messages go
    from the outside to the cause, so that the end of a long one is kept as well."""
    said = next((line for line in reversed(lines) if line.startswith(REFUSALS)), "")
    clean = "".join(each for each in said if each.isprintable()).strip()
    if len(clean) <= WORDS_MAX:
        return clean
    return f"{clean[:HEAD_MAX]}...{clean[HEAD_MAX + 3 - WORDS_MAX :]}"


def _last_error(lines: list[str]) -> str:
    """The error under the last traceback, or the last complaint about the program's text."""
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


def printable(words: str) -> str:
    """On one line, fit for any terminal, and short."""
    clean = "".join(each for each in words[: 4 * WORDS_MAX] if each.isprintable()).strip()
    return clean if len(clean) <= WORDS_MAX else clean[: WORDS_MAX - 3] + "..."
