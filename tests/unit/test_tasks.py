"""Failures of background tasks, and isolation of errors."""

import asyncio
import threading
from typing import Any

import pytest
from structlog.testing import capture_logs

from rota.errors import UnavailableError
from rota.tasks import ErrorIsolation, Tasks, in_thread


async def dies() -> None:
    raise KeyError("x")


async def lasts() -> None:
    await asyncio.Event().wait()


async def until(tasks: Tasks) -> BaseException:
    async with asyncio.timeout(30):
        return await tasks.wait_failed()


def faults(lines: list[Any]) -> list[Any]:
    return [{**each, "exc_info": type(each["exc_info"])} for each in lines]


def test_a_failed_critical_task_is_reported_with_its_traceback() -> None:
    missed: list[BaseException] = []

    async def scenario() -> None:
        tasks = Tasks(missed.append)
        tasks.spawn_critical(lasts())
        tasks.spawn_critical(dies())
        assert await until(tasks) is missed[0]
        await tasks.close()

    with capture_logs() as lines:
        asyncio.run(scenario())
    assert [type(each) for each in missed] == [KeyError]
    what = {"event": "critical background task failed", "task": "dies", "log_level": "error"}
    assert faults(lines) == [{**what, "exc_info": KeyError}]


def test_a_critical_task_cancelled_with_its_awaitable_counts_as_failed() -> None:
    """The task was not cancelled on purpose, and it no longer runs."""

    async def scenario() -> None:
        tasks, answer = Tasks(), asyncio.get_running_loop().create_future()

        async def waits() -> None:
            await answer

        tasks.spawn_critical(waits())
        answer.cancel()
        assert isinstance(await until(tasks), asyncio.CancelledError)

    asyncio.run(scenario())


def test_a_failed_spawned_task_is_logged_with_its_labels() -> None:
    missed: list[BaseException] = []

    async def scenario() -> None:
        tasks = Tasks(missed.append)
        await asyncio.wait([tasks.spawn(dies(), job="a")])
        await tasks.close()

    with capture_logs() as lines:
        asyncio.run(scenario())
    assert missed == []
    what = {"event": "background task failed", "log_level": "error", "error": "'x'"}
    assert faults(lines) == [{**what, "exc_info": KeyError, "job": "a"}]


def test_tasks_that_end_during_close_are_not_failures() -> None:
    missed: list[BaseException] = []

    async def stumbles() -> None:
        try:
            await lasts()
        finally:
            raise KeyError("x")

    async def scenario() -> None:
        tasks = Tasks(missed.append)
        tasks.spawn_critical(lasts())
        tasks.spawn_critical(stumbles())
        await asyncio.sleep(0)
        await tasks.close()
        tasks.call_critical(lambda: missed.append(KeyError("rang after the end")))
        await asyncio.sleep(0)

    asyncio.run(scenario())
    assert missed == []


def test_an_isolated_error_is_logged_once_and_the_others_continue() -> None:
    isolation, seen = ErrorIsolation("not looked at"), list[str]()

    def look(broken: str) -> None:
        for each in "abc":
            with isolation.of(job=each):
                if each in broken:
                    raise KeyError(each)
                seen.append(each)

    with capture_logs() as lines:
        look("b")
        look("b")
        assert [(each["event"], each["job"]) for each in lines] == [("not looked at", "b")]
        look("")
        look("b")
    assert len(lines) == 2
    assert seen == [*"ac", *"ac", *"abc", *"ac"]


def test_what_is_said_in_words_is_no_bug() -> None:
    with pytest.raises(UnavailableError), ErrorIsolation("not looked at").of(job="a"):
        raise UnavailableError("the disk is full")


def test_one_thread_runs_calls_one_after_the_other() -> None:
    async def scenario() -> None:
        first = await in_thread(threading.get_ident)
        assert [await in_thread(threading.get_ident) for _ in range(3)] == [first] * 3
        assert first != threading.get_ident()

    asyncio.run(scenario())


def test_a_blocked_call_delays_no_other_call() -> None:
    async def scenario() -> None:
        gate = threading.Event()
        blocked = asyncio.ensure_future(in_thread(gate.wait))
        await asyncio.sleep(0)
        await in_thread(gate.set)
        assert await blocked

    asyncio.run(scenario())


def test_a_thread_survives_a_call_that_raises() -> None:
    async def scenario() -> None:
        first = await in_thread(threading.get_ident)
        with pytest.raises(ZeroDivisionError):
            await in_thread(lambda: 1 // 0)
        assert await in_thread(threading.get_ident) == first

    asyncio.run(scenario())
