"""Lists of exceptions that may only shrink."""

from collections.abc import Mapping


def complaints(*, measured: Mapping[str, int], wanted: int, exceptions: Mapping[str, int]) -> str:
    """One line for each size that breaks the rule; empty if all are right.

    A size may exceed `wanted` only up to its entry in `exceptions`. An entry that is no longer
    needed has to be removed.
    """
    too_large = [
        f"too large: {place!r}: {size}, at most {max(exceptions.get(place, 0), wanted)}"
        for place, size in sorted(measured.items())
        if size > max(exceptions.get(place, 0), wanted)
    ]
    needless = [
        f"remove the exception: {place!r}"
        for place in sorted(exceptions)
        if measured.get(place, 0) <= wanted
    ]
    return "\n".join(too_large + needless)
