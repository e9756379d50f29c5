"""The files that an ended job left in its working directory, as a tar archive.

`tar` runs with the account of the job, so it reads what the job could read, and no more.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import PurePosixPath

from rota.core.model.job import Ended, JobId
from rota.daemon.access.authorization import Caller
from rota.daemon.errors import NotFoundError
from rota.daemon.jobs.job_lookup import JobDirectory, describe_state
from rota.daemon.launch.interface import LaunchContext, LaunchEnvironment
from rota.daemon.launch.programs import unpack
from rota.engines.interface import UnixAccount
from rota.errors import MAX_SHOWN_PATH_CHARS, UserError, shown
from rota.store.interface import Store
from rota.thread_pools import TRANSFERS

PIECE_BYTES = 256 * 1024
MAX_ERROR_BYTES = 4096
MAX_PATH_BYTES = 4096
SILENCE_S = 60.0
"""`tar` that reads nothing for so long waits for a file system that does not answer."""
STOP_S = 5.0
POLL_S = 0.01


class JobFiles:
    def __init__(
        self, directory: JobDirectory, store: Store, *, launch_environment: LaunchEnvironment
    ) -> None:
        self._directory = directory
        self._store = store
        self._launch_environment = launch_environment

    async def archive(self, caller: Caller, word: str, *, path: str) -> AsyncGenerator[bytes]:
        """A file or folder as a tar archive. A relative path starts at the working directory of the
        job. The caller must own the job. Closing the generator ends `tar`."""
        target = _checked(path)
        kept = await TRANSFERS.run(self._kept_files, caller, word)
        if not kept.workdir and not target.name:
            raise UserError("the job had no working directory", "write an absolute path")
        folder = PurePosixPath(kept.workdir or "/") / target.parent
        archive = _Archive(str(folder), target.name or ".", account=kept.account)
        try:
            await archive.open()
            # A small archive is read whole, so that an error of `tar` becomes an error response.
            first = await archive.read()
            if len(first) < PIECE_BYTES:
                await archive.read()
        except BaseException:
            await archive.stop()
            raise
        return _pieces(archive, first)

    def _kept_files(self, caller: Caller, word: str) -> LaunchContext:
        job = self._directory.find_owned(caller, word)
        if not isinstance(job.phase, Ended):
            what = f"job {job.id} has not ended: {describe_state(job)}"
            raise UserError(what, "copy from it with 'rota cp' while it runs")
        submission = self._store.submission(JobId(job.id))
        if submission is None:
            raise NotFoundError(f"the request of job {job.id} is not in the store")
        return self._launch_environment.kept_files(submission, unpack(submission).request)


class _Archive:
    """A `tar` that writes an archive to a pipe. No thread waits for it: a file system of the user
    may never answer."""

    def __init__(self, folder: str, name: str, *, account: UnixAccount) -> None:
        is_own = account.uid is None
        self._stream = asyncio.StreamReader(limit=PIECE_BYTES)
        self._pipe: asyncio.ReadTransport | None = None
        self._errors, errors = os.pipe()
        # Of very many errors, only the first matter: `tar` must not wait for a reader.
        os.set_blocking(errors, False)
        try:
            self._process = subprocess.Popen(
                ["tar", "-c", "-f", "-", "-C", folder, "--", name],  # noqa: S607 - PATH is os.defpath
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd="/",
                env={"PATH": os.defpath, "LC_ALL": "C"},
                start_new_session=True,
                user=account.uid,
                group=None if is_own else account.gid,
                extra_groups=None if is_own else account.groups,
            )
        except BaseException:
            os.close(self._errors)
            raise
        finally:
            os.close(errors)

    async def open(self) -> None:
        """Connect the pipe to the event loop."""
        self._pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self._stream), self._process.stdout
        )

    async def read(self) -> bytes:
        """The next part; empty at the end. Raises if `tar` failed."""
        try:
            async with asyncio.timeout(SILENCE_S):
                piece = await _up_to(PIECE_BYTES, self._stream)
                code = 0 if piece else await self._exit_code()
        except TimeoutError:
            what = f"tar read nothing for {SILENCE_S:g} s"
            raise UserError(what, "check the file system of the path") from None
        if code:
            lines = os.read(self._errors, MAX_ERROR_BYTES).decode(errors="replace").splitlines()
            why = lines[0] if lines else f"tar ended with exit code {code}"
            raise UserError(shown(why, MAX_SHOWN_PATH_CHARS), "check the path")
        return piece

    async def stop(self) -> None:
        """End `tar`. One that waits for a file system cannot be killed; it ends with that."""
        os.close(self._errors)
        if self._pipe is not None:
            self._pipe.close()
        self._process.kill()
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                await self._exit_code()

    async def _exit_code(self) -> int:
        while (code := self._process.poll()) is None:  # noqa: ASYNC110 - nothing tells of its end
            await asyncio.sleep(POLL_S)
        return code


async def _up_to(n_bytes: int, stream: asyncio.StreamReader) -> bytes:
    try:
        return await stream.readexactly(n_bytes)
    except asyncio.IncompleteReadError as end:
        return end.partial


async def _pieces(archive: _Archive, first: bytes) -> AsyncGenerator[bytes]:
    try:
        yield first
        while piece := await archive.read():
            yield piece
    finally:
        await archive.stop()


def _checked(path: str) -> PurePosixPath:
    """The path; `.` is the working directory."""
    target = PurePosixPath(path)
    names_none = target.name in ("", "..") and target != PurePosixPath()
    if names_none or "\0" in path or len(path.encode()) > MAX_PATH_BYTES:
        raise UserError(f"{shown(path)!r} names no file", "write a path such as out/model.pt")
    return target
