"""The daemon itself and the box it runs on: status, nodes, the policy, the end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import rota
from rota.config.files import replace_file
from rota.core.events import JobHeld, JobReleased, NodeDrained, NodeLost, NodeSeen
from rota.core.model import Node, NodeId, Running, Starting
from rota.daemon.desk import Desk
from rota.daemon.people import Caller, require_admin
from rota.daemon.views import node_view
from rota.daemon.words import NotFoundError
from rota.engines.base import Engine
from rota.engines.local.gpus import Reading
from rota.errors import UserError, meant
from rota.policies.registry import parse
from rota.wire.box import NodeView, Status, UsageView


@dataclass(frozen=True, slots=True)
class Address:
    socket: str
    tcp: str = ""


@dataclass(frozen=True, slots=True)
class Setup:
    """How the daemon was started."""

    engine: str
    address: Address
    policy: str
    policy_file: Path
    """Where a policy that is chosen at run time is kept."""


class Machine:
    def __init__(
        self,
        desk: Desk,
        engine: Engine,
        readings: Callable[[], Iterable[Reading]],
        *,
        setup: Setup,
    ) -> None:
        self._desk = desk
        self.engine = engine
        self._read = readings
        self._engine_name = setup.engine
        self._address = setup.address
        self._started_s = desk.clock()
        self.policy = setup.policy
        self._policy_file = setup.policy_file
        self.stopping = asyncio.Event()

    def status(self) -> Status:
        nodes = self._desk.shell.kernel.nodes.values()
        return Status(
            pid=os.getpid(),
            version=rota.__version__,
            engine=self._engine_name,
            address=self._address.tcp,
            socket=self._address.socket,
            started_s=self._started_s,
            policy=self.policy,
            nodes=len(nodes),
            gpus=sum(len(node.gpus) for node in nodes),
            gpus_held=self._desk.n_gpus_held(),
            jobs=dict(self._desk.counts()),
            trouble=self._desk.shell.trouble,
            usage=self._usage(),
        )

    def _usage(self) -> list[UsageView]:
        shell = self._desk.shell
        rows = shell.accounts.as_of(shell.kernel.jobs.values(), self._desk.clock())
        return [UsageView(each.project, each.user, round(each.gpu_s, 3)) for each in rows]

    def nodes(self) -> list[NodeView]:
        readings = self._readings()
        jobs = list(self._desk.shell.kernel.jobs.values())
        return [
            node_view(node, jobs, readings=readings)
            for node in self._desk.shell.kernel.nodes.values()
        ]

    async def drain(self, caller: Caller, word: str) -> None:
        require_admin(caller, "drain a node")
        shell = self._desk.shell
        node = self._node(word)
        await shell.durable(shell.tell(NodeDrained(node.id), actor=caller.user))

    async def resume(self, caller: Caller, word: str) -> None:
        require_admin(caller, "resume a node")
        shell = self._desk.shell
        node = replace(self._node(word), is_draining=False)
        await shell.durable(shell.tell(NodeSeen(node), actor=caller.user))

    async def lose(self, caller: Caller, word: str) -> None:
        """What ran there starts anew elsewhere."""
        require_admin(caller, "call a node lost")
        shell = self._desk.shell
        node = self._node(word)
        self.engine.give_up_node(node.id)
        await shell.durable(shell.tell(NodeLost(node.id), actor=caller.user))

    async def set_policy(self, caller: Caller, text: str) -> None:
        require_admin(caller, "choose the policy")
        if "/" in text or ".py" in text:
            raise UserError(
                "a policy in a file cannot be loaded into a running daemon",
                "start the daemon with 'rota up --policy FILE:CLASS', or install it as a package",
            )
        self._desk.shell.use_policy(parse(text))
        self.policy = text
        await asyncio.to_thread(replace_file, self._policy_file, text)

    def stop(self, caller: Caller, *, stop_jobs: bool) -> None:
        """Returns at once: jobs may take as long as their grace periods to stop."""
        require_admin(caller, "end the daemon")
        if stop_jobs:
            self._desk.shell.rounds.pause()
            self._desk.shell.tasks.rely_on(self._stop_all(caller))
        else:
            self.stopping.set()

    async def _stop_all(self, caller: Caller) -> None:
        """Every running job back into the queue: it goes on when the daemon is back."""
        shell = self._desk.shell
        while any(job.is_active for job in shell.kernel.jobs.values()):
            # Whatever was planned already may start in the place of what stops; and after a
            # failure of the store, what was told before may be forgotten.
            if not shell.trouble:
                self._send_back(caller)
            await shell.changed()
        self.stopping.set()

    def _send_back(self, caller: Caller) -> None:
        """A hold that is taken back before it has come about. Both are on the disk together, so
        that no job is left held, whatever happens in between."""
        shell = self._desk.shell
        for job in list(shell.kernel.jobs.values()):
            if isinstance(job.phase, Starting | Running):
                deeds = (JobHeld(job.id, caller.user), JobReleased(job.id, caller.user))
                shell.tell_all(deeds, (), actor=caller.user)

    def _node(self, word: str) -> Node:
        node = self._desk.shell.kernel.nodes.get(NodeId(word))
        if node is None:
            hint = meant(word, self._desk.shell.kernel.nodes)
            raise NotFoundError(f"no node {word[:40]!r}", hint or "'rota nodes list' shows them")
        return node

    def _readings(self) -> Mapping[int, Reading]:
        return {each.index: each for each in self._read()}
