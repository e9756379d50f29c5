"""The state of all workers that the engine knows: their pods, terminations and stop requests.

The tracker only records. `see` receives every change of a pod once, and returns what is new.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, replace

from rota.core.model.job import JobId
from rota.engines.interface import WorkerId
from rota.engines.kubernetes.pods import start_problems
from rota.engines.kubernetes.pods.start_problems import StartProblem
from rota.engines.kubernetes.pods.state import PodStage, PodState, has_run, pod_state_of
from rota.engines.kubernetes.pods.termination import (
    PodStopRequest,
    PodTermination,
    termination_of,
    termination_unseen,
)
from rota.kube.resources import Object

AttemptKey = tuple[JobId, int]
NEVER_JOINED = PodTermination(0, "the attempt ended before the worker could join")
UNKNOWN = PodTermination(-1, "the engine does not know this worker", is_lost=True)


@dataclass(frozen=True, slots=True)
class PodUpdate:
    """What is new about a pod."""

    pod_state: PodState
    has_started: bool = False
    termination: PodTermination | None = None
    problem: StartProblem | None = None
    """The current start problem."""


class PodTracker:
    """Indexes workers by attempt, job and node."""

    def __init__(self) -> None:
        self.pods: dict[WorkerId, PodState] = {}
        self.terminations: dict[WorkerId, PodTermination] = {}
        """Of all ended workers. A termination outlives its pod."""
        self.started: set[WorkerId] = set()
        self._problems: dict[WorkerId, StartProblem] = {}
        self._decided: dict[WorkerId, PodTermination] = {}
        self._stopped: dict[AttemptKey, float] = {}
        self._killed: set[WorkerId] = set()
        self._forgotten: set[AttemptKey] = set()
        self._attempts: defaultdict[JobId, set[int]] = defaultdict(set)
        self._members: defaultdict[AttemptKey, set[WorkerId]] = defaultdict(set)
        self._on_node: defaultdict[str, set[WorkerId]] = defaultdict(set)

    # -- queries --------------------------------------------------------------------------------

    def members(self, attempt: AttemptKey) -> list[WorkerId]:
        return sorted(self._members.get(attempt, ()), key=lambda each: each.worker)

    def older(self, attempt: AttemptKey) -> list[AttemptKey]:
        job_id, number = attempt
        return [(job_id, each) for each in self._attempts.get(job_id, ()) if each < number]

    def alive_on(self, node: str) -> list[PodState]:
        """Pods that use, or will use, resources of this node."""
        return [self.pods[each] for each in self._on_node.get(node, ())]

    def alive(self) -> list[PodState]:
        return [pod_state for each, pod_state in self.pods.items() if each not in self.terminations]

    def stop_request(self, worker: WorkerId) -> PodStopRequest:
        return PodStopRequest(_attempt(worker) in self._stopped, worker in self._killed)

    def is_to_end(self, worker: WorkerId) -> bool:
        is_decided = worker in self._decided
        return is_decided or worker in self._killed or _attempt(worker) in self._stopped

    def is_over(self, attempt: AttemptKey) -> bool:
        """Whether the attempt is stopped or all its workers have ended. Then no worker can join
        it."""
        known = self._members.get(attempt)
        return attempt in self._stopped or bool(
            known and all(w in self.terminations for w in known)
        )

    def grace_s(self, worker: WorkerId) -> float:
        return self._stopped.get(_attempt(worker), 0.0)

    # -- stop requests --------------------------------------------------------------------------

    def stop(self, attempt: AttemptKey, grace_s: float) -> None:
        self._stopped[attempt] = grace_s

    def kill(self, worker: WorkerId) -> None:
        self._killed.add(worker)

    def set_termination(self, worker: WorkerId, termination: PodTermination) -> None:
        """Report this termination when the worker ends, whatever its pod reports."""
        self._decided.setdefault(worker, termination)

    def end_before_start(self, worker: WorkerId, termination: PodTermination) -> PodTermination:
        """Record the termination of a worker that has no pod and will get none."""
        self._register(worker)
        return self.terminations.setdefault(worker, termination)

    # -- changes of pods ------------------------------------------------------------------------

    def see(self, pod: Object, worker: WorkerId) -> PodUpdate | None:
        """Record the state of a pod. None: the worker has another pod, and this one is foreign."""
        known = self.pods.get(worker)
        if known is not None and known.uid != pod["metadata"]["uid"]:
            return None
        pod_state = pod_state_of(pod, worker)
        if known is not None and pod_state.version < known.version:
            # A response that is older than what the watch has delivered.
            return PodUpdate(known, problem=self._problems.get(worker))
        if known is not None and known.node:
            # The GPUs of a bound pod do not change, even if its annotations are edited.
            pod_state = replace(pod_state, gpus=known.gpus)
        self._register(worker)
        self._index_by_node(known, pod_state)
        self.pods[worker] = pod_state
        self._problems.pop(worker, None)
        if worker in self.terminations:
            return PodUpdate(pod_state)
        has_started = has_run(pod) and worker not in self.started
        if has_started:
            self.started.add(worker)
        if pod_state.stage is PodStage.OVER:
            termination = termination_of(pod, self.stop_request(worker))
            return PodUpdate(pod_state, has_started, self._end(worker, termination))
        problem = (
            start_problems.start_problem_of(pod) if pod_state.stage is PodStage.WAITING else None
        )
        if problem is not None:
            self._problems[worker] = problem
        return PodUpdate(pod_state, has_started, problem=problem)

    def pod_deleted(self, worker: WorkerId, uid: str) -> PodTermination | None:
        """The pod object is gone. Returns the termination if it was not known before."""
        pod_state = self.pods.get(worker)
        if pod_state is None or pod_state.uid != uid:
            return None
        self._index_by_node(pod_state, None)
        del self.pods[worker]
        self._problems.pop(worker, None)
        is_known = worker in self.terminations
        termination = (
            None if is_known else self._end(worker, termination_unseen(self.stop_request(worker)))
        )
        if _attempt(worker) in self._forgotten:
            self.forget(_attempt(worker))
        return termination

    def forget(self, attempt: AttemptKey) -> None:
        """Forget the workers of an attempt that have no pod; the others are forgotten when their
        pod is gone."""
        self._forgotten.add(attempt)
        for worker in list(self._members.get(attempt, ())):
            if worker in self.pods:
                continue
            self._members[attempt].discard(worker)
            self.terminations.pop(worker, None)
            self._decided.pop(worker, None)
            self._killed.discard(worker)
            self.started.discard(worker)
        if not self._members.get(attempt):
            self._members.pop(attempt, None)
            self._stopped.pop(attempt, None)
            self._forgotten.discard(attempt)
            job_id, number = attempt
            self._attempts[job_id].discard(number)
            if not self._attempts[job_id]:
                del self._attempts[job_id]

    def untrack_jobs(self, job_ids: Collection[JobId]) -> list[PodState]:
        """Stop tracking the pods of these jobs, and return them."""
        found = [pod_state for worker, pod_state in self.pods.items() if worker.job_id in job_ids]
        for pod_state in found:
            self.pod_deleted(pod_state.worker, pod_state.uid)
            self.forget(_attempt(pod_state.worker))
        return found

    def clear_forgotten(self) -> None:
        """Cancel the pending `forget` of workers that still have a pod."""
        self._forgotten.clear()

    def attempts_of(self, job_id: JobId) -> list[AttemptKey]:
        return [(job_id, number) for number in sorted(self._attempts.get(job_id, ()))]

    def _end(self, worker: WorkerId, termination: PodTermination) -> PodTermination:
        self.terminations[worker] = termination = self._decided.pop(worker, termination)
        return termination

    def _register(self, worker: WorkerId) -> None:
        self._attempts[worker.job_id].add(worker.attempt)
        self._members[_attempt(worker)].add(worker)

    def _index_by_node(self, before: PodState | None, after: PodState | None) -> None:
        if before is not None:
            self._on_node[before.node or before.planned].discard(before.worker)
        if after is not None and after.stage is not PodStage.OVER:
            self._on_node[after.node or after.planned].add(after.worker)


def _attempt(worker: WorkerId) -> AttemptKey:
    return worker.job_id, worker.attempt
