"""Jobs with shipped code: each works in its own copy, and what it writes there survives."""

import os
import pwd
from pathlib import Path

import pytest

from rota.client import Client
from tests.support.daemon_process import DaemonProcess

PROGRAM = """
say "$(cat shipped.txt)"
echo "$ROTA_ATTEMPT" >> result.txt
echo changed > shipped.txt
say "$PWD"
[ "$ROTA_ATTEMPT" = 2 ] || exit 3
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    code = tmp_path / "code"
    code.mkdir()
    (code / "shipped.txt").write_text("shipped\n")
    return code


def test_results_survive_a_retry_and_are_not_shared(daemon: DaemonProcess, folder: Path) -> None:
    snapshot = daemon.client.ship(folder)
    first = daemon.submit(PROGRAM, snapshot=snapshot, retries=1, workdir="")
    assert daemon.ends(first).state == "succeeded"
    said = [line.words for line in daemon.heard(first)]
    assert (said[0], said[2]) == ("shipped", "changed")
    place = Path(said[1])
    assert said[3] == str(place)
    assert (place / "result.txt").read_text() == "1\n2\n"
    second = daemon.submit('say "$(cat shipped.txt)"', snapshot=snapshot, workdir="")
    assert daemon.ends(second).state == "succeeded"
    daemon.says(second, "shipped")
    assert (place / "result.txt").exists()
    assert (folder / "shipped.txt").read_text() == "shipped\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")
def test_the_copy_belongs_to_the_owner_of_the_job(daemon: DaemonProcess, folder: Path) -> None:
    user = next(each for each in pwd.getpwall() if each.pw_uid != 0)
    daemon.place.chmod(0o777)
    daemon.home.chmod(0o711)
    token = daemon.client.create_token(user=user.pw_name).secret
    with Client(daemon.door, token=token) as client:
        request = daemon.request("touch result; pwd", snapshot=client.ship(folder), workdir="")
        job = client.submit(request)
        assert daemon.ends(job).state == "succeeded", daemon.output(job)
        place = Path(b"".join(client.log_bytes(job)).decode().strip())
    assert {each.stat().st_uid for each in (place, place / "result")} == {user.pw_uid}
    assert place.stat().st_mode & 0o077 == 0
    assert place.parent.stat().st_uid == 0
