"""Nodes and their GPUs as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from rota.cli.output.console import print_json
from rota.cli.output.format import amount
from rota.cli.output.table import Column, fit, print_table

if TYPE_CHECKING:
    from rota.wire.daemon import GpuView, NodeView


def print_nodes(nodes: Sequence[NodeView], *, as_json: bool) -> None:
    if as_json:
        print_json([node_object(node) for node in nodes])
    else:
        print_table(fitting(columns(nodes)))


def fitting(columns: Sequence[Column]) -> list[Column]:
    """The columns that fit on the terminal."""
    return fit(columns, droppable=("type", "utilisation"), cut={"jobs": 20, "state": 20})


def node_object(node: NodeView) -> dict[str, object]:
    """A node as JSON, the same in every command."""
    return {**asdict(node), "state": _state(node, None)}


def columns(nodes: Sequence[NodeView], *, names: Mapping[str, str] | None = None) -> list[Column]:
    """One row per GPU, and one row for a node without GPUs. `names` maps job ids to the text that
    is shown for them."""
    rows: list[tuple[NodeView, GpuView | None]] = []
    for node in nodes:
        rows += [(node, gpu) for gpu in node.gpus] or [(node, None)]
    return [
        Column("id", tuple(node.id for node, _ in rows), is_number=False),
        Column("index", tuple(str(gpu.index) if gpu else "-" for _, gpu in rows)),
        Column("type", tuple(gpu.type if gpu else "-" for _, gpu in rows), is_number=False),
        Column("memory", tuple(_memory(gpu) for _, gpu in rows)),
        Column("utilisation", tuple(_busy(gpu) for _, gpu in rows)),
        Column("jobs", tuple(_jobs(gpu, names or {}) for _, gpu in rows), is_number=False),
        Column("state", tuple(_state(*row) for row in rows), is_number=False),
    ]


def _memory(gpu: GpuView | None) -> str:
    if gpu is None:
        return "-"
    used = f"{amount(gpu.used_bytes)} of " if gpu.used_bytes else ""
    return f"{used}{amount(gpu.memory_bytes)}"


def _busy(gpu: GpuView | None) -> str:
    return f"{gpu.utilisation:.0%}" if gpu and gpu.utilisation else "-"


def _jobs(gpu: GpuView | None, names: Mapping[str, str]) -> str:
    return ", ".join(names.get(job, job) for job in gpu.jobs) if gpu and gpu.jobs else "-"


def _state(node: NodeView, gpu: GpuView | None) -> str:
    if gpu is not None and gpu.problem:
        return gpu.problem
    return node.note or closed(node) or "ok"


def closed(node: NodeView) -> str:
    """Why the node takes no new workers; empty if it takes them."""
    return "draining" if node.is_draining else "cordoned" if node.is_cordoned else ""
