"""Follow all pods and nodes of the cluster, and emit events about workers and nodes.

Every change of a pod or a node arrives here once. The reconciler makes no scheduling decisions:
it carries out stops that were requested before, even for a pod that appears later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from rota.core.model.events import (
    Event,
    NodeLost,
    WorkersExited,
    WorkersFound,
    WorkersHindered,
    WorkersLost,
    WorkersStarted,
)
from rota.core.model.job import JobId
from rota.engines.interface import EventSink, WorkerId
from rota.engines.kubernetes.external_pods import ExternalPodBinder
from rota.engines.kubernetes.gpu_sharing.holders import GpuHolders
from rota.engines.kubernetes.logs.collector import LogCollector
from rota.engines.kubernetes.nodes.tracker import NodeTracker
from rota.engines.kubernetes.pods import naming
from rota.engines.kubernetes.pods.deadlines import (
    AdoptionDeadlines,
    StartDeadlines,
    possible_problem,
    termination_for,
)
from rota.engines.kubernetes.pods.deleter import PodDeleter
from rota.engines.kubernetes.pods.launcher import LaunchCallbacks, PodLauncher
from rota.engines.kubernetes.pods.start_problems import StartProblem, problem_from_events
from rota.engines.kubernetes.pods.state import PodStage, PodState
from rota.engines.kubernetes.pods.termination import (
    GATE_BYPASSED,
    GPU_HOLDER_GONE,
    NODE_GONE,
    PodTermination,
)
from rota.engines.kubernetes.pods.tracker import PodTracker, PodUpdate
from rota.engines.kubernetes.settings import KubernetesSettings
from rota.kube.client import KubeClient
from rota.kube.informer import Reflector
from rota.kube.resources import NODES, PODS, Object, ResourceScope, WatchEvent
from rota.tasks import Tasks

TICK_S = 1.0


class ClusterReconciler:
    """Connects the watches with the trackers, the launcher, the deleter and the log collector."""

    def __init__(self, client: KubeClient, settings: KubernetesSettings, *, root: Path) -> None:
        self._client, self._settings = client, settings
        self.pod_tracker = PodTracker()
        self.tasks = Tasks()
        self.log_collector = LogCollector(
            client,
            root,
            limits=settings.log,
            is_over=self.pod_tracker.terminations.__contains__,
        )
        self.deleter = PodDeleter(
            client, self.pod_tracker, tasks=self.tasks, collected=self.log_collector.collected
        )
        self.node_tracker = NodeTracker(settings, self.pod_tracker)
        self.gpu_holders = GpuHolders(client, settings, pod_tracker=self.pod_tracker)
        callbacks = LaunchCallbacks(self._see, self._report_problem, self.give_up)
        self.launcher = PodLauncher(
            client, self.pod_tracker, gpu_holders=self.gpu_holders, callbacks=callbacks
        )
        self.external_pods = ExternalPodBinder(
            client, self.pod_tracker, see=self._see, give_up=self.give_up
        )
        self._start_deadlines, self._adoption_deadlines = (
            StartDeadlines(settings),
            AdoptionDeadlines(),
        )
        self._emit: EventSink = _drop_event
        self._names: dict[str, WorkerId] = {}
        self._ignored_jobs: set[JobId] = set()
        self._unclaimed: dict[str, Object] | None = {}
        """External pods by name that claim to be workers. They wait until the pods of all jobs are
        known; None after that."""
        self._is_watching = self._is_live = self._reports_nodes = self._is_node_report_due = False
        self._reflectors = (
            Reflector(client, NODES, scope=ResourceScope(None), listener=self._node_changed),
            Reflector(client, PODS, scope=ResourceScope(None), listener=self._pod_changed),
        )

    # -- start and stop -------------------------------------------------------------------------

    async def watch(self) -> None:
        """List all nodes and pods, and start the watches. Emits no events and changes nothing."""
        for each in self._reflectors:
            await each.sync()
        for each in self._reflectors:
            self.tasks.spawn_critical(each.run())
        self._is_watching = True

    async def open(self, emit: EventSink) -> None:
        """Start to emit events and to act. All changes up to now have been seen when this
        returns."""
        if self._is_watching:
            for each in self._reflectors:
                await each.catch_up()
        else:
            await self.watch()
        self.pod_tracker.clear_forgotten()
        self.node_tracker.pop_events()
        self._emit, self._is_live = emit, True
        self.tasks.spawn_critical(self._tick())

    async def close(self) -> None:
        await self.tasks.close()
        await self.log_collector.close()

    def adopt(self) -> tuple[WorkerId, ...]:
        """Emit events about all existing workers. From now on, also emit events about nodes."""
        self._reports_nodes = True
        for worker, pod_state in list(self.pod_tracker.pods.items()):
            if termination := self.pod_tracker.terminations.get(worker):
                self.report_end(worker, termination)
                self._clean_up(pod_state)
            elif worker in self.pod_tracker.started:
                self._emit(found_event(worker))
                self.log_collector.follow(pod_state)
            else:
                self._adoption_deadlines.wait_for(worker, now=asyncio.get_running_loop().time())
        return tuple(pod_state.worker for pod_state in self.pod_tracker.alive())

    # -- commands -------------------------------------------------------------------------------

    def resume(self, worker: WorkerId) -> None:
        """Emit the event for the current state of a worker."""
        self._adoption_deadlines.confirm(worker)
        if termination := self.pod_tracker.terminations.get(worker):
            self.report_end(worker, termination)
        elif worker in self.pod_tracker.started:
            self._report_started(worker)

    def end(self, worker: WorkerId, termination: PodTermination) -> None:
        """Stop a worker as the tracker records it. `termination` is reported if it has no pod."""
        self._adoption_deadlines.confirm(worker)
        if known := self.pod_tracker.terminations.get(worker):
            self.report_end(worker, known)
        elif pod_state := self.pod_tracker.pods.get(worker):
            self.deleter.end(pod_state)
        else:
            self._report_problem(worker, None)
            self.report_end(worker, self.pod_tracker.end_before_start(worker, termination))
        self.launcher.notice(worker)

    def give_up(self, worker: WorkerId, termination: PodTermination) -> None:
        """Give up a worker that cannot run: delete its pod, and report the termination when the
        pod is gone."""
        if worker not in self.pod_tracker.terminations:
            self.pod_tracker.set_termination(worker, termination)
            self.end(worker, termination)

    def ignore_jobs(self, job_ids: frozenset[JobId]) -> None:
        """Treat the pods of these jobs as foreign: count what they use, and leave them alone."""
        self._ignored_jobs |= job_ids
        for pod_state in self.pod_tracker.untrack_jobs(job_ids):
            self._names.pop(pod_state.name, None)
            self._start_deadlines.see(pod_state.worker, None, now=0.0)
            self.node_tracker.see_ignored_pod(pod_state, self._client.namespace)
        self._report_nodes()

    def know_external_pods(self, pods: Mapping[JobId, str]) -> None:
        """The external pods of all jobs, as NAME/UID. An external pod that claims to be a worker
        of another job is a foreign pod."""
        self.external_pods.know(pods)
        waiting, self._unclaimed = self._unclaimed or {}, None
        for pod in waiting.values():
            self._see(pod)

    # -- pods -----------------------------------------------------------------------------------

    def _pod_changed(self, change: WatchEvent) -> None:
        pod = change.object
        if pod["metadata"].get("namespace") != self._client.namespace:
            self._foreign_changed(change)
        elif change.type == "DELETED":
            self._pod_gone(change)
        elif naming.is_placeholder(pod):
            self._end_unheld(self.gpu_holders.see(pod))
        else:
            self._see(pod)

    def _see(self, pod: Object) -> None:
        name = pod["metadata"]["name"]
        worker = self._names.get(name) or naming.worker_of(pod)
        is_external = worker is not None and naming.is_external_pod(pod)
        if worker is not None and is_external and not self.external_pods.is_known(worker, pod):
            if self._unclaimed is not None:
                self._unclaimed[name] = pod
                return
            worker = None
        is_ignored = worker is None or worker.job_id in self._ignored_jobs
        if worker is None or is_ignored or (update := self.pod_tracker.see(pod, worker)) is None:
            self._foreign_changed(WatchEvent("MODIFIED", pod))
            return
        self._names[name] = worker
        self._report_update(worker, update)
        self.launcher.notice(worker)

    def _report_update(self, worker: WorkerId, update: PodUpdate) -> None:
        pod_state = update.pod_state
        self._report_problem(worker, possible_problem(pod_state, update.problem))
        if not self._is_live:
            return
        if update.has_started:
            self._report_started(worker)
        if pod_state.stage is PodStage.RUNNING or (
            update.termination and worker in self.pod_tracker.started
        ):
            self.log_collector.follow(pod_state)
        if update.termination is not None:
            self._ended(pod_state, update.termination)
        if pod_state.stage is PodStage.OVER:
            self._clean_up(pod_state)
        elif pod_state.is_gate_bypassed:
            self.give_up(worker, GATE_BYPASSED)
        elif worker in self.pod_tracker.terminations or self.pod_tracker.is_to_end(worker):
            # A pod that appears after its worker ended or was stopped must not run.
            self.deleter.end(pod_state)

    def _report_problem(self, worker: WorkerId, problem: StartProblem | None) -> None:
        self._start_deadlines.see(worker, problem, now=asyncio.get_running_loop().time())

    def _clean_up(self, pod_state: PodState) -> None:
        """Delete an ended pod later, so that it remains visible for a while; at once if it still
        blocks its node."""
        if pod_state.is_holding_node:
            self.deleter.clean_up([pod_state.worker])
        else:
            self.deleter.clean_up_later(pod_state, after_s=self._settings.keep_finished_s)

    def _pod_gone(self, change: WatchEvent) -> None:
        meta = change.object["metadata"]
        worker = self._names.pop(meta["name"], None)
        if self._unclaimed is not None:
            self._unclaimed.pop(meta["name"], None)
        if worker is None:
            self._end_unheld(self.gpu_holders.pod_deleted(change.object))
            self._foreign_changed(change)
            return
        self._report_problem(worker, None)
        self.log_collector.give_up(worker)
        pod_state = self.pod_tracker.pods.get(worker)
        termination = self.pod_tracker.pod_deleted(worker, meta["uid"])
        if not self._is_live:
            self.pod_tracker.forget((worker.job_id, worker.attempt))
        elif pod_state is not None and termination is not None:
            self._ended(pod_state, termination)
        self.launcher.notice(worker)

    def _ended(self, pod_state: PodState, termination: PodTermination) -> None:
        worker = pod_state.worker
        self._adoption_deadlines.confirm(worker)
        is_failure = termination.code > 0 and not self.pod_tracker.stop_request(worker).is_stop
        if is_failure and self.log_collector.is_following(worker):
            # Its output explains the failure, so collect it before the event.
            self.tasks.spawn(self._report_end_with_output(worker, termination), job=worker.job_id)
        else:
            self.report_end(worker, termination)
        self.node_tracker.recheck(pod_state.node or pod_state.planned)
        self.check_nodes()
        self._remove_unused_holders()

    def _end_unheld(self, workers: list[WorkerId]) -> None:
        for worker in workers if self._is_live else ():
            self.give_up(worker, GPU_HOLDER_GONE)

    def _remove_unused_holders(self) -> None:
        for holder in self.gpu_holders.pop_unused():
            self.tasks.spawn(self.gpu_holders.delete_holder(holder), pod=holder.name)

    # -- nodes ----------------------------------------------------------------------------------

    def _node_changed(self, change: WatchEvent) -> None:
        self.node_tracker.see_node(change)
        self.check_nodes()

    def _foreign_changed(self, change: WatchEvent) -> None:
        self.node_tracker.see_foreign(change)
        self.check_nodes()

    def check_nodes(self) -> None:
        """Schedule a report of changed nodes. Many changes arrive at once and share one report."""
        if self._is_live and not self._is_node_report_due:
            self._is_node_report_due = True
            self.tasks.call_critical(self._report_nodes)

    def _report_nodes(self) -> None:
        self._is_node_report_due = False
        for event in self.node_tracker.pop_events():
            if self._reports_nodes:
                self._emit(event)
            if isinstance(event, NodeLost):
                self._end_workers_on(event.node_id)

    def _end_workers_on(self, node: str) -> None:
        for pod_state in self.pod_tracker.alive_on(node):
            self.pod_tracker.set_termination(pod_state.worker, NODE_GONE)
            self.deleter.force_remove(pod_state)

    # -- time -----------------------------------------------------------------------------------

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            now = asyncio.get_running_loop().time()
            for worker, message in {
                **self._start_deadlines.unreported(now),
                **self.gpu_holders.unreported(),
            }.items():
                self._emit(hindered_event(worker, message))
            for worker, termination in self._start_deadlines.expired(now).items():
                self.give_up(worker, termination)
            for worker in self._start_deadlines.unclear(now):
                self.tasks.spawn(self._check_pod_events(worker), job=worker.job_id)
            for worker in self._adoption_deadlines.overdue(now):
                self._emit(found_event(worker))
            self.deleter.clean_up_due()
            self._end_unheld(self.gpu_holders.workers_without_holder())
            self.gpu_holders.recheck()
            self._remove_unused_holders()
            self.node_tracker.forget_expired()
            self.check_nodes()

    async def _check_pod_events(self, worker: WorkerId) -> None:
        pod_state = self.pod_tracker.pods.get(worker)
        problem = (
            await problem_from_events(self._client, pod_state.uid)
            if pod_state is not None
            else None
        )
        pod_state = self.pod_tracker.pods.get(worker)
        if problem is not None and pod_state is not None and pod_state.stage is PodStage.WAITING:
            self.give_up(worker, termination_for(problem))

    # -- events ---------------------------------------------------------------------------------

    def _report_started(self, worker: WorkerId) -> None:
        is_found = self._adoption_deadlines.confirm(worker)
        self._emit(found_event(worker) if is_found else started_event(worker))

    async def _report_end_with_output(self, worker: WorkerId, termination: PodTermination) -> None:
        await self.log_collector.finished(worker)
        self.report_end(worker, termination)

    def report_end(self, worker: WorkerId, termination: PodTermination) -> None:
        self._emit(ended_event(worker, termination))


def found_event(worker: WorkerId) -> WorkersFound:
    return WorkersFound(worker.job_id, worker.attempt, frozenset({worker.worker}))


def started_event(worker: WorkerId) -> WorkersStarted:
    return WorkersStarted(worker.job_id, worker.attempt, frozenset({worker.worker}))


def hindered_event(worker: WorkerId, why: str) -> WorkersHindered:
    return WorkersHindered(worker.job_id, worker.attempt, frozenset({worker.worker}), why)


def ended_event(worker: WorkerId, termination: PodTermination) -> WorkersExited | WorkersLost:
    job_id, attempt, number = worker.job_id, worker.attempt, worker.worker
    if termination.is_lost:
        return WorkersLost(
            job_id,
            attempt,
            frozenset({number}),
            termination.reason,
            is_refused=termination.is_refused,
        )
    codes = {number: termination.code}
    return WorkersExited(
        job_id, attempt, codes, termination.reason, is_retriable=termination.is_retriable
    )


def _drop_event(_: Event) -> None:
    """Before `open`, no receiver of events exists."""
