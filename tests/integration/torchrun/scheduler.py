"""The real API and services of a daemon for the agents of one job, with a fake scheduler: tests set
the members of the job."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from rota.api.app import Services, create
from rota.api.connection_limiter import ConnectionLimiter
from rota.api.uvicorn_protocol import ClientTimeouts, Server, create_server
from rota.core.model.allocation import Slot
from rota.core.model.events import Event, MembershipChanged
from rota.core.model.job import Job, JobId, Running, ServiceTime, Starting
from rota.core.model.node import NodeId
from rota.daemon.access.authorization import AccessScope, Caller
from rota.daemon.elastic.membership import MembershipService
from rota.daemon.elastic.torchrun_rendezvous import TorchrunRendezvous
from rota.daemon.training.worker_progress import RunningAttempts
from tests.support.builders import job as a_job
from tests.support.ports import reserve_port
from tests.support.timeouts import PATIENCE_S

JOB = JobId("j1")
TOKEN = "token"


class FakeKernel:
    """A kernel with one job."""

    def __init__(self, numbers: tuple[int, ...]) -> None:
        starting = Starting(0.0, slots(numbers))
        self.only = Job(JOB, a_job("train", "1..9"), 0.0, starting, ServiceTime(0.0), attempt=1)
        if numbers != tuple(range(len(numbers))):
            self.only = replace(self.only, phase=Running(0.0, slots(numbers), numbers))

    def job(self, job_id: JobId) -> Job | None:
        return self.only if job_id == JOB else None


class FakeController:
    """The part of the controller that the services need."""

    trouble = ""

    def __init__(self, kernel: FakeKernel) -> None:
        self.kernel = kernel
        self.told: list[Event] = []
        self._changed = asyncio.Event()

    def job(self, job_id: JobId) -> Job | None:
        return self.kernel.job(job_id)

    async def changed(self) -> None:
        await self._changed.wait()

    def announce(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def apply_event(self, event: Event) -> None:
        """Apply an event like the kernel: the new members become the members."""
        self.told.append(event)
        job = self.kernel.only
        if isinstance(event, MembershipChanged) and isinstance(job.phase, Running):
            exits = {n: c for n, c in job.phase.exits.items() if n in job.phase.joining_numbers}
            phase = Running(0.0, job.phase.joining, job.phase.joining_numbers, exits=exits)
            self.kernel.only = replace(job, phase=phase)
            self.announce()


class FakeAuthenticator:
    async def identify(self, connection: Any) -> Caller:
        secret = connection.headers.get("authorization", "").removeprefix("Bearer ")
        is_ours = secret == TOKEN
        return Caller("anna", scope=AccessScope.JOB if is_ours else AccessScope.FULL, job_id=JOB)


class FakeScheduler:
    """A daemon in a thread. `restart` loses its memory; the job is on disk."""

    def __init__(self, numbers: tuple[int, ...]) -> None:
        self._kernel = FakeKernel(numbers)
        self.port = reserve_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    # -- life -----------------------------------------------------------------------------------

    def start(self) -> None:
        is_ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(is_ready)))
        self._thread.start()
        assert is_ready.wait(PATIENCE_S)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._end)
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    async def _serve(self, is_ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self.controller = FakeController(self._kernel)
        controller = cast(Any, self.controller)
        membership = MembershipService(controller, RunningAttempts(), clock=time.time)
        self.rendezvous = TorchrunRendezvous(controller, membership, clock=time.time)
        nobody = cast(Any, None)
        house = Services(
            job_service=nobody,
            submissions=nobody,
            submit_plans=nobody,
            directory=nobody,
            history=nobody,
            log_reader=nobody,
            exec_sessions=nobody,
            job_files=nobody,
            snapshots=nobody,
            snapshot_access=nobody,
            cluster_service=nobody,
            tokens=nobody,
            authenticator=cast(Any, FakeAuthenticator()),
            migrator=nobody,
            report_service=nobody,
            rendezvous=self.rendezvous,
            timeouts=ClientTimeouts(),
        )
        background_tasks = [
            asyncio.ensure_future(each.run()) for each in (membership, self.rendezvous)
        ]
        self._server: Server = create_server(
            create(house), timeouts=ClientTimeouts(), limiter=ConnectionLimiter()
        )
        door = socket.socket()
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind(("127.0.0.1", self.port))
        serving = asyncio.ensure_future(self._server.serve(sockets=[door]))
        while not self._server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.005)
        is_ready.set()
        await serving
        await self._close_late_connections()
        for chore in background_tasks:
            chore.cancel()
        await asyncio.gather(*background_tasks, return_exceptions=True)

    async def _close_late_connections(self) -> None:
        """Close connections that the loop accepted while uvicorn closed all others."""
        for _ in range(3):  # Accept, create the transport, call the protocol.
            await asyncio.sleep(0)
        for connection in list(self._server.server_state.connections):
            cast(Any, connection).transport.close()
        await asyncio.sleep(0)

    def _end(self) -> None:
        self.rendezvous.release_waiters()
        self._server.should_exit = True

    # -- what the scheduler decides -------------------------------------------------------------

    def members(self, *numbers: int) -> int:
        """Set the workers of the job; return their generation."""
        return self._do(lambda: self._change(numbers))

    def exited(self, number: int, code: int) -> None:
        """Report the exit of a worker."""

        def exit_() -> None:
            job = self._kernel.only
            assert isinstance(job.phase, Running | Starting)
            phase = replace(job.phase, exits={**job.phase.exits, number: code})
            self._kernel.only = replace(job, phase=phase)

        self._do(exit_)

    def told(self) -> list[int]:
        """The generations that were reported to the kernel as committed."""
        events = self._do(lambda: list(self.controller.told))
        return [event.generation for event in events if isinstance(event, MembershipChanged)]

    def generation(self) -> int:
        return self._kernel.only.generation

    def at_the_barrier(self) -> set[int]:
        session = self._do(lambda: self.rendezvous._sessions.get(JOB))
        return set() if session is None else set(session.barrier.arrived)

    def _change(self, numbers: tuple[int, ...]) -> int:
        job = self._kernel.only
        held = job.numbers
        if isinstance(job.phase, Running) and job.phase.joining:
            held = job.phase.numbers
        phase = Running(
            0.0,
            slots(held),
            held,
            joining=slots(numbers),
            joining_numbers=numbers,
            exits=job.phase.exits if isinstance(job.phase, Running | Starting) else {},
        )
        self._kernel.only = replace(job, phase=phase, generation=job.generation + 1)
        return self._kernel.only.generation

    def _do(self, deed: Callable[[], Any]) -> Any:
        """Call a function in the thread of the daemon, like the kernel."""

        async def done() -> Any:
            result = deed()
            self.controller.announce()
            return result

        return asyncio.run_coroutine_threadsafe(done(), self._loop).result(PATIENCE_S)


def slots(numbers: tuple[int, ...]) -> tuple[Slot, ...]:
    return tuple(Slot(NodeId("node-01"), (number,)) for number in numbers)


def eventually(holds: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until, f"never came: {what}"
        time.sleep(0.02)
