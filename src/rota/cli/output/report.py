"""The support bundle of a job as Markdown, without known kinds of secrets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from rota.cli.job_file import job_file_lines
from rota.cli.output import jobs, nodes
from rota.cli.output.format import moment
from rota.cli.output.table import Column, draw
from rota.client.redact import (
    redact,
    redact_command,
    redact_env,
    secrets_of,
    secrets_of_command,
)
from rota.errors import printable

if TYPE_CHECKING:
    from rota.wire.daemon import NodeView, Status
    from rota.wire.jobs import JobDetails, StoryEntry

CODE_FENCE = "~~~~"


@dataclass(frozen=True, slots=True)
class LogTail:
    """The last lines of a worker's output."""

    attempt: int
    worker: int
    text: str


@dataclass(frozen=True, slots=True)
class SupportBundle:
    """The content of the report. `versions` are those of the client."""

    details: JobDetails
    story: Sequence[StoryEntry]
    logs: Sequence[LogTail]
    status: Status
    nodes: Sequence[NodeView]
    made_s: float
    versions: Mapping[str, str]


def render(report: SupportBundle) -> str:
    job = report.details.job
    original = report.details.request
    request = replace(
        original, env=redact_env(original.env), command=redact_command(original.command)
    )
    secrets = [*secrets_of(original.env), *secrets_of_command(original.command)]
    parts = [
        f"# rota report: job {job.id} ({job.name})",
        f"Written at {moment(report.made_s)}. Known kinds of secrets are removed.",
        "## Job",
        _block(jobs.details_lines(replace(report.details, request=request))),
        "## Job file, with defaults",
        _block(job_file_lines(request)),
        "## History",
        _block(draw(jobs.story_columns(report.story))),
        *_outputs(report.logs),
        "## Versions",
        _block(_versions(report)),
        "## Nodes",
        _block(draw(nodes.columns(report.nodes))),
    ]
    return redact("\n\n".join(parts), secrets)


def _outputs(logs: Sequence[LogTail]) -> Iterable[str]:
    for log in logs:
        yield f"## Last output of attempt {log.attempt}, worker {log.worker}"
        lines = [printable(line.expandtabs()) for line in log.text.splitlines()]
        yield _block(lines or ["(no output)"])


def _versions(report: SupportBundle) -> list[str]:
    status = asdict(report.status)
    names = ("version", "engine", "policy", "pid", "socket", "address", "trouble")
    daemon = {f"daemon {name}": str(status[name]) for name in names if status[name]}
    rows = {**report.versions, **daemon, "daemon up since": moment(report.status.started_s)}
    columns = (Column("name", tuple(rows), is_number=False),)
    return draw([*columns, Column("value", tuple(rows.values()), is_number=False)])


def _block(lines: Iterable[str]) -> str:
    """A code block. A line that would end the block is indented."""
    kept = [f" {line}" if line.startswith(CODE_FENCE) else line for line in lines]
    return "\n".join([CODE_FENCE, *kept, CODE_FENCE])
