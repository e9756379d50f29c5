"""The cluster that these tests share.

The first test that needs it starts it, in any process of the run, and the last process ends it.
A given `KUBECONFIG` is used instead; `ROTA_CLUSTER=dev` joins the cluster of `scripts/cluster up
dev`. If programs are missing, the tests are skipped; in CI they fail.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.cluster.api import Api
from tests.kubernetes.cluster.binaries import MissingError
from tests.kubernetes.cluster.file_locks import locked
from tests.kubernetes.cluster.handle import Cluster
from tests.kubernetes.cluster.layout import ClusterLayout
from tests.kubernetes.cluster.lifecycle import join_or_start, leave
from tests.kubernetes.support.cluster_locks import lock_of, use_of
from tests.kubernetes.support.daemon_process import KubernetesDaemonProcess
from tests.kubernetes.support.shared_daemon import exclusive_use, shared_daemon

SKIPPED = "no Kubernetes cluster: "


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session")
def running_cluster(testrun_uid: str) -> Iterator[Cluster]:
    if given := os.environ.get("KUBECONFIG"):
        yield Cluster(Path(given), Api(Path(given)))
        return
    place = ClusterLayout(os.environ.get("ROTA_CLUSTER") or f"run-{testrun_uid[:12]}")
    try:
        control = join_or_start(place.name)
    except MissingError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(f"{SKIPPED}{error}")
    yield Cluster(place.kubeconfig, Api(place.kubeconfig), (place, control))
    leave(place, control)


@pytest.fixture
def cluster(running_cluster: Cluster) -> Iterator[Cluster]:
    """The cluster, shared with the tests of other processes: leave its parts and nodes alone."""
    with locked(use_of(running_cluster), is_shared=True):
        yield running_cluster


@pytest.fixture
def cards(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster, shared with other tests, but with all GPUs of its node for this test. Request
    it before a namespace, so that the namespace releases the GPUs first."""
    with locked(lock_of(cluster, "cards")):
        yield cluster


@pytest.fixture
def whole_cluster(running_cluster: Cluster) -> Iterator[Cluster]:
    """The cluster for this test only, which may stop its parts and count its nodes."""
    if running_cluster.ours is None:
        pytest.skip("parts of a given cluster are not stopped")
    with locked(use_of(running_cluster)):
        yield running_cluster


@pytest.fixture
def namespace(running_cluster: Cluster) -> Iterator[str]:
    with running_cluster.namespace() as name:
        yield name


@pytest.fixture(scope="module")
def shared(running_cluster: Cluster) -> Iterator[KubernetesDaemonProcess]:
    """The daemon of a module. A module with other settings has a fixture of this name."""
    with shared_daemon(running_cluster) as made:
        yield made


@pytest.fixture
def kube_daemon(shared: KubernetesDaemonProcess) -> Iterator[KubernetesDaemonProcess]:
    """The daemon of the module, without jobs of other tests and with all GPUs of its node."""
    with exclusive_use(shared) as made:
        yield made


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report skipped cluster tests once, because they are easily overlooked."""
    reasons = {
        str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)
        for report in terminalreporter.stats.get("skipped", [])
    }
    for reason in sorted(each for each in reasons if SKIPPED in each):
        terminalreporter.write_line(reason, red=True, bold=True)
