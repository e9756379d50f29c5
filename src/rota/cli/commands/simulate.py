"""`rota simulate`: a trace under one or more policies, as a table, as JSON, as a report.

A composition root: it alone brings together traces, policies, the runner and the report. All
input is read and checked before the first run starts, because a run may take minutes.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rota.errors import PATH, UserError, shown

if TYPE_CHECKING:
    from rota.core.model import Node
    from rota.core.policy import Policy
    from rota.simulator.results import Measures, Run
    from rota.simulator.runner import Options
    from rota.simulator.workload import Workload

app = typer.Typer()

SECONDS = "S"
MOST_SECONDS = 1e12
"""As in the fields of a trace: sums stay finite, and a second still counts."""
DEFAULT_POLICIES = ["all"]
Trace = Annotated[
    str,
    typer.Argument(
        metavar="TRACE",
        show_default=False,
        help="A trace file, a built-in workload (voda:run_1, voda:run_1_hard), "
        "or synthetic:jobs=500,seed=1.",
    ),
]
Cluster = Annotated[
    str,
    typer.Option(
        metavar="NxG[:TYPE]...,...",
        show_default=False,
        help="Nodes x GPUs: 3x4, or 2x4:V100,16x8:A100; with GPU memory, CPUs, memory and labels: "
        "3x4:A100@80GiB/96cpu/1TiB/disk=ssd.",
    ),
]
Policies = Annotated[
    list[str],
    typer.Option(
        metavar="NAME[:PARAM=VALUE,...]",
        help="A policy; may be repeated, or be a comma list, or 'all'. See 'rota policy list'.",
    ),
]
RestartCost = Annotated[
    float, typer.Option(metavar=SECONDS, help="What a job loses when it starts or changes size.")
]
Round = Annotated[
    float,
    typer.Option("--round", metavar=SECONDS, help="Least time between rounds; 0 decides at once."),
]
MinRuntime = Annotated[
    float, typer.Option(metavar=SECONDS, help="How long a started job is left alone.")
]
NoGuard = Annotated[
    bool, typer.Option("--no-guard", help="Make every change that the policy asks for.")
]
Seed = Annotated[
    int | None,
    typer.Option(metavar="N", help="For a generated trace whose text names no seed; from 0."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print a list with an object per policy.")]
Html = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write a report that needs nothing else.")
]
Traces = Annotated[
    Path | None,
    typer.Option(metavar="DIR", envvar="ROTA_TRACES", help="Where else to look for a trace file."),
]


@dataclass(frozen=True, slots=True)
class Task:
    """All that was asked, read and found right."""

    workload: Workload
    nodes: tuple[Node, ...]
    policies: tuple[Policy, ...]
    options: Options


@app.command("simulate")
def simulate(
    trace: Trace,
    *,
    cluster: Cluster,
    policy: Policies = DEFAULT_POLICIES,
    restart_cost: RestartCost = 30.0,
    round_: Round = 0.0,
    min_runtime: MinRuntime = 60.0,
    no_guard: NoGuard = False,
    seed: Seed = None,
    as_json: AsJson = False,
    html: Html = None,
    traces: Traces = None,
) -> None:
    """Compare policies on a trace, in virtual time."""
    from rota.policies.registry import parse_many
    from rota.simulator.cluster import parse_cluster
    from rota.simulator.report.write import check_target
    from rota.simulator.runner import Options

    options = Options(
        restart_cost_s=_seconds("--restart-cost", restart_cost),
        round_s=_seconds("--round", round_),
        min_runtime_s=_seconds("--min-runtime", min_runtime),
        guard=not no_guard,
        record_tenures=html is not None,
    )
    if html:
        check_target(html)
    policies = tuple(parse_many(policy))
    nodes = parse_cluster(cluster)
    workload = _workload(trace, nodes, traces=traces, seed=seed)
    task = Task(workload, nodes, policies, options)
    runs = _run_all(task)
    try:
        if html:
            _write_report(html, runs, task=task, cluster=cluster)
    finally:
        # A disk that filled up meanwhile is no reason to lose the figures of a long run.
        _say(runs, as_json=as_json)


def _seconds(flag: str, value: float) -> float:
    if 0 <= value <= MOST_SECONDS:
        return value
    bounds = f"from 0 to {MOST_SECONDS:g}"
    raise UserError(f"{flag} must be a number of seconds {bounds}, not {value:g}")


def _workload(
    trace: str, nodes: tuple[Node, ...], *, traces: Path | None, seed: int | None
) -> Workload:
    from rota.simulator.fits import check_fits
    from rota.simulator.traces import load

    _check_seed(seed, trace)
    workload = load(trace, traces_dir=traces, seed=seed)
    check_fits(workload, nodes)
    return workload


def _check_seed(seed: int | None, trace: str) -> None:
    from rota.simulator.traces.synthetic import PREFIX

    if seed is None:
        return
    if seed < 0:
        raise UserError(f"--seed must be a whole number from 0, not {shown(str(seed))}")
    if trace.partition(":")[0] != PREFIX:
        raise UserError(
            f"--seed is for generated traces, and '{shown(trace, PATH)}' is none",
            f"leave it out, or generate one with {PREFIX}:jobs=500",
        )


def _run_all(task: Task) -> list[Run]:
    from rota.cli.output.progress import progress
    from rota.policies.registry import describe
    from rota.simulator.runner import simulate as run

    # A trace of a hundred thousand jobs stays to the end: looking through it again and again for
    # garbage would put pauses of half a second into the decision times.
    gc.freeze()
    with progress([describe(policy) for policy in task.policies]) as report:
        return [
            run(
                task.workload,
                task.nodes,
                policy=policy,
                options=task.options,
                progress=partial(report, line),
            )
            for line, policy in enumerate(task.policies)
        ]


def _write_report(path: Path, runs: Sequence[Run], *, task: Task, cluster: str) -> None:
    from rota.simulator.figures import duration
    from rota.simulator.report.page import About, render
    from rota.simulator.report.write import write_whole

    options = task.options
    settings = (
        ("cluster", cluster),
        ("restart cost", duration(options.restart_cost_s)),
        ("round", duration(options.round_s) if options.round_s else "at once"),
        ("minimum run time", duration(options.min_runtime_s)),
        ("guard", "on" if options.guard else "off"),
    )
    write_whole(path, render(About(task.workload.name, task.nodes, settings), runs))


def _say(runs: Sequence[Run], *, as_json: bool) -> None:
    from rota.cli.output.json import say_json
    from rota.simulator.results import measures

    rows = [measures(run) for run in runs]
    if as_json:
        say_json([asdict(row) for row in rows])
    else:
        _say_tables(rows)
    _warn_of_unfinished(rows)


def _warn_of_unfinished(rows: Sequence[Measures]) -> None:
    """Means over the finished jobs alone look good; whoever reads them should know."""
    from rota.cli.output.lines import complain

    short = [row for row in rows if row.finished < row.jobs]
    counts = [f"{row.jobs - row.finished} of {row.jobs} under {row.policy}" for row in short]
    if counts:
        complain(f"jobs that never finished: {', '.join(counts)}")


def _say_tables(rows: Sequence[Measures]) -> None:
    from rota.cli.output.lines import say
    from rota.cli.output.table import Column, say_table
    from rota.simulator.figures import GROUPS, columns

    names = Column("policy", tuple(row.policy for row in rows), is_number=False)
    for number, group in enumerate(GROUPS):
        if number:
            say("")
        figures = (
            Column(f"{each.title}\n{each.unit}".rstrip(), each.cells, each.best)
            for each in columns(group, rows)
        )
        say_table([names, *figures], title=group.title)
