"""`rota logs`: which output is shown, and how."""

# ruff: noqa: ARG002 - the answer is the same for every job
from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from rota.cli.output.logs import LineFormat, print_pieces
from rota.wire.jobs import JobDetails, LogPiece, LogRange
from tests.golden.fake_client import ATTEMPTS, DETAILS, QUEUED, RUNNING, FakeClient
from tests.unit.cli.conftest import Rota


class WithLogs(FakeClient):
    """Attempt 1 has two workers, attempt 2 has one."""

    details = DETAILS

    def show(self, job: str) -> JobDetails:
        return self.details

    def log_pieces(self, job: str, wanted: LogRange) -> Iterator[LogPiece]:
        attempt = wanted.attempt or 2
        yield LogPiece(1e9, attempt, 0, f"attempt {attempt}\n")
        if wanted.follow:
            yield LogPiece(1e9, attempt + 1, 0, "loss 0.5\nnext")


@pytest.fixture(autouse=True)
def client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.client.Client", WithLogs)


def use(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    monkeypatch.setattr(WithLogs, "details", replace(DETAILS, **changes))


def lines_of(*pieces: tuple[int, str], capfdbinary: pytest.CaptureFixture[bytes]) -> list[str]:
    found = (LogPiece(0.0, 1, worker, text) for worker, text in pieces)
    print_pieces(found, LineFormat(has_workers=True))
    return capfdbinary.readouterr().out.decode().splitlines()


def test_lines_are_assembled_per_worker(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    pieces = ((0, "a"), (1, "x\ny"), (0, "b\nc\n"), (1, "z"), (0, "end"))
    found = lines_of(*pieces, capfdbinary=capfdbinary)
    assert found == ["[1] x", "[0] ab", "[0] c", "[1] yz", "[0] end"]


def test_bytes_of_one_worker_are_copied_as_they_are(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    print_pieces([LogPiece(0.0, 1, 0, "\xff\r\x00 50%")], LineFormat())
    assert capfdbinary.readouterr().out == b"\xff\r\x00 50%"


def test_the_default_says_which_attempt_is_shown(rota: Rota, monkeypatch: pytest.MonkeyPatch):
    use(monkeypatch, attempts=ATTEMPTS[1:])
    result = rota("logs", "bert")
    assert result.out == "attempt 2\n"
    assert result.err == "rota: showing attempt 2 of 2; --attempt all shows all attempts\n"


def test_all_attempts_with_marks_between_them(rota: Rota, monkeypatch: pytest.MonkeyPatch):
    use(monkeypatch, attempts=ATTEMPTS[1:])
    result = rota("logs", "bert", "--attempt", "all")
    assert (result.out, result.err) == ("attempt 1\nattempt 2\n", "rota: attempt 2 begins\n")


def test_a_followed_job_has_marks_between_attempts(rota: Rota, monkeypatch: pytest.MonkeyPatch):
    use(monkeypatch, attempts=ATTEMPTS[1:])
    result = rota("logs", "bert", "-f", "--attempt", "2")
    assert result.out == "attempt 2\nloss 0.5\nnext"
    assert result.err == "rota: attempt 3 begins\n"


def test_several_workers_have_prefixes_and_one_has_none(rota: Rota):
    assert rota("logs", "bert", "--attempt", "1").out == "[0] attempt 1\n"
    assert rota("logs", "bert", "--attempt", "1", "--worker", "0").out == "attempt 1\n"


def test_only_matching_lines(rota: Rota):
    assert rota("logs", "bert", "-f", "--grep", r"loss \d").out == "[0] loss 0.5\n"
    result = rota("logs", "bert", "--grep", "(")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("rota: --grep '(' is not a regular expression: ")


def test_a_queued_job_says_why_it_waits(rota: Rota, monkeypatch: pytest.MonkeyPatch):
    use(monkeypatch, job=QUEUED, attempts=[])
    err = rota("logs", "bert", "-f").err
    assert err.startswith(f"rota: job {QUEUED.id} is queued: it waits for 8 GPUs")
    assert "; waiting for its start\n" in err


def test_followed_output_as_json_is_lines_with_a_type(rota: Rota):
    out = rota("logs", "bert", "-f", "--json").out
    found = [json.loads(line) for line in out.splitlines()]
    assert [each["type"] for each in found] == ["log", "log", "job"]
    assert (found[0]["text"], found[-1]["state"]) == ("attempt 2\n", "succeeded")
    assert found[-1]["id"] == RUNNING.id


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--attempt", "0"], "--attempt 0 is not an attempt; write 1, 2, ... or all"),
        (["--attempt", "some"], "--attempt some is not an attempt"),
        (["--since", "soon"], "--since: 'soon' is not a time; write 90s"),
    ],
)
def test_wrong_flags(rota: Rota, arguments: list[str], message: str):
    result = rota("logs", "bert", *arguments)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"rota: {message}")
