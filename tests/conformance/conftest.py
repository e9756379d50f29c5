"""Engines made ready for a scenario; for one of them, a cluster."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.conformance.stages import STAGES, KubernetesStage, Stage
from tests.kubernetes.conftest import cards, cluster, namespace, running_cluster

__all__ = ["cards", "cluster", "namespace", "running_cluster", "stage"]


@pytest.fixture
def stage(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> AbstractAsyncContextManager[Stage]:
    if engine in STAGES:
        return STAGES[engine](tmp_path)
    kubeconfig: Path = request.getfixturevalue("cards").kubeconfig
    return KubernetesStage(tmp_path, kubeconfig, namespace=request.getfixturevalue("namespace"))
