"""Scanning and uploading a directory, with an in-memory daemon."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

import pytest

from rota.client import shipping
from rota.client.shipping import scan, ship
from rota.errors import UnavailableError, UserError
from rota.wire import manifest as bounds
from rota.wire.manifest import ManifestFile, ManifestLink, SnapshotManifest

NOBODY = 65534


class FakeShippingApi:
    """Stores blobs and rejects a blob with a wrong hash."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.sent: list[bytes] = []
        self.before_put: Callable[[], object] = lambda: None

    def missing(self, manifest: SnapshotManifest) -> list[str]:
        return [sha256 for sha256 in manifest.blobs if sha256 not in self.blobs]

    def put_blob(self, sha256: str, file: BinaryIO) -> None:
        self.before_put()
        content = file.read()
        if hashlib.sha256(content).hexdigest() != sha256:
            raise UserError("not what it should be")
        self.sent.append(content)
        self.blobs[sha256] = content

    def finish(self, manifest: SnapshotManifest) -> str:
        assert self.missing(manifest) == []
        return manifest.snapshot_id


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "code"
    (made / "lib").mkdir(parents=True)
    (made / "train.py").write_text("train")
    (made / "lib" / "copy.py").write_text("train")
    (made / "run").write_text("run")
    (made / "run").chmod(0o755)
    (made / "lib" / "up").symlink_to("../run")
    return made


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def refusal(folder: Path) -> str:
    with pytest.raises(UserError) as caught:
        scan(folder)
    assert caught.value.hint
    return str(caught.value)


def test_scan_lists_all_files(folder: Path):
    assert scan(folder).entries == (
        ManifestFile("lib/copy.py", sha("train"), size_bytes=5, is_executable=False),
        ManifestLink("lib/up", "../run"),
        ManifestFile("run", sha("run"), size_bytes=3, is_executable=True),
        ManifestFile("train.py", sha("train"), size_bytes=5, is_executable=False),
    )


def test_default_patterns_can_be_overridden(folder: Path):
    before = scan(folder)
    for name in (".git", "__pycache__", ".venv", "node_modules"):
        (folder / "lib" / name).mkdir()
        (folder / "lib" / name / "x").touch()
        (folder / "lib" / name / "out").symlink_to("/")
    (folder / "x.pyc").touch()
    (folder / "empty").mkdir()
    assert scan(folder) == before
    (folder / ".rotaignore").write_text("!*.pyc\nrun\n")
    paths = [each.path for each in scan(folder).entries]
    assert paths == [".rotaignore", "lib/copy.py", "lib/up", "train.py", "x.pyc"]
    assert len(scan(folder, ["lib", "*.py"]).entries) == 2


def test_only_missing_blobs_are_uploaded(folder: Path):
    shelf = FakeShippingApi()
    assert ship(folder, shelf) == scan(folder).snapshot_id
    assert sorted(shelf.sent) == [b"run", b"train"]
    shelf.sent.clear()
    (folder / "train.py").write_text("train more")
    changed = ship(folder, shelf)
    assert shelf.sent == [b"train more"]
    assert ship(folder, shelf) == changed
    assert shelf.sent == [b"train more"]


def test_unsupported_files_are_rejected(folder: Path):
    odd = folder / "lib" / "odd"
    os.mkfifo(odd)
    assert refusal(folder) == ("'lib/odd': cannot ship a named pipe; exclude it in .rotaignore")
    odd.unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(odd))
        assert "'lib/odd': cannot ship a socket" in refusal(folder)
    odd.unlink()
    odd.symlink_to("../../secret")
    assert "'lib/odd': symbolic link leads out of the directory, to '../../sec" in refusal(folder)
    odd.unlink()
    odd.symlink_to(folder / "run")
    assert "make it a relative link inside the directory" in refusal(folder)
    odd.unlink()
    odd.symlink_to("odd")
    assert "'lib/odd': symbolic link loop" in refusal(folder)
    odd.unlink()
    (folder / os.fsdecode(b"\xff")).touch()
    assert "'\\udcff': the path or the link's target is not UTF-8; rename it" in refusal(folder)


def test_missing_or_empty_directory(folder: Path):
    assert "is not a directory" in refusal(folder / "nothing")
    assert "is not a directory" in refusal(folder / "run")
    (folder / "empty").mkdir()
    assert "has no files to ship" in refusal(folder / "empty")


@contextmanager
def as_nobody(folder: Path, unreadable: str) -> Iterator[Path]:
    """Root can read everything, so a test as root changes its user for a while."""
    with TemporaryDirectory() as temporary:
        shutil.copytree(folder, f"{temporary}/code", symlinks=True)
        # Readable for everybody, whatever the umask is here, except for the one.
        for each in (Path(temporary), *Path(temporary).rglob("*")):
            if not each.is_symlink():
                each.chmod(each.stat().st_mode | (0o755 if each.is_dir() else 0o444))
        Path(temporary, "code", unreadable).chmod(0o300)
        euid = os.geteuid()
        if euid == 0:
            os.seteuid(NOBODY)
        try:
            yield Path(temporary) / "code"
        finally:
            os.seteuid(euid)


@pytest.mark.parametrize("name", ["run", "lib"])
def test_unreadable_files(folder: Path, name: str):
    with as_nobody(folder, name) as copied:
        words = refusal(copied)
    assert words.startswith(f"'{name}")
    assert "permission denied; make it readable for you, or exclude it" in words


def test_size_limit_is_checked_before_reading(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shipping, "_hashed", None)
    os.truncate(folder / "run", bounds.MAX_FILE_BYTES + 1)
    assert refusal(folder).startswith("'run': the file has 268,435,457 bytes, the limit is")
    for number in range(5):
        (folder / f"{number}").touch()
        os.truncate(folder / f"{number}", bounds.MAX_FILE_BYTES - 1)
    (folder / "run").unlink()
    assert "1,342,177,285 bytes in total, the limit is" in refusal(folder)


def test_count_limits(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bounds, "MAX_FILES", 3)
    assert "more than 3 files; exclude files that the job does not need" in refusal(folder)
    monkeypatch.setattr(bounds, "MAX_FOLDERS", 1)
    (folder / ".rotaignore").write_text("*.py\n")
    assert "more than 1 directories" in refusal(folder)


def test_file_that_grows_while_it_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """Data is written between two reads of the file."""
    monkeypatch.setattr(shipping, "CHUNK_BYTES", 2)
    read = hashlib.sha256

    class Writing:
        def __init__(self) -> None:
            self._inner = read()

        def update(self, chunk: bytes) -> None:
            with (folder / "run").open("a") as file:
                file.write("more")
            self._inner.update(chunk)

        def hexdigest(self) -> str:
            return self._inner.hexdigest()

    monkeypatch.setattr(shipping.hashlib, "sha256", Writing)
    (folder / ".rotaignore").write_text("lib\n*.py\n.rotaignore\n")
    assert refusal(folder).startswith("'run': changed or disappeared while it was read; ship again")


@pytest.mark.parametrize("change", ["grows", "is another", "goes"])
def test_file_that_changes_before_the_upload(folder: Path, change: str):
    (folder / ".rotaignore").write_text("lib\n*.py\n.rotaignore\n")
    run, shelf = folder / "run", FakeShippingApi()
    ways: dict[str, Callable[[], object]] = {
        "grows": lambda: run.write_text("longer"),
        "is another": lambda: run.write_text("RUN"),
        "goes": run.unlink,
    }

    def listed(manifest: SnapshotManifest) -> list[str]:
        ways[change]()
        return list(manifest.blobs)

    shelf.missing = listed
    with pytest.raises(UserError, match="'run': changed or disappeared while it was read"):
        ship(folder, shelf)
    assert shelf.blobs == {}


def test_file_that_changes_during_the_upload(folder: Path):
    shelf = FakeShippingApi()
    shelf.before_put = lambda: (folder / "run").write_text("other")
    (folder / ".rotaignore").write_text("lib\n*.py\n.rotaignore\n")
    with pytest.raises(UserError, match="'run': changed or disappeared"):
        ship(folder, shelf)


def test_daemon_error_is_passed_on(folder: Path):
    shelf = FakeShippingApi()

    def fail() -> None:
        raise UnavailableError("the disk is full")

    def lose() -> None:
        raise ConnectionRefusedError

    shelf.before_put = fail
    with pytest.raises(UnavailableError, match="the disk is full"):
        ship(folder, shelf)
    shelf.before_put = lose
    with pytest.raises(ConnectionRefusedError):
        ship(folder, shelf)


def test_inconsistent_daemon(folder: Path):
    shelf = FakeShippingApi()
    shelf.missing = lambda manifest: [*manifest.blobs, "../x"]
    with pytest.raises(UnavailableError, match="requested an unknown blob"):
        ship(folder, shelf)
    shelf = FakeShippingApi()
    shelf.finish = lambda manifest: manifest.snapshot_id[::-1]
    with pytest.raises(UnavailableError, match="different snapshot id"):
        ship(folder, shelf)
