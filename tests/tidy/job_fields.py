"""What the table of job fields generates: the spec of the CRD, and docs/reference/job-file.md."""

import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from rota.wire.job_request import GROUPS, JobField, job_fields
from tests.tidy.tree import ROOT

CRD = ROOT / "deploy" / "kubernetes" / "base" / "crd.yaml"
PAGE = ROOT / "docs" / "reference" / "job-file.md"
INDENT = " " * 16
DEFAULT = re.compile(r" \(default: ([^)]*)\)")
BEGIN = f"{INDENT}# The fields of src/rota/wire/job_request.py; scripts/generate writes them.\n"
END = f"{INDENT}# The end of the generated fields.\n"
AMOUNT = {"x-kubernetes-int-or-string": True}
TYPES: dict[str, dict[str, Any]] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "list[str]": {"type": "array", "items": {"type": "string"}},
    "list[int]": {"type": "array", "items": {"type": "integer"}},
    "dict[str, str]": {"type": "object", "additionalProperties": {"type": "string"}},
}
TYPE_NAMES = {
    "str": "text",
    "int": "whole number",
    "float": "number",
    "bool": "true or false",
    "list[str]": "list of texts",
    "list[int]": "list of whole numbers",
    "dict[str, str]": "mapping of texts",
}
TABLES = "<!-- The rest is written by scripts/generate from src/rota/wire/job_request.py. -->\n"


def generated_files() -> dict[Path, str]:
    return {CRD: crd_text(), PAGE: page_text()}


def crd_text() -> str:
    """The CRD with the current fields; the rest of the file is written by hand."""
    before, _, rest = CRD.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{_fields_text()}{END}{after}"


def _fields_text() -> str:
    schemas = {name: schema(each) for name, each in job_fields().items()}
    text = yaml.safe_dump(schemas, sort_keys=False, width=100, allow_unicode=True)
    return "".join(f"{INDENT}{line}\n" for line in text.splitlines())


def schema(field: JobField) -> dict[str, Any]:
    info = field.info
    notes = f" Can be changed while {info.editable}." if info.editable else ""
    if not info.is_in_training_job:
        notes = " Refused in a TrainingJob."
    # A copy, because YAML writes one object that is used twice as a reference.
    shape: dict[str, Any] = deepcopy(AMOUNT if info.is_amount else TYPES[field.type])
    bounds = {
        "minimum": info.minimum,
        "maximum": info.maximum,
        "minItems": info.min_items,
        "maxItems": info.max_items,
    }
    known = {name: value for name, value in bounds.items() if value is not None}
    if field.type == "list[int]":
        within = {name: known.pop(name) for name in ("minimum", "maximum") if name in known}
        shape = {**shape, "items": {**shape["items"], **within}}
    if field.type == "dict[str, str]" and "maxItems" in known:
        known["maxProperties"] = known.pop("maxItems")
    unset = [""] if field.default == "" else []
    enum = {"enum": [*info.choices, *unset]} if info.choices else {}
    return {"description": info.text + notes, **shape, **enum, **known}


def page_text() -> str:
    """The page with the current tables, after the introduction, which is written by hand."""
    parts = [PAGE.read_text().partition(TABLES)[0] + TABLES]
    columns = ("field", "type", "default", "example", "flag", "edit", "since", "meaning")
    head = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for group in GROUPS:
        rows = [_row(each) for each in job_fields().values() if each.info.group == group]
        parts.append("\n".join([f"## {group}", "", *head, *rows, ""]))
    settings = ", ".join(f"`{each.name}`" for each in job_fields().values() if each.info.is_setting)
    last = f"Only `command` is required. `.rota.toml` may set {settings}.\n"
    return "\n".join([*parts, last])


def _row(field: JobField) -> str:
    info = field.info
    flag = f"{max(info.flags, key=len)} {info.metavar}".rstrip() if info.flags else ""
    cells = (
        f"`{field.name}`",
        _value_text(field),
        _default_text(field),
        f"`{info.example}`",
        f"`{flag}`" if flag else "",
        info.editable,
        info.since,
        DEFAULT.sub("", info.text),
    )
    return "| " + " | ".join(cells) + " |"


def _default_text(field: JobField) -> str:
    if field.is_required:
        return "required"
    if named := DEFAULT.search(field.info.text):
        return named[1]
    if field.default in (None, "") or field.default == [] or field.default == {}:
        return ""
    return f"`{str(field.default).lower()}`"


def _value_text(field: JobField) -> str:
    info = field.info
    if info.choices:
        return ", ".join(f"`{each}`" for each in info.choices)
    text = "text or number" if info.is_amount else TYPE_NAMES[field.type]
    if info.minimum is not None and info.maximum is not None:
        return f"{text}, {info.minimum} to {info.maximum}"
    return f"{text}, at most {info.max_items}" if info.max_items else text
