"""A live queue on virtual GPUs: two users, jobs that really train, and one that cannot wait.

Everything happens in a folder of its own that is removed at the end, Ctrl-C included.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.live import Live
from rich.text import Text

from rota.cli.output.jobs import columns, finish
from rota.cli.output.marks import percent
from rota.cli.output.table import draw
from rota.client import Client, JobRequest
from rota.errors import RotaError
from rota.wire.jobs import FINAL_STATES, JobView

GPUS = "4x16GiB"
CONFIG = 'min_runtime = "1s"\nrestart_cost = "0s"\npolicy = "fifo"\n'
HERE = Path(__file__).resolve().parent
EPOCHS = 12
EPOCH_S = 1.3
URGENT_S = 5
URGENT_AT = 0.3
"""How far the training is when the job comes that cannot wait."""
REFRESH_S = 0.25
LONGEST_S = 110.0
SHOWN = ("name", "user", "state", "gpus", "done", "left", "ends", "why")

Submit = Callable[[JobRequest], None]


def main() -> int:
    has_torch = importlib.util.find_spec("torch") is not None
    library = "torch" if has_torch else "numpy, because torch is not installed,"
    say(f"rota demo: two users share four virtual GPUs and train with {library} on CPUs")
    say("two minutes at most; Ctrl-C ends it")
    with folder() as home, daemon(home):
        first, second = users()
        for job in with_torch() if has_torch else with_numpy():
            first(job)
        second(work("sweep", gpus="1", seconds=2, array="3"))
        second(work("tune", gpus="0.5", seconds=4))
        urgent = work("urgent", gpus="3", seconds=URGENT_S, priority=10)
        stops = watch(urgent=lambda: second(urgent))
        summary(stops)
    say("\nThe daemon is down and its folder is gone. To go on: 'rota up --detach', 'rota submit'.")
    return 0


# -- jobs -----------------------------------------------------------------------------------------


def with_torch() -> list[JobRequest]:
    """`resnet` has two workers, which agree on where to stop."""
    return [
        train("resnet", "image_ddp.py", "--pictures=128", gpus="2"),
        train("gpt", "transformer.py", "--sums=256", gpus="1"),
    ]


def with_numpy() -> list[JobRequest]:
    return [
        train("large", "numpy_model.py", "--points=2048", gpus="2"),
        train("small", "numpy_model.py", "--points=512", gpus="1"),
    ]


def train(name: str, script: str, size: str, *, gpus: str) -> JobRequest:
    length = [f"--epochs={EPOCHS}", f"--seconds-per-epoch={EPOCH_S}"]
    command = [sys.executable, str(HERE / script), size, *length]
    has_peers = script == "image_ddp.py"
    return JobRequest(
        command,
        name=name,
        gpus=gpus,
        gpus_per_worker=1 if has_peers else int(gpus),
        epochs=EPOCHS,
        workdir="/",
    )


def work(name: str, *, gpus: str, seconds: int, priority: int = 0, array: str = "") -> JobRequest:
    """Anything else that runs on a GPU."""
    command = ["sleep", str(seconds)]
    return JobRequest(command, name=name, gpus=gpus, priority=priority, array=array, workdir="/")


# -- people ---------------------------------------------------------------------------------------


def users() -> tuple[Submit, Submit]:
    """Two who submit; the first one trains. Root's daemon runs jobs as accounts of this machine."""
    names: list[str] = ["user-1", "user-2"]
    if os.geteuid() == 0:
        accounts = sorted(pwd.getpwall(), key=lambda one: not 1000 <= one.pw_uid < 60_000)
        others = [one for one in accounts if one.pw_uid != 0][:2]
        trainer = others[0].pw_name if can_train(others[0]) else ""
        names = [trainer, others[-1].pw_name]
    return by_token(names[0]), by_token(names[1])


def can_train(account: pwd.struct_passwd) -> bool:
    """Not if this Python is where only root can read it."""
    command = [sys.executable, str(HERE / "numpy_model.py"), "--help"]
    who = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": ()}
    try:
        return (
            subprocess.run(command, cwd="/", capture_output=True, check=False, **who).returncode
            == 0
        )
    except OSError:
        return False


def by_token(user: str) -> Submit:
    """Whoever has no name is who runs the demo."""
    token = ""
    if user:
        with Client() as rota:
            token = rota.create_token(user=user).secret

    def submit(job: JobRequest) -> None:
        with Client(token=token) as rota:
            rota.submit(job)

    return submit


# -- what is seen ---------------------------------------------------------------------------------


def watch(urgent: Callable[[], None]) -> dict[str, float]:
    """The queue until it is empty; amid the training, a job comes that cannot wait. Gives the
    epochs after which jobs were stopped."""
    console = Console()
    give_up_at_s, is_sent = time.monotonic() + LONGEST_S, False
    seen: dict[str, str] = {}
    stops: dict[str, float] = {}
    with Client() as rota, Live(console=console, auto_refresh=False) as live:
        while time.monotonic() < give_up_at_s:
            jobs = rota.jobs().jobs[::-1]
            if console.is_terminal:
                live.update(table(jobs), refresh=True)
            else:
                tell_changes(jobs, seen)
            stops |= {job.id: job.epochs_done for job in jobs if is_stopped(job)}
            if not is_sent and is_amid_training(jobs):
                urgent()
                is_sent = True
            elif is_sent and all(job.state in FINAL_STATES for job in jobs):
                return stops
            time.sleep(REFRESH_S)
    raise SystemExit(f"rota: this machine needs more than {LONGEST_S:g} s for it; try it again")


def is_stopped(job: JobView) -> bool:
    return job.state == "queued" and job.attempt > 0


def is_amid_training(jobs: Sequence[JobView]) -> bool:
    return all((job.progress or 0.0) >= URGENT_AT for job in jobs if job.epochs == EPOCHS)


def table(jobs: Sequence[JobView]) -> Text:
    shown = [each for each in columns(jobs, now=time.time()) if each.title in SHOWN]
    return Text("\n".join(draw(shown)), no_wrap=True, overflow="ellipsis")


def tell_changes(jobs: Sequence[JobView], seen: dict[str, str]) -> None:
    """Without a terminal: a line whenever something changed."""
    for job in jobs:
        quarter = int(4 * (job.progress or 0.0))
        if seen.get(job.id) != (key := f"{job.state} {quarter}"):
            seen[job.id] = key
            say(f"{time.strftime('%H:%M:%S')}  {job.name:<8} {job.user:<8} {', '.join(facts(job))}")


def facts(job: JobView) -> Generator[str]:
    unit = "GPU" if job.gpus_held == 1 else "GPUs"
    yield f"{job.state} on {job.gpus_held:g} {unit}" if job.gpus_held else job.state
    if job.progress and job.state not in FINAL_STATES:
        yield percent(job.progress)
    if job.finish_s is not None and job.state == "running":
        yield f"ends {finish(job, now=time.time())}"
    if job.reason:
        yield job.reason


def summary(stops: dict[str, float]) -> None:
    with Client() as rota:
        jobs = rota.jobs().jobs[::-1]
        lost_s = sum(rota.show(job.id).lost_s for job in jobs)
    n_good = sum(job.state == "succeeded" for job in jobs)
    n_starts = sum(job.attempt for job in jobs)
    say(f"\n{n_good} of {len(jobs)} jobs succeeded, in {n_starts} attempts.")
    for job in (job for job in jobs if job.id in stops and job.epochs == EPOCHS):
        say(
            f"{job.name} was asked to stop for urgent: it saved after {stops[job.id]:.3g} epochs,"
            f" went on from there, and has done {job.epochs_done:g} of {job.epochs:g}."
        )
    say(f"Work that was lost: {f'{lost_s:.1f} s' if lost_s else 'nothing'}.")


# -- the box --------------------------------------------------------------------------------------


@contextmanager
def folder() -> Generator[Path]:
    for name in [name for name in os.environ if name.startswith("ROTA_")]:
        del os.environ[name]
    home = Path(tempfile.mkdtemp(prefix="rota-demo-"))
    home.chmod(0o711)
    os.environ["ROTA_HOME"] = str(home / "state")
    try:
        yield home
    finally:
        with undisturbed():
            shutil.rmtree(home)


@contextmanager
def daemon(home: Path) -> Generator[None]:
    rota = [sys.executable, "-m", "rota.cli.main"]
    (home / "state").mkdir(mode=0o700)
    (home / "state" / "config.toml").write_text(CONFIG)
    try:
        with undisturbed():
            # In a session of its own, where the terminal's Ctrl-C does not arrive.
            up = [*rota, "up", "--detach", "--virtual-gpus", GPUS]
            subprocess.run(up, check=True, start_new_session=True)
        yield
    finally:
        with undisturbed():
            # Whatever still runs is ended, and not only sent back to the queue.
            cancel_all()
            subprocess.run([*rota, "down", "--stop-jobs"], check=True, start_new_session=True)


def cancel_all() -> None:
    with Client() as rota:
        for job in rota.jobs().jobs:
            if job.state not in FINAL_STATES:
                with suppress(RotaError):
                    rota.cancel(job.id)


@contextmanager
def undisturbed() -> Generator[None]:
    """Ctrl-C takes effect when this is over."""
    received: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        received.append(number)

    before = {each: signal.signal(each, note) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if received:
        raise KeyboardInterrupt


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, interrupt)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
