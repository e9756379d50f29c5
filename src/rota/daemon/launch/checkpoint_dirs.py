"""Makes the checkpoint folder of each job. It outlives attempts and is private to its owner.

A daemon that runs as root makes folders in places where users can write. So the daemon walks down
from the administrator's part of the path, folder by folder, follows no link, and changes the owner
only of folders that it has just made or that are still empty.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rota.core.model.job import JobId
from rota.delete_tree import delete_tree_at
from rota.errors import RotaError, UnavailableError, UserError

OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
USER, JOB = "{user}", "{job}"
TEMPORARY_ERRORS = frozenset(
    (
        *(errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN),
        *(errno.EIO, errno.EROFS, errno.ESTALE, errno.ETIMEDOUT, errno.EINTR),
    )
)
"""Errors of the machine, which may pass: a full disk, a used-up quota or limit, a disk or a network
disk that does not answer. Other errors stay until somebody changes the path."""


@dataclass(frozen=True, slots=True)
class CheckpointDirOwner:
    """The owner of a folder. `uid` None: the daemon's own user."""

    user: str
    uid: int | None = None
    gid: int | None = None


@dataclass(frozen=True, slots=True)
class CheckpointDirs:
    """`base` is the administrator's part of the path; `parts` are the names below."""

    base: Path
    parts: tuple[str, ...]

    def path(self, job_id: JobId, user: str) -> Path:
        return self.base.joinpath(*self._names(job_id, user))

    def make(self, job_id: JobId, owner: CheckpointDirOwner) -> Path:
        """Make the job's folder: empty, or as an earlier attempt left it."""
        path = self.path(job_id, owner.user)
        try:
            # Users can pass through to their folders, but cannot list this one.
            self.base.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
            names = self._names(job_id, owner.user)
            with self._walk(names, lambda folder, name: _enter(folder, name, owner=owner)):
                pass
        except OSError as error:
            what = f"cannot make the checkpoint folder {path}: {error.strerror or error}"
            kind = UnavailableError if error.errno in TEMPORARY_ERRORS else RotaError
            raise kind(what, "the setting 'checkpoints' sets the path") from None
        return path

    def remove(self, job_id: JobId, user: str) -> None:
        """Delete the folder and its contents, as far as possible. Links are not followed."""
        *above, name = self._names(job_id, user)
        with self._walk(above, lambda folder, each: os.open(each, OPEN, dir_fd=folder)) as folder:
            delete_tree_at(folder, name, path=str(self.path(job_id, user)))

    @contextmanager
    def _walk(self, names: list[str], enter: Callable[[int, str], int]) -> Generator[int]:
        """Walk down from the base; the last folder is open inside the block."""
        folder = os.open(self.base, OPEN & ~os.O_NOFOLLOW)
        try:
            for name in names:
                below = enter(folder, name)
                os.close(folder)
                folder = below
            yield folder
        finally:
            os.close(folder)

    def _names(self, job_id: JobId, user: str) -> list[str]:
        if "/" in user or user in ("", ".", ".."):
            raise UserError(f"user name {user!r} cannot be the name of a folder")
        return [part.replace(USER, user).replace(JOB, job_id) for part in self.parts]


def parse_checkpoint_dirs(text: str, *, folder: Path) -> CheckpointDirs:
    """Parse the setting `checkpoints`. Empty: a folder in the state folder."""
    path = Path(text) if text else folder / "checkpoints" / JOB
    parts = path.parts
    if not path.is_absolute() or ".." in parts:
        raise UserError(
            f"'{text}' is not a valid checkpoint folder", "write an absolute path without .."
        )
    first = next((n for n, part in enumerate(parts) if USER in part or JOB in part), len(parts))
    if not any(JOB in part for part in parts[first:]):
        what = f"'{text}' is the same folder for all jobs"
        raise UserError(what, f"add {JOB} for the job id, and {USER} for its owner")
    if JOB not in parts[-1]:
        raise UserError(
            f"'{text}' does not end with the folder of the job", f"put {JOB} into the last part"
        )
    return CheckpointDirs(Path(*parts[:first]), parts[first:])


def _enter(folder: int, name: str, *, owner: CheckpointDirOwner) -> int:
    """Open a folder in another folder; make it if necessary."""
    try:
        os.mkdir(name, 0o700, dir_fd=folder)
        is_new = True
    except FileExistsError:
        is_new = False
    found = os.open(name, OPEN, dir_fd=folder)
    try:
        _give_to_owner(found, is_new=is_new, owner=owner)
    except BaseException:
        os.close(found)
        raise
    return found


def _give_to_owner(folder: int, *, is_new: bool, owner: CheckpointDirOwner) -> None:
    """A folder of an interrupted daemon may still belong to the daemon; then it is empty."""
    us = os.geteuid()
    uid = us if owner.uid is None else owner.uid
    found = os.stat(folder)
    if found.st_uid == us != uid and (is_new or not os.listdir(folder)):
        os.fchown(folder, uid, -1 if owner.gid is None else owner.gid)
    elif os.stat(folder).st_uid != uid:
        # Another start of the same user may have changed the owner in the meantime.
        raise PermissionError(0, f"a folder on the path does not belong to {owner.user}")
