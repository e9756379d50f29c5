"""Tests of the cluster name missing parts: they are skipped locally and fail in CI."""

import os
import subprocess
import sys
from pathlib import Path

from tests.tidy.tree import ROOT

TEST = "tests/kubernetes/test_cluster.py::test_node_has_the_gpus_of_its_device_plugin"


def run(tmp_path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run tests on a machine without programs other than Python."""
    unset = ("CI", "KUBECONFIG", "KUBEBUILDER_ASSETS", "ROTA_CLUSTER")
    env = {name: value for name, value in os.environ.items() if name not in unset}
    env |= {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), **variables}
    command = [sys.executable, "-m", "pytest", "-n", "1", "-q", "-p", "no:cacheprovider", TEST]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def test_missing_parts_are_named(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout
    assert "1 skipped" in done.stdout
    said = next(line for line in done.stdout.splitlines() if "no Kubernetes cluster" in line)
    assert "etcd (Debian package etcd-server)" in said
    assert "ctr, kwok, stages.yaml, deviceplugin, or Go to build them" in said


def test_missing_parts_fail_in_ci(tmp_path: Path) -> None:
    done = run(tmp_path, CI="true")
    assert done.returncode == 1, done.stdout
    assert "no test cluster without" in done.stdout
    assert "etcd (Debian package etcd-server)" in done.stdout
