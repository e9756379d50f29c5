"""How a worker's end is put into words."""

import json
from pathlib import Path

import pytest

from rota.engines.local.ends import in_words, never_ran, size
from rota.engines.local.files import RESERVED_BYTES
from rota.engines.local.order import Ending, Order
from rota.engines.logfiles.writing import LogFile

ORDER = Order(["x"], {}, "/", "m", None, None, [], {}, [])


def log_of(folder: Path, *pieces: bytes) -> LogFile:
    log = LogFile(str(folder / "log"), file_bytes=4096, n_files=2)
    for piece in pieces:
        log.write(piece)
    log.close()
    return log


def test_several_things_are_told_in_order(tmp_path: Path) -> None:
    ending = Ending(1, started_s=1.0, ended_s=1.5, n_left_behind=2, is_killed=True)
    log = log_of(tmp_path, b"x" * 3000, b"x" * 3000, b"\nend\n")
    told = in_words(ending, ORDER, log=log, is_signalled=False, is_out_of_memory=False)
    assert told.reason == (
        "exited within a second of its start; left 2 processes behind, which were killed; "
        "wrote a line of 5.859 KiB, which is longer than a log file"
    )


def test_short_lines_are_not_taken_for_a_long_one(tmp_path: Path) -> None:
    log = log_of(tmp_path, *[b"x" * 3000 + b"\n"] * 9, b"y" * 2000, b"y" * 1000)
    assert log.longest_line_bytes == 3000
    ending = Ending(0, started_s=1.0, ended_s=1.5)
    told = in_words(ending, ORDER, log=log, is_signalled=False, is_out_of_memory=False)
    assert told == ending


def test_a_memory_limit_comes_before_the_signal(tmp_path: Path) -> None:
    order, ending = ORDER._replace(memory_bytes=3 * 1024**3 // 2), Ending(137)
    told = in_words(ending, order, log=log_of(tmp_path), is_signalled=True, is_out_of_memory=True)
    assert told.reason == "out of host memory: the limit is 1.5 GiB"


@pytest.mark.parametrize("name", ["a" * 5000, "\x1b" * 5000, "\U0001f600" * 5000, '"' * 5000])
def test_what_a_user_named_always_fits_into_the_space_reserved(name: str) -> None:
    ending = never_ran(Ending(126), f"127 program {name} was not found".encode())
    assert ending.code == 127
    assert ending.reason.isprintable()
    assert len(json.dumps(ending._asdict())) <= RESERVED_BYTES


@pytest.mark.parametrize(
    ("n_bytes", "words"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (100 << 20, "100 MiB"), (5 << 40, "5 TiB")],
)
def test_sizes(n_bytes: int, words: str) -> None:
    assert size(n_bytes) == words
