"""Trees with hostile content are deleted; what cannot be deleted is returned, never raised."""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rota.delete_tree import MOVED, delete_contents, delete_tree
from rota.engines.local.worker_dirs import WorkerDirs

NOBODY = 65534
is_root = os.geteuid() == 0


def nest(folder: Path, depth: int) -> None:
    """Folders in folders, with a file in each. The path is too long for one system call."""
    fd = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)


@contextmanager
def few_open_files(n_files: int) -> Generator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (n_files, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def as_nobody() -> Generator[None]:
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_path() -> Generator[Path]:
    """A folder in which every user may write. Those of pytest are closed."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


def test_any_depth(tmp_path: Path):
    tree = tmp_path / "tree"
    tree.mkdir()
    nest(tree, 3000)
    with few_open_files(len(list(Path("/proc/self/fd").iterdir())) + 40):
        assert delete_tree(tree).is_complete
    assert not tree.exists()


def test_any_name(tmp_path: Path):
    tree = tmp_path / "tree"
    for name in (b"\xff\xfe", b"a\nb", b"-rf", b"x" * 255, f"{MOVED}0".encode(), b"\x1b[2J"):
        folder = tree / os.fsdecode(name) / "below" / os.fsdecode(name)
        folder.mkdir(parents=True)
        (folder / "file").touch()
    os.mkfifo(tree / "fifo")
    assert delete_tree(tree).is_complete
    assert not tree.exists()


def test_links_are_not_followed(tmp_path: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    tree = tmp_path / "tree"
    (tree / "a").mkdir(parents=True)
    (tree / "a" / "link").symlink_to(outside)
    (tmp_path / "top").symlink_to(outside)
    assert delete_tree(tree).is_complete
    assert delete_tree(tmp_path / "top").is_complete
    assert [each.name for each in tmp_path.iterdir()] == ["outside"]
    assert (outside / "kept").exists()


def test_missing_trees_are_no_error(tmp_path: Path):
    assert delete_tree(tmp_path / "none" / "none").is_complete
    assert delete_tree(tmp_path / "none").is_complete
    assert delete_contents(tmp_path / "none").is_complete


def test_a_call_is_bounded_and_the_next_one_continues(tmp_path: Path):
    tree = tmp_path / "tree"
    tree.mkdir()
    nest(tree, 30)
    first = delete_tree(tree, limit=20)
    assert first.is_cut_short
    assert 0 < first.n_deleted <= 20
    n_calls = 1
    while delete_tree(tree, limit=20).is_cut_short:
        n_calls += 1
    assert n_calls < 10
    assert not tree.exists()


def test_a_program_that_writes_all_the_time(tmp_path: Path):
    tree = tmp_path / "tree"
    tree.mkdir()
    is_over, has_begun = threading.Event(), threading.Event()

    def write() -> None:
        number = 0
        while not is_over.is_set():
            folder = tree / str(number % 5) / "below"
            try:
                folder.mkdir(parents=True, exist_ok=True)
                (folder / str(number)).touch()
            except OSError:
                pass
            number += 1
            has_begun.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        has_begun.wait()
        done = delete_contents(tree, limit=5000)
    finally:
        is_over.set()
        writer.join()
    assert done.n_deleted
    assert not done.remains
    assert delete_tree(tree).is_complete


@pytest.mark.skipif(not is_root, reason="changes its user")
def test_closed_folders_of_the_own_user(open_path: Path):
    with as_nobody():
        tree = open_path / "tree"
        (tree / "a" / "b" / "c").mkdir(parents=True)
        (tree / "a" / "b" / "file").touch()
        for folder, mode in ((tree / "a" / "b", 0o000), (tree / "a", 0o500), (tree, 0o000)):
            folder.chmod(mode)
        assert delete_tree(tree).is_complete
    assert not tree.exists()


@pytest.mark.skipif(not is_root, reason="changes its user")
def test_files_of_other_users_remain_and_are_reported(open_path: Path):
    with as_nobody():
        (open_path / "tree" / "a").mkdir(parents=True)
    (open_path / "tree" / "a" / "mine").touch()
    foreign = open_path / "tree" / "foreign"
    foreign.mkdir(mode=0o755)
    (foreign / "file").touch()
    with as_nobody(), capture_logs() as lines:
        done = delete_tree(open_path / "tree")
    assert done.remains == {f"{foreign}/file": "permission denied"}
    assert [each["event"] for each in lines] == ["not cleaned up"]
    assert list((open_path / "tree").iterdir()) == [foreign]


@pytest.mark.skipif(not is_root, reason="mounts a folder")
@pytest.mark.parametrize("mounted", ["a/mount", "."])
def test_mounts_are_not_entered(tmp_path: Path, mounted: str):
    """Also those of the same disk, which have the same device number."""
    source, tree = tmp_path / "source", tmp_path / "tree"
    source.mkdir()
    (source / "kept").touch()
    target = tree / mounted
    target.mkdir(parents=True)
    if subprocess.run(["mount", "--bind", source, target], check=False).returncode:
        pytest.skip("this machine allows no mounts")
    try:
        done = delete_tree(tree)
    finally:
        subprocess.run(["umount", target], check=True)
    assert list(done.remains) == [str(target)]
    assert (source / "kept").exists()


@pytest.mark.skipif(not is_root, reason="changes the attributes of a file")
def test_immutable_files_remain_and_the_others_go(tmp_path: Path):
    tree = tmp_path / "tree"
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "a" / "b" / "fixed").touch()
    (tree / "a" / "other").touch()
    if subprocess.run(["chattr", "+i", tree / "a" / "b" / "fixed"], check=False).returncode:
        pytest.skip("this disk knows no immutable files")
    try:
        done = delete_tree(tree)
        [remaining] = done.remains
    finally:
        found = next(tree.rglob("fixed"))
        subprocess.run(["chattr", "-i", found], check=True)
    assert remaining == str(found)
    assert not (tree / "a").exists()
    assert delete_tree(tree).is_complete


def test_a_folder_that_is_no_job_does_not_stop_the_retention(tmp_path: Path):
    dirs = WorkerDirs(tmp_path)
    dirs.make()
    for name in ("lost+found", "old"):
        (dirs.jobs / name).mkdir()
    assert dirs.ended_before(float("inf")) == ["old"]
