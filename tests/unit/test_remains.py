"""The record of what clean-up could not remove."""

from pathlib import Path

import pytest

from rota import delete_tree
from rota.remains import KEEP_S, MAX_RECORDS, RemainsRecord


def test_a_record_survives_a_restart_and_ends_with_its_path(tmp_path: Path) -> None:
    stuck, file = tmp_path / "stuck\n", tmp_path / "remains.json"
    stuck.touch()
    first = RemainsRecord()
    first.keep_in(file)
    first.record(str(stuck), "operation not permitted")
    second = RemainsRecord()
    second.keep_in(file)
    told = f"not cleaned up: {tmp_path}/stuck\\n: operation not permitted"
    assert second.warnings() == [told]
    stuck.unlink()
    assert second.warnings() == []
    third = RemainsRecord()
    third.keep_in(file)
    assert third.warnings() == []


def test_anything_else_is_told_for_some_days_or_until_it_is_done() -> None:
    now = [0.0]
    record = RemainsRecord(lambda: now[0])
    record.record("processes of worker 0", "do not end")
    record.record("a container", "no answer")
    record.forget("processes of worker 0")
    assert record.warnings() == ["not cleaned up: a container: no answer"]
    now[0] = KEEP_S + 1
    assert record.warnings() == []


def test_the_newest_records_stay() -> None:
    record = RemainsRecord()
    for number in range(MAX_RECORDS + 1):
        record.record(f"container {number}", "no answer")
    assert len(record.warnings()) == MAX_RECORDS
    assert "container 1:" in record.warnings()[0]


def test_a_damaged_file_and_a_full_disk_are_no_error(tmp_path: Path) -> None:
    file = tmp_path / "remains.json"
    file.write_text('{"a": 1}')
    record = RemainsRecord()
    record.keep_in(file)
    file.unlink()
    (tmp_path / "remains.json.partial").mkdir()
    record.record("a container", "no answer")
    assert record.warnings() == ["not cleaned up: a container: no answer"]


def test_what_a_deletion_leaves_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    record = RemainsRecord()
    monkeypatch.setattr(delete_tree, "REMAINS", record)
    path = Path("/proc/self/status")
    assert delete_tree.delete_tree(path).n_remains == 1
    [warning] = record.warnings()
    assert str(path) in warning
