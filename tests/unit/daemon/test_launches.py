"""What a job's workers run when they start."""

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rota.core.model import JobId
from rota.daemon.admission import Defaults
from rota.daemon.launches import Launches, Site
from rota.daemon.programs import Saved, account_of, pack
from rota.engines.base import Mount, Program
from rota.store.records import Submission
from rota.wire.jobs import JobRequest
from tests.builders import job

TREE = "/shelf/trees/abc"
JOB = JobId("job")


def launched(request: JobRequest) -> Program:
    submission = Submission(JOB, "ada", os.getuid(), pack(Saved(request)))
    shell: Any = SimpleNamespace(kernel=SimpleNamespace(job=lambda _: SimpleNamespace(spec=job())))
    store: Any = SimpleNamespace(submission=lambda _: submission)
    snapshots: Any = SimpleNamespace(unpack=lambda *_, **__: Path(TREE))
    site = Site(lambda: 0.0, lambda _: Defaults(), lambda _: {}, snapshots)
    return asyncio.run(Launches(shell, store, site=site).program(JOB))


@pytest.mark.parametrize("image", ["", "pytorch"])
def test_shipped_code_is_where_the_job_begins(image: str) -> None:
    made = launched(JobRequest(command=["p"], image=image, snapshot="abc"))
    assert made.workdir == TREE
    assert Mount(TREE, TREE, is_writable=True) in made.mounts


def test_an_unknown_uid_gets_nobodys_group() -> None:
    account = account_of("4242424", 4242424)
    assert (account.uid, account.gid, account.groups) == (4242424, 65534, ())


def test_where_a_job_begins_that_names_no_folder() -> None:
    assert launched(JobRequest(command=["p"])).workdir == str(Path.home())
    assert launched(JobRequest(command=["p"], image="pytorch")).workdir == ""
