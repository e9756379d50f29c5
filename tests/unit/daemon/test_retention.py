"""Retention on a real store, with a controller whose clock the test sets."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rota.core.lifecycle.states import JobState
from rota.core.model.effects import Effects, Transition
from rota.core.model.events import JobCancelled, JobSubmitted
from rota.core.model.job import Ended, JobId, JobSpec
from rota.daemon import retention
from rota.daemon.access.authorization import Caller
from rota.daemon.access.tokens import Tokens
from rota.daemon.jobs.job_lookup import match_word
from rota.daemon.retention import JobRetention, RetentionLimits
from rota.daemon.runtime.controller import Controller, ControllerDependencies
from rota.engines.interface import Program
from rota.errors import UserError
from rota.policies.registry import parse
from rota.store.interface import Batch, Store
from rota.store.records import Submission, Token, TokenScope, UsageRecord
from rota.store.sqlite.check import check
from rota.store.sqlite.store import SqliteStore
from tests.support.builders import QUICK, job
from tests.unit.daemon.idle_engine import idle_engine

DAY_S = 86400.0
LIMITS = RetentionLimits(jobs_s=90 * DAY_S, entries_s=30 * DAY_S)
ADA = Caller("ada")


class Daemon:
    """A controller with a store on disk. `now` is its clock."""

    def __init__(self, path: Path) -> None:
        self.now = 0.0
        self.store: Store = SqliteStore(path)
        parts = ControllerDependencies(self.store, idle_engine(), lambda: self.now, QUICK)
        self.controller = Controller(parts, parse("fifo"))
        self.tokens = Tokens(self.controller, self.store, key=b"k", clock=lambda: self.now)
        self.retention = JobRetention(
            self.controller,
            self.store,
            tokens=self.tokens,
            limits=LIMITS,
            clock=lambda: self.now,
        )

    async def submit(self, *specs: JobSpec) -> None:
        told = [JobSubmitted(JobId(each.name), each, is_held=True) for each in specs]
        sent = [Submission(each.job_id, "ada", 0, "{}", f"key-{each.job_id}") for each in told]
        await self.controller.durable(self.controller.apply_events(told, sent, actor="ada"))

    async def cancel(self, *names: str) -> None:
        told = [JobCancelled(JobId(name), "ada") for name in names]
        await self.controller.durable(self.controller.apply_events(told, (), actor="ada"))

    def kept(self) -> list[str]:
        return sorted(each.id for each in self.store.jobs(limit=1000).jobs)


def run(path: Path, scenario: Callable[[Daemon], Awaitable[None]]) -> None:
    async def main() -> None:
        daemon = Daemon(path)
        await daemon.controller.start(_no_program, listeners=())
        try:
            await scenario(daemon)
        finally:
            await daemon.controller.close()
            daemon.store.close()
        assert check(path) == []

    asyncio.run(main())


async def _no_program(job_id: JobId) -> Program:
    raise UserError(f"{job_id} must not start")


def test_ended_jobs_are_deleted_after_their_time(tmp_path: Path) -> None:
    async def scenario(daemon: Daemon) -> None:
        usage = UsageRecord("", "ada", 7200.0, 7200.0, 1.0)
        await daemon.controller.durable(daemon.controller.put(usage))
        await daemon.submit(job("a"), job("b"), job("c"))
        await daemon.cancel("a")
        daemon.now = 50 * DAY_S
        await daemon.cancel("b")
        daemon.now = 91 * DAY_S
        await daemon.submit(job("d"))
        await daemon.retention.prune()
        assert daemon.kept() == ["b", "c", "d"]
        assert "a" not in daemon.controller.kernel.outcomes
        daemon.now = 141 * DAY_S
        await daemon.retention.prune()
        assert daemon.kept() == ["c", "d"], "a job that has not ended stays"
        assert daemon.store.rows(UsageRecord) == [usage]

    run(tmp_path / "rota.db", scenario)


def test_a_job_that_a_live_job_depends_on_stays(tmp_path: Path) -> None:
    async def scenario(daemon: Daemon) -> None:
        await daemon.submit(job("a"), job("b", after=(JobId("a"),)), job("c"))
        succeeded = replace(
            daemon.controller.kernel.jobs[JobId("a")], phase=Ended(1.0, JobState.SUCCEEDED)
        )
        # No worker runs here, so the test writes the end of `a` to the store itself.
        row = Transition(1.0, JobId("a"), 0, JobState.HELD, JobState.SUCCEEDED, "test")
        effects = Effects(1.0, jobs={succeeded.id: succeeded}, transitions=[row])
        daemon.store.write(Batch(effects)).result()
        daemon.now = 91 * DAY_S
        await daemon.submit(job("d"))
        await daemon.retention.prune()
        assert daemon.kept() == ["a", "b", "c", "d"]
        assert daemon.store.load().outcomes == {JobId("a"): JobState.SUCCEEDED}
        await daemon.cancel("b")
        await daemon.retention.prune()
        assert daemon.kept() == ["b", "c", "d"]

    run(tmp_path / "rota.db", scenario)


def test_many_jobs_are_deleted_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BATCH_SIZE", 3)

    async def scenario(daemon: Daemon) -> None:
        names = [f"job-{number}" for number in range(8)]
        await daemon.submit(*map(job, names), job("last"))
        await daemon.cancel(*names)
        daemon.now = 91 * DAY_S
        await daemon.submit(job("new"))
        await daemon.retention.prune()
        assert daemon.kept() == ["last", "new"]

    run(tmp_path / "rota.db", scenario)


def test_old_entries_go_before_their_job(tmp_path: Path) -> None:
    async def scenario(daemon: Daemon) -> None:
        await daemon.submit(job("a"), job("b"))
        await daemon.cancel("a")
        daemon.now = 31 * DAY_S
        await daemon.retention.prune()
        assert daemon.kept() == ["a", "b"]
        stories = [daemon.store.story(JobId(name)) for name in "ab"]
        assert [[each.transition.after for each in story] for story in stories] == [
            ["cancelled"],
            ["held"],
        ]

    run(tmp_path / "rota.db", scenario)


def test_tokens_that_ended_are_deleted(tmp_path: Path) -> None:
    async def scenario(daemon: Daemon) -> None:
        made = [
            await daemon.tokens.create(ADA, user="", scope=TokenScope.READ_ONLY, days=days)
            for days in (1.0, 365.0, None)
        ]
        await daemon.tokens.revoke(ADA, made[2].id)
        daemon.now = 92 * DAY_S
        await daemon.retention.prune()
        assert [each.id for each in daemon.store.rows(Token)] == [made[1].id]
        assert [each.id for each in daemon.tokens.list(ADA)] == [made[1].id]

    run(tmp_path / "rota.db", scenario)


def test_the_hint_for_an_unknown_id_names_the_setting(tmp_path: Path) -> None:
    async def scenario(daemon: Daemon) -> None:
        with pytest.raises(UserError) as caught:
            match_word("0abcdefg", ADA, reader=daemon.controller, store=daemon.store)
        assert "no job '0abcdefg'" in str(caught.value)
        assert "keep_jobs" in caught.value.hint

    run(tmp_path / "rota.db", scenario)
