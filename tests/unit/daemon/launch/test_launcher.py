"""Programs of starting jobs."""

import asyncio
import os
import pwd
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rota.core.lifecycle.reducer import new_job
from rota.core.model.events import JobSubmitted
from rota.core.model.job import JobId
from rota.daemon.artifacts.user_store import CorruptSnapshotError
from rota.daemon.jobs.admission import Defaults
from rota.daemon.launch.checkpoint_dirs import parse_checkpoint_dirs
from rota.daemon.launch.launcher import Launcher, SiteConfig, WorkerCredentials
from rota.daemon.launch.local import LocalEnvironment
from rota.daemon.launch.programs import SubmittedProgram, account_of, pack
from rota.engines.interface import Mount, Program
from rota.errors import UserError
from rota.store.records import Submission
from rota.wire.jobs import JobRequest
from tests.support.builders import job

USER = pwd.getpwuid(os.getuid()).pw_name
TREE = "/shelf/trees/abc"
JOB = JobId("job")
NOTHING = Defaults()
Launched = Callable[..., Program]


@pytest.fixture
def launched(tmp_path: Path) -> Launched:
    return partial(launch, folder=tmp_path)


def launch(
    request: JobRequest,
    *,
    folder: Path,
    attempt: int = 1,
    saved: float = 0.0,
    defaults: Defaults = NOTHING,
    unpack: Callable[..., Path] = lambda *_, **__: Path(TREE),
) -> Program:
    submission = Submission(JOB, USER, os.getuid(), pack(SubmittedProgram(request)))
    queued = new_job(JobSubmitted(JOB, job()), 0.0, known=None)
    known = replace(queued, attempt=attempt, epochs_saved=saved)
    controller: Any = SimpleNamespace(job=lambda _: known)
    store: Any = SimpleNamespace(submission=lambda _: submission)
    snapshots: Any = SimpleNamespace(unpack=unpack)
    site = SiteConfig(
        clock=lambda: 0.0,
        wall_clock=lambda: 1_700_000_000.25,
        defaults=lambda _: defaults,
        credentials=WorkerCredentials("", tokens=cast("Any", None)),
        snapshots=snapshots,
        launch_environment=LocalEnvironment(
            snapshots, parse_checkpoint_dirs("", folder=folder), "/state/door"
        ),
    )
    return asyncio.run(Launcher(controller, store, site=site).program(JOB))


def test_corrupt_shipped_code_is_not_tried_again(tmp_path: Path) -> None:
    """Only the user can ship it again; waiting does not help."""

    def unpack(*_: object, **__: object) -> Path:
        raise CorruptSnapshotError("a file of the snapshot is corrupt", "ship the folder again")

    with pytest.raises(UserError, match="ship the folder again"):
        launch(JobRequest(command=["p"], snapshot="abc"), folder=tmp_path, unpack=unpack)


@pytest.mark.parametrize("image", ["", "pytorch"])
def test_the_working_directory_is_in_the_shipped_code(image: str, launched: Launched) -> None:
    made = launched(JobRequest(command=["p"], image=image, snapshot="abc"))
    assert made.workdir == TREE
    assert Mount(TREE, TREE, is_writable=True) in made.mounts


def test_an_unknown_uid_gets_the_nobody_group() -> None:
    account = account_of("4242424", 4242424)
    assert (account.uid, account.gid, account.groups) == (4242424, 65534, ())


def test_a_container_gets_the_umask_as_a_variable(launched: Launched) -> None:
    request = JobRequest(command=["p"], umask=0o027)
    assert "ROTA_UMASK" not in launched(request).env
    assert launched(replace(request, image="pytorch")).env["ROTA_UMASK"] == "0027"
    assert "ROTA_UMASK" not in launched(JobRequest(command=["p"], image="pytorch")).env


def test_the_default_working_directory(launched: Launched) -> None:
    assert launched(JobRequest(command=["p"])).workdir == str(Path.home())
    assert launched(JobRequest(command=["p"], image="pytorch")).workdir == ""


def test_a_job_without_an_image_may_be_contained_by_default(launched: Launched) -> None:
    contained = Defaults(are_contained=True)
    made = launched(JobRequest(command=["p"], umask=0o027), defaults=contained)
    assert (made.image, made.workdir, made.env["ROTA_UMASK"]) == ("", "", "0027")


def test_an_attempt_gets_the_progress_of_the_last_one(launched: Launched, tmp_path: Path) -> None:
    made = launched(JobRequest(command=["p"], epochs=90, image="pytorch"), attempt=3, saved=4.5)
    place = str(tmp_path / "checkpoints" / JOB)
    assert made.env == {
        "EPOCHS_DONE": "4",
        "ROTA_EPOCHS": "90",
        "ROTA_RESTARTS": "2",
        "ROTA_CHECKPOINT_DIR": place,
        "ROTA_BEGAN": "1700000000.250",
        "ROTA_JOB_NAME": job().name,
    }
    assert made.mounts == (
        Mount("/state/door", "/state/door"),
        Mount(place, place, is_writable=True),
    )


def test_a_job_without_epochs_gets_no_rota_epochs(launched: Launched) -> None:
    assert "ROTA_EPOCHS" not in launched(JobRequest(command=["p"])).env


def test_an_unreadable_request_of_one_job_does_not_end_the_pruning() -> None:
    """The snapshots of its owner stay: the job may need any of them."""
    programs = {
        "a": Submission(JobId("a"), "ada", 1, "{"),
        "b": Submission(
            JobId("b"), "bob", 2, pack(SubmittedProgram(JobRequest(["p"], snapshot="x")))
        ),
    }
    pruned: list[Any] = []
    snapshots: Any = SimpleNamespace(
        prune=lambda needed, *, spared: pruned.append((needed, spared)),
        prune_workdirs=lambda jobs, **_: pruned.append(jobs),
    )
    site: Any = SimpleNamespace(snapshots=snapshots)
    reader: Any = SimpleNamespace(jobs=programs)
    live = {JobId("a"), JobId("b")}
    store: Any = SimpleNamespace(submission=programs.get)
    asyncio.run(Launcher(reader, store, site=site).prune_snapshots(live, keep_workdir_s=1.0))
    assert pruned == [({(2, "x")}, {1}), {"a", "b"}]


def test_a_request_may_not_choose_the_service_of_its_container() -> None:
    nothing: Any = None
    request = JobRequest(command=["p"], image="i", env={"DOCKER_HOST": "unix:///own"})
    environment = LocalEnvironment(nothing, nothing, "")
    with pytest.raises(UserError, match="may not set DOCKER_HOST; ask an administrator"):
        environment.check(request)
    environment.check(replace(request, image=""))
    replace(environment, allows_container_endpoint=True).check(request)
