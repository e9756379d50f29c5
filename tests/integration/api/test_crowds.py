"""Clients that send too much, too slowly or nothing: they are limited, and others are served."""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from tests.integration.api.daemon_process import (
    ApiDaemon,
    eventually,
    problem_of,
    read_all,
    running,
    submit,
)

MIB = 1024**2
HEAD_S, BODY_S, IDLE_S, READ_S = 1.0, 1.0, 1.5, 1.0
HURRY = (HEAD_S, BODY_S, IDLE_S)
KEEPALIVE_S = 15.0
ME = b"GET /v1/me HTTP/1.1\r\nHost: rota\r\n\r\n"
NEWS = b"GET /v1/events HTTP/1.1\r\nHost: rota\r\n\r\n"
EVENTS = b"GET /v1/events?after=0 HTTP/1.1\r\nHost: rota\r\n\r\n"
POST = b"POST /v1/jobs HTTP/1.1\r\nHost: rota\r\nContent-Type: application/json\r\n"
HELD = json.dumps({"command": ["true"], "hold": True}).encode()


@pytest.fixture(scope="module")
def hurried() -> Iterator[ApiDaemon]:
    """A daemon with short client timeouts."""
    with running((*HURRY, KEEPALIVE_S, READ_S)) as found:
        yield found
        assert found.is_well()
        assert "Traceback" not in found.log(), found.log()


# -- too much -------------------------------------------------------------------------------------


def chunks(n_bytes: int) -> Iterator[bytes]:
    for _ in range(n_bytes // MIB):
        yield b" " * MIB


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs/batch", "/v1/snapshots", "/v1/tokens"])
@pytest.mark.parametrize("is_declared", [True, False])
def test_body_of_a_hundred_megabytes_is_rejected(
    daemon: ApiDaemon, path: str, is_declared: bool
) -> None:
    before, jobs = daemon.memory_bytes(), daemon.n_jobs()
    headers = {"Content-Length": str(100 * MIB)} if is_declared else {}
    answer = daemon.admin.post(path, content=chunks(100 * MIB), headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert daemon.admin.get("/v1/me").status_code == 200, "the connection was closed"
    assert daemon.memory_bytes() - before < 64 * MIB
    assert daemon.n_jobs() == jobs


def test_body_is_not_read_without_authentication(daemon: ApiDaemon) -> None:
    before = daemon.memory_bytes()
    with ExitStack() as stack:
        for _ in range(20):
            one = stack.enter_context(daemon.raw(is_tcp=True))
            one.sendall(POST + b"Content-Length: %d\r\n\r\n" % (15 * MIB))
            assert one.recv(65536).startswith(b"HTTP/1.1 401 ")
            one.sendall(b" " * 14 * MIB)
        assert daemon.memory_bytes() - before < 64 * MIB
        assert daemon.is_well()


def test_concurrent_bodies_of_one_user_are_limited(daemon: ApiDaemon) -> None:
    before = daemon.memory_bytes()
    with ExitStack() as stack:
        senders = [stack.enter_context(daemon.raw()) for _ in range(12)]
        for one in senders:
            one.sendall(POST + b"Content-Length: %d\r\n\r\n" % (15 * MIB))
            one.sendall(b" " * 14 * MIB)
        eventually(lambda: any(has_answer(one) for one in senders))
        assert daemon.memory_bytes() - before < 160 * MIB
        refused = next(one for one in senders if has_answer(one))
        assert problem_of(refused.recv(65536))["code"] == "too_many"
    eventually(lambda: daemon.admin.post("/v1/jobs", content=HELD, headers=JSON).status_code == 201)


JSON = {"Content-Type": "application/json"}


def has_answer(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return bool(connection.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False
    finally:
        connection.settimeout(60)


@pytest.mark.parametrize(
    "endless",
    [b"GET /", b"GET /v1/me HTTP/1.1\r\nX: ", POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: "],
    ids=["a path", "a header", "a trailer"],
)
def test_endless_headers_close_the_connection(daemon: ApiDaemon, endless: bytes) -> None:
    before = daemon.memory_bytes()
    with daemon.raw() as one:
        one.sendall(endless)
        with suppress(ConnectionError):
            for _ in range(200):
                one.sendall(b"a" * MIB)
        assert hangs_up(one)
    assert daemon.memory_bytes() - before < 16 * MIB


def test_headers_that_are_too_large_are_rejected(daemon: ApiDaemon) -> None:
    with daemon.raw() as one:
        one.sendall(b"GET /v1/me HTTP/1.1\r\nX: ")
        time.sleep(0.2)
        one.sendall(b"a" * 70_000)
        answer = read_all(one)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert problem_of(answer)["code"] == "too_large"


# -- too slow -------------------------------------------------------------------------------------


def hangs_up(connection: socket.socket) -> bool:
    """Whether the daemon closes the connection within 20 s: the machine may be busy."""
    connection.settimeout(20)
    try:
        return read_all(connection) is not None
    except TimeoutError:
        return False


@pytest.mark.parametrize("is_tcp", [True, False])
@pytest.mark.parametrize(
    "sent",
    [b"", b"\r\n", b"GET /v1", b"GET /v1/me HTTP/1.1\r\nHost:", ME, ME + b"\r\n", ME + b"GET /v1"],
    ids=[
        "nothing",
        "a line",
        "half a line",
        "half a head",
        "idle",
        "idle line",
        "second half head",
    ],
)
def test_idle_connection_is_closed(hurried: ApiDaemon, sent: bytes, is_tcp: bool) -> None:
    with hurried.raw(is_tcp=is_tcp) as one:
        one.sendall(sent)
        assert hangs_up(one)


@pytest.mark.parametrize("first", [b"", ME], ids=["first request", "second request"])
def test_slow_headers_close_the_connection(hurried: ApiDaemon, first: bytes) -> None:
    with hurried.raw() as one:
        one.sendall(first)
        if first:
            one.recv(65536)
        assert not trickles(one, ME[:-3] + b"\r\nX: " + b"x" * 200)


def test_empty_lines_between_requests_do_not_keep_a_connection_open(hurried: ApiDaemon) -> None:
    with hurried.raw() as one:
        one.sendall(ME)
        assert not trickles(one, b"\n" * 200)


def trickles(connection: socket.socket, sent: bytes) -> bool:
    """Whether the daemon accepts all bytes, sent one by one for much longer than the timeout."""
    try:
        for each in sent:
            connection.send(bytes([each]))
            time.sleep(0.1)
    except ConnectionError:
        return False
    return True


def test_slow_body_times_out(hurried: ApiDaemon) -> None:
    with hurried.raw() as one:
        one.sendall(POST + b"Content-Length: 1000\r\n\r\n{")
        answer = read_all(one)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert problem_of(answer)["code"] == "too_slow"


def test_slow_blob_times_out(hurried: ApiDaemon) -> None:
    """The whole content has a time limit, not each byte."""
    with hurried.raw() as one:
        one.sendall(b"PUT /v1/blobs/%s HTTP/1.1\r\nHost: rota\r\n" % (b"0" * 64))
        one.sendall(b"Content-Length: 1000\r\n\r\n")
        for _ in range(100):
            one.send(b"x")
            time.sleep(0.05)
            if has_answer(one):
                break
        assert one.recv(65536).startswith(b"HTTP/1.1 408 ")


def test_streams_have_no_timeout(hurried: ApiDaemon) -> None:
    with hurried.raw() as one, hurried.raw() as pipelined:
        one.sendall(EVENTS)
        pipelined.sendall(ME + EVENTS)
        time.sleep(3 * max(HURRY))
        job = submit(hurried.admin, hold=True).encode()
        for each in (one, pipelined):
            heard = b""
            while job not in heard:
                piece = each.recv(65536)
                assert piece, "the stream was cut"
                heard += piece


def test_pipelined_requests_are_answered_in_order(hurried: ApiDaemon) -> None:
    with hurried.raw() as one:
        one.sendall(ME * 20)
        heard = b""
        while heard.count(b'"reach":"full"}') < 20:
            piece = one.recv(65536)
            assert piece
            heard += piece
        one.sendall(ME)
        assert one.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_unread_responses_are_dropped(hurried: ApiDaemon) -> None:
    jobs = [{"command": ["true"], "hold": True}] * 1000
    assert hurried.admin.post("/v1/jobs/batch", json={"jobs": jobs}).status_code == 201
    before = hurried.memory_bytes()
    lists = b"GET /v1/jobs?limit=1000 HTTP/1.1\r\nHost: rota\r\n\r\n"
    with ExitStack() as stack:
        readers = [stack.enter_context(hurried.raw()) for _ in range(30)]
        for one in readers:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.sendall(lists)
        assert hurried.is_well()
        eventually(lambda: not any(is_open(one) for one in readers))
    assert hurried.memory_bytes() - before < 100 * MIB


def is_open(connection: socket.socket) -> bool:
    try:
        connection.send(b"\r\n")
    except ConnectionError:
        return False
    return True


def test_a_stream_that_nobody_reads_is_closed(hurried: ApiDaemon) -> None:
    with hurried.raw() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.sendall(EVENTS)
        jobs = [{"command": ["true"], "hold": True}] * 1000
        for _ in range(5):
            assert hurried.admin.post("/v1/jobs/batch", json={"jobs": jobs}).status_code == 201
        eventually(lambda: not is_open(one))


WEBSOCKET = (
    b"HTTP/1.1\r\nHost: rota\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def binary_frame(opcode: int, payload: bytes) -> bytes:
    """A frame of a client, masked with zeros."""
    return bytes([0x80 | opcode, 0x80 | len(payload)]) + bytes(4) + payload


def test_a_websocket_that_nobody_reads_is_closed(hurried: ApiDaemon) -> None:
    job = submit(hurried.admin)
    hurried.reaches(job, "running")
    with hurried.raw() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.sendall(b"GET /v1/jobs/%s/exec " % job.encode() + WEBSOCKET)
        assert one.recv(12) == b"HTTP/1.1 101"
        one.sendall(binary_frame(1, b'{"command": ["cat", "/dev/zero"]}'))
        eventually(lambda: not is_open_socket(one))
    hurried.admin.post(f"/v1/jobs/{job}/cancel")


def is_open_socket(connection: socket.socket) -> bool:
    try:
        connection.send(binary_frame(9, b"ping"))
    except ConnectionError:
        return False
    return True


def test_junk_on_a_websocket_closes_it(daemon: ApiDaemon) -> None:
    job = submit(daemon.admin)
    daemon.reaches(job, "running")
    with daemon.raw() as one:
        one.sendall(b"GET /v1/jobs/%s/exec " % job.encode() + WEBSOCKET)
        assert one.recv(12) == b"HTTP/1.1 101"
        one.sendall(b"junk\r\n")
        assert hangs_up(one)
    daemon.admin.post(f"/v1/jobs/{job}/cancel")


def test_websockets_are_counted_as_connections(daemon: ApiDaemon) -> None:
    """A user's own WebSockets are closed above the limit of connections, and others are served."""
    job = submit(daemon.admin)
    daemon.reaches(job, "running")
    with ExitStack() as stack:
        sockets = [stack.enter_context(daemon.raw()) for _ in range(1100)]
        for one in sockets:
            one.sendall(b"GET /v1/jobs/%s/exec " % job.encode() + WEBSOCKET)
        eventually(lambda: 0 < sum(map(is_open_socket, sockets)) <= 1000)
        assert daemon.is_well()
    daemon.admin.post(f"/v1/jobs/{job}/cancel")


def test_pipelined_requests_are_limited(daemon: ApiDaemon) -> None:
    with daemon.raw() as one:
        with suppress(ConnectionError):
            one.sendall(ME * 5000)
        assert hangs_up(one)


def test_unread_streams_do_not_use_memory(daemon: ApiDaemon) -> None:
    with ExitStack() as stack:
        for _ in range(50):
            one = stack.enter_context(daemon.raw())
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.sendall(EVENTS)
        before = daemon.memory_bytes()
        jobs = [{"command": ["true"], "hold": True}] * 1000
        for _ in range(3):
            assert daemon.admin.post("/v1/jobs/batch", json={"jobs": jobs}).status_code == 201
        assert daemon.is_well()
        assert daemon.memory_bytes() - before < 100 * MIB


# -- too many -------------------------------------------------------------------------------------


def test_thousand_idle_connections_do_not_block_others(daemon: ApiDaemon) -> None:
    before = daemon.memory_bytes()
    with ExitStack() as stack:
        for number in range(1000):
            one = stack.enter_context(daemon.raw(is_tcp=number % 2 == 0))
            if number % 3 == 0:
                one.sendall(ME[:20])
        assert daemon.is_well()
        submit(daemon.admin, hold=True)
        assert daemon.memory_bytes() - before < 64 * MIB


def test_longest_idle_connection_is_closed_above_the_limit(daemon: ApiDaemon) -> None:
    """Connections with an open stream are not idle."""
    with daemon.raw() as busy, ExitStack() as stack:
        busy.sendall(EVENTS)
        busy.recv(16)
        idle = [stack.enter_context(daemon.raw()) for _ in range(2500)]
        assert daemon.is_well()
        assert not is_open(idle[0])
        assert is_open(idle[-1])
        assert is_open(busy)


def test_streams_of_one_user_are_limited(daemon: ApiDaemon) -> None:
    with ExitStack() as stack:
        for number in range(201):
            one = stack.enter_context(daemon.raw())
            one.sendall(NEWS)
            assert one.recv(16).startswith(b"HTTP/1.1 200 " if number < 200 else b"HTTP/1.1 429 ")
    eventually(lambda: can_watch(daemon))


def can_watch(daemon: ApiDaemon) -> bool:
    with daemon.by_socket() as client, client.stream("GET", "/v1/events") as answer:
        return answer.status_code == 200


def test_disconnected_log_followers_free_their_slots(daemon: ApiDaemon) -> None:
    """The followed job prints nothing."""
    job = submit(daemon.admin, hold=True)
    for _ in range(250):
        with daemon.raw() as one:
            one.sendall(b"GET /v1/jobs/%s/logs?follow=true HTTP/1.1\r\n\r\n" % job.encode())
            assert one.recv(16).startswith(b"HTTP/1.1 200 ")
    eventually(lambda: can_watch(daemon))


def test_websocket_to_an_http_route_is_rejected(daemon: ApiDaemon) -> None:
    head = b"GET /v1/events HTTP/1.1\r\nHost: rota\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    key = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    with daemon.raw() as one:
        one.sendall(head + key)
        assert one.recv(65536).startswith(b"HTTP/1.1 403 ")
