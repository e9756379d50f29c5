"""The daemon's real doors and desks for the agents of one job, around a stand-in for the scheduler:
tests say by hand who belongs to the job."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from rota.api.app import House, create
from rota.api.server import Patience, Server, server
from rota.core.events import Event, MembershipChanged
from rota.core.model import Job, JobId, NodeId, Running, Service, Slot, Starting
from rota.daemon.membership import Membership
from rota.daemon.people import Caller, Reach
from rota.daemon.rendezvous import Rendezvous
from tests.builders import job as a_job
from tests.patience import PATIENCE_S

JOB = JobId("j1")
TOKEN = "token"


class Kernel:
    """Knows one job."""

    def __init__(self, numbers: tuple[int, ...]) -> None:
        starting = Starting(0.0, slots(numbers))
        self.only = Job(JOB, a_job("train", "1..9"), 0.0, starting, Service(0.0), attempt=1)
        if numbers != tuple(range(len(numbers))):
            self.only = replace(self.only, phase=Running(0.0, slots(numbers), numbers))

    def job(self, job_id: JobId) -> Job | None:
        return self.only if job_id == JOB else None


class Shell:
    """What the desks need of the daemon's shell."""

    trouble = ""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.told: list[Event] = []
        self._changed = asyncio.Event()

    async def changed(self) -> None:
        await self._changed.wait()

    def announce(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def tell(self, event: Event) -> None:
        """As the kernel takes it: the new members are the members."""
        self.told.append(event)
        job = self.kernel.only
        if isinstance(event, MembershipChanged) and isinstance(job.phase, Running):
            exits = {n: c for n, c in job.phase.exits.items() if n in job.phase.joining_numbers}
            phase = Running(0.0, job.phase.joining, job.phase.joining_numbers, exits=exits)
            self.kernel.only = replace(job, phase=phase)
            self.announce()


class Doorkeeper:
    async def identify(self, connection: Any) -> Caller:
        secret = connection.headers.get("authorization", "").removeprefix("Bearer ")
        is_ours = secret == TOKEN
        return Caller("anna", reach=Reach.JOB if is_ours else Reach.FULL, job_id=JOB)


class Scheduler:
    """A daemon in a thread. `restart` loses what it had in memory; the job is on the disk."""

    def __init__(self, numbers: tuple[int, ...]) -> None:
        self._kernel = Kernel(numbers)
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port: int = found.getsockname()[1]
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
        self.shell = Shell(self._kernel)
        shell = cast(Any, self.shell)
        membership = Membership(shell, clock=time.time)
        self.rendezvous = Rendezvous(shell, membership, clock=time.time)
        nobody = cast(Any, None)
        house = House(
            desk=nobody,
            machine=nobody,
            tokens=nobody,
            doorkeeper=cast(Any, Doorkeeper()),
            visits=nobody,
            moves=nobody,
            training=nobody,
            rendezvous=self.rendezvous,
            patience=Patience(),
        )
        chores = [asyncio.ensure_future(each.run()) for each in (membership, self.rendezvous)]
        self._server: Server = server(create(house), patience=Patience())
        door = socket.socket()
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind(("127.0.0.1", self.port))
        serving = asyncio.ensure_future(self._server.serve(sockets=[door]))
        while not self._server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.005)
        is_ready.set()
        await serving
        for chore in chores:
            chore.cancel()
        await asyncio.gather(*chores, return_exceptions=True)

    def _end(self) -> None:
        self.rendezvous.hush()
        self._server.should_exit = True

    # -- what the scheduler decides -------------------------------------------------------------

    def members(self, *numbers: int) -> int:
        """From now on these belong to the job; the generation that they form."""
        return self._do(lambda: self._change(numbers))

    def exited(self, number: int, code: int) -> None:
        """A worker has ended."""

        def exit_() -> None:
            job = self._kernel.only
            assert isinstance(job.phase, Running | Starting)
            phase = replace(job.phase, exits={**job.phase.exits, number: code})
            self._kernel.only = replace(job, phase=phase)

        self._do(exit_)

    def told(self) -> list[int]:
        """The generations of which the kernel heard that they stand."""
        events = self._do(lambda: list(self.shell.told))
        return [event.generation for event in events if isinstance(event, MembershipChanged)]

    def generation(self) -> int:
        return self._kernel.only.generation

    def at_the_barrier(self) -> set[int]:
        room = self._do(lambda: self.rendezvous._rooms.get(JOB))
        return set() if room is None else set(room.meeting.arrived)

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
        """In the daemon's own thread, as everything that the kernel does."""

        async def done() -> Any:
            result = deed()
            self.shell.announce()
            return result

        return asyncio.run_coroutine_threadsafe(done(), self._loop).result(PATIENCE_S)


def slots(numbers: tuple[int, ...]) -> tuple[Slot, ...]:
    return tuple(Slot(NodeId("node-01"), (number,)) for number in numbers)


def eventually(holds: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until, f"never came: {what}"
        time.sleep(0.02)
