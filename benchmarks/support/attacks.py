"""The attacks of `benchmarks.neighbour`: each is one step that a thread of one user repeats.

    python -m benchmarks.support.attacks NAME SOCKET TOKEN SECONDS

Only for a daemon of this benchmark, over its Unix socket. Steps are bounded in count and time.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass

MIB = 1024**2
STEP_S = 2.0
"""How long a step holds connections before it opens new ones."""
N_CONNECTIONS = 1500
N_STREAMS = 200
LOG_JOB = "large-log"
EXEC_JOB = "shell"
FRAME = b"\x81"


@dataclass(frozen=True, slots=True)
class Target:
    """The daemon, and the user who attacks it."""

    socket: str
    token: str

    def connect(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(STEP_S * 10)
        made.connect(self.socket)
        return made

    def head(self, method: str, path: str, **headers: str) -> bytes:
        lines = [f"{method} {path} HTTP/1.1", "Host: rota", f"Authorization: Bearer {self.token}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode()

    def ask(self, method: str, path: str, *, body: bytes = b"") -> bytes:
        """Send one request and return the whole answer."""
        headers = {"Content_Type": "application/json", "Content_Length": str(len(body))}
        with self.connect() as one:
            one.sendall(self.head(method, path, Connection="close", **headers) + body)
            found = bytearray()
            while piece := one.recv(65536):
                found += piece
        return bytes(found)


def idle_connections(target: Target) -> None:
    with ExitStack() as stack:
        for number in range(N_CONNECTIONS):
            one = stack.enter_context(target.connect())
            one.sendall(b"GET /v1/me HTTP/1.1\r\nX: " if number % 2 else b"")
        time.sleep(STEP_S)


def requests(target: Target) -> None:
    """Requests ahead of the answers, as fast as the daemon takes them."""
    with target.connect() as one:
        for _ in range(100):
            one.sendall(target.head("GET", "/v1/jobs?limit=1000") * 16)
            for _ in range(64):
                one.recv(65536)


def large_key(target: Target) -> None:
    target.ask("POST", "/v1/jobs", body=b'{"%s": 1}' % (b"k" * 15 * MIB))


def many_keys(target: Target) -> None:
    keys = b",".join(b'"%07d":1' % number for number in range(1_300_000))
    target.ask("POST", "/v1/jobs", body=b"{%s}" % keys)


def allowed_keys(target: Target) -> None:
    """As many keys as the daemon still parses."""
    keys = b",".join(b'"%07d":1' % number for number in range(249_000))
    target.ask("POST", "/v1/jobs", body=b"{%s}" % keys)


def checks(target: Target) -> None:
    body = {"jobs": [{"command": ["true"], "gpus": "0", "workdir": "/", "array": "0-9999"}]}
    target.ask("POST", "/v1/jobs/check", body=json.dumps(body).encode())


def different_checks(target: Target) -> None:
    job = {"command": ["true"], "gpus": "0", "workdir": "/"}
    body = {"jobs": [{**job, "name": f"n{number}"} for number in range(10_000)]}
    target.ask("POST", "/v1/jobs/check", body=json.dumps(body).encode())


def submits(target: Target) -> None:
    """Fill the own queue with one array and cancel it."""
    body = {"command": ["true"], "gpus": "0", "workdir": "/", "array": "0-9989", "hold": True}
    answer = target.ask("POST", "/v1/jobs", body=json.dumps({**body, "name": "many"}).encode())
    if b" 201 " in answer[:20]:
        target.ask("POST", "/v1/jobs/cancel", body=b'{"name": "many*"}')


def tangled_links(target: Target) -> None:
    links = [{"path": f"d{n:05}/a/b/c/l", "target": "../c/" * 60 + "x"} for n in range(15_000)]
    body = json.dumps({"version": 1, "entries": links}).encode()
    target.ask("POST", "/v1/snapshots/missing", body=body)


def many_folders(target: Target) -> None:
    """One byte in each of 19,999 folders: shipped, then unpacked for a job."""
    blob = b"x"
    name = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    target.ask("PUT", f"/v1/blobs/{name}", body=blob)
    entry = {"sha256": name, "size_bytes": 1, "is_executable": False}
    entries = [{"path": f"{number:05}/f", **entry} for number in range(19_999)]
    body = json.dumps({"version": 1, "entries": entries}).encode()
    answer = target.ask("POST", "/v1/snapshots", body=body)
    snapshot = json.loads(answer.partition(b"\r\n\r\n")[2]).get("id", "")
    job = {"command": ["true"], "gpus": "0", "snapshot": snapshot}
    target.ask("POST", "/v1/jobs", body=json.dumps(job).encode())


def unread_streams(target: Target) -> None:
    """Streams that are never read, while the own jobs change."""
    with ExitStack() as stack:
        for _ in range(N_STREAMS):
            one = stack.enter_context(target.connect())
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.sendall(target.head("GET", "/v1/events?after=0"))
        time.sleep(STEP_S)


def log_followers(target: Target) -> None:
    """Followers of a log of 300 MB that read as fast as they can."""
    until_s = time.monotonic() + 5 * STEP_S
    with ExitStack() as stack:
        lines = [stack.enter_context(target.connect()) for _ in range(N_STREAMS)]
        for one in lines:
            one.sendall(
                target.head(
                    "GET", f"/v1/jobs/{LOG_JOB}/logs?follow=true", Accept="text/event-stream"
                )
            )
            one.setblocking(False)
        while time.monotonic() < until_s:
            for one in lines:
                with suppress(BlockingIOError):
                    one.recv(MIB)


def unread_sessions(target: Target) -> None:
    """Commands that print without end to WebSockets that are never read."""
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec_WebSocket_Version": "13",
    }
    message = b'{"command": ["cat", "/dev/zero"]}'
    with ExitStack() as stack:
        for _ in range(40):
            one = stack.enter_context(target.connect())
            one.sendall(target.head("GET", f"/v1/jobs/{EXEC_JOB}/exec", **upgrade))
            one.recv(64)
            one.sendall(FRAME + bytes([0x80 | len(message)]) + bytes(4) + message)
        time.sleep(2 * STEP_S)


def slow_bodies(target: Target) -> None:
    with ExitStack() as stack:
        lines = [stack.enter_context(target.connect()) for _ in range(200)]
        for one in lines:
            one.sendall(target.head("POST", "/v1/jobs", Content_Length=str(8 * MIB)))
        for _ in range(20):
            for one in lines:
                one.sendall(b" " * 10_000)
            time.sleep(STEP_S / 20)


@dataclass(frozen=True, slots=True)
class Attack:
    text: str
    step: Callable[[Target], None]
    n_threads: int = 1


ATTACKS = {
    "idle": Attack("1,500 connections without a request", idle_connections),
    "requests": Attack("lists of 1,000 jobs on 32 connections, ahead of the answers", requests, 32),
    "key": Attack("a JSON key of 15 MB, 4 at once", large_key, 4),
    "keys": Attack("1.3 million JSON keys, 4 at once", many_keys, 4),
    "allowed-keys": Attack("249,000 JSON keys, 4 at once", allowed_keys, 4),
    "checks": Attack("checks of an array of 10,000 jobs, 4 at once", checks, 4),
    "different": Attack("checks of 10,000 different jobs, 4 at once", different_checks, 4),
    "submits": Attack("an array of 9,990 jobs, submitted and cancelled", submits),
    "links": Attack("tangled links in `missing`, 4 at once", tangled_links, 4),
    "folders": Attack("19,999 folders of one byte, shipped and unpacked", many_folders),
    "streams": Attack("200 event streams that are never read", unread_streams),
    "followers": Attack("200 followers of a log of 300 MB", log_followers),
    "sessions": Attack("40 commands that print to WebSockets that are never read", unread_sessions),
    "bodies": Attack("200 bodies that arrive slowly", slow_bodies),
}


def main() -> None:
    attack, target = ATTACKS[sys.argv[1]], Target(sys.argv[2], sys.argv[3])
    until_s = time.monotonic() + float(sys.argv[4])

    def work() -> None:
        while time.monotonic() < until_s:
            with suppress(OSError, ValueError):
                attack.step(target)
                n_steps.append(1)
            time.sleep(0.01)

    n_steps: list[int] = []
    threads = [threading.Thread(target=work, daemon=True) for _ in range(attack.n_threads)]
    for each in threads:
        each.start()
    time.sleep(float(sys.argv[4]))
    print(len(n_steps))


if __name__ == "__main__":
    main()
