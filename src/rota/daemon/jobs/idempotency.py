"""Submits that are sent again: a key that a user has used before names what it made then."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from rota.core.model import JobId
from rota.daemon.programs import unpack
from rota.errors import UserError
from rota.store.base import Store
from rota.wire.jobs import JobRequest
from rota.wire.json import dump, dump_brief


class KeyReusedError(UserError):
    """The same key with another request: one of the two would be lost without a word."""

    code = "key_reused"


@dataclass(frozen=True, slots=True)
class Asked:
    """What came with a key. `mark` is kept with what it made, to tell it from anything else."""

    mark: str
    requests: Sequence[JobRequest] = ()

    def is_what(self, mark: str) -> bool:
        """Whether this is what was asked for when that mark was made."""
        return mark in ("", self.mark) or mark == _older_mark(self.requests)


def submitted(requests: Sequence[JobRequest]) -> Asked:
    """The same whether a default was spelled out or left out."""
    try:
        text = dump_brief(list(requests))
    except ValueError:
        text = ""  # A number that is none: it will be refused, and there is nothing to know again.
    return Asked(f"brief:{_hash(text)}", requests)


def resubmitted(word: str) -> Asked:
    """By the word alone: it may well mean another job once the first resubmit is through."""
    return Asked(f"again:{_hash(word)}")


def _older_mark(requests: Sequence[JobRequest]) -> str:
    """Before there were names in front of them, marks were of all fields."""
    return _hash(dump(list(requests)))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class _UnderWay:
    """A submit that is not yet on the disk."""

    mark: str
    made: asyncio.Future[list[JobId]]


class Keys:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._under_way: dict[tuple[str, str], _UnderWay] = {}

    async def once(
        self,
        user: str,
        key: str,
        *,
        asked: Asked,
        submit: Callable[[], Awaitable[list[JobId]]],
    ) -> list[JobId]:
        """What `submit` makes, or made when this user came with this key for the first time."""
        name = (user, key)
        if name in self._under_way:
            earlier = self._under_way[name]
            _require_same(key, asked, before=earlier.mark)
            return await asyncio.shield(earlier.made)
        first = self._store.job_with_key(user, key)
        if first is not None:
            submission = self._store.submission(first)
            before = unpack(submission.program).fingerprint if submission else ""
            _require_same(key, asked, before=before)
            return self._made_with(user, key, first=first)
        made = asyncio.get_running_loop().create_future()
        self._under_way[name] = _UnderWay(asked.mark, made)
        try:
            ids = await submit()
        except BaseException as error:
            made.set_exception(error)
            made.exception()
            raise
        else:
            made.set_result(ids)
            return ids
        finally:
            del self._under_way[name]

    def _made_with(self, user: str, key: str, *, first: JobId) -> list[JobId]:
        found = [first]
        while (job_id := self._store.job_with_key(user, key_of(key, len(found)))) is not None:
            found.append(job_id)
        return found


def key_of(key: str, number: int) -> str:
    """Of the jobs of one submit, each has its own. No header can hold a line feed, so that nobody
    else's key is ever the same."""
    return f"{key}\n{number}" if number else key


def _require_same(key: str, asked: Asked, *, before: str) -> None:
    if not asked.is_what(before):
        what = f"the key {key[:40]!r} was used for another submit"
        raise KeyReusedError(what, "use a new key for each submit, the same only to try it again")
