"""What keeps pods away from a node, and which pods it does not keep away. Pure.

A taint stands for all the ways in which a toleration of it can be written: `dedicated`,
`dedicated=vision`, `dedicated:NoSchedule`, `*`, ...
"""

from __future__ import annotations

from collections.abc import Iterable

from rota.core.taints import USUAL, Taints
from rota.engines.kubernetes.objects import Object, part, parts

OF_A_CONDITION = frozenset(
    f"node.kubernetes.io/{name}"
    for name in (
        "not-ready",
        "unreachable",
        "memory-pressure",
        "disk-pressure",
        "pid-pressure",
        "network-unavailable",
    )
)
"""Taints that come and go with a node's health: nothing new goes there, what runs stays."""
CORDON = "node.kubernetes.io/unschedulable"
HARD = ("NoSchedule", "NoExecute")
ANYTHING = "*"


def taints_of(node: Object) -> list[Object]:
    return parts(part(node, "spec"), "taints")


def is_cordoned(node: Object) -> bool:
    """The taint goes a moment later than the order."""
    is_ordered = bool(part(node, "spec").get("unschedulable"))
    return is_ordered or any(taint.get("key") == CORDON for taint in taints_of(node))


def known(node: Object, *, tolerations: Iterable[Object]) -> Taints:
    """Those that keep pods away for good. What all of ours tolerate has their word, too."""
    ours = spelled(tolerations)
    words = map(_spellings, _lasting(node))
    return tuple(each if ours.isdisjoint(each) else each | USUAL for each in words)


def shown(node: Object, taints: Taints) -> str:
    """Those of them that most do not tolerate."""
    pairs = zip(_lasting(node), taints, strict=True)
    return ", ".join(
        _pair(each).removesuffix("=") for each, words in pairs if words.isdisjoint(USUAL)
    )


def _lasting(node: Object) -> list[Object]:
    passing = (*OF_A_CONDITION, CORDON)
    return [
        taint
        for taint in taints_of(node)
        if taint.get("effect") in HARD and taint.get("key") not in passing
    ]


def spelled(tolerations: Iterable[Object]) -> frozenset[str]:
    """Tolerations, each in one way. What is none that we know tolerates nothing."""
    found: set[str] = set()
    for each in tolerations:
        effect = f":{each['effect']}" if each.get("effect") else ""
        operator = each.get("operator") or "Equal"
        if operator == "Exists":
            found.add(f"{each.get('key') or ANYTHING}{effect}")
        elif operator == "Equal":
            found.add(f"{_pair(each)}{effect}")
    return frozenset(found)


def _spellings(taint: Object) -> frozenset[str]:
    bases = (ANYTHING, str(taint.get("key")), _pair(taint))
    return frozenset(word for base in bases for word in (base, f"{base}:{taint.get('effect')}"))


def _pair(taint: Object) -> str:
    return f"{taint.get('key')}={taint.get('value') or ''}"
