"""From what is asked for to jobs on the disk: admitted, given their ids, all of them or none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from rota.core.events import JobSubmitted
from rota.core.misfit import Misfits, at_best
from rota.core.model import Ended, JobId
from rota.core.states import State
from rota.core.taints import USUAL
from rota.daemon.admission import Admitted, admit
from rota.daemon.fields import RefusedError, check_shape
from rota.daemon.ids import Ids
from rota.daemon.keys import Asked, Keys, key_of
from rota.daemon.launches import Site
from rota.daemon.people import Caller
from rota.daemon.programs import pack_all
from rota.daemon.shell import Shell
from rota.daemon.snapshots import shipper
from rota.daemon.words import find_job
from rota.errors import UserError, printable
from rota.store.base import Store
from rota.store.records import Submission
from rota.wire.jobs import JobRequest

MOST_IN_A_BATCH = 10_000
MOST_LIVE_JOBS = 200_000
FAILED = frozenset({State.FAILED, State.CANCELLED})

Requests = Callable[[], Sequence[JobRequest]]
Claim = Callable[[JobId], None]


def _unclaimed(_: JobId) -> None:
    """Most jobs are known by nothing but their id."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """How jobs came: under which key, what else came with it, and where they were before. `claim`
    is told each id before anything is written; `pod` is one that is there already, and it tolerates
    what these words say."""

    key: str = ""
    mark: str = ""
    origin: str = ""
    claim: Claim = _unclaimed
    pod: str = ""
    tolerations: frozenset[str] = USUAL


class Intake:
    """What callers may ask for is the desk's business."""

    def __init__(self, shell: Shell, store: Store, *, site: Site) -> None:
        self._shell = shell
        self._store = store
        self._snapshots = site.snapshots
        self._premises = site.premises
        self._defaults = site.defaults
        self._clock = site.clock
        self._keys = Keys(store)
        self._misfits = Misfits([])

    @cached_property
    def _ids(self) -> Ids:
        """Not before the first submit: until then the store may still learn of other jobs."""
        newest = self._store.jobs(limit=1).jobs
        return Ids(self._clock, newest=newest[0].id if newest else None)

    async def once(
        self, caller: Caller, asked: Asked, *, requests: Requests, key: str, origin: str = ""
    ) -> list[JobId]:
        """With a key that this caller has used before: what that made."""
        self._shell.require_sound()
        if not key:
            return await self._submit(caller, requests(), arrival=Arrival(origin=origin))
        return await self._keys.once(
            caller.user,
            key,
            asked=asked,
            submit=lambda: self._submit(
                caller, requests(), arrival=Arrival(key, asked.mark, origin)
            ),
        )

    async def take_in(self, caller: Caller, request: JobRequest, *, arrival: Arrival) -> JobId:
        """A job that somebody made an object of."""
        self._shell.require_sound()
        [job_id] = await self._submit(caller, [request], arrival=arrival)
        return job_id

    async def _submit(
        self, caller: Caller, requests: Sequence[JobRequest], *, arrival: Arrival
    ) -> list[JobId]:
        admitted = self.admit(caller, requests)
        if len(self._shell.kernel.jobs) + len(admitted) > MOST_LIVE_JOBS:
            raise UserError(f"{MOST_LIVE_JOBS} jobs are waiting or running", "try again later")
        events: list[JobSubmitted] = []
        submissions: list[Submission] = []
        account = self._premises.uid(caller)
        programs = pack_all(admitted, arrival.mark, pod=arrival.pod)
        for number, (each, saved) in enumerate(zip(admitted, programs, strict=True)):
            job_id = self._ids.next()
            arrival.claim(job_id)
            reason = f"moved here from {printable(arrival.origin)}" if arrival.origin else ""
            is_held = each.request.hold
            spec = each.spec
            if arrival.tolerations != USUAL:
                spec = replace(spec, tolerations=arrival.tolerations)
            events.append(JobSubmitted(job_id, spec, is_held=is_held, reason=reason))
            own_key = key_of(arrival.key, number) if arrival.key else None
            submissions.append(Submission(job_id, caller.user, account, saved, own_key))
        written = self._shell.tell_all(events, submissions, actor=caller.user)
        await self._shell.durable(written)
        return [event.job_id for event in events]

    def admit(self, caller: Caller, requests: Sequence[JobRequest]) -> list[Admitted]:
        misfits = self._fresh_misfits()
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

    def _fresh_misfits(self) -> Misfits:
        """What was found out holds as long as the nodes are what they were."""
        nodes = [at_best(node) for node in self._shell.kernel.nodes.values()]
        if nodes != self._misfits.nodes:
            self._misfits = Misfits(nodes)
        return self._misfits

    def _admit_one(
        self, caller: Caller, request: JobRequest, *, misfits: Misfits
    ) -> list[Admitted]:
        check_shape(request)
        self._premises.check(request)
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
        if not snapshot_id:
            return
        owner = shipper(caller.user, self._premises.uid(caller))
        if not self._snapshots.has(snapshot_id, owner=owner):
            raise RefusedError("snapshot", "you have shipped no such folder", "ship it with --ship")

    def _after(self, caller: Caller, words: Sequence[str]) -> tuple[JobId, ...]:
        found: list[JobId] = []
        for word in words:
            job = find_job(word, caller, kernel=self._shell.kernel, store=self._store)
            if isinstance(job.phase, Ended) and job.state in FAILED:
                raise RefusedError("after", f"job {job.id} has {job.state}", "leave it out")
            found.append(job.id)
        return tuple(dict.fromkeys(found))
