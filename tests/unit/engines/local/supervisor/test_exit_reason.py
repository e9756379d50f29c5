"""Explanations of worker exits."""

import json
from pathlib import Path

import pytest

from rota.engines.local.supervisor.exit_reason import never_ran, size, with_reason
from rota.engines.local.supervisor.records import ExitRecord, WorkerSpec
from rota.engines.local.supervisor.state_files import RESERVED_BYTES
from rota.engines.logfiles.writer import LogFile

ORDER = WorkerSpec(["x"], {}, "/", "m", None, None, [], {}, [])


def log_of(folder: Path, *pieces: bytes) -> LogFile:
    log = LogFile(str(folder / "log"), file_bytes=4096, n_files=2)
    for piece in pieces:
        log.write(piece)
    log.close()
    return log


def test_several_reasons_are_joined_in_order(tmp_path: Path) -> None:
    exit_record = ExitRecord(1, started_s=1.0, ended_s=1.5, n_left_behind=2, is_killed=True)
    log = log_of(tmp_path, b"x" * 3000, b"x" * 3000, b"\nend\n")
    told = with_reason(exit_record, ORDER, log=log, is_signalled=False, is_out_of_memory=False)
    assert told.reason == (
        "exited within a second of its start; left 2 processes behind, which were killed; "
        "wrote a line of 5.859 KiB, which is longer than a log file"
    )


def test_short_lines_are_not_counted_as_a_long_one(tmp_path: Path) -> None:
    log = log_of(tmp_path, *[b"x" * 3000 + b"\n"] * 9, b"y" * 2000, b"y" * 1000)
    assert log.longest_line_bytes == 3000
    exit_record = ExitRecord(0, started_s=1.0, ended_s=1.5)
    told = with_reason(exit_record, ORDER, log=log, is_signalled=False, is_out_of_memory=False)
    assert told == exit_record


def test_memory_limit_hides_the_signal(tmp_path: Path) -> None:
    spec, exit_record = ORDER._replace(memory_bytes=3 * 1024**3 // 2), ExitRecord(137)
    told = with_reason(
        exit_record, spec, log=log_of(tmp_path), is_signalled=True, is_out_of_memory=True
    )
    assert told.reason == "out of host memory: the limit is 1.5 GiB"


@pytest.mark.parametrize("name", ["a" * 5000, "\x1b" * 5000, "\U0001f600" * 5000, '"' * 5000])
def test_reason_always_fits_into_the_reserved_space(name: str) -> None:
    exit_record = never_ran(ExitRecord(126), f"127 program {name} was not found".encode())
    assert exit_record.code == 127
    assert exit_record.reason.isprintable()
    assert len(json.dumps(exit_record._asdict())) <= RESERVED_BYTES


@pytest.mark.parametrize(
    ("n_bytes", "words"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (100 << 20, "100 MiB"), (5 << 40, "5 TiB")],
)
def test_sizes(n_bytes: int, words: str) -> None:
    assert size(n_bytes) == words
