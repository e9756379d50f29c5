"""The page as a whole: what was simulated, the tables, the charts.

The decision times are the only figures that differ between two equal runs. They come last, in a
section of their own, so that everything before them is the same, byte for byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from rota.core.model import Node
from rota.simulator.figures import CHANGES, CLUSTER, COMPLETION, DECISIONS, Column, Group, columns
from rota.simulator.report.charts import completion_chart, legend, shared_horizon_s, usage_chart
from rota.simulator.report.gantt import gantt
from rota.simulator.results import Measures, Run, measures
from rota.svg import safe, tag


@dataclass(frozen=True, slots=True)
class About:
    """What was simulated: the trace and the settings as the user typed them, and the nodes."""

    trace: str
    nodes: tuple[Node, ...]
    settings: tuple[tuple[str, str], ...] = ()


def render(about: About, runs: Sequence[Run]) -> str:
    rows = [measures(run) for run in runs]
    body = (
        _header(about, rows),
        tag("main", "", _figures(rows), _completion(runs), _usage(runs), _tenures(about, runs)),
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


def _header(about: About, rows: Sequence[Measures]) -> str:
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


def _figures(rows: Sequence[Measures]) -> str:
    note = (
        "The best value of each column is marked. Completion times are of finished jobs, waits of "
        "all. Unfairness is a job's completion time over what an equal share of the cluster "
        "would have taken; jobs above 1.05 count as unfair."
    )
    table = _table((COMPLETION, CLUSTER, CHANGES), rows)
    return _section("figures", "Figures", tag("p", 'class="note"', note), table)


def _completion(runs: Sequence[Run]) -> str:
    note = "Share of jobs finished within a time after their submission; the time is logarithmic."
    return _section(
        "completion",
        "Completion times",
        tag("p", 'class="note"', note),
        legend(runs),
        tag("div", 'class="wide"', completion_chart(runs)),
    )


def _usage(runs: Sequence[Run]) -> str:
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
    note = "Share of the cluster's GPUs held, from the first submission on; one scale for all."
    return _section(
        "usage",
        "GPUs in use",
        tag("p", 'class="note"', note),
        tag("div", 'class="pairs"', *charts),
    )


def _tenures(about: About, runs: Sequence[Run]) -> str:
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
        "One row per GPU. A job has the same colour under every policy; point at a bar for its "
        "name, its GPUs and its time."
    )
    return _section("gantt", "Who held which GPU", tag("p", 'class="note"', note), *charts)


def _decisions(rows: Sequence[Measures]) -> str:
    note = "Time on the real clock that one round took to decide; it differs from run to run."
    table = _table((DECISIONS,), rows)
    return _section("decisions", "Decision times", tag("p", 'class="note"', note), table)


def _section(name: str, title: str, *content: str) -> str:
    heading = tag("h2", f'id="{name}-title"', title)
    return tag("section", f'id="{name}" aria-labelledby="{name}-title"', heading, *content)


def _table(groups: Sequence[Group], rows: Sequence[Measures]) -> str:
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


def _heading(column: Column, *, starts_group: bool) -> str:
    unit = tag("span", 'class="unit"', column.unit) if column.unit else ""
    kind = ' class="first"' if starts_group else ""
    return tag("th", f'scope="col"{kind}', column.title, unit)


def _cell(column: Column, row: int, *, starts_group: bool) -> str:
    kinds = ["best"] * (row in column.best) + ["first"] * starts_group
    attributes = f'class="{" ".join(kinds)}"' if kinds else ""
    mark = '<span class="unseen"> best</span>' if row in column.best else ""
    return tag("td", attributes, column.cells[row], mark)
