"""Parse the spec of a TrainingJob into a job request, or into the changes of an edit. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from rota.core.model.events import JobEvent, JobHeld, JobReleased
from rota.core.model.job import Held, Job
from rota.daemon.errors import RefusedError
from rota.daemon.jobs.admission import with_edits
from rota.errors import did_you_mean, shown
from rota.store.kubernetes.crd_codec import USER, Object, part
from rota.wire.job_changes import JobEdit
from rota.wire.job_request import WHILE_QUEUED, JobRequest, edit_fields, job_fields

SIZE = "size"
"""The wanted number of GPUs, which `kubectl scale` sets. Not a field of a job file."""
WORKERS = "workers"
"""The wanted number of units, which `kubectl scale` set before there was `SIZE`."""
SIZES = frozenset({SIZE, WORKERS})
FIELDS = job_fields()
EDIT_FIELDS = edit_fields()
EDITABLE = SIZES.union((name for name, each in FIELDS.items() if each.info.editable))
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,79}", re.ASCII)


@dataclass(frozen=True, slots=True)
class SpecEdits:
    """The changes of an edit; None where it changes nothing. `refused`: changed fields that
    cannot change now, or never after a job is accepted."""

    size: int | None = None
    """In GPUs."""
    edit: JobEdit | None = None
    hold: bool | None = None
    refused: tuple[str, ...] = ()


def user_of(meta: Object, *, default: str) -> str:
    """The user whom an object names: in a label, or in an annotation if the name is not a valid
    label. Admission policies of the cluster decide who may name whom: only the cluster knows who
    wrote the object."""
    labels, notes = part(meta, "labels"), part(meta, "annotations")
    named = str(notes.get(USER) or labels.get(USER) or default)
    if not _USER.fullmatch(named):
        what = f"{shown(named)!r} is not a valid user name"
        raise RefusedError(USER, what, "use letters, digits and . @ + - _, as in ann@lab.example")
    return named


def claimed_user(found: Object) -> str:
    """The user whom an object names, as it is written there; empty for none."""
    meta = part(found, "metadata")
    return str(part(meta, "annotations").get(USER) or part(meta, "labels").get(USER) or "")


def job_request_of(spec: object) -> JobRequest:
    """Checks every field. The API server checks as well, but its schema may be an older one."""
    values = {name: value for name, value in _mapping(spec).items() if name not in SIZES}
    for name in values:
        if name not in FIELDS:
            hint = did_you_mean(name, FIELDS) or "use the fields of a job file"
            raise RefusedError(shown(name), "unknown field", hint)
    read = {name: _value(name, value) for name, value in values.items()}
    if not read.get("command"):
        raise RefusedError("command", "the command is missing", "list a program and its arguments")
    for name, value in read.items():
        if value and not FIELDS[name].info.is_in_training_job:
            hint = "leave it out: a TrainingJob is a single job; pods have networks of their own"
            raise RefusedError(name, "not a field of a TrainingJob", hint)
    return JobRequest(**read)


def edits_of(spec: object, job: Job, *, accepted: JobRequest, asked: JobRequest) -> SpecEdits:
    """What an edited spec changes. `asked` is the spec with defaults filled in. Fields that the
    spec leaves out do not change."""
    values, now = _mapping(spec), with_edits(accepted, job.spec)
    hold = values.get("hold")
    changed = [
        name
        for name, each in FIELDS.items()
        if each.info.is_in_training_job
        and (name in values if name in EDIT_FIELDS else name not in EDITABLE)
        and getattr(now, name) != getattr(asked, name)
    ]
    refused = tuple(name for name in changed if not _may_edit(name, job))
    edited = {name: getattr(asked, name) for name in changed if name not in refused}
    return SpecEdits(
        size=_new_size(values, job),
        edit=JobEdit(**edited) if edited else None,
        hold=hold if isinstance(hold, bool) else None,
        refused=refused,
    )


def _may_edit(name: str, job: Job) -> bool:
    field = EDIT_FIELDS.get(name)
    return field is not None and not (job.is_active and field.info.editable == WHILE_QUEUED)


def _new_size(values: Mapping[str, Any], job: Job) -> int | None:
    pinned = job.pinned_workers and job.spec.gpus_of(job.pinned_workers)
    if values.get(SIZE) is not None:
        size = _integer(SIZE, values[SIZE])
    elif values.get(WORKERS) is not None:
        size = job.spec.gpus_of(_integer(WORKERS, values[WORKERS]))
    else:
        return None
    return None if size == pinned else size


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise RefusedError("spec", "the spec is missing", "add the fields of a job file")
    return cast("dict[str, Any]", value)


def hold_event(edits: SpecEdits, job: Job, *, actor: str) -> JobEvent | None:
    """The event of a hold or a release."""
    is_held = isinstance(job.phase, Held)
    if edits.hold is True and not is_held:
        return JobHeld(job.id, actor)
    return JobReleased(job.id, actor) if edits.hold is False and is_held else None


def _value(name: str, value: object) -> Any:
    field_type = FIELDS[name].type
    if field_type == "str" and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if field_type == "float" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not _CHECKS[field_type](value):
        raise RefusedError(name, f"{shown(str(value))!r} is not {_TYPE_NAMES[field_type]}")
    return value


def _integer(name: str, value: object) -> int:
    if not _is_integer(value):
        raise RefusedError(name, f"{shown(str(value))!r} is not {_TYPE_NAMES['int']}")
    return cast("int", value)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _list_of(check: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list) and all(map(check, cast("list[object]", value)))


def _is_string_map(value: object) -> bool:
    return isinstance(value, dict) and all(map(_is_text, cast("dict[str, object]", value).values()))


_CHECKS: dict[str, Callable[[object], bool]] = {
    "str": _is_text,
    "int": _is_integer,
    "float": lambda value: isinstance(value, float),
    "bool": lambda value: isinstance(value, bool),
    "list[str]": _list_of(_is_text),
    "list[int]": _list_of(_is_integer),
    "dict[str, str]": _is_string_map,
}
_TYPE_NAMES = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "a boolean",
    "list[str]": "a list of strings",
    "list[int]": "a list of integers",
    "dict[str, str]": "a map of strings",
}
