"""Submits jobs while the daemon, its fork server, supervisors and workers are killed with SIGKILL.
Some jobs are cancelled, held and released meanwhile, and priorities differ.

Every job takes two locks, its own and that of its GPU, and keeps them in all its processes. A
worker that starts while an earlier attempt or another job on its GPU is alive reports it.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from contextlib import suppress

import psutil

from rota.client.endpoint import NoDaemonError
from rota.client.http import AnswerError
from rota.engines.local.supervisor import proc
from rota.engines.local.supervisor.records import WorkerKey
from rota.errors import UnavailableError
from rota.wire.jobs import FINAL_STATES, JobRequest
from tests.support.daemon_process import DaemonProcess, wait_until

ROUNDS = 10
JOBS_IN_A_ROUND = 3
N_GPUS = 2
LONGEST_S = 0.5
SCRIPT = """
exec 8> "$HERE/$ROTA_JOB.lock" 9> "$HERE/gpu-$CUDA_VISIBLE_DEVICES.lock"
flock -n 8 || say twice
flock -n 9 || say overbooked
say start
sleep "$LENGTH" & wait
say end
"""


class KillScenario:
    """`seed` decides who is killed and when; how far the machine has come by then, it cannot."""

    script = SCRIPT
    rounds = ROUNDS

    def __init__(self, daemon: DaemonProcess, seed: int) -> None:
        self.daemon = daemon
        self.random = random.Random(seed)
        self.acknowledged: list[str] = []
        self.keys: list[str] = []
        self.cancelled: set[str] = set()

    def run(self) -> None:
        self.daemon.up()
        for number in range(self.rounds):
            submits = threading.Thread(target=self._submit, args=(number,))
            submits.start()
            # Not to wait for anything: this is the random moment.
            time.sleep(self.random.uniform(0, LONGEST_S))
            self._random_request()
            self._random_deed()
            submits.join()
        wait_until(self._all_ended, "all jobs to end")

    def _random_deed(self) -> None:
        self.random.choice(
            [
                self._kill_daemon,
                self._kill_supervisor,
                self._kill_worker,
                self._kill_fork_server,
            ]
        )()

    def _submit(self, number: int) -> None:
        for place in range(JOBS_IN_A_ROUND):
            key = f"{number}-{place}"
            length = f"{(number * 7 + place * 3) % 10 / 20}"
            request = self.daemon.request(
                self.script, gpus="1", priority=number % 2, retries=1, env={"LENGTH": length}
            )
            self.acknowledged.append(self._insist(request, key))
            self.keys.append(key)
        # A thread has its own connection, and only this thread can close it.
        self.daemon.client.close()

    def _insist(self, request: JobRequest, key: str) -> str:
        """As a user would, until there is an answer."""

        def answer() -> str:
            try:
                return self._submit_as_user(request, key) if self.daemon.answers() else ""
            except (NoDaemonError, UnavailableError):
                return ""

        return wait_until(answer, "a submit to be answered")

    def _submit_as_user(self, request: JobRequest, key: str) -> str:
        return self.daemon.client.submit(request, key=key)

    def _random_request(self) -> None:
        """As its owner may, at any time."""
        deed = self.random.choice(["cancel", "hold", "nothing"])
        chosen = self.random.random()
        if deed == "nothing" or not self.acknowledged:
            return
        job = self.acknowledged[int(chosen * len(self.acknowledged))]
        with suppress(AnswerError):
            if deed == "cancel":
                self.cancelled.add(job)
                self.daemon.client.cancel(job)
            else:
                self.daemon.client.hold(job)
                self.daemon.client.release(job)

    def _kill_daemon(self) -> None:
        self.daemon.kill()
        while self.random.random() < 0.3:
            self.daemon.launch()
            if self.random.random() < 0.5:
                # In the middle of whatever it found to do.
                wait_until(self.daemon.answers, "the daemon to open its door")
                time.sleep(self.random.uniform(0, LONGEST_S / 10))
            else:
                time.sleep(self.random.uniform(0, LONGEST_S))
            self.daemon.kill()
        self.daemon.up()

    def _kill_fork_server(self) -> None:
        assert self.daemon.process is not None
        for child in psutil.Process(self.daemon.process.pid).children():
            child.kill()

    def _kill_supervisor(self) -> None:
        for fence in self._some_live():
            keeper = self.daemon.folders.supervisor(fence)
            if keeper is not None:
                proc.send(keeper.pid, keeper.start_ticks, number=signal.SIGKILL)

    def _kill_worker(self) -> None:
        for fence in self._some_live():
            spec = self.daemon.folders.spec(fence)
            found = proc.with_marker(spec.marker) if spec else {}
            if found:
                pid = self.random.choice(sorted(found))
                proc.send(pid, found[pid], number=signal.SIGKILL)

    def _some_live(self) -> list[WorkerKey]:
        live = self.daemon.folders.live()
        return self.random.sample(live, k=min(1, len(live)))

    def _all_ended(self) -> bool:
        states = [self.daemon.state_of(job) for job in self.acknowledged]
        return all(state in FINAL_STATES for state in states)

    # -- afterwards -----------------------------------------------------------------------------

    def complaints(self) -> list[str]:
        """What should not have happened."""
        return [*self._lost(), *self._twice(), *self._left()]

    def _lost(self) -> list[str]:
        daemon, found = self.daemon, []
        known = [job.id for job in daemon.client.jobs(limit=1000).jobs]
        if sorted(known) != sorted(set(self.acknowledged)) or len(known) != len(self.keys):
            found.append(f"{len(self.keys)} submits became {known}")
        for job in self.acknowledged:
            ended = daemon.client.show(job).job
            said = [line.words for line in daemon.heard(job)]
            is_cancelled = ended.state == "cancelled" and job not in self.cancelled
            if is_cancelled or (ended.state == "succeeded" and "end" not in said):
                found.append(f"job {job} {ended.state} ({ended.reason}), having said {said}")
        return found

    def _twice(self) -> list[str]:
        lines = self.daemon.heard()
        starts = [(line.job_id, line.attempt) for line in lines if line.words == "start"]
        found = [f"{line}" for line in lines if line.words in ("twice", "overbooked")]
        return found + [f"{each} started twice" for each in set(starts) if starts.count(each) > 1]

    def _left(self) -> list[str]:
        daemon, found = self.daemon, []
        held = [gpu.jobs for node in daemon.client.nodes() for gpu in node.gpus]
        if daemon.client.status().gpus_held or any(held):
            found.append(f"GPUs are still held: {held}")
        wait_until(lambda: not daemon.folders.live(), "the last end to be noted")
        found += [f"process {pid} is left" for pid in daemon.left()]
        checked = daemon.rota("store", "check")
        return found if checked.returncode == 0 else [*found, checked.stdout]
