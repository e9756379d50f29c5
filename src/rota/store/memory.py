"""A store that forgets when the process ends: for simulations and tests."""

from __future__ import annotations

from rota.core.effects import Effects, Transition
from rota.core.model import Ended, Job, JobId, Node, NodeId
from rota.core.states import State


class MemoryStore:
    """Jobs that are not over, how the others ended, the nodes, and every transition."""

    def __init__(self) -> None:
        self.jobs: dict[JobId, Job] = {}
        self.outcomes: dict[JobId, State] = {}
        self.nodes: dict[NodeId, Node] = {}
        self.story: list[Transition] = []

    def write(self, effects: Effects) -> None:
        """All of it or nothing, as one transaction."""
        for job in effects.jobs.values():
            if isinstance(job.phase, Ended):
                self.jobs.pop(job.id, None)
                self.outcomes[job.id] = job.phase.state
            else:
                self.jobs[job.id] = job
        for node_id, node in effects.nodes.items():
            if node is None:
                self.nodes.pop(node_id, None)
            else:
                self.nodes[node_id] = node
        self.story.extend(effects.transitions)
