"""The archive of the files of an ended job, read from a real `tar`."""

import asyncio
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rota.core.lifecycle.states import JobState
from rota.core.model.job import Ended, JobId
from rota.daemon.artifacts import job_files
from rota.daemon.artifacts.job_files import PIECE_BYTES, JobFiles
from rota.daemon.launch.programs import SubmittedProgram, pack
from rota.engines.interface import UnixAccount
from rota.errors import UserError
from rota.store.records import Submission
from rota.wire.job_request import JobRequest

OWN_ACCOUNT = UnixAccount()


def files_of(folder: Path) -> JobFiles:
    job = SimpleNamespace(id=JobId("a"), phase=Ended(0.0, JobState.SUCCEEDED))
    submission = Submission(JobId("a"), "ada", 1000, pack(SubmittedProgram(JobRequest(["p"]))))
    kept = SimpleNamespace(workdir=str(folder), account=OWN_ACCOUNT)
    directory: Any = SimpleNamespace(find_owned=lambda *_: job)
    store: Any = SimpleNamespace(submission=lambda _: submission)
    environment: Any = SimpleNamespace(kept_files=lambda *_: kept)
    return JobFiles(directory, store, launch_environment=environment)


def children() -> list[int]:
    pid = os.getpid()
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_tar_that_waits_for_a_file_system_gives_no_answer_and_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.pt").write_bytes(bytes(8 * PIECE_BYTES))
    monkeypatch.setattr(job_files, "SILENCE_S", 0.1)
    nobody: Any = None

    async def scenario() -> None:
        before = children()
        pieces = await files_of(tmp_path).archive(nobody, "a", path="model.pt")
        assert len(await anext(pieces)) == PIECE_BYTES
        [tar] = set(children()) - set(before)
        os.kill(tar, signal.SIGSTOP)  # As if its next read got no answer.
        with pytest.raises(UserError, match=r"tar read nothing for 0\.1 s"):
            async for _ in pieces:
                pass
        assert tar not in children()

    asyncio.run(scenario())
