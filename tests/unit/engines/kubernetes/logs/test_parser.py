"""A pod's output: just what the program wrote, once, however often the stream breaks."""

from pathlib import Path

import pytest

from rota.engines.kubernetes.log_lines import Resume, Splitter, seconds
from rota.engines.logfiles.writing import LogFile

A, B = b"2026-11-16T08:21:08.000000001Z", b"2026-11-16T08:21:08.500000000Z"
C = b"2026-11-16T08:21:09.250000000Z"


def splitter(folder: Path) -> Splitter:
    log = LogFile(str(folder / "log"), file_bytes=1 << 20, n_files=2)
    return Splitter(log, Resume.of(folder / "resume"))


def written(folder: Path) -> bytes:
    return (folder / "log").read_bytes()


def test_lines_lose_their_moments_and_nothing_else(tmp_path: Path) -> None:
    one = splitter(tmp_path)
    one.take(A + b" first\n" + B + b"  two  \n" + C + b" \n")
    assert written(tmp_path) == b"first\n two  \n\n"


def test_a_line_that_comes_in_pieces_is_one(tmp_path: Path) -> None:
    one = splitter(tmp_path)
    for piece in (A[:9], A[9:] + b" fi", b"rst", b"\n"):
        one.take(piece)
    assert written(tmp_path) == b"first\n"


def test_a_line_that_never_ends_is_not_waited_for(tmp_path: Path) -> None:
    one = splitter(tmp_path)
    one.take(A + b" ")
    for _ in range(30):
        one.take(b"\r50%" * 1000)
    assert len(written(tmp_path)) > 50_000
    one.take(b"done\n" + B + b" next\n")
    assert written(tmp_path) == b"\r50%" * 30_000 + b"done\nnext\n"


def test_a_last_line_without_an_end_is_kept(tmp_path: Path) -> None:
    one = splitter(tmp_path)
    one.take(A + b" first\n" + B + b" no end")
    one.finish(is_whole=True)
    assert written(tmp_path) == b"first\nno end"


def test_a_broken_line_comes_again_as_a_whole(tmp_path: Path) -> None:
    one = splitter(tmp_path)
    one.take(A + b" first\n" + B + b" sec")
    one.finish(is_whole=False)
    assert one.since == A.decode()
    one.take(A + b" first\n" + B + b" second\n")
    assert written(tmp_path) == b"first\nsecond\n"


@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize("is_next_daemon", [True, False])
def test_a_long_line_that_comes_again_in_other_pieces_is_written_once(
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


def test_lines_of_one_moment_are_counted(tmp_path: Path) -> None:
    one = splitter(tmp_path)
    one.take(A + b" x\n" + B + b" y\n" + B + b" y\n")
    one.finish(is_whole=False)
    one.take(A + b" x\n" + B + b" y\n" + B + b" y\n" + B + b" y\n" + C + b" z\n")
    assert written(tmp_path) == b"x\ny\ny\ny\nz\n"


def test_the_next_daemon_goes_on_where_the_last_one_was(tmp_path: Path) -> None:
    splitter(tmp_path).take(A + b" first\n" + B + b" second\n")
    one = splitter(tmp_path)
    assert one.since == B.decode()
    one.take(A + b" first\n" + B + b" second\n" + C + b" third\n")
    assert written(tmp_path) == b"first\nsecond\nthird\n"


def test_the_file_knows_when_it_was_written(tmp_path: Path) -> None:
    one = splitter(tmp_path)
    one.take(A + b" first\n" + C + b" second\n")
    stamps = [line.split() for line in (tmp_path / "log.times").read_text().splitlines()]
    assert [(int(offset), float(at_s)) for offset, at_s in stamps] == [
        (0, pytest.approx(seconds(A), abs=0.001)),
        (6, pytest.approx(seconds(C), abs=0.001)),
    ]


def test_what_the_node_has_to_say_is_not_the_programs(tmp_path: Path) -> None:
    one = splitter(tmp_path)
    one.take(A + b" first\n")
    one.take(b"unable to retrieve container logs for containerd://7bb854f2e8723")
    one.finish(is_whole=True)
    assert written(tmp_path) == b"first\n"
    assert one.since == A.decode()


def test_moments() -> None:
    assert seconds(b"1970-01-01T00:00:01.5Z") == 1.5
    assert seconds(b"1970-01-01T01:00:01.250000000+01:00") == 1.25
    assert seconds(b"nonsense") == 0.0
