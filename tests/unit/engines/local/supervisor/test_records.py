"""Records from disk that another version wrote, or that are damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rota.engines.local.supervisor import state_files
from rota.engines.local.supervisor.records import ExitRecord, WorkerKey, WorkerSpec
from rota.engines.local.worker_dirs import WorkerDirs

KEY = WorkerKey("job", 1, 0)
SPEC = WorkerSpec(["/bin/true"], {}, "/", "job/1/0/n", None, None, [], {}, [])


def with_file(tmp_path: Path, name: str, text: str) -> WorkerDirs:
    dirs = WorkerDirs(tmp_path)
    dirs.make()
    dirs.worker(KEY).mkdir(parents=True)
    (dirs.worker(KEY) / name).write_text(text)
    return dirs


def test_fields_of_a_newer_version_are_ignored(tmp_path: Path):
    ending = {"code": 3, "reason": "why", "peak_power_w": 250}
    assert with_file(tmp_path / "a", state_files.EXIT, json.dumps(ending)).exit_record(KEY) == (
        ExitRecord(3, "why")
    )
    spec = SPEC._asdict() | {"numa_node": 1}
    expected = SPEC._replace(inside=[])
    assert with_file(tmp_path / "b", state_files.PROGRAM, json.dumps(spec)).spec(KEY) == expected
    identity = {"pid": 1, "start_ticks": 2, "boot_id": "b", "cluster": "c"}
    found = with_file(tmp_path / "c", state_files.SUPERVISOR_FILE, json.dumps(identity))
    assert found.supervisor(KEY) == (1, 2, "b")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"code": "3"}', '{"code": true}', '{"code": 3, "reason": 4}']
)
def test_unreadable_exit_record_is_an_exit_with_unknown_code(tmp_path: Path, text: str):
    found = with_file(tmp_path, state_files.EXIT, text).exit_record(KEY)
    assert found == ExitRecord(-1, "its exit record is unreadable", is_lost=True)


@pytest.mark.parametrize("value", [{}, {"argv": []}, SPEC._asdict() | {"marker": None}])
def test_unreadable_spec_is_none(tmp_path: Path, value: dict[str, Any]):
    assert with_file(tmp_path, state_files.PROGRAM, json.dumps(value)).spec(KEY) is None


@pytest.mark.parametrize("value", [{}, {"pid": "1", "start_ticks": 2, "boot_id": "b"}])
def test_unreadable_supervisor_file_is_none(tmp_path: Path, value: dict[str, Any]):
    dirs = with_file(tmp_path, state_files.SUPERVISOR_FILE, json.dumps(value))
    assert dirs.supervisor(KEY) is None
    assert not dirs.has_started(KEY)


def test_foreign_names_are_ignored(tmp_path: Path):
    dirs = WorkerDirs(tmp_path)
    dirs.make()
    dirs.prepare(KEY, SPEC)
    for name in ("lost+found", "job~1~0~extra", "job~x~0"):
        (tmp_path / "live" / name).touch()
    (dirs.attempt("job", 1) / "logs").mkdir()
    assert dirs.live() == [KEY]
    assert dirs.worker_keys("job", 1) == [KEY]
