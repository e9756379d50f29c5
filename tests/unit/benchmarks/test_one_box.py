"""The results page of one machine with made-up values, and the cleanup of a sandbox."""

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.one_box import __main__
from benchmarks.one_box.measurements import OneBoxMeasure
from benchmarks.one_box.peer import Amounts, NotOfferedError, Peer, spread
from benchmarks.support.markdown import NO_VALUE, Figure
from benchmarks.support.sandbox import PEERS_VARIABLE, Sandbox, sandbox, search_path, wait_until
from tests.support.processes import started
from tests.support.timeouts import PATIENCE_S


class Paper:
    """A scheduler that exists on paper only."""

    name = "Paper"
    version = "1.0"
    needs = "a pencil"
    remark = "Paper is patient."
    is_durable = True
    amounts = Amounts()

    def available(self) -> bool:
        return False

    @contextmanager
    def running(self, slots: int) -> Iterator[None]:
        raise RuntimeError(f"{slots} slots on paper")
        yield

    def submit_one(self, argv: Sequence[str]) -> None:
        raise NotOfferedError(str(argv))

    def submit_singles(self, n: int, n_clients: int) -> None:
        raise NotOfferedError(f"{n} {n_clients}")

    def submit_many(self, n: int) -> None:
        raise NotOfferedError(str(n))

    def run_noops(self, n: int) -> None:
        raise NotOfferedError(str(n))

    def list_once(self) -> None:
        raise NotOfferedError

    def survivors(self, n: int) -> int:
        raise NotOfferedError(str(n))

    def server_pids(self) -> Sequence[int]:
        return []


PAPER: Peer = Paper()


def row(page: str, what: OneBoxMeasure) -> list[str]:
    (line,) = [line for line in page.splitlines() if line.startswith(f"| {what.title} ")]
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_result_of_a_peer_has_the_ratio_to_rota() -> None:
    measured = {
        __main__.OURS: {
            OneBoxMeasure.SINGLES: Figure(600.0, "/s"),
            OneBoxMeasure.NOOPS: Figure(12.0, "ms", "9 jobs"),
        },
        PAPER: {
            OneBoxMeasure.SINGLES: Figure(200.0, "/s"),
            OneBoxMeasure.NOOPS: Figure(48.0, "ms", "9 jobs"),
        },
    }
    page = __main__.render(measured, [], phases="PHASES")
    assert row(page, OneBoxMeasure.SINGLES) == ["500/s", "600/s", "200/s · 3"]
    assert row(page, OneBoxMeasure.NOOPS) == ["15 ms", "12 ms (9 jobs)", "48 ms (9 jobs) · 0.25"]
    assert row(page, OneBoxMeasure.BATCHES) == ["5,000/s", NO_VALUE, NO_VALUE]
    assert PAPER.remark in page
    assert f"{__main__.PHASES_INTRODUCTION}\n\nPHASES\n" in page


def test_page_without_rota_has_no_ratios() -> None:
    page = __main__.render(
        {PAPER: {OneBoxMeasure.SINGLES: Figure(2.5, "/s")}},
        ["Stone, which needs a tool"],
        phases="",
    )
    assert row(page, OneBoxMeasure.SINGLES) == ["500/s", NO_VALUE, "2.5/s"]
    assert "Not measured: Stone, which needs a tool." in page


def test_all_peers_may_be_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(__main__, "PEERS", (PAPER,))
    monkeypatch.setattr(sys, "argv", ["one_box", "--only", "paper", "--out", str(tmp_path / "p")])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    __main__.main()
    assert capsys.readouterr().err == "not measured: Paper, which needs a pencil\n"
    assert "Not measured: Paper" in (tmp_path / "p").read_text()


def test_an_unknown_name_lists_the_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["one_box", "--only", "cron"])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit, match="no such scheduler: cron; there are rota, slurm"):
        __main__.main()


def test_clients_share_the_work() -> None:
    calls: list[int] = []
    spread(lambda: calls.append(1), 100, n_clients=7)
    assert len(calls) == 100


def test_sandbox_stops_background_processes() -> None:
    with sandbox("test") as place:
        place.daemon("sleep", "1000", is_ready=lambda: True)
        place.run("sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 &")
        wait_until(lambda: len(place.pids()) == 2, what="both", every_s=0.01, within_s=PATIENCE_S)
        others = Sandbox(place.folder.with_name("another"))
        assert others.pids() == []
    wait_until(lambda: not place.pids(), what="end of both", every_s=0.01, within_s=PATIENCE_S)
    assert not place.folder.exists()


def test_daemon_that_exits_at_once_raises_its_output() -> None:
    with (
        sandbox("test") as place,
        pytest.raises(RuntimeError, match="ended with 3 at start: no such port"),
    ):
        place.daemon("sh", "-c", "echo no such port; exit 3", is_ready=lambda: False)


def test_failed_command_raises_its_stderr() -> None:
    with sandbox("test") as place, pytest.raises(RuntimeError, match="ended with 1: what"):
        place.run("sh", "-c", "echo what >&2; exit 1")


def test_named_folder_is_first_in_path() -> None:
    given = {PEERS_VARIABLE: "/somewhere", "PATH": "/bin"}
    assert search_path(given) == "/somewhere/bin:/bin:/usr/sbin:/sbin"
    assert search_path({"PATH": "/bin"}).startswith("/bin:")


def test_interrupted_run_leaves_no_process() -> None:
    script = (
        "import signal, time\n"
        "from benchmarks.support.sandbox import sandbox\n"
        # A shell ignores SIGINT in what it runs in the background, and a program inherits this.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "with sandbox('test') as place:\n"
        "    place.daemon('sleep', '1000', is_ready=lambda: True)\n"
        "    print(place.folder, flush=True)\n"
        # In short pauses: a signal just before a blocking call is handled after the call.
        "    while True: time.sleep(0.01)\n"
    )
    with started(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as run:
        assert run.stdout is not None
        folder = Path(run.stdout.readline().strip())
        run.send_signal(signal.SIGINT)
        run.wait(PATIENCE_S)
    assert not folder.exists()
    assert Sandbox(folder).pids() == []
