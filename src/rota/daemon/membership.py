"""Who belongs to a job's newest generation, and when the scheduler hears that it stands.

A generation stands once its members have come together (`committed`) and the workers that it leaves
out are gone. The first is told by whoever brings them together, the second by the workers' exits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rota.core.events import MembershipChanged
from rota.core.model import Job, JobId, Running, Starting
from rota.daemon.shell import Shell


@dataclass(frozen=True, slots=True)
class Roll:
    """The workers of a job's newest generation, by rank. `held` are all that the job has at the
    moment, those who leave included; `exits` is how some of them ended."""

    generation: int
    numbers: tuple[int, ...]
    held: tuple[int, ...]
    exits: Mapping[int, int]

    def is_gone(self, number: int) -> bool:
        return number in self.exits or number not in self.held


def roll_of(job: Job | None) -> Roll | None:
    """None while nobody is to come together: the job waits, stops or is over."""
    match job:
        case Job(phase=Running(joining_numbers=numbers, exits=exits)) if numbers:
            return Roll(job.generation, numbers, job.numbers, exits)
        case Job(phase=Running(exits=exits) | Starting(exits=exits)):
            return Roll(job.generation, job.numbers, job.numbers, exits)
        case _:
            return None


class Membership:
    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._committed: dict[JobId, tuple[int, int]] = {}
        """Attempt and generation of those whose leavers are still there."""

    def committed(self, job_id: JobId, attempt: int, *, generation: int) -> None:
        """All members of this generation have come together. Told again, it changes nothing."""
        self._committed[job_id] = (attempt, generation)
        self._look(job_id)

    async def run(self) -> None:
        """Until it is cancelled: looks for leavers that are gone whenever something changes."""
        while True:
            await self._shell.changed()
            for job_id in list(self._committed):
                self._look(job_id)

    def _look(self, job_id: JobId) -> None:
        attempt, generation = self._committed[job_id]
        job = self._shell.kernel.job(job_id)
        phase = None if job is None else job.phase
        is_awaited = isinstance(phase, Running) and bool(phase.joining)
        if job is None or not is_awaited or (job.attempt, job.generation) != (attempt, generation):
            del self._committed[job_id]
            return
        assert isinstance(phase, Running)
        leavers = set(phase.numbers) - set(phase.joining_numbers)
        if leavers <= phase.exits.keys() and not self._shell.trouble:
            del self._committed[job_id]
            self._shell.tell(MembershipChanged(job_id, attempt, generation))
