"""Compares rota on one machine with other schedulers, all measured in one run.

    ROTA_PEERS=VENV python -m benchmarks.one_box [--only slurm,gflow]

The benchmark measures the installed schedulers and lists the missing ones. Those from PyPI are
found in the virtual environment `ROTA_PEERS`, then in PATH. Every daemon runs on loopback in a
temporary folder and stops with its measurement. Prints and writes `docs/results/one_box.md`.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping, Sequence
from types import FrameType

from benchmarks.one_box.gflow import Gflow
from benchmarks.one_box.hyperqueue import HyperQueue
from benchmarks.one_box.measurements import IDLE_S, OneBoxMeasure, measure
from benchmarks.one_box.noop_phases import render_phases
from benchmarks.one_box.peer import Peer
from benchmarks.one_box.rota_daemon import RotaDaemon
from benchmarks.one_box.slurm import Slurm
from benchmarks.one_box.task_spooler import TaskSpooler
from benchmarks.support.flags import flags
from benchmarks.support.markdown import NO_VALUE, Figure, machine, page, publish, table

OURS: Peer = RotaDaemon()
PEERS: Sequence[Peer] = (Slurm(), HyperQueue(), TaskSpooler(), Gflow())

Figures = Mapping[OneBoxMeasure, Figure]

INTRODUCTION = """\
The same jobs by the same clients on every scheduler, in one run. A figure of another scheduler is
followed by the ratio of ours to it: above 1 is better for what is counted per second, below 1 for
what takes time or room. Submits are measured while nothing may start, and so is the list; the jobs
then known are those submitted before. A program's first instruction is the time that it reads
itself and writes to a file; the median of 20, on a box that does nothing else. A no-op is `true`,
and each keeps its output as the scheduler does by default. *Survived* counts the jobs that were
acknowledged just before a kill -9 of the daemon and are known to the next one. Idle is the share
of a core over {idle_s:.0f} s, with the jobs known that the list shows. The load is the system's
average of the minute before: on a quiet machine it is near 0, and figures taken under an unlike
load do not compare.
Made by `python -m benchmarks.one_box` on a machine with {machine}."""

PHASES_INTRODUCTION = """\
Where the time of one no-op of rota goes, from the submit to the moment at which a client sees its
end. The job is alone on the box."""


def main() -> None:
    parser = flags(__doc__ or "", page="one_box.md")
    parser.add_argument("--only", metavar="NAMES", help="names of schedulers, with commas between")
    arguments = parser.parse_args()
    # Daemons stop when the stack unwinds, so SIGTERM has to unwind it.
    signal.signal(signal.SIGTERM, _leave)
    chosen = _chosen(arguments.only)
    present = [peer for peer in chosen if peer.available()]
    gaps = [f"{peer.name}, which needs {peer.needs}" for peer in chosen if peer not in present]
    for gap in gaps:
        print(f"not measured: {gap}", file=sys.stderr)
    measured = {peer: _measure(peer, gaps) for peer in present}
    phases = render_phases() if OURS in measured else ""
    publish(render(measured, gaps, phases=phases), arguments.out)


def render(measured: Mapping[Peer, Figures], gaps: Sequence[str], *, phases: str) -> str:
    ours = measured.get(OURS, {})
    others = [peer for peer in measured if peer is not OURS]
    header = ("what", "aim", "rota", *(f"{peer.name} {peer.version}" for peer in others))
    says = ["yes" if each.is_durable else "no" for each in (OURS, *others)]
    rows = [
        ("acknowledged means on the disk", "yes", *says),
        *(
            (
                what.title,
                what.aim or NO_VALUE,
                str(ours.get(what, NO_VALUE)),
                *(_beside(measured[peer].get(what), ours.get(what)) for peer in others),
            )
            for what in OneBoxMeasure
        ),
    ]
    return page(
        "# How fast one box is",
        INTRODUCTION.format(idle_s=IDLE_S, machine=machine()),
        table(header, rows),
        *((PHASES_INTRODUCTION, phases) if phases else ()),
        *(peer.remark for peer in measured),
        *(f"Not measured: {gap}." for gap in gaps),
    )


def _measure(peer: Peer, gaps: list[str]) -> Figures:
    """Measure every scheduler. The failure of one keeps the results of the others."""
    measured: dict[OneBoxMeasure, Figure] = {}
    try:
        for what, figure in measure(peer):
            print(f"{peer.name}: {what.title}: {figure}", file=sys.stderr)
            measured[what] = figure
    except (OSError, RuntimeError) as failure:
        print(f"{peer.name}: {failure}", file=sys.stderr)
        gaps.append(f"the rest of {peer.name}, which failed: {failure}")
    return measured


def _chosen(names: str | None) -> Sequence[Peer]:
    everyone = [OURS, *PEERS]
    if names is None:
        return everyone
    wanted = names.lower().split(",")
    known = {peer.name.lower(): peer for peer in everyone}
    if unknown := [name for name in wanted if name not in known]:
        raise SystemExit(f"no such scheduler: {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[name] for name in wanted]


def _beside(figure: Figure | None, ours: Figure | None) -> str:
    if figure is None:
        return NO_VALUE
    if ours is None or not figure.value or not figure.unit:
        return str(figure)
    ratio = ours.value / figure.value
    return f"{figure} · {ratio:,.0f}" if ratio >= 10 else f"{figure} · {ratio:.2g}"


def _leave(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    main()
