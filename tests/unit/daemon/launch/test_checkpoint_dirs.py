"""Checkpoint folders, also in places where users can write."""

import errno
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from rota.core.model.job import JobId
from rota.daemon.launch.checkpoint_dirs import CheckpointDirOwner, parse_checkpoint_dirs
from rota.errors import RotaError, UnavailableError, UserError

JOB = JobId("job-1")
NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")


def test_each_job_has_a_folder_that_outlives_attempts(tmp_path: Path) -> None:
    places = parse_checkpoint_dirs("", folder=tmp_path)
    made = places.make(JOB, CheckpointDirOwner("ada"))
    assert made == tmp_path / "checkpoints" / JOB
    assert made.stat().st_mode & 0o777 == 0o700
    (made / "epoch-3").touch()
    assert places.make(JOB, CheckpointDirOwner("ada")) == made
    assert (made / "epoch-3").exists()
    places.remove(JOB, "ada")
    assert not made.exists()


@pytest.mark.parametrize("cause", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.EIO])
def test_a_fault_that_may_pass_is_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: int
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(cause, os.strerror(cause))

    monkeypatch.setattr(os, "mkdir", fail)
    places = parse_checkpoint_dirs("", folder=tmp_path)
    with pytest.raises(UnavailableError, match=os.strerror(cause)):
        places.make(JOB, CheckpointDirOwner("ada"))


def test_a_file_in_the_path_does_not_pass(tmp_path: Path) -> None:
    places = parse_checkpoint_dirs("", folder=tmp_path)
    (tmp_path / "checkpoints").touch()
    with pytest.raises(RotaError, match="cannot make the checkpoint folder") as told:
        places.make(JOB, CheckpointDirOwner("ada"))
    assert not isinstance(told.value, UnavailableError)


@as_root
def test_jobs_of_one_user_get_their_folders_at_the_same_time(tmp_path: Path) -> None:
    places = parse_checkpoint_dirs(f"{tmp_path}/{{user}}/{{job}}", folder=tmp_path)
    owner = CheckpointDirOwner("nobody", NOBODY, NOBODY)
    for number in range(50):
        names = [JobId(f"{number}-{each}") for each in range(8)]
        with ThreadPoolExecutor(8) as pool:
            made = list(pool.map(partial(places.make, owner=owner), names))
        assert {each.stat().st_uid for each in made} == {NOBODY}
        shutil.rmtree(tmp_path / "nobody")


@as_root
def test_a_daemon_of_root_gives_the_folder_to_its_owner(tmp_path: Path) -> None:
    places = parse_checkpoint_dirs(f"{tmp_path}/{{user}}/rota/{{job}}", folder=tmp_path)
    made = places.make(JOB, CheckpointDirOwner("nobody", NOBODY, NOBODY))
    owners = [(each.stat().st_uid, each.stat().st_gid) for each in (made, *made.parents[:2])]
    assert owners == [(NOBODY, NOBODY)] * 3
    assert made.parents[1] == tmp_path / "nobody"
    assert places.make(JOB, CheckpointDirOwner("nobody", NOBODY, NOBODY)) == made


@as_root
@pytest.mark.parametrize("name", ["nobody", "nobody/rota", f"nobody/rota/{JOB}"])
def test_a_link_in_the_path_is_not_followed(tmp_path: Path, name: str) -> None:
    places = parse_checkpoint_dirs(f"{tmp_path}/{{user}}/rota/{{job}}", folder=tmp_path)
    victim = tmp_path / "victim"
    victim.mkdir()
    link = tmp_path / name
    link.parent.mkdir(parents=True, exist_ok=True)
    for each in (tmp_path / "nobody", tmp_path / "nobody/rota"):
        if each.exists():
            os.chown(each, NOBODY, NOBODY)
    link.symlink_to(victim)
    with pytest.raises(RotaError, match="cannot make the checkpoint folder"):
        places.make(JOB, CheckpointDirOwner("nobody", NOBODY, NOBODY))
    assert victim.stat().st_uid == 0
    assert list(victim.iterdir()) == []


@as_root
def test_a_folder_of_another_user_is_not_used(tmp_path: Path) -> None:
    places = parse_checkpoint_dirs(f"{tmp_path}/{{user}}/{{job}}", folder=tmp_path)
    (tmp_path / "nobody").mkdir()
    os.chown(tmp_path / "nobody", 1, 1)
    with pytest.raises(RotaError, match="does not belong to nobody"):
        places.make(JOB, CheckpointDirOwner("nobody", NOBODY, NOBODY))


def test_the_target_of_a_link_is_not_deleted(tmp_path: Path) -> None:
    places = parse_checkpoint_dirs(f"{tmp_path}/{{user}}/{{job}}", folder=tmp_path)
    other = tmp_path / "other" / JOB
    other.mkdir(parents=True)
    (tmp_path / "ada").symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="ada"):
        places.remove(JOB, "ada")
    assert other.exists()


@pytest.mark.parametrize(
    "text", ["relative/{job}", "/scratch/all", "/scratch/{user}", "/a/../{job}", "/a/{job}/b"]
)
def test_invalid_settings_are_rejected(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError):
        parse_checkpoint_dirs(text, folder=tmp_path)
