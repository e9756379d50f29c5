"""Copies files from and to a running job, and from an ended one, as tar archives.

`tar` runs with the rights of the job: in the environment of a running worker through an exec
session, for an ended job at the daemon. Only regular files and folders are copied: an archive
without links cannot write outside the target folder.
"""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
import tempfile
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, cast

from rota.client.exec import WebSocketSession, open_exec, run
from rota.errors import MAX_SHOWN_PATH_CHARS, RotaError, UserError, os_error_message, shown
from rota.wire.exec import OUTPUT, ExecRequest
from rota.wire.jobs import FINAL_STATES

if TYPE_CHECKING:
    from rota.client import Client

EXECUTABLE = 0o100
MAX_ERROR_BYTES = 4096
WORKING_DIRECTORY = PurePosixPath()


@dataclass(frozen=True, slots=True)
class JobPath:
    """A path in the environment of a job's worker; `.` is the working directory of the job."""

    job: str
    path: PurePosixPath
    worker: int | None = None

    def __str__(self) -> str:
        return shown(f"{self.job}:{self.path}", MAX_SHOWN_PATH_CHARS)


def job_path(word: str, *, worker: int | None = None) -> JobPath | None:
    """Parse `JOB:PATH`. None for a path of this machine: without a colon, or with a slash before
    it. Without a PATH, the working directory of the job."""
    job, colon, text = word.partition(":")
    if not colon or not job or "/" in job:
        return None
    path = PurePosixPath(text)
    if path != WORKING_DIRECTORY and path.name in ("", ".."):
        raise UserError(
            f"'{shown(word)}' names no file",
            "write JOB:PATH, such as bert:out/model.pt, or JOB: for the working directory",
        )
    return JobPath(job, path, worker)


def copy_from_job(rota: Client, source: JobPath, *, target: Path) -> int:
    """Copy a file or folder to `target`, or into it if it is a folder: there, a working directory
    gets the name of its job. Return the number of links and special files that were left out. An
    error leaves no partial copy."""
    found = rota.show(source.job).job
    name = source.path.name
    final = target / (name or found.name) if target.is_dir() else target
    receive = _from_ended_job if found.state in FINAL_STATES else _from_running_job
    with (
        _os_errors(),
        tempfile.TemporaryDirectory(dir=final.parent, prefix=".rota-cp-") as folder,
    ):
        # The folder itself is private, and becomes no copy of a working directory.
        place = Path(folder) if name else Path(folder) / "copy"
        place.mkdir(exist_ok=True)
        n_left_out = receive(rota, replace(source, job=found.id), folder=place)
        (place / name).replace(final)
    return n_left_out


def _from_running_job(rota: Client, source: JobPath, *, folder: Path) -> int:
    name = source.path.name or "."
    command = ["tar", "-c", "-f", "-", "-C", str(source.path.parent), "--", name]
    request = ExecRequest(command)
    with open_exec(rota, source.job, request=request, worker=source.worker) as session:
        session.finish()
        stream = _OutputStream(session)
        n_left_out, problem = _extract_stream(stream, folder, name=name)
        stream.drain()
    # If tar failed, its own message is better.
    problem = "" if session.exit_code else problem
    _require_success(session, f"cannot copy {source}", errors=stream.errors, problem=problem)
    return n_left_out


def _from_ended_job(rota: Client, source: JobPath, *, folder: Path) -> int:
    name = source.path.name or "."
    stream = _ArchiveStream(rota.files(source.job, str(source.path)))
    n_left_out, problem = _extract_stream(stream, folder, name=name)
    if problem:
        raise UserError(f"cannot copy {source}: {problem}", "check the path")
    return n_left_out


def _extract_stream(
    stream: _OutputStream | _ArchiveStream, folder: Path, *, name: str
) -> tuple[int, str]:
    """Extract an archive. Return the number of members that were left out, and the problem."""
    try:
        with tarfile.open(fileobj=cast("IO[bytes]", stream), mode="r|") as archive:
            return extract(archive, folder, name=name), ""
    except tarfile.TarError as error:
        return 0, str(error)


def copy_to_job(rota: Client, source: Path, *, target: JobPath) -> int:
    """Copy a file or folder to `target`, or into it if it is a folder. Return the number of links
    and special files that were left out."""
    if not (source.is_file() or source.is_dir()):
        raise UserError(f"{source}: no such file or folder", "check the path")
    test = ["test", "-d", str(target.path)]
    is_folder = run(rota, target.job, command=test, worker=target.worker).exit_code == 0
    name = source.resolve().name if is_folder else target.path.name
    folder = target.path if is_folder else target.path.parent
    request = ExecRequest(["tar", "-x", "-o", "-f", "-", "-C", str(folder)])
    with open_exec(rota, target.job, request=request, worker=target.worker) as session:
        sender = _Sender(session, source, name)
        thread = threading.Thread(target=sender.send, daemon=True)
        thread.start()
        stream = _OutputStream(session)
        stream.drain()
        thread.join()
    _require_success(
        session, f"cannot copy to {target}", errors=stream.errors, problem=sender.problem
    )
    return sender.n_left_out


@contextmanager
def _os_errors() -> Generator[None]:
    """Errors of this machine's files as errors for the user."""
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write: {os_error_message(error)}", "check the target") from error


def extract(archive: tarfile.TarFile, folder: Path, *, name: str) -> int:
    """Extract regular files and folders, all of them `name` or below it. Return the number of
    other members. The archive is hostile: a path that leads elsewhere is an error."""
    n_left_out = 0
    root = PurePosixPath(name).parts
    for member in archive:
        path = PurePosixPath(member.name)
        parts = path.parts
        is_inside = parts[: len(root)] == root and not path.is_absolute()
        if not is_inside or ".." in parts or "\0" in member.name:
            raise RotaError(f"unsafe path in the archive: {shown(member.name)}")
        target = folder.joinpath(*parts)
        if member.isdir():
            target.mkdir(parents=True, exist_ok=True)
        elif member.isreg():
            target.parent.mkdir(parents=True, exist_ok=True)
            mode = 0o777 if member.mode & EXECUTABLE else 0o666
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            content = archive.extractfile(member)
            with os.fdopen(os.open(target, flags, mode), "wb") as file:
                if content is not None:
                    shutil.copyfileobj(content, file)
        else:
            n_left_out += 1
    return n_left_out


class _ArchiveStream:
    """An archive that the daemon sends, as a file to read."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces

    def read(self, _size: int = -1) -> bytes:
        """The next part, of any length; empty at the end."""
        return next(self._pieces, b"")


class _OutputStream:
    """The output of a session as a file to read; the end of its error output is kept."""

    def __init__(self, session: WebSocketSession) -> None:
        self._frames = session.frames()
        self.errors = b""

    def read(self, _size: int = -1) -> bytes:
        """The next output, of any length; empty at the end."""
        for stream, chunk in self._frames:
            if stream == OUTPUT and chunk:
                return chunk
            if stream != OUTPUT:
                self.errors = (self.errors + chunk)[-MAX_ERROR_BYTES:]
        return b""

    def drain(self) -> None:
        while self.read():
            pass


class _Sender:
    """Writes a file or folder to a session, as a tar archive."""

    def __init__(self, session: WebSocketSession, source: Path, name: str) -> None:
        self._session, self._source, self._name = session, source, name
        self.n_left_out = 0
        self.problem = ""

    def send(self) -> None:
        try:
            with tarfile.open(fileobj=cast("IO[bytes]", self), mode="w|") as archive:
                for path, name in _walk(self._source.resolve(), self._name):
                    self._add(archive, path, name=name)
        except BrokenPipeError:
            # The exit code of tar says whether it has read enough.
            pass
        except OSError as error:
            self.problem = os_error_message(error)
        self._session.finish()

    def write(self, chunk: bytes) -> int:
        if not self._session.write(chunk):
            raise BrokenPipeError("the session has ended")
        return len(chunk)

    def _add(self, archive: tarfile.TarFile, path: Path, *, name: str) -> None:
        found = path.lstat()
        member = tarfile.TarInfo(name)
        member.mode, member.mtime = stat.S_IMODE(found.st_mode) & 0o777, found.st_mtime
        if stat.S_ISDIR(found.st_mode):
            member.type = tarfile.DIRTYPE
            archive.addfile(member)
        elif stat.S_ISREG(found.st_mode):
            with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
                member.size = os.fstat(file.fileno()).st_size
                archive.addfile(member, file)
        else:
            self.n_left_out += 1


def _walk(path: Path, name: str) -> Iterator[tuple[Path, str]]:
    """The file or folder, and everything below it, with the names in the archive."""
    yield path, name
    if path.is_dir() and not path.is_symlink():
        for each in sorted(path.iterdir()):
            yield from _walk(each, f"{name}/{each.name}")


def _require_success(session: WebSocketSession, what: str, *, errors: bytes, problem: str) -> None:
    if session.exit_code or problem:
        lines = errors.decode(errors="replace").strip().splitlines()
        why = problem or session.reason or (lines[0] if lines else "")
        why = why or f"tar ended with exit code {session.exit_code}"
        raise UserError(f"{what}: {shown(why, MAX_SHOWN_PATH_CHARS)}", "check the path")
