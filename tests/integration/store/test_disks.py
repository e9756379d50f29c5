"""Real disks that are full, read-only or limited, in separate processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rota.errors import StoreError, StoreErrorKind
from rota.store.sqlite.check import check
from rota.store.sqlite.store import SqliteStore
from tests.tidy.tree import ROOT

UNSHARE = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--map-root-user"]


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def can_mount(folder: Path) -> bool:
    try:
        return run(*UNSHARE, "mount", "-t", "tmpfs", "tmpfs", str(folder)).returncode == 0
    except FileNotFoundError:
        return False


def test_full_and_read_only_disk_fails_writes_and_loses_nothing(tmp_path: Path):
    if not can_mount(tmp_path):
        pytest.skip("needs the right to mount")
    module = "tests.integration.store.write_on_full_disk"
    done = run(*UNSHARE, sys.executable, "-m", module, str(tmp_path))
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "full",
        "still full",
        "goes on",
        "whole",
        "all there",
        "opened read-only: read_only",
        "nothing half-made",
    ]


def test_file_size_limit_fails_writes(path: Path):
    done = run(sys.executable, "-m", "tests.integration.store.write_with_file_limit", str(path))
    assert done.stderr == ""
    assert check(path) == []
    store = SqliteStore(path)
    assert [job.id for job in store.load().jobs] == done.stdout.split()
    store.close()


def test_immutable_file_fails_writes(filled: Path):
    """Root may write every file that is not immutable."""
    if os.geteuid() != 0:
        filled.chmod(0o400)
    elif run("chattr", "+i", str(filled)).returncode != 0:
        pytest.skip("this file system knows no immutable files")
    try:
        with pytest.raises(StoreError) as caught:
            SqliteStore(filled)
        assert caught.value.kind is StoreErrorKind.READ_ONLY
    finally:
        if os.geteuid() == 0:
            run("chattr", "-i", str(filled))
