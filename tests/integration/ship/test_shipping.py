"""From a shipped directory to a job's directory, with crashes, many users and full disks."""

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
from rota.daemon.artifacts.extract import FileOwner, unpack
from rota.daemon.artifacts.snapshots import Snapshots
from rota.errors import InputError, UserError
from rota.wire.manifest import ManifestFile, ManifestLink, SnapshotManifest
from tests.support.seed_counts import seeds
from tests.support.shipping import UID, DirectApi, names_in, tree_of
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
    """A directory that every user can reach, like the state directory of a root daemon."""
    with TemporaryDirectory() as temporary:
        Path(temporary).chmod(0o711)
        yield Path(temporary, "kept")


def test_snapshot_is_unpacked_once_for_all_attempts_of_a_job(folder: Path, tmp_path: Path):
    snapshots = Snapshots(tmp_path / "kept")
    snapshot_id = ship(folder, DirectApi(snapshots))
    with ThreadPoolExecutor(16) as pool:
        asked = [
            pool.submit(snapshots.unpack, snapshot_id, job_id="job", owner=UID, gid=UID)
            for _ in range(64)
        ]
        trees = {each.result() for each in asked}
    (tree,) = trees
    assert tree_of(tree) == tree_of(folder)
    inode = (tree / "train.py").stat().st_ino
    assert snapshots.unpack(snapshot_id, job_id="job", owner=UID, gid=UID) == tree
    assert (tree / "train.py").stat().st_ino == inode
    assert names_in(tmp_path / "kept" / str(UID) / "drafts") == []


def test_concurrent_shipping_and_pruning(folder: Path, tmp_path: Path):
    """Two users with several clients each, and pruning at the same time."""
    snapshots = Snapshots(tmp_path / "kept")

    def ship_one(number: int) -> None:
        owner = UID + number % 2
        api = DirectApi(snapshots, owner)
        copied = tmp_path / f"copy{number}"
        subprocess.run(["cp", "-a", folder, copied], check=True)
        (copied / "train.py").write_text(f"{number % 3}")
        job_id = f"job-{number}"
        tree = snapshots.unpack(ship(copied, api), job_id=job_id, owner=owner, gid=owner)
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
    """Acknowledged content is complete; the next start removes the rest."""
    root = tmp_path / "kept"
    command = [
        sys.executable,
        "-m",
        "tests.integration.ship.ship_until_killed",
        str(folder),
        str(root),
    ]
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
    # The prune that was running kept the newest snapshot.
    newest = [each for each in shipped if each != "pruned"][-1]
    tree = snapshots.unpack(newest, job_id="other", owner=UID, gid=UID)
    version = (tree / "version").read_text()
    (folder / "version").write_text(version)
    assert scan(tree) == scan(folder)
    api = DirectApi(snapshots)
    assert ship(folder, api) == newest
    assert api.sent == []
    snapshots.prune([], unused_s=-1)
    snapshots.prune_workdirs([], unused_s=-1)
    assert names_in(root) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")
def test_only_the_submitter_can_read_the_directory(folder: Path, open_root: Path):
    snapshots = Snapshots(open_root)
    shipped = ship(folder, DirectApi(snapshots))
    tree = snapshots.unpack(shipped, job_id="job", owner=UID, gid=UID)

    def run(uid: int, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *command],
            capture_output=True,
            text=True,
            check=False,
        )

    done = run(UID, "sh", "-c", f"cd {tree} && ./run.sh && ls latest/ | head -1")
    assert done.stdout.splitlines() == ["import package0", f"run by {UID}", "11.py"]
    assert run(UID, "sh", "-c", f"cd {tree} && echo changed > train.py").returncode == 0
    for path in (tree / "train.py", open_root / str(UID) / "blobs", tree.parent):
        assert run(UID + 1, "ls", "-l", str(tree)).returncode != 0
        assert run(UID + 1, "cat", str(path)).returncode != 0
    assert run(UID, "mv", str(tree), f"{tree}2").returncode != 0
    assert run(UID, "ls", str(tree.parent)).returncode != 0


def test_full_or_read_only_disk(tmp_path: Path):
    if subprocess.run(
        [*UNSHARE, "mount", "-t", "tmpfs", "tmpfs", tmp_path], check=False
    ).returncode:
        pytest.skip("needs the right to mount")
    command = [
        *UNSHARE,
        sys.executable,
        "-m",
        "tests.integration.ship.ship_on_full_disk",
        str(tmp_path),
        # A user namespace maps one user, its root.
        str(UID if os.geteuid() == 0 else 0),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "ship: free space on this disk, then retry",
        "[]",
        "goes on",
        "unpack: free space on this disk, then retry",
        "nothing half-made",
        "unpacked",
        "ship: check its owner, mode and mount options",
    ]


def test_unvalidated_manifest_cannot_leave_the_directory(tmp_path: Path):
    """Validation is one defence; unpacking without following links is the second."""
    (tmp_path / "outside").mkdir()
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "way").symlink_to("../outside")
    blob = tmp_path / "blob"
    blob.write_bytes(b"")
    sha256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    made = SnapshotManifest.of([ManifestFile("way/in", sha256, size_bytes=0, is_executable=False)])
    owner = FileOwner(UID, UID) if os.geteuid() == 0 else None
    with pytest.raises(FileExistsError):
        unpack(made, tree, source=lambda _: blob, owner=owner)
    assert list((tmp_path / "outside").iterdir()) == []


def test_link_out_of_the_directory_is_rejected_on_both_sides(folder: Path, tmp_path: Path):
    (folder / "secrets").symlink_to("/etc")
    api = DirectApi(Snapshots(tmp_path / "kept"))
    with pytest.raises(UserError, match="'secrets': symbolic link leads out of the directory"):
        ship(folder, api)
    assert api.sent == []
    with pytest.raises(InputError):
        SnapshotManifest((ManifestLink("secrets", "/etc"),))
