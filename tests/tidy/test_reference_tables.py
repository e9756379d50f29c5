"""Environment variables, metrics, events, error codes and exit codes: the pages list exactly what
the code has."""

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest

from rota import __version__, errors
from rota.api import errors as api_errors
from rota.cli import exit_codes
from rota.core.lifecycle import worker_exits
from rota.core.model import events
from rota.errors import RotaError
from rota.wire.job_request import job_fields
from rota.wire.jobs import StoryEntry
from tests.tidy.reference_tables import first_column, rows
from tests.tidy.tree import ROOT, SOURCE, parse, python_files

ENVIRONMENT_MODULES = (
    *sorted((SOURCE / "daemon" / "launch").glob("*.py")),
    *sorted((SOURCE / "engines").rglob("*.py")),
)
VARIABLE = re.compile(r"ROTA_[A-Z_]+|RANK|(LOCAL|WORLD|MASTER|NUM|EPOCHS|PET|CUDA|NVIDIA)_[A-Z_]+")
"""Names of variables that rota sets or that frameworks define."""
NOT_OF_A_JOB = {"ROTA_PLACE"}
"""Set in placeholder pods only."""


def strings(path: Path) -> Iterator[str]:
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_variables_of_a_job() -> None:
    in_code = {
        text
        for path in ENVIRONMENT_MODULES
        for text in strings(path)
        if VARIABLE.fullmatch(text) and text not in NOT_OF_A_JOB
    }
    read_by_trainer = {
        text
        for path in python_files("trainer")
        for text in strings(path)
        if re.fullmatch(r"ROTA_[A-Z_]+", text)
    }
    listed = first_column("environment.md")
    assert in_code - listed == set(), "add to docs/reference/environment.md"
    assert read_by_trainer - listed == set(), "add to docs/reference/environment.md"
    assert listed - in_code - read_by_trainer == set(), "no code sets or reads these variables"


def metric_rows() -> Iterator[list[str]]:
    for node in ast.walk(parse(SOURCE / "api" / "routes" / "metrics.py")):
        match node:
            case ast.Call(func=ast.Name(kind), args=[ast.Constant(name), ast.Constant(text), *_]):
                labels = [each.value for each in node.keywords if each.arg == "labels"]
                names = [ast.literal_eval(each) for each in labels]
                is_counter = kind == "CounterMetricFamily"
                yield [
                    f"`{name}_total`" if is_counter else f"`{name}`",
                    "counter" if is_counter else "gauge",
                    ", ".join(f"`{name}`" for each in names for name in each),
                    str(text),
                ]
            case _:
                pass


def test_metrics() -> None:
    listed = rows("metrics.md")
    assert sorted(listed) == sorted(metric_rows())


def test_fields_of_an_event() -> None:
    assert first_column("events.md").issuperset(each.name for each in fields(StoryEntry))


def test_causes_of_events() -> None:
    of_events = {
        name
        for name, kind in vars(events).items()
        if inspect.isclass(kind) and kind.__module__ == events.__name__
    }
    named = {
        keyword.value.value
        for path in (SOURCE / "core" / "kernel").glob("*.py")
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "cause" and isinstance(keyword.value, ast.Constant)
    }
    assert first_column("events.md", "Causes") == of_events | named


def test_events_of_kubernetes_objects() -> None:
    in_code = {
        keyword.value.value
        for path in (SOURCE / "operator").glob("*.py")
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "reason"
        and isinstance(keyword.value, ast.Constant)
        and re.fullmatch(r"[A-Z][A-Za-z]+", str(keyword.value.value))
    }
    assert first_column("events.md", "Events of Kubernetes objects") == in_code


def error_classes(kind: type[RotaError] = RotaError) -> Iterator[type[RotaError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from error_classes(each)


def import_error_classes() -> None:
    """Import every module with an error of its own, so that `error_classes` finds it."""
    for path in python_files("src"):
        if re.search(r"^    code = \"", path.read_text(), re.MULTILINE):
            import_module(".".join(path.relative_to(ROOT / "src").with_suffix("").parts))


def codes_in_code() -> set[str]:
    """Codes of error classes, and of problems that are built without an exception."""
    found: set[str] = set()
    for path in python_files("src"):
        for node in ast.walk(parse(path)):
            match node:
                case ast.Assign(targets=[ast.Name("code")], value=ast.Constant(str(code))):
                    found.add(code)
                case ast.Call(func=ast.Name("Problem"), args=[ast.Constant(str(code)), *_]):
                    found.add(code)
                case _:
                    pass
    return found | set(api_errors.CODES.values())


def test_error_codes() -> None:
    assert first_column("errors.md") == codes_in_code()


def test_statuses_of_error_codes() -> None:
    listed = {row[0].strip("`"): row[1].split(",")[0] for row in rows("errors.md")}
    assert {
        code: str(status) for code, status in api_errors.STATUS.items()
    }.items() <= listed.items()


def test_exit_codes_of_errors() -> None:
    import_error_classes()
    listed = {row[0].strip("`"): row[2] for row in rows("errors.md")}
    wrong = {
        kind.__name__: kind.exit_code
        for kind in error_classes()
        if kind.__module__.startswith("rota.") and listed[kind.code] != str(kind.exit_code)
    }
    assert not wrong


@pytest.mark.parametrize(
    "code",
    [
        *(RotaError.exit_code, errors.UserError.exit_code),
        *(exit_codes.CANCELLED, worker_exits.SAVED_EXIT_CODE),
    ],
)
def test_exit_codes(code: int) -> None:
    page = (ROOT / "docs" / "reference" / "exit-codes.md").read_text()
    assert re.search(rf"\b{code}\b", page)


def test_no_field_comes_from_a_later_version() -> None:
    this = [int(part) for part in __version__.split(".")]
    later = {
        name: each.info.since
        for name, each in job_fields().items()
        if [int(part) for part in each.info.since.split(".")] > this
    }
    assert not later


def test_every_reason_to_wait_is_in_its_table() -> None:
    """A row begins with the words of a reason before its first value, such as `waits for `."""
    beginnings = {
        each.name: "".join(parts[:1])
        for each in parse(SOURCE / "core" / "explain" / "reasons.py").body
        if isinstance(each, ast.ClassDef) and each.name not in ("Pinned", "DoesNotGrow")
        for parts in [texts_of_str(each)]
    }
    named = first_column("../how-to/when-a-job-waits.md")
    missing = [
        name
        for name, beginning in beginnings.items()
        if not beginning or not any(row.startswith(beginning) for row in named)
    ]
    assert not missing


def texts_of_str(reason: ast.ClassDef) -> list[str]:
    """The texts in the sentence that a reason returns."""
    [method] = [each for each in reason.body if isinstance(each, ast.FunctionDef)]
    returned = next(each for each in ast.walk(method) if isinstance(each, ast.Return))
    return [
        each.value
        for each in ast.walk(returned)
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    ]
