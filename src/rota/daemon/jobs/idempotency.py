"""Idempotency keys: a repeated submit with the same key returns the jobs of the first submit."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from rota.core.model.job import JobId
from rota.daemon.launch.programs import unpack
from rota.errors import UserError
from rota.store.interface import Store
from rota.thread_pools import STORE
from rota.wire.codec import dump, dump_brief
from rota.wire.jobs import JobRequest


class KeyReusedError(UserError):
    """The user has used this key for another request."""

    code = "key_reused"


@dataclass(frozen=True, slots=True)
class IdempotentRequest:
    """A request with a key. The first job of a submit stores the `fingerprint`."""

    fingerprint: str
    requests: Sequence[JobRequest] = ()

    def matches(self, fingerprint: str) -> bool:
        """Whether the stored fingerprint belongs to the same request."""
        return fingerprint in ("", self.fingerprint) or fingerprint == _legacy_fingerprint(
            self.requests
        )


def for_submit(requests: Sequence[JobRequest]) -> IdempotentRequest:
    """A field with its default value and a missing field are equal."""
    try:
        text = dump_brief(list(requests))
    except ValueError:
        text = ""  # A NaN or infinity: the submit fails, so no fingerprint is needed.
    return IdempotentRequest(f"brief:{_hash(text)}", requests)


def for_resubmit(word: str) -> IdempotentRequest:
    """Only the word counts: after the first resubmit, a name may mean another job."""
    return IdempotentRequest(f"again:{_hash(word)}")


def _legacy_fingerprint(requests: Sequence[JobRequest]) -> str:
    """The fingerprint of older versions: without a prefix, over all fields."""
    return _hash(dump(list(requests)))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class _PendingSubmit:
    """A submit that is not yet in the store."""

    fingerprint: str
    made: asyncio.Future[list[JobId]]


class IdempotencyKeys:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._pending: dict[tuple[str, str], _PendingSubmit] = {}

    async def once(
        self,
        user: str,
        key: str,
        *,
        asked: IdempotentRequest,
        submit: Callable[[], Awaitable[list[JobId]]],
    ) -> list[JobId]:
        """Call `submit`, unless this user has used the key before: then return the first result."""
        name = (user, key)
        if name in self._pending:
            earlier = self._pending[name]
            _require_same(key, asked, before=earlier.fingerprint)
            return await asyncio.shield(earlier.made)
        made = asyncio.get_running_loop().create_future()
        # Before the first await, so that a repeated submit waits for this one.
        self._pending[name] = _PendingSubmit(asked.fingerprint, made)
        try:
            before = await STORE.run(self._made_before, user, key, asked=asked)
            ids = before or await submit()
        except BaseException as error:
            made.set_exception(error)
            made.exception()
            raise
        else:
            made.set_result(ids)
            return ids
        finally:
            del self._pending[name]

    def _made_before(self, user: str, key: str, *, asked: IdempotentRequest) -> list[JobId]:
        """The jobs in the store that this key created; none if the key is new. Blocks."""
        first = self._store.job_with_key(user, key)
        if first is None:
            return []
        submission = self._store.submission(first)
        before = unpack(submission).fingerprint if submission else ""
        _require_same(key, asked, before=before)
        return self._made_with(user, key, first=first)

    def _made_with(self, user: str, key: str, *, first: JobId) -> list[JobId]:
        found = [first]
        while (job_id := self._store.job_with_key(user, key_of(key, len(found)))) is not None:
            found.append(job_id)
        return found


def key_of(key: str, number: int) -> str:
    """Each job of a submit has its own key. The separator is a line feed, which no header can
    contain, so that no key of a user equals the key of a job."""
    return f"{key}\n{number}" if number else key


def _require_same(key: str, asked: IdempotentRequest, *, before: str) -> None:
    if not asked.matches(before):
        what = f"the key {key[:40]!r} was used for another submit"
        raise KeyReusedError(what, "use a new key for each submit, the same key for a retry only")
