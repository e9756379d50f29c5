"""Workers in containers, with real podman where it is installed."""

import os
import signal
import socket
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from rota.core.model.allocation import Slot
from rota.core.model.commands import StartWorkers
from rota.core.model.job import JobId
from rota.core.model.node import NodeId
from rota.engines.interface import Mount, Program, UnixAccount, WorkerId, WorkerLimits
from rota.engines.local.containers import Tool
from rota.engines.local.supervisor.records import WorkerKey
from rota.engines.local.worker_spec import AttemptParams, HostCapabilities, render
from rota.errors import UnavailableError, UserError
from tests.integration.engine.box import Box, on_a_box
from tests.integration.engine.conftest import IMAGE, OTHERS_IMAGE

HOST_PROGRAMS = tuple(Mount(path, path) for path in ("/usr", "/bin", "/lib", "/lib64"))
POLITE = "trap 'sleep 0.1; echo saved; exit 9' TERM; echo ready; while :; do sleep 0.01; done"


def in_image(script: str, **program: object) -> Program:
    return Program(
        ("/bin/sh", "-c", script),
        image=IMAGE,
        mounts=HOST_PROGRAMS,
        **program,  # pyright: ignore[reportArgumentType]
    )


def is_known(podman: str, box: Box) -> bool:
    spec = box.folders.spec(WorkerKey("job", 1, 0))
    assert spec is not None
    name = f"rota-{spec.marker.replace('/', '-')}"
    return subprocess.run([podman, "container", "exists", name], check=False).returncode == 0


@on_a_box
async def test_container_runs_like_any_worker(box: Box, podman: str) -> None:
    program = in_image("echo $RANK $MINE $ROTA_JOB; ls /; exit 3", env={"MINE": "a secret"})
    assert (await box.run("job", program)).code == 3
    first, *folders = (await box.output("job")).decode().splitlines()
    assert first == "0 a secret job"
    assert "home" not in folders, "this is not the machine's own root"
    spec = box.folders.spec(WorkerKey("job", 1, 0))
    assert spec is not None
    assert "a secret" not in " ".join(spec.argv)
    assert not is_known(podman, box)


@on_a_box
async def test_stop_of_a_container(box: Box, podman: str) -> None:
    await box.run_until_output("job", "ready", in_image(POLITE))
    await box.stop("job")
    await box.end_of("job")
    assert b"saved\n" in await box.output("job")
    assert not is_known(podman, box)


@on_a_box
async def test_container_that_ignores_sigterm_is_killed(box: Box, podman: str) -> None:
    stubborn = "trap '' TERM; echo ready; while :; do sleep 1; done"
    await box.run_until_output("job", "ready", in_image(stubborn))
    await box.stop("job", grace_s=0.1)
    assert await box.end_of("job") != 0
    assert not box.processes("job")
    assert not is_known(podman, box)


@pytest.mark.usefixtures("podman")
@on_a_box
async def test_container_is_adopted(box: Box) -> None:
    await box.run_until_output("job", "ready", in_image(POLITE))
    await box.restart()
    assert await box.adopt() == {"job"}
    await box.stop("job")
    await box.end_of("job")
    assert b"saved\n" in await box.output("job")


@on_a_box
async def test_container_ends_when_its_supervisor_is_killed(box: Box, podman: str) -> None:
    await box.run_until_output("job", "ready", in_image(POLITE))
    os.kill(box.supervisor_pid("job"), signal.SIGKILL)
    assert await box.end_of("job") == -1
    assert not box.processes("job")
    assert not is_known(podman, box)


@pytest.mark.usefixtures("podman")
@on_a_box
async def test_container_limits(box: Box) -> None:
    hog = "python3 -c 'x = bytearray(400 << 20)'"
    ending = await box.run("job", in_image(hog, limits=WorkerLimits(memory_bytes=100 * 1024**2)))
    assert ending.code == 137


def our_namespace(kind: str) -> str:
    return str(Path(f"/proc/self/ns/{kind}").readlink())


SHOW_CONFINEMENT = """
sed -n 's/CapEff:\t//p' /proc/self/status; sed -n 's/NoNewPrivs:\t//p' /proc/self/status
readlink /proc/self/ns/net; readlink /proc/self/ns/pid
"""


@pytest.mark.usefixtures("podman")
@pytest.mark.parametrize("host_network", [False, True])
@on_a_box
async def test_container_is_confined_like_a_pod(box: Box, host_network: bool) -> None:
    """No capabilities, no way to gain privileges, its own processes; the machine's network only on
    request."""
    await box.run("job", in_image(SHOW_CONFINEMENT, host_network=host_network))
    *privileges, network, processes = (await box.output("job")).decode().splitlines()
    assert privileges == ["0000000000000000", "1"]
    assert (network == our_namespace("net")) is host_network
    assert processes != our_namespace("pid")


SERVE = """python3 -c '
import socket
there = socket.create_server(("127.0.0.1", 4321))
print("ready", flush=True)
while True:
    one, _ = there.accept()
    one.sendall(b"hello")
    one.close()
'"""


@pytest.mark.usefixtures("podman")
@on_a_box
async def test_port_of_a_container_is_reached_in_its_own_network(box: Box) -> None:
    await box.run_until_output("job", "ready", in_image(SERVE))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", 4321))
    worker = WorkerId(JobId("job"), 1, 0)
    session = await box.engine.connect(worker, 4321)
    assert await session.read(1) == b"hello"
    session.close()
    with pytest.raises(UnavailableError, match="port 4322 of the worker: connection refused"):
        await box.engine.connect(worker, 4322)


MEET = """python3 -c '
import os, socket
rank, port = os.environ["RANK"], int(os.environ["MASTER_PORT"])
address = os.environ["MASTER_ADDR"], port
if rank == "0":
    there = socket.create_server(address)
    print(there.accept()[0].recv(10).decode())
else:
    while True:
        try:
            socket.create_connection(address).sendall(b"hello")
            break
        except ConnectionRefusedError:
            pass
'"""


@pytest.mark.usefixtures("podman")
@on_a_box
async def test_workers_in_containers_meet_on_the_network_of_the_machine(box: Box) -> None:
    with pytest.raises(UserError, match="--host-network"):
        await box.start("job", in_image(MEET), workers=2)
    await box.start("job", in_image(MEET, host_network=True), workers=2)
    assert [await box.end_of("job", worker=worker) for worker in range(2)] == [0, 0]
    assert await box.output("job") == b"hello\n"


@pytest.mark.usefixtures("podman")
@on_a_box
async def test_container_reaches_the_socket_of_the_daemon(box: Box) -> None:
    """Its own network does not matter: the folder of the socket is mounted."""
    place = box.root / "daemon"
    place.mkdir()
    path = str(place / "socket")
    call = f"import socket; s = socket.socket(1); s.connect({path!r}); s.send(b'x')"
    program = in_image(f"python3 -c {call!r}")
    program = replace(program, mounts=(*program.mounts, Mount(str(place), str(place))))
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(path)
        daemon.listen()
        assert (await box.run("job", program)).code == 0
        with daemon.accept()[0] as worker:
            assert worker.recv(1) == b"x"


def specs(tool: Tool | None, program: Program) -> list[list[str]]:
    command = StartWorkers(JobId("job"), 1, 0, (Slot(NodeId("n"), (0,)),))
    host = HostCapabilities(visible_names={0: "GPU-a"}, container_tool=tool)
    rendered = render(command, program, host=host, params=AttemptParams(1, "nonce"))
    return [spec.argv for spec in rendered.values()]


def test_image_without_a_container_tool() -> None:
    with pytest.raises(UserError, match="install podman, docker or apptainer"):
        specs(None, Program(("p",), image="pytorch"))


def test_docker_and_apptainer_command_lines() -> None:
    program = Program(("p", "x"), image="pytorch", workdir="/w", mounts=(Mount("/d", "/data"),))
    [docker] = specs(Tool("docker", "/bin/docker"), program)
    assert docker[:2] == ["/bin/docker", "run"]
    assert '--gpus="device=GPU-a"' in docker
    assert docker[-4:] == ["--workdir=/w", "pytorch", "p", "x"]
    [apptainer] = specs(Tool("apptainer", "/bin/apptainer"), program)
    options = ["exec", "--no-privs", "--pid", "--no-home", "--pwd=/w", "--nv", "--bind=/d:/data:ro"]
    assert apptainer == ["/bin/apptainer", *options, "pytorch", "p", "x"]


ADA = UnixAccount("ada", uid=1000, gid=100, groups=(100, 27))


@pytest.mark.parametrize(
    ("tool", "account", "words"),
    [
        (Tool("docker", "/d"), ADA, ["--user=1000:100", "--group-add=27"]),
        (Tool("docker", "/d", owner=(7, 8)), UnixAccount(uid=0, gid=0), ["--user=0:0"]),
        (Tool("docker", "/d", owner=(7, 8)), UnixAccount(), ["--user=7:8"]),
        (Tool("docker", "/d"), UnixAccount(), []),
        (Tool("podman", "/p"), ADA, ["--userns=keep-id", "--user=1000:100"]),
        (Tool("podman", "/p"), UnixAccount(uid=0, gid=0), ["--user=0:0"]),
        (Tool("podman", "/p", owner=(7, 8)), UnixAccount(), ["--user=0:0"]),
    ],
)
def test_container_runs_with_the_submitters_rights(
    tool: Tool, account: UnixAccount, words: list[str]
) -> None:
    [argv] = specs(tool, Program(("p",), image="pytorch", account=account))
    assert [each for each in argv if each.startswith(("--user", "--group"))] == words


@pytest.mark.usefixtures("podman")
@on_a_box
async def test_submitter_overrides_the_user_of_the_image(box: Box) -> None:
    program = in_image("id -u; id -g; touch /data/mine", workdir="")
    place = box.root / "data"
    place.mkdir()
    mounts = (*program.mounts, Mount(str(place), "/data", is_writable=True))
    program = replace(program, image=OTHERS_IMAGE, mounts=mounts)
    assert (await box.run("job", program)).code == 0
    assert await box.output("job") == b"0\n0\n"
    assert (place / "mine").stat().st_uid == 0


@pytest.mark.parametrize("tool", ["podman", "docker", "apptainer"])
def test_default_workdir_is_that_of_the_image(tool: str) -> None:
    program = Program(("p",), image="pytorch", workdir="", host_network=True)
    [words] = specs(Tool(tool, f"/bin/{tool}"), program)
    assert not [word for word in words if word.startswith(("--workdir", "--pwd"))]


@pytest.mark.usefixtures("podman")
@on_a_box
async def test_container_without_a_workdir_runs(box: Box) -> None:
    assert (await box.run("job", in_image("pwd", workdir=""))).code == 0
    assert await box.output("job") == b"/\n"
