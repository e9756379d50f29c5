"""How pods are ended: once for each order, however long the cluster takes."""

import asyncio
from collections.abc import Awaitable
from typing import Any

from rota.core.model import JobId
from rota.engines.base import WorkerId
from rota.engines.kubernetes.bodies import body_of
from rota.engines.kubernetes.crew import Crew
from rota.engines.kubernetes.ends import Ends
from rota.tasks import Tasks
from tests.unit.engines.kubernetes.objects import WORKER, pod


class Cluster:
    """Takes its time to delete anything."""

    def __init__(self) -> None:
        self.graces: list[int] = []
        self.may_answer = asyncio.Event()

    async def delete(self, *_: Any, grace_s: int, **__: Any) -> None:
        self.graces.append(grace_s)
        await self.may_answer.wait()


def test_an_order_that_comes_again_meanwhile_deletes_nothing_twice() -> None:
    async def play() -> None:
        cluster: Any = Cluster()
        crew, tasks = Crew(), Tasks()
        ends = Ends(cluster, crew, tasks=tasks, collected=nothing)
        body = body_of(pod("Running", spec={"nodeName": "n1"}), WORKER)
        crew.stop((JobId(WORKER.job_id), WORKER.attempt), 30.0)
        for each in range(9):
            ends.end(body)
            if each % 2:
                await asyncio.sleep(0)
        assert cluster.graces == [30]
        crew.doom(WORKER)
        ends.end(body)
        await asyncio.sleep(0)
        assert cluster.graces == [30, 1], "a kill does not wait for a stop"
        cluster.may_answer.set()
        await tasks.close()

    asyncio.run(play())


def nothing(_: WorkerId) -> Awaitable[None]:
    return asyncio.sleep(0)
