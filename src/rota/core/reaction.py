"""What the rules of a job's life answer with."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rota.core.model import Allocation, Job, Purpose
from rota.core.states import Trigger

LOST = -1
"""Stands for the exit code of a worker that went with its node."""
FIRST_SIGNAL_CODE = 128
STOPPED = 75
"""The exit code of a program that uses our library, has saved, and is to be run again."""


@dataclass(frozen=True, slots=True)
class Reaction:
    """A trigger, and why. `job` is the job with the fact written down, before any transition;
    `allocation` is where a start or a resize leads; `gone` are workers that it goes on without."""

    job: Job
    trigger: Trigger | None
    reason: str = ""
    purpose: Purpose = Purpose.PREEMPT
    allocation: Allocation = ()
    gone: frozenset[int] = frozenset()


def is_killed(code: int) -> bool:
    """Whether a worker ended by no doing of its own."""
    return code == LOST or code >= FIRST_SIGNAL_CODE


def early_end(job: Job) -> str:
    """The words for an end before all epochs were done, where that is known."""
    if 0 < job.epochs_done < job.epochs < math.inf:
        return f"ended early at epoch {job.epochs_done:g} of {job.epochs:g}"
    return ""
