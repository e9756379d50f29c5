"""Deletes folders whose content a user controls: any depth, any names, any owner.

The deletion uses no recursion and at most three open folders. A folder that is not empty moves up
to the top of the tree before its content is deleted, so that depth costs nothing. Every name is
used relative to an open folder and never through a symbolic link, and `rmdir` refuses a mount point
before the deletion enters it. A call deletes a limited number of entries; the next call continues.

What cannot be deleted (immutable files, mounts, files of other users) is returned, never raised.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from rota.remains import REMAINS

MAX_ENTRIES = 5_000_000
"""Entries that one call deletes at most: minutes on a local disk."""
LISTED_ENTRIES = 1000
"""Names of one folder that are in memory at once."""
MAX_REMAINS = 20
"""Remains that are recorded by path; further ones are counted."""
MOVED = ".rota-delete-"
"""Begin of the name of a folder that was moved up."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NOT_A_FILE = {errno.EISDIR, errno.EPERM}
"""Errors of `unlink` with a folder: Linux, POSIX."""
_NOT_EMPTY = {errno.ENOTEMPTY, errno.EEXIST}


@dataclass(slots=True)
class TreeDeletion:
    """The result of one call."""

    n_deleted: int = 0
    remains: dict[str, str] = field(default_factory=dict[str, str])
    """Path -> why it could not be deleted."""
    n_remains: int = 0
    is_cut_short: bool = False
    """The call reached its limit: another call may delete more."""

    @property
    def is_complete(self) -> bool:
        return not (self.n_remains or self.is_cut_short)

    def keep(self, path: str, error: OSError) -> None:
        self.n_remains += 1
        if len(self.remains) < MAX_REMAINS:
            self.remains[path] = (error.strerror or str(error)).lower()


def delete_tree(path: Path, *, limit: int = MAX_ENTRIES) -> TreeDeletion:
    """Delete a folder with its content, or a file. A missing path is no error."""
    done = TreeDeletion()
    try:
        parent = os.open(path.parent, _FOLDER & ~os.O_NOFOLLOW)
    except FileNotFoundError:
        return done
    except OSError as error:
        done.keep(str(path), error)
        return _recorded(done)
    try:
        return delete_tree_at(parent, path.name, path=str(path), limit=limit)
    finally:
        os.close(parent)


def delete_tree_at(parent: int, name: str, *, path: str, limit: int = MAX_ENTRIES) -> TreeDeletion:
    """Delete an entry of an open folder. `path` names the entry in the result."""
    done = TreeDeletion()
    try:
        if not _delete_entry(parent, name):
            with _opened(parent, name) as top:
                _Deletion(top, path, done=done, limit=limit).run()
            if done.is_complete:
                os.rmdir(name, dir_fd=parent)
        done.n_deleted += 1
    except FileNotFoundError:
        pass
    except OSError as error:
        done.keep(path, error)
    return _recorded(done)


def delete_contents(folder: Path, *, limit: int = MAX_ENTRIES) -> TreeDeletion:
    """Delete everything in a folder, not the folder. A missing folder is no error."""
    done = TreeDeletion()
    try:
        top = os.open(folder, _FOLDER)
    except FileNotFoundError:
        return done
    except OSError as error:
        done.keep(str(folder), error)
        return _recorded(done)
    try:
        _Deletion(top, str(folder), done=done, limit=limit).run()
    except OSError as error:
        done.keep(str(folder), error)
    finally:
        os.close(top)
    return _recorded(done)


class _Deletion:
    """Deletes the content of the open folder `top`."""

    def __init__(self, top: int, path: str, *, done: TreeDeletion, limit: int) -> None:
        self._top, self._path, self._done = top, path, done
        self._n_left = limit
        self._stuck: set[str] = set()
        """Entries of the top that cannot be deleted."""
        self._numbers = itertools.count()

    def run(self) -> None:
        """Each pass deletes the entries that the pass before has moved up. Every pass deletes,
        moves or gives up at least one entry, so the limit ends the loop."""
        while names := _listed(self._top, without=self._stuck):
            for name in names:
                if self._n_left <= 0:
                    self._done.is_cut_short = True
                    return
                self._empty(name)

    def _empty(self, name: str) -> None:
        """Delete an entry of the top, after its folders have moved up."""
        self._n_left -= 1
        path = f"{self._path}/{name}"
        try:
            if not _delete_entry(self._top, name):
                with _opened(self._top, name) as folder:
                    if not self._clear(folder, path):
                        self._stuck.add(name)
                        return
                    if self._n_left <= 0:
                        return
                os.rmdir(name, dir_fd=self._top)
            self._done.n_deleted += 1
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno in _NOT_EMPTY:
                return  # A program still writes here: the next pass looks again.
            self._stuck.add(name)
            self._done.keep(path, error)

    def _clear(self, folder: int, path: str) -> bool:
        """Delete the files of a folder and move its folders up. False if an entry remains."""
        stuck: set[str] = set()
        while names := _listed(folder, without=stuck):
            for name in names:
                if self._n_left <= 0:
                    return True
                self._n_left -= 1
                try:
                    if _delete_entry(folder, name):
                        self._done.n_deleted += 1
                    else:
                        self._move_up(folder, name)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    stuck.add(name)
                    self._done.keep(f"{path}/{name}", error)
        return not stuck

    def _move_up(self, folder: int, name: str) -> None:
        """Move a folder to the top under a name that is free there."""
        moved = f"{MOVED}{next(self._numbers)}"
        while _exists(self._top, moved):
            moved = f"{MOVED}{next(self._numbers)}"
        try:
            os.rename(name, moved, src_dir_fd=folder, dst_dir_fd=self._top)
        except PermissionError:
            # A user needs write permission on a folder to move it.
            with _opened(folder, name):
                os.rename(name, moved, src_dir_fd=folder, dst_dir_fd=self._top)


def _delete_entry(folder: int, name: str) -> bool:
    """Delete a file, link or empty folder. False: a folder with content. A mount point raises
    `OSError` (busy), also if it has content."""
    try:
        os.unlink(name, dir_fd=folder)
    except OSError as error:
        if error.errno not in _NOT_A_FILE or not _is_folder(folder, name):
            raise
    else:
        return True
    try:
        os.rmdir(name, dir_fd=folder)
    except OSError as error:
        if error.errno in _NOT_EMPTY:
            return False
        raise
    return True


def _exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _is_folder(folder: int, name: str) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)


@contextmanager
def _opened(folder: int, name: str) -> Generator[int]:
    """Open a folder in a folder, with the rights to list and change it if its owner can have
    them."""
    try:
        fd = os.open(name, _FOLDER, dir_fd=folder)
    except PermissionError:
        _allow(folder, name)
        fd = os.open(name, _FOLDER, dir_fd=folder)
    try:
        if os.fstat(fd).st_mode & 0o700 != 0o700:
            with suppress(OSError):
                os.fchmod(fd, 0o700)
        yield fd
    finally:
        os.close(fd)


def _allow(folder: int, name: str) -> None:
    """Change the mode of a folder that cannot be opened. The descriptor, not the name, is changed:
    the name may be a link by now."""
    fd = os.open(name, _FOLDER | os.O_PATH, dir_fd=folder)
    try:
        Path(f"/proc/self/fd/{fd}").chmod(0o700)
    finally:
        os.close(fd)


def _listed(folder: int, *, without: set[str]) -> list[str]:
    """Some names of a folder."""
    with os.scandir(folder) as entries:
        names = (each.name for each in entries if each.name not in without)
        return list(itertools.islice(names, LISTED_ENTRIES))


def _recorded(done: TreeDeletion) -> TreeDeletion:
    for path, reason in done.remains.items():
        REMAINS.record(path, f"{reason} ({done.n_remains} entries in all)")
    return done
