"""A live queue on virtual GPUs: two users, a handful of small jobs, and one that cannot wait.

Everything happens in a folder of its own that is removed at the end, Ctrl-C included.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.text import Text

from rota.cli.output.jobs import columns
from rota.cli.output.table import draw
from rota.client import Client, JobRequest
from rota.wire.jobs import JobView

GPUS = "4x16GiB"
CONFIG = 'min_runtime = "1s"\nrestart_cost = "0s"\npolicy = "fifo"\n'
REFRESH_S = 0.25
URGENT_AFTER_S = 5.0
FINAL = ("succeeded", "failed", "cancelled")

Submit = Callable[[JobRequest], None]


def main() -> int:
    say("rota demo: four virtual GPUs, two users; about half a minute, Ctrl-C ends it")
    with folder() as home, daemon(home):
        first, second = users()
        for job in (train("resnet"), train("bert"), sweep()):
            first(job)
        second(train("gpt", gpus="1..2"))
        second(work("tune", gpus="0.5", seconds=4))
        watch(urgent=lambda: second(work("urgent", gpus="4", seconds=4, priority=10)))
        summary()
    say("\nThe daemon is down and its folder is gone. To go on: 'rota up --detach', 'rota submit'.")
    return 0


def train(name: str, gpus: str = "2") -> JobRequest:
    """Remembers how far it came, as a training with checkpoints does."""
    script = f"""
        state=$HOME_OF_DEMO/{name}.epoch; epoch=$(cat $state 2>/dev/null || echo 0)
        trap 'echo stopped after epoch $epoch; exit 1' TERM
        while [ $epoch -lt 20 ]; do sleep 0.4; epoch=$((epoch + 1)); echo $epoch > $state; done
        echo trained 20 epochs
    """
    env = {"HOME_OF_DEMO": os.environ["DEMO_SCRATCH"]}
    return JobRequest(["sh", "-c", script], name=name, gpus=gpus, workdir="/", env=env)


def work(name: str, *, gpus: str, seconds: float, priority: int = 0) -> JobRequest:
    command = ["sleep", str(seconds)]
    return JobRequest(command, name=name, gpus=gpus, priority=priority, workdir="/")


def sweep() -> JobRequest:
    return JobRequest(["sh", "-c", "sleep 2"], name="sweep", gpus="1", array="3", workdir="/")


# -- people ---------------------------------------------------------------------------------------


def users() -> tuple[Submit, Submit]:
    """Two who submit. Root's daemon knows people by their accounts, anybody else's by tokens."""
    if os.geteuid() == 0:
        first, second = (by_account(account) for account in two_accounts())
        return first, second
    with Client() as rota:
        tokens = [rota.create_token(user=name).secret for name in ("user-1", "user-2")]
    return by_token(tokens[0]), by_token(tokens[1])


def two_accounts() -> list[pwd.struct_passwd]:
    known = [each for each in pwd.getpwall() if each.pw_uid != 0]
    people = [each for each in known if 1000 <= each.pw_uid < 60_000]
    return [*people, *known][:2]


def by_token(token: str) -> Submit:
    def submit(job: JobRequest) -> None:
        with Client(token=token) as rota:
            rota.submit(job)

    return submit


def by_account(account: pwd.struct_passwd) -> Submit:
    """Whoever connects is known by uid: a child takes it on, submits, and is gone."""

    def submit(job: JobRequest) -> None:
        child = os.fork()
        if child == 0:
            os.setgroups([])
            os.setgid(account.pw_gid)
            os.setuid(account.pw_uid)
            with Client() as rota:
                rota.submit(job)
            os._exit(0)
        if os.waitpid(child, 0)[1] != 0:
            raise SystemExit(f"rota: {account.pw_name} could not submit {job.name}")

    return submit


# -- what is seen ---------------------------------------------------------------------------------


def watch(urgent: Callable[[], None]) -> None:
    """The queue until it is empty; after some seconds, a job comes that cannot wait."""
    console = Console()
    began, is_sent = time.monotonic(), False
    seen: dict[str, str] = {}
    with Client() as rota, Live(console=console, auto_refresh=False) as live:
        while True:
            if not is_sent and time.monotonic() - began > URGENT_AFTER_S:
                urgent()
                is_sent = True
            jobs = rota.jobs().jobs[::-1]
            if console.is_terminal:
                live.update(
                    Text("\n".join(draw(columns(jobs, now=time.time()))), no_wrap=True),
                    refresh=True,
                )
            else:
                tell_changes(jobs, seen)
            if is_sent and all(job.state in FINAL for job in jobs):
                return
            time.sleep(REFRESH_S)


def tell_changes(jobs: list[JobView], seen: dict[str, str]) -> None:
    """Without a terminal: a line whenever something changed."""
    for job in jobs:
        if seen.get(job.id) != job.state:
            seen[job.id] = job.state
            unit = "GPU" if job.gpus_held == 1 else "GPUs"
            held = f" on {job.gpus_held:g} {unit}" if job.gpus_held else ""
            reason = f": {job.reason}" if job.reason else ""
            who = f"{job.name:<10} {job.user:<8}"
            say(f"{time.strftime('%H:%M:%S')}  {who} {job.state}{held}{reason}")


def summary() -> None:
    with Client() as rota:
        jobs = rota.jobs().jobs
    n_starts = sum(job.attempt for job in jobs)
    n_good = sum(job.state == "succeeded" for job in jobs)
    busy = sum(job.running_s for job in jobs)
    say(
        f"\n{n_good} of {len(jobs)} jobs succeeded in {n_starts} attempts, {busy:.0f} s of work;"
        f" {n_starts - len(jobs)} times a job gave way and came back."
    )


# -- the box --------------------------------------------------------------------------------------


@contextmanager
def folder() -> Generator[Path]:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    home = Path(tempfile.mkdtemp(prefix="rota-demo-"))
    home.chmod(0o711)
    scratch = home / "scratch"
    scratch.mkdir()
    scratch.chmod(0o777)
    os.environ["DEMO_SCRATCH"] = str(scratch)
    os.environ["ROTA_HOME"] = str(home / "state")
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def daemon(home: Path) -> Generator[None]:
    rota = [sys.executable, "-m", "rota.cli.main"]
    (home / "state").mkdir(mode=0o700)
    (home / "state" / "config.toml").write_text(CONFIG)
    subprocess.run([*rota, "up", "--detach", "--virtual-gpus", GPUS], check=True)
    try:
        yield
    finally:
        # Whatever still runs is ended, and not only sent back to the queue.
        with Client() as client:
            for job in client.jobs(states=["held", "queued", "starting", "running"]).jobs:
                client.cancel(job.id)
        subprocess.run([*rota, "down", "--stop-jobs"], check=True)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
