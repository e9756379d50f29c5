"""The Gantt chart: which job held which GPU at which time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from rota.core.model.job import JobId
from rota.core.model.node import Node, NodeId
from rota.simulator.metric_table import duration
from rota.simulator.metrics import SimulationRun, mean_usage
from rota.simulator.report.axis import TimeAxis, time_grid
from rota.simulator.report.bars import MAX_BARS, Bar, Bars, bars, first_rows
from rota.simulator.report.charts import start_s
from rota.svg import Frame, figure, grid_line, label, num, safe, tag

MAX_ROW_PX = 16.0
TARGET_HEIGHT_PX = 560.0
LABEL_GAP_PX = 13.0
NODE_LINE_PX = 8.0
CHARACTER_PX = 6.4
N_COLOURS = 8
SHADES = 4
SHADE_COLUMNS = 120


@dataclass(frozen=True, slots=True)
class ChartLayout:
    """Converts the time and rows of a bar to pixels."""

    axis: TimeAxis
    row_px: float
    origin_s: float

    def box(self, bar: Bar) -> tuple[float, float, float, float]:
        """Return x, y, width and height. A very short bar gets a minimum width."""
        left = self.axis.x(bar.start_s - self.origin_s)
        right = self.axis.x(bar.end_s - self.origin_s)
        top = self.axis.frame.top + bar.row * self.row_px
        return left, top, max(right - left, 0.4), bar.height * self.row_px


@dataclass(frozen=True, slots=True)
class JobLabel:
    """The name of a job, and its place in the order of submission, which selects its colour."""

    name: str
    order: int


def gantt(run: SimulationRun, nodes: Sequence[Node], *, horizon_s: float) -> str:
    """Return the chart with its caption."""
    content = bars(run.allocation_spans, nodes)
    n_rows = sum(len(node.gpus) for node in nodes)
    row_px = min(MAX_ROW_PX, TARGET_HEIGHT_PX / max(n_rows, 1))
    frame = Frame(left=96, top=6, width=968, height=max(row_px * n_rows, row_px))
    layout = ChartLayout(TimeAxis(frame, 0.0, horizon_s), row_px, start_s(run))
    job_labels = {job.job_id: JobLabel(job.name, order) for order, job in enumerate(run.outcomes)}
    drawing = figure(
        time_grid(layout.axis),
        _node_lines(nodes, layout),
        _shades(content.left_out, layout, nodes=nodes),
        *_drawn(content.drawn, layout, job_labels=job_labels),
        size=(1080, frame.bottom + 26),
        title=f"Which job held which GPU over {duration(horizon_s)} under {run.policy}.",
        kind="chart gantt",
    )
    return tag("figure", "", tag("div", 'class="wide"', drawing), _caption(content))


def _node_lines(nodes: Sequence[Node], layout: ChartLayout) -> str:
    """Draw a line and a name for each node. Leave out names that would overlap."""
    frame = layout.axis.frame
    parts = [grid_line((frame.left, frame.bottom), (frame.right, frame.bottom))]
    labelled_to = -LABEL_GAP_PX
    for node, row in zip(nodes, first_rows(nodes).values(), strict=True):
        top = frame.top + row * layout.row_px
        middle = top + len(node.gpus) * layout.row_px / 2
        if len(node.gpus) * layout.row_px >= NODE_LINE_PX:
            parts.append(grid_line((frame.left, top), (frame.right, top)))
        if node.gpus and middle - labelled_to >= LABEL_GAP_PX:
            labelled_to = middle
            parts.append(label((frame.left - 8, middle + 4), node.id[:14], kind="end"))
    return "".join(parts)


def _drawn(
    drawn: Sequence[Bar], layout: ChartLayout, *, job_labels: Mapping[JobId, JobLabel]
) -> Iterator[str]:
    for bar in drawn:
        job = job_labels.get(bar.job_id, JobLabel(bar.job_id, 0))
        x, y, width, height = layout.box(bar)
        gap = 0.6 if height > 4 else 0.0
        since, until = (duration(time - layout.origin_s) for time in (bar.start_s, bar.end_s))
        gpus = f"{bar.height:g} GPU{'' if bar.height == 1 else 's'}"
        yield (
            f'<rect class="j{job.order % N_COLOURS}" x="{num(x)}" y="{num(y + gap / 2)}" '
            f'width="{num(width)}" height="{num(height - gap)}"><title>'
            f"{safe(job.name)}: {gpus} of {safe(bar.node)}, {since} to {until}</title></rect>"
        )
        if height >= 11 and width > len(job.name) * CHARACTER_PX + 6:
            yield label((x + 4, y + height / 2 + 4), job.name, kind="bar")


def _shades(left_out: Sequence[Bar], layout: ChartLayout, *, nodes: Sequence[Node]) -> str:
    """Draw the bars that are left out as shades: how much of each node they held, in four steps."""
    paths: dict[int, list[str]] = defaultdict(list)
    frame = layout.axis.frame
    edges = np.linspace(0.0, layout.axis.high_s, SHADE_COLUMNS + 1)
    by_node: dict[NodeId, list[Bar]] = defaultdict(list)
    for bar in left_out:
        by_node[bar.node].append(bar)
    column_px = frame.width / SHADE_COLUMNS
    for node, row in zip(nodes, first_rows(nodes).values(), strict=True):
        if not by_node[node.id]:
            continue
        height = len(node.gpus) * layout.row_px
        held = mean_usage(_use(by_node[node.id], layout.origin_s), edges) / len(node.gpus)
        levels: list[int] = np.ceil(np.clip(held, 0, 1) * SHADES - 0.05).astype(int).tolist()
        for level, same in groupby(range(SHADE_COLUMNS), key=levels.__getitem__):
            columns = list(same)
            x, width = frame.left + columns[0] * column_px, len(columns) * column_px
            top = frame.top + row * layout.row_px
            box = f"M{num(x)} {num(top)}h{num(width)}v{num(height)}h{num(-width)}z"
            paths[level].append(box)
    return "".join(
        f'<path class="shade b{level}" d="{"".join(paths[level])}"></path>'
        for level in range(1, SHADES + 1)
        if paths[level]
    )


def _use(left_out: Sequence[Bar], origin_s: float) -> list[tuple[float, float]]:
    """Return the GPUs that the bars of one node hold, from each time on."""
    changes = sorted(
        change
        for bar in left_out
        for change in (
            (bar.start_s - origin_s, bar.height),
            (bar.end_s - origin_s, -bar.height),
        )
    )
    held = np.cumsum([change for _, change in changes]).tolist()
    return [(time_s, gpus) for (time_s, _), gpus in zip(changes, held, strict=True)]


def _caption(content: Bars) -> str:
    total = len(content.drawn) + len(content.left_out)
    if not total:
        text = "No job held a GPU."
    elif not content.left_out:
        text = f"All {total:,} periods in which a job held GPUs."
    else:
        text = (
            f"The {MAX_BARS:,} largest of {total:,} periods in which a job held GPUs, with "
            f"{content.drawn_share:.0%} of the GPU time. The other {len(content.left_out):,} "
            "periods are the grey background: darker grey means more GPUs of the node."
        )
    return tag("figcaption", "", safe(text, 400))
