"""All about a job as one text, in Markdown, without secrets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING

from rota.cli.output import details, nodes
from rota.cli.output.table import Column, draw
from rota.cli.output.times import moment
from rota.client.redact import (
    redact,
    redact_command,
    redact_env,
    secrets_of,
    secrets_of_command,
)
from rota.errors import printable

if TYPE_CHECKING:
    from rota.wire.box import NodeView, Status
    from rota.wire.jobs import JobDetails, JobRequest, StoryEntry

FENCE = "~~~~"


@dataclass(frozen=True, slots=True)
class Log:
    """The end of what a worker printed."""

    attempt: int
    worker: int
    text: str


@dataclass(frozen=True, slots=True)
class Report:
    details: JobDetails
    story: Sequence[StoryEntry]
    logs: Sequence[Log]
    status: Status
    nodes: Sequence[NodeView]
    made_s: float
    versions: Mapping[str, str]
    """Of what wrote it; the daemon's own is in its status."""


def text_of(report: Report) -> str:
    job = report.details.job
    asked = report.details.request
    request = replace(asked, env=redact_env(asked.env), command=redact_command(asked.command))
    secrets = [*secrets_of(asked.env), *secrets_of_command(asked.command)]
    parts = [
        f"# rota report: job {job.id} ({job.name})",
        f"Made {moment(report.made_s)}. Secrets are removed as far as they can be told.",
        "## The job",
        _block(details.lines(replace(report.details, request=request))),
        "## Its job file, with the defaults filled in",
        _block(_job_file(request)),
        "## Its story",
        _block(draw(details.story_columns(report.story))),
        *_outputs(report.logs),
        "## Versions",
        _block(_versions(report)),
        "## Machines",
        _block(draw(nodes.columns(report.nodes))),
    ]
    return redact("\n\n".join(parts), secrets)


def _outputs(logs: Sequence[Log]) -> Iterable[str]:
    for log in logs:
        yield f"## Output of attempt {log.attempt}, worker {log.worker}: its end"
        lines = [printable(line.expandtabs()) for line in log.text.splitlines()]
        yield _block(lines or ["(nothing)"])


def _job_file(request: JobRequest) -> list[str]:
    """What differs from an empty request, as it could be submitted again."""
    import yaml

    empty = type(request)(command=[])
    values = {
        each.name: getattr(request, each.name)
        for each in fields(request)
        if getattr(request, each.name) != getattr(empty, each.name)
    }
    # Everybody knows a umask by its octal digits, which YAML reads as such.
    umask = values.pop("umask", None)
    octal = [] if umask is None else [f"umask: {umask:04o}"]
    text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=100)
    return [*text.splitlines(), *octal]


def _versions(report: Report) -> list[str]:
    status = asdict(report.status)
    names = ("version", "engine", "policy", "pid", "socket", "address", "trouble")
    daemon = {f"daemon {name}": str(status[name]) for name in names if status[name]}
    rows = {**report.versions, **daemon, "daemon up since": moment(report.status.started_s)}
    columns = (Column("what", tuple(rows), is_number=False),)
    return draw([*columns, Column("which", tuple(rows.values()), is_number=False)])


def _block(lines: Iterable[str]) -> str:
    """Lines as they are; one that would end the block is moved in."""
    kept = [f" {line}" if line.startswith(FENCE) else line for line in lines]
    return "\n".join([FENCE, *kept, FENCE])
