"""Prints the plan of `rota submit --dry-run`."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from rota.cli.output.console import print_json, print_out
from rota.cli.output.format import clock_time, time_error
from rota.cli.output.jobs import job_object
from rota.cli.output.table import to_output_charset
from rota.errors import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.wire.submit_plan import JobPlan, PlannedChange, PlannedSlot, SubmitPlan

MAX_NAMED = 3
"""Slots, jobs and changes that one line names."""


def print_plan(plan: SubmitPlan, *, as_json: bool) -> None:
    if as_json:
        plans = [
            {
                **asdict(each),
                "job": job_object(each.job),
                "ahead": [job_object(job) for job in each.ahead],
            }
            for each in plan.plans
        ]
        print_json({"count": plan.count, "plans": plans})
        return
    now = time.time()
    blocks = ["\n".join(_lines(each, now=now)) for each in plan.plans]
    n_more = plan.count - sum(each.count for each in plan.plans)
    if n_more:
        blocks.append(
            f"{_plural(n_more, 'more job')} accepted; only the first requests are planned"
        )
    print_out("\n\n".join(blocks))


def _lines(plan: JobPlan, *, now: float) -> list[str]:
    ahead = [f"{each.id} {each.name} ({each.user})" for each in plan.ahead]
    changes = [_change(each) for each in plan.changes]
    rows = [
        ("job", _job(plan)),
        ("start", _start(plan, now=now)),
        ("reason", plan.reason),
        ("finish", _finish(plan, now=now)),
        ("ahead", f"{_plural(plan.ahead_count, 'job')}{_named(ahead, plan.ahead_count)}"),
        (
            "changes",
            f"{_plural(len(changes), 'job')}{_named(changes, len(changes))}" if changes else "",
        ),
    ]
    return [f"{name:<7}  {printable(value)}" for name, value in rows if value]


def _job(plan: JobPlan) -> str:
    size = f"{plan.job.gpus} {'GPU' if plan.job.gpus == '1' else 'GPUs'}"
    array = f"; the first of {plan.count} jobs of an array" if plan.count > 1 else ""
    return f"{plan.job.name}, {size}{array}; accepted, not submitted"


def _start(plan: JobPlan, *, now: float) -> str:
    if plan.starts_now:
        when = "after the changes below" if plan.changes else "now"
        places = [_place(each) for each in plan.slots]
        size = f", with {_plural(plan.gpus, 'GPU')}" if plan.gpus else ""
        return f"{when}{size}{_named(places, len(places))}"
    if plan.start_s is None:
        return "unknown"
    return f"~{clock_time(plan.start_s, now, error_s=_error_s(plan, plan.start_s, now=now))}"


def _finish(plan: JobPlan, *, now: float) -> str:
    """`~14:05 ±6 min`."""
    if plan.finish_s is None:
        return ""
    error_s = _error_s(plan, plan.finish_s, now=now)
    error = to_output_charset(f"±{time_error(error_s)}")
    return f"~{clock_time(plan.finish_s, now, error_s=error_s)} {error}"


def _error_s(plan: JobPlan, at_s: float, *, now: float) -> float:
    return max(0.0, at_s - now) * (plan.finish_error or 0.0)


def _place(slot: PlannedSlot) -> str:
    indices = ",".join(map(str, slot.gpus))
    return f"{slot.node}:{indices}" if indices else slot.node


def _change(change: PlannedChange) -> str:
    sizes = f", {change.gpus_before:g} to {change.gpus_after:g} GPUs"
    size = sizes if change.change == "shrunk" else ""
    return f"{change.id} {change.name} ({change.user}) {change.change}{size}"


def _named(items: Sequence[str], count: int) -> str:
    """`: a; b; c; 2 more`."""
    named = items[:MAX_NAMED]
    more = [f"{count - len(named)} more"] if count > len(named) else []
    return f": {'; '.join([*named, *more])}" if named else ""


def _plural(count: float, noun: str) -> str:
    return f"{count:g} {noun}{'' if count == 1 else 's'}" if count else f"no {noun}"
