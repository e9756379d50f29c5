"""Code that is shipped with jobs, to pods that see nothing of the daemon's disk."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.client import Client
from rota.wire.jobs import JobRequest
from tests.kubernetes.cluster.handle import Cluster
from tests.kubernetes.outpost import Outpost
from tests.kubernetes.shared import a_shared_outpost, a_turn
from tests.kubernetes.test_people import person, token_of

__all__ = ["person"]

MAIN = """
. ./words.sh
touch added ../added
echo "$ROTA_JOB $ROTA_ATTEMPT $words" >> "$HERE/journal"
"""


@pytest.fixture(scope="module")
def shared(running_cluster: Cluster) -> Iterator[Outpost]:
    with a_shared_outpost(running_cluster) as made:
        yield made


@pytest.fixture
def outpost(shared: Outpost) -> Iterator[Outpost]:
    with a_turn(shared) as made:
        yield made


@pytest.fixture
def code(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.sh").write_text(MAIN)
    (tmp_path / "words.sh").write_text("words=shipped")
    (tmp_path / "src" / "words.sh").symlink_to("../words.sh")
    return tmp_path


def test_a_job_runs_in_what_was_shipped_with_it(outpost: Outpost, code: Path) -> None:
    env = ["--env", f"HERE={outpost.place}"]
    flags = ["--ship", str(code), "--workdir", "src", "--gpus", "1", *env]
    done = outpost.rota("submit", *flags, "--", "sh", "main.sh")
    assert (done.returncode, done.stderr) == (0, "")
    job = done.stdout.strip()
    outpost.says(job, "shipped")
    assert outpost.ends(job).state == "succeeded", outpost.why(job)


def test_somebody_whom_only_the_cluster_knows_ships_as_well(
    outpost: Outpost, code: Path, person: tuple[str, Path]
) -> None:
    outpost.place.chmod(0o777)
    with Client(f"http://{outpost.listen}", token=token_of(person[1])) as theirs:
        env = {"HERE": str(outpost.place)}
        snapshot = theirs.ship(code)
        request = JobRequest(["sh", "src/main.sh"], env=env, gpus="1", snapshot=snapshot)
        job = theirs.submit(request)
    outpost.says(job, "shipped")
    assert outpost.ends(job).state == "succeeded", outpost.why(job)


def test_a_daemon_that_lost_what_was_shipped_says_so(outpost: Outpost, code: Path) -> None:
    snapshot = outpost.client.ship(code)
    request = JobRequest(["sh", "main.sh"], workdir="src", gpus="1", snapshot=snapshot, hold=True)
    job = outpost.client.submit(request)
    outpost.kill()
    shutil.rmtree(outpost.state / "snapshots")
    outpost.up()
    outpost.client.release(job)
    ended = outpost.ends(job)
    assert ended.state == "failed"
    assert "what was shipped with it is not here" in ended.reason
    assert outpost.has_room()
