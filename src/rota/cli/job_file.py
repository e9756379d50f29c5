"""Reads job files: the fields of a `JobRequest` as YAML.

An error names the file, the line where YAML is broken, and the field.
"""

from __future__ import annotations

import math
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

from rota.errors import InputError, InputLocation, UserError, did_you_mean
from rota.wire.jobs import JobRequest

MAX_BYTES = 1024**2


def read(path: Path) -> list[dict[str, Any]]:
    """The jobs of a file, which holds one mapping, a list of mappings, or several documents."""
    import yaml

    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(
                InputLocation(str(path)), "the file is larger than 1 MiB", "is it a job file?"
            )
        documents = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    except yaml.YAMLError as error:
        raise InputError(
            InputLocation(str(path), _row(error)), f"the file is not YAML: {_problem(error)}"
        ) from None
    except UnicodeDecodeError:
        raise InputError(InputLocation(str(path)), "the file is not UTF-8 text") from None
    jobs = [job for document in documents for job in _jobs(document)]
    if not jobs:
        raise InputError(
            InputLocation(str(path)), "the file has no job", "begin with 'command: [...]'"
        )
    return [_checked(path, job) for job in jobs]


def request(values: dict[str, Any]) -> JobRequest:
    if not values.get("command"):
        raise UserError("the job has no command", "put the command after --")
    for name, value in values.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(
                f"{name}: {value:g} is not a number", f"leave out {name} if you do not know it"
            )
    return JobRequest(**values)


def _jobs(document: Any) -> list[Any]:
    if document is None:
        return []
    return cast("list[Any]", document) if isinstance(document, list) else [document]


def _checked(path: Path, job: Any) -> dict[str, Any]:
    known = {each.name: each for each in fields(JobRequest)}
    if not isinstance(job, dict):
        raise InputError(InputLocation(str(path)), "a job must be a mapping of fields to values")
    values: dict[str, Any] = {}
    for key, value in cast("dict[Any, Any]", job).items():
        name = str(key).replace("-", "_")
        if name not in known:
            hint = did_you_mean(name, known) or f"the fields are {', '.join(known)}"
            raise InputError(InputLocation(str(path), field=str(key)[:60]), "unknown field", hint)
        values[name] = _value(InputLocation(str(path), field=name), value)
    return values


def _value(where: InputLocation, value: Any) -> Any:
    """The value in the type of its field. YAML reads `gpus: 2` as a number, the field is text."""
    wanted = str(next(each.type for each in fields(JobRequest) if each.name == where.field))
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if wanted == "str":
        return str(value) if is_number else _require(where, value, kind=str)
    if wanted == "list[str]":
        items = value.split() if where.field == "command" and isinstance(value, str) else value
        items = [items] if isinstance(items, str) else _require(where, items, kind=list)
        return [str(item) for item in items]
    if wanted == "list[int]":
        return [value] if is_number else _require(where, value, kind=list)
    if wanted == "dict[str, str]":
        return {str(k): str(v) for k, v in _require(where, value, kind=dict).items()}
    if wanted == "bool":
        return _require(where, value, kind=bool)
    if value is not None and not is_number:
        raise InputError(where, f"{str(value)[:40]!r} is not a number")
    return value


def _require(where: InputLocation, value: Any, *, kind: type) -> Any:
    if not isinstance(value, kind):
        expected = {str: "text", list: "a list", dict: "a mapping", bool: "true or false"}[kind]
        raise InputError(where, f"{str(value)[:40]!r} is not {expected}")
    return value


def _row(error: Any) -> int | None:
    mark = getattr(error, "problem_mark", None)
    return mark.line + 1 if mark else None


def _problem(error: Any) -> str:
    return str(getattr(error, "problem", None) or "cannot parse it")
