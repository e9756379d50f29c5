"""HTTP requests over a real socket to a scripted server."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from rota.client import Client
from rota.client.endpoint import Endpoint, NoDaemonError
from rota.client.http import AnswerError, Http, StreamLostError, check_url, connect, path_part
from rota.errors import RotaError, UnavailableError, UserError

ME = b'{"user": "user-1"}'
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def answer(body: bytes, *, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def chunks(*parts: bytes) -> bytes:
    return CHUNKED + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (*parts, b""))


class Server:
    """Each list is one connection; each item is the response to one request. Then it closes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.requests: list[bytes] = []
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(str(path))
        self._door.listen()
        self._thread: threading.Thread | None = None

    def answers(self, *connections: list[bytes]) -> Http:
        self._thread = threading.Thread(target=self._serve, args=(connections,), daemon=True)
        self._thread.start()
        return Http(Endpoint(socket=str(self.path)), answer_s=0.5, silence_s=0.5)

    def drips(self, text: bytes, *, pause_s: float) -> Http:
        """Respond to one request byte by byte, until the client closes the connection."""
        self._thread = threading.Thread(target=self._drip, args=(text, pause_s), daemon=True)
        self._thread.start()
        return Http(Endpoint(socket=str(self.path)), answer_s=0.5, silence_s=0.5)

    def _drip(self, text: bytes, pause_s: float) -> None:
        peer, _ = self._door.accept()
        closed = threading.Event()
        with peer, suppress(OSError):
            _request(peer)
            for each in text:
                peer.sendall(bytes([each]))
                closed.wait(pause_s)

    def _serve(self, connections: tuple[list[bytes], ...]) -> None:
        for each in connections:
            peer, _ = self._door.accept()
            # The client timed out and closed the connection.
            with peer, suppress(OSError):
                for text in each:
                    self.requests.append(_request(peer))
                    peer.sendall(text)

    def close(self) -> None:
        self._door.close()
        if self._thread:
            self._thread.join(5)


def _request(peer: socket.socket) -> bytes:
    """The head and the body, but of the body no more than one read returns."""
    found = peer.recv(65536)
    promised = re.search(rb"Content-Length: (\d+)", found)
    while promised and len(found) < found.find(b"\r\n\r\n") + 4 + min(int(promised[1]), 1000):
        found += peer.recv(65536)
    return found


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with closing(Server(tmp_path / "s")) as made:
        yield made


def test_requests_share_a_connection(server: Server):
    with closing(server.answers([answer(ME), answer(b"[]")])) as http:
        assert http.ask("GET", "/me") == {"user": "user-1"}
        assert (
            http.ask("GET", "/jobs", query={"state": ["a", "b"], "before": None, "x": True}) == []
        )
    first, second = server.requests
    assert first.startswith(b"GET /v1/me HTTP/1.1\r\nHost: rota\r\n")
    assert second.startswith(b"GET /v1/jobs?state=a&state=b&x=true HTTP/1.1\r\n")


def test_get_is_retried_on_a_closed_idle_connection(server: Server):
    with closing(server.answers([answer(ME)], [answer(b"[]")])) as http:
        http.ask("GET", "/me")
        assert http.ask("GET", "/jobs") == []


def test_post_is_not_retried(server: Server):
    with closing(server.answers([answer(ME), b""], [answer(b"[]")])) as http:
        http.ask("GET", "/me")
        with pytest.raises(UnavailableError, match=r"^lost the connection to .*: "):
            http.ask("POST", "/jobs/x/cancel")
        assert http.ask("GET", "/jobs") == []


def test_error_response_becomes_an_exception(server: Server):
    body = b'{"code": "bad", "message": "no", "hint": "yes", "details": {"field": "gpus"}}'
    with (
        closing(server.answers([answer(body, status="422 X")])) as http,
        pytest.raises(AnswerError) as error,
    ):
        http.ask("POST", "/jobs", body={"a": 1})
    assert (error.value.code, error.value.field, str(error.value)) == ("bad", "gpus", "no; yes")
    assert error.value.exit_code == 2


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b"[]",
        b"{}",
        b'{"code": 1, "message": 2, "details": 3}',
        b'{"code": 1, "message": 2}',
        b"[" * 200_000,
    ],
)
def test_response_of_another_server(server: Server, body: bytes):
    with (
        closing(server.answers([answer(body, status="404 Not Found")])) as http,
        pytest.raises(
            RotaError, match="HTTP status 404; check that the address is that of a rota daemon"
        ),
    ):
        http.ask("GET", "/me")


@pytest.mark.parametrize(
    "text", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"]
)
def test_broken_response(server: Server, text: bytes):
    with (
        closing(server.answers([text])) as http,
        pytest.raises(UnavailableError, match=r"^lost the connection to .*: "),
    ):
        http.ask("GET", "/me")


def test_an_answer_that_only_drips_times_out(server: Server):
    """Each read returns something in time, the whole response does not end."""
    with (
        closing(server.drips(answer(ME * 20), pause_s=0.05)) as http,
        pytest.raises(UnavailableError, match=r"timed out; try again$"),
    ):
        http.ask("GET", "/me")


def test_an_event_without_end(server: Server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rota.client.http.MAX_EVENT_BYTES", 1000)
    with (
        closing(server.answers([CHUNKED + b"400\r\n" + b"x" * 1024])) as http,
        pytest.raises(StreamLostError, match="an event is larger than"),
    ):
        list(http.events("/events", {}))


@pytest.mark.parametrize(
    "body",
    [
        b"null",
        b'"x"',
        b"{}",
        b"3",
        b'[{"id": NaN}]',
        b'[{"id": 3}]',
        b'{"jobs": [null]}',
        b'{"jobs": 1e999}',
        b'{"user": null, "ids": [], "policy": 3}',
        b"[" * 200_000,
    ],
)
@pytest.mark.parametrize(
    "call",
    [
        lambda rota: rota.jobs(),
        lambda rota: rota.show("x"),
        lambda rota: rota.me(),
        lambda rota: rota.policy(),
        lambda rota: rota.nodes(),
        lambda rota: rota.tokens(),
        lambda rota: rota.status(),
        lambda rota: rota.resubmit("x"),
    ],
)
def test_json_of_another_shape(server: Server, call: Callable[[Client], object], body: bytes):
    server.answers([answer(body)])
    with (
        Client(Endpoint(socket=str(server.path))) as rota,
        pytest.raises(RotaError, match=r"^unexpected response with HTTP status 200; check that"),
    ):
        call(rota)


@pytest.mark.parametrize("data", [b"null", b"3", b"{}", b"{", b'{"text": NaN}', b"[" * 200_000])
def test_an_event_of_another_shape(server: Server, data: bytes):
    server.answers([chunks(b"data: " + data + b"\n\n")])
    with (
        Client(Endpoint(socket=str(server.path))) as rota,
        pytest.raises(RotaError, match=r"^unexpected response with HTTP status 200; check that"),
    ):
        list(rota.log_pieces("x"))


def test_success_without_json(server: Server):
    with (
        closing(server.answers([answer(b"hello")])) as http,
        pytest.raises(RotaError, match="check that the address is that of a rota daemon"),
    ):
        http.ask("GET", "/me")


def test_response_timeout(server: Server):
    with (
        closing(server.answers([b"HTTP/1.1 200", answer(ME)])) as http,
        pytest.raises(UnavailableError, match="timed out"),
    ):
        http.ask("GET", "/me")


def test_streams_yield_data_as_it_arrives(server: Server):
    events = (
        b"id: 7\n\n",
        b'id: 8\nevent: state\ndata: {"a": 1}\n\n',
        b': keepalive\n\ndata: {"a":',
        b" 2}\n\n",
    )
    with closing(server.answers([chunks(b"one", b"two")], [chunks(*events)])) as http:
        assert b"".join(http.bytes("/logs", {})) == b"onetwo"
        assert list(http.events("/events", {})) == [("7", None), ("8", {"a": 1}), ("8", {"a": 2})]


def test_silent_stream_is_lost(server: Server):
    """The server waits for a second request before it would send more."""
    first = CHUNKED + b"c\r\ndata: {}\n\n\n\r\n"
    with closing(server.answers([first, b"never"])) as http:
        events = http.events("/events", {})
        assert next(events) == ("", {})
        with pytest.raises(StreamLostError, match=r"sent no data for 0\.5 s; run 'rota status'"):
            next(events)


def test_stream_without_a_response_times_out(server: Server):
    with (
        closing(server.answers([b"", b"never"])) as http,
        pytest.raises(UnavailableError, match="timed out") as error,
    ):
        next(http.events("/events", {}))
    assert not isinstance(error.value, StreamLostError)


def test_tcp_connections_have_keepalive() -> None:
    with socket.create_server(("127.0.0.1", 0)) as there:
        url = f"http://127.0.0.1:{there.getsockname()[1]}"
        with closing(connect(Endpoint(url=url), answer_s=1.0)) as connection:
            found = connection.sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert found == 1


def test_error_response_of_a_stream(server: Server):
    body = b'{"code": "forbidden", "message": "not yours"}'
    with (
        closing(server.answers([answer(body, status="403 Forbidden")])) as http,
        pytest.raises(AnswerError, match="not yours"),
    ):
        list(http.bytes("/logs", {}))


def test_file_upload_has_a_content_length(server: Server, tmp_path: Path):
    (tmp_path / "blob").write_bytes(b"content")
    with closing(server.answers([answer(b"{}")])) as http, (tmp_path / "blob").open("rb") as file:
        http.send("PUT", "/blobs/x", content=file)
    assert b"Content-Length: 7\r\n" in server.requests[0]


def test_error_response_to_a_body_that_is_too_large(server: Server, tmp_path: Path):
    (tmp_path / "blob").write_bytes(bytes(10**7))
    body = b'{"code": "too_large", "message": "it is too large"}'
    refusal = answer(body, status="413 Too Large").replace(
        b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"
    )
    with (
        closing(server.answers([refusal])) as http,
        (tmp_path / "blob").open("rb") as file,
        pytest.raises(AnswerError, match="it is too large"),
    ):
        http.send("PUT", "/blobs/x", content=file)


def test_token_is_sent(server: Server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ROTA_TOKEN", "rota_x")
    server.answers([answer(ME)])
    with Client(f"unix://{server.path}") as rota:
        assert rota.me() == "user-1"
    assert b"Authorization: Bearer rota_x\r\n" in server.requests[0]


def test_no_daemon(tmp_path: Path):
    with pytest.raises(NoDaemonError, match="no daemon at"):
        Http(Endpoint(socket=str(tmp_path / "nowhere"))).ask("GET", "/me")


def test_resubmit_is_retried_with_the_same_key(server: Server) -> None:
    server.answers([b""], [answer(b'{"ids": ["new"]}', status="201 Created")])
    with Client(f"unix://{server.path}") as rota:
        assert rota.resubmit("train") == "new"
    keys = [re.search(rb"Idempotency-Key: (\w{32})", each) for each in server.requests]
    assert len(keys) == 2
    assert all(each.startswith(b"POST /v1/jobs/train/resubmit ") for each in server.requests)
    assert len({each[1] for each in keys if each}) == 1


def test_no_request_is_sent_to_a_forbidden_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as there:
        url = f"http://localhost:{there.getsockname()[1]}"
        endpoint = Endpoint(
            url=url, allows_plain_http=True, refuses=lambda address: address == "127.0.0.1"
        )
        with (
            closing(Http(endpoint, "secret")) as http,
            pytest.raises(UserError, match=r"has the forbidden address 127\.0\.0\.1"),
        ):
            http.ask("GET", "/me")
        peer, _ = there.accept()
        with peer:
            assert peer.recv(1) == b""


def test_server_without_tls_is_a_tls_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as there:

        def greet() -> None:
            peer, _ = there.accept()
            with peer:
                peer.recv(65536)
                peer.sendall(b"hello, this is not TLS\r\n")

        thread = threading.Thread(target=greet)
        thread.start()
        endpoint = Endpoint(url=f"https://127.0.0.1:{there.getsockname()[1]}")
        with closing(Http(endpoint)) as http, pytest.raises(UnavailableError, match=r"^TLS error"):
            http.ask("GET", "/me")
        thread.join()


def test_an_invalid_address_is_shown_without_its_password():
    with pytest.raises(UserError) as error:
        check_url(Endpoint(url="http://user-1:secret@host:80"))
    assert str(error.value) == "invalid daemon address 'http://host:80'; write https://HOST:PORT"


@pytest.mark.parametrize("word", ["*", " ", "a b", "../status", "a%2Fb", "#", "x" * 81])
def test_a_word_that_names_nothing_is_refused_before_a_request(word: str):
    with pytest.raises(UserError, match=r"is not a name or an id; use letters, digits"):
        path_part(word)


def test_a_name_is_quoted_for_a_path():
    assert path_part("sweep[3]") == "sweep%5B3%5D"
