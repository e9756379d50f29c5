"""A snapshot as a tar stream."""

import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from rota.daemon.artifacts.tar_stream import archive
from rota.errors import UnavailableError
from rota.wire.manifest import ManifestFile, ManifestLink, SnapshotManifest
from tests.support.shipping import tree_of

LONG = "/".join(["folder" * 10] * 5)


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def a_file(path: str, content: bytes, *, is_executable: bool = False) -> ManifestFile:
    return ManifestFile(path, sha(content), len(content), is_executable)


def test_extracted_archive_equals_the_folder(tmp_path: Path) -> None:
    contents = [b"", b"one block and more" * 100, b"x" * 512, "größe".encode()]
    by_hash = {sha(each): each for each in contents}
    manifest = SnapshotManifest.of(
        [
            a_file("empty", contents[0]),
            a_file(f"{LONG}/train.py", contents[1]),
            a_file("run.sh", contents[2], is_executable=True),
            a_file("größe/ü.txt", contents[3]),
            ManifestLink("latest", LONG),
        ]
    )
    stream = archive(manifest, lambda sha256: io.BytesIO(by_hash[sha256]), now_s=1_700_000_000.0)
    with tarfile.open(fileobj=io.BytesIO(b"".join(stream)), mode="r|") as found:
        # Python 3.11 has the argument `filter` from 3.11.4 on only, and Debian 12 has 3.11.2.
        found.extraction_filter = lambda member, _path: member
        found.extractall(tmp_path)
    assert tree_of(tmp_path) == {
        "empty": (b"", False),
        f"{LONG}/train.py": (contents[1], False),
        "run.sh": (contents[2], True),
        "größe/ü.txt": (contents[3], False),
        "latest": (LONG, False),
    }
    assert (tmp_path / "run.sh").stat().st_mtime == 1_700_000_000
    assert (tmp_path / LONG).stat().st_mode & 0o777 == 0o777, "any user of the pod may write"


@pytest.mark.parametrize("found", [b"other", b"shorter"[:3], b"longer than it was"])
def test_corrupt_blob_ends_the_stream_early(found: bytes) -> None:
    manifest = SnapshotManifest.of([a_file("train.py", b"train")])
    with pytest.raises(UnavailableError, match=r"'train.py' is corrupt"):
        list(archive(manifest, lambda _: io.BytesIO(found), now_s=0.0))
