"""`rota cp` from and to a running job, and from an ended one."""

import io
import os
import tarfile
from pathlib import Path, PurePosixPath

import pytest

from rota.cli.file_copy import JobPath, copy_from_job, copy_to_job, extract, job_path
from rota.client import Client, JobRequest
from rota.errors import RotaError, UserError
from tests.integration.sessions.daemon import Daemon


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    """The folder in which the job works."""
    folder = tmp_path / "inside"
    (folder / "out/deep").mkdir(parents=True)
    (folder / "out/model.pt").write_bytes(os.urandom(3 * 1024**2))
    (folder / "out/deep/run.sh").write_text("echo")
    (folder / "out/deep/run.sh").chmod(0o755)
    return folder


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    return folder


def test_a_file_and_a_folder_come_out(
    daemon: Daemon, rota: Client, inside: Path, outside: Path
) -> None:
    job_id = daemon.run(rota, workdir=str(inside), name="copied")
    done = daemon.cli("cp", f"{job_id}:out/model.pt", str(outside))
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert (outside / "model.pt").read_bytes() == (inside / "out/model.pt").read_bytes()
    done = daemon.cli("cp", f"copied:{inside}/out/", str(outside / "results"))
    assert (done.returncode, done.stderr) == (0, b"")
    assert (outside / "results/model.pt").stat().st_size == 3 * 1024**2
    assert os.access(outside / "results/deep/run.sh", os.X_OK)
    assert sorted(each.name for each in outside.iterdir()) == ["model.pt", "results"]


def test_a_file_and_a_folder_go_in(
    daemon: Daemon, rota: Client, inside: Path, outside: Path
) -> None:
    job_id = daemon.run(rota, workdir=str(inside))
    (outside / "data").mkdir()
    (outside / "data/large").write_bytes(os.urandom(3 * 1024**2))
    done = daemon.cli("cp", str(outside / "data"), f"{job_id}:out")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert (inside / "out/data/large").read_bytes() == (outside / "data/large").read_bytes()
    new = JobPath(job_id, PurePosixPath("new"))
    assert copy_to_job(rota, outside / "data/large", target=new) == 0
    assert (inside / "new").stat().st_size == 3 * 1024**2


def test_links_are_left_out(daemon: Daemon, rota: Client, inside: Path, outside: Path) -> None:
    (inside / "out/link").symlink_to("/etc/passwd")
    job_id = daemon.run(rota, workdir=str(inside))
    done = daemon.cli("cp", f"{job_id}:out", str(outside))
    assert (done.returncode, done.stderr) == (1, b"rota: left out 1 links and special files\n")
    assert sorted(each.name for each in (outside / "out").iterdir()) == ["deep", "model.pt"]
    (outside / "out/link").symlink_to("/etc/passwd")
    assert daemon.cli("cp", str(outside / "out"), f"{job_id}:back").returncode == 1
    assert sorted(each.name for each in (inside / "back").iterdir()) == ["deep", "model.pt"]


def test_errors_name_the_path_and_leave_nothing(
    daemon: Daemon, rota: Client, inside: Path, outside: Path
) -> None:
    job_id = daemon.run(rota, workdir=str(inside))
    (outside / "out").mkdir()
    (outside / "out/mine").touch()
    for source, target, message in [
        (f"{job_id}:nothing", str(outside), "nothing"),
        (f"{job_id}:out", str(outside), "not empty"),
        (f"{job_id}:out", str(outside / "no/folder"), "no such file"),
        (str(outside / "none"), f"{job_id}:x", "no such file or folder"),
        (str(outside / "out"), f"{job_id}:no/folder", "no/folder"),
        (str(outside), str(outside), "exactly one"),
        (f"{job_id}:..", str(outside), "names no file"),
    ]:
        done = daemon.cli("cp", source, target)
        assert (done.returncode, done.stdout) == (2, b""), done.stderr
        assert message in done.stderr.decode()
    assert [each.name for each in outside.rglob("*")] == ["out", "mine"]


def test_a_working_directory_comes_out_with_the_name_of_its_job(
    daemon: Daemon, rota: Client, inside: Path, outside: Path
) -> None:
    job_id = daemon.run(rota, workdir=str(inside), name="whole")
    for source, target, copy in [
        ("whole:", outside, "whole"),
        ("whole:.", outside / "running", "running"),
    ]:
        assert daemon.cli("cp", source, str(target)).returncode == 0
        assert (outside / copy / "out/model.pt").stat().st_size == 3 * 1024**2
        assert sorted(each.name for each in (outside / copy).iterdir()) == ["out"]
    (outside / "new").write_text("new")
    assert daemon.cli("cp", str(outside / "new"), "whole:").returncode == 0
    assert (inside / "new").read_text() == "new"
    rota.cancel(job_id)
    rota.wait(job_id)
    assert daemon.cli("cp", "whole:", str(outside / "ended")).returncode == 0
    assert sorted(each.name for each in (outside / "ended").iterdir()) == ["new", "out"]


@pytest.fixture
def ended(daemon: Daemon, rota: Client, inside: Path) -> str:
    """The id of an ended job that worked in `inside`."""
    job_id = daemon.run(rota, workdir=str(inside))
    rota.cancel(job_id)
    rota.wait(job_id)
    return job_id


def test_the_files_of_an_ended_job_come_out(
    daemon: Daemon, ended: str, inside: Path, outside: Path
) -> None:
    (inside / "out/link").symlink_to("/etc/passwd")
    done = daemon.cli("cp", f"{ended}:out", str(outside))
    assert (done.returncode, done.stderr) == (1, b"rota: left out 1 links and special files\n")
    assert (outside / "out/model.pt").read_bytes() == (inside / "out/model.pt").read_bytes()
    assert os.access(outside / "out/deep/run.sh", os.X_OK)
    for source, target, message in [
        (f"{ended}:nothing", str(outside / "x"), "nothing: Cannot stat: No such file"),
        (f"{ended}:no/thing", str(outside / "x"), "no: Cannot open: No such file"),
        (str(outside / "out"), f"{ended}:back", "cancelled"),
    ]:
        done = daemon.cli("cp", source, target)
        assert (done.returncode, done.stdout) == (2, b""), done.stderr
        assert message in done.stderr.decode()
    assert [each.name for each in outside.iterdir()] == ["out"]


def test_a_shipped_folder_is_read_until_it_is_deleted(
    daemon: Daemon, rota: Client, inside: Path, outside: Path
) -> None:
    request = JobRequest(["sh", "-c", "echo 1 > result"], snapshot=rota.ship(inside))
    job_id = rota.submit(request)
    rota.wait(job_id)
    assert copy_from_job(rota, JobPath(job_id, PurePosixPath("result")), target=outside) == 0
    assert (outside / "result").read_text() == "1\n"
    [tree] = daemon.home.rglob(job_id + "/files")
    tree.rename(tree.with_name("gone"))
    with pytest.raises(RotaError, match="was deleted"):
        copy_from_job(rota, JobPath(job_id, PurePosixPath("out")), target=outside)


@pytest.mark.parametrize("name", ["/etc/x", "../x", "out/../../x", "other/x", "."])
def test_a_hostile_archive_writes_nothing_elsewhere(tmp_path: Path, name: str) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.addfile(tarfile.TarInfo(name))
    packed.seek(0)
    (tmp_path / "target").mkdir()
    with tarfile.open(fileobj=packed) as archive, pytest.raises(RotaError, match="unsafe path"):
        extract(archive, tmp_path / "target", name="out")
    assert [each.name for each in tmp_path.rglob("*")] == ["target"]


def test_a_link_in_an_archive_is_never_followed(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        link = tarfile.TarInfo("out/up")
        link.type, link.linkname = tarfile.SYMTYPE, "../.."
        archive.addfile(link)
        archive.addfile(tarfile.TarInfo("out/up/file"))
    packed.seek(0)
    (tmp_path / "target").mkdir()
    with tarfile.open(fileobj=packed) as archive:
        assert extract(archive, tmp_path / "target", name="out") == 1
    assert (tmp_path / "target/out/up/file").is_file()
    assert not (tmp_path / "file").exists()


def test_a_colon_after_a_slash_is_a_local_path() -> None:
    assert job_path("./a:b") is None
    assert job_path("ab") is None
    with pytest.raises(UserError, match="names no file"):
        job_path("job:/")
    assert job_path("job:") == job_path("job:.") == JobPath("job", PurePosixPath())
