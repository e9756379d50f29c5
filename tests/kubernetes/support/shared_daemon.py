"""A daemon that all tests of a file use one after the other, because its start takes seconds."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.kubernetes.cluster.file_locks import locked
from tests.kubernetes.cluster.handle import Cluster
from tests.kubernetes.support.cluster_locks import lock_of, use_of
from tests.kubernetes.support.daemon_process import KubernetesDaemonProcess, kubernetes_daemon


@contextmanager
def shared_namespace(cluster: Cluster) -> Iterator[str]:
    """Shared with other users of the cluster."""
    with locked(use_of(cluster), is_shared=True), cluster.namespace() as name:
        yield name


@contextmanager
def shared_daemon(cluster: Cluster, **settings: str) -> Iterator[KubernetesDaemonProcess]:
    with (
        shared_namespace(cluster) as namespace,
        kubernetes_daemon(cluster, namespace, **settings) as made,
    ):
        yield made


@contextmanager
def exclusive_use(shared: KubernetesDaemonProcess) -> Iterator[KubernetesDaemonProcess]:
    """With a running daemon, all GPUs of its node, and no jobs of other tests."""
    with locked(lock_of(shared.cluster, "cards")):
        if shared.process is None or shared.process.poll() is not None:
            shared.up()
        yield shared
        shared.clear()
