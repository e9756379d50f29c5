"""Stages for KWOK that let simulated nodes treat pods like kubelets, also at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

ENDED = """
phase: Failed
containerStatuses:
{{ range .spec.containers }}
- image: {{ .image | Quote }}
  name: {{ .name | Quote }}
  ready: false
  restartCount: 0
  state:
    terminated:
      exitCode: 143
      reason: Error
      startedAt: {{ Now | Quote }}
      finishedAt: {{ Now | Quote }}
{{ end }}
"""
PHASE, DELETED = ".status.phase", ".metadata.deletionTimestamp"


def with_pod_end_stage(stages: Path) -> str:
    """KWOK's own stages, with one change: a deleted pod reports its end before it is removed, so
    that its GPUs are free while a finalizer still keeps the object."""
    found = list(yaml.safe_load_all(stages.read_text()))
    for each in found:
        if each["metadata"]["name"] == "pod-delete":
            over = {"key": PHASE, "operator": "In", "values": ["Succeeded", "Failed"]}
            each["spec"]["selector"]["matchExpressions"].append(over)
    return yaml.safe_dump_all([*found, _ended()])


def _ended() -> dict[str, Any]:
    selector = [
        {"key": DELETED, "operator": "Exists"},
        {"key": PHASE, "operator": "In", "values": ["Pending", "Running"]},
    ]
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": "pod-ended"},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
            "selector": {"matchExpressions": selector},
            "next": {"statusTemplate": ENDED},
        },
    }
