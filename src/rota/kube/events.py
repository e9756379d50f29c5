"""Events: what `kubectl describe` shows of an object besides the object itself."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime

from rota.engines.kubernetes.objects import Kind, Object
from rota.errors import shown

LONGEST_MESSAGE = 1000


def notice(about: Object, *, kind: Kind, reason: str, words: str) -> Object:
    """`about` is the object that it is told of."""
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
        "message": shown(words, LONGEST_MESSAGE),
        "type": "Warning",
        "source": {"component": "rota"},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
