"""Random attacks by several users on one daemon: kills, a full disk, a clock that is set, requests
about the jobs of others.

    python -m tests.attack.harness [--scenarios N] [--seed N] [--rounds N]

Needs root, because the jobs run as other users and the disk of the daemon is a small one. Prints
one line of JSON for each scenario: what was done, and what should not have happened.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager, suppress

from rota.client import Client
from rota.client.endpoint import NoDaemonError
from rota.client.http import AnswerError
from rota.engines.local.supervisor import proc
from rota.errors import UnavailableError
from rota.wire.jobs import JobRequest
from tests.support.daemon_process import DaemonProcess, temporary_daemon
from tests.support.kill_scenario import N_GPUS, KillScenario
from tests.support.small_disks import UNSHARE, fill
from tests.support.wall_clock import HOUR_S, WallClock

USERS = ("daemon", "games", "nobody")
"""Accounts that every machine has."""
ROUNDS = 25
DISK = "48m"
LONGEST_FILL_S = 1.0
JUMPS_S = (2 * HOUR_S, -HOUR_S, 0)
"""Less than a day: a larger jump is taken over at the next start, and then charged to the jobs."""
LONGEST_RUN_S = 600.0
"""Far above the run time of any job here, and below any jump."""
MOUNTED = "ROTA_ATTACK_MOUNTED"


class AttackScenario(KillScenario):
    """The users submit in turn, and each tries to change the jobs of the others."""

    rounds = ROUNDS

    def __init__(self, daemon: DaemonProcess, seed: int, *, wall: WallClock) -> None:
        super().__init__(daemon, seed)
        self.deeds = {
            "kill daemon": self._kill_daemon,
            "kill supervisor": self._kill_supervisor,
            "kill worker": self._kill_worker,
            "kill fork server": self._kill_fork_server,
            "fill disk": self._fill_disk,
            "set clock": self._set_clock,
            "attack jobs of others": self._attack_others,
        }
        self.done = Counter[str]()
        self.wrongs: list[str] = []
        self._wall = wall
        self._tokens: dict[str, str] = {}
        self._owners: dict[str, str] = {}

    def prepare(self) -> None:
        """Let other users write to the journal and take the locks."""
        self.daemon.home.chmod(0o711)
        self.daemon.place.chmod(0o777)
        names = ["journal", *(f"gpu-{each}.lock" for each in range(N_GPUS))]
        for path in (self.daemon.place / name for name in names):
            path.touch()
            path.chmod(0o666)
        self.daemon.up()
        for user in USERS:
            self._tokens[user] = self.daemon.client.create_token(user=user).secret
        self.daemon.kill()

    def _random_request(self) -> None:
        """A full disk may refuse it."""
        with suppress(UnavailableError):
            super()._random_request()

    def _random_deed(self) -> None:
        name = self.random.choice(sorted(self.deeds))
        self.deeds[name]()
        self.done[name] += 1

    def _submit_as_user(self, request: JobRequest, key: str) -> str:
        # The same user for each repetition: keys of different users are different keys.
        user = USERS[int(key.partition("-")[2]) % len(USERS)]
        with Client(self.daemon.door, token=self._tokens[user]) as client:
            job = client.submit(request, key=key)
        self._owners[job] = user
        return job

    def _fill_disk(self) -> None:
        path = self.daemon.state / "filler"
        fill(path)
        time.sleep(self.random.uniform(0, LONGEST_FILL_S))
        path.unlink()

    def _set_clock(self) -> None:
        self._wall.shift(self.random.choice(JUMPS_S))

    def _attack_others(self) -> None:
        """Read and change a job of another user. A daemon that does not answer is no success."""
        known = dict(self._owners)
        if not known:
            return
        job = self.random.choice(sorted(known))
        user = self.random.choice([each for each in USERS if each != known[job]])
        with Client(self.daemon.door, token=self._tokens[user]) as client:
            for name, attack in {
                "cancelled": lambda: client.cancel(job),
                "held": lambda: client.hold(job),
                "read": lambda: b"".join(client.log_bytes(job)),
                "copied": lambda: client.resubmit(job),
            }.items():
                with suppress(AnswerError, NoDaemonError, UnavailableError):
                    attack()
                    self.wrongs.append(f"{user} {name} job {job} of {known[job]}")
            with suppress(AnswerError, NoDaemonError, UnavailableError):
                shown = client.show(job)
                if shown.request.env or self.script.strip() in shown.request.command:
                    self.wrongs.append(f"{user} saw the program of job {job}")

    def complaints(self) -> list[str]:
        found = [*super().complaints(), *self.wrongs]
        for job in self.acknowledged:
            shown = self.daemon.client.show(job)
            if "time limit" in shown.job.reason or shown.gpu_s > LONGEST_RUN_S:
                found.append(f"job {job}: {shown.job.reason}; {shown.gpu_s:.0f} GPU seconds")
            if shown.job.user != self._owners.get(job, shown.job.user):
                found.append(f"job {job} belongs to {shown.job.user}")
        return found


@contextmanager
def attacked_daemon() -> Generator[tuple[DaemonProcess, WallClock]]:
    """A daemon on a small disk, with a wall clock that can be set. Not started yet."""
    with temporary_daemon(gpus=f"{N_GPUS}x16GiB") as daemon:
        wall = WallClock(daemon.home)
        # The jobs of the scenario have priorities 0 and 1.
        daemon.tell(**wall.environment, ROTA_MAX_PRIORITY="1")
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=755", "tmpfs"]
        subprocess.run([*mount, str(daemon.state)], check=True)
        try:
            yield daemon, wall
        finally:
            if daemon.process is not None and not daemon.process.poll():
                daemon.kill()
            # Their supervisors end with them.
            while found := daemon.left():
                for pid, start_ticks in found.items():
                    proc.send(pid, start_ticks, number=signal.SIGKILL)
            subprocess.run(["umount", "--lazy", str(daemon.state)], check=True)


def run_scenario(seed: int, *, rounds: int) -> dict[str, object]:
    began = time.monotonic()
    states = Counter[str]()
    with attacked_daemon() as (daemon, wall):
        scenario = AttackScenario(daemon, seed, wall=wall)
        scenario.rounds = rounds
        scenario.prepare()
        try:
            scenario.run()
            complaints = scenario.complaints()
            states.update(daemon.state_of(job) for job in scenario.acknowledged)
        except Exception as error:  # noqa: BLE001 - the next scenario runs, too
            complaints = [f"{type(error).__name__}: {error}"]
        if complaints:
            complaints.append(daemon.log()[-2000:])
    return {
        "seed": seed,
        "rounds": rounds,
        "jobs": len(scenario.acknowledged),
        "states": dict(sorted(states.items())),
        "deeds": dict(sorted(scenario.done.items())),
        "seconds": round(time.monotonic() - began, 1),
        "complaints": complaints,
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--scenarios", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    flags = parser.parse_args()
    if not os.environ.get(MOUNTED):
        # Mounts of this process end with it.
        again = [*UNSHARE, sys.executable, "-m", "tests.attack.harness", *sys.argv[1:]]
        return subprocess.run(again, env=os.environ | {MOUNTED: "1"}, check=False).returncode
    is_clean = True
    for seed in range(flags.seed, flags.seed + flags.scenarios):
        result = run_scenario(seed, rounds=flags.rounds)
        is_clean = is_clean and not result["complaints"]
        sys.stdout.write(f"{json.dumps(result)}\n")
        sys.stdout.flush()
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
