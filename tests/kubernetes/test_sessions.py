"""Commands in a worker's container and connections to its ports, through a real API server."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from rota.engines.interface import ExecSpec, SessionExit, Terminal, WorkerSession
from rota.engines.kubernetes.exec import sessions
from rota.engines.kubernetes.pods import naming
from rota.errors import RotaError
from rota.kube.client import connect
from rota.kube.errors import ApiError
from tests.kubernetes.cluster.api import Object, until
from tests.kubernetes.cluster.handle import Cluster, python_pod
from tests.kubernetes.support.shared_daemon import shared_namespace
from tests.support.timeouts import PATIENCE_S

PROGRAM = """
import http.server
class Echo(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
server = http.server.ThreadingHTTPServer(("127.0.0.1", 8080), Echo)
print("listening", flush=True)
server.serve_forever()
"""
STUBBORN = "trap '' HUP TERM; (setsid sh -c 'exec sleep 987' &); echo here; exec sleep 987"


@pytest.fixture(scope="module")
def pod(running_cluster: Cluster) -> Iterator[str]:
    """The namespace of a running pod."""
    with shared_namespace(running_cluster) as namespace:
        make_pod(running_cluster, f"/api/v1/namespaces/{namespace}/pods")
        yield namespace


def make_pod(cluster: Cluster, pods: str) -> None:
    body: Object = python_pod("worker", PROGRAM)
    body["spec"]["containers"][0] |= {
        "name": naming.CONTAINER,
        "env": [{"name": "MINE", "value": "a b"}],
        "workingDir": "/tmp",
    }
    cluster.api.create(pods, body)
    until(lambda: "listening" in cluster.api.text(f"{pods}/worker/log"), "the pod to listen")


def within(cluster: Cluster, namespace: str, do: Callable[[Any], Awaitable[None]]) -> None:
    async def run() -> None:
        there = connect(cluster.kubeconfig, namespace=namespace)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await do(there)
                # Closing a session does not wait for its end, so wait for its tasks here.
                await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))
        finally:
            await there.close()

    asyncio.run(run())


async def output(session: WorkerSession, number: int = 1) -> bytes:
    found = b""
    while chunk := await session.read(number):
        found += chunk
    return found


async def seen(session: WorkerSession, word: bytes) -> bytes:
    found = b""
    while word not in found:
        chunk = await session.read(1)
        assert chunk, found
        found += chunk
    return found


async def ran(there: Any, script: str) -> bytes:
    session = await sessions.exec_command(there, "worker", command=ExecSpec(("sh", "-c", script)))
    found = await output(session)
    session.close()
    return found


def test_a_command_has_its_workers_environment_and_folder(
    running_cluster: Cluster, pod: str
) -> None:
    async def do(there: Any) -> None:
        script = 'echo "$MINE"; pwd; echo no >&2; exit 7'
        session = await sessions.exec_command(
            there, "worker", command=ExecSpec(("sh", "-c", script))
        )
        assert await output(session) == b"a b\n/tmp\n"
        assert await output(session, 2) == b"no\n"
        assert await session.wait() == SessionExit(7)
        session.close()

    within(running_cluster, pod, do)


def test_large_input_arrives_and_ends(running_cluster: Cluster, pod: str) -> None:
    async def do(there: Any) -> None:
        session = await sessions.exec_command(there, "worker", command=ExecSpec(("sha256sum",)))
        for _ in range(64):
            await session.write(b"x" * 65536)
        await session.finish()
        wanted = hashlib.sha256(b"x" * 65536 * 64).hexdigest()
        assert (await output(session)).split()[0] == wanted.encode()
        assert await session.wait() == SessionExit(0)
        session.close()
        counted = await sessions.exec_command(there, "worker", command=ExecSpec(("wc", "-c")))
        await counted.write(b"y" * 3_000_000)
        await counted.finish()
        assert (await output(counted)).split() == [b"3000000"]
        counted.close()

    within(running_cluster, pod, do)


def test_output_waits_for_a_slow_reader(running_cluster: Cluster, pod: str) -> None:
    async def do(there: Any) -> None:
        script = "head -c 5000000 /dev/zero"
        session = await sessions.exec_command(
            there, "worker", command=ExecSpec(("sh", "-c", script))
        )
        assert len(await output(session)) == 5_000_000
        assert await session.wait() == SessionExit(0)
        session.close()

    within(running_cluster, pod, do)


def test_a_shell_on_a_terminal(running_cluster: Cluster, pod: str) -> None:
    async def do(there: Any) -> None:
        terminal = Terminal(30, 90, "xterm-256color")
        session = await sessions.exec_command(there, "worker", command=ExecSpec((), terminal))
        assert session.outputs == (1,)
        await session.write(b"echo $TERM; test -t 0 && echo is''here\n")
        assert b"xterm-256color\r\n" in await seen(session, b"ishere\r\n")
        # The size is sent separately from the input, and may arrive later.
        reached = "until [ \"$(stty size)\" = '{}' ]; do :; done; echo si''zed\n"
        await session.write(reached.format("30 90").encode())
        await seen(session, b"sized\r\n")
        session.resize(40, 100)
        await session.write(reached.format("40 100").encode())
        await seen(session, b"sized\r\n")
        await session.write(b"exit 3\n")
        assert (await session.wait()).code == 3
        session.close()

    within(running_cluster, pod, do)


def test_closing_a_session_kills_all_its_processes(running_cluster: Cluster, pod: str) -> None:
    async def do(there: Any) -> None:
        session = await sessions.exec_command(
            there, "worker", command=ExecSpec(("sh", "-c", STUBBORN))
        )
        await seen(session, b"here")
        count = "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -o 'sleep 98[7]' | wc -l"
        assert int(await ran(there, count)) == 2
        session.close()
        while int(await ran(there, count)):
            pass

    within(running_cluster, pod, do)


def test_missing_program_and_missing_pod_are_reported(running_cluster: Cluster, pod: str) -> None:
    async def do(there: Any) -> None:
        session = await sessions.exec_command(
            there, "worker", command=ExecSpec(("no-such-program",))
        )
        assert (await session.wait()).code == 127
        assert b"no-such-program" in await output(session, 2)
        session.close()
        with pytest.raises(ApiError, match="not found"):
            await sessions.exec_command(there, "nobody", command=ExecSpec(("true",)))
        with pytest.raises(RotaError, match="is not a valid name of a Pod"):
            await sessions.exec_command(there, "../secrets", command=ExecSpec(("true",)))

    within(running_cluster, pod, do)


def test_connection_to_a_port_carries_data(running_cluster: Cluster, pod: str) -> None:
    async def do(there: Any) -> None:
        session = await sessions.connect(there, "worker", port=8080)
        body = bytes(range(256)) * 2000
        head = f"POST / HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n"
        await session.write(head.encode() + body)
        await session.finish()
        found = await output(session)
        assert found.startswith(b"HTTP/1.0 200 OK\r\n")
        assert found.endswith(body)
        session.close()
        nobody = await sessions.connect(there, "worker", port=81)
        assert await output(nobody) == b""
        assert (await nobody.wait()).reason == "no process listens on port 81"
        nobody.close()

    within(running_cluster, pod, do)
