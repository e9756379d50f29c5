"""Lists of exceptions that may only shrink."""

from collections.abc import Mapping


def complaints(*, measured: Mapping[str, int], wanted: int, exceptions: Mapping[str, int]) -> str:
    """What is wrong with the measured sizes, one line each; empty when nothing is.

    Something may be larger than wanted only if the exceptions list it, and then only up to the
    size listed there. What no longer needs its exception has to leave the list.
    """
    too_large = [
        f"too large: {place!r}: {size}, at most {max(exceptions.get(place, 0), wanted)}"
        for place, size in sorted(measured.items())
        if size > max(exceptions.get(place, 0), wanted)
    ]
    needless = [
        f"take it off the list: {place!r}"
        for place in sorted(exceptions)
        if measured.get(place, 0) <= wanted
    ]
    return "\n".join(too_large + needless)
