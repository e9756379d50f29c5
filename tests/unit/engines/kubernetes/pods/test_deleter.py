"""Pods are deleted once for each command, however long the cluster takes."""

import asyncio
from collections.abc import Awaitable
from typing import Any

from rota.core.model.job import JobId
from rota.engines.interface import WorkerId
from rota.engines.kubernetes.pods.deleter import PodDeleter
from rota.engines.kubernetes.pods.state import pod_state_of
from rota.engines.kubernetes.pods.tracker import PodTracker
from rota.tasks import Tasks
from tests.support.kube_objects import WORKER, pod


class Cluster:
    """Delays every delete."""

    def __init__(self) -> None:
        self.graces: list[int] = []
        self.may_answer = asyncio.Event()

    async def delete(self, *_: Any, grace_s: int, **__: Any) -> None:
        self.graces.append(grace_s)
        await self.may_answer.wait()


def test_a_repeated_command_deletes_a_pod_once() -> None:
    async def play() -> None:
        cluster: Any = Cluster()
        pod_tracker, tasks = PodTracker(), Tasks()
        deleter = PodDeleter(cluster, pod_tracker, tasks=tasks, collected=nothing)
        pod_state = pod_state_of(pod("Running", spec={"nodeName": "n1"}), WORKER)
        pod_tracker.stop((JobId(WORKER.job_id), WORKER.attempt), 30.0)
        for each in range(9):
            deleter.end(pod_state)
            if each % 2:
                await asyncio.sleep(0)
        assert cluster.graces == [30]
        pod_tracker.kill(WORKER)
        deleter.end(pod_state)
        await asyncio.sleep(0)
        assert cluster.graces == [30, 1], "a kill does not wait for a stop"
        cluster.may_answer.set()
        await tasks.close()

    asyncio.run(play())


def nothing(_: WorkerId) -> Awaitable[None]:
    return asyncio.sleep(0)
