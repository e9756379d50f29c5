"""Turns requests into jobs: checks each request, gives the jobs their ids, and writes all of them
or none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

from rota.core.explain.feasibility import FeasibilityChecker, with_full_capacity
from rota.core.lifecycle.reducer import new_job
from rota.core.lifecycle.states import JobState
from rota.core.model.events import JobSubmitted
from rota.core.model.job import Ended, Job, JobId
from rota.core.model.node import DEFAULT_TOLERATIONS
from rota.daemon.access.authorization import (
    Caller,
    priority_limit,
    require_person,
    require_priority,
    require_submitter,
    require_write,
)
from rota.daemon.access.request_usage import RequestUsage
from rota.daemon.artifacts.snapshots import snapshot_owner
from rota.daemon.errors import LimitError, RefusedError
from rota.daemon.jobs import idempotency
from rota.daemon.jobs.admission import (
    Admitted,
    Dependencies,
    adapted_to_site,
    admit,
    with_edits,
    without_defaults,
)
from rota.daemon.jobs.idempotency import IdempotencyKeys, IdempotentRequest, key_of
from rota.daemon.jobs.job_ids import JobIdGenerator
from rota.daemon.jobs.job_lookup import JobDirectory, JobMatch, MatchKind, describe_state
from rota.daemon.jobs.validation import check_shape
from rota.daemon.jobs.views import job_view
from rota.daemon.launch.launcher import SiteConfig
from rota.daemon.launch.programs import pack_all
from rota.daemon.runtime.controller import Controller
from rota.errors import UserError, printable
from rota.heavy_work import run_heavy
from rota.store.interface import Store
from rota.store.records import Submission
from rota.thread_pools import STORE
from rota.wire.jobs import JobRequest, JobView

MOST_IN_A_BATCH = 10_000
SMALL_BATCH = 20
"""Jobs that are admitted at once on the event loop, in a few milliseconds."""
MOST_LIVE_JOBS = 200_000
MOST_DEPENDENCIES = 1_000_000
"""Each job stores the ids of the jobs that it waits for."""

Requests = Callable[[], Awaitable[Sequence[JobRequest]]]
NO_DEPENDENCIES: Mapping[str, JobMatch] = MappingProxyType({})
JobIdCallback = Callable[[JobId], None]


def _ignore_job_id(_: JobId) -> None:
    """The default callback: does nothing."""


@dataclass(frozen=True, slots=True)
class SubmitOptions:
    """What a submit carries besides the requests."""

    key: str = ""
    """The idempotency key."""
    fingerprint: str = ""
    """The hash of the request that used the key."""
    origin: str = ""
    """The daemon that the jobs moved from."""
    on_job_id: JobIdCallback = _ignore_job_id
    """Called with each id before the jobs are written."""
    pod: str = ""
    """NAME/UID of an existing pod that the job stands for."""
    tolerations: frozenset[str] = DEFAULT_TOLERATIONS


class SubmissionService:
    def __init__(
        self, controller: Controller, store: Store, *, directory: JobDirectory, site: SiteConfig
    ) -> None:
        self._limits = site.limits
        self._stored = RequestUsage(store, most_bytes=site.limits.max_request_bytes)
        self._controller = controller
        self._store = store
        self._directory = directory
        self._snapshots = site.snapshots
        self._launch_environment = site.launch_environment
        self._defaults = site.defaults
        self._priority_limits = site.priority_limits
        self._clock = site.clock
        self._keys = IdempotencyKeys(store)
        self._feasibility = FeasibilityChecker([])
        self._ids: JobIdGenerator | None = None

    # -- requests of callers --------------------------------------------------------------------

    async def submit(
        self, caller: Caller, requests: Sequence[JobRequest], *, key: str = "", origin: str = ""
    ) -> list[JobId]:
        """Submit all of the jobs or none. A key that this caller used before returns the jobs of
        the first submit. `origin` is the daemon that the jobs moved from."""
        require_write(caller)
        return await self._once(
            caller,
            idempotency.for_submit(requests),
            requests=_given(requests),
            key=key,
            origin=origin,
        )

    async def resubmit(self, caller: Caller, word: str, *, key: str = "") -> list[JobId]:
        """Submit a copy of a job, as a new job of the caller. With a key: once."""
        require_write(caller)
        return await self._once(
            caller,
            idempotency.for_resubmit(word),
            requests=lambda: self._resubmit_requests(caller, word),
            key=key,
        )

    async def _resubmit_requests(self, caller: Caller, word: str) -> list[JobRequest]:
        return [await STORE.run(self._copy_request, caller, word)]

    def _copy_request(self, caller: Caller, word: str) -> JobRequest:
        """The request that makes a copy of a job or of a whole array here. Blocks."""
        match = self._directory.match(caller, word)
        request = self._request_of(caller, match.jobs[0])
        if match.kind is MatchKind.ARRAY:
            array = self._directory.program(match.jobs[0].id).request.array
            return replace(request, array=array)
        return request

    def resubmit_request(self, caller: Caller, word: str) -> JobRequest:
        """The request that makes a copy of a job on another daemon, which does not know the jobs
        that this one waits for. Blocks."""
        request = self._request_of(caller, self._directory.find(caller, word))
        return replace(request, after=[], after_any=[], after_failed=[], hold=False)

    def _request_of(self, caller: Caller, job: Job) -> JobRequest:
        """The request of one job: of an array, only its own index."""
        require_submitter(caller, job)
        saved = self._directory.program(job.id)
        array = "" if saved.array_index is None else f"{saved.array_index}-{saved.array_index}"
        # An administrator may have given the job a higher priority than its user may give.
        priority = min(job.spec.priority, priority_limit(caller, self._priority_limits))
        request = replace(with_edits(saved.request, job.spec), array=array, priority=priority)
        defaults = self._defaults(job.spec.project)
        return without_defaults(request, user=caller.user, defaults=defaults)

    async def dry_run(self, caller: Caller, requests: Sequence[JobRequest]) -> list[JobView]:
        """The jobs that a submit would queue."""
        admitted, now = await self.check(caller, requests), self._clock()

        def views() -> list[JobView]:
            return [
                job_view(new_job(JobSubmitted(JobId(""), each.spec), now, known=None), now=now)
                for each in admitted
            ]

        return await run_heavy(views) if len(admitted) > SMALL_BATCH else views()

    async def check(self, caller: Caller, requests: Sequence[JobRequest]) -> list[Admitted]:
        """Check requests as a submit does, without queueing jobs."""
        require_person(caller)
        dependencies = await self._dependencies(caller, requests)
        return await self._admit(caller, requests, dependencies=dependencies)

    async def request_bytes(self, user: str) -> int:
        """The stored bytes of the requests of a user."""
        return await self._stored.of(user)

    async def submit_from_object(
        self, caller: Caller, request: JobRequest, *, options: SubmitOptions
    ) -> JobId:
        """Submit the job of an object of the cluster: a TrainingJob or a pod."""
        self._controller.require_available()
        [job_id] = await self._submit(caller, [request], options=options)
        return job_id

    def require_priority(self, caller: Caller, priority: int, *, current: int) -> None:
        """Raises unless the caller may give this priority to a job that has the `current` one."""
        require_priority(caller, priority, limits=self._priority_limits, current=current)

    # -- steps ----------------------------------------------------------------------------------

    async def _id_generator(self) -> JobIdGenerator:
        """Made at the first submit: until then the store may still load jobs."""
        if self._ids is None:
            newest = (await STORE.run(self._store.jobs, limit=1)).jobs
            # Another submit may have made the generator in the meantime.
            self._ids = self._ids or JobIdGenerator(
                self._clock, newest=newest[0].id if newest else None
            )
        return self._ids

    async def _once(
        self,
        caller: Caller,
        asked: IdempotentRequest,
        *,
        requests: Requests,
        key: str,
        origin: str = "",
    ) -> list[JobId]:
        """Submit, unless this caller used the key before: then return the jobs of that submit."""
        self._controller.require_available()
        if not key:
            options = SubmitOptions(origin=origin)
            return await self._submit(caller, await requests(), options=options)

        async def submit() -> list[JobId]:
            options = SubmitOptions(key, asked.fingerprint, origin)
            return await self._submit(caller, await requests(), options=options)

        return await self._keys.once(caller.user, key, asked=asked, submit=submit)

    async def _submit(
        self, caller: Caller, requests: Sequence[JobRequest], *, options: SubmitOptions
    ) -> list[JobId]:
        dependencies = await self._dependencies(caller, requests)
        ids = await self._id_generator()
        self._require_places(caller, len(requests))
        await self._stored.require_room(caller.user)
        admitted = await self._admit(
            caller, requests, dependencies=dependencies, is_moved=bool(options.origin)
        )
        job_ids = [ids.next() for _ in admitted]
        for job_id in job_ids:
            options.on_job_id(job_id)
        account = self._launch_environment.uid(caller)
        build = partial(
            _submitted, admitted, job_ids, user=caller.user, account=account, options=options
        )
        is_large = len(admitted) > SMALL_BATCH
        events, submissions = await run_heavy(build) if is_large else build()
        self._require_places(caller, len(admitted))
        self._stored.add(submissions)
        written = self._controller.apply_events(events, submissions, actor=caller.user)
        await self._controller.durable(written)
        return job_ids

    def _require_places(self, caller: Caller, n_more: int) -> None:
        """Raise if the queue, or this user's part of it, has no places for more jobs."""
        n_queued, most = self._controller.n_queued(caller.user), self._limits.max_queued_jobs
        if n_queued + n_more > most:
            raise LimitError(
                f"you have {n_queued:,} queued jobs, and one user may have {most:,}",
                "wait until some of them have started, or cancel some",
                setting="max_queued_jobs",
            )
        if len(self._controller.jobs) + n_more > MOST_LIVE_JOBS:
            raise UserError(
                f"the daemon has {MOST_LIVE_JOBS} jobs that are not over", "try again later"
            )

    async def _admit(
        self,
        caller: Caller,
        requests: Sequence[JobRequest],
        *,
        dependencies: Mapping[str, JobMatch],
        is_moved: bool = False,
    ) -> list[Admitted]:
        """As `admit`; many jobs are admitted in a thread."""
        feasibility = self._fresh_feasibility()
        admit = partial(
            self._admit_all,
            caller,
            requests,
            feasibility=feasibility,
            dependencies=dependencies,
            is_moved=is_moved,
        )
        if len(requests) <= SMALL_BATCH and not any(each.array for each in requests):
            return admit()
        return await run_heavy(admit)

    def admit(
        self,
        caller: Caller,
        requests: Sequence[JobRequest],
        *,
        dependencies: Mapping[str, JobMatch] = NO_DEPENDENCIES,
        is_moved: bool = False,
    ) -> list[Admitted]:
        """`dependencies` has the jobs that the words in `after` name. `is_moved` says that the jobs
        come from another daemon."""
        return self._admit_all(
            caller,
            requests,
            feasibility=self._fresh_feasibility(),
            dependencies=dependencies,
            is_moved=is_moved,
        )

    def _admit_all(
        self,
        caller: Caller,
        requests: Sequence[JobRequest],
        *,
        feasibility: FeasibilityChecker,
        dependencies: Mapping[str, JobMatch],
        is_moved: bool,
    ) -> list[Admitted]:
        admitted: list[Admitted] = []
        known: JobRequest | None = None
        found: list[Admitted] = []
        n_dependencies = 0
        for request in requests:
            # Many batches repeat one request: check it once.
            if request != known:
                after = dependencies_of(request, dependencies)
                found = self._admit_one(
                    caller, request, feasibility=feasibility, after=after, is_moved=is_moved
                )
                known = request
            admitted += found
            if len(admitted) > MOST_IN_A_BATCH:
                raise RefusedError("array", f"more than {MOST_IN_A_BATCH} jobs in one request")
            n_dependencies += sum(len(each.spec.dependencies) for each in found)
            if n_dependencies > MOST_DEPENDENCIES:
                what = f"the jobs of the request wait for more than {MOST_DEPENDENCIES:,} jobs"
                raise RefusedError("after", what, "add one job between the two arrays")
        if not admitted:
            raise RefusedError("jobs", "the list is empty", "send at least one job")
        return admitted

    def _fresh_feasibility(self) -> FeasibilityChecker:
        """The checker of the current nodes. Its results hold until a node changes."""
        nodes = [with_full_capacity(node) for node in self._controller.nodes.values()]
        if nodes != self._feasibility.nodes:
            self._feasibility = FeasibilityChecker(nodes)
        return self._feasibility

    def _admit_one(
        self,
        caller: Caller,
        request: JobRequest,
        *,
        feasibility: FeasibilityChecker,
        after: Dependencies,
        is_moved: bool,
    ) -> list[Admitted]:
        check_shape(request)
        require_priority(caller, request.priority, limits=self._priority_limits)
        self._launch_environment.check(request)
        user, defaults = caller.user, self._defaults(request.project)
        if is_moved:
            request = adapted_to_site(request, user=user, defaults=defaults)
        admitted = admit(
            request, user=user, defaults=defaults, feasibility=feasibility, after=after
        )
        self._require_snapshot(caller, request.snapshot)
        return admitted

    def _require_snapshot(self, caller: Caller, snapshot_id: str) -> None:
        if not snapshot_id:
            return
        owner = snapshot_owner(caller.user, self._launch_environment.uid(caller))
        if not self._snapshots.has(snapshot_id, owner=owner):
            raise RefusedError(
                "snapshot", "you have no such snapshot", "ship the folder with --ship"
            )

    async def _dependencies(
        self, caller: Caller, requests: Sequence[JobRequest]
    ) -> dict[str, JobMatch]:
        for request in requests:
            if words_of(request):
                check_shape(request)  # The words are looked up in the store.
        words = dict.fromkeys(word for request in requests for word in words_of(request))
        return {word: await self._directory.match_async(caller, word) for word in words}


def _submitted(
    admitted: Sequence[Admitted],
    job_ids: Sequence[JobId],
    *,
    user: str,
    account: int,
    options: SubmitOptions,
) -> tuple[list[JobSubmitted], list[Submission]]:
    """The events and the stored programs of the jobs of one submit."""
    events: list[JobSubmitted] = []
    submissions: list[Submission] = []
    programs = pack_all(admitted, options.fingerprint, pod=options.pod)
    reason = f"moved here from {printable(options.origin)}" if options.origin else ""
    array = JobId("")
    for number, (job_id, each, saved) in enumerate(zip(job_ids, admitted, programs, strict=True)):
        spec = each.spec
        if each.array_index is not None:
            array = job_id if each.is_first else array
            spec = replace(spec, array=array)
        if options.tolerations != DEFAULT_TOLERATIONS:
            spec = replace(spec, tolerations=options.tolerations)
        events.append(JobSubmitted(job_id, spec, is_held=each.request.hold, reason=reason))
        own_key = key_of(options.key, number) if options.key else None
        submissions.append(Submission(job_id, user, account, saved.own, own_key, saved.common))
    return events, submissions


def _given(requests: Sequence[JobRequest]) -> Requests:
    async def given() -> Sequence[JobRequest]:
        return requests

    return given


def words_of(request: JobRequest) -> list[str]:
    """All words of a request that name jobs."""
    return [*request.after, *request.after_any, *request.after_failed]


def dependencies_of(request: JobRequest, found: Mapping[str, JobMatch]) -> Dependencies:
    """The jobs that the new job waits for: those that have not ended, arrays with all their
    jobs."""
    after = _jobs(request.after, found)
    for job in after:
        if isinstance(job.phase, Ended) and job.state is not JobState.SUCCEEDED:
            what = f"job {job.id} did not succeed: {describe_state(job)}"
            raise RefusedError("after", what, "leave it out, or use --after-any")
    failing = _jobs(request.after_failed, found)
    has_failed = any(job.state is JobState.FAILED for job in failing)
    if failing and not has_failed and not _unfinished(failing):
        what = f"job {failing[0].id} has ended without a failure"
        raise RefusedError("after_failed", what, "leave it out: the job would never start")
    after_any = _unfinished(_jobs(request.after_any, found))
    if has_failed:  # The others need not fail, but must have ended.
        after_any, failing = [*after_any, *_unfinished(failing)], []
    return Dependencies(_ids(_unfinished(after)), _ids(after_any), _ids(_unfinished(failing)))


def _jobs(words: Sequence[str], found: Mapping[str, JobMatch]) -> list[Job]:
    return [job for word in words for job in found[word].jobs]


def _unfinished(jobs: Sequence[Job]) -> list[Job]:
    return [job for job in jobs if not isinstance(job.phase, Ended)]


def _ids(jobs: Sequence[Job]) -> tuple[JobId, ...]:
    return tuple(dict.fromkeys(job.id for job in jobs))
