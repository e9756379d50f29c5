"""The interface of a launch environment: what a worker needs at the place where it runs.

`local` implements it for this machine, `cluster` for the nodes of a cluster, which see only shared
folders of this machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from rota.core.model.job import JobId
from rota.daemon.access.authorization import Caller
from rota.engines.interface import Mount, UnixAccount
from rota.store.records import Submission
from rota.wire.jobs import JobRequest

VOLUMES = ("pvc:", "nfs:")


@dataclass(frozen=True, slots=True)
class LaunchContext:
    """Account, folders and variables of the workers of one attempt."""

    account: UnixAccount
    workdir: str | None = None
    """Replaces the working directory of the request."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    mounts: tuple[Mount, ...] = ()
    code: str = ""
    """Folder into which the worker fetches the shipped code."""
    owner: tuple[str, str] = ("", "")
    """Name and uid of the TrainingJob."""


class LaunchEnvironment(Protocol):
    def uid(self, caller: Caller) -> int:
        """The uid that the jobs of a caller run as."""
        ...

    def check(self, request: JobRequest) -> None:
        """Raises if jobs cannot have what the request wants."""
        ...

    def prepare(self, submission: Submission, request: JobRequest) -> LaunchContext:
        """Prepare the start of an attempt. Blocks."""
        ...

    def kept_files(self, submission: Submission, request: JobRequest) -> LaunchContext:
        """Account and working directory of an ended job. Blocks. Raises if the files are gone."""
        ...

    def remove_checkpoints(self, job_id: JobId, user: str) -> None: ...


def same_path_mount(folder: Path) -> Mount:
    """A writable mount with the same path inside and outside."""
    return Mount(str(folder), str(folder), is_writable=True)
