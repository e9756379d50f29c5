"""The daemon's side of what is run beside a worker (`sessions.py` is the keeper's), and of
connections to its ports."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import socket
import struct
import termios
from pathlib import Path

from rota.engines.base import Left, Session, Visit, WorkerId
from rota.engines.local import containers, files
from rota.engines.local.flow import Flow
from rota.engines.local.order import Order
from rota.engines.local.procs import SESSION_MARKER
from rota.errors import UnavailableError

END_OF_INPUT = b"\x04"
"""What ends the input of a program on a terminal: Ctrl-D."""
CONNECT_S = 10.0
ENTER_SHELL = ("/bin/sh", "-c", 'exec "${SHELL:-/bin/sh}"')
NO_SHELLS = ("nologin", "false", "true")
KEEPER_DIED = Left(255, "its worker was lost")


def not_there(worker: WorkerId) -> UnavailableError:
    what = f"worker {worker.worker} of job {worker.job_id} cannot be reached"
    return UnavailableError(what, "it is just starting or ending, or older than this rota")


def knock(folder: Path) -> socket.socket | None:
    """A line to the keeper of this folder, if it answers."""
    line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    line.setblocking(False)
    place = -1
    try:
        # By a short name, as the keeper made it.
        place = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        line.connect(f"/proc/self/fd/{place}/{files.DOOR}")
    except OSError:
        line.close()
        return None
    finally:
        if place >= 0:
            os.close(place)
    return line


def begin(line: socket.socket, order: Order, *, visit: Visit) -> Session:
    """Ask the keeper at the other end to run a command."""
    terminal = visit.terminal
    request = {
        "argv": _words(order, visit),
        "env": {
            SESSION_MARKER: os.urandom(8).hex(),
            **({"TERM": terminal.kind} if terminal else {}),
        },
        "is_terminal": terminal is not None,
    }
    streams = _Screen(order) if terminal else _Pipes()
    try:
        socket.send_fds(line, [json.dumps(request).encode()], list(streams.theirs))
    except OSError as error:
        line.close()
        streams.close()
        raise UnavailableError(f"the command cannot be run: {error.strerror}") from None
    finally:
        for fd in set(streams.theirs):
            os.close(fd)
    session = _Command(line, streams)
    if terminal:
        session.resize(terminal.rows, terminal.columns)
    return session


def _words(order: Order, visit: Visit) -> list[str]:
    shell = order.env.get("SHELL", "")
    is_shell = bool(shell) and os.path.basename(shell) not in NO_SHELLS
    own = (shell if is_shell else "/bin/sh",)
    argv = visit.argv or (ENTER_SHELL if order.inside else own)
    return containers.enter(order.inside, argv, is_terminal=visit.terminal is not None)


class _Pipes:
    """Input, output and errors apart."""

    def __init__(self) -> None:
        their_input, our_input = os.pipe2(os.O_CLOEXEC)
        our_output, their_output = os.pipe2(os.O_CLOEXEC)
        our_errors, their_errors = os.pipe2(os.O_CLOEXEC)
        self.theirs = (their_input, their_output, their_errors)
        self.input = Flow(our_input)
        self.outputs = {1: Flow(our_output), 2: Flow(our_errors)}

    async def finish(self) -> None:
        self.input.close()

    def resize(self, rows: int, columns: int) -> None:
        """There is nothing to see."""

    def close(self) -> None:
        for flow in (self.input, *self.outputs.values()):
            flow.close()


class _Screen:
    """One terminal for all three."""

    def __init__(self, order: Order) -> None:
        ours, theirs = os.openpty()
        if order.uid is not None:
            # It is theirs to open again by its name.
            os.fchown(theirs, order.uid, -1)
        self.theirs = (theirs, theirs, theirs)
        self.input = Flow(ours)
        self.outputs = {1: self.input}

    async def finish(self) -> None:
        await self.input.write(END_OF_INPUT)

    def resize(self, rows: int, columns: int) -> None:
        if self.input.fd >= 0:
            size = struct.pack("4H", rows, columns, 0, 0)
            fcntl.ioctl(self.input.fd, termios.TIOCSWINSZ, size)

    def close(self) -> None:
        self.input.close()


class _Command:
    """A command that a keeper runs for us as long as we hold its line."""

    def __init__(self, line: socket.socket, streams: _Pipes | _Screen) -> None:
        self._line = Flow(line.detach())
        self._streams = streams
        self.outputs = tuple(streams.outputs)

    async def read(self, output: int) -> bytes:
        return await self._streams.outputs[output].read()

    async def write(self, chunk: bytes) -> None:
        await self._streams.input.write(chunk)

    async def finish(self) -> None:
        await self._streams.finish()

    def resize(self, rows: int, columns: int) -> None:
        self._streams.resize(rows, columns)

    async def left(self) -> Left:
        word = await self._line.read()
        if not word:
            return KEEPER_DIED
        code, _, reason = word.decode(errors="replace").partition(" ")
        return Left(int(code), reason)

    def close(self) -> None:
        self._line.close()
        self._streams.close()


async def connect(port: int) -> Session:
    """Workers share the network of this machine, in a container, too."""
    ours = socket.socket()
    ours.setblocking(False)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(CONNECT_S):
            await loop.sock_connect(ours, ("127.0.0.1", port))
    except (OSError, TimeoutError) as error:
        ours.close()
        why = os.strerror(error.errno).lower() if error.errno else "no answer"
        raise UnavailableError(f"nothing to connect to on port {port}: {why}") from None
    return _Connection(ours)


class _Connection:
    """Over when both sides have said all."""

    outputs: tuple[int, ...] = (1,)

    def __init__(self, ours: socket.socket) -> None:
        self._socket = ours
        self._input, self._output = Flow(os.dup(ours.fileno())), Flow(os.dup(ours.fileno()))
        self._is_read, self._is_written = asyncio.Event(), asyncio.Event()

    async def read(self, output: int) -> bytes:
        assert output in self.outputs
        chunk = await self._output.read()
        if not chunk:
            self._is_read.set()
        return chunk

    async def write(self, chunk: bytes) -> None:
        await self._input.write(chunk)

    async def finish(self) -> None:
        self._is_written.set()
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def resize(self, rows: int, columns: int) -> None:
        """There is nothing to see."""

    async def left(self) -> Left:
        await self._is_read.wait()
        await self._is_written.wait()
        return Left(0)

    def close(self) -> None:
        for flow in (self._input, self._output):
            flow.close()
        self._socket.close()
