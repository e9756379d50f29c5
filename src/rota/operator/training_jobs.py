"""The TrainingJobs of our namespace, and what else every replica of the daemon has to know, at the
API server. Satisfies `rota.store.resources.Resources`."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping

import structlog

from rota.core.model import JobId
from rota.engines.kubernetes import definition
from rota.engines.kubernetes.api import (
    EVENTS,
    TRAINING_JOBS,
    ApiError,
    Cluster,
    Kind,
    Object,
    Scope,
)
from rota.engines.kubernetes.drawer import Drawer
from rota.engines.kubernetes.lease import LeaseLostError
from rota.engines.kubernetes.notices import notice
from rota.engines.kubernetes.objects import Listing, part
from rota.engines.kubernetes.refusals import (
    BLOATED,
    is_about_one,
    is_bloated,
    is_refusal,
    not_kept,
)
from rota.errors import NotKeptError, UnavailableError

log = structlog.get_logger()

FINALIZER = JOB_LABEL = "rota.dev/job"
ACCEPTED = "rota.dev/accepted"
STATE_SECRET = "rota-state"
KEY = "key"
TRIES, TRIES_TO_UPDATE = 8, 24
FIRST_WAIT_S = 0.2
LOOK_S = 5.0
"""How often the secret is looked for that nobody should delete."""


class Resources:
    """`term` says which leader writes: what a later one wrote is never overwritten."""

    def __init__(self, cluster: Cluster, *, term: Callable[[], int]) -> None:
        self._cluster = cluster
        self._drawer = Drawer(cluster, STATE_SECRET, mark=KEY)
        self._lease_term = term
        self._later_by = 0
        """A lease that was deleted and made again counts from one."""
        self._versions: dict[str, str] = {}
        """Of the objects as we know them: a write is refused if somebody else wrote since."""
        self._uids: dict[str, str] = {}
        self._listing: Listing | None = None

    @property
    def _scope(self) -> Scope:
        return Scope(self._cluster.namespace)

    def _term(self) -> int:
        return self._lease_term() + self._later_by

    def owner(self, name: str) -> tuple[str, str]:
        """Name and uid, for what belongs to an object; nothing of one that is not there."""
        uid = self._uids.get(name, "")
        return (name, uid) if uid else ("", "")

    async def all(self) -> list[Object]:
        try:
            found, version = await self._cluster.list(TRAINING_JOBS, self._scope)
        except ApiError as error:
            raise definition.why_not_listed(error) from None
        if not self._versions:
            # Whoever begins has the lease, and comes after all who wrote before.
            newest = max((part(each, "status").get("term") or 0 for each in found), default=0)
            self._later_by = max(0, newest + 1 - self._lease_term())
            self._listing = found, version
        for each in found:
            self._remember(each)
        return found

    def take_listing(self) -> Listing | None:
        """What was found when all began, once: who watches them from then on starts with it."""
        taken, self._listing = self._listing, None
        return taken

    async def check(self) -> None:
        """A definition that was just applied is told of a moment later."""
        await self._drawer.look()
        for n_before in range(TRIES):
            try:
                await self.look()
            except UnavailableError as error:
                if isinstance(error, ApiError) or n_before + 1 == TRIES:
                    raise
                await asyncio.sleep(FIRST_WAIT_S * n_before)
            else:
                return

    async def look(self) -> None:
        """Raises while the cluster's definition is not what we need."""
        await definition.require(self._cluster)

    async def create(self, body: Object) -> bool:
        name = body["metadata"]["name"]
        for n_before in range(TRIES):
            try:
                self._remember(await self._cluster.create(TRAINING_JOBS, body, is_brief=True))
                return True
            except ApiError as error:
                if error.reason == "AlreadyExists":
                    return await self._is_what_we_made(name, body)
                if is_refusal(error):
                    raise not_kept(error) from None
                # Many who make something at once get in each other's way at a quota's count.
                is_worth_it = error.is_passing or error.reason == "Conflict"
                if not is_worth_it or n_before + 1 == TRIES:
                    raise
            await asyncio.sleep(FIRST_WAIT_S)
        raise AssertionError

    async def adopt(self, name: str, job_id: JobId) -> bool:
        while True:
            found = await self.get(name)
            if found is None or found["metadata"].get("deletionTimestamp") or is_bloated(found):
                return False
            held = set(found["metadata"].get("finalizers") or ())
            meta = {"labels": {JOB_LABEL: job_id}, "finalizers": sorted(held | {FINALIZER})}
            try:
                if await self._patch(found, meta):
                    return True
            except ApiError as error:
                if is_refusal(error):
                    raise not_kept(error) from None
                raise

    async def update(self, name: str, status: Object) -> bool:
        """Replaced, not patched: it costs the API server a third less."""
        whole = {**status, "term": self._term()}
        for _ in range(TRIES_TO_UPDATE):
            if name not in self._versions and await self.get(name) is None:
                return False
            uid = self._uids[name]
            meta = {"name": name, "uid": uid, "resourceVersion": self._versions[name]}
            body = {"metadata": meta, "status": whole}
            try:
                answer = await self._cluster.replace(TRAINING_JOBS, body, subresource="status")
            except ApiError as error:
                if error.reason == "NotFound":
                    self._forget(name)
                    return False
                if error.is_too_large and await self._is_bloated(name):
                    raise NotKeptError(BLOATED) from None
                if is_about_one(error):
                    raise not_kept(error, "its status") from None
                if error.reason != "Conflict":
                    raise
                if not await self._is_still_ours(name, uid):
                    return False
            else:
                self._remember(answer)
                definition.require_kept(answer, status)
                return True
        raise NotKeptError(f"TrainingJob {name} is changed by others all the time")

    async def lull(self) -> None:
        await self._cluster.lull()

    async def tell(self, name: str, status: Object) -> None:
        """The status of an object that is no job of ours, where there is room for one."""
        try:
            answer = await self._cluster.patch(
                TRAINING_JOBS, name, body={"status": status}, subresource="status"
            )
            self._remember(answer)
        except ApiError as error:
            if error.reason != "NotFound" and not is_about_one(error):
                raise
            log.warning("a TrainingJob could not be told", object=name, error=str(error))

    async def let_go(self, name: str) -> None:
        while found := await self.get(name):
            held = found["metadata"].get("finalizers") or ()
            left = [each for each in held if each != FINALIZER]
            if len(left) == len(held) or await self._patch(found, {"finalizers": left}):
                break
        self._forget(name)

    async def complain(self, name: str, words: str) -> None:
        meta = {"name": name, "namespace": self._cluster.namespace, "uid": self._uids.get(name, "")}
        log.warning("the status of a TrainingJob is refused", object=name, error=words)
        try:
            about = {"metadata": meta}
            await self.event(about, kind=TRAINING_JOBS, reason="StatusRefused", words=words)
        except ApiError as error:
            log.warning("an event was not told", error=str(error))

    async def delete(self, name: str, uid: str) -> None:
        """Of a job that is over: it goes when it was let go."""
        await self._cluster.delete(TRAINING_JOBS, name, uid=uid)

    async def remove(self, name: str) -> None:
        await self._cluster.delete(TRAINING_JOBS, name)
        await self.let_go(name)

    async def event(self, about: Object, *, kind: Kind, reason: str, words: str) -> None:
        """Something that `kubectl describe` shows. `about` is the object that it is told of."""
        await self._cluster.create(EVENTS, notice(about, kind=kind, reason=reason, words=words))

    # -- what every replica has to know ---------------------------------------------------------

    async def rows(self) -> dict[str, str]:
        kept = await self._drawer.contents()
        kept.pop(KEY, None)
        return {name: content.decode(errors="replace") for name, content in kept.items()}

    async def keep(self, rows: Mapping[str, str | None]) -> None:
        await self._drawer.put(
            {name: None if text is None else text.encode() for name, text in rows.items()}
        )

    async def key(self) -> bytes:
        """With which tokens and seals are made: one for all replicas, made by the first."""
        while True:
            kept = (await self._drawer.contents()).get(KEY)
            if kept:
                return kept
            await self._drawer.put({KEY: secrets.token_bytes(32)})

    async def keep_state(self) -> None:
        """For ever: what all replicas rest upon stays there, whoever deletes it."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self._drawer.contents()
            except UnavailableError as error:
                log.warning("whether our secret is there is not known", error=str(error))

    # -- objects as we know them ----------------------------------------------------------------

    def _remember(self, found: Object) -> None:
        meta = found["metadata"]
        self._versions[meta["name"]] = meta["resourceVersion"]
        self._uids[meta["name"]] = meta["uid"]

    def _forget(self, name: str) -> None:
        self._versions.pop(name, None)
        self._uids.pop(name, None)

    async def get(self, name: str) -> Object | None:
        try:
            found = await self._cluster.get(TRAINING_JOBS, name)
        except ApiError as error:
            if error.reason != "NotFound":
                raise
            self._forget(name)
            return None
        self._remember(found)
        return found

    async def _patch(self, found: Object, meta: Object) -> bool:
        """Whether nobody was faster."""
        version = found["metadata"]["resourceVersion"]
        body = {"metadata": {**meta, "resourceVersion": version}}
        try:
            answer = await self._cluster.patch(TRAINING_JOBS, found["metadata"]["name"], body=body)
        except ApiError as error:
            if error.reason not in ("NotFound", "Conflict"):
                raise
            return False
        self._remember(answer)
        return True

    async def _is_what_we_made(self, name: str, body: Object) -> bool:
        """An answer may be lost on its way; then the same is made again."""
        found = await self.get(name)
        if found is None:
            return await self.create(body)
        annotations = part(found["metadata"], "annotations")
        return annotations.get(ACCEPTED) == body["metadata"]["annotations"][ACCEPTED]

    async def _is_bloated(self, name: str) -> bool:
        found = await self.get(name)
        return found is not None and is_bloated(found)

    async def _is_still_ours(self, name: str, uid: str) -> bool:
        """Not if somebody has made another of that name meanwhile."""
        found = await self.get(name)
        if found is None or found["metadata"]["uid"] != uid:
            return False
        term = part(found, "status").get("term") or 0
        if term > self._term():
            raise LeaseLostError(f"a later daemon has written to TrainingJob {name}")
        return True
