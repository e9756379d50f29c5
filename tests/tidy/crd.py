"""The schema of a TrainingJob's spec, out of the fields of a request."""

from dataclasses import MISSING, fields
from typing import Any

from rota.core.model.job import Mode
from rota.daemon.jobs.admission import HIGHEST_PRIORITY
from rota.daemon.jobs.validation import MAX_LIST, MAX_MOUNTS, MAX_PORT, MAX_WORDS
from rota.wire.jobs import JobRequest
from tests.tidy.tree import ROOT

FILE = ROOT / "deploy" / "kubernetes" / "base" / "crd.yaml"
TEXT = {"type": "string"}
AMOUNT = {"x-kubernetes-int-or-string": True}
FORMS: dict[str, dict[str, Any]] = {
    "str": TEXT,
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "list[str]": {"type": "array", "items": TEXT},
    "list[int]": {"type": "array", "items": {"type": "integer"}},
    "dict[str, str]": {"type": "object", "additionalProperties": TEXT},
}
AMOUNTS = ("gpus", "gpu_memory", "memory", "time_limit", "grace")
"""Text in which people write a number, too."""
BOUNDS: dict[str, dict[str, Any]] = {
    "command": {"minItems": 1, "maxItems": MAX_WORDS},
    "priority": {"minimum": -HIGHEST_PRIORITY, "maximum": HIGHEST_PRIORITY},
    "mode": {"enum": [each.value for each in Mode]},
    "mounts": {"maxItems": MAX_MOUNTS},
    "retries": {"minimum": 0, "maximum": 1000},
    "gpus_per_worker": {"minimum": 0},
    "umask": {"minimum": 0, "maximum": 0o777},
    "cpus": {"minimum": 0},
    "ports": {"maxItems": MAX_LIST},
}


def spec_schema() -> dict[str, Any]:
    properties = {each.name: _schema(each.name, str(each.type)) for each in fields(JobRequest)}
    properties["workers"] = {"type": "integer", "minimum": 1, "maximum": MAX_PORT}
    required = [each.name for each in fields(JobRequest) if _is_required(each)]
    return {
        "description": "The fields of a job file.",
        "type": "object",
        "required": required,
        "properties": properties,
    }


def _schema(name: str, form: str) -> dict[str, Any]:
    shape = AMOUNT if name in AMOUNTS else FORMS[form.removesuffix(" | None")]
    return {**shape, **BOUNDS.get(name, {})}


def _is_required(each: Any) -> bool:
    return each.default is MISSING and each.default_factory is MISSING
