"""One HTTP/1.1 connection: bodies, headers, broken responses, timeouts."""

from __future__ import annotations

import io
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from rota.client import http_connection
from rota.client.http_connection import HttpConnection, ProtocolError
from rota.errors import UserError

Respond = Callable[[bytes], HttpConnection]
HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.fixture
def pair() -> Iterator[tuple[HttpConnection, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.settimeout(5)
    connection = HttpConnection(ours, host="rota")
    yield connection, theirs
    connection.close()
    theirs.close()


@pytest.fixture
def respond(pair: tuple[HttpConnection, socket.socket]) -> Respond:
    """A server that sends these bytes and closes."""

    def send(text: bytes) -> HttpConnection:
        connection, server = pair
        server.sendall(text)
        server.shutdown(socket.SHUT_WR)
        return connection

    return send


@pytest.mark.parametrize(
    ("text", "body", "will_close"),
    [
        (b"Content-Length: 3\r\n\r\nabc", b"abc", False),
        (b"content-length:3\r\nConnection: Close\r\n\r\nabc", b"abc", True),
        (b"Content-Length: 0\r\n\r\n", b"", False),
        (b"\r\nuntil the end", b"until the end", True),
        (CHUNKED + b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n", b"abcde", False),
        (CHUNKED + b"0\r\nTrailer: x\r\n\r\n", b"", False),
        (CHUNKED + b"A\r\n0123456789\r\n0\r\n\r\n", b"0123456789", False),
    ],
)
def test_bodies(respond: Respond, text: bytes, body: bytes, will_close: bool):
    response = respond(HEAD + text).response()
    assert (response.status, response.read(), response.will_close) == (200, body, will_close)
    assert response.read1(10) == b""


def test_responses_follow_each_other(respond: Respond):
    chunked = HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"
    connection = respond(chunked + HEAD + b"Content-Length: 1\r\n\r\nb")
    assert connection.response().read() == b"a"
    assert connection.response().read() == b"b"


def test_a_response_without_a_body(respond: Respond):
    response = respond(b"HTTP/1.1 204 No Content\r\n\r\n").response()
    assert (response.status, response.read(), response.will_close) == (204, b"", False)


def test_interim_responses_are_skipped(respond: Respond):
    text = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx"
    response = respond(text).response()
    assert (response.status, response.read(), response.will_close) == (200, b"x", True)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        HEAD,
        HEAD + b"X: " + b"x" * 70_000,
        HEAD + b"X: y\r\n" * 300 + b"\r\n",
        HEAD + b"Content-Length: -1\r\n\r\n",
        HEAD + b"Content-Length: 9\r\n\r\nab",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n-1\r\nab\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    ],
)
def test_broken_responses(respond: Respond, text: bytes):
    with pytest.raises(ProtocolError):
        respond(text).response().read()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 11 + HEAD + b"\r\n", "interim responses without end"),
        (HEAD + CHUNKED + b"0\r\n" + b"A: b\r\n" * 300 + b"\r\n", "too many headers"),
        (HEAD + b"Content-Length: 9999999999999999\r\n\r\nab", "larger than 256 MiB"),
        (HEAD + CHUNKED + b"fffffffffff\r\nab", "larger than 256 MiB"),
    ],
)
def test_responses_without_end(respond: Respond, text: bytes, error: str):
    with pytest.raises(ProtocolError, match=error):
        respond(text).response().read()


@pytest.mark.parametrize(
    "text",
    [
        b"\r\nabcdefghijklmnopqrst",
        CHUNKED + b"3\r\nabc\r\n" * 6 + b"0\r\n\r\n",
    ],
)
def test_a_body_above_the_limit_is_refused(
    respond: Respond, monkeypatch: pytest.MonkeyPatch, text: bytes
):
    monkeypatch.setattr(http_connection, "MAX_BODY_BYTES", 16)
    monkeypatch.setattr(http_connection, "SEND_BYTES", 4)
    with pytest.raises(ProtocolError, match="larger than"):
        respond(HEAD + text).response().read()


def test_a_deadline_covers_the_whole_response(pair: tuple[HttpConnection, socket.socket]):
    connection, server = pair
    server.sendall(HEAD + b"Content-Length: 9\r\n\r\nabc")
    with pytest.raises(TimeoutError), connection.deadline(0.05):
        # The socket's own timeout of 5 s applies to each read.
        connection.response().read()
    assert connection.sock.gettimeout() == 5


def test_a_deadline_that_has_passed_ends_a_response_that_never_stops(
    pair: tuple[HttpConnection, socket.socket],
):
    connection, server = pair

    def send_for_ever() -> None:
        with suppress(OSError):
            server.sendall(HEAD + b"X: ")
            while True:
                server.sendall(b"x")

    sender = threading.Thread(target=send_for_ever, daemon=True)
    sender.start()
    with pytest.raises(TimeoutError), connection.deadline(0):
        connection.response()
    connection.close()
    sender.join(5)


def test_data_is_returned_as_it_arrives(pair: tuple[HttpConnection, socket.socket]):
    connection, server = pair
    server.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n9\r\nabc")
    response = connection.response()
    assert response.read1(100) == b"abc"
    server.sendall(b"defghi\r\n0\r\n\r\n")
    assert response.read() == b"defghi"


def test_a_slow_server_times_out(pair: tuple[HttpConnection, socket.socket]):
    connection, server = pair
    connection.sock.settimeout(0.05)
    server.sendall(b"HTTP/1.1 2")
    with pytest.raises(TimeoutError):
        connection.response()


@pytest.mark.parametrize(
    ("method", "body", "sent"),
    [
        ("GET", None, b"GET /x HTTP/1.1\r\nHost: rota\r\nA: b\r\n\r\n"),
        ("POST", None, b"POST /x HTTP/1.1\r\nHost: rota\r\nA: b\r\nContent-Length: 0\r\n\r\n"),
        ("POST", b"hi", b"POST /x HTTP/1.1\r\nHost: rota\r\nA: b\r\nContent-Length: 2\r\n\r\nhi"),
        ("PUT", io.BytesIO(b"file"), b"PUT /x HTTP/1.1\r\nHost: rota\r\nA: b\r\n\r\nfile"),
    ],
)
def test_requests(
    pair: tuple[HttpConnection, socket.socket],
    method: str,
    body: bytes | io.BytesIO | None,
    sent: bytes,
):
    connection, server = pair
    connection.request(method, "/x", body=body, headers={"A": "b"})
    connection.close()
    assert server.makefile("rb").read() == sent


@pytest.mark.parametrize("value", ["a\r\nB: c", "a\nb", "a\0", "日"])
def test_a_header_cannot_start_another_one(pair: tuple[HttpConnection, socket.socket], value: str):
    with pytest.raises(UserError, match="cannot send Authorization: "):
        pair[0].request("GET", "/", headers={"Authorization": value})
