"""Reports of a worker over real HTTP, also without a reachable daemon."""

import socket
from pathlib import Path
from typing import Any

import pytest

from tests.integration.trainer.fake_daemon import (
    FakeDaemon,
    daemon,
    environment,
    run_training_script,
    script,
)
from tests.support.timeouts import PATIENCE_S

TRAIN = """
import time
import rota_trainer

run = rota_trainer.start()
run.restore(lambda path: None)
for epoch in run.epochs(3, save=lambda path: path.write_text("state")):
    for batch in run.steps([[0.0] * 8] * 5):
        pass
    run.report(loss=1 / (epoch + 1), epoch_seen=epoch)
print("done")
"""


def worker(url: str, folder: Path, **more: str) -> dict[str, str]:
    return environment(url, ROTA_CHECKPOINT_DIR=str(folder / "checkpoints"), **more)


def check_reports(rota: FakeDaemon) -> None:
    """Check that everything the script did is reported once."""
    assert rota.tokens == {"Bearer secret"}
    assert rota.paths == {"/v1/training/report"}
    sequences = [report["sequence"] for report in rota.reports]
    assert sequences == sorted(sequences)
    assert [record["number"] for record in rota.records("epochs")] == [1, 2, 3]
    assert {(each["steps"], each["samples"]) for each in rota.records("epochs")} == {(5, 40)}
    assert sum(record["count"] for record in rota.records("steps")) == 15
    assert sum(record["samples"] for record in rota.records("steps")) == 120
    assert min(record["seconds"] for record in rota.records("steps")) > 0
    last = rota.distinct[-1]
    expected: dict[str, Any] = {
        "worker": 3,
        "version": 1,
        "hears": True,
        "dropped": 0,
        "epochs_done": 3.0,
        "epochs_total": 3.0,
        "epochs_saved": 3.0,
        "steps_done": 0,
        "steps_total": 5,
    }
    assert {name: last[name] for name in expected} == expected
    assert last["save_s"] > 0
    assert last["memory_bytes"] > 1 << 20
    metrics = {name: value for each in rota.distinct for name, value in each["metrics"].items()}
    assert metrics == {"loss": pytest.approx(1 / 3), "epoch_seen": 2.0}


def test_all_progress_is_reported_once(tmp_path: Path) -> None:
    with daemon() as rota:
        done = run_training_script(tmp_path, TRAIN, env=worker(rota.url, tmp_path))
        assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
        check_reports(rota)


def test_reports_are_sent_over_a_unix_socket(tmp_path: Path) -> None:
    with daemon(tmp_path / "rota.sock") as rota:
        done = run_training_script(tmp_path, TRAIN, env=worker(rota.url, tmp_path))
        assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
        check_reports(rota)


LONG = """
import sys
import rota_trainer

run = rota_trainer.start()
for epoch in run.epochs(1_000_000):
    run.report(loss=float(epoch))
    print(epoch, flush=True)
    if not sys.stdin.readline().strip():
        break
"""


def test_reports_share_one_connection_and_answers_are_held(tmp_path: Path) -> None:
    with daemon() as rota, script(tmp_path, LONG, env=worker(rota.url, tmp_path)) as process:
        rota.wait_for(lambda reports: len(reports) >= 4)
        assert len(rota.connections) == 1
        assert {report["wait_s"] for report in rota.reports} == {1.0}
        _, err = process.communicate("\n", timeout=PATIENCE_S)
        assert (process.returncode, err) == (0, "")
        assert rota.reports[-1]["wait_s"] == 0.0


def test_progress_of_earlier_attempts_is_reported_until_the_position_is_known(
    tmp_path: Path,
) -> None:
    text = """
import sys
import rota_trainer
run = rota_trainer.start()
sys.stdin.readline()
for epoch in run.epochs(9, done=6):
    break
"""
    with daemon() as rota:
        env = worker(rota.url, tmp_path, EPOCHS_DONE="5", ROTA_EPOCHS="9", ROTA_BEGAN="1000")
        with script(tmp_path, text, env=env) as process:
            rota.wait_for(bool)
            process.communicate("\n", timeout=PATIENCE_S)
        first, last = rota.distinct[0], rota.distinct[-1]
        assert (first["epochs_done"], first["epochs_saved"], first["hears"]) == (5.0, None, False)
        assert (last["epochs_done"], last["epochs_saved"], last["hears"]) == (6.0, None, True)
        assert first["epochs_total"] == 9.0
        assert first["start_s"] is None
        assert last["start_s"] > 1e9


def test_training_runs_without_a_daemon(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    done = run_training_script(tmp_path, TRAIN, env=worker(f"http://127.0.0.1:{port}", tmp_path))
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("url", ["nonsense", "http://", "http://[", "http://x:99999", "unix:///no"])
def test_invalid_address_does_not_stop_training(url: str, tmp_path: Path) -> None:
    done = run_training_script(tmp_path, TRAIN, env=worker(url, tmp_path))
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert "Traceback" not in done.stderr


def test_daemon_that_never_answers_does_not_stop_training(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        done = run_training_script(tmp_path, TRAIN, env=worker(url, tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_restarted_daemon_gets_the_missed_reports(tmp_path: Path) -> None:
    with daemon() as first:
        port = int(first.url.rsplit(":", 1)[1])
        process_of = script(tmp_path, LONG, env=worker(first.url, tmp_path))
        process = process_of.__enter__()
        assert process.stdin is not None
        assert process.stderr is not None
        first.wait_for(lambda reports: len(reports) >= 2)
    try:
        process.stdin.write("on\n" * 3)
        process.stdin.flush()
        assert "cannot reach the daemon" in process.stderr.readline()
        with daemon(port=port) as second:
            second.wait_for(bool)
            assert process.stderr.readline() == "rota: the daemon is reachable again\n"
            process.communicate("\n", timeout=PATIENCE_S)
            heard = [record["number"] for record in first.records("epochs")]
            heard += [record["number"] for record in second.records("epochs")]
            assert sorted(set(heard)) == [1, 2, 3]
            assert second.distinct[-1]["epochs_done"] == 3.0
    finally:
        process_of.__exit__(None, None, None)


def test_html_page_of_a_proxy_is_ignored(tmp_path: Path) -> None:
    for status in (200, 404, 502):
        with daemon() as rota:
            rota.answers = lambda status=status: (status, "text/html", b"<html>Sorry</html>")
            with script(tmp_path, LONG, env=worker(rota.url, tmp_path)) as process:
                assert process.stderr is not None
                assert "cannot reach the daemon" in process.stderr.readline()
                rota.answers = None
                assert process.stderr.readline() == "rota: the daemon is reachable again\n"
                assert process.communicate("\n", timeout=PATIENCE_S)[1] == ""


@pytest.mark.parametrize("status", [401, 403, 404])
def test_final_rejection_ends_reporting_and_not_training(status: int, tmp_path: Path) -> None:
    with daemon() as rota:
        rota.answers = lambda: (status, "application/json", b'{"code": "forbidden"}')
        with script(tmp_path, LONG, env=worker(rota.url, tmp_path)) as process:
            assert process.stderr is not None
            said = process.stderr.readline()
            process.communicate("\n", timeout=PATIENCE_S)
        assert said == (
            f"rota: the daemon answered {status}; reporting is disabled, training continues\n"
        )
        assert (process.returncode, len(rota.reports)) == (0, 1)


def test_rejected_report_is_dropped_and_counted(tmp_path: Path) -> None:
    with daemon() as rota:
        rota.answers = lambda: (422, "application/json", b'{"code": "invalid"}')
        with script(tmp_path, LONG, env=worker(rota.url, tmp_path)) as process:
            assert process.stdin is not None
            rota.wait_for(bool)
            process.stdin.write("on\n")
            process.stdin.flush()
            rota.wait_for(lambda reports: reports[-1]["epochs"] != [])
            rota.answers = None
            rota.wait_for(lambda reports: reports[-1]["dropped"] == 1)
            process.communicate("\n", timeout=PATIENCE_S)
        assert process.returncode == 0


NONSENSE = """
import rota_trainer

class Tensor:
    def __float__(self):
        return 2.5

run = rota_trainer.start()
run.report(**{"self": 1, "x" * 100: 2})
run.report(loss=float("nan"), text="3", nothing=None, tensor=Tensor(), listed=[1], large=10**400)
run.report(infinite=float("inf"), flag=True)
for n in range(1000):
    run.report(**{f"metric-{n}": n})
"""


def test_invalid_metrics_are_dropped_and_noted_once(tmp_path: Path) -> None:
    with daemon() as rota:
        done = run_training_script(tmp_path, NONSENSE, env=worker(rota.url, tmp_path))
        assert done.stderr == (
            "rota: metric loss is not a finite number; such values are ignored\n"
        )
        for report in rota.distinct:
            assert len(report["metrics"]) <= 64
        found = {name: value for each in rota.distinct for name, value in each["metrics"].items()}
        assert {name: found[name] for name in ("self", "tensor", "flag", "x" * 64)} == {
            "self": 1.0,
            "tensor": 2.5,
            "flag": 1.0,
            "x" * 64: 2.0,
        }
        assert not {"loss", "text", "nothing", "listed", "large", "infinite"} & found.keys()
        assert rota.distinct[-1]["dropped"] > 0


def test_notes_of_the_daemon_are_printed(tmp_path: Path) -> None:
    with daemon() as rota:
        rota.order(notes=["your loss is odd", 7])
        with script(tmp_path, LONG, env=worker(rota.url, tmp_path)) as process:
            assert process.stderr is not None
            assert process.stderr.readline() == "rota: your loss is odd\n"


ALONE = """
import threading
import rota_trainer

run = rota_trainer.start()
run.restore(print)
for epoch in run.epochs(2, save=lambda path: path.write_text("state")):
    for batch in run.steps(range(3)):
        run.report(loss=1.0)
assert threading.active_count() == 1
print(run.checkpoint_dir.parent.name, len(list(run.checkpoint_dir.iterdir())))
"""


def test_standalone_run_has_no_thread_and_its_own_folder(tmp_path: Path) -> None:
    for n_runs in (1, 2):
        done = run_training_script(tmp_path, ALONE, env=environment())
        assert (done.stdout, done.stderr) == ("rota-checkpoints 2\n", "")
        assert len(list((tmp_path / "rota-checkpoints").iterdir())) == n_runs


def test_only_the_first_process_of_an_agent_reports(tmp_path: Path) -> None:
    agent = {"TORCHELASTIC_RUN_ID": "j1", "WORLD_SIZE": "4"}
    with daemon() as rota:
        second = worker(rota.url, tmp_path, **agent, RANK="3", LOCAL_RANK="1")
        assert run_training_script(tmp_path, TRAIN, env=second).stdout == "done\n"
        assert rota.reports == []
        first = worker(rota.url, tmp_path, **agent, RANK="2", LOCAL_RANK="0")
        assert run_training_script(tmp_path, TRAIN, env=first).stdout == "done\n"
        assert rota.distinct[-1]["epochs_done"] == 3.0
