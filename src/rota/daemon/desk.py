"""Where people ask: every request of a user ends here, whichever door it came through.

Rights are checked here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from rota.core.events import JobCancelled, JobEvent, JobHeld, JobReleased, JobSubmitted
from rota.core.life import submitted
from rota.core.model import Ended, Job, JobId, n_gpus
from rota.core.progress import service_at
from rota.daemon import keys
from rota.daemon.admission import without_defaults
from rota.daemon.archives import archive
from rota.daemon.diagnosis import hint_for
from rota.daemon.foresight import Foresight
from rota.daemon.intake import Intake
from rota.daemon.launches import Site
from rota.daemon.lessons import Live, live_of, profile_of, with_lessons
from rota.daemon.people import (
    Caller,
    ForbiddenError,
    Reach,
    may_see,
    require_owner,
    require_person,
    require_write,
)
from rota.daemon.programs import Saved, unpack
from rota.daemon.shell import Shell
from rota.daemon.snapshots import Shipper, shipper, shipper_of
from rota.daemon.training import Training
from rota.daemon.views import attempt_view, by_now, for_others, job_view, story_entry, why
from rota.daemon.words import NotFoundError, find_job, standing
from rota.engines.base import WorkerId
from rota.errors import UserError, printable
from rota.store.base import Store
from rota.store.records import JobFilter
from rota.wire.jobs import JobDetails, JobRequest, JobView, StoryEntry
from rota.wire.training import JobProfile

HIDDEN = "(only its owner may see it)"


@dataclass(frozen=True, slots=True)
class Page:
    jobs: list[JobView]
    next: int | None


class Desk:
    def __init__(
        self,
        shell: Shell,
        store: Store,
        *,
        site: Site,
        training: Training,
    ) -> None:
        self.shell = shell
        self.training = training
        self.store = store
        self.clock = site.clock
        self.snapshots = site.snapshots
        self.intake = Intake(shell, store, site=site)
        self._premises = site.premises
        self._defaults = site.defaults
        self.foresight = Foresight(shell, site.clock)
        self.travels: Callable[[Job], str] = lambda _: ""
        """Where a job that waits will go, in words."""
        self.cards: Callable[[WorkerId], Sequence[str]] = lambda _: ()
        """Which GPUs a worker was given, where its node picks them."""

    # -- submits --------------------------------------------------------------------------------

    async def submit(
        self, caller: Caller, requests: Sequence[JobRequest], *, key: str = "", origin: str = ""
    ) -> list[JobId]:
        """All of them or none. With a key that this caller has used before: what that made.
        `origin` is where jobs were before that are moved here."""
        require_write(caller)
        return await self.intake.once(
            caller, keys.submitted(requests), requests=lambda: requests, key=key, origin=origin
        )

    def dry_run(self, caller: Caller, requests: Sequence[JobRequest]) -> list[JobView]:
        """What would be queued, without queueing it."""
        require_person(caller)
        now = self.clock()
        admitted = self.intake.admit(caller, requests)
        return [
            job_view(submitted(JobSubmitted(JobId(""), each.spec), now, known=None), now=now)
            for each in admitted
        ]

    def shipper(self, caller: Caller) -> Shipper:
        """Whose shelf this caller may put files on."""
        require_write(caller)
        return shipper(caller.user, self._premises.uid(caller))

    def shipment(self, caller: Caller) -> Iterator[bytes]:
        """What was shipped with the job that asks."""
        submission = None if caller.job_id is None else self.store.submission(caller.job_id)
        if caller.reach is not Reach.JOB or submission is None:
            what = "only a job fetches what was shipped with it, with the token of its attempt"
            raise ForbiddenError(what, "'rota show --json' names the snapshot: ask for that")
        snapshot_id, owner = unpack(submission.program).request.snapshot, shipper_of(submission)
        if not snapshot_id:
            raise NotFoundError(f"nothing was shipped with job {submission.job_id}")
        manifest = self.snapshots.manifest(snapshot_id, owner=owner)
        return archive(manifest, partial(self.snapshots.open, owner=owner), now_s=self.clock())

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
        kernel = self.shell.kernel
        job = kernel.job(job.id) or job
        view = job_view(
            job,
            now=self.clock(),
            reason=self.why(job),
            expected=self.foresight.expected.get(job.id),
        )
        view = by_now(view, kernel)
        return view if may_see(caller, job) else replace(view, reason=for_others(view.reason))

    def why(self, job: Job) -> str:
        """Why a job does not run, and where it will go for that."""
        reasons = (why(job, self.shell.rounds.newest), self.travels(job))
        return "; ".join(each for each in reasons if each)

    def details(self, caller: Caller, word: str) -> JobDetails:
        job = self.find(word, caller)
        saved = self._saved(job.id)
        request = saved.request
        attempts = [attempt_view(each, cards=self.cards) for each in self.store.attempts(job.id)]
        live = live_of(self.training, job.id)
        service = service_at(job, self.clock())
        if not may_see(caller, job):
            live = Live()
            attempts = [replace(each, reason=for_others(each.reason)) for each in attempts]
            request = replace(
                request, command=[HIDDEN], env={}, workdir="", mounts=[], snapshot="", ports=[]
            )
        found = JobDetails(
            job=self.view(caller, job),
            request=request,
            attempts=attempts,
            failures=job.failures,
            gpu_s=service.gpu_s,
            queued_s=service.waiting_s,
            after=list(job.spec.after),
            array_index=saved.array_index,
            hint=hint_for(attempts[-1].reason) if attempts else "",
        )
        return with_lessons(found, job, live=live, is_crowded=self.foresight.is_crowded)

    def profile(self, caller: Caller, word: str) -> JobProfile:
        """What a job measured, for those who may see what it does."""
        job = self.find(word, caller)
        require_owner(caller, job)
        return profile_of(job, self.store, live=live_of(self.training, job.id))

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

    async def cancel(self, caller: Caller, word: str, *, reason: str = "") -> JobView:
        return await self._ask(caller, word, deed=JobCancelled, reason=reason)

    async def hold(self, caller: Caller, word: str, *, reason: str = "") -> JobView:
        return await self._ask(caller, word, deed=JobHeld, reason=reason)

    async def release(self, caller: Caller, word: str, *, reason: str = "") -> JobView:
        return await self._ask(caller, word, deed=JobReleased, reason=reason)

    async def resubmit(self, caller: Caller, word: str, *, key: str = "") -> list[JobId]:
        """The same again, as a new job of the caller's; with a key, once."""
        require_write(caller)
        asked = keys.resubmitted(word)
        return await self.intake.once(
            caller, asked, requests=lambda: [self.again(caller, word)], key=key
        )

    def again(self, caller: Caller, word: str) -> JobRequest:
        """What makes the same job once more, here or elsewhere."""
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
        request = replace(saved.request, after=[], hold=False, array=array)
        defaults = self._defaults(job.spec.project)
        return without_defaults(request, user=caller.user, defaults=defaults)

    def reach(self, caller: Caller, word: str) -> Job:
        """A job whose processes this caller may reach into: with all the rights that they have,
        so that a token that only reads, or a job's own, does not do."""
        require_write(caller)
        job = self.find(word, caller)
        require_owner(caller, job)
        return job

    async def _ask(
        self, caller: Caller, word: str, *, deed: Callable[[JobId, str, str], JobEvent], reason: str
    ) -> JobView:
        require_write(caller)
        self.shell.require_sound()
        job = self.find(word, caller)
        require_owner(caller, job)
        if isinstance(job.phase, Ended):
            raise UserError(f"job {job.id} is over: {standing(job)}")
        event = deed(job.id, caller.user, printable(reason))
        await self.shell.durable(self.shell.tell(event, actor=caller.user))
        return self.view(caller, self.find(job.id, caller))

    def _saved(self, job_id: JobId) -> Saved:
        submission = self.store.submission(job_id)
        if submission is None:
            raise NotFoundError(f"nobody knows what job {job_id} runs")
        return unpack(submission.program)
