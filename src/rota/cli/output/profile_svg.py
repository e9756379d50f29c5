"""The profile of a job as an SVG image, with one panel per plot that has data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rota.cli.output.plot import Dot, Plot, Scale, plotted, scales
from rota.cli.output.profile import plots
from rota.svg import Frame, grid_line, label, num, page, safe, tag

if TYPE_CHECKING:
    from rota.wire.training import JobProfile

WIDTH = 720.0
HEAD, PANEL = 64.0, 250.0
LEFT, RIGHT, TOP, BOTTOM = 92.0, 28.0, 40.0, 52.0
MAX_X_TICKS, MAX_Y_TICKS = 8, 6
STYLE = (
    "text{font-family:system-ui,sans-serif;font-size:12px;fill:#4a5560}"
    ".name{font-size:18px;font-weight:600;fill:#1d2630}"
    ".head{font-size:13px;font-weight:600;fill:#1d2630}"
    ".mid{text-anchor:middle}.end{text-anchor:end}"
    ".paper{fill:#fff}.grid{stroke:#e3e8ec;stroke-width:1}"
    ".axis{stroke:#9aa5b0;stroke-width:1}"
    ".fit{fill:none;stroke:#d9822b;stroke-width:2;stroke-linejoin:round}"
    ".band{fill:#d9822b;fill-opacity:.16}.hollow{fill:#fff;stroke:#2a6fbb;stroke-width:1.5}"
    ".error{stroke:#2a6fbb;stroke-width:1.5}.dot{fill:#2a6fbb;fill-opacity:.85}"
)


def write_svg(profile: JobProfile, file: str) -> None:
    Path(file).write_text(svg(profile), encoding="utf-8")


def svg(profile: JobProfile) -> str:
    shown = [(plot, axes) for plot in plots(profile) if (axes := scales(plot)) is not None]
    height = HEAD + PANEL * max(1, len(shown))
    what = profile.name or profile.id
    total = "" if profile.epochs is None else f" of {profile.epochs:.4g}"
    parts = [
        f'<rect class="paper" width="{num(WIDTH)}" height="{num(height)}"></rect>',
        label((24, 34), what, kind="name"),
        label((24, 54), f"job {profile.id}, {profile.epochs_done:.4g}{total} epochs done", kind=""),
    ]
    parts += [
        _panel(plot, axes, top=HEAD + PANEL * number) for number, (plot, axes) in enumerate(shown)
    ]
    if not shown:
        parts.append(label((WIDTH / 2, HEAD + PANEL / 2), "no measurements yet", kind="mid"))
    return page(*parts, size=(WIDTH, height), title=f"Profile of {what}", style=STYLE) + "\n"


@dataclass(frozen=True, slots=True)
class _PanelScale:
    """Maps values to positions in a panel."""

    across: Scale
    up: Scale
    frame: Frame

    def x(self, value: float) -> float:
        return self.frame.left + self.across.part(value) * self.frame.width

    def y(self, value: float) -> float:
        return self.frame.y(self.up.part(value))


def _panel(plot: Plot, axes: tuple[Scale, Scale], *, top: float) -> str:
    across, up = axes
    frame = Frame(LEFT, top + TOP, WIDTH - LEFT - RIGHT, PANEL - TOP - BOTTOM)
    paper = _PanelScale(across, up, frame)
    parts = [label((24, top + 22), plot.title, kind="head")]
    for tick in up.ticks(MAX_Y_TICKS, steps=plot.y_steps):
        y = paper.y(tick)
        parts.append(grid_line((frame.left, y), (frame.right, y)))
        parts.append(label((frame.left - 8, y + 4), plot.show_y(tick), kind="end"))
    for tick in across.ticks(MAX_X_TICKS, steps=plot.x_steps):
        x = paper.x(tick)
        parts.append(grid_line((x, frame.top), (x, frame.bottom)))
        parts.append(label((x, frame.bottom + 17), plot.show_x(tick), kind="mid"))
    parts.append(label((frame.right, frame.bottom + 36), plot.x_title, kind="end"))
    parts.append(
        f'<path class="axis" fill="none" d="M{num(frame.left)} {num(frame.top)}'
        f'V{num(frame.bottom)}H{num(frame.right)}"></path>'
    )
    return tag("g", "", *parts, _line(plot, paper), *_dots(plot, paper))


def _line(plot: Plot, paper: _PanelScale) -> str:
    """The fitted line and the band of its error."""
    dots = plotted(plot.line)
    if not dots:
        return ""
    above = [Dot(dot.x, dot.y + dot.error) for dot in dots]
    below = [Dot(dot.x, max(0.0, dot.y - dot.error)) for dot in reversed(dots)]
    band = f'<path class="band" d="{_path([*above, *below], paper)}Z"></path>'
    return f'{band}<path class="fit" d="{_path(dots, paper)}"></path>'


def _path(dots: list[Dot], paper: _PanelScale) -> str:
    return "M" + "L".join(f"{num(paper.x(dot.x))} {num(paper.y(dot.y))}" for dot in dots)


def _dots(plot: Plot, paper: _PanelScale) -> list[str]:
    parts: list[str] = []
    for dot in plotted(plot.dots):
        x, y = paper.x(dot.x), paper.y(dot.y)
        if dot.error:
            high, low = paper.y(dot.y + dot.error), paper.y(dot.y - dot.error)
            parts.append(
                f'<path class="error" d="M{num(x)} {num(high)}V{num(low)}'
                f"M{num(x - 4)} {num(high)}h8M{num(x - 4)} {num(low)}h8"
                '"></path>'
            )
        tooltip = f"{plot.show_x(dot.x)} {plot.x_title}: {plot.show_y(dot.y)}"
        kind = "hollow" if dot.is_hollow else "dot"
        circle = f'class="{kind}" cx="{num(x)}" cy="{num(y)}" r="{3.5 if plot.line else 2.2}"'
        parts.append(tag("circle", circle, tag("title", "", safe(tooltip))))
    return parts
