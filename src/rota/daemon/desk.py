"""Where people ask: every request of a user ends here, whichever door it came through.

Rights are checked here and nowhere else.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from rota.core.events import JobCancelled, JobEvent, JobHeld, JobReleased, JobSubmitted
from rota.core.life import submitted
from rota.core.misfit import Misfits
from rota.core.model import Ended, Job, JobId, n_gpus
from rota.core.states import State
from rota.daemon import keys
from rota.daemon.admission import Admitted, admit
from rota.daemon.diagnosis import hint_for
from rota.daemon.fields import RefusedError, check_shape
from rota.daemon.ids import Ids
from rota.daemon.keys import Asked, Keys, key_of
from rota.daemon.launches import Site
from rota.daemon.people import (
    Caller,
    ForbiddenError,
    Reach,
    may_see,
    require_owner,
    require_person,
    require_write,
)
from rota.daemon.programs import Saved, pack_all, unpack
from rota.daemon.shell import Shell
from rota.daemon.views import attempt_view, for_others, job_view, story_entry, why
from rota.daemon.words import NotFoundError, find_job, standing
from rota.errors import UserError
from rota.store.base import Store
from rota.store.records import JobFilter, Submission
from rota.wire.jobs import JobDetails, JobRequest, JobView, StoryEntry

MOST_IN_A_BATCH = 10_000
MOST_LIVE_JOBS = 200_000
HIDDEN = "(only its owner may see it)"
FAILED = frozenset({State.FAILED, State.CANCELLED})

Requests = Callable[[], Sequence[JobRequest]]


@dataclass(frozen=True, slots=True)
class Page:
    jobs: list[JobView]
    next: int | None


class Desk:
    def __init__(self, shell: Shell, store: Store, *, site: Site) -> None:
        self.shell = shell
        self.store = store
        self.clock = clock = site.clock
        self.snapshots = site.snapshots
        self._defaults = site.defaults
        newest = store.jobs(limit=1).jobs
        self._ids = Ids(clock, newest=newest[0].id if newest else None)
        self._keys = Keys(store)

    # -- submits --------------------------------------------------------------------------------

    async def submit(
        self, caller: Caller, requests: Sequence[JobRequest], *, key: str = ""
    ) -> list[JobId]:
        """All of them or none. With a key that this caller has used before: what that made."""
        return await self._once(
            caller, keys.submitted(requests), requests=lambda: requests, key=key
        )

    def dry_run(self, caller: Caller, requests: Sequence[JobRequest]) -> list[JobView]:
        """What would be queued, without queueing it."""
        require_person(caller)
        now = self.clock()
        admitted = self._admit(caller, requests)
        return [
            job_view(submitted(JobSubmitted(JobId(""), each.spec), now, known=None), now=now)
            for each in admitted
        ]

    async def _once(
        self, caller: Caller, asked: Asked, *, requests: Requests, key: str
    ) -> list[JobId]:
        require_write(caller)
        self.shell.require_sound()
        if not key:
            return await self._submit(caller, requests())
        return await self._keys.once(
            caller.user,
            key,
            asked=asked,
            submit=lambda: self._submit(caller, requests(), key=key, mark=asked.mark),
        )

    async def _submit(
        self, caller: Caller, requests: Sequence[JobRequest], *, key: str = "", mark: str = ""
    ) -> list[JobId]:
        admitted = self._admit(caller, requests)
        if len(self.shell.kernel.jobs) + len(admitted) > MOST_LIVE_JOBS:
            raise UserError(f"{MOST_LIVE_JOBS} jobs are waiting or running", "try again later")
        events: list[JobSubmitted] = []
        submissions: list[Submission] = []
        uid = self.uid(caller)
        programs = pack_all(admitted, mark)
        for number, (each, saved) in enumerate(zip(admitted, programs, strict=True)):
            job_id = self._ids.next()
            events.append(JobSubmitted(job_id, each.spec, is_held=each.request.hold))
            own_key = key_of(key, number) if key else None
            submissions.append(Submission(job_id, caller.user, uid, saved, own_key))
        written = self.shell.tell_all(events, submissions, actor=caller.user)
        await self.shell.durable(written)
        return [event.job_id for event in events]

    def shipper(self, caller: Caller) -> int:
        """Whose shelf this caller may put files on."""
        require_write(caller)
        return self.uid(caller)

    @staticmethod
    def uid(caller: Caller) -> int:
        """Whom the jobs run as. Only a daemon of root has a choice."""
        if caller.uid is not None:
            return caller.uid
        if os.geteuid() == 0:
            what = f"{caller.user} is no account of this machine"
            raise ForbiddenError(what, "ask for another token")
        return os.geteuid()

    def _admit(self, caller: Caller, requests: Sequence[JobRequest]) -> list[Admitted]:
        misfits = Misfits(list(self.shell.kernel.nodes.values()))
        admitted: list[Admitted] = []
        known: JobRequest | None = None
        found: list[Admitted] = []
        for request in requests:
            # The same again is the same again, and many a batch is one job a thousand times.
            if request != known:
                found = self._admit_one(caller, request, misfits=misfits)
                known = request
            admitted += found
            if len(admitted) > MOST_IN_A_BATCH:
                raise RefusedError("array", f"more than {MOST_IN_A_BATCH} jobs at once")
        if not admitted:
            raise RefusedError("jobs", "there are none", "send at least one")
        return admitted

    def _admit_one(
        self, caller: Caller, request: JobRequest, *, misfits: Misfits
    ) -> list[Admitted]:
        check_shape(request)
        admitted = admit(
            request,
            user=caller.user,
            defaults=self._defaults(request.project),
            misfits=misfits,
            after=self._after(caller, request.after),
        )
        self._require_snapshot(caller, request.snapshot)
        return admitted

    def _require_snapshot(self, caller: Caller, snapshot_id: str) -> None:
        if snapshot_id and not self.snapshots.has(snapshot_id, owner=self.uid(caller)):
            raise RefusedError("snapshot", "you have shipped no such folder", "ship it with --ship")

    def _after(self, caller: Caller, words: Sequence[str]) -> tuple[JobId, ...]:
        found: list[JobId] = []
        for word in words:
            job = self.find(word, caller)
            if isinstance(job.phase, Ended) and job.state in FAILED:
                raise RefusedError("after", f"job {job.id} has {job.state}", "leave it out")
            found.append(job.id)
        return tuple(dict.fromkeys(found))

    # -- questions ------------------------------------------------------------------------------

    def find(self, word: str, caller: Caller) -> Job:
        return find_job(word, caller, kernel=self.shell.kernel, store=self.store)

    def page(self, caller: Caller, wanted: JobFilter, *, before: int | None, limit: int) -> Page:
        if caller.reach is Reach.JOB:
            own = self.find(str(caller.job_id), caller)
            return Page([self.view(caller, own)], None)
        page = self.store.jobs(wanted, before=before, limit=limit)
        return Page([self.view(caller, job) for job in page.jobs], page.next)

    def view(self, caller: Caller, job: Job) -> JobView:
        """As it is by now, which may be ahead of the disk by a moment."""
        job = self.shell.kernel.job(job.id) or job
        view = job_view(job, now=self.clock(), reason=why(job, self.shell.rounds.newest))
        return view if may_see(caller, job) else replace(view, reason=for_others(view.reason))

    def details(self, caller: Caller, word: str) -> JobDetails:
        job = self.find(word, caller)
        saved = self._saved(job.id)
        request = saved.request
        attempts = [attempt_view(each) for each in self.store.attempts(job.id)]
        if not may_see(caller, job):
            attempts = [replace(each, reason=for_others(each.reason)) for each in attempts]
            request = replace(
                request, command=[HIDDEN], env={}, workdir="", mounts=[], snapshot="", ports=[]
            )
        return JobDetails(
            job=self.view(caller, job),
            request=request,
            attempts=attempts,
            failures=job.failures,
            gpu_s=job.service.gpu_s,
            queued_s=job.service.waiting_s,
            after=list(job.spec.after),
            array_index=saved.array_index,
            hint=hint_for(attempts[-1].reason) if attempts else "",
        )

    def story(
        self, caller: Caller, job_id: JobId | None, *, after: int, limit: int
    ) -> list[StoryEntry]:
        found = self.store.story(job_id, after=after, limit=limit)
        return [self._entry(caller, story_entry(each)) for each in found]

    def _entry(self, caller: Caller, entry: StoryEntry) -> StoryEntry:
        public = for_others(entry.reason)
        if public == entry.reason or caller.is_admin:
            return entry
        job_id = JobId(entry.job_id)
        job = self.shell.kernel.job(job_id) or self.store.job(job_id)
        if job is not None and may_see(caller, job):
            return entry
        return replace(entry, reason=public)

    def n_gpus_held(self) -> float:
        return sum(n_gpus(job.members) for job in self.shell.kernel.jobs.values())

    def counts(self) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for job in self.shell.kernel.jobs.values():
            found[job.state.value] = found.get(job.state.value, 0) + 1
        return found

    # -- deeds ----------------------------------------------------------------------------------

    async def cancel(self, caller: Caller, word: str) -> JobView:
        return await self._ask(caller, word, deed=JobCancelled)

    async def hold(self, caller: Caller, word: str) -> JobView:
        return await self._ask(caller, word, deed=JobHeld)

    async def release(self, caller: Caller, word: str) -> JobView:
        return await self._ask(caller, word, deed=JobReleased)

    async def resubmit(self, caller: Caller, word: str, *, key: str = "") -> list[JobId]:
        """The same again, as a new job of the caller's; with a key, once."""
        asked = keys.resubmitted(word)
        return await self._once(
            caller, asked, requests=lambda: [self._again(caller, word)], key=key
        )

    def _again(self, caller: Caller, word: str) -> JobRequest:
        job = self.find(word, caller)
        require_owner(caller, job)
        if caller.user != job.spec.user:
            # It would run as the caller: an administrator's rights for somebody else's program.
            raise ForbiddenError(
                f"job {job.id} belongs to {job.spec.user}, and would run as {caller.user}",
                "only its owner may submit it again",
            )
        saved = self._saved(job.id)
        array = "" if saved.array_index is None else f"{saved.array_index}-{saved.array_index}"
        return replace(saved.request, after=[], hold=False, array=array)

    def reach(self, caller: Caller, word: str) -> Job:
        """A job whose processes this caller may reach into: with all the rights that they have,
        so that a token that only reads, or a job's own, does not do."""
        require_write(caller)
        job = self.find(word, caller)
        require_owner(caller, job)
        return job

    async def _ask(
        self, caller: Caller, word: str, *, deed: Callable[[JobId, str], JobEvent]
    ) -> JobView:
        require_write(caller)
        self.shell.require_sound()
        job = self.find(word, caller)
        require_owner(caller, job)
        if isinstance(job.phase, Ended):
            raise UserError(f"job {job.id} is over: {standing(job)}")
        await self.shell.durable(self.shell.tell(deed(job.id, caller.user), actor=caller.user))
        return self.view(caller, self.find(job.id, caller))

    def _saved(self, job_id: JobId) -> Saved:
        submission = self.store.submission(job_id)
        if submission is None:
            raise NotFoundError(f"nobody knows what job {job_id} runs")
        return unpack(submission.program)
