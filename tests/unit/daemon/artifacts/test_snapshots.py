"""Storage of snapshots: uploads, permissions, quota, pruning, corruption."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.daemon.artifacts import upload
from rota.daemon.artifacts.snapshots import SnapshotOwner, Snapshots
from rota.errors import UnavailableError, UserError
from rota.wire.manifest import ManifestFile, ManifestLink, SnapshotManifest
from tests.support.shipping import UID, names_in, tree_of

OTHER = UID + 1
KIB = 1024


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def manifest(**contents: bytes) -> SnapshotManifest:
    return SnapshotManifest.of(
        ManifestFile(name, sha(content), size_bytes=len(content), is_executable=False)
        for name, content in contents.items()
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "snapshots"


@pytest.fixture
def snapshots(root: Path) -> Snapshots:
    return Snapshots(root)


def put(snapshots: Snapshots, *, owner: SnapshotOwner = UID, **contents: bytes) -> str:
    made = manifest(**contents)
    wanted = {sha(content): content for content in contents.values()}
    for each in snapshots.missing(made, owner=owner):
        snapshots.receive(each, [wanted[each]], owner=owner)
    return snapshots.finish(made, owner=owner)


def test_unpack_uploaded_snapshot(snapshots: Snapshots, root: Path):
    made = manifest(a=b"one", b=b"two", c=b"one")
    assert snapshots.missing(made, owner=UID) == [sha(b"one"), sha(b"two")]
    snapshots.receive(sha(b"one"), [b"o", b"", b"ne"], owner=UID)
    assert snapshots.missing(made, owner=UID) == [sha(b"two")]
    with pytest.raises(UserError, match="1 of the folder's files were not uploaded; ship the"):
        snapshots.finish(made, owner=UID)
    assert not snapshots.has(made.snapshot_id, owner=UID)
    snapshots.receive(sha(b"two"), [b"two"], owner=UID)
    assert snapshots.finish(made, owner=UID) == made.snapshot_id
    assert snapshots.finish(made, owner=UID) == made.snapshot_id
    assert snapshots.has(made.snapshot_id, owner=UID)
    tree = snapshots.unpack(made.snapshot_id, job_id="job", owner=UID, gid=UID)
    assert tree == root / str(UID) / "workdirs" / "job" / "files"
    assert tree_of(tree) == {"a": (b"one", False), "b": (b"two", False), "c": (b"one", False)}


def test_hash_gives_no_access_to_another_users_file(snapshots: Snapshots, root: Path):
    secret = put(snapshots, key=b"secret")
    snapshots.unpack(secret, job_id="job", owner=UID, gid=UID)
    made = manifest(stolen=b"secret")
    assert snapshots.missing(made, owner=OTHER) == [sha(b"secret")]
    with pytest.raises(UserError, match="were not uploaded"):
        snapshots.finish(made, owner=OTHER)
    assert not snapshots.has(secret, owner=OTHER)
    with pytest.raises(UserError, match="does not exist"):
        snapshots.unpack(secret, job_id="job", owner=OTHER, gid=OTHER)
    assert names_in(root / str(OTHER)) == []


def test_folder_permissions(snapshots: Snapshots, root: Path):
    tree = snapshots.unpack(put(snapshots, a=b"a"), job_id="job", owner=UID, gid=UID + 7)
    folder = root / str(UID)
    modes = {
        each.name: stat.S_IMODE(each.stat().st_mode) for each in (root, folder, *folder.iterdir())
    }
    through, closed = 0o711, 0o700
    assert modes == {
        "snapshots": through,
        str(UID): through,
        "workdirs": through,
        "blobs": closed,
        "manifests": closed,
        "drafts": closed,
        "trash": closed,
    }
    assert stat.S_IMODE(tree.stat().st_mode) == 0o700
    assert stat.S_IMODE((tree / "a").stat().st_mode) == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_tree_belongs_to_the_submitter(snapshots: Snapshots):
    run = ManifestFile("bin/run", sha(b"run"), size_bytes=3, is_executable=True)
    made = SnapshotManifest.of([run, ManifestLink("now", "bin/run")])
    snapshots.receive(sha(b"run"), [b"run"], owner=UID)
    tree = snapshots.unpack(snapshots.finish(made, owner=UID), job_id="job", owner=UID, gid=UID + 7)
    paths = [tree, tree / "bin", tree / "bin" / "run", tree / "now"]
    assert {(each.lstat().st_uid, each.lstat().st_gid) for each in paths} == {(UID, UID + 7)}
    assert stat.S_IMODE((tree / "bin" / "run").stat().st_mode) == 0o700
    assert tree.parent.stat().st_uid == 0


@pytest.mark.parametrize("sent", [b"", b"on", b"oned", b"eno"])
def test_upload_with_wrong_hash_stores_nothing(snapshots: Snapshots, root: Path, sent: bytes):
    with pytest.raises(UserError, match=r"does not match its hash .*; the file may have changed"):
        snapshots.receive(sha(b"one"), [sent], owner=UID)
    assert names_in(root) == []
    assert snapshots.used_bytes(owner=UID) == 0


def test_aborted_upload_stores_nothing(snapshots: Snapshots, root: Path):
    def chunks() -> Iterator[bytes]:
        yield b"on"
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        snapshots.receive(sha(b"one"), chunks(), owner=UID)
    assert names_in(root) == []
    assert snapshots.used_bytes(owner=UID) == 0


def test_upload_over_the_size_limit_is_refused(
    snapshots: Snapshots, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(upload, "MAX_FILE_BYTES", 10 * KIB)
    with pytest.raises(UserError, match="is larger than 10,240 bytes"):
        snapshots.receive(sha(b"x"), iter(lambda: bytes(KIB), None), owner=UID)
    assert snapshots.used_bytes(owner=UID) == 0


@pytest.mark.parametrize("name", ["", "x", "../../etc/passwd", "A" * 64, "0" * 63, "0" * 64 + "\n"])
def test_invalid_hashes_are_refused(snapshots: Snapshots, name: str):
    with pytest.raises(UserError, match="is not a SHA-256 hash"):
        snapshots.receive(name, [b""], owner=UID)
    with pytest.raises(UserError, match="is not a SHA-256 hash"):
        snapshots.unpack(name, job_id="job", owner=UID, gid=UID)
    with pytest.raises(UserError, match="is not a SHA-256 hash"):
        snapshots.has(name, owner=UID)
    with pytest.raises(UserError, match="is not a valid uid"):
        snapshots.receive("0" * 64, [b""], owner=-1)


def test_the_quota(root: Path):
    """A content counts in full blocks, and once more in each snapshot, with its folders."""
    snapshots = Snapshots(root, quota_bytes=100 * KIB)
    put(snapshots, a=bytes(5 * KIB))
    assert snapshots.used_bytes(owner=UID) == (8 + 8 + 4 + 4) * KIB
    put(snapshots, a=bytes(5 * KIB))
    snapshots.receive(sha(bytes(5 * KIB)), [bytes(5 * KIB)], owner=UID)
    assert snapshots.used_bytes(owner=UID) == 24 * KIB
    with pytest.raises(UserError, match="exceed your quota of 102,400 bytes"):
        snapshots.receive(sha(b"x"), [bytes(40 * KIB), bytes(40 * KIB)], owner=UID)
    assert snapshots.used_bytes(owner=UID) == 24 * KIB
    large = manifest(a=b"a" * 40 * KIB)
    snapshots.receive(sha(b"a" * 40 * KIB), [b"a" * 40 * KIB], owner=UID)
    with pytest.raises(UserError, match="exceed your quota"):
        snapshots.finish(large, owner=UID)
    assert snapshots.used_bytes(owner=UID) == 64 * KIB
    assert not snapshots.has(large.snapshot_id, owner=UID)
    put(snapshots, owner=OTHER, a=b"a" * 40 * KIB)
    assert Snapshots(root).used_bytes(owner=UID) == 64 * KIB


def test_concurrent_uploads_share_the_quota(root: Path):
    snapshots = Snapshots(root, quota_bytes=100 * KIB)
    with snapshots.upload("0" * 64, owner=UID) as first:
        first.write(bytes(60 * KIB))
        with snapshots.upload("1" * 64, owner=UID) as second, pytest.raises(UserError):
            second.write(bytes(60 * KIB))
    assert snapshots.used_bytes(owner=UID) == 0


def test_prune_removes_what_no_job_uses(snapshots: Snapshots, root: Path):
    old = put(snapshots, a=b"shared", b=b"old")
    new = put(snapshots, a=b"shared", b=b"new")
    foreign = put(snapshots, owner=OTHER, b=b"old")
    for snapshot_id in (old, new):
        snapshots.unpack(snapshot_id, job_id=snapshot_id, owner=UID, gid=UID)
    snapshots.receive(sha(b"stray"), [b"stray"], owner=UID)
    before_bytes = snapshots.used_bytes(owner=UID)
    assert snapshots.prune([]) == 0, "all of it was used within the last hour"

    freed_bytes = snapshots.prune([(UID, new), (OTHER, old)], unused_s=-1)
    assert freed_bytes == (4 + 1 + 1 + 4) * 4 * KIB, "tree, content, stray, all of the other's"
    assert not snapshots.has(foreign, owner=OTHER)
    assert not snapshots.has(old, owner=UID)
    assert snapshots.missing(manifest(a=b"shared", b=b"old"), owner=UID) == [sha(b"old")]
    assert tree_of(snapshots.unpack(new, job_id="job", owner=UID, gid=UID))["b"] == (b"new", False)
    assert snapshots.used_bytes(owner=UID) == before_bytes - 6 * 4 * KIB
    assert snapshots.used_bytes(owner=UID) == Snapshots(root).used_bytes(owner=UID)
    assert names_in(root / str(OTHER)) == []

    snapshots.prune([], unused_s=-1)
    snapshots.prune_workdirs([], unused_s=-1)
    assert names_in(root / str(UID)) == []
    assert snapshots.used_bytes(owner=UID) == 0


def test_recently_used_snapshots_are_not_pruned(snapshots: Snapshots, root: Path):
    snapshot_id = put(snapshots, a=b"a")
    for each in root.rglob("*"):
        os.utime(each, (0, 0))
    assert snapshots.missing(manifest(b=b"a"), owner=UID) == []
    snapshots.prune([])
    assert snapshots.missing(manifest(b=b"a"), owner=UID) == []
    assert not snapshots.has(snapshot_id, owner=UID)
    put(snapshots, a=b"a")
    for each in root.rglob("*"):
        os.utime(each, (0, 0))
    assert snapshots.has(snapshot_id, owner=UID)
    snapshots.prune([])
    snapshots.unpack(snapshot_id, job_id="job", owner=UID, gid=UID)


def test_prune_removes_trees_that_jobs_changed(snapshots: Snapshots, root: Path):
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    tree = snapshots.unpack(put(snapshots, a=b"a"), job_id="job", owner=UID, gid=UID)
    (tree / "made" / "closed").mkdir(parents=True)
    (tree / "made" / "closed" / "file").touch()
    (tree / "made" / "closed").chmod(0)
    (tree / "made").chmod(0)
    (tree / "link").symlink_to(outside)
    snapshots.prune([], unused_s=-1)
    snapshots.prune_workdirs([], unused_s=-1)
    assert list((root / str(UID) / "workdirs").iterdir()) == []
    assert list((root / str(UID) / "trash").iterdir()) == []
    assert (outside / "precious").exists()


def test_corrupt_blob_is_detected_and_requested_again(snapshots: Snapshots, root: Path):
    snapshot_id = put(snapshots, a=b"one")
    blob = root / str(UID) / "blobs" / sha(b"one")[:2] / sha(b"one")
    blob.chmod(0o600)
    blob.write_bytes(b"eno")
    with pytest.raises(UnavailableError, match="is corrupt or missing; ship the folder again"):
        snapshots.unpack(snapshot_id, job_id="job", owner=UID, gid=UID)
    assert names_in(root) == [f"{UID}/manifests/{snapshot_id}"]
    assert put(snapshots, a=b"one") == snapshot_id
    assert tree_of(snapshots.unpack(snapshot_id, job_id="job", owner=UID, gid=UID)) == {
        "a": (b"one", False)
    }


@pytest.mark.parametrize("content", [b"", b"4096\n", b"4096\n{}", b"x\n" + manifest().to_json()])
def test_corrupt_manifest_is_detected(snapshots: Snapshots, root: Path, content: bytes):
    snapshot_id = put(snapshots, a=b"one")
    put(snapshots, owner=OTHER, a=b"one")
    (root / str(UID) / "manifests" / snapshot_id).write_bytes(content)
    again = Snapshots(root)
    with pytest.raises(UnavailableError, match="is corrupt"):
        again.unpack(snapshot_id, job_id="job", owner=UID, gid=UID)
    with pytest.raises(UnavailableError, match="is corrupt"):
        again.prune([(UID, snapshot_id)], unused_s=-1)
    assert len(names_in(root / str(UID) / "blobs")) == 1, "it may still be needed"
    assert names_in(root / str(OTHER)) == [], "others do not suffer"
    again.prune([], unused_s=-1)
    assert names_in(root) == []


def test_start_removes_leftovers_of_a_crash(snapshots: Snapshots, root: Path):
    snapshot_id = put(snapshots, a=b"a")
    tree = snapshots.unpack(snapshot_id, job_id="job", owner=UID, gid=UID)
    before = names_in(root)
    for place in ("drafts", "trash"):
        (root / str(UID) / place / "half").mkdir()
        (root / str(UID) / place / "half" / "file").touch()
        (root / str(UID) / place / "content").touch()
    (root / "README").touch()
    again = Snapshots(root)
    assert names_in(root) == sorted([*before, "README"])
    assert again.unpack(snapshot_id, job_id="job", owner=UID, gid=UID) == tree


def test_root_that_cannot_be_created(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(UnavailableError, match="file/snapshots: not a directory; check this disk"):
        Snapshots(tmp_path / "file" / "snapshots")


def test_users_without_an_account_have_a_store_by_name(snapshots: Snapshots, root: Path):
    made = put(snapshots, owner="ann@lab", a=b"a")
    assert snapshots.has(made, owner="ann@lab")
    assert not snapshots.has(made, owner="bob")
    assert not snapshots.has(made, owner=UID)
    odd = put(snapshots, owner="../../etc", a=b"a")
    assert snapshots.has(odd, owner="../../etc")
    assert all(each.parent == root for each in root.parent.rglob("name-*"))
    kept = Snapshots(root)
    kept.prune([("ann@lab", made)], unused_s=-1.0)
    assert kept.has(made, owner="ann@lab")
    assert not kept.has(odd, owner="../../etc")


def test_every_job_has_its_own_copy_which_it_keeps(snapshots: Snapshots):
    snapshot_id = put(snapshots, a=b"shipped")
    first, second = (
        snapshots.unpack(snapshot_id, job_id=job, owner=UID, gid=UID) for job in ("one", "two")
    )
    (first / "a").write_bytes(b"changed")
    (first / "result").write_bytes(b"42")
    assert tree_of(second) == {"a": (b"shipped", False)}
    again = snapshots.unpack(snapshot_id, job_id="one", owner=UID, gid=UID)
    assert (again, (again / "result").read_bytes()) == (first, b"42")


def test_copies_of_ended_jobs_are_kept_for_a_time(snapshots: Snapshots):
    snapshot_id = put(snapshots, a=b"a")
    trees = [
        snapshots.unpack(snapshot_id, job_id=job, owner=UID, gid=UID) for job in ("live", "ended")
    ]
    for each in trees:
        os.utime(each.parent, (0, 0))
    snapshots.prune_workdirs(["live"], unused_s=3600)
    assert [each.exists() for each in trees] == [True, False]
    snapshots.prune_workdirs([], unused_s=3600)
    assert trees[0].exists(), "the time counts from the end of the job"


@pytest.mark.parametrize("job_id", ["", ".", "../x", "a/b", "a\0"])
def test_a_job_id_cannot_leave_the_folder(snapshots: Snapshots, job_id: str):
    with pytest.raises(UserError, match="cannot be the name of a folder"):
        snapshots.unpack(put(snapshots, a=b"a"), job_id=job_id, owner=UID, gid=UID)


def test_a_start_survives_a_deep_tree_in_the_trash(root: Path):
    """1,500 nested folders of one job once kept the daemon from every later start."""
    trash = root / "1000" / "trash"
    trash.mkdir(parents=True)
    fd = os.open(trash, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    Snapshots(root)
    Snapshots(root).prune(())
    assert list(trash.iterdir()) == []
