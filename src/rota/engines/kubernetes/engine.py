"""The Kubernetes engine: turns commands into pods; `reconciler` turns pod changes into events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path
from typing import assert_never

from rota.core.model.commands import (
    AskToStop,
    ChangeMembership,
    Command,
    KillWorkers,
    ReportWorkers,
    StartWorkers,
    StopWorkers,
)
from rota.core.model.job import JobId
from rota.core.model.node import Node, NodeId
from rota.delete_tree import delete_tree
from rota.engines.interface import (
    EventSink,
    ExecSpec,
    LogChunk,
    LogQuery,
    Program,
    WorkerId,
    WorkerSession,
)
from rota.engines.kubernetes.pods import token_secret
from rota.engines.kubernetes.pods.manifest import pod_of
from rota.engines.kubernetes.pods.placement import PodPlacement, placements
from rota.engines.kubernetes.pods.state import PodStage, PodState
from rota.engines.kubernetes.pods.termination import PodTermination, termination_before_start
from rota.engines.kubernetes.pods.tracker import NEVER_JOINED, UNKNOWN
from rota.engines.kubernetes.reconciler import ClusterReconciler
from rota.engines.kubernetes.settings import KubernetesSettings
from rota.engines.logfiles import reader
from rota.errors import RotaError, UserError
from rota.kube.client import KubeClient
from rota.kube.resources import Object
from rota.thread_pools import JOB_FILES


class KubernetesEngine:
    """`root` is the engine's own folder, for worker output. Only one engine may use a namespace
    at a time; the caller ensures that with the leader lease."""

    def __init__(self, client: KubeClient, settings: KubernetesSettings, *, root: Path) -> None:
        self.cluster = client
        self._settings, self._root = settings, root
        self._reconciler = ClusterReconciler(client, settings, root=root)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def watch(self) -> None:
        """Start the watches of a standby daemon, before `start`. Emits no events and changes
        nothing."""
        await self._reconciler.watch()

    async def start(self, emit: EventSink) -> None:
        """Start to emit events and to apply commands."""
        self._loop = asyncio.get_running_loop()
        await JOB_FILES.run(self._root.mkdir, mode=0o700, parents=True, exist_ok=True)
        await self._reconciler.open(emit)

    async def broken(self) -> None:
        """Raise when a critical background task has failed, so that the engine no longer follows
        the cluster."""
        fault = await self._reconciler.tasks.wait_failed()
        what = f"bug in rota ({type(fault).__name__}): the engine no longer follows the cluster"
        raise RotaError(what, "restart the daemon and report the bug") from fault

    async def close(self) -> None:
        """Stop following the cluster. Pods keep running."""
        await self._reconciler.close()

    def render(self, command: Command, program: Program | None = None) -> dict[WorkerId, Object]:
        """The pods that a command would create. Other commands only delete or report."""
        if not isinstance(command, StartWorkers | ChangeMembership) or program is None:
            return {}
        return {
            placement.worker: pod_of(placement, program, settings=self._settings)
            for placement in placements(command)
        }

    async def apply(self, command: Command, program: Program | None = None) -> None:
        match command:
            case StartWorkers():
                self._start(command, program)
            case StopWorkers():
                self._stop(command)
            case ChangeMembership():
                self._change(command, program)
            case ReportWorkers():
                self._report(command)
            case KillWorkers():
                self._kill(command)
            case AskToStop():
                pass  # The program receives it through its own API.
            case _:
                assert_never(command)

    async def adopt(self) -> tuple[WorkerId, ...]:
        """Emit events about all existing workers, and return those that have not ended."""
        return self._reconciler.adopt()

    def ignore_jobs(self, job_ids: frozenset[JobId]) -> None:
        """The state of these jobs is unknown: leave their pods alone, and count what they use."""
        self._reconciler.ignore_jobs(job_ids)

    def know_external_pods(self, pods: Mapping[JobId, str]) -> None:
        """The external pods of all jobs, as NAME/UID: annotations of pods prove nothing."""
        self._reconciler.know_external_pods(pods)

    def inventory(self) -> tuple[Node, ...]:
        """The nodes as the watches know them. Sends no request."""
        return self._reconciler.node_tracker.nodes()

    def gpus_of_worker(self, worker: WorkerId) -> tuple[str, ...]:
        """The ids of the worker's GPUs, or the id of the GPU that it shares, once they are
        known."""
        pod_state = self._reconciler.pod_tracker.pods.get(worker)
        if pod_state is None:
            return ()
        return pod_state.devices.get(self._settings.gpu_resource, pod_state.shared_gpus)

    def give_up_node(self, node_id: NodeId) -> None:
        """Treat a node as lost. It is used again if it comes back."""
        known = {node.id: node for node in self.inventory()}
        if node_id in known and not known[node_id].note:
            hint = "drain it, or wait until the cluster reports it as not ready"
            raise UserError(f"node {node_id} is not lost: it responds", hint)
        self._reconciler.node_tracker.give_up(node_id)
        self._reconciler.check_nodes()

    # -- logs and sessions ----------------------------------------------------------------------

    def logs(self, worker: WorkerId, query: LogQuery) -> AsyncIterator[LogChunk]:
        """Read a worker's log; starts to follow a running pod if that was not done yet."""
        reconciler = self._reconciler
        path, pod_state = (
            reconciler.log_collector.path(worker),
            reconciler.pod_tracker.pods.get(worker),
        )
        if pod_state is not None and pod_state.stage is PodStage.RUNNING:
            reconciler.log_collector.follow(pod_state, is_requested=True)
        elif (
            pod_state is None
            and not path.parent.is_dir()
            and worker not in reconciler.pod_tracker.terminations
        ):
            what = f"job {worker.job_id} has no worker {worker.worker}"
            raise UserError(f"{what} in attempt {worker.attempt}")
        return reader.read(path, query, has_ended=lambda: self._has_no_more_output(worker))

    async def exec_command(self, worker: WorkerId, command: ExecSpec) -> WorkerSession:
        from rota.engines.kubernetes.exec import sessions  # noqa: PLC0415 - loaded when needed

        pod_state = self._running(worker)
        container = pod_state.container
        return await sessions.exec_command(
            self.cluster, pod_state.name, command=command, container=container
        )

    async def connect(self, worker: WorkerId, port: int) -> WorkerSession:
        from rota.engines.kubernetes.exec import sessions  # noqa: PLC0415 - loaded when needed

        return await sessions.connect(self.cluster, self._running(worker).name, port=port)

    def forget_before(self, before_s: float, *, keep: Collection[JobId]) -> list[JobId]:
        """Delete the logs and the state of jobs that ended before `before_s`. Runs in a thread
        of its own."""
        forgotten = [
            JobId(folder.name)
            for folder in self._root.iterdir()
            if folder.name not in keep and _newest_s(folder) < before_s
        ]
        for job_id in forgotten:
            delete_tree(self._root / job_id)
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._forget, job_id)
        return forgotten

    def _forget(self, job_id: JobId) -> None:
        self._reconciler.deleter.clean_up_attempts(self._reconciler.pod_tracker.attempts_of(job_id))

    def _running(self, worker: WorkerId) -> PodState:
        pod_state = self._reconciler.pod_tracker.pods.get(worker)
        if pod_state is None or pod_state.stage is not PodStage.RUNNING:
            what = f"worker {worker.worker} of job {worker.job_id} is not running"
            raise UserError(what, "see its state with 'rota show JOB'")
        return pod_state

    def _has_no_more_output(self, worker: WorkerId) -> bool:
        reconciler = self._reconciler
        is_over = (
            worker in reconciler.pod_tracker.terminations
            or worker not in reconciler.pod_tracker.pods
        )
        return is_over and not reconciler.log_collector.is_following(worker)

    # -- commands -------------------------------------------------------------------------------

    def _start(self, command: StartWorkers | ChangeMembership, program: Program | None) -> None:
        """Start workers without a pod; report workers that run or have ended."""
        if program is None:
            raise RotaError(f"no program to start for job {command.job_id}")
        if program.pod:
            launch = self._reconciler.external_pods.launch(placements(command)[0], program.pod)
            self._reconciler.tasks.spawn(launch, job=command.job_id)
        pod_tracker, launching = self._reconciler.pod_tracker, list[tuple[PodPlacement, Object]]()
        for placement in placements(command):
            worker, pod_state = placement.worker, pod_tracker.pods.get(placement.worker)
            if (
                pod_state is None
                and worker not in pod_tracker.terminations
                and pod_tracker.is_to_end(worker)
            ):
                self._reconciler.end(
                    worker, termination_before_start(pod_tracker.stop_request(worker))
                )
            else:
                self._reconciler.resume(worker)
            if (
                worker not in pod_tracker.terminations
                and (pod_state is None or pod_state.stage is PodStage.GATED)
                and not program.pod
            ):
                launching.append((placement, pod_of(placement, program, settings=self._settings)))
        self._reconciler.deleter.clean_up_attempts(
            pod_tracker.older((command.job_id, command.attempt))
        )
        if launching:
            master = placements(command)[0].worker
            launch = self._reconciler.launcher.launch(
                launching, master=master, token=program.env.get(token_secret.VARIABLE, "")
            )
            self._reconciler.tasks.spawn(launch, job=command.job_id)

    def _stop(self, command: StopWorkers) -> None:
        pod_tracker, attempt = self._reconciler.pod_tracker, (command.job_id, command.attempt)
        pod_tracker.stop(attempt, command.grace_s)
        named = [WorkerId(command.job_id, command.attempt, each) for each in command.workers]
        for worker in dict.fromkeys([*pod_tracker.members(attempt), *named]):
            self._reconciler.end(worker, termination_before_start(pod_tracker.stop_request(worker)))

    def _kill(self, command: KillWorkers) -> None:
        pod_tracker = self._reconciler.pod_tracker
        for number in command.workers:
            worker = WorkerId(command.job_id, command.attempt, number)
            pod_tracker.kill(worker)
            self._reconciler.end(worker, termination_before_start(pod_tracker.stop_request(worker)))

    def _change(self, command: ChangeMembership, program: Program | None) -> None:
        """Start new workers. Leaving workers end by themselves when the others continue without
        them; the workers report when the new generation runs."""
        attempt = command.job_id, command.attempt
        if not self._reconciler.pod_tracker.is_over(attempt):
            self._start(command, program)
            return
        for worker in self._reconciler.pod_tracker.members(attempt):
            self._reconciler.resume(worker)
        self._end_before_start(command, NEVER_JOINED)

    def _report(self, command: ReportWorkers) -> None:
        pod_tracker, attempt = self._reconciler.pod_tracker, (command.job_id, command.attempt)
        known = pod_tracker.members(attempt)
        if not known:
            # Never start workers of an unknown attempt later.
            pod_tracker.stop(attempt, 0.0)
            self._end_before_start(command, UNKNOWN)
            return
        for worker in known:
            if worker.worker in command.workers:
                self._reconciler.resume(worker)
        if pod_tracker.is_over(attempt):
            self._end_before_start(command, NEVER_JOINED)

    def _end_before_start(
        self, command: ChangeMembership | ReportWorkers, termination: PodTermination
    ) -> None:
        pod_tracker = self._reconciler.pod_tracker
        for number in command.workers:
            worker = WorkerId(command.job_id, command.attempt, number)
            if worker not in pod_tracker.pods and worker not in pod_tracker.terminations:
                self._reconciler.report_end(
                    worker, pod_tracker.end_before_start(worker, termination)
                )


def _newest_s(folder: Path) -> float:
    return max(each.stat().st_mtime for each in (folder, *folder.glob("*/*/*")))
