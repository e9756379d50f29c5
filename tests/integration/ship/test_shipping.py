"""From a folder to the folder that a job runs in, with crashes, crowds, other users, full disks."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from rota.client.shipping import scan, ship
from rota.daemon.snapshots import Snapshots
from rota.daemon.unpacking import Owner, unpack
from rota.errors import InputError, UserError
from rota.wire.manifest import File, Link, Manifest
from tests.counts import seeds
from tests.ships import UID, DirectApi, names_in, tree_of
from tests.tidy.tree import ROOT

UNSHARE = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--map-root-user"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "code"
    for number in range(20):
        (made / f"package{number % 3}").mkdir(parents=True, exist_ok=True)
        (made / f"package{number % 3}" / f"{number}.py").write_text(f"x = {number}\n" * 1000)
    (made / "train.py").write_text("import package0\n")
    (made / "run.sh").write_text(
        "#!/bin/sh\ncat train.py > out && cat out && echo run by $(id -u)\n"
    )
    (made / "run.sh").chmod(0o755)
    (made / "latest").symlink_to("package2")
    return made


@pytest.fixture
def open_root() -> Iterator[Path]:
    """Every user can get to it, as to the state of a daemon that root runs."""
    with TemporaryDirectory() as temporary:
        Path(temporary).chmod(0o711)
        yield Path(temporary, "kept")


def test_many_jobs_of_one_snapshot_unpack_it_once(folder: Path, tmp_path: Path):
    snapshots = Snapshots(tmp_path / "kept")
    snapshot_id = ship(folder, DirectApi(snapshots))
    with ThreadPoolExecutor(16) as pool:
        asked = [pool.submit(snapshots.unpack, snapshot_id, owner=UID, gid=UID) for _ in range(64)]
        trees = {each.result() for each in asked}
    (tree,) = trees
    assert tree_of(tree) == tree_of(folder)
    inode = (tree / "train.py").stat().st_ino
    assert snapshots.unpack(snapshot_id, owner=UID, gid=UID) == tree
    assert (tree / "train.py").stat().st_ino == inode
    assert names_in(tmp_path / "kept" / str(UID) / "drafts") == []


def test_many_clients_ship_while_others_are_pruned(folder: Path, tmp_path: Path):
    """Two users, each from several terminals, and an eager pruning in between."""
    snapshots = Snapshots(tmp_path / "kept")

    def ship_one(number: int) -> None:
        owner = UID + number % 2
        api = DirectApi(snapshots, owner)
        copied = tmp_path / f"copy{number}"
        subprocess.run(["cp", "-a", folder, copied], check=True)
        (copied / "train.py").write_text(f"{number % 3}")
        tree = snapshots.unpack(ship(copied, api), owner=owner, gid=owner)
        assert tree_of(tree) == tree_of(copied)
        snapshots.prune([])

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(ship_one, range(12)))
    for owner in (UID, UID + 1):
        assert snapshots.used_bytes(owner=owner) == (
            Snapshots(tmp_path / "kept").used_bytes(owner=owner)
        )


@pytest.mark.parametrize("seed", seeds(50))
def test_killed_at_any_moment(folder: Path, tmp_path: Path, seed: int):
    """What was acknowledged is there and whole; what is not is gone with the next start."""
    root = tmp_path / "kept"
    command = [sys.executable, "-m", "tests.integration.ship.crashing", str(folder), str(root)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    shipped = [process.stdout.readline().strip()]
    time.sleep(random.Random(seed).uniform(0, 0.5))
    process.kill()
    shipped += process.stdout.read().split()
    process.wait()
    process.stdout.close()

    snapshots = Snapshots(root)
    for place in ("drafts", "trash"):
        assert list((root / str(UID) / place).iterdir()) == []
    # The prune that was underway kept the newest one.
    newest = [each for each in shipped if each != "pruned"][-1]
    tree = snapshots.unpack(newest, owner=UID, gid=UID)
    version = (tree / "version").read_text()
    (folder / "version").write_text(version)
    assert scan(tree) == scan(folder)
    api = DirectApi(snapshots)
    assert ship(folder, api) == newest
    assert api.sent == []
    snapshots.prune([], unused_s=-1)
    assert names_in(root) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")
def test_a_job_runs_in_it_as_its_submitter_and_nobody_else_can_look(folder: Path, open_root: Path):
    snapshots = Snapshots(open_root)
    tree = snapshots.unpack(ship(folder, DirectApi(snapshots)), owner=UID, gid=UID)

    def run(uid: int, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *command],
            capture_output=True,
            text=True,
            check=False,
        )

    done = run(UID, "sh", "-c", f"cd {tree} && ./run.sh && ls latest/ | head -1")
    assert done.stdout.splitlines() == ["import package0", f"run by {UID}", "11.py"]
    spoil = run(UID, "sh", "-c", f"cd {tree} && echo spoilt > train.py")
    assert "Permission denied" in spoil.stderr
    for path in (tree / "train.py", open_root / str(UID) / "blobs", tree.parent):
        assert run(UID + 1, "ls", "-l", str(tree)).returncode != 0
        assert run(UID + 1, "cat", str(path)).returncode != 0
    assert run(UID, "mv", str(tree), f"{tree}2").returncode != 0
    assert run(UID, "ls", str(tree.parent)).returncode != 0


def test_a_disk_that_is_full_or_read_only(tmp_path: Path):
    if subprocess.run(
        [*UNSHARE, "mount", "-t", "tmpfs", "tmpfs", tmp_path], check=False
    ).returncode:
        pytest.skip("needs the right to mount")
    command = [*UNSHARE, sys.executable, "-m", "tests.integration.ship.mounted", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "ship: make room on its disk, then try again",
        "[]",
        "goes on",
        "unpack: make room on its disk, then try again",
        "nothing half-made",
        "unpacked",
        "ship: check its owner, its mode and how it is mounted",
    ]


def test_even_an_unchecked_manifest_cannot_leave_its_folder(tmp_path: Path):
    """The check is one lock on the door; not to follow links is the other."""
    (tmp_path / "outside").mkdir()
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "way").symlink_to("../outside")
    blob = tmp_path / "blob"
    blob.write_bytes(b"")
    sha256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    made = Manifest.of([File("way/in", sha256, size_bytes=0, is_executable=False)])
    owner = Owner(UID, UID) if os.geteuid() == 0 else None
    with pytest.raises(FileExistsError):
        unpack(made, tree, source=lambda _: blob, owner=owner)
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_folder_with_a_way_out_is_refused_on_both_sides(folder: Path, tmp_path: Path):
    (folder / "secrets").symlink_to("/etc")
    api = DirectApi(Snapshots(tmp_path / "kept"))
    with pytest.raises(UserError, match="'secrets': it is a link that leads out of the folder"):
        ship(folder, api)
    assert api.sent == []
    with pytest.raises(InputError):
        Manifest((Link("secrets", "/etc"),))
