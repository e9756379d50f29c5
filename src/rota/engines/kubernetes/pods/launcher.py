"""Start the pods of a command together: create all of them with a gate, then the Secret with their
token, then remove the gates. If the cluster refuses one of these objects, the whole command is
given up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from rota.engines.interface import WorkerId
from rota.engines.kubernetes.gpu_sharing.holders import GpuHolderError, GpuHolders
from rota.engines.kubernetes.pods import naming
from rota.engines.kubernetes.pods.deadlines import termination_for
from rota.engines.kubernetes.pods.manifest import ungate_patch
from rota.engines.kubernetes.pods.placement import PodPlacement
from rota.engines.kubernetes.pods.start_problems import StartProblem
from rota.engines.kubernetes.pods.state import PodStage, PodState
from rota.engines.kubernetes.pods.termination import CANNOT_RUN, PodTermination, termination_of_bug
from rota.engines.kubernetes.pods.token_secret import secret_of
from rota.engines.kubernetes.pods.tracker import PodTracker
from rota.kube.client import KubeClient
from rota.kube.errors import NOT_FOUND, ApiError
from rota.kube.resources import PODS, SECRETS, Object
from rota.kube.retry import RetriedCall, retry_until_final

QUOTA = "exceeded quota"
"""Part of the API server's message if the quota of the namespace is used up."""
MAX_CONCURRENT_COMMANDS = 32
"""A limit, so that the first pods run while the last ones are still being created."""


@dataclass(frozen=True, slots=True)
class LaunchCallbacks:
    """`see` receives a pod as the cluster returned it, `report_problem` the current start
    problem of a worker or None, `give_up` the termination of a worker that cannot run."""

    see: Callable[[Object], None]
    report_problem: Callable[[WorkerId, StartProblem | None], None]
    give_up: Callable[[WorkerId, PodTermination], None]


class PodLauncher:
    def __init__(
        self,
        client: KubeClient,
        pod_tracker: PodTracker,
        *,
        gpu_holders: GpuHolders,
        callbacks: LaunchCallbacks,
    ) -> None:
        self._client, self._pod_tracker, self._gpu_holders = client, pod_tracker, gpu_holders
        self._callbacks = callbacks
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_COMMANDS)
        self.launching: dict[WorkerId, PodPlacement] = {}
        """Workers that are being started."""
        self._changed: dict[WorkerId, asyncio.Event] = {}

    def notice(self, worker: WorkerId) -> None:
        """Wake up a launch that waits for this worker."""
        if event := self._changed.pop(worker, None):
            event.set()

    async def launch(
        self,
        pods: Sequence[tuple[PodPlacement, Object]],
        *,
        master: WorkerId,
        token: str,
    ) -> None:
        """Start the workers that are not being started already."""
        launching = [
            (placement, pod) for placement, pod in pods if placement.worker not in self.launching
        ]
        placements = [placement for placement, _ in launching]
        self.launching |= {placement.worker: placement for placement in placements}
        first = [placement for placement in placements if placement.rank == 0]
        others = [placement for placement in placements if placement.rank != 0]
        try:
            async with self._slots:
                if not await self._create_all(launching):
                    return
                if not await self._create_secrets(token, placements):
                    return
                await asyncio.gather(*(self._ungate(placement) for placement in first))
            if others:
                await self._ungate_all(others, master=master)
        except Exception as error:
            # Otherwise the job would be starting for ever.
            for placement in placements:
                self._callbacks.give_up(placement.worker, termination_of_bug(error))
            raise
        finally:
            for placement in placements:
                del self.launching[placement.worker]

    # -- create ---------------------------------------------------------------------------------

    async def _create_all(self, pods: Sequence[tuple[PodPlacement, Object]]) -> bool:
        answers = await asyncio.gather(*(self._create(placement, pod) for placement, pod in pods))
        refused = [each for each in answers if each is not None]
        for placement, _ in pods if refused else ():
            self._callbacks.give_up(
                placement.worker, _refusal(refused[0], is_newcomer=placement.generation > 0)
            )
        return not refused

    async def _create(self, placement: PodPlacement, pod: Object) -> ApiError | None:
        if placement.worker in self._pod_tracker.pods or not self._is_wanted(placement.worker):
            return None
        try:
            await self._retry(
                partial(self._apply, placement.worker, pod),
                placement.worker,
                what=pod["metadata"]["name"],
            )
        except ApiError as error:
            return error
        return None

    async def _apply(self, worker: WorkerId, pod: Object) -> None:
        if not self._is_wanted(worker):
            return
        try:
            self._callbacks.see(await self._client.apply(PODS, pod))
        except ApiError as error:
            if error.reason != "Invalid" or not await self._exists(worker, pod):
                raise

    async def _exists(self, worker: WorkerId, pod: Object) -> bool:
        """An earlier leader may have created the pod with other fields, which cannot change. Use
        it as it is."""
        try:
            self._callbacks.see(await self._client.get(PODS, pod["metadata"]["name"]))
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
        return worker in self._pod_tracker.pods

    async def _create_secrets(self, token: str, placements: Sequence[PodPlacement]) -> bool:
        """Create the Secrets that these pods name, unless an earlier leader did. The pods own them,
        so that no Secret outlives its pods, even if this daemon dies here."""
        owners: dict[str, list[PodState]] = {}
        for placement in placements:
            pod_state = self._pod_tracker.pods.get(placement.worker)
            if pod_state and pod_state.token_secret and self._is_wanted(placement.worker):
                owners.setdefault(pod_state.token_secret, []).append(pod_state)
        try:
            for name, pods in owners.items():
                create = partial(self._create_secret, secret_of(pods, token))
                await self._retry(create, pods[0].worker, what=name)
        except ApiError as error:
            for each in placements:
                refusal = _refusal(error, is_newcomer=each.generation > 0)
                self._callbacks.give_up(each.worker, refusal)
            return False
        return True

    async def _create_secret(self, secret: Object) -> None:
        try:
            await self._client.create(SECRETS, secret, is_metadata_only=True)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise

    # -- remove gates ---------------------------------------------------------------------------

    async def _ungate_all(self, placements: Sequence[PodPlacement], *, master: WorkerId) -> None:
        """The other ranks get the address of rank 0, which it has only when it runs."""
        address = await self._address_of(master)
        async with self._slots:
            await asyncio.gather(
                *(self._ungate(placement, master=address) for placement in placements)
            )

    async def _ungate(self, placement: PodPlacement, *, master: str = "") -> None:
        pod_state = self._pod_tracker.pods.get(placement.worker)
        if (
            pod_state is None
            or pod_state.stage is not PodStage.GATED
            or not self._is_wanted(placement.worker)
        ):
            return
        notes = {naming.MASTER_ADDRESS: master} if master else {}
        try:
            if placement.slot.share_bytes:
                notes[naming.SHARED_GPUS] = await self._gpu_holders.hold(placement)
            patch = ungate_patch(placement.slot, uid=pod_state.uid, notes=notes)
            await self._retry(
                partial(self._patch, pod_state, patch), pod_state.worker, what=pod_state.name
            )
        except (GpuHolderError, ApiError) as error:
            self._callbacks.give_up(placement.worker, _ungate_failure(error))

    async def _patch(self, pod_state: PodState, patch: Object) -> None:
        if self._is_wanted(pod_state.worker):
            await self._client.amend(PODS, pod_state.name, body=patch)

    async def _address_of(self, worker: WorkerId) -> str:
        """The IP address of a worker, once it has one; empty if it will never have one."""
        while self._is_wanted(worker):
            pod_state = self._pod_tracker.pods.get(worker)
            if pod_state is not None and pod_state.ip:
                return pod_state.ip
            await self._changed.setdefault(worker, asyncio.Event()).wait()
        return ""

    async def _retry(self, call: RetriedCall, worker: WorkerId, *, what: str) -> None:
        await retry_until_final(call, what=what, on_error=partial(self._on_error, worker))

    def _on_error(self, worker: WorkerId, error: ApiError) -> None:
        """Wait for a cluster that does not respond. If only a webhook fails, report a problem:
        this may last until an administrator looks."""
        if self._is_wanted(worker):
            problem = StartProblem(str(error), is_outage=True) if error.is_outage else None
            self._callbacks.report_problem(worker, problem)

    def _is_wanted(self, worker: WorkerId) -> bool:
        return worker not in self._pod_tracker.terminations and not self._pod_tracker.is_to_end(
            worker
        )


def _refusal(error: ApiError, *, is_newcomer: bool) -> PodTermination:
    """A full quota may become free: a new job waits for it, and a running job continues without
    more workers for a while. Any other refusal would happen again."""
    is_full = QUOTA in error.message
    if is_full and not is_newcomer:
        return PodTermination(-1, str(error), is_lost=True)
    return PodTermination(CANNOT_RUN, str(error), is_retriable=is_full)


def _ungate_failure(error: GpuHolderError | ApiError) -> PodTermination:
    """The termination of a worker whose gate could not be removed."""
    problem = error.problem if isinstance(error, GpuHolderError) else None
    message = f"its pod could not be released to its node: {error}"
    if problem is None:
        return PodTermination(-1, message, is_lost=True)
    return termination_for(replace(problem, message=message))
