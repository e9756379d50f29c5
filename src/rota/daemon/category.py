"""Which jobs are taken to run alike, so that each begins with what the others measured."""

from __future__ import annotations

import hashlib
import json

from rota.core.model import JobSpec
from rota.wire.jobs import JobRequest


def category_of(request: JobRequest, spec: JobSpec, *, name: str) -> str:
    """Jobs of one user with the same `name`, or else with the same code and arguments, whose
    workers hold the same. What somebody else measured under that name does not count."""
    share = spec.share
    worker = [spec.gpus, share.fraction if share else 0.0, share.memory_bytes if share else 0]
    code = [request.command, request.snapshot, request.image, request.workdir]
    what = ["name", name] if name else ["code", *code]
    return hashlib.sha256(json.dumps([spec.user, worker, what]).encode()).hexdigest()[:32]
