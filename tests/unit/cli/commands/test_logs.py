"""`rota logs --timestamps` assembles lines from pieces of output."""

import time

import pytest

from rota.cli.commands.logs import _copy_lines  # pyright: ignore[reportPrivateUsage]
from rota.wire.jobs import LogPiece


def lines_of(*pieces: tuple[int, str], capsys: pytest.CaptureFixture[str]) -> list[str]:
    _copy_lines(LogPiece(0.0, 1, worker, text) for worker, text in pieces)
    return [line[24:] for line in capsys.readouterr().out.splitlines()]


def test_lines_are_assembled_per_worker(capsys: pytest.CaptureFixture[str]) -> None:
    pieces = ((0, "a"), (1, "x\ny"), (0, "b\nc\n"), (1, "z"), (0, "end"))
    found = lines_of(*pieces, capsys=capsys)
    assert found == ["1/1 x", "1/0 ab", "1/0 c", "1/1 yz", "1/0 end"]


def test_endless_line_takes_linear_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Put together anew with each piece, it would cost the square of that."""
    start_s = time.process_time()
    [line] = lines_of(*[(0, "x" * 65536)] * 1000, capsys=capsys)
    assert len(line) == len("1/0 ") + 65536 * 1000
    assert time.process_time() - start_s < 10
