"""What all tests of a file use one after the other: a daemon takes seconds to start."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.kubernetes.cluster.handle import Cluster
from tests.kubernetes.cluster.locks import locked
from tests.kubernetes.conftest import lock_of, use_of
from tests.kubernetes.outpost import Outpost, an_outpost


@contextmanager
def a_namespace(cluster: Cluster) -> Iterator[str]:
    """Beside whoever else uses the cluster."""
    with locked(use_of(cluster), is_shared=True), cluster.namespace() as name:
        yield name


@contextmanager
def a_shared_outpost(cluster: Cluster, **settings: str) -> Iterator[Outpost]:
    with a_namespace(cluster) as namespace, an_outpost(cluster, namespace, **settings) as made:
        yield made


@contextmanager
def a_turn(shared: Outpost) -> Iterator[Outpost]:
    """With its daemon up, all cards of its node, and none of the others' jobs."""
    with locked(lock_of(shared.cluster, "cards")):
        if shared.daemon is None or shared.daemon.poll() is not None:
            shared.up()
        yield shared
        shared.clear()
