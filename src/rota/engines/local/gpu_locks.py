"""One GPU belongs to one daemon: a lock for each GPU, and the selection of a daemon's GPUs.

A lock is an abstract Unix socket. The kernel releases it when the process ends, users cannot touch
the lock of another user, and the kernel names the process and the user that hold it. Virtual GPUs
have no locks: every daemon has its own.
"""

from __future__ import annotations

import pwd
import re
import socket
import struct
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from rota.engines.interface import GpuReading
from rota.engines.local.gpus import Gpus
from rota.errors import UnavailableError, UserError, shown

REAL = ("GPU-", "MIG-")
"""How the UUIDs of real GPUs begin."""
LOCK_NAME = "\0rota/gpu/"
NUMBERS = re.compile(r"(?P<first>\d{1,4})(-(?P<last>\d{1,4}))?")
QUEUE = 4096
"""How many questions for the holder of a lock are answered."""
CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True, slots=True)
class SelectedGpus:
    """Those of the machine's GPUs that the setting `gpus_from` names."""

    gpus: Gpus
    numbers: frozenset[int]
    uuids: tuple[str, ...]

    def read(self) -> tuple[GpuReading, ...]:
        return tuple(
            each
            for each in self.gpus.read()
            if each.index in self.numbers or (self.uuids and each.uuid.startswith(self.uuids))
        )

    def visible_names(self) -> dict[int, str]:
        return self.gpus.visible_names()

    def mps_pipe_dir(self) -> str:
        return self.gpus.mps_pipe_dir()


def selected(gpus: Gpus, words: Sequence[str]) -> Gpus:
    """The GPUs that the words name: numbers, ranges or UUIDs. Without words, all."""
    numbers: set[int] = set()
    uuids: list[str] = []
    for word in words:
        match = NUMBERS.fullmatch(word)
        if match is not None:
            numbers |= set(range(int(match["first"]), int(match["last"] or match["first"]) + 1))
        elif word.startswith(REAL):
            uuids.append(word)
        else:
            raise UserError(
                f"'{shown(word)}' names no GPU", "write numbers such as 0,2-3, or UUIDs (GPU-...)"
            )
    return SelectedGpus(gpus, frozenset(numbers), tuple(uuids)) if words else gpus


class LockedGpus:
    """GPUs of which this process holds the locks. A GPU that appears later and that another daemon
    has locked is shown with a problem and gets no workers."""

    def __init__(self, gpus: Gpus) -> None:
        self._gpus = gpus
        self._locks: dict[str, socket.socket] = {}
        self._holders: dict[str, str] = {}
        """The other holders, as far as known: each question fills a place in the holder's queue."""

    def claim(self) -> None:
        """Lock all GPUs, or none and raise if another process has locked one."""
        for each in self._gpus.read():
            holder = self._lock(each.uuid)
            if holder:
                self.release()
                raise UnavailableError(
                    f"another daemon ({holder}) manages GPU {each.index} ({each.uuid})",
                    "submit to that daemon, or divide the GPUs: start each daemon with --gpus-from",
                )

    def release(self) -> None:
        for each in self._locks.values():
            each.close()
        self._locks = {}

    def read(self) -> tuple[GpuReading, ...]:
        return tuple(map(self._checked, self._gpus.read()))

    def visible_names(self) -> dict[int, str]:
        return self._gpus.visible_names()

    def mps_pipe_dir(self) -> str:
        return self._gpus.mps_pipe_dir()

    def _checked(self, reading: GpuReading) -> GpuReading:
        holder = "" if reading.is_missing else self._lock(reading.uuid)
        if not holder:
            return reading
        return replace(reading, problem=f"managed by another daemon ({holder})")

    def _lock(self, uuid: str) -> str:
        """Lock a GPU. Returns the process and user that hold the lock instead; empty if locked."""
        if not uuid.startswith(REAL) or uuid in self._locks:
            return ""
        lock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            lock.bind(LOCK_NAME + uuid)
            lock.listen(QUEUE)
        except OSError:
            lock.close()
            if uuid not in self._holders:
                self._holders[uuid] = _holder(uuid)
            return self._holders[uuid]
        self._holders.pop(uuid, None)
        self._locks[uuid] = lock
        return ""


def lock_holders(uuids: Iterable[str]) -> dict[str, str]:
    """The process and user that hold the lock of each GPU; GPUs without a lock are left out."""
    return {uuid: holder for uuid in uuids if (holder := _holder(uuid, default=""))}


def _holder(uuid: str, *, default: str = "process unknown") -> str:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe, suppress(OSError):
        # Do not wait: the holder never accepts connections, and its queue may be full.
        probe.setblocking(False)
        probe.connect(LOCK_NAME + uuid)
        found = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
        pid, uid, _ = CREDENTIALS.unpack(found)
        return f"process {pid} of user {_user(uid)}"
    return default


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
