"""A job that names an image runs in a container: the same worker, with more words in front.

The container's tool is run with the submitter's rights like any other program. Podman's and
Apptainer's containers are descendants of the keeper, and end as such. Docker's are not: its
cleanup removes them by name, whatever became of its client.
"""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rota.engines.base import Program
from rota.engines.local.procs import MARKER, SESSION_MARKER
from rota.errors import UserError

TOOLS = ("podman", "docker", "apptainer", "singularity")
CAP_SYS_RESOURCE = 24
INTERACTIVE = "--interactive"


@dataclass(frozen=True, slots=True)
class Tool:
    """A container tool of this machine, and what it has to be told here."""

    name: str
    path: str
    options: tuple[str, ...] = ()
    owner: tuple[int, int] | None = None
    """Whose rights a job without an account has: the daemon's own uid and gid. None: those that
    the tool gives by itself."""


@dataclass(frozen=True, slots=True)
class Wrapped:
    argv: list[str]
    cleanup: list[str]
    inside: tuple[str, ...] = ()
    """The words that put another command beside the program."""


def find() -> Tool | None:
    for name in TOOLS:
        if path := shutil.which(name):
            options = _options() if name == "podman" else ()
            return Tool(name, path, options, owner=_owner())
    return None


def _owner() -> tuple[int, int] | None:
    """In a docker of the user's own (rootless), root is that user, and its number a stranger's."""
    uid = os.getuid()
    is_rootless = uid != 0 and Path(f"/run/user/{uid}/docker.sock").exists()
    return None if is_rootless else (uid, os.getgid())


def _options() -> tuple[str, ...]:
    """Podman asks for higher limits than ours, which takes a right that a container or a small
    virtual machine often lacks."""
    n_files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    n_processes = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    # It lowers its own number of processes to this before it sets the container's.
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
    tool: Tool | None, program: Program, *, env: Mapping[str, str], gpus: list[str]
) -> Wrapped:
    """The words that run the program in its image. Of the environment only names are among them:
    everybody on the machine can read a command line."""
    if tool is None:
        what = f"the job names the image {program.image!r}, and this machine cannot run images"
        raise UserError(what, "install podman, docker or apptainer, or leave the image out")
    if tool.name in ("apptainer", "singularity"):
        around = _apptainer(tool, program, gpus=gpus)
        # It cannot enter what runs: the same image is opened once more, with the same folders.
        return Wrapped([*around, *program.argv], [], tuple(around))
    # With its nonce: another daemon on this machine may have a job of the same id.
    name = f"rota-{env[MARKER].replace('/', '-')}"
    words = [tool.path, "run", "--rm", f"--name={name}", "--network=host", "--pid=host"]
    words += [*tool.options, *_limits(program), *_gpu_options(tool, gpus)]
    words += [f"--env={key}" for key in env]
    words += [f"--volume={_volume(mount)}" for mount in _mounts(program)]
    words += _podman_user(program) if tool.name == "podman" else _docker_user(tool, program)
    words += [*_workdir(program), program.image, *program.argv]
    return Wrapped(words, [tool.path, "rm", "--force", name], _exec(tool, program, name=name))


def _podman_user(program: Program) -> list[str]:
    """The submitter, whomever the image names. Who runs podman without being root is root inside,
    unless the numbers are kept; root itself is root."""
    account = program.account
    if not account.uid:
        return ["--user=0:0"]
    gid = account.uid if account.gid is None else account.gid
    return ["--userns=keep-id", f"--user={account.uid}:{gid}"]


def _docker_user(tool: Tool, program: Program) -> list[str]:
    """The machine's docker runs as root, and so would whatever it is asked to start."""
    account = program.account
    if account.uid is None:
        return [f"--user={tool.owner[0]}:{tool.owner[1]}"] if tool.owner else []
    gid = account.uid if account.gid is None else account.gid
    others = [group for group in account.groups if group != gid]
    return [f"--user={account.uid}:{gid}", *(f"--group-add={group}" for group in others)]


def _exec(tool: Tool, program: Program, *, name: str) -> tuple[str, ...]:
    """The container's environment is there already; a session adds its own."""
    added = (f"--env={SESSION_MARKER}", "--env=TERM")
    return (tool.path, "exec", INTERACTIVE, *added, *_workdir(program), name)


def _workdir(program: Program, flag: str = "--workdir") -> tuple[str, ...]:
    """Where nothing is said, the image knows."""
    return (f"{flag}={program.workdir}",) if program.workdir else ()


def enter(inside: Sequence[str], argv: Sequence[str], *, is_terminal: bool) -> list[str]:
    """The words that run a command inside of a worker's container, if it has one."""
    words: list[str] = []
    for word in inside:
        words.append(word)
        if word == INTERACTIVE and is_terminal:
            words.append("--tty")
    return [*words, *argv]


def _limits(program: Program) -> list[str]:
    """The container has control groups of its own, which take the place of the keeper's."""
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
        hint = "claims and file servers are mounted on a cluster only"
        raise UserError(f"mount {source!r} at {target!r} has a colon in its name", hint)
    return f"{source}:{target}:{mode}"


def _apptainer(tool: Tool, program: Program, *, gpus: list[str]) -> list[str]:
    """It hands its own environment on; limits are those of the keeper's control groups."""
    words = [tool.path, "exec", "--no-home", *_workdir(program, "--pwd")]
    words += ["--nv"] if gpus else []
    words += [f"--bind={_volume(mount)}" for mount in _mounts(program)]
    return [*words, program.image]
