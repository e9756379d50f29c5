"""Reads what the checks of `rota doctor` need. It changes nothing except for a test file in the
state folder, which it deletes again."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import tempfile
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from rota import __version__
from rota.client import Client
from rota.client.endpoint import Endpoint, NoDaemonError, find
from rota.config.load import Sources, daemon_settings, error_names_origin
from rota.config.paths import SOCKET_NAME, STORE_NAME, state_dir
from rota.config.start_flags import remembered_flags
from rota.engines.local import cgroup_discovery
from rota.engines.local.containers import TOOLS
from rota.engines.local.gpus import NvmlGpus, parse_virtual
from rota.errors import RotaError, UserError, os_error_message, printable
from rota.server.doctor_checks import (
    ContainerProbe,
    DaemonProbe,
    DoctorReading,
    GpuProbe,
    SettingsProbe,
    StateDirProbe,
    TimeProbe,
)
from rota.server.settings import KUBERNETES, parse_listen
from rota.wire.daemon import Status

TOOL_TIMEOUT_S = 10.0
NVIDIA_VENDOR = "0x10de"
DISPLAY_CLASS = "0x03"
MPS_PID_NAME = "nvidia-cuda-mps-control.pid"
CDI_DIRS = ("/etc/cdi", "/var/run/cdi")


def read_all() -> DoctorReading:
    wall_s, monotonic_s = time.time(), time.monotonic()
    endpoint = find()
    daemon = read_daemon(endpoint)
    folder = Path(endpoint.socket).parent if endpoint.socket else state_dir()
    status = None if daemon.is_remote else daemon.status
    settings = read_settings(folder, status)
    return DoctorReading(
        uid=os.geteuid(),
        settings=settings,
        daemon=daemon,
        gpus=read_gpus(),
        cgroups=read_cgroups(status),
        containers=read_containers(),
        folder=read_folder(folder),
        clock=read_clock(folder, daemon.status, start=(wall_s, monotonic_s)),
    )


def read_daemon(endpoint: Endpoint) -> DaemonProbe:
    where, is_remote = str(endpoint), not endpoint.socket
    try:
        with Client(endpoint) as rota:
            status = rota.status()
    except RotaError as error:
        return DaemonProbe(
            *(__version__, where, is_remote),
            is_absent=isinstance(error, NoDaemonError),
            error=error.message,
            hint=error.hint,
        )
    return DaemonProbe(__version__, where, is_remote, status)


def read_settings(folder: Path, status: Status | None) -> SettingsProbe:
    """The settings of the daemon with this state folder. A daemon that runs knows its flags."""
    if not _is_readable(folder):
        virtual = status.flags.get("virtual_gpus", "") if status else ""
        is_kubernetes = status is not None and status.engine == KUBERNETES
        return SettingsProbe(virtual_gpus=virtual, is_kubernetes=is_kubernetes, is_readable=False)
    try:
        flags = status.flags if status else remembered_flags(folder)
        found = daemon_settings(Sources(folder, remembered=flags))
        chosen = found.daemon()
        with error_names_origin(found.get("listen")):
            address = parse_listen(chosen.listen) if chosen.listen else None
        with error_names_origin(found.get("virtual_gpus")):
            if chosen.virtual_gpus:
                parse_virtual(chosen.virtual_gpus)
    except UserError as error:
        return SettingsProbe(error=error.message, hint=error.hint)
    return SettingsProbe(
        listen=chosen.listen,
        listen_error=listen_error(*address) if address and status is None else "",
        virtual_gpus=chosen.virtual_gpus,
        is_kubernetes=chosen.engine == KUBERNETES,
    )


def _is_readable(folder: Path) -> bool:
    """False for the folder of another user. A folder that does not exist has no settings."""
    try:
        folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return os.access(folder, os.R_OK | os.X_OK)


def listen_error(host: str, port: int) -> str:
    """Why no program can listen on the address now; empty if one can."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
        with socket.socket(family, kind, protocol) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address)
            trial.listen(1)
    except OSError as error:
        return os_error_message(error)
    return ""


def read_gpus() -> GpuProbe:
    has_hardware = _has_nvidia_hardware()
    try:
        nvml: Any = import_module("pynvml")
    except ImportError:
        return GpuProbe(has_hardware, "the Python package nvidia-ml-py is not installed")
    try:
        nvml.nvmlInit()
        nvml.nvmlShutdown()
    except nvml.NVMLError as error:
        return GpuProbe(has_hardware, str(error).lower())
    gpus = NvmlGpus(nvml)
    pipe_dir = gpus.mps_pipe_dir()
    is_mps_dead = bool(pipe_dir) and _is_dead(Path(pipe_dir) / MPS_PID_NAME)
    return GpuProbe(has_hardware, "", gpus.read(), pipe_dir, is_mps_dead)


def _has_nvidia_hardware() -> bool:
    if Path("/proc/driver/nvidia/version").exists() or Path("/dev/nvidiactl").exists():
        return True
    for device in Path("/sys/bus/pci/devices").glob("*"):
        with suppress(OSError):
            vendor = (device / "vendor").read_text().strip()
            if vendor == NVIDIA_VENDOR and (device / "class").read_text().startswith(DISPLAY_CLASS):
                return True
    return False


def _is_dead(pid_file: Path) -> bool:
    """Whether the file names a process that does not exist. Without a file nothing is known."""
    try:
        return not Path("/proc", str(int(pid_file.read_text()))).exists()
    except (OSError, ValueError):
        return False


def read_cgroups(status: Status | None) -> frozenset[str]:
    """The control groups of the daemon of this machine; without a daemon, those of this process."""
    for proc in ([Path("/proc", str(status.pid))] if status else []) + [Path("/proc/self")]:
        with suppress(OSError, ValueError):
            return cgroup_discovery.usable(proc)
    return frozenset()


def read_containers() -> ContainerProbe:
    for name in TOOLS:
        if path := shutil.which(name):
            has_cdi = any(
                "nvidia" in each.name for folder in CDI_DIRS for each in Path(folder).glob("*")
            )
            version, error = _version(name, path)
            return ContainerProbe(name, version, error, has_cdi, bool(shutil.which("newuidmap")))
    return ContainerProbe()


def _version(name: str, path: str) -> tuple[str, str]:
    """The version of a container tool, and why the tool does not work. Docker asks its service."""
    words = [path, "version", "--format", "{{.Server.Version}}"] if name == "docker" else []
    done = _run(words or [path, "--version"])
    if done is None:
        return "", f"no answer within {TOOL_TIMEOUT_S:g} s"
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return "", printable(last)
    return printable(done.stdout.strip()), ""


def _run(words: list[str]) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TOOL_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


def read_folder(folder: Path) -> StateDirProbe:
    exists = _is_visible(folder)
    near = next(each for each in (folder, *folder.absolute().parents) if _is_visible(each))
    found, disk = near.stat(), os.statvfs(near)
    own_socket = folder / SOCKET_NAME
    can_write = os.access(near, os.W_OK | os.X_OK)
    has_socket = exists and os.access(folder, os.X_OK) and own_socket.exists()
    return StateDirProbe(
        path=str(folder),
        exists=exists,
        owner=found.st_uid,
        mode=stat.S_IMODE(found.st_mode),
        can_write=can_write,
        free_bytes=disk.f_bavail * disk.f_frsize,
        free_inodes=disk.f_favail if disk.f_files else None,
        write_error=write_error(folder) if exists and can_write else "",
        socket=str(own_socket) if has_socket else "",
        can_use_socket=not has_socket or os.access(own_socket, os.R_OK | os.W_OK),
    )


def _is_visible(folder: Path) -> bool:
    try:
        return folder.is_dir()
    except OSError:
        return False


def write_error(folder: Path) -> str:
    """Why a file in the folder cannot be written and kept; empty if it can."""
    try:
        with tempfile.TemporaryFile(dir=folder, prefix=".doctor-") as file:
            file.write(b"rota")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return os_error_message(error)
    return ""


def read_clock(folder: Path, status: Status | None, *, start: tuple[float, float]) -> TimeProbe:
    """`start` is the wall clock and the monotonic clock at the start of the probe."""
    is_synchronized = _is_synchronized()
    now_s, monotonic_s = time.time(), time.monotonic()
    written_s = [status.started_s] if status else []
    with suppress(OSError):
        written_s.append((folder / STORE_NAME).stat().st_mtime)
    step_s = (now_s - start[0]) - (monotonic_s - start[1])
    return TimeProbe(now_s, step_s, max(written_s, default=0.0), is_synchronized)


def _is_synchronized() -> bool | None:
    path = shutil.which("timedatectl")
    done = _run([path, "show", "--property=NTPSynchronized", "--value"]) if path else None
    return {"yes": True, "no": False}.get(done.stdout.strip()) if done else None
