"""All workers that the engine knows of: their pods, how they ended, and what was asked of them.

Nothing is done here. Every change of a pod is shown to `see` once, and what it answers is new.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, replace

from rota.core.model import JobId
from rota.engines.base import WorkerId
from rota.engines.kubernetes import endings
from rota.engines.kubernetes.bodies import Body, Stage, body_of, has_run
from rota.engines.kubernetes.endings import Ending, Trouble, Wish
from rota.engines.kubernetes.objects import Object

Attempt = tuple[JobId, int]
NEVER_JOINED = Ending(0, "the attempt was over before it could join")
UNKNOWN = Ending(-1, "nobody knows of it", is_lost=True)


@dataclass(frozen=True, slots=True)
class News:
    """What a pod tells that it did not tell before."""

    body: Body
    has_started: bool = False
    ending: Ending | None = None
    trouble: Trouble | None = None
    """What keeps it from starting, as of now."""


class Crew:
    def __init__(self) -> None:
        self.bodies: dict[WorkerId, Body] = {}
        self.endings: dict[WorkerId, Ending] = {}
        """Of all that are over; it outlives the pod."""
        self.started: set[WorkerId] = set()
        self._troubles: dict[WorkerId, Trouble] = {}
        self._verdicts: dict[WorkerId, Ending] = {}
        self._stopped: dict[Attempt, float] = {}
        self._doomed: set[WorkerId] = set()
        self._forgotten: set[Attempt] = set()
        self._attempts: defaultdict[JobId, set[int]] = defaultdict(set)
        self._members: defaultdict[Attempt, set[WorkerId]] = defaultdict(set)
        self._on_node: defaultdict[str, set[WorkerId]] = defaultdict(set)

    # -- what is known --------------------------------------------------------------------------

    def members(self, attempt: Attempt) -> list[WorkerId]:
        return sorted(self._members.get(attempt, ()), key=lambda each: each.worker)

    def older(self, attempt: Attempt) -> list[Attempt]:
        job_id, number = attempt
        return [(job_id, each) for each in self._attempts.get(job_id, ()) if each < number]

    def alive_on(self, node: str) -> list[Body]:
        """Those that hold, or are about to hold, something there."""
        return [self.bodies[each] for each in self._on_node.get(node, ())]

    def alive(self) -> list[Body]:
        return [body for each, body in self.bodies.items() if each not in self.endings]

    def wish(self, worker: WorkerId) -> Wish:
        return Wish(_attempt(worker) in self._stopped, worker in self._doomed)

    def is_to_end(self, worker: WorkerId) -> bool:
        has_verdict = worker in self._verdicts
        return has_verdict or worker in self._doomed or _attempt(worker) in self._stopped

    def is_over(self, attempt: Attempt) -> bool:
        """Whether the attempt is to end or all its workers have: it takes nobody in any more."""
        known = self._members.get(attempt)
        return attempt in self._stopped or bool(known and all(w in self.endings for w in known))

    def grace_s(self, worker: WorkerId) -> float:
        return self._stopped.get(_attempt(worker), 0.0)

    # -- what is asked --------------------------------------------------------------------------

    def stop(self, attempt: Attempt, grace_s: float) -> None:
        self._stopped[attempt] = grace_s

    def doom(self, worker: WorkerId) -> None:
        self._doomed.add(worker)

    def judge(self, worker: WorkerId, ending: Ending) -> None:
        """What will be told of its end, whatever its pod says of it."""
        self._verdicts.setdefault(worker, ending)

    def end_unborn(self, worker: WorkerId, ending: Ending) -> Ending:
        """One that never was, and never will be."""
        self._enter(worker)
        return self.endings.setdefault(worker, ending)

    # -- what is seen ---------------------------------------------------------------------------

    def see(self, pod: Object, worker: WorkerId) -> News | None:
        """None: a pod that only looks like this worker's."""
        known = self.bodies.get(worker)
        if known is not None and known.uid != pod["metadata"]["uid"]:
            return None
        body = body_of(pod, worker)
        if known is not None and body.version < known.version:
            # An answer to a request that a watch has overtaken.
            return News(known, trouble=self._troubles.get(worker))
        if known is not None and known.node:
            # What it holds there was settled by then, whatever somebody writes onto it since.
            body = replace(body, gpus=known.gpus)
        self._enter(worker)
        self._place(known, body)
        self.bodies[worker] = body
        self._troubles.pop(worker, None)
        if worker in self.endings:
            return News(body)
        has_started = has_run(pod) and worker not in self.started
        if has_started:
            self.started.add(worker)
        if body.stage is Stage.OVER:
            ending = endings.ending_of(pod, self.wish(worker))
            return News(body, has_started, self._end(worker, ending))
        trouble = endings.trouble_of(pod) if body.stage is Stage.WAITING else None
        if trouble is not None:
            self._troubles[worker] = trouble
        return News(body, has_started, trouble=trouble)

    def vanish(self, worker: WorkerId, uid: str) -> Ending | None:
        """Its pod's object is gone: how it ended, if that was not known."""
        body = self.bodies.get(worker)
        if body is None or body.uid != uid:
            return None
        self._place(body, None)
        del self.bodies[worker]
        self._troubles.pop(worker, None)
        is_known = worker in self.endings
        ending = None if is_known else self._end(worker, endings.vanished(self.wish(worker)))
        if _attempt(worker) in self._forgotten:
            self.forget(_attempt(worker))
        return ending

    def forget(self, attempt: Attempt) -> None:
        """All but what still has a pod, which is forgotten with it."""
        self._forgotten.add(attempt)
        for worker in list(self._members.get(attempt, ())):
            if worker in self.bodies:
                continue
            self._members[attempt].discard(worker)
            self.endings.pop(worker, None)
            self._verdicts.pop(worker, None)
            self._doomed.discard(worker)
            self.started.discard(worker)
        if not self._members.get(attempt):
            self._members.pop(attempt, None)
            self._stopped.pop(attempt, None)
            self._forgotten.discard(attempt)
            job_id, number = attempt
            self._attempts[job_id].discard(number)
            if not self._attempts[job_id]:
                del self._attempts[job_id]

    def disown(self, job_ids: Collection[JobId]) -> list[Body]:
        """The pods that these jobs have: nothing is known of them from now on."""
        found = [body for worker, body in self.bodies.items() if worker.job_id in job_ids]
        for body in found:
            self.vanish(body.worker, body.uid)
            self.forget(_attempt(body.worker))
        return found

    def settle(self) -> None:
        """What still has a pod is not to be forgotten with it any more."""
        self._forgotten.clear()

    def attempts_of(self, job_id: JobId) -> list[Attempt]:
        return [(job_id, number) for number in sorted(self._attempts.get(job_id, ()))]

    def _end(self, worker: WorkerId, ending: Ending) -> Ending:
        self.endings[worker] = ending = self._verdicts.pop(worker, ending)
        return ending

    def _enter(self, worker: WorkerId) -> None:
        self._attempts[worker.job_id].add(worker.attempt)
        self._members[_attempt(worker)].add(worker)

    def _place(self, before: Body | None, after: Body | None) -> None:
        if before is not None:
            self._on_node[before.node or before.planned].discard(before.worker)
        if after is not None and after.stage is not Stage.OVER:
            self._on_node[after.node or after.planned].add(after.worker)


def _attempt(worker: WorkerId) -> Attempt:
    return worker.job_id, worker.attempt
