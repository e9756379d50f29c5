"""A shipped folder as a stream."""

import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from rota.daemon.archives import archive
from rota.errors import UnavailableError
from rota.wire.manifest import File, Link, Manifest
from tests.ships import tree_of

LONG = "/".join(["folder" * 10] * 5)


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def a_file(path: str, content: bytes, *, is_executable: bool = False) -> File:
    return File(path, sha(content), len(content), is_executable)


def test_what_is_unpacked_is_what_was_shipped(tmp_path: Path) -> None:
    contents = [b"", b"one block and more" * 100, b"x" * 512, "größe".encode()]
    by_hash = {sha(each): each for each in contents}
    manifest = Manifest.of(
        [
            a_file("empty", contents[0]),
            a_file(f"{LONG}/train.py", contents[1]),
            a_file("run.sh", contents[2], is_executable=True),
            a_file("größe/ü.txt", contents[3]),
            Link("latest", LONG),
        ]
    )
    stream = archive(manifest, lambda sha256: io.BytesIO(by_hash[sha256]), now_s=1_700_000_000.0)
    with tarfile.open(fileobj=io.BytesIO(b"".join(stream)), mode="r|") as found:
        found.extractall(tmp_path, filter="fully_trusted")
    assert tree_of(tmp_path) == {
        "empty": (b"", False),
        f"{LONG}/train.py": (contents[1], False),
        "run.sh": (contents[2], True),
        "größe/ü.txt": (contents[3], False),
        "latest": (LONG, False),
    }
    assert (tmp_path / "run.sh").stat().st_mtime == 1_700_000_000
    assert (tmp_path / LONG).stat().st_mode & 0o777 == 0o777, "whoever runs there may add to it"


@pytest.mark.parametrize("found", [b"other", b"shorter"[:3], b"longer than it was"])
def test_a_damaged_content_breaks_it_off(found: bytes) -> None:
    manifest = Manifest.of([a_file("train.py", b"train")])
    with pytest.raises(UnavailableError, match=r"'train.py' is damaged"):
        list(archive(manifest, lambda _: io.BytesIO(found), now_s=0.0))
