"""What is plotted of a job's profile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from rota.cli.output.plot import BYTE_STEPS, TIME_STEPS, WHOLE_STEPS, Dot, Plot
from rota.cli.output.times import amount, short_time, span

if TYPE_CHECKING:
    from rota.wire.training import JobProfile, SizeFigure, StepFigure


def plots(profile: JobProfile) -> list[Plot]:
    """All of them. One that nothing is known for has no dots."""
    return [speedups(profile), step_times(profile), samples(profile), *memory(profile)]


def speedups(profile: JobProfile) -> Plot:
    """Empty for a job that has one size only, which speeds nothing up."""
    has_sizes = any(each.workers != profile.sizes[0].workers for each in profile.sizes)
    return Plot(
        title="speed-up over one worker: dots measured (hollow: across nodes), line fitted",
        x_title="workers",
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
    return Dot(figure.workers, speedup, error, is_hollow=figure.crosses_nodes)


def step_times(profile: JobProfile) -> Plot:
    plot = _over_time(profile, "time of a step", show=short_time, pick=lambda each: each.step_s)
    return replace(plot, y_steps=TIME_STEPS)


def samples(profile: JobProfile) -> Plot:
    return _over_time(
        profile,
        "samples per second",
        show=lambda value: f"{value:.4g}",
        pick=lambda each: each.samples_per_s,
    )


def memory(profile: JobProfile) -> list[Plot]:
    """Of a worker's processes, and on its card."""
    processes = _over_time(
        profile, "memory of its processes", show=amount, pick=lambda each: each.memory_bytes
    )
    card = _over_time(
        profile, "memory on the card", show=amount, pick=lambda each: each.gpu_memory_bytes
    )
    return [replace(each, y_steps=BYTE_STEPS) for each in (processes, card)]


def _over_time(
    profile: JobProfile,
    title: str,
    *,
    show: Callable[[float], str],
    pick: Callable[[StepFigure], float],
) -> Plot:
    """A figure of every worker, by the time since the first sample. 0 is what nobody told."""
    began_s = profile.steps[0].at_s if profile.steps else 0.0
    return Plot(
        title=title,
        x_title="since its first report",
        dots=tuple(
            Dot(max(0.0, each.at_s - began_s), pick(each)) for each in profile.steps if pick(each)
        ),
        show_x=span,
        show_y=show,
        x_steps=TIME_STEPS,
    )
