"""`rota simulate`: runs a trace under policies and prints a table, JSON or an HTML report.

This module is a composition root: it connects traces, policies, the runner and the report. It
reads and checks all input before the first run, because a run may take minutes.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rota.cli import complete
from rota.cli.command import CommandArgument, CommandOption, command, decimal, flag, whole
from rota.errors import MAX_SHOWN_PATH_CHARS, UserError, shown

if TYPE_CHECKING:
    from rota.core.model.node import Node
    from rota.core.scheduling.policy_api import Policy
    from rota.simulator.metrics import RunMetrics, SimulationRun
    from rota.simulator.runner import Options
    from rota.simulator.workload import Workload

MAX_SECONDS = 1e12
"""The same limit as in a trace: sums stay finite, and one second still makes a difference."""
DEFAULT_POLICIES = ["all"]


def _seconds_option(flag: str, default: float, *, text: str) -> CommandOption:
    name = flag.removeprefix("--").replace("-", "_")
    # `round` is a built-in function.
    name = "round_" if name == "round" else name
    return CommandOption(flag, name=name, metavar="S", text=text, parse=decimal, default=default)


@dataclass(frozen=True, slots=True)
class SimulationTask:
    """The parsed and checked input of the command."""

    workload: Workload
    nodes: tuple[Node, ...]
    policies: tuple[Policy, ...]
    options: Options


@command(
    "simulate",
    CommandArgument(
        "trace",
        metavar="TRACE",
        text="A trace file, a built-in workload (voda:run_1, voda:run_1_hard), "
        "or a generated one (synthetic:jobs=500,seed=1).",
    ),
    CommandOption(
        "--cluster",
        name="cluster",
        metavar="NxG[:TYPE]...,...",
        text="Nodes x GPUs: 3x4, or 2x4:V100,16x8:A100; with GPU memory, CPUs, memory and labels: "
        "3x4:A100@80GiB/96cpu/1TiB/disk=ssd.",
        parse=str,
        is_required=True,
    ),
    CommandOption(
        "--policy",
        name="policy",
        metavar="NAME[:PARAM=VALUE,...]",
        text="Policy, comma list of policies, or 'all' (default), see 'rota policy list'.",
        parse=str,
        default=DEFAULT_POLICIES,
        is_repeatable=True,
        complete=complete.policies,
    ),
    _seconds_option(
        "--restart-cost",
        30.0,
        text="Time that a start or a change of size costs a job (default: 30).",
    ),
    _seconds_option("--round", 0.0, text="Minimum time between rounds (default: 0, no minimum)."),
    _seconds_option(
        "--min-runtime", 60.0, text="Time in which a started job is not preempted (default: 60)."
    ),
    flag("--no-guard", name="no_guard", text="Make every change that the policy requests."),
    CommandOption(
        "--seed",
        name="seed",
        metavar="N",
        text="Seed of a generated trace, from 0, if TRACE has none.",
        parse=whole,
    ),
    flag("--json", name="as_json", text="Print a JSON list, one object per policy."),
    CommandOption(
        "--html",
        name="html",
        metavar="FILE",
        text="Write a self-contained HTML report.",
        parse=Path,
    ),
    CommandOption(
        "--traces",
        name="traces",
        metavar="DIR",
        text="Another folder with trace files (default: ROTA_TRACES).",
        parse=Path,
    ),
)
def simulate(
    *,
    trace: str,
    cluster: str,
    policy: list[str],
    restart_cost: float,
    round_: float,
    min_runtime: float,
    no_guard: bool,
    seed: int | None,
    as_json: bool,
    html: Path | None,
    traces: Path | None,
) -> None:
    """Compare policies on a trace in virtual time."""
    from rota.policies.registry import parse_many
    from rota.simulator.cluster_spec import parse_cluster
    from rota.simulator.report.writer import check_target
    from rota.simulator.runner import Options

    options = Options(
        restart_cost_s=_seconds("--restart-cost", restart_cost),
        round_s=_seconds("--round", round_),
        min_runtime_s=_seconds("--min-runtime", min_runtime),
        guard=not no_guard,
        record_allocation_spans=html is not None,
    )
    if html:
        check_target(html)
    policies = tuple(parse_many(policy))
    nodes = parse_cluster(cluster)
    workload = _workload(trace, nodes, traces=traces, seed=seed)
    task = SimulationTask(workload, nodes, policies, options)
    runs = _run_all(task)
    try:
        if html:
            _write_report(html, runs, task=task, cluster=cluster)
    finally:
        # If writing the report fails, the results of a long run are still printed.
        _print_results(runs, as_json=as_json)


def _seconds(flag: str, value: float) -> float:
    if 0 <= value <= MAX_SECONDS:
        return value
    bounds = f"from 0 to {MAX_SECONDS:g}"
    raise UserError(f"{flag} must be a number of seconds {bounds}, not {value:g}")


def _workload(
    trace: str, nodes: tuple[Node, ...], *, traces: Path | None, seed: int | None
) -> Workload:
    from rota.simulator.feasibility import check_fits
    from rota.simulator.traces import load

    _check_seed(seed, trace)
    given = traces or (Path(os.environ["ROTA_TRACES"]) if os.environ.get("ROTA_TRACES") else None)
    workload = load(trace, traces_dir=given, seed=seed)
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
            f"--seed is for generated traces only, not for '{shown(trace, MAX_SHOWN_PATH_CHARS)}'",
            f"leave out --seed, or use {PREFIX}:jobs=500",
        )


def _run_all(task: SimulationTask) -> list[SimulationRun]:
    from rota.cli.output.progress import progress
    from rota.policies.registry import describe
    from rota.simulator.runner import simulate as run

    # The workload lives until the end. Without freezing, garbage collections of a trace of
    # 100,000 jobs add pauses of half a second to the measured decision times.
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


def _write_report(
    path: Path, runs: Sequence[SimulationRun], *, task: SimulationTask, cluster: str
) -> None:
    from rota.simulator.metric_table import duration
    from rota.simulator.report.html import SimulationInfo, render
    from rota.simulator.report.writer import write_atomically

    options = task.options
    settings = (
        ("cluster", cluster),
        ("restart cost", duration(options.restart_cost_s)),
        ("round", duration(options.round_s) if options.round_s else "at once"),
        ("minimum run time", duration(options.min_runtime_s)),
        ("guard", "on" if options.guard else "off"),
    )
    write_atomically(path, render(SimulationInfo(task.workload.name, task.nodes, settings), runs))


def _print_results(runs: Sequence[SimulationRun], *, as_json: bool) -> None:
    from rota.cli.output.console import print_json
    from rota.simulator.metrics import compute_metrics

    rows = [compute_metrics(run) for run in runs]
    if as_json:
        print_json([asdict(row) for row in rows])
    else:
        _print_tables(rows)
    _warn_about_unfinished(rows)


def _warn_about_unfinished(rows: Sequence[RunMetrics]) -> None:
    """Means cover finished jobs only, so unfinished jobs make them look too good."""
    from rota.cli.output.console import print_err

    short = [row for row in rows if row.finished < row.jobs]
    counts = [f"{row.jobs - row.finished} of {row.jobs} under {row.policy}" for row in short]
    if counts:
        print_err(f"unfinished jobs: {', '.join(counts)}")


def _print_tables(rows: Sequence[RunMetrics]) -> None:
    from rota.cli.output.console import print_out
    from rota.cli.output.table import Column, print_table
    from rota.simulator.metric_table import GROUPS, columns

    names = Column("policy", tuple(row.policy for row in rows), is_number=False)
    for number, group in enumerate(GROUPS):
        if number:
            print_out("")
        figures = (
            Column(f"{_heading(metric.name)}\n{each.unit}".rstrip(), each.cells, each.best)
            for metric, each in zip(group.metrics, columns(group, rows), strict=True)
        )
        print_table([names, *figures], title=group.title)


def _heading(name: str) -> str:
    """The name of the JSON field without its unit, which is below it."""
    return name.removesuffix("_s").replace("_ms_", "_")


COMMANDS = (simulate,)
