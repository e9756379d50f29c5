"""HTTP requests to a daemon; error responses become exceptions.

`http_connection.py` speaks the protocol: libraries take longer to load than `rota list` takes.
"""

from __future__ import annotations

import json
import os
import re
import select
import socket
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, NamedTuple, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from rota.client.endpoint import Endpoint, NoDaemonError, no_daemon
from rota.client.http_connection import (
    MAX_BODY_BYTES,
    HttpConnection,
    HttpResponse,
    ProtocolError,
)
from rota.errors import RotaError, UnavailableError, UserError, shown
from rota.wire.codec import dump_brief, load
from rota.wire.streams import SILENCE_S, enable_tcp_keepalive

ANSWER_S = 60.0
HTTP_OK = 200
FIRST_SERVER_ERROR = 500
FIRST_ERROR = 400
CHUNK = 65536
MAX_EVENT_BYTES = 16 * 1024**2
"""The longest line of an event stream. Pieces of logs are much shorter."""
CONNECT_S = 5.0
FINGERPRINT = re.compile(r"sha256=([0-9a-f]{64})")
"""The fragment of a URL whose certificate the client knows."""
NAME = re.compile(r"[A-Za-z0-9._\[\]-]{1,80}")
CHECK = "run 'rota status' to check the daemon"
Query = Mapping[str, Any]
T = TypeVar("T")


class AnswerError(UserError):
    """The daemon rejected the request. `code` is the error code of the response."""

    def __init__(self, code: str, message: str, hint: str = "", *, field: str = "") -> None:
        super().__init__(message, hint)
        self.code = code
        self.field = field


class StreamLostError(UnavailableError):
    """The connection of a stream broke, or carried no data for too long. `open_s`: how long after
    the beginning of the response."""

    def __init__(self, message: str, hint: str = "", *, open_s: float) -> None:
        super().__init__(message, hint)
        self.open_s = open_s


class StreamEvent(NamedTuple):
    """A server-sent event. `id` is the position of the stream, if the daemon sent one; `data` is
    None if the daemon sent only the position."""

    id: str
    data: Any


class Http:
    """HTTP access to one daemon. Thread-safe: each connection serves one request at a time."""

    def __init__(
        self,
        endpoint: Endpoint,
        token: str | None = None,
        *,
        answer_s: float = ANSWER_S,
        silence_s: float = SILENCE_S,
        answer_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        """`token` None: the token of the endpoint. Empty: no token. `answer_s`: the longest time
        from the end of a request to the end of its response. `silence_s`: an event stream
        without data for this time counts as lost. `answer_bytes`: the largest response that is
        read whole."""
        self.endpoint = endpoint
        self.token = endpoint.token if token is None else token
        self._answer_s = answer_s
        self._silence_s = silence_s
        self._answer_bytes = answer_bytes
        self._idle: list[HttpConnection] = []

    def ask(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Send a request and return the JSON of the response."""
        content = None if body is None else dump_brief(body).encode()
        with self._translated_errors():
            status, answer = self._exchange(
                method, _path(path, query), body=content, headers=headers or {}
            )
        return _read(status, answer)

    def send(self, method: str, path: str, *, content: bytes | BinaryIO) -> Any:
        """Send a raw body and return the JSON of the response."""
        headers = {"Content-Type": "application/octet-stream"}
        if not isinstance(content, bytes):
            headers["Content-Length"] = str(os.fstat(content.fileno()).st_size)
        with self._translated_errors():
            status, answer = self._exchange(
                method, _path(path, None), body=content, headers=headers
            )
        return _read(status, answer)

    def bytes(self, path: str, query: Query) -> Iterator[bytes]:
        """Yield the response as it arrives."""
        with self._stream(path, query, accept="*/*", silence_s=self._answer_s) as response:
            while chunk := response.read1(CHUNK):
                yield chunk

    def events(self, path: str, query: Query) -> Iterator[StreamEvent]:
        """Yield server-sent events. Raises `StreamLostError` if the daemon sends nothing, not even
        a comment, for too long."""
        accept = "text/event-stream"
        with self._stream(path, query, accept=accept, silence_s=self._silence_s) as response:
            yield from _stream_events(response)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _exchange(
        self, method: str, path: str, *, body: bytes | BinaryIO | None, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        """Send a request on an idle connection, if there is one. If the daemon has closed it, retry
        a GET on a new connection."""
        while True:
            connection, is_used = self._connection()
            try:
                # A daemon that rejects a long body may close early but still send a response.
                with suppress(BrokenPipeError):
                    connection.request(
                        method, path, body=body, headers={**self._headers(), **headers}
                    )
                with connection.deadline(self._answer_s):
                    response = connection.response()
                    answer = response.read(self._answer_bytes)
            except (ProtocolError, OSError) as error:
                connection.close()
                if not is_used or method != "GET" or isinstance(error, TimeoutError):
                    raise
                continue
            if response.will_close:
                connection.close()
            else:
                self._idle.append(connection)
            return response.status, answer

    def _connection(self) -> tuple[HttpConnection, bool]:
        """Return an idle connection that is still open (True), or a new one (False)."""
        while True:
            try:
                known = self._idle.pop()
            except IndexError:
                return self._connect(self._answer_s), False
            if not _is_over(known):
                return known, True
            known.close()

    def _headers(self, accept: str = "application/json") -> dict[str, str]:
        headers = {"Accept": accept, "Content-Type": "application/json"}
        return {**headers, "Authorization": f"Bearer {self.token}"} if self.token else headers

    def _connect(self, answer_s: float) -> HttpConnection:
        if self.token:
            require_verified(self.endpoint)
        return connect(self.endpoint, answer_s=answer_s)

    @contextmanager
    def _stream(
        self, path: str, query: Query, *, accept: str, silence_s: float
    ) -> Generator[HttpResponse]:
        with self._translated_errors():
            connection = self._connect(silence_s)
        try:
            with self._translated_errors():
                connection.request("GET", _path(path, query), headers=self._headers(accept))
                with connection.deadline(silence_s):
                    response = connection.response()
                    if response.status >= FIRST_ERROR:
                        require_success(response.status, response.read(self._answer_bytes))
            opened_s = time.monotonic()
            try:
                yield response
            except TimeoutError:
                # Idle connections to the same daemon are probably dead, too.
                self.close()
                what = f"{self.endpoint} sent no data for {silence_s:g} s"
                raise _lost(what, opened_s) from None
            except (ProtocolError, OSError) as error:
                raise _lost(self._broken(error), opened_s) from None
        finally:
            connection.close()

    @contextmanager
    def _translated_errors(self) -> Generator[None]:
        try:
            yield
        except NoDaemonError:
            raise
        except TimeoutError:
            raise UnavailableError(f"request to {self.endpoint} timed out", "try again") from None
        except (ProtocolError, OSError) as error:
            raise UnavailableError(self._broken(error), CHECK) from None

    def _broken(self, error: Exception) -> str:
        return f"lost the connection to {self.endpoint}: {error or type(error).__name__}"


def _lost(what: str, opened_s: float) -> StreamLostError:
    return StreamLostError(what, CHECK, open_s=time.monotonic() - opened_s)


def _stream_events(response: HttpResponse) -> Iterator[StreamEvent]:
    """The daemon writes the data of each event as one line of JSON. Comments are skipped."""
    position, is_told = "", True
    for line in _lines(response):
        if line.startswith(b"id:"):
            position, is_told = line[3:].strip().decode("ascii", "replace"), False
        elif line.startswith(b"data:"):
            is_told = True
            yield StreamEvent(position, _parsed(line[5:], HTTP_OK))
        elif not line and not is_told:
            is_told = True
            yield StreamEvent(position, None)


def _lines(response: HttpResponse) -> Iterator[bytes]:
    """Yield the lines of the body as they arrive."""
    rest = b""
    while chunk := response.read1(CHUNK):
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole
        if len(rest) > MAX_EVENT_BYTES:
            raise ProtocolError(f"an event is larger than {MAX_EVENT_BYTES >> 20} MiB")


def _read(status: int, answer: bytes) -> Any:
    require_success(status, answer)
    return _parsed(answer, status)


def _parsed(text: bytes, status: int) -> Any:
    try:
        return json.loads(text, parse_constant=_reject_constant, parse_float=_finite)
    except (ValueError, RecursionError):
        raise unexpected_response(status) from None


def _reject_constant(name: str) -> None:
    """NaN and Infinity are not JSON."""
    raise ValueError(name)


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError("too large a number")
    return number


def loaded(kind: type[T], answer: Any, *, field: str = "") -> T:
    """Return the dataclass of a successful response, or of one of its fields. Raises `RotaError`
    if the response has another shape."""
    try:
        return load(kind, answer[field] if field else answer)
    except (TypeError, KeyError, IndexError):
        raise unexpected_response(HTTP_OK) from None


def _is_over(connection: HttpConnection) -> bool:
    """Whether the daemon has closed an idle connection: data between two requests can only be the
    end of the stream."""
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))


def require_success(status: int, answer: bytes) -> None:
    if status < FIRST_ERROR:
        return
    try:
        problem = json.loads(answer)
        code, message, hint = problem["code"], problem["message"], problem.get("hint", "")
        field = problem.get("details", {}).get("field", "")
        texts = [code, message, hint, field]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise unexpected_response(status) from None
    if not all(isinstance(each, str) for each in texts):
        raise unexpected_response(status)
    if status >= FIRST_SERVER_ERROR:
        raise UnavailableError(message, hint)
    raise AnswerError(code, message, hint, field=field)


def unexpected_response(status: int) -> RotaError:
    what = f"unexpected response with HTTP status {status}"
    return RotaError(what, "check that the address is that of a rota daemon")


def _path(path: str, query: Query | None) -> str:
    known = {key: _query_value(value) for key, value in (query or {}).items() if value is not None}
    return f"/v1{path}?{urlencode(known, doseq=True)}" if known else f"/v1{path}"


def _query_value(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def require_verified(endpoint: Endpoint) -> None:
    """Raise `UserError` before a secret goes to a daemon that the client cannot verify: another
    user of its machine could hold the port, and the network could read the secret."""
    if endpoint.url.startswith("http://") and not endpoint.allows_plain_http:
        raise UserError(
            f"the token is not sent to {endpoint}: without TLS the daemon cannot be verified",
            "use the https URL that 'rota status' shows on the daemon's machine; to send the token"
            " nevertheless, set ROTA_PLAIN_HTTP=true, or add the context with --plain-http",
        )


def connect(endpoint: Endpoint, *, answer_s: float) -> HttpConnection:
    """Open a connection. `answer_s` is the timeout of responses on it."""
    opened, host = open_socket(endpoint)
    opened.settimeout(answer_s)
    enable_tcp_keepalive(opened)
    return HttpConnection(opened, host=host)


def open_socket(endpoint: Endpoint) -> tuple[socket.socket, str]:
    """Connect to a daemon, with TLS if its URL says so. Returns the value of the Host header, too.
    Raises `UserError` if the certificate is not trusted."""
    address = None if endpoint.socket else _address(endpoint.url)
    try:
        opened = _unix(endpoint.socket) if address is None else _tcp(address, endpoint)
    except (OSError, UnicodeError):  # UnicodeError: a host name that cannot be encoded.
        raise no_daemon(endpoint) from None
    # Check the address after connecting: a host name can resolve to another address each time.
    if endpoint.refuses and endpoint.refuses(found := str(opened.getpeername()[0])):
        opened.close()
        raise UserError(f"connection refused: {endpoint} has the forbidden address {found}")
    return opened, "rota" if address is None else address.header


def _unix(path: str) -> socket.socket:
    opened = socket.socket(socket.AF_UNIX)
    try:
        opened.settimeout(CONNECT_S)
        opened.connect(path)
    except OSError:
        opened.close()
        raise
    return opened


class _Address:
    """The host and port of a URL, and the fingerprint of the certificate that the client trusts."""

    def __init__(
        self, host: str, port: int | None, *, is_encrypted: bool, fingerprint: str
    ) -> None:
        self.host = host
        self.port = port or (443 if is_encrypted else 80)
        self.is_encrypted = is_encrypted
        self.fingerprint = fingerprint
        name = f"[{host}]" if ":" in host else host
        self.header = f"{name}:{port}" if port else name


def _tcp(address: _Address, endpoint: Endpoint) -> socket.socket:
    opened = socket.create_connection((address.host, address.port), timeout=CONNECT_S)
    try:
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not address.is_encrypted:
            return opened
        # Imported here, because most commands use the socket of this machine and must start fast.
        from rota.client import tls  # noqa: PLC0415

        return tls.wrap(opened, address.host, fingerprint=address.fingerprint, shown=str(endpoint))
    except BaseException:
        opened.close()
        raise


def certificate_fingerprint(endpoint: Endpoint) -> str:
    """The fingerprint of the certificate at a https URL; empty if an authority that this machine
    trusts has signed it. Sends nothing but the TLS handshake."""
    from rota.client import tls  # noqa: PLC0415

    address = _address(endpoint.url)
    try:
        return tls.untrusted_fingerprint(address.host, address.port, timeout_s=CONNECT_S)
    except (OSError, UnicodeError):
        raise NoDaemonError(f"no daemon at {endpoint}", "check the address") from None


def path_part(word: str) -> str:
    """The name or id of a job, a node or a token, as a part of a path."""
    if not NAME.fullmatch(word):
        what = f"'{shown(word)}' is not a name or an id" if word else "the name is empty"
        raise UserError(what, "use letters, digits, '.', '_' and '-', at most 80")
    return quote(word, safe="")


def check_url(endpoint: Endpoint) -> None:
    """Raise `UserError` if the URL of the endpoint is invalid."""
    if endpoint.url:
        _address(endpoint.url)


def _address(url: str) -> _Address:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise _invalid_address(url) from None
    is_odd = parts.path not in ("", "/") or parts.query or "@" in parts.netloc
    if not host or is_odd or not host.isprintable() or " " in host:
        raise _invalid_address(url)
    is_encrypted, fingerprint = parts.scheme == "https", ""
    if parts.fragment:
        match = FINGERPRINT.fullmatch(parts.fragment.lower())
        if match is None or not is_encrypted:
            what = f"invalid fingerprint '{shown(parts.fragment)}'"
            raise UserError(what, "write https://HOST:PORT#sha256= and 64 hexadecimal digits")
        fingerprint = match[1]
    return _Address(host, port, is_encrypted=is_encrypted, fingerprint=fingerprint)


def _invalid_address(url: str) -> UserError:
    """The message leaves out user and password: it may end up in a log."""
    scheme, separator, rest = url.rpartition("://")
    address = f"{scheme}{separator}{rest.rpartition('@')[2]}"
    return UserError(f"invalid daemon address '{shown(address)}'", "write https://HOST:PORT")
