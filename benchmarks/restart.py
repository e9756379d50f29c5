"""Measures the time until a daemon is ready again after kill -9.

    python -m benchmarks.restart [--jobs 1000] [--rounds 5]

The store holds `--jobs` jobs, eight of them running. The aim is under 2 seconds with 1,000 jobs and
under 3 seconds with 60,000, from the start of the command to an answer of `/readyz`. The CPU time
of the daemon shows the cost also on a busy machine. Everything is in a temporary folder and stops
with the benchmark.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import rota
from benchmarks.support.markdown import table
from rota.client import Client, JobRequest
from rota.client.endpoint import Endpoint
from rota.client.http import connect
from rota.errors import UnavailableError

N_GPUS = 8
BATCH = 1000
LOOK_AGAIN_S = 0.005
READY = 200
AIM_S, LARGE_AIM_S = 2.0, 3.0
NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
ROTA = (sys.executable, "-m", "rota.cli.main")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rota-") as folder:
        measured = measure(Path(folder), n_jobs=arguments.jobs, rounds=arguments.rounds)
    print(render(measured))
    load = f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    print(f"\naim: under {AIM_S:g} s with 1,000 jobs, {LARGE_AIM_S:g} s with 60,000; load: {load}")


@dataclass(frozen=True, slots=True)
class RestartTime:
    """Seconds until the daemon was ready: by the clock, and of CPU in the daemon."""

    wall_s: float
    cpu_s: float


def render(measured: Mapping[str, Sequence[RestartTime]]) -> str:
    rows: list[list[str]] = []
    for name, times in measured.items():
        walls, cpus = [each.wall_s for each in times], [each.cpu_s for each in times]
        cpu = f"{statistics.median(cpus):.2f}"
        rows.append([name, f"{statistics.median(walls):.2f}", f"{max(walls):.2f}", cpu])
    return table(["seconds to /readyz", "median", "most", "CPU, median"], rows)


def measure(folder: Path, *, n_jobs: int, rounds: int) -> dict[str, list[RestartTime]]:
    """The times of each repetition, with an empty store and with all jobs."""
    empty, full = folder / "empty", folder / "full"
    full.mkdir()
    (full / "config.toml").write_text(f"max_queued_jobs = {n_jobs + 1}\n", encoding="utf-8")
    with daemon(full), Client(f"unix://{full}/rota.sock") as client:
        request = JobRequest(["sleep", "infinity"], gpus="1", workdir="/")
        for done in range(0, n_jobs, BATCH):
            client.submit_many([request] * min(BATCH, n_jobs - done))
        while len(client.jobs(states=["running"]).jobs) < min(N_GPUS, n_jobs):
            time.sleep(LOOK_AGAIN_S)
    try:
        return {
            "no job": [seconds(empty) for _ in range(rounds)],
            f"{n_jobs:,} jobs, {min(N_GPUS, n_jobs)} running": [
                seconds(full) for _ in range(rounds)
            ],
        }
    finally:
        with daemon(full):
            run("down", "--stop-jobs", home=full)


def seconds(home: Path) -> RestartTime:
    began = time.perf_counter()
    with daemon(home) as process:
        return RestartTime(time.perf_counter() - began, cpu_seconds(process.pid))


def cpu_seconds(pid: int) -> float:
    """The CPU time of a process so far, in user and system mode."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def daemon(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon that is ready inside the block and killed after it."""
    home.mkdir(exist_ok=True)
    command = [*ROTA, "up", "--virtual-gpus", f"{N_GPUS}x16GiB"]
    process = subprocess.Popen(command, env=environment(home), stderr=subprocess.DEVNULL)
    try:
        while not is_ready(home):
            if process.poll() is not None:
                raise SystemExit("the daemon ended before it was ready")
            time.sleep(LOOK_AGAIN_S)
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
        process.wait()


def is_ready(home: Path) -> bool:
    try:
        connection = connect(Endpoint(socket=f"{home}/rota.sock"), answer_s=1.0)
    except UnavailableError:
        return False
    # On a busy machine an answer may take longer than the timeout of the connection.
    with closing(connection), suppress(TimeoutError):
        connection.request("GET", "/readyz", headers={})
        return connection.response().status == READY
    return False


def run(*arguments: str, home: Path) -> None:
    subprocess.run([*ROTA, *arguments], env=environment(home), check=True, capture_output=True)


def environment(home: Path) -> dict[str, str]:
    """With bytecode, as an installed daemon has it: the first start writes it."""
    kept = {name: value for name, value in os.environ.items() if name != NO_BYTECODE}
    return {**kept, "ROTA_HOME": str(home), "PYTHONPATH": str(Path(rota.__file__).parents[1])}


if __name__ == "__main__":
    main()
