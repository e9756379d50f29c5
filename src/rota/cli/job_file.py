"""Reads and writes job files: the fields of a `JobRequest` as YAML.

Text keeps the form in which it is written: `env: {DEBUG: true, VERSION: 1.10}` sets "true" and
"1.10". An error names the file, the line where YAML is broken, and the field. The size of a file
is bounded, also after its references (`*name`) are replaced by their values.
"""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, cast

from rota.errors import InputError, InputLocation, UserError, did_you_mean, shown
from rota.wire.job_request import JobRequest, job_fields

STDIN = Path("-")
MAX_BYTES = 1024**2
MAX_VALUES = MAX_BYTES
"""A file within `MAX_BYTES` has fewer values than this, unless references multiply them."""
MAX_SHOWN = 40
TYPED_TAGS = ("bool", "int", "float", "null", "timestamp")
"""YAML's names of the types that a word without quotes can have, besides text."""


@dataclass(frozen=True, slots=True)
class YamlScalar:
    """A word that YAML reads as a number, a truth value, a date or nothing; `text` is the word."""

    text: str
    value: Any

    def __str__(self) -> str:
        return self.text


def read(path: Path) -> list[dict[str, Any]]:
    """The jobs of a file, which holds one mapping, a list of mappings, or several documents."""
    import yaml

    try:
        documents = _documents(path, _content(path).decode())
    except yaml.YAMLError as error:
        raise InputError(
            InputLocation(_shown_name(path), _row(error)),
            f"the file is not YAML: {_problem(error)}",
        ) from None
    except UnicodeDecodeError:
        raise InputError(InputLocation(_shown_name(path)), "the file is not UTF-8 text") from None
    except RecursionError:
        what = "lists or mappings are nested too deeply"
        raise InputError(InputLocation(_shown_name(path)), what, "is it a job file?") from None
    jobs = [job for document in documents for job in _jobs(document)]
    if not jobs:
        raise InputError(
            InputLocation(_shown_name(path)), "the file has no job", "begin with 'command: [...]'"
        )
    return [_checked(path, job) for job in jobs]


def _content(path: Path) -> bytes:
    """The first bytes of a file, or of stdin if the name is `-`."""
    where = InputLocation(_shown_name(path))
    try:
        with nullcontext(_stdin()) if path == STDIN else path.open("rb") as file:
            # At most this much, also of a device without an end. A pipe is read, as in `-f <(...)`.
            content = file.read(MAX_BYTES + 1)
    except IsADirectoryError:
        raise InputError(where, "a directory", "name a job file in it") from None
    except OSError as error:
        hint = "check the name and the permissions of the job file"
        raise InputError(where, (error.strerror or str(error)).lower(), hint) from None
    if len(content) > MAX_BYTES:
        raise InputError(where, "the file is larger than 1 MiB", "is it a job file?")
    return content


def _shown_name(path: Path) -> str:
    return "standard input" if path == STDIN else str(path)


def _stdin() -> BinaryIO:
    if sys.stdin is None:
        raise UserError("standard input is closed", "'-f -' reads the job file from stdin")
    return sys.stdin.buffer


def request(values: dict[str, Any]) -> JobRequest:
    if not values.get("command"):
        raise UserError("the job has no command", "write it behind the options, or use -f FILE")
    for name, value in values.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(
                f"{name}: {value:g} is not a number", f"leave out {name} if you do not know it"
            )
    return JobRequest(**values)


def job_file_lines(request: JobRequest) -> list[str]:
    """The job file of a request, without the fields that have their default."""
    import yaml

    fields = job_fields().values()
    values = {each.name: getattr(request, each.name) for each in fields}
    given = {each.name: values[each.name] for each in fields if values[each.name] != each.default}
    # A umask is written in octal digits, which YAML also reads.
    umask = given.pop("umask", None)
    octal = [] if umask is None else [f"umask: {umask:04o}"]
    text = yaml.safe_dump(given, sort_keys=False, allow_unicode=True, width=100)
    return [*text.splitlines(), *octal]


def without_secrets(request: JobRequest) -> tuple[JobRequest, list[str]]:
    """The request without the variables whose names say that they are secrets, and these names."""
    from rota.client.submit_context import is_secret

    secrets = [name for name in request.env if is_secret(name)]
    env = {name: value for name, value in request.env.items() if name not in secrets}
    return replace(request, env=env), secrets


def _documents(path: Path, text: str) -> list[Any]:
    import yaml

    class ScalarLoader(yaml.SafeLoader):
        """Builds a `YamlScalar` of every word that is not text."""

    def construct(loader: Any, node: Any) -> YamlScalar | str:
        plain: Any = yaml.SafeLoader.yaml_constructors[node.tag]
        try:
            return YamlScalar(node.value, plain(loader, node))
        except (ValueError, KeyError, AttributeError):
            # The word is not of its type: 2026-02-30, or text with a tag, such as `!!bool maybe`.
            return node.value

    for tag in TYPED_TAGS:
        ScalarLoader.add_constructor(f"tag:yaml.org,2002:{tag}", construct)
    loader: Any = ScalarLoader(text)
    found: list[Any] = []
    while loader.check_node():
        node = loader.get_node()
        _YamlCheck(path).count(node)
        found.append(loader.construct_document(node))
    return found


class _YamlCheck:
    """Refuses a document with a key that is given twice, with a value that contains itself, or with
    too many values after its references are replaced."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._counts: dict[int, int] = {}
        """Values in a node by the id of the node; 0 while its parts are counted."""

    def count(self, node: Any) -> int:
        """Return the number of values in a node."""
        known = self._counts.get(id(node))
        if known == 0:
            raise self._error(node, "a value contains itself", hint="write the value without '*'")
        if known is not None:
            return known
        self._counts[id(node)] = 0
        self._counts[id(node)] = found = 1 + sum(map(self.count, self._parts(node)))
        if found > MAX_VALUES:
            hint = "write the values without '&' and '*'"
            raise self._error(node, "references multiply the values too often", hint=hint)
        return found

    def _parts(self, node: Any) -> Iterator[Any]:
        if isinstance(node.value, str):
            return
        seen: set[str] = set()
        for part in node.value:
            if not isinstance(part, tuple):
                yield part
                continue
            key, value = cast("tuple[Any, Any]", part)
            if isinstance(key.value, str):
                if key.value in seen:
                    what = f"'{shown(key.value)}' is given twice"
                    raise self._error(key, what, hint="keep one of the two")
                seen.add(key.value)
            yield from (key, value)

    def _error(self, node: Any, what: str, *, hint: str) -> InputError:
        return InputError(
            InputLocation(_shown_name(self._path), node.start_mark.line + 1), what, hint
        )


def _jobs(document: Any) -> list[Any]:
    if document is None or (isinstance(document, YamlScalar) and document.value is None):
        return []
    return cast("list[Any]", document) if isinstance(document, list) else [document]


def _checked(path: Path, job: Any) -> dict[str, Any]:
    known = job_fields()
    if not isinstance(job, dict):
        raise InputError(
            InputLocation(_shown_name(path)), "a job must be a mapping of fields to values"
        )
    values: dict[str, Any] = {}
    written: dict[str, str] = {}
    for key, value in cast("dict[Any, Any]", job).items():
        name = str(key).replace("-", "_")
        if name not in known:
            hint = did_you_mean(name, known) or f"the fields are {', '.join(known)}"
            raise InputError(
                InputLocation(_shown_name(path), field=str(key)[:60]), "unknown field", hint
            )
        if name in written:
            what = f"the field is given twice, as '{written[name]}' and as '{key}'"
            raise InputError(
                InputLocation(_shown_name(path), field=name), what, "keep one of the two"
            )
        written[name] = str(key)
        values[name] = _value(InputLocation(_shown_name(path), field=name), value)
    return values


def _value(where: InputLocation, value: Any) -> Any:
    """The value in the type of its field."""
    field = job_fields()[where.field or ""]
    if field.type == "str":
        found = _text(where, value)
        if field.name == "name" and not found:
            raise InputError(where, "the name is empty", "give a name, or leave out the field")
        return found
    if field.type == "list[str]":
        if field.name == "command" and isinstance(value, str):
            return _words(where, value)
        return [_text(where, each) for each in _list(where, value)]
    if field.type == "list[int]":
        return [_number(where, each, kind=int) for each in _list(where, value)]
    if field.type == "dict[str, str]":
        return _mapping(where, value)
    if field.type == "bool":
        if not isinstance(value, YamlScalar) or not isinstance(value.value, bool):
            raise _mistyped(where, value, expected="true or false")
        return value.value
    if isinstance(value, YamlScalar) and value.value is None and field.default is None:
        return None
    return _number(where, value, kind=int if field.type == "int" else float)


def _text(where: InputLocation, value: Any) -> str:
    if isinstance(value, YamlScalar):
        if value.value is None:
            raise InputError(where, "it has no value", "write '' for an empty text")
        return value.text
    if not isinstance(value, str):
        raise _mistyped(where, value, expected="text")
    return value


def _words(where: InputLocation, line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        hint = "quote the words as in a shell, or write a list: [python, train.py]"
        raise InputError(where, str(error).lower(), hint) from None


def _list(where: InputLocation, value: Any) -> list[Any]:
    """A list. A single value is a list of one."""
    if isinstance(value, dict):
        raise _mistyped(where, cast("object", value), expected="a list")
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def _mapping(where: InputLocation, value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise _mistyped(where, value, expected="a mapping")
    found: dict[str, str] = {}
    for key, each in cast("dict[Any, Any]", value).items():
        name = str(key)
        place = InputLocation(where.file, field=f"{where.field}.{name}")
        found[name] = _text(place, each)
    return found


def _number(where: InputLocation, value: Any, *, kind: type[int] | type[float]) -> Any:
    found = value.value if isinstance(value, YamlScalar) else value
    allowed = (int,) if kind is int else (int, float)
    if isinstance(found, bool) or not isinstance(found, allowed):
        raise _mistyped(where, value, expected="a whole number" if kind is int else "a number")
    return found


def _mistyped(where: InputLocation, value: object, *, expected: str) -> InputError:
    return InputError(where, f"'{shown(_written(value), MAX_SHOWN)}' is not {expected}")


def _written(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_written, cast('list[object]', value)))}]"
    return str(value)


def _row(error: Any) -> int | None:
    mark = getattr(error, "problem_mark", None)
    return mark.line + 1 if mark else None


def _problem(error: Any) -> str:
    return str(getattr(error, "problem", None) or "cannot parse it")
