"""Files that lock the cluster or its GPUs for one test among all processes of a run."""

from pathlib import Path

from tests.kubernetes.cluster.handle import Cluster
from tests.kubernetes.cluster.layout import ClusterLayout


def use_of(cluster: Cluster) -> Path:
    return lock_of(cluster, "use")


def lock_of(cluster: Cluster, purpose: str) -> Path:
    return (cluster.place if cluster.ours else ClusterLayout("given")).lock(purpose)
