"""API client for TrainingJobs and for the Secret with the state that all replicas share.

Implements `rota.store.kubernetes.api_port.TrainingJobPort`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from typing import Protocol

import structlog

from rota.core.model.job import JobId
from rota.errors import UnavailableError, WriteRejectedError
from rota.kube.client import KubeClient
from rota.kube.errors import (
    OBJECT_TOO_LARGE,
    ApiError,
    is_object_refusal,
    is_oversized,
    is_refusal,
    not_kept_error,
    not_stored_yet_error,
)
from rota.kube.events import warning_event
from rota.kube.leader_election import LeaseLostError
from rota.kube.resources import (
    EVENTS,
    TRAINING_JOBS,
    Listing,
    Object,
    ResourceKind,
    ResourceScope,
    part,
)
from rota.kube.secret_store import SecretStore
from rota.operator import schema_check

log = structlog.get_logger()

FINALIZER = JOB_LABEL = "rota.dev/job"
ACCEPTED = "rota.dev/accepted"
STATE_SECRET = "rota-state"
KEY = "key"
MAX_TRIES, MAX_UPDATE_TRIES = 8, 24
MAX_OUTAGE_TRIES = 2
"""Other objects wait meanwhile, and each try may take as long as a webhook."""
FIRST_WAIT_S = 0.2
SECRET_CHECK_INTERVAL_S = 5.0
"""How often the state Secret is checked for a deletion."""


class LeaderTerm(Protocol):
    """Numbers the leaders: each leader has a higher term than the leaders before."""

    @property
    def term(self) -> int: ...


class TrainingJobClient:
    """Writes with the term of the `lease`: what a later leader wrote is never overwritten."""

    def __init__(self, client: KubeClient, *, lease: LeaderTerm) -> None:
        self._client = client
        self._secret_store = SecretStore(client, STATE_SECRET, mark=KEY)
        self._lease = lease
        self._term_offset = 0
        """Keeps terms growing after a lease was deleted: a new lease counts from one."""
        self._versions: dict[str, str] = {}
        """The known resourceVersion by name. A write fails with Conflict if the object has
        changed since."""
        self._uids: dict[str, str] = {}
        self._listing: Listing | None = None

    @property
    def _scope(self) -> ResourceScope:
        return ResourceScope(self._client.namespace)

    def _term(self) -> int:
        return self._lease.term + self._term_offset

    def owner(self, name: str) -> tuple[str, str]:
        """Name and uid for an owner reference; empty strings if the object does not exist."""
        uid = self._uids.get(name, "")
        return (name, uid) if uid else ("", "")

    async def all(self) -> list[Object]:
        """All TrainingJobs of the namespace."""
        try:
            found, version = await self._client.list(TRAINING_JOBS, self._scope)
        except ApiError as error:
            raise schema_check.list_error(error) from None
        if not self._versions:
            # A starting daemon holds the lease, so its term must exceed all earlier terms.
            newest = max((part(each, "status").get("term") or 0 for each in found), default=0)
            self._term_offset = max(0, newest + 1 - self._lease.term)
            self._listing = found, version
        for each in found:
            self._remember(each)
        return found

    def take_listing(self) -> Listing | None:
        """The first listing, once: the watch starts from it."""
        taken, self._listing = self._listing, None
        return taken

    async def check(self) -> None:
        """Raise if the Secret or the CRD is unusable. Retries: a new CRD is published after a
        short delay."""
        await self._secret_store.check()
        for n_failures in range(MAX_TRIES):
            try:
                await self.check_schema()
            except UnavailableError as error:
                if isinstance(error, ApiError) or n_failures + 1 == MAX_TRIES:
                    raise
                await asyncio.sleep(FIRST_WAIT_S * n_failures)
            else:
                return

    async def check_schema(self) -> None:
        """Raise if the cluster's CRD is missing or outdated."""
        await schema_check.require_schema(self._client)

    async def create(self, body: Object) -> bool:
        """Create an object. False: the name is taken by another object."""
        name = body["metadata"]["name"]
        for n_failures in range(MAX_TRIES):
            try:
                self._remember(
                    await self._client.create(TRAINING_JOBS, body, is_metadata_only=True)
                )
                return True
            except ApiError as error:
                if error.reason == "AlreadyExists":
                    return await self._is_created_by_us(name, body)
                if is_refusal(error):
                    raise not_kept_error(error) from None
                if error.is_outage and n_failures + 1 >= MAX_OUTAGE_TRIES:
                    raise not_stored_yet_error(error) from None
                # Concurrent creates conflict when the API server updates a quota.
                is_retryable = error.is_transient or error.reason == "Conflict"
                if not is_retryable or n_failures + 1 == MAX_TRIES:
                    raise
            await asyncio.sleep(FIRST_WAIT_S)
        raise AssertionError

    async def adopt(self, name: str, job_id: JobId) -> bool:
        """Add our label and finalizer to an object. False: it is deleted or too large."""
        while True:
            found = await self.get(name)
            if found is None or found["metadata"].get("deletionTimestamp") or is_oversized(found):
                return False
            held = set(found["metadata"].get("finalizers") or ())
            meta = {"labels": {JOB_LABEL: job_id}, "finalizers": sorted(held | {FINALIZER})}
            try:
                if await self._patch(found, meta):
                    return True
            except ApiError as error:
                if is_refusal(error):
                    raise not_kept_error(error) from None
                if error.is_outage:
                    raise not_stored_yet_error(error) from None
                raise

    async def update(self, name: str, status: Object) -> bool:
        """Replace the status. False: the object is gone. A replace costs the API server a third
        less than a patch."""
        whole = {**status, "term": self._term()}
        for _ in range(MAX_UPDATE_TRIES):
            if name not in self._versions and await self.get(name) is None:
                return False
            uid = self._uids[name]
            meta = {"name": name, "uid": uid, "resourceVersion": self._versions[name]}
            body = {"metadata": meta, "status": whole}
            try:
                answer = await self._client.replace(TRAINING_JOBS, body, subresource="status")
            except ApiError as error:
                if error.reason == "NotFound":
                    self._forget(name)
                    return False
                if error.is_too_large and await self._is_stored_oversized(name):
                    raise WriteRejectedError(OBJECT_TOO_LARGE) from None
                if refusal := _status_refusal(error):
                    raise refusal from None
                if error.reason != "Conflict":
                    raise
                if not await self._is_still_ours(name, uid):
                    return False
            else:
                self._remember(answer)
                schema_check.require_kept(answer, status)
                return True
        raise WriteRejectedError(
            f"TrainingJob {name} changes too often: every write of its status conflicts"
        )

    async def wait_idle(self) -> None:
        await self._client.wait_idle()

    async def patch_status(self, name: str, status: Object) -> None:
        """Patch the status of an object that is not a job. Does nothing if the cluster refuses
        it."""
        try:
            answer = await self._client.patch(
                TRAINING_JOBS, name, body={"status": status}, subresource="status"
            )
            self._remember(answer)
        except ApiError as error:
            if error.reason != "NotFound" and not is_object_refusal(error):
                raise
            log.warning("TrainingJob status not written", object=name, error=str(error))

    async def remove_finalizer(self, name: str) -> None:
        """Remove our finalizer, so that a deleted object can go."""
        while found := await self.get(name):
            held = found["metadata"].get("finalizers") or ()
            remaining = [each for each in held if each != FINALIZER]
            if len(remaining) == len(held) or await self._patch(found, {"finalizers": remaining}):
                break
        self._forget(name)

    async def report_refusal(self, name: str, words: str) -> None:
        """Log and write an event that the cluster refuses the status of an object."""
        meta = {"name": name, "namespace": self._client.namespace, "uid": self._uids.get(name, "")}
        log.warning("TrainingJob status refused", object=name, error=words)
        try:
            about = {"metadata": meta}
            await self.event(about, kind=TRAINING_JOBS, reason="StatusRefused", message=words)
        except ApiError as error:
            log.warning("event not written", error=str(error))

    async def delete(self, name: str, uid: str) -> None:
        """Delete the object of a finished job. It disappears when its finalizer is removed."""
        await self._client.delete(TRAINING_JOBS, name, uid=uid)

    async def remove(self, name: str) -> None:
        """Delete an object and remove our finalizer from it."""
        await self._client.delete(TRAINING_JOBS, name)
        await self.remove_finalizer(name)

    async def event(self, about: Object, *, kind: ResourceKind, reason: str, message: str) -> None:
        """Write a Warning event about an object."""
        await self._client.create(
            EVENTS, warning_event(about, kind=kind, reason=reason, message=message)
        )

    # -- shared state of all replicas -----------------------------------------------------------

    async def rows(self) -> dict[str, str]:
        """All shared rows by name."""
        kept = await self._secret_store.contents()
        kept.pop(KEY, None)
        return {name: content.decode(errors="replace") for name, content in kept.items()}

    async def put_rows(self, rows: Mapping[str, str | None]) -> None:
        """Write shared rows; None deletes one."""
        await self._secret_store.put(
            {name: None if text is None else text.encode() for name, text in rows.items()}
        )

    async def key(self) -> bytes:
        """The key for tokens and seals. The first replica creates it, and all share it."""
        while True:
            kept = (await self._secret_store.contents()).get(KEY)
            if kept:
                return kept
            await self._secret_store.put({KEY: secrets.token_bytes(32)})

    async def restore_secret_forever(self) -> None:
        """Check the state Secret regularly. Reading it restores it if it was deleted."""
        while True:
            await asyncio.sleep(SECRET_CHECK_INTERVAL_S)
            try:
                await self._secret_store.contents()
            except UnavailableError as error:
                log.warning("state secret not checked", error=str(error))

    # -- known versions -------------------------------------------------------------------------

    def _remember(self, found: Object) -> None:
        meta = found["metadata"]
        self._versions[meta["name"]] = meta["resourceVersion"]
        self._uids[meta["name"]] = meta["uid"]

    def _forget(self, name: str) -> None:
        self._versions.pop(name, None)
        self._uids.pop(name, None)

    async def get(self, name: str) -> Object | None:
        """The object; None if it does not exist."""
        try:
            found = await self._client.get(TRAINING_JOBS, name)
        except ApiError as error:
            if error.reason != "NotFound":
                raise
            self._forget(name)
            return None
        self._remember(found)
        return found

    async def _patch(self, found: Object, meta: Object) -> bool:
        """Patch the metadata of an object. False: it has changed since it was read, or is gone."""
        version = found["metadata"]["resourceVersion"]
        body = {"metadata": {**meta, "resourceVersion": version}}
        try:
            answer = await self._client.patch(TRAINING_JOBS, found["metadata"]["name"], body=body)
        except ApiError as error:
            if error.reason not in ("NotFound", "Conflict"):
                raise
            return False
        self._remember(answer)
        return True

    async def _is_created_by_us(self, name: str, body: Object) -> bool:
        """Whether an existing object is the one that we tried to create: the response may have
        been lost."""
        found = await self.get(name)
        if found is None:
            return await self.create(body)
        annotations = part(found["metadata"], "annotations")
        return annotations.get(ACCEPTED) == body["metadata"]["annotations"][ACCEPTED]

    async def _is_stored_oversized(self, name: str) -> bool:
        found = await self.get(name)
        return found is not None and is_oversized(found)

    async def _is_still_ours(self, name: str, uid: str) -> bool:
        """False if the object is gone or was replaced by another of the same name."""
        found = await self.get(name)
        if found is None or found["metadata"]["uid"] != uid:
            return False
        term = part(found, "status").get("term") or 0
        if term > self._term():
            raise LeaseLostError(f"a newer leader has written to TrainingJob {name}")
        return True


def _status_refusal(error: ApiError) -> WriteRejectedError | None:
    """The error to raise if the cluster refuses the status of one object, not of all."""
    if is_object_refusal(error):
        return not_kept_error(error, "its status")
    return not_stored_yet_error(error, "its status") if error.is_outage else None
