"""A store that forgets when the process ends: for simulations and tests."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import cast

from rota.core.effects import Effects
from rota.core.model import Ended, Job, JobId, Node
from rota.store.base import PAGE_SIZE, STORY_SIZE, Batch, R
from rota.store.history import WorkerKey, ended, history
from rota.store.records import (
    ALL,
    Attempt,
    Entry,
    Exit,
    JobFilter,
    Page,
    Profile,
    Row,
    Sample,
    Saved,
    Submission,
    Worker,
    key_of,
)
from rota.store.thinning import MOST_PROFILES, thinned


class MemoryStore:
    """The same answers as any other store, for as long as it lives."""

    def __init__(self) -> None:
        self._jobs: dict[JobId, Job] = {}
        """All jobs, in the order in which they came."""
        self._submissions: dict[JobId, Submission] = {}
        self._story: list[Entry] = []
        self._attempts: dict[tuple[JobId, int], Attempt] = {}
        self._workers: dict[WorkerKey, Worker] = {}
        self._samples: dict[JobId, list[Sample]] = {}
        self._rows: dict[tuple[type, tuple[str, ...]], Row | Node] = {}

    def write(self, batch: Batch) -> Future[None]:
        self._jobs.update(batch.effects.jobs)
        for submission in batch.submissions:
            self._submissions[submission.job_id] = submission
        self._write_history(batch.effects)
        for each in batch.exits:
            self._write_exit(each)
        for transition in batch.effects.transitions:
            self._story.append(Entry(len(self._story) + 1, transition, batch.actor))
        for row in batch.rows:
            self._rows[type(row), key_of(row)] = row
        if any(isinstance(row, Profile) for row in batch.rows):
            self._forget_profiles()
        for sample in batch.samples:
            kept = [*self._samples.get(sample.job_id, ()), sample]
            self._samples[sample.job_id] = thinned(kept)
        for node_id, node in batch.effects.nodes.items():
            if node is None:
                self._rows.pop((Node, (node_id,)), None)
            else:
                self._rows[Node, (node_id,)] = node
        return _done()

    def resume(self) -> Future[None]:
        return _done()

    def load(self) -> Saved:
        return Saved(
            jobs=tuple(job for job in self._jobs.values() if not isinstance(job.phase, Ended)),
            nodes=tuple(self.rows(Node)),
            outcomes={
                job.id: job.state for job in self._jobs.values() if isinstance(job.phase, Ended)
            },
        )

    def job(self, job_id: JobId) -> Job | None:
        return self._jobs.get(job_id)

    def jobs(
        self, wanted: JobFilter = ALL, *, before: int | None = None, limit: int = PAGE_SIZE
    ) -> Page:
        numbered = list(enumerate(self._jobs.values(), start=1))[: before and before - 1]
        found = [(number, job) for number, job in reversed(numbered) if _matches(job, wanted)]
        shown = found[:limit]
        is_more = len(found) > limit
        return Page(tuple(job for _, job in shown), shown[-1][0] if shown and is_more else None)

    def submission(self, job_id: JobId) -> Submission | None:
        return self._submissions.get(job_id)

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
    ) -> list[Entry]:
        entries = self._story[after:]
        mine = [each for each in entries if job_id in (None, each.transition.job_id)]
        return mine[:limit]

    def newest_entry(self) -> int:
        return len(self._story)

    def samples(self, job_id: JobId) -> list[Sample]:
        return list(self._samples.get(job_id, ()))

    def rows(self, kind: type[R]) -> list[R]:
        keys = sorted(key for key in self._rows if key[0] is kind)
        return [cast("R", self._rows[key]) for key in keys]

    def close(self) -> None:
        """There is nothing to finish."""

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

    def _forget_profiles(self) -> None:
        profiles = self.rows(Profile)
        profiles.sort(key=lambda each: (each.updated_s, each.category))
        for each in profiles[:-MOST_PROFILES]:
            del self._rows[Profile, key_of(each)]

    def _write_exit(self, told: Exit) -> None:
        key = (told.job_id, told.attempt, told.worker)
        worker = self._workers.get(key)
        if worker is not None:
            self._workers[key] = replace(worker, exit_code=told.code, exited_s=told.at_s)


def _matches(job: Job, wanted: JobFilter) -> bool:
    return (
        (not wanted.states or job.state in wanted.states)
        and wanted.user in ("", job.spec.user)
        and wanted.project in ("", job.spec.project)
        and (
            job.spec.name == wanted.word
            or (wanted.word.endswith("[") and job.spec.name.startswith(wanted.word))
            or job.id.startswith(wanted.word)
            or job.id.endswith(wanted.word)
        )
    )


def _done() -> Future[None]:
    done = Future[None]()
    done.set_result(None)
    return done
