"""Build the command line that runs a worker in a container, for jobs that name an image.

The container tool runs with the submitter's rights, like any other program. Containers of Podman
and Apptainer are descendants of the supervisor and end with the process tree. Docker containers
are not: a cleanup command removes them by name.

A container has the protection of a pod: no capabilities, no way to gain privileges, its own process
and network namespaces. It uses the network of the machine if the job requests that, and always
under Apptainer.
"""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from rota.engines.interface import Program
from rota.engines.local.supervisor.proc import MARKER, SESSION_MARKER
from rota.errors import UserError

log = structlog.get_logger()

TOOLS = ("podman", "docker", "apptainer", "singularity")
CAP_SYS_RESOURCE = 24
INTERACTIVE = "--interactive"
PODMAN_HELPERS = ("/usr/libexec/podman", "/usr/local/libexec/podman", "/usr/lib/podman")
INITS = ("catatonit", "tini", "dumb-init", "docker-init")
CONFINED = ("--cap-drop=all", "--security-opt=no-new-privileges")
"""A pod has the same: see `engines.kubernetes.pods.manifest`."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A container tool of this machine, with the options that it needs here."""

    name: str
    path: str
    options: tuple[str, ...] = ()
    owner: tuple[int, int] | None = None
    """uid and gid for a job without an account: those of the daemon. None: the tool's default."""
    endpoint: tuple[str, ...] = ()
    """Options before the subcommand that choose the service of this machine, whatever the
    submitter's own configuration says."""
    allows_endpoint: bool = False
    """Whether variables of the job may choose the service."""

    @property
    def command(self) -> tuple[str, ...]:
        return self.path, *self.endpoint


@dataclass(frozen=True, slots=True)
class Devices:
    gpus: list[str]
    uses_mps: bool = False


@dataclass(frozen=True, slots=True)
class ContainerCommand:
    argv: list[str]
    cleanup: list[str]
    inside: tuple[str, ...] = ()
    """Prefix of a command line that runs another command in the same container."""


def find(*, allows_endpoint: bool = False) -> Tool | None:
    for name in TOOLS:
        if path := shutil.which(name):
            options = (*_limit_options(), *_init_options()) if name == "podman" else ()
            options = ("--init",) if name == "docker" else options
            endpoint = () if allows_endpoint else _endpoint(name)
            return Tool(name, path, options, _owner(), endpoint, allows_endpoint)
    return None


def _endpoint(name: str) -> tuple[str, ...]:
    """Jobs of a daemon without root run as its own user, whose configuration may name a rootless
    docker."""
    if name == "podman":
        return ("--remote=false",)
    return ("--context=default",) if name == "docker" and os.getuid() == 0 else ()


def _init_options() -> tuple[str, ...]:
    """An init process: without one the program is process 1 of its container, which ignores SIGTERM
    unless it has a handler."""
    if any(Path(folder, "catatonit").exists() for folder in PODMAN_HELPERS):
        return ("--init",)
    for name in INITS:
        if path := shutil.which(name):
            return ("--init", f"--init-path={path}")
    log.warning(
        "no init process for containers: a program without a SIGTERM handler is killed when its "
        "grace period ends; install catatonit"
    )
    return ()


def _owner() -> tuple[int, int] | None:
    """None for rootless Docker: root in the container is the user there, and the user's own uid
    would be a different account."""
    uid = os.getuid()
    is_rootless = uid != 0 and Path(f"/run/user/{uid}/docker.sock").exists()
    return None if is_rootless else (uid, os.getgid())


def _limit_options() -> tuple[str, ...]:
    """Set Podman's ulimits to those of the daemon. Its default is higher, and to raise a limit
    needs a capability that containers and small virtual machines often lack."""
    n_files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    n_processes = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    # Podman lowers its own process limit to this value before it sets the container's.
    pid_max = int(Path("/proc/sys/kernel/pid_max").read_text())
    n_processes = pid_max if n_processes == resource.RLIM_INFINITY else min(n_processes, pid_max)
    limits = {"nofile": n_files, "nproc": n_processes}
    known = {name: limit for name, limit in limits.items() if limit != resource.RLIM_INFINITY}
    ulimits = [f"--ulimit={name}={limit}:{limit}" for name, limit in known.items()]
    if not _may_raise_limits() and (runc := shutil.which("runc")):
        return (f"--runtime={runc}", *ulimits)
    return tuple(ulimits)


def _may_raise_limits() -> bool:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> CAP_SYS_RESOURCE & 1)
    return False


def wrap(
    tool: Tool | None, program: Program, *, env: Mapping[str, str], devices: Devices
) -> ContainerCommand:
    """Return the command that runs the program in its image. The command line holds only the names
    of environment variables, because every user of the machine can read it."""
    if tool is None:
        what = f"no container tool on this machine to run image {program.image!r}"
        raise UserError(what, "install podman, docker or apptainer, or submit without an image")
    if tool.name in ("apptainer", "singularity"):
        around = _apptainer(tool, program, gpus=devices.gpus)
        # Apptainer has no exec into a running container: run the same image a second time.
        return ContainerCommand([*around, *program.argv], [], tuple(around))
    # The marker has a nonce: another daemon on this machine may have a job with the same id.
    name = f"rota-{env[MARKER].replace('/', '-')}"
    words = [*tool.command, "run", "--rm", f"--name={name}", *CONFINED]
    words += ["--network=host"] if program.host_network else []
    # MPS and its clients share memory.
    words += ["--ipc=host"] if devices.uses_mps else []
    words += [*tool.options, *_limits(program), *_gpu_options(tool, devices.gpus)]
    words += [f"--env={key}" for key in env]
    words += [f"--volume={_volume(mount)}" for mount in _mounts(program)]
    words += _podman_user(program) if tool.name == "podman" else _docker_user(tool, program)
    words += [*_workdir(program), program.image, *program.argv]
    return ContainerCommand(
        words, [*tool.command, "rm", "--force", name], _exec(tool, program, name=name)
    )


def _podman_user(program: Program) -> list[str]:
    """Run as the submitter, whatever user the image names. Rootless Podman maps the user to root
    in the container unless `keep-id` is given; for root, both are root."""
    account = program.account
    if not account.uid:
        return ["--user=0:0"]
    gid = account.uid if account.gid is None else account.gid
    return ["--userns=keep-id", f"--user={account.uid}:{gid}"]


def _docker_user(tool: Tool, program: Program) -> list[str]:
    """Run as the submitter: the Docker daemon runs as root, and so would its containers."""
    account = program.account
    if account.uid is None:
        return [f"--user={tool.owner[0]}:{tool.owner[1]}"] if tool.owner else []
    gid = account.uid if account.gid is None else account.gid
    others = [group for group in account.groups if group != gid]
    return [f"--user={account.uid}:{gid}", *(f"--group-add={group}" for group in others)]


def _exec(tool: Tool, program: Program, *, name: str) -> tuple[str, ...]:
    """Prefix that runs a command in the container. Only the variables of the session are added;
    the container has its own environment."""
    added = (f"--env={SESSION_MARKER}", "--env=TERM")
    return (*tool.command, "exec", INTERACTIVE, *added, *_workdir(program), name)


def _workdir(program: Program, flag: str = "--workdir") -> tuple[str, ...]:
    """Without a working directory, the image's default applies."""
    return (f"{flag}={program.workdir}",) if program.workdir else ()


def exec_argv(inside: Sequence[str], argv: Sequence[str], *, is_terminal: bool) -> list[str]:
    """Return the command line that runs `argv` in the worker's container, if it has one."""
    words: list[str] = []
    for word in inside:
        words.append(word)
        if word == INTERACTIVE and is_terminal:
            words.append("--tty")
    return [*words, *argv]


def _limits(program: Program) -> list[str]:
    """Limits of the container's own control groups, which replace those of the supervisor."""
    limits, words = program.limits, list[str]()
    if limits.cpus:
        words.append(f"--cpus={limits.cpus:g}")
    if limits.memory_bytes:
        words += [f"--memory={limits.memory_bytes}", f"--memory-swap={limits.memory_bytes}"]
    if limits.pids:
        words.append(f"--pids-limit={limits.pids}")
    return words


def _gpu_options(tool: Tool, gpus: list[str]) -> list[str]:
    if not gpus:
        return []
    if tool.name == "docker":
        return [f'--gpus="device={",".join(gpus)}"']
    return [f"--device=nvidia.com/gpu={gpu}" for gpu in gpus]


def _mounts(program: Program) -> list[tuple[str, str, str]]:
    return [
        (mount.source, mount.target, "rw" if mount.is_writable else "ro")
        for mount in program.mounts
    ]


def _volume(mount: tuple[str, str, str]) -> str:
    source, target, mode = mount
    if ":" in source or ":" in target:
        hint = "volume claims and NFS servers work on a Kubernetes cluster only"
        raise UserError(f"mount {source!r} at {target!r} contains a colon", hint)
    return f"{source}:{target}:{mode}"


def _apptainer(tool: Tool, program: Program, *, gpus: list[str]) -> list[str]:
    """Apptainer passes its own environment on. Limits come from the supervisor's control groups.
    It never lets a program gain privileges. The container always uses the network of the machine:
    only root can give it one of its own."""
    words = [tool.path, "exec", "--no-privs", "--pid", "--no-home", *_workdir(program, "--pwd")]
    words += ["--nv"] if gpus else []
    words += [f"--bind={_volume(mount)}" for mount in _mounts(program)]
    return [*words, program.image]
