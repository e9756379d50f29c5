"""Parses the cluster of a simulation from a text such as `3x4` or `2x4:V100,16x8:A100`.

Each part is `NODESxGPUS[:TYPE][@GPU_MEMORY][/CPUScpu][/MEMORY][/LABEL=VALUE]...`: the number of
nodes and the GPUs per node, then optional fields. `4x8:A100@80GiB/96cpu/1TiB/disk=ssd` has all.
"""

from __future__ import annotations

import math
import re

from rota.core.model.node import Gpu, Labels, Node, NodeId
from rota.core.model.units import GIB, parse_bytes
from rota.errors import UserError, shown

MAX_NODES = 100_000
MAX_GPUS_PER_NODE = 1_024
MAX_GPUS = 1_000_000
DEFAULT_TYPE = "gpu"
DEFAULT_GPU_BYTES = 16 * GIB
EXAMPLE = "examples: 3x4, 2x4:V100,16x8:A100, or with all fields 3x4:A100@80GiB/96cpu/1TiB/disk=ssd"

_PART = re.compile(
    r"(?P<nodes>[0-9]{1,9})x(?P<gpus>[0-9]{1,9})"
    r"(?::(?P<type>[A-Za-z0-9][A-Za-z0-9._-]*))?"
    r"(?:@(?P<gpu_memory>[0-9.]+[A-Za-z]+))?"
    r"(?:/(?P<cpus>[0-9]{1,9})cpu)?"
    r"(?:/(?P<memory>[0-9.]+[A-Za-z]+))?"
    r"(?P<labels>(?:/[^/=\s]+=[^/=\s]*)*)",
    re.ASCII,
)


def parse_cluster(text: str) -> tuple[Node, ...]:
    """Return the nodes in the order of the text, with names from `node-01` up."""
    parts = [_parse_part(part.strip(), text) for part in text.split(",")]
    total = sum(count for count, _ in parts)
    if not 0 < total <= MAX_NODES:
        raise _error(text, f"{total} nodes, but the number must be between 1 and {MAX_NODES:,}")
    n_gpus = sum(count * len(template.gpus) for count, template in parts)
    if n_gpus > MAX_GPUS:
        raise _error(text, f"{n_gpus:,} GPUs exceed the limit of {MAX_GPUS:,}")
    digits = max(2, len(str(total)))
    templates = (template for count, template in parts for _ in range(count))
    return tuple(
        Node(
            NodeId(f"node-{number:0{digits}}"),
            gpus=template.gpus,
            cpus=template.cpus,
            memory_bytes=template.memory_bytes,
            labels=template.labels,
        )
        for number, template in enumerate(templates, start=1)
    )


def _parse_part(part: str, text: str) -> tuple[int, Node]:
    """Return the number of nodes, and a template of them."""
    found = _PART.fullmatch(part)
    if found is None:
        raise _error(text, f"cannot parse '{shown(part)}'")
    gpus = int(found["gpus"])
    if gpus > MAX_GPUS_PER_NODE:
        raise _error(text, f"{gpus} GPUs per node exceed the limit of {MAX_GPUS_PER_NODE:,}")
    gpu_type = found["type"] or DEFAULT_TYPE
    try:
        gpu_bytes = parse_bytes(found["gpu_memory"]) if found["gpu_memory"] else DEFAULT_GPU_BYTES
        memory = parse_bytes(found["memory"]) if found["memory"] else math.inf
    except ValueError as error:
        raise _error(text, str(error)) from None
    template = Node(
        NodeId(""),
        gpus=tuple(Gpu(index, gpu_type, gpu_bytes) for index in range(gpus)),
        cpus=float(found["cpus"]) if found["cpus"] else math.inf,
        memory_bytes=memory,
        labels=_labels(found["labels"], text),
    )
    return int(found["nodes"]), template


def _labels(written: str, text: str) -> Labels:
    pairs = [part.partition("=") for part in written.split("/")[1:]]
    names = [name for name, _, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise _error(text, f"label '{shown(name)}' is given twice")
    return frozenset((name, value) for name, _, value in pairs)


def _error(text: str, message: str) -> UserError:
    return UserError(f"cluster '{shown(text)}': {message}", EXAMPLE)
