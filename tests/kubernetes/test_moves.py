"""Jobs that migrate between one machine and a cluster."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from rota.client import Client
from tests.e2e.test_moves import PATIENCE, USER
from tests.kubernetes.cluster.handle import Cluster
from tests.kubernetes.support.daemon_process import KubernetesDaemonProcess, kubernetes_daemon
from tests.support.daemon_process import DaemonProcess, temporary_daemon
from tests.support.ports import reserve_port


class Roads(NamedTuple):
    """A box with one GPU, a cluster, and a user of both."""

    box: DaemonProcess
    kube_daemon: KubernetesDaemonProcess
    here: Client
    """The client of that user at the box."""


@pytest.fixture
def roads(cards: Cluster, namespace: str, tmp_path: Path) -> Iterator[Roads]:
    with (
        temporary_daemon(gpus="1x16GiB", settings=PATIENCE) as box,
        kubernetes_daemon(cards, namespace, **PATIENCE) as kube_daemon,
    ):
        for daemon in (box, kube_daemon):
            daemon.home.chmod(0o711)
        kube_daemon.place.chmod(0o777)
        box.place = kube_daemon.place
        box.up("--listen", f"127.0.0.1:{reserve_port()}")
        url = box.client.status().address
        kube_daemon.up()
        at = {"box": (box, url), "cluster": (kube_daemon, f"http://{kube_daemon.listen}")}
        for name, (daemon, door) in at.items():
            token = daemon.client.create_token(user=USER).secret
            (tmp_path / name).write_text(token)
            daemon.tell(ROTA_TOKEN=token, XDG_CONFIG_HOME=str(tmp_path))
            where = ["--plain-http"] if door.startswith("http:") else []
            source = ["--token-file", str(tmp_path / name)]
            added = daemon.rota("context", "add", name, door, *source, *where)
            assert added.returncode == 0, added.stderr
        with Client(url, token=(tmp_path / "box").read_text(), takes_context=False) as here:
            yield Roads(box, kube_daemon, here)


def test_job_moves_to_the_cluster_on_request_or_automatically_and_back(
    roads: Roads, tmp_path: Path
) -> None:
    box, kube_daemon, here = roads
    busy = here.submit(box.request("say busy; await over"))
    box.says(busy, "busy")
    waits = here.submit(box.request("say ran; await on"))
    done = box.rota("resubmit", waits, "--to", "cluster")
    assert (done.returncode, done.stderr) == (0, "")
    moved = done.stdout.strip()
    assert box.ends(waits).reason == f"moved to cluster as {moved}"
    kube_daemon.says(moved, "ran")
    assert kube_daemon.pod_runs(moved)
    code = tmp_path / "code"
    code.mkdir()
    (code / "main.sh").write_text('echo "$ROTA_JOB $ROTA_ATTEMPT alone" >> "$HERE/journal"')
    words = ["--gpus", "1", "--ship", str(code), "--env", f"HERE={kube_daemon.place}"]
    flags = ["--move-after", "1s", "--to", "cluster"]
    done = box.rota("submit", *flags, *words, "--", "sh", "main.sh")
    assert (done.returncode, done.stderr) == (0, "")
    ended = box.ends(done.stdout.strip()).reason
    kube_daemon.says(ended.removeprefix("moved to cluster as "), "alone")
    done = kube_daemon.rota("resubmit", moved, "--to", "box")
    assert (done.returncode, done.stderr) == (0, "")
    assert kube_daemon.ends(moved).state == "cancelled"
    assert kube_daemon.live_pods(moved) == []
    back = done.stdout.strip()
    assert f"moved here from job {moved} at " in here.story(back)[0].reason
    box.allow("over")
    box.says(back, "ran")
    box.allow("on")
    assert box.ends(back).state == "succeeded"
    assert sorted(line.words for line in box.heard()) == ["alone", "busy", "ran", "ran"]
