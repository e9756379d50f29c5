"""The daemon and its nodes: status, drain, resume, policy, shutdown."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import rota
from rota.config.atomic_file import replace_file
from rota.core.model.allocation import n_gpus
from rota.core.model.events import Event, JobHeld, JobReleased, NodeDrained, NodeLost, NodeSeen
from rota.core.model.job import Running, Starting
from rota.core.model.node import Node, NodeId
from rota.daemon.access.authorization import (
    Caller,
    may_see_all,
    require_admin,
    require_person,
)
from rota.daemon.errors import NotFoundError
from rota.daemon.jobs.views import node_views
from rota.daemon.runtime.controller import Controller
from rota.engines.interface import Engine, GpuReader
from rota.errors import UserError, did_you_mean
from rota.policies.registry import parse
from rota.thread_pools import STORE, stuck_pools
from rota.wire.daemon import HIDDEN, NodeView, SettingView, Status, UsageView


class TcpState(Protocol):
    """The TCP listener of the daemon. `url` is empty without one; `problem` says why it does not
    listen."""

    @property
    def url(self) -> str: ...

    @property
    def problem(self) -> str: ...


@dataclass(frozen=True, slots=True)
class DaemonAddress:
    socket: str
    tcp: TcpState


@dataclass(frozen=True, slots=True)
class DaemonSetup:
    """How the daemon was started."""

    engine: str
    address: DaemonAddress
    policy: str
    policy_file: Path
    """Stores a policy that was set at run time."""
    flags: Mapping[str, str] = field(default_factory=dict[str, str])
    """The flags of this start and of earlier ones."""
    settings: Sequence[SettingView] = ()
    """All settings of this start."""


@dataclass(frozen=True, slots=True)
class RoundStats:
    """How many scheduling rounds there were, and how long the last one took."""

    count: int
    last_s: float


class ClusterService:
    def __init__(
        self,
        controller: Controller,
        engine: Engine,
        *,
        gpus: GpuReader,
        setup: DaemonSetup,
        clock: Callable[[], float],
    ) -> None:
        self._controller = controller
        self._engine = engine
        self._gpus = gpus
        self._clock = clock
        self._engine_name = setup.engine
        self._address = setup.address
        self._started_s = clock()
        self.policy = setup.policy
        self._policy_file = setup.policy_file
        self._flags = setup.flags
        self._settings = setup.settings
        self._first_policy = setup.policy
        self.stopping = asyncio.Event()

    # -- state ----------------------------------------------------------------------------------

    @property
    def trouble(self) -> str:
        """Why the daemon accepts no work; empty if it does."""
        return self._controller.trouble

    @property
    def is_broken(self) -> bool:
        """Whether the daemon needs a restart."""
        return self._controller.broken.is_set()

    @property
    def stall(self) -> str:
        """Why no scheduling round ends; empty if rounds end. Requests and events are served."""
        return self._controller.scheduling_loop.stall

    @property
    def degraded(self) -> str:
        """What does not work although the daemon is healthy; empty if everything works."""
        return "; ".join(filter(None, [self.stall, *stuck_pools()]))

    def status(self) -> Status:
        controller = self._controller
        nodes = controller.nodes.values()
        return Status(
            pid=os.getpid(),
            version=rota.__version__,
            engine=self._engine_name,
            address=self._address.tcp.url,
            address_problem=self._address.tcp.problem,
            socket=self._address.socket,
            started_s=self._started_s,
            policy=self.policy,
            nodes=len(nodes),
            gpus=sum(len(node.gpus) for node in nodes),
            gpus_held=sum(n_gpus(job.members) for job in controller.jobs.values()),
            jobs=self._job_counts(),
            trouble=self.trouble,
            usage=self._usage(),
            scheduling=self.stall,
            flags=dict(self._flags),
            warnings=self._warnings(),
        )

    def settings(self, caller: Caller) -> list[SettingView]:
        """The settings in effect. Values of variables for jobs can be secrets: only administrators
        see them."""
        require_person(caller)
        shows_all = may_see_all(caller)
        return [
            replace(each, value=HIDDEN)
            if not shows_all and _is_variable(each)
            else self._current(each)
            for each in self._settings
        ]

    def _current(self, setting: SettingView) -> SettingView:
        """The policy is the only setting that changes while the daemon runs."""
        if setting.name != "policy" or self.policy == self._first_policy:
            return setting
        return replace(setting, value=self.policy, origin=str(self._policy_file))

    def _warnings(self) -> list[str]:
        controller = self._controller
        missing = [self._missing_gpus(node) for node in controller.nodes.values()]
        unreadable = [
            f"job {job_id} cannot be read from the store and does not run ({reason}); restore a"
            " backup, or use the version of rota that wrote the job"
            for job_id, reason in controller.unreadable_jobs.items()
        ]
        return [*filter(None, missing), *unreadable, *stuck_pools()]

    def _missing_gpus(self, node: Node) -> str:
        """A sentence about the GPUs that the node does not see while jobs hold them."""
        missing = node.missing_gpus
        if not missing:
            return ""
        holders = [
            job.id
            for job in self._controller.jobs.values()
            if any(slot.node == node.id and missing.intersection(slot.gpus) for slot in job.members)
        ]
        listed = ", ".join(map(str, sorted(missing)))
        return (
            f"GPU {listed} of {node.id} is missing: the machine does not report it. Jobs on it keep"
            f" running ({', '.join(holders)}), and no new job gets it until it is back."
        )

    def round_stats(self) -> RoundStats:
        loop = self._controller.scheduling_loop
        return RoundStats(loop.count, loop.last_s)

    def _job_counts(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for job in self._controller.jobs.values():
            counts[job.state.value] = counts.get(job.state.value, 0) + 1
        return counts

    def _usage(self) -> list[UsageView]:
        controller = self._controller
        rows = controller.usage.as_of(controller.jobs.values(), self._clock())
        return [UsageView(each.project, each.user, round(each.gpu_s, 3)) for each in rows]

    # -- nodes ----------------------------------------------------------------------------------

    def nodes(self, caller: Caller) -> list[NodeView]:
        require_person(caller)
        readings = {each.index: each for each in self._gpus.read()}
        controller = self._controller
        return node_views(controller.nodes.values(), controller.jobs.values(), readings=readings)

    async def drain(self, caller: Caller, word: str) -> None:
        require_admin(caller, "drain a node")
        await self._apply(caller, NodeDrained(self._node(word).id))

    async def resume(self, caller: Caller, word: str) -> None:
        require_admin(caller, "resume a node")
        await self._apply(caller, NodeSeen(replace(self._node(word), is_draining=False)))

    async def mark_lost(self, caller: Caller, word: str) -> None:
        """Restart the jobs of this node on other nodes."""
        require_admin(caller, "mark a node as lost")
        node = self._node(word)
        self._engine.give_up_node(node.id)
        await self._apply(caller, NodeLost(node.id))

    async def _apply(self, caller: Caller, event: Event) -> None:
        await self._controller.durable(self._controller.apply_event(event, actor=caller.user))

    def _node(self, word: str) -> Node:
        nodes = self._controller.nodes
        node = nodes.get(NodeId(word))
        if node is None:
            hint = did_you_mean(word, nodes) or "'rota nodes list' shows all nodes"
            raise NotFoundError(f"no node {word[:40]!r}", hint)
        return node

    # -- policy and shutdown --------------------------------------------------------------------

    async def set_policy(self, caller: Caller, text: str) -> None:
        require_admin(caller, "set the policy")
        if "/" in text or ".py" in text:
            raise UserError(
                "a running daemon cannot load a policy from a file",
                "start the daemon with 'rota up --policy FILE:CLASS', or install it as a package",
            )
        self._controller.use_policy(parse(text))
        self.policy = text
        await STORE.run(replace_file, self._policy_file, text)

    def stop(self, caller: Caller, *, stop_jobs: bool) -> None:
        """Returns at once: jobs may take as long as their grace periods to stop."""
        require_admin(caller, "stop the daemon")
        if stop_jobs:
            self._controller.scheduling_loop.pause()
            self._controller.tasks.spawn_critical(self._requeue_all(caller))
        else:
            self.stopping.set()

    async def _requeue_all(self, caller: Caller) -> None:
        """Put all running jobs back into the queue; they continue after the next start."""
        controller = self._controller
        while any(job.is_active for job in controller.jobs.values()):
            # Repeat: an earlier plan may still start jobs, and a failed store may forget events.
            if not controller.trouble:
                self._requeue_running(caller)
            await controller.changed()
        self.stopping.set()

    def _requeue_running(self, caller: Caller) -> None:
        """Hold and release each job in one write, so that no crash leaves a job on hold."""
        controller, user = self._controller, caller.user
        reason = f"back in the queue: the daemon is stopped by {user}"
        for job in list(controller.jobs.values()):
            if isinstance(job.phase, Starting | Running):
                events = (JobHeld(job.id, user, reason), JobReleased(job.id, user, reason))
                controller.apply_events(events, (), actor=user)


def _is_variable(setting: SettingView) -> bool:
    """Whether the setting is a variable for jobs: `defaults.env.NAME`, also of a project."""
    return ".defaults.env." in f".{setting.name}"
