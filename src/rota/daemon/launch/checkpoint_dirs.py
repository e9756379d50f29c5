"""The folder of each job for its checkpoints: it outlives attempts, and is nobody else's.

A daemon of root makes folders in places where users may write, too. So it goes down from the part
of the path that the administrator chose, folder by folder, through no link, and gives away only
what it has just made and what is still empty.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rota.core.model import JobId
from rota.errors import RotaError, UserError

OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
USER, JOB = "{user}", "{job}"


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose folder it is. `uid` None: the daemon's own."""

    user: str
    uid: int | None = None
    gid: int | None = None


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """`base` is the administrator's part of the path, `parts` what comes below."""

    base: Path
    parts: tuple[str, ...]

    def path(self, job_id: JobId, user: str) -> Path:
        return self.base.joinpath(*self._names(job_id, user))

    def make(self, job_id: JobId, owner: Owner) -> Path:
        """The job's folder. Whoever finds it finds it empty, or as an earlier attempt left it."""
        path = self.path(job_id, owner.user)
        try:
            # Others pass through to what is theirs, and see nothing on the way.
            self.base.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
            names = self._names(job_id, owner.user)
            with self._walk(names, lambda folder, name: _enter(folder, name, owner=owner)):
                pass
        except OSError as error:
            what = f"no folder for checkpoints at {path}: {error.strerror or error}"
            raise RotaError(what, "the setting 'checkpoints' says where it is") from None
        return path

    def remove(self, job_id: JobId, user: str) -> None:
        """With all that is in it, and nothing that a link in it leads to."""
        *above, name = self._names(job_id, user)
        with self._walk(above, lambda folder, each: os.open(each, OPEN, dir_fd=folder)) as folder:
            shutil.rmtree(name, dir_fd=folder)

    @contextmanager
    def _walk(self, names: list[str], enter: Callable[[int, str], int]) -> Generator[int]:
        """Down from the base; the last folder is open inside the block."""
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
            raise UserError(f"{user!r} cannot name a folder")
        return [part.replace(USER, user).replace(JOB, job_id) for part in self.parts]


def parse(text: str, *, folder: Path) -> Checkpoints:
    """Where checkpoints go: the setting, else a place in the state folder."""
    path = Path(text) if text else folder / "checkpoints" / JOB
    parts = path.parts
    if not path.is_absolute() or ".." in parts:
        raise UserError(f"'{text}' is no place for checkpoints", "write a path from / on")
    first = next((n for n, part in enumerate(parts) if USER in part or JOB in part), len(parts))
    if not any(JOB in part for part in parts[first:]):
        what = f"'{text}' would be one place for the checkpoints of all jobs"
        raise UserError(what, f"let {JOB} stand for the job, and {USER} for its owner")
    if JOB not in parts[-1]:
        raise UserError(f"'{text}' does not end with the job's own folder", f"put {JOB} last")
    return Checkpoints(Path(*parts[:first]), parts[first:])


def _enter(folder: int, name: str, *, owner: Owner) -> int:
    """A folder in another, made if it is not there."""
    try:
        os.mkdir(name, 0o700, dir_fd=folder)
        is_new = True
    except FileExistsError:
        is_new = False
    found = os.open(name, OPEN, dir_fd=folder)
    try:
        _hand_over(found, is_new=is_new, owner=owner)
    except BaseException:
        os.close(found)
        raise
    return found


def _hand_over(folder: int, *, is_new: bool, owner: Owner) -> None:
    """Made before its owner got it by a daemon that died there, it is still empty and ours."""
    us = os.geteuid()
    uid = us if owner.uid is None else owner.uid
    found = os.stat(folder)
    if found.st_uid == us != uid and (is_new or not os.listdir(folder)):
        os.fchown(folder, uid, -1 if owner.gid is None else owner.gid)
    elif found.st_uid != uid:
        raise PermissionError(0, f"a folder on the way is not {owner.user}'s")
