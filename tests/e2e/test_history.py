"""The history of a daemon is a trace: what ran here can be simulated with another policy."""

from __future__ import annotations

import json
from pathlib import Path

from rota.simulator.traces import load
from tests.support.daemon_process import temporary_daemon


def test_an_exported_history_can_be_simulated(tmp_path: Path) -> None:
    with temporary_daemon() as daemon:
        daemon.up()
        ended = daemon.submit("sleep 0.2", name="ended", gpus="2", priority=-3, project="vision")
        assert daemon.ends(ended).state == "succeeded"
        shared = daemon.submit("sleep 0.2", name="shared", gpus="0.5")
        elastic = daemon.submit("sleep 0.2", name="elastic", gpus="1..4")
        assert {daemon.ends(each).state for each in (shared, elastic)} == {"succeeded"}
        running = daemon.submit("say on; await go", name="running", gpus="1")
        daemon.says(running, "on")
        daemon.reaches(running, "running")
        held = daemon.submit("true", name="never", gpus="1", hold=True)
        done = daemon.rota("history", "export", "--since", "1h")
        assert (done.returncode, done.stderr) == (
            0,
            "rota: left out jobs that have not run: 1\n",
        )
        trace = tmp_path / "trace.csv"
        trace.write_text(done.stdout)
        jobs = load(str(trace)).jobs
        assert [job.spec.name for job in jobs] == ["ended", "shared", "elastic", "running"]
        first = jobs[0].spec
        user = daemon.client.me()
        assert (first.user, first.project, first.priority) == (user, "vision", -3)
        assert (first.min_workers, first.max_workers, jobs[0].submit_s) == (2, 2, 0.0)
        assert first.estimate is not None
        assert first.estimate.seconds >= 0.2
        assert jobs[2].spec.max_workers == 4
        command = ("simulate", str(trace), "--cluster", "1x4", "--policy", "fifo", "--json")
        (result,) = json.loads(daemon.rota(*command).stdout)
        assert (result["jobs"], result["finished"]) == (4, 4)
        assert held not in done.stdout
        assert daemon.rota("history", "export", "--since", "0s").stdout.count("\n") == 1
