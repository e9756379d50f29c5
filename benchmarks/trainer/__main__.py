"""Measures the cost of `rota_trainer` for a training loop, a daemon and the daemon's disk.

    python -m benchmarks.trainer

Three parts: a loop with the library beside the same loop without it, alone and as a job; workers
that report to one daemon; the stored size of a job that trains for hours. Everything runs on this
machine in a temporary folder and stops with the benchmark. Prints and writes
`docs/results/trainer.md`.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

import rota
import rota_trainer
from benchmarks.restart import ROTA, is_ready
from benchmarks.support.flags import flags
from benchmarks.support.markdown import NO_VALUE, machine, page, publish, table
from benchmarks.trainer import load as trainer_load
from benchmarks.trainer import steps as trainer_steps
from benchmarks.trainer.load import Load, Rounds, middle, percentile
from benchmarks.trainer.store import kept_bytes
from rota.client import Client, JobRequest
from rota.store.retention import MAX_SAMPLES

N_SPARE = 4
"""GPUs for the jobs that show how soon rounds are."""
N_GPUS = round(trainer_load.N_WORKERS * trainer_load.GPUS_EACH) + N_SPARE
PATHS = os.pathsep.join(str(Path(each.__file__ or "").parents[1]) for each in (rota, rota_trainer))
LONGEST_S = 60.0
AIM_US = 20.0
AIM_PER_S = 200


def main() -> None:
    arguments = flags(__doc__ or "", page="trainer.md").parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="rota-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        stored = kept_bytes(folder)
        steps = {"alone": steps_alone()}
        with daemon(folder / "rota") as process, Client(f"unix://{folder}/rota/rota.sock") as rota:
            steps["as a job"] = steps_as_job(rota)
            workers = trainer_load.start_workers(rota, folder / "tokens")
            measured = asyncio.run(trainer_load.measure(rota, workers, daemon=process))
    publish(render(steps, measured, stored=stored, load=load), arguments.out)


# -- steps ----------------------------------------------------------------------------------------


def steps_alone() -> dict[str, Any]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("ROTA_")}
    command = [sys.executable, trainer_steps.__file__]
    done = subprocess.run(
        command,
        env={**env, "PYTHONPATH": PATHS},
        check=True,
        capture_output=True,
        timeout=LONGEST_S,
    )
    return json.loads(done.stdout)


def steps_as_job(client: Client) -> dict[str, Any]:
    command = [sys.executable, trainer_steps.__file__]
    request = JobRequest(command, gpus="1", workdir="/", env={"PYTHONPATH": PATHS})
    job = client.submit(request)
    give_up_at_s = time.monotonic() + LONGEST_S
    while not (ended := client.show(job).job).ended_s and time.monotonic() < give_up_at_s:
        time.sleep(0.5)
    output = b"".join(client.log_bytes(job))
    if ended.state != "succeeded":
        raise SystemExit(f"the job that measures steps {ended.state}: {output.decode()}")
    return json.loads(output.splitlines()[-1])


# -- the daemon -----------------------------------------------------------------------------------


@contextmanager
def daemon(home: Path) -> Iterator[psutil.Process]:
    home.mkdir()
    env = {**os.environ, "ROTA_HOME": str(home), "PYTHONPATH": PATHS}
    command = [*ROTA, "up", "--virtual-gpus", f"{N_GPUS}x16GiB"]
    process = subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL)
    try:
        while not is_ready(home):
            if process.poll() is not None:
                raise SystemExit("the daemon ended before it was ready")
            time.sleep(0.05)
        yield psutil.Process(process.pid)
    finally:
        if process.poll() is None:
            down = [*ROTA, "down", "--stop-jobs"]
            subprocess.run(down, env=env, check=True, capture_output=True, timeout=LONGEST_S)
        process.wait(LONGEST_S)


# -- the page -------------------------------------------------------------------------------------


def render(
    steps: dict[str, dict[str, Any]], measured: Load, *, stored: dict[str, list[float]], load: float
) -> str:
    return page(
        "# What training with `rota_trainer` costs",
        "Made by `python -m benchmarks.trainer` on a machine with "
        f"{machine()}; its load average was {load:.1f} before.",
        "## A step",
        "The same work with and without the library, up to "
        f"{trainer_steps.N_PAIRS} pairs of blocks by turns, by the clock: medians, and the "
        "quartiles of the ratios. An empty step is the library alone; the aim is "
        f"{AIM_US:g} µs. As a job it reports to a daemon, once a second.",
        table(
            ("step", "where", "without", "with", "ratio", "quartiles"),
            list(step_rows(steps)),
            texts=2,
        ),
        f"## {trainer_load.N_WORKERS} workers and one daemon",
        f"Each sends a report with {trainer_load.N_RECORDS} step records, waits for the answer, "
        f"which the daemon holds for {trainer_load.WAIT_S:g} s, and sends the next one: "
        f"{measured.requests_per_s:.0f} requests/s with "
        f"{measured.requests_per_s * trainer_load.N_RECORDS:,.0f} step records/s; the aim is "
        f"{AIM_PER_S} and {AIM_PER_S * trainer_load.N_RECORDS:,}. Each worker is a job of its "
        f"own. {measured.n_refused} were refused. Answers were late by "
        f"{1e3 * middle(measured.late_s):.0f} ms (median), "
        f"{1e3 * percentile(measured.late_s, 0.99):.0f} ms (p99).",
        "Meanwhile a small job is submitted twice a second. *wait* is from its submit to the "
        "decision to start it, *round* the length of a decision.",
        table(
            ("daemon", "wait, median", "wait, p99", "round, median", "round, most", "one core"),
            [round_row("idle", measured.idle), round_row("busy", measured.busy)],
        ),
        "## What is kept",
        "Bytes in the database of one job that trains for so long, with four metrics: at most "
        f"{MAX_SAMPLES} samples stay, and the older ones are thinned out.",
        table(("a sample every", "1 hour", "10 hours", "ratio"), list(store_rows(stored))),
    )


def step_rows(steps: dict[str, dict[str, Any]]) -> Iterator[Sequence[str]]:
    for where, found in steps.items():
        empty = f"{found['empty_us']:.1f} µs"
        yield "empty", where, NO_VALUE, empty, NO_VALUE, NO_VALUE
        for each in found["steps"]:
            bare, ours = (f"{each[name]:.2f} ms" for name in ("bare_ms", "with_ms"))
            low, middle_one, high = (f"{ratio:.3f}" for ratio in each["ratios"])
            yield f"{each['step_ms']} ms", where, bare, ours, middle_one, f"{low} to {high}"


def round_row(name: str, rounds: Rounds) -> Sequence[str]:
    times = (
        middle(rounds.waits_s),
        percentile(rounds.waits_s, 0.99),
        middle(rounds.lengths_s),
        percentile(rounds.lengths_s, 1.0),
    )
    return name, *(f"{1e3 * each:.0f} ms" for each in times), f"{100 * rounds.cpu:.0f} %"


def store_rows(stored: dict[str, list[float]]) -> Iterator[Sequence[str]]:
    for every, (one, ten) in stored.items():
        yield every, f"{one / 1024:.0f} KiB", f"{ten / 1024:.0f} KiB", f"{ten / one:.2f}"


if __name__ == "__main__":
    main()
