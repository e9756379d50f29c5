"""The daemon's side of exec sessions and of connections to ports of a worker.

`supervisor/exec_sessions.py` is the other side: the supervisor starts the command.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import socket
import struct
import termios
from pathlib import Path

from rota.engines.interface import ExecSpec, SessionExit, WorkerId, WorkerSession
from rota.engines.local import containers
from rota.engines.local.container_network import connect_in
from rota.engines.local.fd_stream import FdStream
from rota.engines.local.supervisor import state_files
from rota.engines.local.supervisor.proc import SESSION_MARKER
from rota.engines.local.supervisor.records import WorkerSpec
from rota.errors import UnavailableError
from rota.thread_pools import SESSIONS

END_OF_INPUT = b"\x04"
"""Ctrl-D, which ends the input of a program on a terminal."""
CONNECT_S = 10.0
ENTER_SHELL = ("/bin/sh", "-c", 'exec "${SHELL:-/bin/sh}"')
NO_SHELLS = ("nologin", "false", "true")
SUPERVISOR_DIED = SessionExit(255, "worker lost")


def worker_unreachable(worker: WorkerId) -> UnavailableError:
    what = f"worker {worker.worker} of job {worker.job_id} is unreachable"
    return UnavailableError(what, "the worker is starting or ending, or an older rota started it")


def connect_supervisor(folder: Path) -> socket.socket | None:
    """Connect to the supervisor of this directory; None if it does not answer."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.setblocking(False)
    folder_fd = -1
    try:
        # Through /proc/self/fd, because a socket path is limited to 107 bytes.
        folder_fd = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        connection.connect(f"/proc/self/fd/{folder_fd}/{state_files.EXEC_SOCKET}")
    except OSError:
        connection.close()
        return None
    finally:
        if folder_fd >= 0:
            os.close(folder_fd)
    return connection


def start_exec(connection: socket.socket, spec: WorkerSpec, *, command: ExecSpec) -> WorkerSession:
    """Ask the supervisor at the other end to run a command."""
    terminal = command.terminal
    request = {
        "argv": _argv(spec, command),
        "env": {
            SESSION_MARKER: os.urandom(8).hex(),
            **({"TERM": terminal.kind} if terminal else {}),
        },
        "is_terminal": terminal is not None,
    }
    streams = _Pty(spec) if terminal else _Pipes()
    try:
        socket.send_fds(connection, [json.dumps(request).encode()], list(streams.theirs))
    except OSError as error:
        connection.close()
        streams.close()
        raise UnavailableError(f"cannot start the command: {error.strerror}") from None
    finally:
        for fd in set(streams.theirs):
            os.close(fd)
    session = _Command(connection, streams)
    if terminal:
        session.resize(terminal.rows, terminal.columns)
    return session


def _argv(spec: WorkerSpec, command: ExecSpec) -> list[str]:
    shell = spec.env.get("SHELL", "")
    is_shell = bool(shell) and os.path.basename(shell) not in NO_SHELLS
    own = (shell if is_shell else "/bin/sh",)
    argv = command.argv or (ENTER_SHELL if spec.inside else own)
    return containers.exec_argv(spec.inside, argv, is_terminal=command.terminal is not None)


class _Pipes:
    """One pipe each for stdin, stdout and stderr. `theirs` are the command's ends."""

    def __init__(self) -> None:
        their_input, our_input = os.pipe2(os.O_CLOEXEC)
        our_output, their_output = os.pipe2(os.O_CLOEXEC)
        our_errors, their_errors = os.pipe2(os.O_CLOEXEC)
        self.theirs = (their_input, their_output, their_errors)
        self.input = FdStream(our_input)
        self.outputs = {1: FdStream(our_output), 2: FdStream(our_errors)}

    async def finish(self) -> None:
        self.input.close()

    def resize(self, rows: int, columns: int) -> None:
        """Pipes have no size."""

    def close(self) -> None:
        for stream in (self.input, *self.outputs.values()):
            stream.close()


class _Pty:
    """One pseudo-terminal for stdin, stdout and stderr."""

    def __init__(self, spec: WorkerSpec) -> None:
        ours, theirs = os.openpty()
        if spec.uid is not None:
            # The command's user must be able to open the terminal by its name.
            os.fchown(theirs, spec.uid, -1)
        self.theirs = (theirs, theirs, theirs)
        self.input = FdStream(ours)
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
    """A command that the supervisor runs as long as this connection is open."""

    def __init__(self, connection: socket.socket, streams: _Pipes | _Pty) -> None:
        self._connection = FdStream(connection.detach())
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

    async def wait(self) -> SessionExit:
        message = await self._connection.read()
        if not message:
            return SUPERVISOR_DIED
        code, _, reason = message.decode(errors="replace").partition(" ")
        return SessionExit(int(code), reason)

    def close(self) -> None:
        self._connection.close()
        self._streams.close()


async def connect(port: int, *, namespace_pid: int | None = None) -> WorkerSession:
    """Connect to a port of 127.0.0.1 in the network namespace of a process; None: in ours."""
    try:
        if namespace_pid is None:
            ours = await _connect_here(port)
        else:
            ours = await SESSIONS.run(connect_in, namespace_pid, port, timeout_s=CONNECT_S)
    except (OSError, TimeoutError) as error:
        why = os.strerror(error.errno).lower() if error.errno else "no answer"
        raise UnavailableError(f"cannot connect to port {port} of the worker: {why}") from None
    return _Connection(ours)


async def _connect_here(port: int) -> socket.socket:
    ours = socket.socket()
    ours.setblocking(False)
    try:
        async with asyncio.timeout(CONNECT_S):
            await asyncio.get_running_loop().sock_connect(ours, ("127.0.0.1", port))
    except BaseException:
        ours.close()
        raise
    return ours


class _Connection:
    """A TCP connection. It ends when both sides have closed their output."""

    outputs: tuple[int, ...] = (1,)

    def __init__(self, ours: socket.socket) -> None:
        self._socket = ours
        self._input, self._output = FdStream(os.dup(ours.fileno())), FdStream(os.dup(ours.fileno()))
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
        """A connection has no size."""

    async def wait(self) -> SessionExit:
        await self._is_read.wait()
        await self._is_written.wait()
        return SessionExit(0)

    def close(self) -> None:
        for stream in (self._input, self._output):
            stream.close()
        self._socket.close()
