"""The page of one box on made-up figures, and that a peer's stage leaves nothing behind."""

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks import one_box
from benchmarks.one_box_measures import Figure, What
from benchmarks.page import NO_VALUE
from benchmarks.peers import stage as stages
from benchmarks.peers.base import Amounts, NotOfferedError, Peer, spread, wait_until
from benchmarks.peers.stage import Stage, search_path, stage


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


def row(page: str, what: What) -> list[str]:
    (line,) = [line for line in page.splitlines() if line.startswith(f"| {what.title} ")]
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_a_figure_of_a_peer_is_followed_by_our_ratio_to_it() -> None:
    measured = {
        one_box.OURS: {What.SINGLES: Figure(600.0, "/s"), What.NOOPS: Figure(12.0, "ms", "9 jobs")},
        PAPER: {What.SINGLES: Figure(200.0, "/s"), What.NOOPS: Figure(48.0, "ms", "9 jobs")},
    }
    page = one_box.render(measured, [])
    assert row(page, What.SINGLES) == ["500/s", "600/s", "200/s · 3"]
    assert row(page, What.NOOPS) == ["15 ms", "12 ms (9 jobs)", "48 ms (9 jobs) · 0.25"]
    assert row(page, What.BATCHES) == ["5,000/s", NO_VALUE, NO_VALUE]
    assert PAPER.remark in page


def test_a_page_without_us_has_no_ratios() -> None:
    page = one_box.render({PAPER: {What.SINGLES: Figure(2.5, "/s")}}, ["Stone, which needs a tool"])
    assert row(page, What.SINGLES) == ["500/s", NO_VALUE, "2.5/s"]
    assert "Not measured: Stone, which needs a tool." in page


def test_all_peers_may_be_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(one_box, "PEERS", (PAPER,))
    monkeypatch.setattr(sys, "argv", ["one_box", "--only", "paper", "--out", str(tmp_path / "p")])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    one_box.main()
    assert capsys.readouterr().err == "not measured: Paper, which needs a pencil\n"
    assert "Not measured: Paper" in (tmp_path / "p").read_text()


def test_an_unknown_name_lists_the_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["one_box", "--only", "cron"])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit, match="no such scheduler: cron; there are rota, slurm"):
        one_box.main()


def test_clients_share_the_work() -> None:
    calls: list[int] = []
    spread(lambda: calls.append(1), 100, n_clients=7)
    assert len(calls) == 100


def test_a_stage_ends_also_what_left_for_the_background() -> None:
    with stage("test") as place:
        place.daemon("sleep", "1000", is_ready=lambda: True)
        place.run("sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 &")
        wait_until(lambda: len(place.pids()) == 2, what="both", every_s=0.01, within_s=10.0)
        others = Stage(place.folder.with_name("another"))
        assert others.pids() == []
    wait_until(lambda: not place.pids(), what="end of both", every_s=0.01, within_s=10.0)
    assert not place.folder.exists()


def test_a_daemon_that_ends_at_once_tells_why() -> None:
    with (
        stage("test") as place,
        pytest.raises(RuntimeError, match="ended with 3 at start: no such port"),
    ):
        place.daemon("sh", "-c", "echo no such port; exit 3", is_ready=lambda: False)


def test_a_command_that_fails_tells_why() -> None:
    with stage("test") as place, pytest.raises(RuntimeError, match="ended with 1: what"):
        place.run("sh", "-c", "echo what >&2; exit 1")


def test_the_named_folder_comes_first() -> None:
    given = {stages.PEERS_VARIABLE: "/somewhere", "PATH": "/bin"}
    assert search_path(given) == "/somewhere/bin:/bin:/usr/sbin:/sbin"
    assert search_path({"PATH": "/bin"}).startswith("/bin:")


def test_an_interrupted_run_leaves_nothing() -> None:
    script = (
        "import signal\n"
        "from benchmarks.peers.stage import stage\n"
        # Whoever runs the tests in the background has made us deaf to it.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "with stage('test') as place:\n"
        "    place.daemon('sleep', '1000', is_ready=lambda: True)\n"
        "    print(place.folder, flush=True)\n"
        "    input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as run:
        assert run.stdout is not None
        folder = Path(run.stdout.readline().strip())
        run.send_signal(signal.SIGINT)
        run.wait(20)
    assert not folder.exists()
    assert Stage(folder).pids() == []
