"""One harness per engine; that of the Kubernetes engine needs a cluster."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.conformance.harnesses import HARNESSES, EngineHarness, KubernetesEngineHarness
from tests.kubernetes.conftest import cards, cluster, namespace, running_cluster

__all__ = ["cards", "cluster", "harness", "namespace", "running_cluster"]


@pytest.fixture
def harness(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> AbstractAsyncContextManager[EngineHarness]:
    if engine in HARNESSES:
        return HARNESSES[engine](tmp_path)
    kubeconfig: Path = request.getfixturevalue("cards").kubeconfig
    return KubernetesEngineHarness(
        tmp_path, kubeconfig, namespace=request.getfixturevalue("namespace")
    )
