"""Lets 200 workers report to one daemon and measures its other work meanwhile."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import psutil

from rota.client import Client, JobRequest
from rota.client.http import connect
from rota_trainer.reporting.messages import PATH, EpochRecord, StepsRecord, TrainingReport, to_json

N_WORKERS = 200
GPUS_EACH = 0.25
N_RECORDS = 10
WAIT_S = 1.0
LOAD_S = 20.0
IDLE_S = 8.0
EPOCH_EVERY = 30
"""Reports."""
PROBE_EVERY_S = 0.5
START_S = 90.0
METRICS = {"loss": 0.25, "accuracy": 0.9, "learning_rate": 1e-3, "grad_norm": 1.5}


@dataclass(slots=True)
class Worker:
    """One reporting worker and the results of its requests."""

    number: int
    token: str
    late_s: list[float] = field(default_factory=list[float])
    """Delay of the answers after the requested wait."""
    n_refused: int = 0
    talked_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Rounds:
    """While the daemon was idle, or busy: from the submit of a job to the decision to start it,
    how long decisions took, and the daemon's part of one core."""

    waits_s: Sequence[float]
    lengths_s: Sequence[float]
    cpu: float


@dataclass(frozen=True, slots=True)
class Load:
    idle: Rounds
    busy: Rounds
    requests_per_s: float
    late_s: Sequence[float]
    n_refused: int


def start_workers(client: Client, folder: Path) -> list[Worker]:
    """Start jobs that only hold a share of a GPU. This process sends their reports."""
    folder.mkdir(mode=0o777)
    script = 'echo "$ROTA_TOKEN" > "$TOKENS/$ROTA_JOB.new"; '
    script += 'mv "$TOKENS/$ROTA_JOB.new" "$TOKENS/$ROTA_JOB"; exec sleep infinity'
    request = JobRequest(
        ["sh", "-c", script],
        gpus=str(GPUS_EACH),
        epochs=1000,
        workdir="/",
        env={"TOKENS": str(folder)},
    )
    client.submit_many([request] * N_WORKERS)
    give_up_at_s = time.monotonic() + START_S
    while len(made := [each for each in folder.iterdir() if not each.suffix]) < N_WORKERS:
        if time.monotonic() > give_up_at_s:
            raise SystemExit(f"only {len(made)} of {N_WORKERS} workers started in {START_S:g} s")
        time.sleep(0.1)
    return [Worker(number, each.read_text().strip()) for number, each in enumerate(made)]


async def measure(client: Client, workers: Sequence[Worker], *, daemon: psutil.Process) -> Load:
    idle = await probe(client, seconds=IDLE_S, daemon=daemon)
    began_s = time.monotonic()
    talks = [
        asyncio.create_task(converse(each, client.endpoint.socket, until_s=began_s + LOAD_S))
        for each in workers
    ]
    busy = await probe(client, seconds=LOAD_S, daemon=daemon)
    await asyncio.gather(*talks)
    late_s = sorted(late for each in workers for late in each.late_s)
    return Load(
        idle,
        busy,
        requests_per_s=sum(len(each.late_s) / each.talked_s for each in workers),
        late_s=late_s,
        n_refused=sum(each.n_refused for each in workers),
    )


async def converse(worker: Worker, socket: str, *, until_s: float) -> None:
    """Send reports on one connection, as the library does: each one after the last answer."""
    await asyncio.sleep(worker.number / N_WORKERS * WAIT_S)
    reading, writing = await asyncio.open_unix_connection(socket)
    sequence, start_s = 0, time.monotonic()
    while time.monotonic() < until_s:
        sequence += 1
        body = json.dumps(to_json(report(sequence, offset=worker.number))).encode()
        head = (
            f"POST {PATH} HTTP/1.1\r\nHost: rota\r\nAuthorization: Bearer {worker.token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        began_s = time.monotonic()
        writing.write(head.encode() + body)
        status = await read_answer(reading)
        worker.late_s.append(time.monotonic() - began_s - WAIT_S)
        worker.n_refused += status != 200
    worker.talked_s = time.monotonic() - start_s
    writing.close()


async def read_answer(reading: asyncio.StreamReader) -> int:
    head = (await reading.readuntil(b"\r\n\r\n")).decode().lower()
    length = head.partition("content-length:")[2].split("\r\n")[0]
    await reading.readexactly(int(length))
    return int(head.split()[1])


def report(sequence: int, *, offset: int) -> TrainingReport:
    """The report of a program with ten records of steps per second and occasional epochs."""
    now, turn = time.time(), sequence + offset
    ends_epoch = turn % EPOCH_EVERY == 0
    epoch = EpochRecord(now, turn // EPOCH_EVERY, EPOCH_EVERY * WAIT_S, 300, 9600)
    return TrainingReport(
        worker=0,
        sequence=sequence,
        wait_s=WAIT_S,
        epochs_done=turn / EPOCH_EVERY,
        epochs_total=1000.0,
        epochs_saved=float(turn // EPOCH_EVERY),
        steps_done=turn % EPOCH_EVERY * N_RECORDS,
        steps_total=EPOCH_EVERY * N_RECORDS,
        steps=[StepsRecord(now, 1, 0.1, 0.1, 32)] * N_RECORDS,
        epochs=[epoch] if ends_epoch else [],
        metrics={name: value / sequence for name, value in METRICS.items()},
        memory_bytes=2 * 1024**3,
    )


async def probe(client: Client, *, seconds: float, daemon: psutil.Process) -> Rounds:
    """Submit jobs that end at once, one by one, and measure the time until each start."""
    began_s, used_s = time.monotonic(), cpu_s(daemon)
    jobs: list[str] = []
    lengths_s: list[float] = []
    while time.monotonic() < began_s + seconds:
        request = JobRequest(["true"], name="probe", gpus="1", workdir="/")
        jobs.append(await asyncio.to_thread(client.submit, request))
        await asyncio.sleep(PROBE_EVERY_S)
        lengths_s.append(await asyncio.to_thread(round_s, client))
    cpu = (cpu_s(daemon) - used_s) / (time.monotonic() - began_s)
    waits_s = [wait for each in jobs for wait in await asyncio.to_thread(waits, client, each)]
    return Rounds(waits_s, lengths_s, cpu)


def waits(client: Client, job: str) -> list[float]:
    story = client.story(job)
    starts = [each.at_s for each in story if each.after == "starting"]
    return [starts[0] - story[0].at_s] if starts else []


def round_s(client: Client) -> float:
    """Duration of the latest decision."""
    with closing(connect(client.endpoint, answer_s=10.0)) as connection:
        connection.request("GET", "/metrics", headers={})
        lines = connection.response().read().decode().splitlines()
    return float(next(line for line in lines if line.startswith("rota_round_seconds ")).split()[1])


def cpu_s(daemon: psutil.Process) -> float:
    times = daemon.cpu_times()
    return times.user + times.system


def percentile(values: Sequence[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else float("nan")


def middle(values: Sequence[float]) -> float:
    return median(values) if values else float("nan")
