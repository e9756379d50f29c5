"""Commands beside a worker, and connections to its ports, through the API server.

Whoever may reach into a job is the daemon's business; here everything is done with the daemon's own
rights in its namespace. A command has the pod's user, folder, environment and limits.
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

from rota.engines.base import Left, Session, Terminal, Visit
from rota.engines.kubernetes import names
from rota.engines.kubernetes.api import Cluster
from rota.engines.kubernetes.channels import CLOSE, V4, V5, dial
from rota.engines.kubernetes.objects import Object, part, parts
from rota.errors import RotaError, shown

log = structlog.get_logger()

INPUT, OUTPUT, ERRORS, STATUS, SIZE = 0, 1, 2, 3, 4
"""The streams of a command."""
DATA, TROUBLE = 0, 1
"""The streams of the first port."""
PORT_BYTES = 2
"""Each stream of a port begins with its number."""
PIECE_BYTES = 32 * 1024
MOST_READ_AHEAD = 256 * 1024
END_OF_INPUT = b"\x04"
"""What ends the input of a program on a terminal: Ctrl-D."""
MARKER = "ROTA_SESSION"
"""In the environment of a command and of all that it starts."""
BEGINS_WITH = "env"
"""Sets the marker: the API server takes no environment for a command."""
SHELL = ("/bin/sh", "-c", 'exec "${SHELL:-/bin/sh}"')
CANNOT_RUN, LOST = 126, 255
SWEEP_S = 20.0
SWEEP = """
for process in /proc/[0-9]*; do
  tr '\\0' '\\n' 2>/dev/null < "$process/environ" | grep -qxF "$0" && kill -KILL "${process#/proc/}"
done 2>/dev/null; true
"""
"""Ends whatever has the marker. The API server lets go of a command without ending it."""


async def visit(
    cluster: Cluster, pod: str, *, visit: Visit, container: str = names.CONTAINER
) -> Session:
    """Run a command in a worker's container."""
    terminal = visit.terminal
    marker = f"{MARKER}={os.urandom(8).hex()}"
    argv = [BEGINS_WITH, marker, *_terminal_kind(terminal), *(visit.argv or SHELL)]
    query = [*_query(argv, terminal), ("container", container)]
    connection = await dial(cluster, pod, verb="exec", query=query, protocols=(V5, V4))
    outputs = (OUTPUT,) if terminal else (OUTPUT, ERRORS)
    sweeping = _sweep(cluster, pod, marker=marker, container=container)
    session = _Command(connection, _Streams(outputs), sweeping=sweeping)
    if terminal is not None:
        session.resize(terminal.rows, terminal.columns)
    return session


async def connect(cluster: Cluster, pod: str, *, port: int) -> Session:
    """To what listens on this port of 127.0.0.1 in a worker's pod."""
    query = [("ports", str(port))]
    connection = await dial(cluster, pod, verb="portforward", query=query, protocols=(V4,))
    return _Port(connection, _Streams((OUTPUT,)), port=port)


def _terminal_kind(terminal: Terminal | None) -> list[str]:
    return [f"TERM={terminal.kind}"] if terminal else []


def _query(argv: list[str], terminal: Terminal | None) -> list[tuple[str, str]]:
    asked = {"stdin": True, "stdout": True, "stderr": terminal is None, "tty": bool(terminal)}
    query = [("command", word) for word in argv]
    return query + [(name, str(value).lower()) for name, value in asked.items()]


async def _sweep(cluster: Cluster, pod: str, *, marker: str, container: str) -> None:
    argv = ["/bin/sh", "-c", SWEEP, marker]
    query = [*_query(argv, None), ("container", container)]
    try:
        async with asyncio.timeout(SWEEP_S):
            connection = await dial(cluster, pod, verb="exec", query=query, protocols=(V5, V4))
            async with connection:
                async for message in connection:
                    if message[:1] == bytes([STATUS]):
                        return
    except (RotaError, TimeoutError, ConnectionClosed) as error:
        # Most often because the worker has ended meanwhile, and all in its pod with it.
        log.info("a command's remains were not looked for", pod=pod, error=str(error))


@dataclass(slots=True)
class _Stream:
    """What came and was not read yet."""

    chunks: list[bytes] = field(default_factory=list[bytes])
    n_bytes: int = 0
    is_over: bool = False


class _Streams:
    """Between one connection, on which everything comes in a row, and readers at their own
    pace: whoever reads one stream only, for long, keeps the others waiting."""

    def __init__(self, outputs: tuple[int, ...]) -> None:
        self.outputs = outputs
        self._streams = {number: _Stream() for number in outputs}
        self._changed = asyncio.Condition()

    async def put(self, output: int, chunk: bytes) -> None:
        """Returns when there is room for more."""
        stream = self._streams.get(output)
        if stream is None or not chunk:
            return
        async with self._changed:
            stream.chunks.append(chunk)
            stream.n_bytes += len(chunk)
            self._changed.notify_all()
            await self._changed.wait_for(lambda: stream.n_bytes < MOST_READ_AHEAD or stream.is_over)

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


class _Line(ABC):
    """What a command and a port have in common. `left` is done when the other side has ended."""

    def __init__(self, connection: ClientConnection, streams: _Streams) -> None:
        self.outputs = streams.outputs
        self._connection = connection
        self._streams = streams
        self._end: asyncio.Future[Left] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[None]] = set()
        self._spawn(self._pump())

    async def read(self, output: int) -> bytes:
        return await self._streams.get(output)

    async def write(self, chunk: bytes) -> None:
        # Nobody takes anything any more.
        with suppress(ConnectionClosed):
            for start in range(0, len(chunk), PIECE_BYTES):
                await self._connection.send(bytes([INPUT]) + chunk[start : start + PIECE_BYTES])

    async def left(self) -> Left:
        return await asyncio.shield(self._end)

    def close(self) -> None:
        self._spawn(self._hang_up())

    async def _hang_up(self) -> None:
        await self._connection.close()
        await self._streams.end()
        self._over(Left(LOST, "it was let go of"))

    def _over(self, left: Left) -> None:
        if not self._end.done():
            self._end.set_result(left)

    async def _pump(self) -> None:
        try:
            async for message in self._connection:
                if isinstance(message, bytes) and message:
                    await self._take(message[0], message[1:])
        finally:
            self._over(Left(LOST, "the connection to its pod broke"))
            await self._streams.end()

    @abstractmethod
    async def _take(self, stream: int, content: bytes) -> None:
        """What came on a stream."""

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and isinstance(task.exception(), ConnectionClosed):
            return
        if not task.cancelled() and task.exception() is not None:
            log.error("a session broke", exc_info=task.exception())


class _Command(_Line):
    def __init__(
        self,
        connection: ClientConnection,
        streams: _Streams,
        *,
        sweeping: Coroutine[Any, Any, None],
    ) -> None:
        super().__init__(connection, streams)
        self._sweeping: Coroutine[Any, Any, None] | None = sweeping
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
        if self._sweeping is not None:
            sweeping, self._sweeping = self._sweeping, None
            await sweeping

    async def _take(self, stream: int, content: bytes) -> None:
        if stream == STATUS:
            self._over(_left(content))
        else:
            await self._streams.put(stream, content)


class _Port(_Line):
    def __init__(self, connection: ClientConnection, streams: _Streams, *, port: int) -> None:
        self._port = port
        self._unread = {DATA: PORT_BYTES, TROUBLE: PORT_BYTES}
        super().__init__(connection, streams)

    async def finish(self) -> None:
        """The protocol cannot say so. What is still to come is read all the same."""

    def resize(self, rows: int, columns: int) -> None:
        """There is nothing to see."""

    async def _take(self, stream: int, content: bytes) -> None:
        skipped = self._unread.get(stream, 0)
        self._unread[stream] = max(0, skipped - len(content))
        content = content[skipped:]
        if stream == DATA:
            await self._streams.put(OUTPUT, content)
        elif content:
            self._over(Left(1, self._trouble(content.decode(errors="replace"))))
            await self._streams.end()

    def _trouble(self, words: str) -> str:
        """The runtime's own words tell more of its insides than of what is wrong."""
        if "refused" in words:
            return f"nothing listens on port {self._port} there"
        return shown(words.strip(), 400)


def _left(content: bytes) -> Left:
    """From the API server's last word on a command."""
    try:
        told: Object = msgspec.json.decode(content, type=dict[str, Any])
    except msgspec.DecodeError:
        return Left(LOST, "the API server did not say how it ended")
    if told.get("status") == "Success":
        return Left(0)
    for cause in parts(part(told, "details"), "causes"):
        code = str(cause.get("message", ""))
        if cause.get("reason") == "ExitCode" and code.isdecimal():
            return Left(int(code))
    words = str(told.get("message", "it could not be run"))
    if f'exec: "{BEGINS_WITH}"' in words:
        return Left(CANNOT_RUN, f"its image has no '{BEGINS_WITH}' to run a command with")
    return Left(CANNOT_RUN, shown(words, 400))
