"""A write is acknowledged only after it is synced."""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from rota.store.sqlite.connect import make_durable
from tests.integration.store.write_until_killed import IN_FLIGHT
from tests.tidy.tree import ROOT

N_BATCHES = 40
CALL = re.compile(r"\b(?:fdata|f)sync\(|write\(1, \"\d+\\n")


def test_the_writer_asks_for_every_commit_to_be_synced(path: Path):
    with closing(sqlite3.connect(path)) as connection:
        make_durable(connection)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)


def test_the_kernel_sees_a_sync_before_every_group_of_answers(path: Path, tmp_path: Path):
    if shutil.which("strace") is None:
        pytest.skip("needs strace")
    trace = tmp_path / "trace"
    watch = ["strace", "-f", "-qq", "-e", "trace=fsync,fdatasync,write", "-o", str(trace)]
    child = [sys.executable, "-m", "tests.integration.store.write_until_killed", str(path), "1"]
    done = subprocess.run(
        [*watch, *child, str(N_BATCHES)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if "ptrace" in done.stderr:
        pytest.skip("may not trace")
    assert done.stderr == ""
    calls = "".join("s" if "sync" in call else "a" for call in CALL.findall(trace.read_text()))
    answers = [len(group) for group in re.findall("a+", calls)]
    assert calls.startswith("s")
    assert sum(answers) == len(done.stdout.split())
    # No more batches than are in flight can wait for the same sync.
    assert max(answers) <= IN_FLIGHT, calls
