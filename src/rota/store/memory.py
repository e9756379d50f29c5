"""A store in memory, for simulations and tests. Nothing survives the process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from dataclasses import replace
from itertools import islice
from typing import cast

from rota.core.model.effects import Effects
from rota.core.model.job import Ended, Job, JobId
from rota.core.model.node import Node
from rota.store.attempt_history import WorkerRowKey, ended, history
from rota.store.interface import NO_DELETIONS, PAGE_SIZE, STORY_SIZE, Batch, Deletions, R
from rota.store.records import (
    ALL,
    MIN_PREFIX,
    Attempt,
    AuditEntry,
    Exit,
    JobFilter,
    ProfileRecord,
    Row,
    SampleRecord,
    SavedState,
    StoredJobPage,
    Submission,
    Token,
    Worker,
    key_of,
)
from rota.store.retention import MAX_PROFILES, thinned


class MemoryStore:
    """Satisfies `rota.store.interface.Store`, with the same results as the durable stores."""

    def __init__(self) -> None:
        self._jobs: dict[JobId, Job] = {}
        """All jobs, in the order of their submission."""
        self._numbers: dict[JobId, int] = {}
        self._n_jobs = 0
        self._n_entries = 0
        self._submissions: dict[JobId, Submission] = {}
        self._story: list[AuditEntry] = []
        self._attempts: dict[tuple[JobId, int], Attempt] = {}
        self._workers: dict[WorkerRowKey, Worker] = {}
        self._samples: dict[JobId, list[SampleRecord]] = {}
        self._rows: dict[tuple[type, tuple[str, ...]], Row | Node] = {}

    def write(self, batch: Batch) -> Future[None]:
        self._put_jobs(batch.effects.jobs)
        for submission in batch.submissions:
            self._submissions[submission.job_id] = submission
        self._write_history(batch.effects)
        for each in batch.exits:
            self._write_exit(each)
        for transition in batch.effects.transitions:
            self._n_entries += 1
            self._story.append(AuditEntry(self._n_entries, transition, batch.actor))
        for row in batch.rows:
            self._rows[type(row), key_of(row)] = row
        if any(isinstance(row, ProfileRecord) for row in batch.rows):
            self._delete_old_profiles()
        for sample in batch.samples:
            kept = [*self._samples.get(sample.job_id, ()), sample]
            self._samples[sample.job_id] = thinned(kept)
        for node_id, node in batch.effects.nodes.items():
            if node is None:
                self._rows.pop((Node, (node_id,)), None)
            else:
                self._rows[Node, (node_id,)] = node
        self._delete(batch.deleted)
        return _done()

    def resume(self) -> Future[None]:
        return _done()

    def load(self) -> SavedState:
        live = [job for job in self._jobs.values() if not isinstance(job.phase, Ended)]
        needed = {job_id for job in live for job_id in job.spec.dependencies}
        ended = [job for job in map(self._jobs.get, needed) if job and isinstance(job.phase, Ended)]
        outcomes = {job.id: job.state for job in ended}
        return SavedState(tuple(live), tuple(self.rows(Node)), outcomes)

    def job(self, job_id: JobId) -> Job | None:
        return self._jobs.get(job_id)

    def jobs(
        self, wanted: JobFilter = ALL, *, before: int | None = None, limit: int = PAGE_SIZE
    ) -> StoredJobPage:
        numbered = [(self._numbers[job.id], job) for job in reversed(self._jobs.values())]
        found = [
            (number, job)
            for number, job in numbered
            if (before is None or number < before) and _matches(job, wanted)
        ]
        shown = found[:limit]
        is_more = len(found) > limit
        return StoredJobPage(
            tuple(job for _, job in shown), shown[-1][0] if shown and is_more else None
        )

    def count_jobs(self, wanted: JobFilter = ALL) -> int:
        wanted = replace(wanted, word="")
        return sum(_matches(job, wanted) for job in self._jobs.values())

    def submission(self, job_id: JobId) -> Submission | None:
        return self._submissions.get(job_id)

    def request_bytes(self) -> Mapping[str, int]:
        parts = {
            (each.user, number, text)
            for place, each in enumerate(self._submissions.values())
            for number, text in ((place, each.program), (-1, each.common))
        }
        n_bytes = Counter[str]()
        for user, _, text in parts:
            n_bytes[user] += len(text.encode())
        return n_bytes

    def job_with_key(self, user: str, key: str) -> JobId | None:
        mine = (each for each in self._submissions.values() if each.user == user)
        return next((each.job_id for each in mine if each.key == key), None)

    def attempts(self, job_id: JobId) -> list[Attempt]:
        return [
            replace(attempt, workers=self._workers_of(key))
            for key, attempt in sorted(self._attempts.items())
            if key[0] == job_id
        ]

    def story(
        self, job_id: JobId | None = None, *, after: int = 0, limit: int = STORY_SIZE
    ) -> list[AuditEntry]:
        mine = (
            each
            for each in self._story
            if each.number > after and job_id in (None, each.transition.job_id)
        )
        return list(islice(mine, limit))

    def newest_entry(self) -> int:
        return self._story[-1].number if self._story else 0

    def samples(self, job_id: JobId) -> list[SampleRecord]:
        return list(self._samples.get(job_id, ()))

    def expired_jobs(self, before_s: float, *, keep: Collection[JobId], limit: int) -> list[JobId]:
        never = {*keep, *list(self._jobs)[-1:], *(e.transition.job_id for e in self._story[-1:])}
        ended = [
            (job.phase.at_s, job.id)
            for job in self._jobs.values()
            if isinstance(job.phase, Ended) and job.phase.at_s < before_s and job.id not in never
        ]
        return [job_id for _, job_id in sorted(ended)[:limit]]

    def expired_entries(self, before_s: float, *, limit: int) -> list[int]:
        newest = {each.transition.job_id: each.number for each in self._story}
        old = [
            (each.transition.at_s, each.number)
            for each in self._story
            if each.transition.at_s < before_s and each.number != newest[each.transition.job_id]
        ]
        return [number for _, number in sorted(old)[:limit]]

    def rows(self, kind: type[R]) -> list[R]:
        keys = sorted(key for key in self._rows if key[0] is kind)
        return [cast("R", self._rows[key]) for key in keys]

    def close(self) -> None:
        """No writes are pending: `write` is synchronous."""

    def _put_jobs(self, jobs: Mapping[JobId, Job]) -> None:
        for job_id in (each for each in jobs if each not in self._numbers):
            self._n_jobs += 1
            self._numbers[job_id] = self._n_jobs
        self._jobs.update(jobs)

    def _delete(self, deleted: Deletions) -> None:
        if deleted == NO_DELETIONS:
            return
        jobs, entries = set(deleted.jobs), set(deleted.entries)
        for job_id in jobs:
            self._jobs.pop(job_id, None)
            self._numbers.pop(job_id, None)
            self._submissions.pop(job_id, None)
            self._samples.pop(job_id, None)
        self._attempts = {key: each for key, each in self._attempts.items() if key[0] not in jobs}
        self._workers = {key: each for key, each in self._workers.items() if key[0] not in jobs}
        self._story = [
            each
            for each in self._story
            if each.transition.job_id not in jobs and each.number not in entries
        ]
        tokens = {each.id for each in self.rows(Token) if each.job_id in jobs} | {*deleted.tokens}
        for token_id in tokens:
            self._rows.pop((Token, (token_id,)), None)

    def _workers_of(self, attempt: tuple[JobId, int]) -> tuple[Worker, ...]:
        keys = sorted(key for key in self._workers if key[:2] == attempt)
        return tuple(self._workers[key] for key in keys)

    def _write_history(self, effects: Effects) -> None:
        found = history(effects)
        for transition in found.ended:
            key = (transition.job_id, transition.attempt)
            self._attempts[key] = ended(self._attempts[key], transition)
        self._attempts.update(found.begun)
        for key, worker in found.workers.items():
            self._workers.setdefault(key, worker)

    def _delete_old_profiles(self) -> None:
        profiles = self.rows(ProfileRecord)
        profiles.sort(key=lambda each: (each.updated_s, each.category))
        for each in profiles[:-MAX_PROFILES]:
            del self._rows[ProfileRecord, key_of(each)]

    def _write_exit(self, exited: Exit) -> None:
        key = (exited.job_id, exited.attempt, exited.worker)
        worker = self._workers.get(key)
        if worker is not None:
            self._workers[key] = replace(worker, exit_code=exited.code, exited_s=exited.at_s)


def _matches(job: Job, wanted: JobFilter) -> bool:
    return (
        (not wanted.states or job.state in wanted.states)
        and wanted.user in ("", job.spec.user)
        and wanted.project in ("", job.spec.project)
        and (
            not wanted.word
            or job.spec.name == wanted.word
            or (wanted.word.endswith("[") and job.spec.name.startswith(wanted.word))
            or (len(wanted.word) >= MIN_PREFIX and job.id.startswith(wanted.word))
            or job.id.endswith(wanted.word)
        )
    )


def _done() -> Future[None]:
    done = Future[None]()
    done.set_result(None)
    return done
