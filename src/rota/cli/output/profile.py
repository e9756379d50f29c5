"""The profile of a job as tables and plots: measured and fitted speed, steps, memory, metrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rota.cli.output.console import print_out
from rota.cli.output.format import amount, figure, short_time, span
from rota.cli.output.plot import BYTE_STEPS, TIME_STEPS, WHOLE_STEPS, Dot, Plot, draw_plot
from rota.cli.output.table import Column, to_output_charset
from rota.cli.output.table import draw as draw_table
from rota.errors import printable

if TYPE_CHECKING:
    from rota.wire.training import JobProfile, SizeFigure, StepFigure, WorkerFigure

MAX_FITTED_ROWS = 16
ORIGIN_TEXTS = {
    ("measured", "here"): "measured here",
    ("measured", "category"): "measured by its category",
    ("fitted", "here"): "fitted to this job",
    ("fitted", "category"): "fitted to its category",
    ("fitted", "estimate"): "its submitter's estimate",
    ("fitted", "prior"): "assumed for every job",
}
"""Kind and origin of a row -> text."""
NO_TIMES = "no epoch is measured yet and there is no estimate; 'rota submit --hours' gives one"
NO_STEPS = "no steps are reported; a program reports them with the training library"


def print_profile(profile: JobProfile) -> None:
    print_out("\n".join(lines(profile)))


def lines(profile: JobProfile) -> list[str]:
    parts = [_head(profile), draw_table(_sizes(profile))]
    if all(each.epoch_s is None for each in profile.sizes):
        parts.append([NO_TIMES])
    parts += [draw_plot(speedups(profile)), draw_plot(step_times(profile)) or [NO_STEPS]]
    if profile.workers:
        parts.append(draw_table(_workers(profile.workers)))
    parts += [_handling(profile), _metrics(profile)]
    return "\n\n".join("\n".join(part) for part in parts if part).split("\n")


def _head(profile: JobProfile) -> list[str]:
    total = "" if profile.epochs is None else f" of {profile.epochs:.4g}"
    rows = [
        ("job", f"{profile.name} ({profile.id})" if profile.name else profile.id),
        ("epochs", f"{profile.epochs_done:.4g}{total}"),
        ("lost", f"{span(profile.lost_s)} of work" if profile.lost_s >= 1 else ""),
    ]
    return [f"{name:<6}  {printable(value)}" for name, value in rows if value]


def _sizes(profile: JobProfile) -> list[Column]:
    """Measured values beside the fitted values that the scheduler uses."""
    rows = _shown(profile)
    fits = {each.gpus: each for each in profile.sizes if each.kind == "fitted"}
    fitted = [fits.get(each.gpus) for each in rows]
    measured = [each if each.kind == "measured" else None for each in rows]
    return [
        Column("gpus", tuple(str(each.gpus) for each in rows)),
        Column("crosses_nodes", tuple(map(_crosses_nodes, rows)), is_number=False),
        Column("count", tuple(str(each.count or "-") for each in rows)),
        Column("epoch\nmeasured", tuple(map(_epoch, measured))),
        Column("epoch\nfitted", tuple(map(_epoch, fitted))),
        Column("speedup\nmeasured", tuple(map(_speedup, measured))),
        Column("speedup\nfitted", tuple(map(_speedup, fitted))),
        Column("origin", tuple(_origin(each) for each in rows), is_number=False),
    ]


def _shown(profile: JobProfile) -> list[SizeFigure]:
    """All measured sizes, and some of the fitted sizes that the job may have."""
    measured = {each.gpus for each in profile.sizes if each.kind == "measured"}
    allowed = [
        each.gpus
        for each in profile.sizes
        if each.kind == "fitted" and profile.min_gpus <= each.gpus <= profile.max_gpus
    ]
    kept = {1, *measured, *_spread(allowed)}
    rows = [each for each in profile.sizes if each.kind == "measured" or each.gpus in kept]
    return [each for each in rows if each.kind == "measured" or each.gpus not in measured]


def _spread(sizes: Sequence[int]) -> set[int]:
    """All sizes, or powers of two with the first and the last if there are too many."""
    if len(sizes) <= MAX_FITTED_ROWS:
        return set(sizes)
    powers = {size for size in sizes if size & (size - 1) == 0}
    return powers | {sizes[0], sizes[-1]}


def _crosses_nodes(size: SizeFigure) -> str:
    if size.kind != "measured":
        return "-"
    return "yes" if size.crosses_nodes else "no"


def _epoch(size: SizeFigure | None) -> str:
    return _with_error(short_time(size.epoch_s), size.epoch_error) if size else "-"


def _speedup(size: SizeFigure | None) -> str:
    return _with_error(figure(size.speedup), size.speedup_error) if size else "-"


def _with_error(text: str, error: float) -> str:
    if text == "-" or not error or not math.isfinite(error):
        return text
    return to_output_charset(f"{text} ±{max(1, round(100 * error))}%")


def _origin(size: SizeFigure) -> str:
    return ORIGIN_TEXTS.get((size.kind, size.origin), size.origin)


def _workers(workers: Sequence[WorkerFigure]) -> list[Column]:
    def memory(n_bytes: int) -> str:
        return amount(n_bytes) if n_bytes else "-"

    return [
        Column("worker", tuple(str(each.worker) for each in workers)),
        Column("node", tuple(each.node or "-" for each in workers), is_number=False),
        Column("step", tuple(short_time(each.step_s or None) for each in workers)),
        Column(
            "samples_per_s",
            tuple(figure(each.samples_per_s or None) for each in workers),
        ),
        Column("memory", tuple(memory(each.memory_bytes) for each in workers)),
        Column("gpu_memory", tuple(memory(each.gpu_memory_bytes) for each in workers)),
        Column("slowness", tuple(_slow(each) for each in workers), is_number=False),
    ]


def _slow(worker: WorkerFigure) -> str:
    if worker.slowness is None:
        return "-"
    return f"{worker.slowness:.3g} times the step time of the others"


def _handling(profile: JobProfile) -> list[str]:
    took = profile.handling
    times = (("start", took.start_s), ("save", took.save_s))
    times += (("load", took.load_s), ("stop", took.stop_s))
    known = [f"{name} {short_time(seconds)}" for name, seconds in times if seconds is not None]
    return ["latest durations: " + ", ".join(known)] if known else []


def _metrics(profile: JobProfile) -> list[str]:
    if not profile.metrics:
        return []
    names = tuple(profile.metrics)
    history = {name: _history(profile, name) for name in names}
    return draw_table(
        [
            Column("metric", names, is_number=False),
            Column("first", tuple(figure(history[name][0]) for name in names)),
            Column("min", tuple(figure(min(history[name])) for name in names)),
            Column("max", tuple(figure(max(history[name])) for name in names)),
            Column("latest", tuple(figure(profile.metrics[name]) for name in names)),
        ]
    )


def _history(profile: JobProfile, name: str) -> list[float]:
    kept = [step.metrics[name] for step in profile.steps if name in step.metrics]
    return [*kept, profile.metrics[name]]


def plots(profile: JobProfile) -> list[Plot]:
    """All plots of a profile. A plot without data has no dots."""
    return [speedups(profile), step_times(profile), samples(profile), *memory(profile)]


def speedups(profile: JobProfile) -> Plot:
    """The plot of speed-ups; empty for a job with one size only."""
    has_sizes = any(each.gpus != profile.sizes[0].gpus for each in profile.sizes)
    return Plot(
        title="speed-up over one worker: dots measured (hollow: across nodes), line fitted",
        x_title="GPUs",
        dots=_dots(profile, "measured") if has_sizes else (),
        line=_dots(profile, "fitted") if has_sizes else (),
        show_x=lambda value: f"{value:.0f}",
        show_y=lambda value: f"{value:.3g}",
        x_steps=WHOLE_STEPS,
    )


def _dots(profile: JobProfile, kind: str) -> tuple[Dot, ...]:
    return tuple(_dot(each) for each in profile.sizes if each.kind == kind and each.speedup)


def _dot(figure: SizeFigure) -> Dot:
    speedup = figure.speedup or 0.0
    error = speedup * figure.speedup_error
    return Dot(figure.gpus, speedup, error, is_hollow=figure.crosses_nodes)


def step_times(profile: JobProfile) -> Plot:
    plot = _over_time(profile, "step time", show=short_time, pick=lambda each: each.step_s)
    return replace(plot, y_steps=TIME_STEPS)


def samples(profile: JobProfile) -> Plot:
    return _over_time(
        profile,
        "samples per second",
        show=lambda value: f"{value:.4g}",
        pick=lambda each: each.samples_per_s,
    )


def memory(profile: JobProfile) -> list[Plot]:
    """The plots of host memory and of GPU memory."""
    host = _over_time(profile, "host memory", show=amount, pick=lambda each: each.memory_bytes)
    gpu = _over_time(profile, "GPU memory", show=amount, pick=lambda each: each.gpu_memory_bytes)
    return [replace(each, y_steps=BYTE_STEPS) for each in (host, gpu)]


def _over_time(
    profile: JobProfile,
    title: str,
    *,
    show: Callable[[float], str],
    pick: Callable[[StepFigure], float],
) -> Plot:
    """A value of all samples over the time since the first sample. 0 means not reported."""
    start_s = profile.steps[0].at_s if profile.steps else 0.0
    return Plot(
        title=title,
        x_title="since the first report",
        dots=tuple(
            Dot(max(0.0, each.at_s - start_s), pick(each)) for each in profile.steps if pick(each)
        ),
        show_x=span,
        show_y=show,
        x_steps=TIME_STEPS,
    )
