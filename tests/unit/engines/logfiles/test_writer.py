"""Log files have a bounded size and begin with whole lines."""

from pathlib import Path
from tempfile import TemporaryDirectory

import hypothesis.strategies as st
from hypothesis import given

from rota.engines.logfiles.writer import FILE_BYTES_MIN, LogFile

TO_FINISH_BYTES = FILE_BYTES_MIN // 8
"""What a file of this size keeps free for the rest of a line."""


def files_of(*pieces: bytes) -> list[bytes]:
    """The content of each file, oldest first; no file is deleted."""
    with TemporaryDirectory() as temporary:
        path = Path(temporary) / "log"
        log = LogFile(str(path), file_bytes=FILE_BYTES_MIN, n_files=100)
        for piece in pieces:
            log.write(piece)
        log.close()
        numbered = [each for each in path.parent.iterdir() if each.suffix[1:].isdecimal()]
        older = sorted(numbered, key=lambda each: int(each.suffix[1:]), reverse=True)
        return [each.read_bytes() for each in [*older, path]]


def cut(output: bytes, lengths: list[int]) -> list[bytes]:
    pieces: list[bytes] = []
    while output:
        length = lengths[len(pieces) % len(lengths)]
        pieces.append(output[:length])
        output = output[length:]
    return pieces


@given(
    line_bytes=st.integers(1, TO_FINISH_BYTES),
    lengths=st.lists(st.integers(20, 3 * FILE_BYTES_MIN), min_size=1, max_size=5),
)
def test_every_file_begins_with_a_whole_line(line_bytes: int, lengths: list[int]) -> None:
    output = (b"x" * (line_bytes - 1) + b"\n") * (4 * FILE_BYTES_MIN // line_bytes)
    files = files_of(*cut(output, lengths))
    assert b"".join(files) == output
    assert all(each.endswith(b"\n") for each in files)
    assert max(map(len, files)) <= FILE_BYTES_MIN


@given(lengths=st.lists(st.integers(20, 3 * FILE_BYTES_MIN), min_size=1, max_size=5))
def test_line_longer_than_a_file_is_cut_at_the_file_size(lengths: list[int]) -> None:
    output = b"first\n" + b"x" * (3 * FILE_BYTES_MIN) + b"\nlast\n"
    files = files_of(*cut(output, lengths))
    assert b"".join(files) == output
    assert max(map(len, files)) == FILE_BYTES_MIN
    assert len(files) <= 5
