"""Builds Kubernetes Events of type Warning about an object, as `kubectl describe` shows them."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime

from rota.errors import shown
from rota.kube.resources import Object, ResourceKind

MAX_MESSAGE_CHARS = 1000


def warning_event(about: Object, *, kind: ResourceKind, reason: str, message: str) -> Object:
    """A Warning event about the object `about`."""
    meta, now = about["metadata"], datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    name = f"{meta['name'][:200]}.{secrets.token_hex(8)}"
    return {
        "metadata": {"name": name, "namespace": meta["namespace"]},
        "involvedObject": {
            "apiVersion": kind.group_version,
            "kind": kind.kind,
            "name": meta["name"],
            "namespace": meta["namespace"],
            "uid": meta["uid"],
        },
        "reason": reason,
        "message": shown(message, MAX_MESSAGE_CHARS),
        "type": "Warning",
        "source": {"component": "rota"},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
