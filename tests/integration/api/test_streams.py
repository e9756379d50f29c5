"""Streams: comments, lost connections, limits, and clean-up after a client has gone."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Generic, TypeVar

import pytest

from rota.api.streams import COMMENT
from rota.api.uvicorn_protocol import ClientTimeouts
from rota.client import Client
from rota.client.endpoint import Endpoint
from rota.config.limits import DEFAULT_LIMITS
from rota.server.main import serve
from rota.wire.jobs import LogRange
from tests.integration.api.black_hole_proxy import BlackHoleProxy, black_hole_proxy
from tests.integration.api.daemon_main import settings
from tests.integration.api.daemon_process import (
    ANNA,
    LONG,
    ApiDaemon,
    eventually,
    running,
    submit,
)
from tests.support.timeouts import PATIENCE_S

MAX_STREAMS = DEFAULT_LIMITS.max_streams
KEEPALIVE_S = 0.2
SILENCE_S = 2.0
EVENTS = b"GET /v1/events HTTP/1.1\r\nHost: rota\r\n\r\n"
T = TypeVar("T")


@pytest.fixture(scope="module")
def daemon() -> Iterator[ApiDaemon]:
    """A daemon that sends a comment every 0.2 s."""
    with running((*LONG, KEEPALIVE_S)) as found:
        yield found
        assert found.is_well()
        assert "Traceback" not in found.log(), found.log()


@pytest.fixture
def proxy(daemon: ApiDaemon) -> Iterator[BlackHoleProxy]:
    with black_hole_proxy(daemon.port) as found:
        yield found


@pytest.fixture
def client(daemon: ApiDaemon, proxy: BlackHoleProxy) -> Iterator[Client]:
    endpoint = Endpoint(url=proxy.url, allows_plain_http=True)
    with Client(endpoint, token=daemon.token(ANNA), silence_s=SILENCE_S) as found:
        yield found


class Background(threading.Thread, Generic[T]):
    """Runs a blocking call of the client in a thread."""

    def __init__(self, call: Callable[[], T]) -> None:
        super().__init__(daemon=True)
        self._call = call
        self._result: list[T] = []
        self.start()

    def run(self) -> None:
        self._result.append(self._call())

    def result(self) -> T:
        self.join(PATIENCE_S)
        assert not self.is_alive(), "the call still waits on the dead connection"
        return self._result[0]


def two_lines(daemon: ApiDaemon, name: str) -> tuple[str, Path]:
    """A job that prints one line, and a second line after the returned file exists."""
    file = daemon.folder / f"{name}-go"
    script = f"echo one; until [ -e {file} ]; do sleep 0.02; done; echo two"
    with daemon.person(ANNA) as person:
        return submit(person, command=["sh", "-c", script], name=name), file


def read_until(connection: socket.socket, wanted: bytes, n_times: int = 1) -> bytes:
    found = b""
    while found.count(wanted) < n_times:
        chunk = connection.recv(65536)
        assert chunk, found
        found += chunk
    return found


# -- comments -------------------------------------------------------------------------------------


def test_idle_event_stream_sends_comments(daemon: ApiDaemon) -> None:
    with daemon.raw() as one:
        one.sendall(EVENTS)
        read_until(one, COMMENT, n_times=3)


def test_log_stream_of_a_silent_job_sends_comments(daemon: ApiDaemon) -> None:
    job = submit(daemon.admin, hold=True).encode()
    accept = b"Host: rota\r\nAccept: text/event-stream\r\n\r\n"
    with daemon.raw() as one:
        one.sendall(b"GET /v1/jobs/%s/logs?follow=true HTTP/1.1\r\n%s" % (job, accept))
        read_until(one, COMMENT, n_times=3)


def test_plain_log_contains_no_comments(daemon: ApiDaemon) -> None:
    job, file = two_lines(daemon, "plain")
    with daemon.raw() as one:
        path = b"/v1/jobs/%s/logs?follow=true" % job.encode()
        one.sendall(b"GET %s HTTP/1.1\r\nHost: rota\r\n\r\n" % path)
        with daemon.raw() as other:
            other.sendall(EVENTS)
            read_until(other, COMMENT, n_times=3)
        file.touch()
        assert b"keepalive" not in read_until(one, b"\r\n0\r\n\r\n")


def test_tcp_connections_have_keepalive(daemon: ApiDaemon) -> None:
    with daemon.raw(is_tcp=True) as one:
        one.sendall(b"GET /healthz HTTP/1.1\r\nHost: rota\r\n\r\n")
        read_until(one, b"HTTP/1.1 200 ")
        port = one.getsockname()[1]
        timers = keepalive_timers(daemon.port, port)
    assert timers == ["02"]


def keepalive_timers(local: int, remote: int) -> list[str]:
    """The kernel's timer of the daemon's side of a connection: 02 is keepalive."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ends = f":{local:04X}", f":{remote:04X}"
    return [
        row[5].split(":")[0]
        for row in rows
        if row[1].endswith(ends[0]) and row[2].endswith(ends[1])
    ]


# -- lost connections -----------------------------------------------------------------------------


def test_log_following_continues_after_a_silent_connection(
    daemon: ApiDaemon, proxy: BlackHoleProxy, client: Client
) -> None:
    job, file = two_lines(daemon, "followed")
    follower = Background(lambda: b"".join(client.log_bytes(job, LogRange(follow=True))))
    proxy.wait_forwarded(b"/logs?", b'"one\\n"')
    proxy.freeze()
    file.touch()
    assert follower.result() == b"one\ntwo\n"
    assert proxy.n_requests(b"/logs?") >= 2


def test_wait_continues_after_a_silent_connection(
    daemon: ApiDaemon, proxy: BlackHoleProxy, client: Client
) -> None:
    job, file = two_lines(daemon, "awaited")
    daemon.reaches(job, "running")
    waiting = Background(lambda: client.wait(job).state)
    proxy.wait_forwarded(b"/v1/events?", b"id: ")
    proxy.freeze()
    file.touch()
    assert waiting.result() == "succeeded"


def test_events_continue_after_a_silent_connection(
    daemon: ApiDaemon, proxy: BlackHoleProxy, client: Client
) -> None:
    """The change happens between the two connections, before the client has seen any event."""
    events = client.events()
    first = Background(lambda: next(events))
    proxy.wait_forwarded(b"/v1/events?", b"id: ")
    proxy.freeze()
    job = submit(daemon.admin, hold=True)
    assert (first.result().job_id, first.result().after) == (job, "held")


# -- limits ---------------------------------------------------------------------------------------


def test_concurrent_requests_cannot_exceed_the_limit(daemon: ApiDaemon) -> None:
    with ExitStack() as stack:
        streams = [stack.enter_context(daemon.raw()) for _ in range(MAX_STREAMS + 50)]
        for each in streams:
            each.sendall(EVENTS)
        answers = [each.recv(16)[9:12] for each in streams]
        assert (answers.count(b"200"), answers.count(b"429")) == (MAX_STREAMS, 50)
    eventually(lambda: n_streams_opened(daemon) == MAX_STREAMS)


def test_clients_that_leave_before_the_first_byte_release_their_slots(daemon: ApiDaemon) -> None:
    for _ in range(2 * MAX_STREAMS):
        with daemon.raw() as one:
            one.sendall(EVENTS)
    eventually(lambda: n_streams_opened(daemon) == MAX_STREAMS)


def n_streams_opened(daemon: ApiDaemon) -> int:
    """How many of one stream more than the limit the daemon accepts."""
    n_opened = 0
    with ExitStack() as stack:
        for _ in range(MAX_STREAMS + 1):
            one = stack.enter_context(daemon.raw())
            one.sendall(EVENTS)
            n_opened += one.recv(16)[9:12] == b"200"
    return n_opened


# -- clean-up -------------------------------------------------------------------------------------


def test_closed_streams_leave_no_task(tmp_path: Path) -> None:
    async def scenario() -> None:
        chosen = replace(settings(tmp_path, 0, timeouts=ClientTimeouts(*LONG)), listen=None)
        ready = asyncio.Event()
        running_daemon = asyncio.ensure_future(serve(chosen, ready=ready.set))
        async with asyncio.timeout(PATIENCE_S):
            await ready.wait()
            n_before = len(asyncio.all_tasks())
            for _ in range(20):
                reader, writer = await asyncio.open_unix_connection(tmp_path / "rota.sock")
                writer.write(EVENTS)
                await reader.readuntil(b"200 OK")
                writer.close()
            # The daemon's own tasks come and go, so a few more are no leak.
            while len(asyncio.all_tasks()) > n_before + 5:  # noqa: ASYNC110 - no event to await
                await asyncio.sleep(0.01)
        running_daemon.cancel()
        await asyncio.wait([running_daemon])

    asyncio.run(scenario())
