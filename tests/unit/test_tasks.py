"""What a bug means in work that goes on beside other work."""

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from rota.errors import UnavailableError
from rota.tasks import Bugs, Tasks


async def dies() -> None:
    raise KeyError("x")


async def lasts() -> None:
    await asyncio.Event().wait()


async def until(tasks: Tasks) -> BaseException:
    async with asyncio.timeout(30):
        return await tasks.broken()


def faults(lines: list[Any]) -> list[Any]:
    return [{**each, "exc_info": type(each["exc_info"])} for each in lines]


def test_what_all_rests_upon_is_missed_and_told_with_where_it_broke() -> None:
    missed: list[BaseException] = []

    async def scenario() -> None:
        tasks = Tasks(missed.append)
        tasks.rely_on(lasts())
        tasks.rely_on(dies())
        assert await until(tasks) is missed[0]
        await tasks.close()

    with capture_logs() as lines:
        asyncio.run(scenario())
    assert [type(each) for each in missed] == [KeyError]
    what = {"event": "something died that all else rests upon", "log_level": "error"}
    assert faults(lines) == [{**what, "exc_info": KeyError}]


def test_what_waited_for_something_that_was_cancelled_is_missed_too() -> None:
    """Nobody meant to end it, and it goes on no more."""

    async def scenario() -> None:
        tasks, answer = Tasks(), asyncio.get_running_loop().create_future()

        async def waits() -> None:
            await answer

        tasks.rely_on(waits())
        answer.cancel()
        assert isinstance(await until(tasks), asyncio.CancelledError)

    asyncio.run(scenario())


def test_what_is_for_one_alone_is_told_with_whose_it_is() -> None:
    missed: list[BaseException] = []

    async def scenario() -> None:
        tasks = Tasks(missed.append)
        await asyncio.wait([tasks.spawn(dies(), job="a")])
        await tasks.close()

    with capture_logs() as lines:
        asyncio.run(scenario())
    assert missed == []
    what = {"event": "work was given up", "log_level": "error", "error": "'x'"}
    assert faults(lines) == [{**what, "exc_info": KeyError, "job": "a"}]


def test_at_the_end_nobody_is_missed() -> None:
    missed: list[BaseException] = []

    async def stumbles() -> None:
        try:
            await lasts()
        finally:
            raise KeyError("x")

    async def scenario() -> None:
        tasks = Tasks(missed.append)
        tasks.rely_on(lasts())
        tasks.rely_on(stumbles())
        await asyncio.sleep(0)
        await tasks.close()
        tasks.rely_on_soon(lambda: missed.append(KeyError("rang after the end")))
        await asyncio.sleep(0)

    asyncio.run(scenario())
    assert missed == []


def test_a_bug_with_one_of_many_is_told_once_and_the_others_go_on() -> None:
    bugs, seen = Bugs("not looked at"), list[str]()

    def look(broken: str) -> None:
        for each in "abc":
            with bugs.of(job=each):
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
    with pytest.raises(UnavailableError), Bugs("not looked at").of(job="a"):
        raise UnavailableError("the disk is full")
