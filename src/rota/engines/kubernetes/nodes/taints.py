"""Taints of nodes, and which tolerations match them. Pure.

A taint is represented by all ways to write a toleration for it: `dedicated`, `dedicated=vision`,
`dedicated:NoSchedule`, `*`, ...
"""

from __future__ import annotations

from collections.abc import Iterable

from rota.core.model.node import DEFAULT_TOLERATIONS, Taints
from rota.kube.resources import Object, part, parts

CONDITION_TAINTS = frozenset(
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
"""Taints that follow a node's health: no new pods, but running pods stay."""
CORDON = "node.kubernetes.io/unschedulable"
HARD_EFFECTS = ("NoSchedule", "NoExecute")
ANYTHING = "*"


def taints_of(node: Object) -> list[Object]:
    return parts(part(node, "spec"), "taints")


def is_cordoned(node: Object) -> bool:
    """Checks the field and the taint: the taint is removed slightly later than the field."""
    is_ordered = bool(part(node, "spec").get("unschedulable"))
    return is_ordered or any(taint.get("key") == CORDON for taint in taints_of(node))


def lasting_taints(node: Object, *, tolerations: Iterable[Object]) -> Taints:
    """Taints that keep pods away permanently. A taint that all our pods tolerate counts as
    tolerated by default."""
    ours = toleration_keys(tolerations)
    keys = map(_taint_keys, _lasting(node))
    return tuple(each if ours.isdisjoint(each) else each | DEFAULT_TOLERATIONS for each in keys)


def describe_untolerated(node: Object, taints: Taints) -> str:
    """The taints that are not tolerated by default, as text."""
    pairs = zip(_lasting(node), taints, strict=True)
    return ", ".join(
        _pair(each).removesuffix("=")
        for each, keys in pairs
        if keys.isdisjoint(DEFAULT_TOLERATIONS)
    )


def _lasting(node: Object) -> list[Object]:
    temporary = (*CONDITION_TAINTS, CORDON)
    return [
        taint
        for taint in taints_of(node)
        if taint.get("effect") in HARD_EFFECTS and taint.get("key") not in temporary
    ]


def toleration_keys(tolerations: Iterable[Object]) -> frozenset[str]:
    """One key for each toleration. An unknown operator tolerates nothing."""
    found: set[str] = set()
    for each in tolerations:
        effect = f":{each['effect']}" if each.get("effect") else ""
        operator = each.get("operator") or "Equal"
        if operator == "Exists":
            found.add(f"{each.get('key') or ANYTHING}{effect}")
        elif operator == "Equal":
            found.add(f"{_pair(each)}{effect}")
    return frozenset(found)


def _taint_keys(taint: Object) -> frozenset[str]:
    bases = (ANYTHING, str(taint.get("key")), _pair(taint))
    return frozenset(key for base in bases for key in (base, f"{base}:{taint.get('effect')}"))


def _pair(taint: Object) -> str:
    return f"{taint.get('key')}={taint.get('value') or ''}"
