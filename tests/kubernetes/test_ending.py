"""Nothing of a cluster is left after its processes were killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from secrets import token_hex

import pytest

from tests.kubernetes.cluster.api import Api, until
from tests.kubernetes.cluster.control import Control
from tests.kubernetes.cluster.handle import Cluster, python_pod
from tests.kubernetes.cluster.layout import PROJECT, SECOND, ClusterLayout
from tests.kubernetes.cluster.lifecycle import wait_for_end
from tests.kubernetes.cluster.namespace_supervisor import clean_up_all
from tests.kubernetes.cluster.nodes import start_second
from tests.kubernetes.support.leak_check import init_process_of, leftovers, supervisor_of, traces
from tests.support.seed_counts import only_long

pytestmark = only_long

PODS = "/api/v1/namespaces/default/pods"
SLEEPER = "import time; print('here', flush=True); time.sleep(600)"
HOLDER = """
import sys
from tests.kubernetes.cluster.lifecycle import join_or_start
control = join_or_start(sys.argv[1])
print("up", flush=True)
sys.stdin.read()
"""


@contextmanager
def other_cluster() -> Iterator[tuple[ClusterLayout, int]]:
    """A separate cluster, held by a process that can be killed."""
    place = ClusterLayout(f"other-{token_hex(3)}")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, place.name],
        cwd=PROJECT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout
        assert holder.stdout.readline() == "up\n"
        yield place, holder.pid
    finally:
        holder.kill()
        holder.communicate()
        wait_for_end(place)


def run_pod(place: ClusterLayout) -> None:
    api = Api(place.kubeconfig)
    api.create(PODS, python_pod("sleeper", SLEEPER))
    until(lambda: api.text(f"{PODS}/sleeper/log"), "a running pod")


def run_second_node(place: ClusterLayout) -> None:
    api, pod = Api(place.kubeconfig), python_pod("there", SLEEPER)
    pod["spec"]["nodeName"] = SECOND.node
    with closing(Control(place.socket)) as control:
        start_second(api, place, control=control)
    api.create(PODS, pod)
    until(lambda: api.text(f"{PODS}/there/log"), "a pod on the second node")


@pytest.mark.parametrize("killed", ["holder", "warden", "keeper"])
def test_nothing_is_left_of_a_cluster(running_cluster: Cluster, killed: str) -> None:
    if running_cluster.ours is None:
        pytest.skip("a given cluster is not ended")
    with other_cluster() as (place, holder):
        run_pod(place)
        if killed == "keeper":
            run_second_node(place)
        alive = traces(place)
        assert {"processes", "links", "routes", "groups", "files"} <= leftovers(alive).keys()
        pids = {
            "holder": holder,
            "keeper": int(init_process_of(place).name),
            "warden": supervisor_of(place),
        }
        os.kill(pids[killed], signal.SIGKILL)
        wait_for_end(place)
        clean_up_all()
        until(lambda: not leftovers(alive), "the end")
    assert leftovers(alive) == {}
