"""Runs the command line in this process, the way the installed program does."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from rota.cli.main import run


@dataclass(frozen=True, slots=True)
class Result:
    code: int
    out: str
    err: str


Rota = Callable[..., Result]


class Stdin:
    """A pipe with these bytes in it."""

    def __init__(self, content: bytes) -> None:
        self.buffer = io.BytesIO(content)

    def isatty(self) -> bool:
        return False


@pytest.fixture
def rota(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Rota:
    def call(*arguments: str, stdin: bytes = b"") -> Result:
        monkeypatch.setattr("sys.stdin", Stdin(stdin))
        code = run(arguments)
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return call
