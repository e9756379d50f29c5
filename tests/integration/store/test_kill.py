"""After kill -9 at any time, acknowledged batches are complete and no batch is partial."""

from __future__ import annotations

import random
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from rota.store.memory import MemoryStore
from rota.store.records import UsageRecord
from rota.store.sqlite.check import check
from rota.store.sqlite.store import SqliteStore
from tests.integration.store.write_until_killed import numbered
from tests.support.processes import started
from tests.support.seed_counts import seeds
from tests.tidy.tree import ROOT

COUNT = 1_000


@pytest.mark.parametrize("seed", seeds(100))
def test_nothing_acknowledged_is_lost(path: Path, seed: int):
    acknowledged = write_and_kill(path, seed, after=random.Random(seed).randrange(1, 200))
    assert check(path) == []
    reopened = SqliteStore(path)
    (marker,) = reopened.rows(UsageRecord)
    n_written = int(marker.gpu_s)
    assert n_written >= acknowledged
    expected = MemoryStore()
    for batch in islice(numbered(seed, COUNT), n_written):
        expected.write(batch).result()
    assert reopened.load() == expected.load()
    assert reopened.story() == expected.story()
    for job in expected.jobs().jobs:
        assert reopened.attempts(job.id) == expected.attempts(job.id)
    reopened.close()


def write_and_kill(path: Path, seed: int, *, after: int) -> int:
    """The highest number that a process acknowledged before it was killed."""
    command = [sys.executable, "-m", "tests.integration.store.write_until_killed"]
    with started(
        [*command, str(path), str(seed), str(COUNT)], stdout=subprocess.PIPE, cwd=ROOT
    ) as writer:
        assert writer.stdout is not None
        answers = [int(line) for line in islice(writer.stdout, after)]
        writer.kill()
        # Lines after the last read count as well, except an incomplete last line.
        answers += [int(line) for line in writer.stdout if line.endswith(b"\n")]
    assert len(answers) >= after, "it ended by itself"
    assert answers == list(range(1, len(answers) + 1)), "acknowledged in the order of the calls"
    return answers[-1]
