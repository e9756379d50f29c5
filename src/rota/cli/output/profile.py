"""What a job measured, and what is made of it, as tables and charts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rota.cli.output import chart
from rota.cli.output.lines import say
from rota.cli.output.marks import told
from rota.cli.output.profile_plots import speedups, step_times
from rota.cli.output.table import Column
from rota.cli.output.table import draw as draw_table
from rota.cli.output.times import amount, figure, short_time, span
from rota.errors import printable

if TYPE_CHECKING:
    from rota.wire.training import JobProfile, SizeFigure, WorkerFigure

MOST_FITTED_ROWS = 16
WHERE = {
    ("measured", "here"): "measured here",
    ("measured", "category"): "measured by its category",
    ("fitted", "here"): "fitted to what was measured here",
    ("fitted", "category"): "fitted to what its category measured",
    ("fitted", "estimate"): "its submitter's estimate",
    ("fitted", "prior"): "assumed of every job",
}
NO_TIMES = "nobody has measured an epoch yet, and there is no estimate: 'rota submit --hours'"
NO_STEPS = "it has reported no steps; a program does with the training library"


def say_profile(profile: JobProfile) -> None:
    say("\n".join(lines(profile)))


def lines(profile: JobProfile) -> list[str]:
    parts = [_head(profile), draw_table(_sizes(profile))]
    if all(each.epoch_s is None for each in profile.sizes):
        parts.append([NO_TIMES])
    parts += [chart.draw(speedups(profile)), chart.draw(step_times(profile)) or [NO_STEPS]]
    if profile.workers:
        parts.append(draw_table(_workers(profile.workers)))
    parts += [_handling(profile), _metrics(profile)]
    told_parts = ["\n".join(part) for part in parts if part]
    return "\n\n".join(told_parts).split("\n")


def _head(profile: JobProfile) -> list[str]:
    total = "" if profile.epochs is None else f" of {profile.epochs:.4g}"
    rows = [
        ("job", f"{profile.name} ({profile.id})" if profile.name else profile.id),
        ("epochs", f"{profile.epochs_done:.4g}{total}"),
        ("lost", f"{span(profile.lost_s)} of work" if profile.lost_s >= 1 else ""),
    ]
    return [f"{name:<6}  {printable(value)}" for name, value in rows if value]


def _sizes(profile: JobProfile) -> list[Column]:
    """What was measured beside what decisions rest upon."""
    rows = _shown(profile)
    fits = {each.workers: each for each in profile.sizes if each.kind == "fitted"}
    fitted = [fits.get(each.workers) for each in rows]
    measured = [each if each.kind == "measured" else None for each in rows]
    return [
        Column("workers", tuple(str(each.workers) for each in rows)),
        Column("nodes", tuple(map(_nodes, rows)), is_number=False),
        Column("epochs\nseen", tuple(str(each.count or "-") for each in rows)),
        Column("epoch\nmeasured", tuple(map(_epoch, measured))),
        Column("epoch\nfitted", tuple(map(_epoch, fitted))),
        Column("speed-up\nmeasured", tuple(map(_speedup, measured))),
        Column("speed-up\nfitted", tuple(map(_speedup, fitted))),
        Column("from", tuple(_where(each) for each in rows), is_number=False),
    ]


def _shown(profile: JobProfile) -> list[SizeFigure]:
    """All that was measured; of what was fitted, some sizes that the job may have."""
    measured = {each.workers for each in profile.sizes if each.kind == "measured"}
    allowed = [
        each.workers
        for each in profile.sizes
        if each.kind == "fitted" and profile.min_workers <= each.workers <= profile.max_workers
    ]
    kept = {1, *measured, *_spread(allowed)}
    rows = [each for each in profile.sizes if each.kind == "measured" or each.workers in kept]
    return [each for each in rows if each.kind == "measured" or each.workers not in measured]


def _spread(sizes: Sequence[int]) -> set[int]:
    """Some of the sizes, the first and the last among them."""
    if len(sizes) <= MOST_FITTED_ROWS:
        return set(sizes)
    powers = {size for size in sizes if size & (size - 1) == 0}
    return powers | {sizes[0], sizes[-1]}


def _nodes(size: SizeFigure) -> str:
    if size.kind != "measured":
        return "-"
    return "several" if size.crosses_nodes else "one"


def _epoch(size: SizeFigure | None) -> str:
    return _with_error(short_time(size.epoch_s), size.epoch_error) if size else "-"


def _speedup(size: SizeFigure | None) -> str:
    return _with_error(figure(size.speedup), size.speedup_error) if size else "-"


def _with_error(text: str, error: float) -> str:
    if text == "-" or not error or not math.isfinite(error):
        return text
    return told(f"{text} ±{max(1, round(100 * error))}%")


def _where(size: SizeFigure) -> str:
    return WHERE.get((size.kind, size.origin), size.origin)


def _workers(workers: Sequence[WorkerFigure]) -> list[Column]:
    def memory(n_bytes: int) -> str:
        return amount(n_bytes) if n_bytes else "-"

    return [
        Column("worker", tuple(str(each.worker) for each in workers)),
        Column("node", tuple(each.node or "-" for each in workers), is_number=False),
        Column("step", tuple(short_time(each.step_s or None) for each in workers)),
        Column(
            "samples/s",
            tuple(figure(each.samples_per_s or None) for each in workers),
        ),
        Column("memory", tuple(memory(each.memory_bytes) for each in workers)),
        Column("on the card", tuple(memory(each.gpu_memory_bytes) for each in workers)),
        Column("", tuple(_slow(each) for each in workers), is_number=False),
    ]


def _slow(worker: WorkerFigure) -> str:
    if worker.slowness is None:
        return ""
    return f"straggler: {worker.slowness:.3g} times as long as the others"


def _handling(profile: JobProfile) -> list[str]:
    took = profile.handling
    times = (("start", took.start_s), ("save", took.save_s))
    times += (("load", took.load_s), ("stop", took.stop_s))
    known = [f"{name} {short_time(seconds)}" for name, seconds in times if seconds is not None]
    return ["newest times: " + ", ".join(known)] if known else []


def _metrics(profile: JobProfile) -> list[str]:
    if not profile.metrics:
        return []
    names = tuple(profile.metrics)
    told_of = {name: _history(profile, name) for name in names}
    return draw_table(
        [
            Column("metric", names, is_number=False),
            Column("first", tuple(figure(told_of[name][0]) for name in names)),
            Column("least", tuple(figure(min(told_of[name])) for name in names)),
            Column("most", tuple(figure(max(told_of[name])) for name in names)),
            Column("newest", tuple(figure(profile.metrics[name]) for name in names)),
        ]
    )


def _history(profile: JobProfile, name: str) -> list[float]:
    kept = [step.metrics[name] for step in profile.steps if name in step.metrics]
    return [*kept, profile.metrics[name]]
