"""The log file has exactly the output of the program, once, even if the stream breaks."""

from pathlib import Path

import pytest

from rota.engines.kubernetes.logs.parser import LogStreamParser, ResumePoint, timestamp_s
from rota.engines.logfiles.writer import LogFile

A, B = b"2026-11-16T08:21:08.000000001Z", b"2026-11-16T08:21:08.500000000Z"
C = b"2026-11-16T08:21:09.250000000Z"


def splitter(folder: Path) -> LogStreamParser:
    log = LogFile(str(folder / "log"), file_bytes=1 << 20, n_files=2)
    return LogStreamParser(log, ResumePoint.of(folder / "resume"))


def written(folder: Path) -> bytes:
    return (folder / "log").read_bytes()


def test_timestamps_are_removed(tmp_path: Path) -> None:
    one = splitter(tmp_path)
    one.take(A + b" first\n" + B + b"  two  \n" + C + b" \n")
    assert written(tmp_path) == b"first\n two  \n\n"


def test_pieces_of_a_line_are_joined(tmp_path: Path) -> None:
    one = splitter(tmp_path)
    for piece in (A[:9], A[9:] + b" fi", b"rst", b"\n"):
        one.take(piece)
    assert written(tmp_path) == b"first\n"


def test_an_endless_line_is_written_in_parts(tmp_path: Path) -> None:
    one = splitter(tmp_path)
    one.take(A + b" ")
    for _ in range(30):
        one.take(b"\r50%" * 1000)
    assert len(written(tmp_path)) > 50_000
    one.take(b"done\n" + B + b" next\n")
    assert written(tmp_path) == b"\r50%" * 30_000 + b"done\nnext\n"


def test_a_last_line_without_a_newline_is_kept(tmp_path: Path) -> None:
    one = splitter(tmp_path)
    one.take(A + b" first\n" + B + b" no end")
    one.finish(is_whole=True)
    assert written(tmp_path) == b"first\nno end"


def test_a_broken_line_is_read_again(tmp_path: Path) -> None:
    one = splitter(tmp_path)
    one.take(A + b" first\n" + B + b" sec")
    one.finish(is_whole=False)
    assert one.since == A.decode()
    one.take(A + b" first\n" + B + b" second\n")
    assert written(tmp_path) == b"first\nsecond\n"


@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize("is_next_daemon", [True, False])
def test_a_repeated_long_line_is_written_once(
    tmp_path: Path, *, is_whole: bool, is_next_daemon: bool
) -> None:
    line = b"".join(b"%7d" % n for n in range(60_000))
    one = splitter(tmp_path)
    one.take(A + b" first\n" + B + b" same\n" + B + b" ")
    for start in range(0, 300_000, 30_000):
        one.take(line[start : start + 30_000])
    one.finish(is_whole=is_whole)
    again = splitter(tmp_path) if is_next_daemon else one
    again.take(A + b" first\n" + B + b" same\n" + B + b" ")
    for start in range(0, len(line), 70_001):
        again.take(line[start : start + 70_001])
    again.take(b"\n" + C + b" last\n")
    assert written(tmp_path) == b"first\nsame\n" + line + b"\nlast\n"


def test_lines_with_the_same_timestamp_are_counted(tmp_path: Path) -> None:
    one = splitter(tmp_path)
    one.take(A + b" x\n" + B + b" y\n" + B + b" y\n")
    one.finish(is_whole=False)
    one.take(A + b" x\n" + B + b" y\n" + B + b" y\n" + B + b" y\n" + C + b" z\n")
    assert written(tmp_path) == b"x\ny\ny\ny\nz\n"


def test_the_next_daemon_resumes(tmp_path: Path) -> None:
    splitter(tmp_path).take(A + b" first\n" + B + b" second\n")
    one = splitter(tmp_path)
    assert one.since == B.decode()
    one.take(A + b" first\n" + B + b" second\n" + C + b" third\n")
    assert written(tmp_path) == b"first\nsecond\nthird\n"


def test_the_file_has_the_times_of_lines(tmp_path: Path) -> None:
    one = splitter(tmp_path)
    one.take(A + b" first\n" + C + b" second\n")
    stamps = [line.split() for line in (tmp_path / "log.times").read_text().splitlines()]
    assert [(int(offset), float(at_s)) for offset, at_s in stamps] == [
        (0, pytest.approx(timestamp_s(A), abs=0.001)),
        (6, pytest.approx(timestamp_s(C), abs=0.001)),
    ]


def test_a_message_of_the_node_is_not_output(tmp_path: Path) -> None:
    one = splitter(tmp_path)
    one.take(A + b" first\n")
    one.take(b"unable to retrieve container logs for containerd://7bb854f2e8723")
    one.finish(is_whole=True)
    assert written(tmp_path) == b"first\n"
    assert one.since == A.decode()


def test_timestamps() -> None:
    assert timestamp_s(b"1970-01-01T00:00:01.5Z") == 1.5
    assert timestamp_s(b"1970-01-01T01:00:01.250000000+01:00") == 1.25
    assert timestamp_s(b"nonsense") == 0.0
