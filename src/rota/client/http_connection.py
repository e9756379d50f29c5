"""One HTTP/1.1 connection over a connected socket: the few parts that the client needs.

`http.client` imports the email package, which takes longer than everything else that `rota list`
does (docs/results/cli_start.md). Bodies of responses have a length, are chunked, or end with the
connection; trailers and redirects are not used.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, BinaryIO

from rota.errors import UserError

if TYPE_CHECKING:
    from io import BufferedReader

MAX_LINE = 64 * 1024
MAX_HEADERS = 200
SEND_BYTES = 64 * 1024
CONTINUE_STATUSES = range(100, 200)
STATUSES_WITHOUT_BODY = (204, 304)
HEXADECIMAL = frozenset(b"0123456789abcdefABCDEF")


class ProtocolError(Exception):
    """The response is not HTTP, or the connection ended in the middle of it."""


class HttpResponse:
    """The status and the body of a response. Read the whole body before the next request."""

    def __init__(self, status: int, reader: BufferedReader, *, headers: Mapping[str, str]) -> None:
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

    def read(self) -> bytes:
        """Return the whole body."""
        pieces: list[bytes] = []
        while piece := self.read1(SEND_BYTES):
            pieces.append(piece)
        return b"".join(pieces)

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
        while size == 0 and read_line(self._reader):
            pass  # A trailer.
        return size


class HttpConnection:
    """A connection to a server. `host` is the value of the Host header."""

    def __init__(self, sock: socket.socket, *, host: str) -> None:
        self.sock = sock
        self._host = host
        self._reader = sock.makefile("rb")

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
        while True:
            words = read_line(self._reader).split(maxsplit=2)
            if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
                raise ProtocolError("the response is not HTTP")
            headers = self._headers()
            if int(words[1][:3]) not in CONTINUE_STATUSES:
                break
        if words[0] == b"HTTP/1.0":
            headers["connection"] = "close"
        return HttpResponse(int(words[1][:3]), self._reader, headers=headers)

    def close(self) -> None:
        self._reader.close()
        self.sock.close()

    def _headers(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for _ in range(MAX_HEADERS):
            line = read_line(self._reader)
            if not line:
                return found
            name, _, value = line.decode("latin-1").partition(":")
            found[name.strip().lower()] = value.strip()
        raise ProtocolError("the response has too many headers")


def read_line(reader: BufferedReader) -> bytes:
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
