"""Run commands in a worker's container, and connect to its ports, through the API server.

The daemon decides who may do this; here every request has the daemon's own permissions in its
namespace. A command has the user, folder, environment and limits of the container.
"""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
import structlog
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from rota.engines.interface import ExecSpec, SessionExit, Terminal, WorkerSession
from rota.engines.kubernetes.exec.websocket import CLOSE, V4, V5, open_websocket
from rota.engines.kubernetes.pods import naming
from rota.errors import RotaError, shown
from rota.kube.client import KubeClient
from rota.kube.resources import Object, part, parts

log = structlog.get_logger()

INPUT, OUTPUT, ERRORS, STATUS, SIZE = 0, 1, 2, 3, 4
"""Stream numbers of a command."""
DATA, ERROR = 0, 1
"""Stream numbers of a forwarded port."""
PORT_BYTES = 2
"""Each stream of a port starts with the port number."""
MAX_MESSAGE_BYTES = 32 * 1024
MAX_BUFFERED_BYTES = 256 * 1024
END_OF_INPUT = b"\x04"
"""Ctrl-D ends the input of a program on a terminal."""
MARKER = "ROTA_SESSION"
"""A variable in the environment of a command and of all its child processes."""
ENV_PROGRAM = "env"
"""Sets the marker: the API server cannot set the environment of a command."""
SHELL = ("/bin/sh", "-c", 'exec "${SHELL:-/bin/sh}"')
CANNOT_RUN, LOST = 126, 255
KILL_TIMEOUT_S = 20.0
KILL_SCRIPT = """
for process in /proc/[0-9]*; do
  tr '\\0' '\\n' 2>/dev/null < "$process/environ" | grep -qxF "$0" && kill -KILL "${process#/proc/}"
done 2>/dev/null; true
"""
"""Kills all processes with the marker: the API server ends the connection, but not the command."""


async def exec_command(
    client: KubeClient, pod: str, *, command: ExecSpec, container: str = naming.CONTAINER
) -> WorkerSession:
    """Run a command in a worker's container."""
    terminal = command.terminal
    marker = f"{MARKER}={os.urandom(8).hex()}"
    argv = [ENV_PROGRAM, marker, *_term_variable(terminal), *(command.argv or SHELL)]
    query = [*_query(argv, terminal), ("container", container)]
    connection = await open_websocket(client, pod, verb="exec", query=query, protocols=(V5, V4))
    outputs = (OUTPUT,) if terminal else (OUTPUT, ERRORS)
    kill_marked = _kill_marked(client, pod, marker=marker, container=container)
    session = _Command(connection, _Streams(outputs), kill_marked=kill_marked)
    if terminal is not None:
        session.resize(terminal.rows, terminal.columns)
    return session


async def connect(client: KubeClient, pod: str, *, port: int) -> WorkerSession:
    """Connect to a port of 127.0.0.1 in a worker's pod."""
    query = [("ports", str(port))]
    connection = await open_websocket(client, pod, verb="portforward", query=query, protocols=(V4,))
    return _Port(connection, _Streams((OUTPUT,)), port=port)


def _term_variable(terminal: Terminal | None) -> list[str]:
    return [f"TERM={terminal.kind}"] if terminal else []


def _query(argv: list[str], terminal: Terminal | None) -> list[tuple[str, str]]:
    asked = {"stdin": True, "stdout": True, "stderr": terminal is None, "tty": bool(terminal)}
    query = [("command", word) for word in argv]
    return query + [(name, str(value).lower()) for name, value in asked.items()]


async def _kill_marked(client: KubeClient, pod: str, *, marker: str, container: str) -> None:
    argv = ["/bin/sh", "-c", KILL_SCRIPT, marker]
    query = [*_query(argv, None), ("container", container)]
    try:
        async with asyncio.timeout(KILL_TIMEOUT_S):
            connection = await open_websocket(
                client, pod, verb="exec", query=query, protocols=(V5, V4)
            )
            async with connection:
                async for message in connection:
                    if message[:1] == bytes([STATUS]):
                        return
    except (RotaError, TimeoutError, ConnectionClosed) as error:
        # Usually the worker has ended, and with it all processes of its pod.
        log.info("processes of a command not killed", pod=pod, error=str(error))


@dataclass(slots=True)
class _Stream:
    """Bytes that arrived and were not read yet."""

    chunks: list[bytes] = field(default_factory=list[bytes])
    n_bytes: int = 0
    is_over: bool = False


class _Streams:
    """Buffers between one connection and readers at different speeds. A full buffer of one
    stream blocks the others, because all arrive on the same connection."""

    def __init__(self, outputs: tuple[int, ...]) -> None:
        self.outputs = outputs
        self._streams = {number: _Stream() for number in outputs}
        self._changed = asyncio.Condition()

    async def put(self, output: int, chunk: bytes) -> None:
        """Returns when the buffer has space again."""
        stream = self._streams.get(output)
        if stream is None or not chunk:
            return
        async with self._changed:
            stream.chunks.append(chunk)
            stream.n_bytes += len(chunk)
            self._changed.notify_all()
            await self._changed.wait_for(
                lambda: stream.n_bytes < MAX_BUFFERED_BYTES or stream.is_over
            )

    async def get(self, output: int) -> bytes:
        stream = self._streams[output]
        async with self._changed:
            await self._changed.wait_for(lambda: stream.chunks or stream.is_over)
            found = b"".join(stream.chunks)
            stream.chunks.clear()
            stream.n_bytes = 0
            self._changed.notify_all()
            return found

    async def end(self, *outputs: int) -> None:
        async with self._changed:
            for output in outputs or self.outputs:
                if output in self._streams:
                    self._streams[output].is_over = True
            self._changed.notify_all()


class _PodSession(ABC):
    """Base of command and port sessions. `left` returns when the other side has ended."""

    def __init__(self, connection: ClientConnection, streams: _Streams) -> None:
        self.outputs = streams.outputs
        self._connection = connection
        self._streams = streams
        self._end: asyncio.Future[SessionExit] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[None]] = set()
        self._spawn(self._receive())

    async def read(self, output: int) -> bytes:
        return await self._streams.get(output)

    async def write(self, chunk: bytes) -> None:
        with suppress(ConnectionClosed):
            for start in range(0, len(chunk), MAX_MESSAGE_BYTES):
                await self._connection.send(
                    bytes([INPUT]) + chunk[start : start + MAX_MESSAGE_BYTES]
                )

    async def wait(self) -> SessionExit:
        return await asyncio.shield(self._end)

    def close(self) -> None:
        self._spawn(self._hang_up())

    async def _hang_up(self) -> None:
        await self._connection.close()
        await self._streams.end()
        self._set_exit(SessionExit(LOST, "the session was closed"))

    def _set_exit(self, session_exit: SessionExit) -> None:
        if not self._end.done():
            self._end.set_result(session_exit)

    async def _receive(self) -> None:
        try:
            async for message in self._connection:
                if isinstance(message, bytes) and message:
                    await self._on_message(message[0], message[1:])
        finally:
            self._set_exit(SessionExit(LOST, "lost the connection to its pod"))
            await self._streams.end()

    @abstractmethod
    async def _on_message(self, stream: int, content: bytes) -> None:
        """Handle the content that arrived on a stream."""

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and isinstance(task.exception(), ConnectionClosed):
            return
        if not task.cancelled() and task.exception() is not None:
            log.error("session failed", exc_info=task.exception())


class _Command(_PodSession):
    def __init__(
        self,
        connection: ClientConnection,
        streams: _Streams,
        *,
        kill_marked: Coroutine[Any, Any, None],
    ) -> None:
        super().__init__(connection, streams)
        self._kill_work: Coroutine[Any, Any, None] | None = kill_marked
        self._is_terminal = ERRORS not in streams.outputs

    async def finish(self) -> None:
        if self._is_terminal:
            await self.write(END_OF_INPUT)
        elif self._connection.subprotocol == V5:
            with suppress(ConnectionClosed):
                await self._connection.send(bytes([CLOSE, INPUT]))

    def resize(self, rows: int, columns: int) -> None:
        if self._is_terminal:
            size = msgspec.json.encode({"Width": columns, "Height": rows})
            self._spawn(self._connection.send(bytes([SIZE]) + size))

    async def _hang_up(self) -> None:
        await super()._hang_up()
        if self._kill_work is not None:
            kill_marked, self._kill_work = self._kill_work, None
            await kill_marked

    async def _on_message(self, stream: int, content: bytes) -> None:
        if stream == STATUS:
            self._set_exit(_exit_of(content))
        else:
            await self._streams.put(stream, content)


class _Port(_PodSession):
    def __init__(self, connection: ClientConnection, streams: _Streams, *, port: int) -> None:
        self._port = port
        self._unread = {DATA: PORT_BYTES, ERROR: PORT_BYTES}
        super().__init__(connection, streams)

    async def finish(self) -> None:
        """The protocol cannot end one direction. Reading continues."""

    def resize(self, rows: int, columns: int) -> None:
        """A port has no terminal."""

    async def _on_message(self, stream: int, content: bytes) -> None:
        skipped = self._unread.get(stream, 0)
        self._unread[stream] = max(0, skipped - len(content))
        content = content[skipped:]
        if stream == DATA:
            await self._streams.put(OUTPUT, content)
        elif content:
            self._set_exit(SessionExit(1, self._error_message(content.decode(errors="replace"))))
            await self._streams.end()

    def _error_message(self, message: str) -> str:
        """The runtime's own message describes its internals, so the common case gets a plain
        one."""
        if "refused" in message:
            return f"no process listens on port {self._port}"
        return shown(message.strip(), 400)


def _exit_of(content: bytes) -> SessionExit:
    """The exit in the last message of the API server about a command."""
    try:
        status: Object = msgspec.json.decode(content, type=dict[str, Any])
    except msgspec.DecodeError:
        return SessionExit(LOST, "the API server did not report how the command ended")
    if status.get("status") == "Success":
        return SessionExit(0)
    for cause in parts(part(status, "details"), "causes"):
        code = str(cause.get("message", ""))
        if cause.get("reason") == "ExitCode" and code.isdecimal():
            return SessionExit(int(code))
    message = str(status.get("message", "the command could not be run"))
    if f'exec: "{ENV_PROGRAM}"' in message:
        return SessionExit(
            CANNOT_RUN, f"its image has no '{ENV_PROGRAM}', which is needed to run a command"
        )
    return SessionExit(CANNOT_RUN, shown(message, 400))
