"""The checks of `rota doctor`: what is wrong on this machine, and what to do about it.

Each check is a pure function of what `doctor_probe` read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from rota.engines.interface import GpuReading
from rota.wire.daemon import Status

MIB = 2**20
GIB = 2**30
MIN_FREE_BYTES = 100 * MIB
LOW_FREE_BYTES = 5 * GIB
MAX_CLOCK_ERROR_S = 60.0
MAX_CLOCK_STEP_S = 1.0
LIMITS = ("cpu", "memory", "pids")
OTHERS_MAY_WRITE = 0o022


class CheckState(StrEnum):
    OK = "ok"
    WARNING = "warning"
    """rota works, but not all of it."""
    FAILED = "failed"
    SKIPPED = "skipped"
    """Not needed here, or not visible to this user."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    check: str
    state: CheckState
    message: str
    hint: str = ""
    """What to do; empty if there is nothing to do."""


@dataclass(frozen=True, slots=True)
class GpuProbe:
    has_hardware: bool = False
    """The machine has an NVIDIA GPU, with or without a driver."""
    nvml_error: str = ""
    gpus: tuple[GpuReading, ...] = ()
    mps_pipe_dir: str = ""
    is_mps_dead: bool = False
    """The pipe directory is there, but its MPS control daemon is not."""


@dataclass(frozen=True, slots=True)
class ContainerProbe:
    tool: str = ""
    """The tool that rota would use; empty if there is none."""
    version: str = ""
    error: str = ""
    has_cdi: bool = False
    """The machine describes its NVIDIA GPUs to container tools (CDI)."""
    has_newuidmap: bool = True
    """podman can start containers of users other than root."""


@dataclass(frozen=True, slots=True)
class StateDirProbe:
    """The state folder. If it does not exist yet, the disk is that of its nearest parent."""

    path: str
    exists: bool = True
    owner: int = 0
    mode: int = 0o700
    can_write: bool = True
    free_bytes: int = 0
    free_inodes: int | None = None
    """None if the file system does not count them."""
    write_error: str = ""
    """Why a test file could not be written."""
    socket: str = ""
    """Path of the daemon's socket; empty if there is none."""
    can_use_socket: bool = True


@dataclass(frozen=True, slots=True)
class TimeProbe:
    now_s: float
    step_s: float = 0.0
    """How much more the wall clock advanced during the probe than the monotonic clock."""
    newest_s: float = 0.0
    """The newest time stamp that the daemon has written."""
    is_synchronized: bool | None = None
    """None if `timedatectl` does not say."""


@dataclass(frozen=True, slots=True)
class DaemonProbe:
    version: str
    """The version of this command."""
    endpoint: str
    is_remote: bool = False
    status: Status | None = None
    is_absent: bool = False
    """No daemon listens at the endpoint."""
    error: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class SettingsProbe:
    error: str = ""
    hint: str = ""
    listen: str = ""
    listen_error: str = ""
    """Why the address of `listen` cannot be used; always empty while a daemon runs."""
    virtual_gpus: str = ""
    is_kubernetes: bool = False
    is_readable: bool = True
    """False for the settings of another user's daemon."""


@dataclass(frozen=True, slots=True)
class DoctorReading:
    """All that the probe read. `uid` is the user who runs the command."""

    uid: int
    settings: SettingsProbe
    daemon: DaemonProbe
    gpus: GpuProbe
    cgroups: frozenset[str]
    """Usable limits of control groups, and `kill` or `freezer`."""
    containers: ContainerProbe
    folder: StateDirProbe
    clock: TimeProbe


def run_checks(found: DoctorReading) -> list[CheckResult]:
    return [CheckResult(name, *check(found)) for name, check in CHECKS.items()]


def has_failed(results: list[CheckResult]) -> bool:
    return any(each.state is CheckState.FAILED for each in results)


def result_lines(results: list[CheckResult]) -> Iterator[str]:
    """One line for each check, and below it what to do."""
    for each in results:
        yield f"{each.state:<8} {each.check:<12} {each.message}"
        if each.hint:
            yield f"{'':<21} -> {each.hint}"


_Finding = tuple[CheckState, str, str]
"""State, message and hint of a `CheckResult`."""


def _ok(message: str) -> _Finding:
    return CheckState.OK, message, ""


def _warning(message: str, hint: str) -> _Finding:
    return CheckState.WARNING, message, hint


def _failed(message: str, hint: str) -> _Finding:
    return CheckState.FAILED, message, hint


def _skipped(message: str, hint: str = "") -> _Finding:
    return CheckState.SKIPPED, message, hint


def _elsewhere(found: DoctorReading) -> str:
    """Why jobs do not run on this machine; empty if they do."""
    if found.daemon.is_remote:
        return "the daemon runs on another machine"
    return "jobs run in Kubernetes" if found.settings.is_kubernetes else ""


def _check_settings(found: DoctorReading) -> _Finding:
    read = found.settings
    if not read.is_readable:
        return _skipped("settings of another user's daemon", "run as its user or root")
    if read.error:
        return _failed(read.error, read.hint or "correct the setting")
    return _ok("all settings are valid")


def _check_gpus(found: DoctorReading) -> _Finding:
    if reason := _elsewhere(found):
        return _skipped(reason)
    if virtual := found.settings.virtual_gpus:
        return _ok(f"virtual GPUs: {virtual}")
    broken = [each for each in found.gpus.gpus if each.problem]
    if broken:
        problems = "; ".join(f"GPU {each.index}: {each.problem}" for each in broken)
        return _failed(problems, "reset the GPU with 'nvidia-smi --gpu-reset', or reboot")
    if not found.gpus.gpus:
        if found.daemon.status is not None and found.daemon.status.gpus:
            return _ok(f"{found.daemon.status.gpus} GPUs of the daemon")
        return _warning(
            "no usable GPU: jobs that request GPUs cannot run",
            "install an NVIDIA driver, or try rota with 'rota up --virtual-gpus 4x16GiB'",
        )
    names = ", ".join(sorted({each.name for each in found.gpus.gpus}))
    return _ok(f"{len(found.gpus.gpus)} usable: {names}")


def _check_nvml(found: DoctorReading) -> _Finding:
    if reason := _elsewhere(found):
        return _skipped(reason)
    if found.settings.virtual_gpus:
        return _skipped("virtual GPUs need no driver")
    if not found.gpus.nvml_error:
        return _ok("the NVIDIA driver responds")
    if not found.gpus.has_hardware:
        return _skipped(f"no NVIDIA GPU on this machine ({found.gpus.nvml_error})")
    return _failed(
        f"this machine has an NVIDIA GPU, but its driver does not respond: {found.gpus.nvml_error}",
        "run 'nvidia-smi'; install the driver, or reboot after an update of the driver",
    )


def _check_mps(found: DoctorReading) -> _Finding:
    if reason := _elsewhere(found):
        return _skipped(reason)
    if not found.gpus.gpus or found.settings.virtual_gpus:
        return _skipped("no real GPU to share")
    start = "start MPS with 'nvidia-cuda-mps-control -d', then restart the daemon"
    if found.gpus.is_mps_dead:
        what = f"{found.gpus.mps_pipe_dir} exists, but its MPS control daemon does not run"
        return _failed(what, f"remove the folder, or {start}")
    if found.gpus.mps_pipe_dir:
        return _ok(f"MPS runs ({found.gpus.mps_pipe_dir})")
    return _skipped("MPS does not run: shares of a GPU have no memory limit", start)


def _check_cgroups(found: DoctorReading) -> _Finding:
    if reason := _elsewhere(found):
        return _skipped(reason)
    status = found.daemon.status
    if status is not None and not found.settings.is_readable:
        return _skipped("groups of another user's daemon", "run as its user or root")
    missing = [each for each in LIMITS if each not in found.cgroups]
    hint = "run the daemon as a systemd service with Delegate=yes, or as root"
    if not found.cgroups:
        return _warning("no writable control group: jobs have no limits", hint)
    if missing:
        return _warning(f"no limits of {', '.join(missing)} for jobs", hint)
    return _ok(f"limits of {', '.join(LIMITS)}")


def _check_containers(found: DoctorReading) -> _Finding:
    if reason := _elsewhere(found):
        return _skipped(reason)
    read = found.containers
    if not read.tool:
        return _warning(
            "no container tool: jobs with an image cannot run",
            "install podman, docker or apptainer, or use jobs without an image",
        )
    if read.error:
        hint = "check that its service runs and that your user may use it"
        return _warning(f"{read.tool} does not work: {read.error}", hint)
    if read.tool == "podman" and found.gpus.gpus and not read.has_cdi:
        hint = "run 'nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml'"
        return _warning("containers of podman cannot use the GPUs", hint)
    if read.tool == "podman" and not read.has_newuidmap:
        hint = "install newuidmap (package uidmap), and give users ids in /etc/subuid"
        return _warning("podman can start containers of root only: no newuidmap", hint)
    return _ok(f"{read.tool} ({read.version})")


def _check_disk(found: DoctorReading) -> _Finding:
    if found.daemon.is_remote:
        return _skipped(_elsewhere(found))
    read = found.folder
    free = f"{read.free_bytes / GIB:.1f} GiB free in {read.path}"
    hint = "delete files, or move the state folder with ROTA_HOME; see keep_logs and keep_jobs"
    if read.free_bytes < MIN_FREE_BYTES:
        return _failed(f"the disk is full: {free}", hint)
    if read.free_inodes is not None and read.free_inodes < 1:
        return _failed(f"no more files can be created in {read.path}", hint)
    if read.write_error:
        what = f"cannot write to {read.path}: {read.write_error}"
        return _failed(what, "check that the disk is mounted for writing and has no errors")
    if read.free_bytes < LOW_FREE_BYTES:
        return _warning(f"the disk is almost full: {free}", hint)
    return _ok(free)


def _check_permissions(found: DoctorReading) -> _Finding:
    if found.daemon.is_remote:
        return _skipped(_elsewhere(found))
    read, is_own = found.folder, found.folder.owner == found.uid
    if read.socket and not read.can_use_socket:
        what = f"you may not use the socket {read.socket}"
        return _failed(what, "ask its owner, or use a token over TCP")
    if read.exists and read.mode & OTHERS_MAY_WRITE:
        what = f"other users may write to {read.path} (mode {read.mode:o})"
        return _failed(what, f"run 'chmod go-w {read.path}'")
    if not read.can_write and (is_own or not read.exists):
        hint = "correct its permissions, or choose another folder with ROTA_HOME"
        return _failed(f"you may not write to {read.path}", hint)
    if read.exists and not is_own:
        if not read.socket:
            hint = "run as its owner, or choose another folder with ROTA_HOME"
            return _warning(f"{read.path} belongs to user {read.owner}", hint)
        return _ok(f"you may use the daemon of user {read.owner}")
    if found.uid == 0:
        return _ok("root: each job runs as its submitter")
    return _ok("not root: all jobs run as you")


def _check_ports(found: DoctorReading) -> _Finding:
    status, read = found.daemon.status, found.settings
    hint = "end the other program, or choose another address with 'rota up --listen HOST:PORT'"
    if status is not None:
        if status.address_problem:
            return _failed(status.address_problem, hint)
        where = status.address.partition("#")[0]
        return _ok(f"the daemon listens on {where or 'its Unix socket only'}")
    if found.daemon.is_remote:
        return _skipped(_elsewhere(found))
    if not read.listen:
        return _skipped("the setting listen is empty: Unix socket only")
    if read.listen_error:
        return _failed(f"cannot listen on {read.listen}: {read.listen_error}", hint)
    return _ok(f"{read.listen} is free")


def _check_clock(found: DoctorReading) -> _Finding:
    read = found.clock
    if abs(read.step_s) > MAX_CLOCK_STEP_S:
        what = f"the clock was set by {read.step_s:+.1f} s during this check"
        return _warning(what, "let one time service set the clock, such as chrony")
    ahead_s = read.newest_s - read.now_s
    if ahead_s > MAX_CLOCK_ERROR_S:
        what = f"the clock is {ahead_s:.0f} s behind times that the daemon wrote"
        return _failed(what, "set the clock: times and time limits of jobs are wrong")
    if read.is_synchronized is False:
        hint = "run 'timedatectl set-ntp true' as root"
        return _warning("the clock is not synchronized", hint)
    return _ok("synchronized" if read.is_synchronized else "no contradiction found")


def _check_daemon(found: DoctorReading) -> _Finding:
    read, status = found.daemon, found.daemon.status
    if status is None:
        is_expected = read.is_absent and not read.is_remote
        result = _warning if is_expected else _failed
        return result(read.error, read.hint or "see the log of the daemon")
    if problem := status.trouble or status.scheduling:
        hint = "see the log of the daemon, and 'disk' and 'permissions' above"
        return _failed(problem, hint)
    if status.version != read.version:
        what = f"the daemon has version {status.version}, this command {read.version}"
        return _warning(what, "restart the daemon with 'rota down' and 'rota up'")
    if status.warnings:
        return _warning("; ".join(status.warnings), "see 'rota nodes' and 'rota status'")
    return _ok(f"rota {status.version} at {read.endpoint} (process {status.pid})")


CHECKS: Mapping[str, Callable[[DoctorReading], _Finding]] = {
    "settings": _check_settings,
    "gpus": _check_gpus,
    "nvml": _check_nvml,
    "mps": _check_mps,
    "cgroups": _check_cgroups,
    "containers": _check_containers,
    "disk": _check_disk,
    "permissions": _check_permissions,
    "ports": _check_ports,
    "clock": _check_clock,
    "daemon": _check_daemon,
}
"""In the order in which they are shown."""
