"""Where the time of a single no-op goes, on a daemon of rota that does nothing else."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from time import time

from benchmarks.one_box.measurements import N_SLOTS
from benchmarks.one_box.rota_daemon import RotaDaemon
from benchmarks.support.markdown import table
from benchmarks.support.sandbox import wait_until

N_JOBS = 20
PHASES = (
    "request: from the client to the queued job in memory",
    "decision: round, while the submit is committed",
    "commit of the start, preparation, supervisor, fork and exec",
    "the program runs, and its supervisor sees the exit",
    "exit record, and message to the daemon",
    "commit of the end, until a client that asks every ms sees it",
)


def render_phases() -> str:
    """A table: the median of each phase, in milliseconds."""
    rota = RotaDaemon()
    with rota.running(N_SLOTS):
        _phases_ms(rota)
        measured = [_phases_ms(rota) for _ in range(N_JOBS)]
    medians = [statistics.median(each) for each in zip(*measured, strict=True)]
    rows = [(phase, f"{ms:.1f} ms") for phase, ms in zip(PHASES, medians, strict=True)]
    total = statistics.median(map(sum, measured))
    return table(("phase of a no-op on an idle box", "median"), [*rows, ("all", f"{total:.1f} ms")])


def _phases_ms(rota: RotaDaemon) -> list[float]:
    began_s = time()
    job_id = rota.submit_noop()
    wait_until(lambda: rota.has_ended(job_id), what="end", every_s=0.001, within_s=60.0)
    seen_s = time()
    entered = rota.state_times(job_id)
    ran = _exit_record(rota.worker_dir(job_id))
    marks: Sequence[float] = (
        began_s,
        entered["queued"],
        entered["starting"],
        ran["started_s"],
        ran["ended_s"],
        entered["succeeded"],
        seen_s,
    )
    return [1e3 * (after - before) for before, after in pairwise(marks)]


def _exit_record(folder: Path) -> Mapping[str, float]:
    return json.loads((folder / "exit.json").read_text())
