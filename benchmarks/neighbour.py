"""Measures what an attack of one user costs another user of the same daemon.

    python -m benchmarks.neighbour [--seconds 10] [--only NAMES] [--out FILE]

While each attack of `benchmarks.support.attacks` runs, another user submits, lists and cancels jobs
and starts one. The 99th percentile of each is compared with the idle daemon (goal: 3 times), and
the daemon's memory with 400 MiB. The attacker is a process of its own: on a small machine it also
takes CPU time from the measuring user. Everything is in a temporary folder and stops with the
benchmark.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.restart import daemon, environment, run
from benchmarks.support.attacks import ATTACKS, EXEC_JOB, LOG_JOB
from benchmarks.support.markdown import RESULTS, machine, page, publish, table
from rota.client import Client, JobRequest

GOAL, GOAL_BYTES = 3.0, 400 * 2**20
MIB = 2**20
KINDS = ("submit", "list", "cancel", "start")
SETTLE_S = 1.0
LOG_BYTES = 300_000_000
ALICE, EVE = "daemon", "nobody"
"""Two accounts that every machine has. Without root, both names run as this user."""


@dataclass(slots=True)
class Measured:
    """Seconds of each kind of request, and the daemon's memory."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    memory_bytes: int = 0
    load: float = 0.0

    def p99_s(self, kind: str) -> float:
        ordered = sorted(self.seconds[kind])
        return ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]

    def median_s(self, kind: str) -> float:
        ordered = sorted(self.seconds[kind])
        return ordered[len(ordered) // 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--only", nargs="*", default=list(ATTACKS), choices=list(ATTACKS))
    parser.add_argument("--out", type=Path, default=RESULTS / "neighbour.md")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rota-") as folder:
        Path(folder).chmod(0o755)
        measured = measure(Path(folder) / "home", arguments.only, seconds=arguments.seconds)
    publish(render(measured, seconds=arguments.seconds), arguments.out)


def measure(home: Path, names: list[str], *, seconds: float) -> dict[str, Measured]:
    home.mkdir()
    (home / "config.toml").write_text('log_size = "100MiB"\n')
    with daemon(home) as process:
        address = f"unix://{home}/rota.sock"
        with Client(address) as admin:
            tokens = {user: admin.create_token(user=user).secret for user in (ALICE, EVE)}
        with Client(address, token=tokens[EVE]) as eve, Client(address, token=tokens[ALICE]) as me:
            prepare(eve)
            found = {"idle daemon": observed(me, process.pid, seconds=seconds)}
            for name in names:
                with attack(name, home, token=tokens[EVE], seconds=seconds + 2 * SETTLE_S):
                    time.sleep(SETTLE_S)
                    found[ATTACKS[name].text] = observed(me, process.pid, seconds=seconds)
                quiet_down(me)
        run("down", "--stop-jobs", home=home)
    return found


def prepare(eve: Client) -> None:
    """The jobs of the attacker: a long log, and a shell to enter."""
    script = f"head -c {LOG_BYTES} /dev/zero | tr '\\0' x | fold -w 1000"
    log = eve.submit(JobRequest(["sh", "-c", script], gpus="0", workdir="/", name=LOG_JOB))
    eve.wait(log)
    shell = JobRequest(["sleep", "infinity"], gpus="0", workdir="/", name=EXEC_JOB)
    job = eve.submit(shell)
    while eve.show(job).job.state != "running":
        time.sleep(0.05)


@contextmanager
def attack(name: str, home: Path, *, token: str, seconds: float) -> Iterator[None]:
    command = [sys.executable, "-m", "benchmarks.support.attacks", name, f"{home}/rota.sock"]
    process = subprocess.Popen(
        [*command, token, str(seconds)], env=environment(home), stdout=subprocess.PIPE
    )
    try:
        yield
    finally:
        process.kill()
        process.communicate()


def quiet_down(me: Client) -> None:
    """Wait until the daemon answers as fast as before, or for some seconds."""
    until_s = time.monotonic() + 10
    n_fast = 0
    while n_fast < 20 and time.monotonic() < until_s:
        n_fast = n_fast + 1 if timed(lambda: me.jobs(limit=20)) < 0.02 else 0


def observed(me: Client, pid: int, *, seconds: float) -> Measured:
    found, load = Measured(), os.getloadavg()[0]
    held = JobRequest(["true"], gpus="1", workdir="/", hold=True)
    reset_peak(pid)
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        jobs: list[str] = []
        found.seconds["submit"].append(timed(lambda jobs=jobs: jobs.append(me.submit(held))))
        found.seconds["list"].append(timed(lambda: me.jobs(limit=20)))
        found.seconds["cancel"].append(timed(lambda jobs=jobs: me.cancel(jobs[0])))
        found.seconds["start"].append(start_s(me))
    found.memory_bytes, found.load = peak_bytes(pid), max(load, os.getloadavg()[0])
    return found


def timed(call: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    call()
    return time.perf_counter() - began_s


def start_s(me: Client) -> float:
    """From the submit of a job with a GPU until it runs, by the clock of the daemon."""
    began_s = time.time()
    job = me.submit(JobRequest(["true"], gpus="1", workdir="/"))
    me.wait(job)
    running = [each.at_s for each in me.story(job) if each.after == "running"]
    return running[0] - began_s if running else float("inf")


def reset_peak(pid: int) -> None:
    with Path(f"/proc/{pid}/clear_refs").open("w", encoding="ascii") as file:
        file.write("5")


def peak_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def render(measured: dict[str, Measured], *, seconds: float) -> str:
    idle = measured["idle daemon"]
    header = [
        "",
        *(f"{kind}, median / p99, ms" for kind in KINDS),
        "worst p99 ratio",
        "MiB",
        "load",
    ]
    rows: list[list[str]] = []
    for name, each in measured.items():
        times = [
            f"{1e3 * each.median_s(kind):.0f} / {1e3 * each.p99_s(kind):.0f}" for kind in KINDS
        ]
        worst = max(each.p99_s(kind) / idle.p99_s(kind) for kind in KINDS)
        memory = f"{each.memory_bytes / MIB:.0f}"
        rows.append([name, *times, f"{worst:.1f}", memory, f"{each.load:.1f}"])
    return page(
        "# Hostile neighbours",
        "What one user feels while another user attacks the daemon, made by `python -m"
        f" benchmarks.neighbour` on {machine()}. Each line is {seconds:g} seconds of one user who"
        " submits a held job, lists 20 jobs, cancels the job, and starts a job on a virtual GPU"
        " (from the submit until it runs). The peak of the daemon's memory is that of the line."
        f" The goals, for a quiet machine: a 99th percentile within {GOAL:g} times that of the idle"
        f" daemon, and less than {GOAL_BYTES // MIB} MiB.",
        table(header, rows),
        "The attacker is a process of its own on the same cores, so it also slows down the user who"
        " measures, and the disk. `load` is the load average: other programs used the machine.",
    )


if __name__ == "__main__":
    main()
