"""Compares how long training pauses when its size changes, with several methods in one run.

    python -m benchmarks.elastic [--only 'live; torchrun, etcd'] [--minutes 5.5]

Each method trains with torch on gloo under a real daemon with two virtual GPUs; the client resizes
the job. The benchmark measures the installed methods and lists the missing ones. Everything runs on
loopback in a temporary folder and stops with the measurement. Prints and writes
`docs/results/elastic.md`.
"""

from __future__ import annotations

import os
import signal
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from types import FrameType

from benchmarks.elastic.journal import Change
from benchmarks.elastic.measurement import BenchmarkDaemon, Measured, benchmark_daemon
from benchmarks.elastic.stamps import STEP_S
from benchmarks.elastic.ways import AGENTS, ETCD, LARGE, LIVE, WAYS, Way
from benchmarks.support.flags import flags
from benchmarks.support.markdown import NO_VALUE, machine, page, publish, table

LIVE_AIM_S, AGENTS_AIM_S = 0.5, 3.0
LIVE_AIM_TIMES, AGENTS_AIM_TIMES = 10.0, 3.0
HOOKS_AIM = 0.01

Results = Mapping[Way, Measured]

INTRODUCTION = """\
The same model with Adam on gloo, 1 million parameters unless it says 25 million, in steps of
{step_ms:.0f} ms and what the model costs. Each is a job with one worker that gets a second one by
`rota resize`, and loses it again. *Pause* is from the end of the last step at the old size to the
end of the first at the new one, with that step in it; *from the decision* is from the call of the
client to the same end; *own start* is what of the pause a script took to import torch and build
its model. Medians, in seconds.

- **live**: the process group changes while the processes stay.
- **torchrun, rota**: agents stay and start their processes anew, which go on from a checkpoint.
- **stop and restart**: all are asked to stop, save, and are started again at the new size.
- **torchrun, etcd** and **etcd-v2**: agents of torchrun that meet at an etcd server, of 1:2 nodes
  with a last call of 5 s. Two is the most there can be, so that they need not wait for it.
- **torchrun, c10d**: the rendezvous of one size; the job is stopped and started again.

Made by `python -m benchmarks.elastic` on a machine with {machine}, at a load of {load}."""


def main() -> None:
    parser = flags(__doc__ or "", page="elastic.md")
    parser.add_argument("--only", metavar="NAMES", help="names of ways, with semicolons between")
    parser.add_argument(
        "--minutes", type=float, default=5.5, metavar="N", help="leave out what takes longer"
    )
    arguments = parser.parse_args()
    # Daemons and jobs stop when the stack unwinds, so SIGTERM has to unwind it.
    signal.signal(signal.SIGTERM, _leave)
    ways = chosen(arguments.only)
    load = f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    gaps = [f"{way.name}, which needs {way.needs}" for way in ways if not way.available()]
    until_s = time.monotonic() + 60 * arguments.minutes
    present = [way for way in ways if way.available()]
    measured = _measure_all(present, gaps=gaps, until_s=until_s)
    publish(render(measured, gaps, load=load), arguments.out)


def render(measured: Results, gaps: Sequence[str], *, load: str) -> str:
    introduction = INTRODUCTION.format(step_ms=1000 * STEP_S, machine=machine(), load=load)
    header = ("way", "change", "pause", "own start", "pause without it", "from the decision", "n")
    rows = [row for way, each in measured.items() for row in _rows(way, each)]
    return page(
        "# How long a change of size takes",
        introduction,
        table(header, rows, texts=2),
        "## Aims",
        table(("what", "aim", "measured"), _aims(measured)),
        *(f"Not measured: {gap}." for gap in gaps),
    )


def _rows(way: Way, measured: Measured) -> list[Sequence[str]]:
    kinds = (("grows", measured.grown), ("shrinks", measured.shrunk))
    return [(way.name, kind, *_figures(changes)) for kind, changes in kinds if changes]


def _figures(changes: Sequence[Change]) -> Sequence[str]:
    pause_s, own_s = (statistics.median(each) for each in list(zip(*changes, strict=True))[::2])
    return (
        f"{pause_s:.2f}",
        f"{own_s:.2f}",
        f"{without_start_s(changes):.2f}",
        f"{statistics.median(each.decided_s for each in changes):.2f}",
        str(len(changes)),
    )


def without_start_s(changes: Sequence[Change]) -> float:
    return statistics.median(each.pause_s - each.own_s for each in changes)


def _aims(measured: Results) -> list[Sequence[str]]:
    """The rows that compare growth, which all methods support."""
    live, agents = measured.get(LIVE), measured.get(AGENTS)
    large, etcd = measured.get(LARGE), measured.get(ETCD)
    live_s = statistics.median(each.pause_s for each in live.grown) if live else None
    agents_s = without_start_s(agents.grown) if agents else None
    etcd_s = statistics.median(each.pause_s for each in etcd.grown) if etcd else None
    etcd_without_s = without_start_s(etcd.grown) if etcd else None
    return [
        ("pause of live", f"under {LIVE_AIM_S:g} s", _seconds(live_s)),
        ("etcd's pause by that", f"over {LIVE_AIM_TIMES:g}", _times(etcd_s, live_s)),
        (
            "pause of torchrun with rota, without the script's start",
            f"under {AGENTS_AIM_S:g} s",
            _seconds(agents_s),
        ),
        (
            "etcd's by that, also without",
            f"over {AGENTS_AIM_TIMES:g}",
            _times(etcd_without_s, agents_s),
        ),
        (
            f"our hooks in a step of {1000 * STEP_S:.0f} ms, two workers",
            f"under {HOOKS_AIM:.0%}",
            _hooks(live),
        ),
        ("state that arrives, 1 million", NO_VALUE, _rate(live)),
        ("state that arrives, 25 million", NO_VALUE, _rate(large)),
    ]


def _seconds(value_s: float | None) -> str:
    return NO_VALUE if value_s is None else f"{value_s:.2f} s"


def _times(theirs_s: float | None, ours_s: float | None) -> str:
    return NO_VALUE if theirs_s is None or ours_s is None else f"{theirs_s / ours_s:.1f}"


def _rate(measured: Measured | None) -> str:
    if measured is None or measured.rate_mb_s is None:
        return NO_VALUE
    return f"{measured.rate_mb_s:,.0f} MB/s"


def _hooks(measured: Measured | None) -> str:
    """Wall time of the hooks also includes other programs and slower workers."""
    if measured is None or measured.hooks_s is None:
        return NO_VALUE
    clock_s, processor_s = measured.hooks_s
    return f"{processor_s / STEP_S:.2%} of the processor, {clock_s / STEP_S:.2%} by the clock"


def _measure_all(ways: Sequence[Way], *, gaps: list[str], until_s: float) -> Results:
    """Measure every method. The failure of one method keeps the results of the others."""
    measured: dict[Way, Measured] = {}
    with benchmark_daemon() as running:
        for way in ways:
            if time.monotonic() > until_s:
                gaps.append(f"{way.name}, for which no time was left")
            elif found := _measure(running, way, gaps=gaps, until_s=until_s):
                measured[way] = found
    return measured


def _measure(
    running: BenchmarkDaemon, way: Way, *, gaps: list[str], until_s: float
) -> Measured | None:
    try:
        found = running.measure(way, until_s=until_s)
    except (OSError, RuntimeError) as failure:
        print(f"{way.name}: {failure}", file=sys.stderr)
        what, _, _ = str(failure).partition(";")
        gaps.append(f"{way.name}, which failed: {what}")
        return None
    for row in _rows(way, found):
        print(" ".join(row), file=sys.stderr)
    return found


def chosen(names: str | None) -> Sequence[Way]:
    if names is None:
        return WAYS
    known = {way.name: way for way in WAYS}
    wanted = [name.strip() for name in names.split(";")]
    if unknown := [name for name in wanted if name not in known]:
        raise SystemExit(f"no such way: {'; '.join(unknown)}; there are {'; '.join(known)}")
    return [known[name] for name in wanted]


def _leave(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    main()
