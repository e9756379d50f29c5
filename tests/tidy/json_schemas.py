"""JSON schemas of the output of commands with `--json`, out of the types that they print."""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from rota.client.endpoint import EndpointChoice
from rota.server.doctor_checks import CheckResult
from rota.simulator.metrics import RunMetrics
from rota.wire.daemon import NodeView, SettingView, Status, TokenView
from rota.wire.history import HistoryJob
from rota.wire.jobs import JobDetails, JobView, LogPiece, StoryEntry
from rota.wire.submit_plan import JobPlan
from rota.wire.training import JobProfile
from tests.tidy.tree import ROOT

VERSION = 1
"""Grows when a field is removed or renamed, or its type or meaning changes. A new field or a new
command does not change the version."""
FOLDER = ROOT / "docs" / "reference" / "json"
PAGE = ROOT / "docs" / "reference" / "json.md"
Schema = dict[str, Any]

SCALARS: dict[Any, Schema] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    NoneType: {"type": "null"},
    Any: {},
}
INTRODUCTION = f"""\
# JSON output

<!-- Written by scripts/generate from the types that commands print. Do not edit. -->

Every command with `--json` has a [JSON schema](https://json-schema.org/draft/2020-12). This is
version {VERSION} of the output; each schema has it as `version`. The version grows when a field is
removed or renamed, or when its type or its meaning changes. New fields and new commands do not
change the version: a program must ignore fields that it does not know.

The headings of tables and the labels of `rota show` are the same names. Where a table shows a time,
a duration or an amount in words, its heading leaves out the unit or the `is_` of the name: `age` is
`age_s`, `memory` is `memory_bytes`, `current` is `is_current`. Below the heading, tables of
`rota profile` name the `kind` of a figure, and tables of `rota simulate` its unit.

An error is [one object on one line](json/error.json) of stderr. `logs` and
`submit --follow` print one object per line: the schema describes a line.

| command | schema |
|---|---|
"""


def schema_of(kind: Any) -> Schema:
    if kind in SCALARS:
        return dict(SCALARS[kind])
    if is_dataclass(kind):
        return object_of(fields_of(kind))
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (list, tuple):
        return {"type": "array", "items": schema_of(inner[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": schema_of(inner[1])}
    if origin in (Union, UnionType):
        return {"anyOf": [schema_of(each) for each in inner]}
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return {"type": "string", "enum": [each.value for each in kind]}
    raise TypeError(f"no schema of {kind}")


def fields_of(kind: Any) -> dict[str, Schema]:
    hints = get_type_hints(kind)
    return {each.name: schema_of(hints[each.name]) for each in fields(kind)}


def object_of(properties: Mapping[str, Any], *, optional: tuple[str, ...] = ()) -> Schema:
    """An object that always has all fields, except the optional ones."""
    known = {
        name: each if isinstance(each, dict) else schema_of(each)
        for name, each in properties.items()
    }
    required = [each for each in known if each not in optional]
    return {"type": "object", "properties": known, "required": required}


def list_of(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def one_or_many(schema: Schema) -> Schema:
    return {"anyOf": [schema, list_of(schema)]}


def _lines() -> Schema:
    return {
        "anyOf": [
            object_of({"type": {"const": "log"}, **fields_of(LogPiece)}),
            object_of({"type": {"const": "job"}, **JOB["properties"]}),
        ]
    }


JOB = object_of({**fields_of(JobView), "age_s": float})
"""A job, the same in every command."""
DETAILS = object_of(
    {**JOB["properties"], **{k: v for k, v in fields_of(JobDetails).items() if k != "job"}}
)
PLAN = object_of(
    {
        "count": int,
        "plans": list_of(object_of({**fields_of(JobPlan), "job": JOB, "ahead": list_of(JOB)})),
    }
)
POLICY = {
    "name": str,
    "description": str,
    "parameters": list_of(object_of({"name": str, "default": Any, "allowed": str})),
}
CONTEXT = {"name": str, "url": str, "token": str, "is_current": bool}
SETTING = object_of(fields_of(SettingView), optional=("origin",))
NODE = object_of({**fields_of(NodeView), "state": str})
TOKEN = object_of({**fields_of(TokenView), "state": str})
JOBS, NODES, TOKENS = list_of(JOB), list_of(NODE), list_of(TOKEN)
SCHEMAS: dict[str, Schema] = {
    "submit": {"anyOf": [JOB, JOBS, PLAN, *_lines()["anyOf"]]},
    "list": JOBS,
    "show": {"anyOf": [DETAILS, JOBS]},
    "story": list_of(schema_of(StoryEntry)),
    **dict.fromkeys(("cancel", "hold", "release", "wait"), JOBS),
    "resize": JOB,
    **dict.fromkeys(("resubmit", "edit"), one_or_many(JOB)),
    "profile": schema_of(JobProfile),
    "logs": _lines(),
    "up": object_of({"pid": int, "folder": str}),
    "status": schema_of(Status),
    "down": object_of({"pid": int}),
    "doctor": object_of({"ok": bool, "checks": list_of(schema_of(CheckResult))}),
    "top": object_of({"status": schema_of(Status), "nodes": NODES, "jobs": JOBS}),
    "simulate": list_of(schema_of(RunMetrics)),
    **dict.fromkeys(("nodes list", "nodes drain", "nodes resume", "nodes lost"), NODES),
    "policy list": list_of(object_of({**POLICY, "in_use": bool})),
    "policy show": object_of(POLICY),
    "policy set": object_of({"policy": str}),
    "context add": list_of(object_of(CONTEXT)),
    "context use": object_of({"current": str}),
    "context list": list_of(object_of(CONTEXT)),
    "context show": schema_of(EndpointChoice),
    "context remove": object_of({"removed": str, "was_current": bool}),
    "token create": TOKEN,
    **dict.fromkeys(("token list", "token revoke"), TOKENS),
    "config show": list_of(SETTING),
    "store check": object_of({"file": str, "problems": list[str]}),
    "history export": list_of(schema_of(HistoryJob)),
}
ERROR = object_of({"code": str, "message": str, "hint": str})


def strict(schema: Any) -> Any:
    """The schema without leave for fields that are not declared."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: strict(each) for name, each in schema.items()}
    return {**found, "additionalProperties": False} if "required" in found else found


def generated_files() -> dict[Path, str]:
    FOLDER.mkdir(exist_ok=True)
    texts = {FOLDER / f"{_file(name)}.json": _text(name, each) for name, each in SCHEMAS.items()}
    rows = [
        f"| `rota {name}` | [{_file(name)}.json](json/{_file(name)}.json) |" for name in SCHEMAS
    ]
    page = INTRODUCTION + "\n".join(rows) + "\n"
    return {**texts, FOLDER / "error.json": _text("error", ERROR), PAGE: page}


def _file(name: str) -> str:
    return name.replace(" ", "-")


def _text(name: str, schema: Schema) -> str:
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"rota {name} --json",
    }
    return json.dumps({**head, "version": VERSION, **schema}, indent=1) + "\n"
