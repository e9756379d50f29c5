"""The flags of `rota up`. Each is a key of the configuration as well."""

from __future__ import annotations

from typing import Annotated

import typer

Detach = Annotated[
    bool, typer.Option("--detach", "-d", help="Return once it is ready; it runs on.")
]
VirtualGpus = Annotated[
    str,
    typer.Option(
        "--virtual-gpus", metavar="NxMEMORY", help="Pretend: four GPUs of 16 GiB as 4x16GiB."
    ),
]
Listen = Annotated[
    str, typer.Option("--listen", metavar="HOST:PORT", help="Listen on TCP, too; with tokens.")
]
Engine = Annotated[
    str, typer.Option("--engine", metavar="ENGINE", help="Run jobs 'local'ly or on 'kubernetes'.")
]
Kubeconfig = Annotated[
    str, typer.Option("--kubeconfig", metavar="PATH", help="Which cluster; else as kubectl.")
]
Context = Annotated[
    str, typer.Option("--context", metavar="NAME", help="Which context of the kubeconfig.")
]
Namespace = Annotated[
    str, typer.Option("--namespace", metavar="NAME", help="Where the cluster's pods go.")
]
PolicyName = Annotated[
    str, typer.Option("--policy", metavar="POLICY", help="Who gets what; 'rota policy list'.")
]
