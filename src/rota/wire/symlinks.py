"""Check that no symbolic link of a shipped directory leads out of it.

The text of a target is not enough. With the link `a/b/up -> ../..`, the target `up/../x` of another
link in `a/b` reads as `a/b/x` but leads out of the directory. So this module resolves each link as
the kernel does, through the other links, but without a file system.
"""

from __future__ import annotations

from collections.abc import Mapping

from rota.errors import InputError, InputLocation

MAX_HOPS = 40
"""The limit of Linux for links on one path."""
MAX_STEPS = 1_000_000
"""Bound of steps for all links together: half a second of work, far more than real code needs."""


def check_links(targets: Mapping[str, str]) -> None:
    """Raise `InputError` for a link that leads out of the directory or into a loop. `targets` maps
    path to target; both must be well-formed."""
    n_steps = 0
    for path in targets:
        n_steps += _follow(path, targets)
        if n_steps > MAX_STEPS:
            raise InputError(
                InputLocation("the directory to ship"), "symbolic links are too complex to check"
            )


def _follow(path: str, targets: Mapping[str, str]) -> int:
    """Resolve one link and return the cost: each step costs as much as its path is deep."""
    here = path.split("/")[:-1]
    ahead = _names(path, targets[path])
    n_hops, n_steps = 1, 0
    while ahead:
        n_steps += 1 + len(here)
        name = ahead.pop()
        if name == "..":
            if not here:
                raise _leads_out(path, targets[path])
            here.pop()
            continue
        there = "/".join((*here, name))
        if there not in targets:
            here.append(name)
            continue
        n_hops += 1
        if n_hops > MAX_HOPS:
            hint = "remove it, or exclude it in .rotaignore"
            raise InputError(InputLocation(repr(path)), "symbolic link loop", hint)
        ahead += _names(there, targets[there])
    return n_steps


def _names(path: str, target: str) -> list[str]:
    """Return the names of a target in reverse order."""
    if target.startswith("/"):
        raise _leads_out(path, target)
    return [name for name in reversed(target.split("/")) if name not in ("", ".")]


def _leads_out(path: str, target: str) -> InputError:
    hint = (
        "make it a relative link inside the directory, or exclude it in .rotaignore "
        "and mount its target into the job"
    )
    what = f"symbolic link leads out of the directory, to {target!r}"
    return InputError(InputLocation(repr(path)), what, hint)
