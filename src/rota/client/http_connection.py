"""One HTTP/1.1 connection over a connected socket: the few parts that the client needs.

`http.client` imports the email package, which takes longer than everything else that `rota list`
does (docs/results/cli_start.md). Bodies of responses have a length, are chunked, or end with the
connection; trailers and redirects are not used. Whatever the server sends, a response that is read
whole is bounded in memory and, with a deadline, in time.
"""

from __future__ import annotations

import io
import socket
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from typing import TYPE_CHECKING, BinaryIO

from rota.errors import UserError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MAX_LINE = 64 * 1024
MAX_HEADERS = 200
MAX_INTERIM_RESPONSES = 10
MAX_BODY_BYTES = 256 * 1024**2
"""The largest body that is read whole. A page of jobs, the largest response of a daemon, has a few
MiB; streams and downloads are not read whole."""
SEND_BYTES = 64 * 1024
CONTINUE_STATUSES = range(100, 200)
STATUSES_WITHOUT_BODY = (204, 304)
HEXADECIMAL = frozenset(b"0123456789abcdefABCDEF")


class ProtocolError(Exception):
    """The response is not HTTP, or the connection ended in the middle of it."""


class HttpResponse:
    """The status and the body of a response. Read the whole body before the next request."""

    def __init__(
        self, status: int, reader: BufferedReader[_DeadlineSocket], *, headers: Mapping[str, str]
    ) -> None:
        self.status = status
        self._reader = reader
        self._is_chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        self._left: int | None = None
        """Bytes that are left of the body, or of the current chunk; None: until the end."""
        if status in STATUSES_WITHOUT_BODY:
            self._is_chunked, self._left = False, 0
        elif self._is_chunked:
            self._left = 0
        elif "content-length" in headers:
            self._left = _length(headers["content-length"])
        self._is_over = self._left == 0 and not self._is_chunked
        self._has_chunks = False
        self.will_close = headers.get("connection", "").lower() == "close" or self._left is None

    def read(self, most_bytes: int | None = None) -> bytes:
        """Return the whole body. Raises `ProtocolError` if it is larger (default: than
        `MAX_BODY_BYTES`)."""
        body, most_bytes = bytearray(), most_bytes or MAX_BODY_BYTES
        while not self._is_over:
            if len(body) + (self._left or 0) > most_bytes:
                raise ProtocolError(f"the response is larger than {most_bytes >> 20} MiB")
            body += self.read1(SEND_BYTES)
        return bytes(body)

    def read1(self, limit: int) -> bytes:
        """Return the next bytes of the body as soon as there are any; empty at its end."""
        if self._is_chunked and self._left == 0 and not self._is_over:
            self._left = self._next_chunk()
            self._is_over = self._left == 0
        if self._is_over:
            return b""
        piece = self._reader.read1(limit if self._left is None else min(limit, self._left))
        if self._left is None:
            self._is_over = not piece
        elif not piece:
            raise ProtocolError("the connection ended in the middle of the response")
        else:
            self._left -= len(piece)
            self._is_over = self._left == 0 and not self._is_chunked
        return piece

    def _next_chunk(self) -> int:
        """Read the head of a chunk and return its size; after the last chunk, 0."""
        if self._has_chunks:
            read_line(self._reader)
        self._has_chunks = True
        digits = read_line(self._reader).partition(b";")[0].strip()
        if not digits or len(digits) > 16 or not HEXADECIMAL.issuperset(digits):
            raise ProtocolError("a chunk of the response has no size")
        size = int(digits, 16)
        if size == 0:
            read_headers(self._reader)  # The trailers.
        return size


class _DeadlineSocket(io.RawIOBase):
    """Reads from a socket until a deadline. Without a deadline, the timeout of the socket applies
    to each read."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.deadline_s: float | None = None
        """In the time of `time.monotonic`."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        if self.deadline_s is not None:
            left_s = self.deadline_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            self._sock.settimeout(left_s)
        return self._sock.recv_into(buffer)


class HttpConnection:
    """A connection to a server. `host` is the value of the Host header."""

    def __init__(self, sock: socket.socket, *, host: str) -> None:
        self.sock = sock
        self._host = host
        self._raw = _DeadlineSocket(sock)
        self._reader = BufferedReader(self._raw)

    def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | BinaryIO | None = None,
        headers: Mapping[str, str],
    ) -> None:
        """Send a request. A body that is a file needs the header Content-Length."""
        sent = {"Host": self._host, **headers}
        if not body and method != "GET":
            sent["Content-Length"] = "0"
        elif isinstance(body, bytes):
            sent["Content-Length"] = str(len(body))
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {sent[name]}" for name in sent)]
        head = "\r\n".join(map(_checked, lines)).encode("latin-1") + b"\r\n\r\n"
        if body is None or isinstance(body, bytes):
            self.sock.sendall(head + (body or b""))
            return
        self.sock.sendall(head)
        while piece := body.read(SEND_BYTES):
            self.sock.sendall(piece)

    def response(self) -> HttpResponse:
        """Read the status and the headers of the response."""
        for _ in range(MAX_INTERIM_RESPONSES + 1):
            words = read_line(self._reader).split(maxsplit=2)
            if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
                raise ProtocolError("the response is not HTTP")
            headers = read_headers(self._reader)
            if int(words[1][:3]) in CONTINUE_STATUSES:
                continue
            if words[0] == b"HTTP/1.0":
                headers["connection"] = "close"
            return HttpResponse(int(words[1][:3]), self._reader, headers=headers)
        raise ProtocolError("the server sends interim responses without end")

    @contextmanager
    def deadline(self, seconds: float) -> Generator[None]:
        """Raise `TimeoutError` if the reads inside take longer than this in total."""
        timeout_s = self.sock.gettimeout()
        self._raw.deadline_s = time.monotonic() + seconds
        try:
            yield
        finally:
            self._raw.deadline_s = None
            if self.sock.fileno() >= 0:
                self.sock.settimeout(timeout_s)

    def close(self) -> None:
        self._reader.close()
        self.sock.close()


def read_headers(reader: BufferedReader[_DeadlineSocket]) -> dict[str, str]:
    """Read headers, or trailers, up to the empty line that ends them."""
    found: dict[str, str] = {}
    for _ in range(MAX_HEADERS):
        line = read_line(reader)
        if not line:
            return found
        name, _, value = line.decode("latin-1").partition(":")
        found[name.strip().lower()] = value.strip()
    raise ProtocolError("the response has too many headers")


def read_line(reader: BufferedReader[_DeadlineSocket]) -> bytes:
    """Return a line without its end."""
    line = reader.readline(MAX_LINE)
    if not line.endswith(b"\n"):
        reason = "has a line that is too long" if len(line) == MAX_LINE else "ended too early"
        raise ProtocolError(f"the response {reason}")
    return line.rstrip(b"\r\n")


def _length(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 16):
        raise ProtocolError("the response has an invalid length")
    return int(text)


def _checked(line: str) -> str:
    """A line break in a header would start another header."""
    try:
        line.encode("latin-1")
    except UnicodeEncodeError:
        raise _unsendable(line) from None
    if any(each < " " or each == "\x7f" for each in line):
        raise _unsendable(line)
    return line


def _unsendable(line: str) -> UserError:
    name = line.partition(":")[0] if ": " in line else "the path"
    return UserError(f"cannot send {name}: it has characters that HTTP does not allow")
