"""Hold GPUs that several workers share.

A placeholder pod requests the GPU, so that the cluster gives it to no other pod, and reports the
id of the GPU. The sharing workers receive this id and request no GPU. The placeholder pod is
deleted after the last of them has ended.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial

from rota.engines.interface import WorkerId
from rota.engines.kubernetes.gpu_sharing.placeholder_pod import (
    GpuLocation,
    gpu_in,
    gpu_location_of,
    holder_problem,
    placeholder,
    same_gpu_twice,
)
from rota.engines.kubernetes.pods import naming
from rota.engines.kubernetes.pods.placement import PodPlacement
from rota.engines.kubernetes.pods.start_problems import StartProblem
from rota.engines.kubernetes.pods.state import KILL_GRACE_S, PodStage, PodState, stage_of
from rota.engines.kubernetes.pods.tracker import PodTracker
from rota.engines.kubernetes.settings import KubernetesSettings
from rota.errors import UnavailableError
from rota.kube.client import KubeClient
from rota.kube.errors import ApiError
from rota.kube.resources import PODS, Object, part
from rota.kube.retry import retry_until_final

REPORT_TIMEOUT_S = 30.0
MAX_REPORT_BYTES = 4096
"""A longer first line is no id of a GPU: the program of the pod may be another one."""


class GpuHolderError(UnavailableError):
    """The GPU could not be held: another pod took it, or the placeholder pod has a problem."""

    def __init__(self, message: str, problem: StartProblem | None = None) -> None:
        super().__init__(message)
        self.problem = problem


@dataclass(slots=True)
class GpuHolder:
    """One placeholder pod, and the id of its GPU once it is known."""

    name: str
    uid: str = ""
    uuid: str = ""
    is_running: bool = False
    problem: StartProblem | None = None

    def see_problem(self, now: StartProblem | None) -> None:
        """Set the problem. A lasting problem stays while the container restarts: it will fail
        again."""
        if now is not None or (self.problem is not None and self.problem.is_transient):
            self.problem = now

    def on_error(self, error: ApiError) -> None:
        """The placeholder pod could not be created yet."""
        self.see_problem(StartProblem(str(error), is_outage=True) if error.is_outage else None)


class GpuHolders:
    """All placeholder pods, by the location of their GPU."""

    def __init__(
        self, client: KubeClient, settings: KubernetesSettings, *, pod_tracker: PodTracker
    ) -> None:
        self._client, self._settings, self._pod_tracker = client, settings, pod_tracker
        self._holders: dict[GpuLocation, GpuHolder] = {}
        self._ended: list[GpuHolder] = []
        """Placeholder pods that have ended, for example after an eviction."""
        self._waiting: dict[WorkerId, list[GpuLocation]] = {}
        """Workers that wait for the ids of these GPUs."""
        self._reported: set[WorkerId] = set()
        self._changed = asyncio.Event()

    # -- changes of pods ------------------------------------------------------------------------

    def see(self, pod: Object) -> list[WorkerId]:
        """Returns the workers that lost their holder by this change."""
        location, meta = gpu_location_of(pod), pod["metadata"]
        if "deletionTimestamp" in meta:
            return self.pod_deleted(pod)
        if stage_of(pod) is PodStage.OVER:
            self._ended.append(GpuHolder(meta["name"], meta["uid"]))
            return self.pod_deleted(pod)
        if location is None:
            return []
        holder = self._holders.setdefault(location, GpuHolder(meta["name"]))
        if holder.name == meta["name"]:
            holder.uid = meta["uid"]
            # Keep the first id: the annotation may have been edited.
            holder.uuid = holder.uuid or part(meta, "annotations").get(naming.SHARED_GPUS, "")
            holder.is_running = stage_of(pod) is PodStage.RUNNING
            holder.see_problem(holder_problem(pod))
        self._wake_waiters()
        return []

    def pod_deleted(self, pod: Object) -> list[WorkerId]:
        """Returns the workers that lost their holder."""
        name = pod["metadata"]["name"]
        location = next(
            (each for each, holder in self._holders.items() if holder.name == name), None
        )
        if location is None:
            return []
        del self._holders[location]
        self._wake_waiters()
        return self._without_holder(location)

    def workers_without_holder(self) -> list[WorkerId]:
        """Workers whose shared GPU has no placeholder pod, for any reason."""
        alive = self._pod_tracker.alive()
        places = {
            (pod_state.node or pod_state.planned, index)
            for pod_state in alive
            if _is_sharer(pod_state)
            for index in pod_state.gpus
        }
        return [
            worker
            for location in places - self._holders.keys()
            for worker in self._without_holder(location)
        ]

    def recheck(self) -> None:
        """Wake up the waiting workers: they may have been stopped."""
        self._wake_waiters()

    def pop_unused(self) -> list[GpuHolder]:
        """Holders without workers. They are no longer tracked."""
        wanted = {location for locations in self._waiting.values() for location in locations}
        unused = [
            location
            for location in self._holders
            if location not in wanted and not self._sharers(location)
        ]
        found = [*self._ended, *(self._holders.pop(location) for location in unused)]
        self._ended = []
        return found

    def unreported(self) -> dict[WorkerId, str]:
        """Lasting problems that keep a GPU from being held, for the owners of the waiting
        workers, each once."""
        found: dict[WorkerId, str] = {}
        for worker, locations in self._waiting.items():
            for location in locations if worker not in self._reported else ():
                holder = self._holders.get(location)
                if holder and holder.problem and not holder.problem.is_race:
                    found[worker] = _not_shared(location, holder.problem.message)
        self._reported |= found.keys()
        return found

    # -- hold and release -----------------------------------------------------------------------

    async def hold(self, placement: PodPlacement) -> str:
        """The ids of the GPUs that a worker shares, with commas between them. The GPUs are held
        when this returns."""
        node, worker = placement.slot.node, placement.worker
        locations: list[GpuLocation] = [(node, index) for index in placement.slot.gpus]
        self._waiting[worker] = locations
        try:
            return ",".join([await self._hold(each, worker) for each in locations])
        finally:
            del self._waiting[placement.worker]
            self._reported.discard(placement.worker)

    async def delete_holder(self, holder: GpuHolder) -> None:
        """Delete a placeholder pod."""
        delete = partial(
            self._client.delete, PODS, holder.name, grace_s=KILL_GRACE_S, uid=holder.uid
        )
        await retry_until_final(delete, what=holder.name)

    async def _hold(self, location: GpuLocation, worker: WorkerId) -> str:
        holder = self._holders.get(location)
        is_new = holder is None
        holder = holder or self._holders.setdefault(
            location, GpuHolder(naming.placeholder_name(worker, location[1]))
        )
        try:
            async with asyncio.timeout(self._settings.bind_patience_s + REPORT_TIMEOUT_S) as limit:
                if is_new:
                    make = partial(self._create, location, worker)
                    await retry_until_final(
                        make, what=f"shared GPU of {location[0]}", on_error=holder.on_error
                    )
                return await self._wait_for_id(holder, location, worker=worker, limit=limit)
        except ApiError as error:
            if not holder.uid and self._holders.get(location) is holder:
                # Other workers that wait for it would fail as well.
                holder.problem = StartProblem(str(error), is_outage=True)
                del self._holders[location]
                self._wake_waiters()
            raise
        except TimeoutError:
            if holder.problem is not None and self._holders.get(location) is holder:
                # Delete it: the next one may be created with other settings.
                del self._holders[location]
                await self.delete_holder(holder)
            raise _unavailable(holder, location, default="it does not report its GPU") from None

    async def _wait_for_id(
        self, holder: GpuHolder, location: GpuLocation, *, worker: WorkerId, limit: asyncio.Timeout
    ) -> str:
        is_warned = False
        while True:
            if self._holders.get(location) is not holder:
                raise _unavailable(holder, location, default="it was deleted")
            if holder.is_running and not holder.uuid:
                await retry_until_final(partial(self._read_id, holder), what=holder.name)
            if holder.uuid or self._pod_tracker.is_to_end(worker):
                return holder.uuid
            if holder.problem and not holder.problem.is_race and not is_warned:
                is_warned = True
                limit.reschedule(asyncio.get_running_loop().time() + self._settings.stuck_after_s)
            await self._changed.wait()

    async def _create(self, location: GpuLocation, worker: WorkerId) -> None:
        pod = placeholder(location, worker, settings=self._settings)
        self.see(await self._client.apply(PODS, pod))

    async def _read_id(self, holder: GpuHolder) -> None:
        """The first line of its output is the id. Keep it in an annotation for the next daemon."""
        output = b""
        async with aclosing(self._client.pod_log(holder.name, follow=True)) as chunks:
            async for chunk in chunks:
                output += chunk
                if b"\n" in output or len(output) > MAX_REPORT_BYTES:
                    break
        _, _, line = (
            output[:MAX_REPORT_BYTES].split(b"\n")[0].decode(errors="replace").partition(" ")
        )
        found = gpu_in(line)
        if isinstance(found, StartProblem):
            # No output: the container did not start, and a known problem explains more.
            holder.problem = found if output or holder.problem is None else holder.problem
            return
        if other := self._other_with(found, holder):
            holder.problem = same_gpu_twice(found, other)
            return
        holder.uuid, holder.problem = found, None
        notes = {"metadata": {"annotations": {naming.SHARED_GPUS: holder.uuid}}}
        await self._client.amend(PODS, holder.name, body=notes)

    def _other_with(self, uuid: str, holder: GpuHolder) -> str:
        """The name of another placeholder pod on this node with this id. The sharers of both would
        be on one GPU, and each group could fill its memory."""
        nodes = {node for (node, _), each in self._holders.items() if each is holder}
        others = (each for (node, _), each in self._holders.items() if node in nodes)
        return next((each.name for each in others if each is not holder and each.uuid == uuid), "")

    def _sharers(self, location: GpuLocation) -> list[PodState]:
        node, index = location
        alive = self._pod_tracker.alive_on(node)
        return [
            pod_state for pod_state in alive if _is_sharer(pod_state) and index in pod_state.gpus
        ]

    def _without_holder(self, location: GpuLocation) -> list[WorkerId]:
        """Without gated workers: they fail when they ask for the GPU."""
        return [
            pod_state.worker
            for pod_state in self._sharers(location)
            if pod_state.stage is not PodStage.GATED
        ]

    def _wake_waiters(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _unavailable(holder: GpuHolder, location: GpuLocation, *, default: str) -> GpuHolderError:
    why = holder.problem.message if holder.problem else default
    return GpuHolderError(_not_shared(location, why), holder.problem)


def _not_shared(location: GpuLocation, why: str) -> str:
    node, index = location
    return f"GPU {index} of {node} cannot be shared: problem of its placeholder pod: {why}"


def _is_sharer(pod_state: PodState) -> bool:
    return bool(pod_state.share_bytes and pod_state.gpus)
