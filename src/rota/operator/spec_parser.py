"""What the spec of a TrainingJob asks for, when it is new and when it was edited. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, cast

from rota.core.events import JobEvent, JobHeld, JobPrioritised, JobReleased
from rota.core.model import Held, Job
from rota.daemon.admission import HIGHEST_PRIORITY
from rota.daemon.fields import RefusedError
from rota.errors import meant, shown
from rota.store.training_jobs import USER, Object, part
from rota.wire.jobs import JobRequest

WORKERS = "workers"
"""The size that the owner wants, which `kubectl scale` sets. No field of a job file."""
CHANGEABLE = frozenset({WORKERS, "priority", "hold"})
_PERSON = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,79}", re.ASCII)
FORMS = {each.name: str(each.type) for each in fields(JobRequest)}


@dataclass(frozen=True, slots=True)
class Edits:
    """What an edit asks of a job; None where it asks nothing. `refused` are fields that nobody
    can change any more."""

    workers: int | None = None
    priority: int | None = None
    hold: bool | None = None
    refused: tuple[str, ...] = ()


def asker_of(meta: Object, *, default: str) -> str:
    """Whom an object names: in a label, or where a label would not take the name, in an annotation.
    Who may name whom is the cluster's to say, which knows who made the object."""
    labels, notes = part(meta, "labels"), part(meta, "annotations")
    named = str(notes.get(USER) or labels.get(USER) or default)
    if not _PERSON.fullmatch(named):
        what = f"{shown(named)!r} is nobody's name"
        raise RefusedError(USER, what, "use letters, digits and . @ + - _, as in ann@lab.example")
    return named


def request_of(spec: object) -> JobRequest:
    """Strict, although the API server should have been: its definition may be an older one."""
    values = {name: value for name, value in _mapping(spec).items() if name != WORKERS}
    for name in values:
        if name not in FORMS:
            hint = meant(name, FORMS) or "the fields are those of a job file"
            raise RefusedError(shown(name), "there is no such field", hint)
    read = {name: _value(name, value) for name, value in values.items()}
    if not read.get("command"):
        raise RefusedError("command", "there is nothing to run", "list the words of the command")
    if read.get("array"):
        what = "one object is one job"
        raise RefusedError("array", what, "make an object for each, or use 'rota submit'")
    return JobRequest(**read)


def edits_of(spec: object, job: Job, *, accepted: JobRequest, asked: JobRequest) -> Edits:
    """What an edited spec asks for that is not so. `asked` is what it says, with the defaults
    filled in; what it does not say is left as it is."""
    values = _mapping(spec)
    workers, priority = values.get(WORKERS), values.get("priority")
    hold = values.get("hold")
    changed = (
        name
        for name in FORMS
        if name not in CHANGEABLE and getattr(accepted, name) != getattr(asked, name)
    )
    return Edits(
        workers=None if workers in (None, job.pinned_workers) else _whole(WORKERS, workers),
        priority=None if priority in (None, job.spec.priority) else _priority(priority),
        hold=hold if isinstance(hold, bool) else None,
        refused=tuple(changed),
    )


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise RefusedError("spec", "there is none", "give it the fields of a job file")
    return cast("dict[str, Any]", value)


def wishes_of(edits: Edits, job: Job, *, actor: str) -> list[JobEvent]:
    """What an edit asks for besides another size."""
    found: list[JobEvent] = []
    if edits.priority is not None:
        found.append(JobPrioritised(job.id, edits.priority, actor))
    is_held = isinstance(job.phase, Held)
    if edits.hold is True and not is_held:
        found.append(JobHeld(job.id, actor))
    if edits.hold is False and is_held:
        found.append(JobReleased(job.id, actor))
    return found


def _priority(value: object) -> int:
    number = _whole("priority", value)
    if abs(number) > HIGHEST_PRIORITY:
        hint = f"use {-HIGHEST_PRIORITY} to {HIGHEST_PRIORITY}"
        raise RefusedError("priority", f"{shown(str(number))} is out of bounds", hint)
    return number


def _value(name: str, value: object) -> Any:
    form = FORMS[name].removesuffix(" | None")
    if form == "str" and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if form == "float" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not _CHECKS[form](value):
        raise RefusedError(name, f"{shown(str(value))!r} is not {_WORDS[form]}")
    return value


def _whole(name: str, value: object) -> int:
    if not _is_whole(value):
        raise RefusedError(name, f"{shown(str(value))!r} is not {_WORDS['int']}")
    return cast("int", value)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _list_of(check: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list) and all(map(check, cast("list[object]", value)))


def _is_table(value: object) -> bool:
    return isinstance(value, dict) and all(map(_is_text, cast("dict[str, object]", value).values()))


_CHECKS: dict[str, Callable[[object], bool]] = {
    "str": _is_text,
    "int": _is_whole,
    "float": lambda value: isinstance(value, float),
    "bool": lambda value: isinstance(value, bool),
    "list[str]": _list_of(_is_text),
    "list[int]": _list_of(_is_whole),
    "dict[str, str]": _is_table,
}
_WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "list[str]": "a list of texts",
    "list[int]": "a list of whole numbers",
    "dict[str, str]": "a table of texts",
}
