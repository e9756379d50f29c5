"""Nodes that are kept for those who tolerate it. Pure.

A taint is known by the words that tolerate it; what they mean is the engine's business. GPUs that
most may not use are of a type of their own, so that nobody else counts on them.
"""

from __future__ import annotations

Taints = tuple[frozenset[str], ...]

USUAL = frozenset({""})
"""The word of jobs that say nothing: what they tolerate is the same for all of them."""


def tolerates(words: frozenset[str], taints: Taints) -> bool:
    return not any(words.isdisjoint(taint) for taint in taints)
