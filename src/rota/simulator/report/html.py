"""Renders the HTML page: the settings of the simulation, the tables, the charts.

Decision times are the only values that differ between two equal runs. They are in the last section,
so that everything before them is identical, byte for byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from rota.core.model.node import Node
from rota.simulator.metric_table import (
    CHANGES,
    CLUSTER,
    COMPLETION,
    DECISIONS,
    MetricColumn,
    MetricGroup,
    columns,
)
from rota.simulator.metrics import RunMetrics, SimulationRun, compute_metrics
from rota.simulator.report.charts import completion_chart, legend, shared_horizon_s, usage_chart
from rota.simulator.report.gantt import gantt
from rota.svg import safe, tag


@dataclass(frozen=True, slots=True)
class SimulationInfo:
    """The trace and the settings as the user typed them, and the nodes."""

    trace: str
    nodes: tuple[Node, ...]
    settings: tuple[tuple[str, str], ...] = ()


def render(about: SimulationInfo, runs: Sequence[SimulationRun]) -> str:
    rows = [compute_metrics(run) for run in runs]
    body = (
        _header(about, rows),
        tag(
            "main",
            "",
            _figures(rows),
            _completion(runs),
            _usage(runs),
            _allocation_spans(about, runs),
        ),
        _decisions(rows),
        tag("footer", "", "Made by <code>rota simulate</code>."),
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{safe(about.trace)}: simulation report</title>\n"
        f"<style>\n{_style()}</style>\n</head>\n<body>\n" + "\n".join(body) + "\n</body>\n</html>\n"
    )


def _style() -> str:
    return files("rota.simulator.report").joinpath("report.css").read_text(encoding="utf-8")


def _header(about: SimulationInfo, rows: Sequence[RunMetrics]) -> str:
    n_gpus = sum(len(node.gpus) for node in about.nodes)
    facts = (
        ("jobs", f"{max((row.jobs for row in rows), default=0):,}"),
        ("nodes", f"{len(about.nodes):,}"),
        ("GPUs", f"{n_gpus:,}"),
        *about.settings,
    )
    entries = (
        tag("div", "", tag("dt", "", safe(name)), tag("dd", "", safe(value)))
        for name, value in facts
    )
    title = tag("h1", "", safe(about.trace))
    kicker = tag("p", 'class="kicker"', "Simulation report")
    return tag("header", "", kicker, title, tag("dl", "", *entries))


def _figures(rows: Sequence[RunMetrics]) -> str:
    note = (
        "The best value of each column is marked. Completion times include finished jobs only, "
        "waiting times include all jobs. The unfairness of a job is its completion time divided by "
        "its completion time on an equal share of the cluster; jobs above 1.05 count as unfair."
    )
    table = _table((COMPLETION, CLUSTER, CHANGES), rows)
    return _section("figures", "Figures", tag("p", 'class="note"', note), table)


def _completion(runs: Sequence[SimulationRun]) -> str:
    note = "Fraction of jobs finished within a time after submission, on a logarithmic time axis."
    return _section(
        "completion",
        "Completion times",
        tag("p", 'class="note"', note),
        legend(runs),
        tag("div", 'class="wide"', completion_chart(runs)),
    )


def _usage(runs: Sequence[SimulationRun]) -> str:
    horizon = shared_horizon_s(runs)
    charts = (
        tag(
            "figure",
            "",
            tag("figcaption", 'class="above"', tag("strong", "", safe(run.policy))),
            usage_chart(run, index, horizon_s=horizon),
        )
        for index, run in enumerate(runs)
    )
    note = (
        "Fraction of the GPUs in use, from the first submission on. All charts have the same scale."
    )
    return _section(
        "usage",
        "GPUs in use",
        tag("p", 'class="note"', note),
        tag("div", 'class="pairs"', *charts),
    )


def _allocation_spans(about: SimulationInfo, runs: Sequence[SimulationRun]) -> str:
    horizon = shared_horizon_s(runs)
    charts = (
        tag(
            "details",
            "open",
            tag("summary", "", safe(run.policy)),
            gantt(run, about.nodes, horizon_s=horizon),
        )
        for run in runs
    )
    note = (
        "One row per GPU. A job has the same colour under every policy. Point at a bar to see the "
        "job, its GPUs and its time."
    )
    return _section("gantt", "GPUs by job", tag("p", 'class="note"', note), *charts)


def _decisions(rows: Sequence[RunMetrics]) -> str:
    note = "Wall time of one scheduling round. It differs from run to run."
    table = _table((DECISIONS,), rows)
    return _section("decisions", "Decision times", tag("p", 'class="note"', note), table)


def _section(name: str, title: str, *content: str) -> str:
    heading = tag("h2", f'id="{name}-title"', title)
    return tag("section", f'id="{name}" aria-labelledby="{name}-title"', heading, *content)


def _table(groups: Sequence[MetricGroup], rows: Sequence[RunMetrics]) -> str:
    by_group = [(group, columns(group, rows)) for group in groups]
    upper = "".join(
        tag("th", f'colspan="{len(group_columns)}" scope="colgroup"', group.title)
        for group, group_columns in by_group
    )
    all_columns = [column for _, group_columns in by_group for column in group_columns]
    firsts = {group_columns[0] for _, group_columns in by_group}
    lower = "".join(_heading(column, starts_group=column in firsts) for column in all_columns)
    head = tag("tr", "", '<th rowspan="2" scope="col" class="name">policy</th>', upper)
    body = "".join(
        tag(
            "tr",
            "",
            tag("th", 'scope="row" class="name"', safe(row.policy)),
            *(_cell(column, at, starts_group=column in firsts) for column in all_columns),
        )
        for at, row in enumerate(rows)
    )
    table = tag("table", "", tag("thead", "", head, tag("tr", "", lower)), tag("tbody", "", body))
    return tag("div", 'class="wide" tabindex="0" role="region" aria-label="table"', table)


def _heading(column: MetricColumn, *, starts_group: bool) -> str:
    unit = tag("span", 'class="unit"', column.unit) if column.unit else ""
    kind = ' class="first"' if starts_group else ""
    return tag("th", f'scope="col"{kind}', column.title, unit)


def _cell(column: MetricColumn, row: int, *, starts_group: bool) -> str:
    kinds = ["best"] * (row in column.best) + ["first"] * starts_group
    attributes = f'class="{" ".join(kinds)}"' if kinds else ""
    mark = '<span class="unseen"> best</span>' if row in column.best else ""
    return tag("td", attributes, column.cells[row], mark)
