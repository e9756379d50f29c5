"""The flags of `rota submit`. Those that say what a job is are called as in a job file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from rota.cli.flags import option
from rota.cli.options import AsJson, To

Text = str | None
Texts = list[str] | None


@dataclass(frozen=True, slots=True)
class Flags:
    command: Annotated[
        Texts, typer.Argument(metavar="-- COMMAND...", help="What to run.", show_default=False)
    ] = None
    file: Annotated[
        Path | None, option("--file", "-f", metavar="FILE", words="A job file; flags win.")
    ] = None
    name: Annotated[
        Text, option("--name", "-n", metavar="NAME", words="Else that of the script.")
    ] = None
    gpus: Annotated[
        Text,
        option("--gpus", "-g", metavar="N", words="2, 1..4, a share as 0.5, or 0; else 1."),
    ] = None
    gpus_per_worker: Annotated[
        int | None, option("--gpus-per-worker", metavar="N", words="GPUs of each process.")
    ] = None
    gpu_memory: Annotated[
        Text, option("--gpu-memory", metavar="SIZE", words="Share a GPU: 6GiB of it.")
    ] = None
    gpu_types: Annotated[
        Texts, option("--gpu-type", metavar="TYPE", words="Only on this type; repeatable.")
    ] = None
    cpus: Annotated[float | None, option("--cpus", metavar="N", words="CPUs of each process.")] = (
        None
    )
    memory: Annotated[
        Text, option("--memory", metavar="SIZE", words="Memory of each process, as 32GiB.")
    ] = None
    priority: Annotated[
        int | None, option("--priority", "-p", metavar="N", words="Higher goes first; else 0.")
    ] = None
    project: Annotated[Text, option("--project", metavar="NAME", words="Whom the job is for.")] = (
        None
    )
    mode: Annotated[
        Text, option("--mode", metavar="MODE", words="fixed, restart, torchrun or live.")
    ] = None
    epochs: Annotated[
        float | None, option("--epochs", metavar="N", words="How many epochs it trains.")
    ] = None
    hours: Annotated[
        float | None, option("--hours", metavar="N", words="How long you think it takes.")
    ] = None
    env: Annotated[
        Texts,
        option("--env", "-e", metavar="NAME[=VALUE]", words="Set, or take along; repeatable."),
    ] = None
    workdir: Annotated[
        Text, option("--workdir", "-w", metavar="DIR", words="Else the folder you are in.")
    ] = None
    image: Annotated[Text, option("--image", metavar="IMAGE", words="Run in a container.")] = None
    mounts: Annotated[
        Texts, option("--mount", metavar="SRC:DST[:rw]", words="Into the container; repeatable.")
    ] = None
    ports: Annotated[
        Texts, option("--port", metavar="HOST:JOB", words="Reach a port of the job; repeatable.")
    ] = None
    time_limit: Annotated[
        Text, option("--time-limit", metavar="TIME", words="Stop it after 90m, 2h, 1d.")
    ] = None
    retries: Annotated[
        int | None, option("--retries", metavar="N", words="Try again after a crash.")
    ] = None
    retry_on: Annotated[
        list[int] | None,
        option("--retry-on", metavar="CODE", words="Retry this exit code, too; repeatable."),
    ] = None
    grace: Annotated[
        Text,
        option(
            "--grace",
            metavar="TIME",
            words="Time to save and end in, before it is ended; else 30s.",
        ),
    ] = None
    after: Annotated[
        Texts, option("--after", metavar="JOB", words="Once that succeeded; repeatable.")
    ] = None
    array: Annotated[
        Text, option("--array", metavar="INDICES", words="One job each: 10, 0-9 or 1,5,9.")
    ] = None
    hold: Annotated[bool, typer.Option("--hold", help="Wait for 'rota release'.")] = False
    move_after: Annotated[
        Text, option("--move-after", metavar="TIME", words="If it waits so long, it goes --to.")
    ] = None
    to: To = ""
    ship: Annotated[
        Path | None, option("--ship", metavar="DIR", words="Send this code along, run in it.")
    ] = None
    is_dry: Annotated[bool, typer.Option("--dry-run", help="Only say what it would be.")] = False
    waits: Annotated[
        bool, typer.Option("--wait", help="Wait for the end; exit with the job's code.")
    ] = False
    follows: Annotated[
        bool, typer.Option("--follow", help="Show the output until the end; as --wait.")
    ] = False
    as_json: AsJson = False
