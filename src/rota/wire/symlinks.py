"""Where the symbolic links of a shipped folder lead: never out of it.

Looking at the text of a target is not enough. With `a/b/up -> ../..` in the folder, the target
`up/../x` of another link in `a/b` reads as `a/b/x` but leads out. So each link is followed as the
kernel would follow it, through the other links, without a file system.
"""

from __future__ import annotations

from collections.abc import Mapping

from rota.errors import InputError, Where

MAX_HOPS = 40
"""Links that Linux follows on one path before it gives up."""
MAX_STEPS = 5_000_000
"""Names looked at for all links together: some seconds' work, and far beyond any real folder."""


def check_links(targets: Mapping[str, str]) -> None:
    """Refuse links that lead out, or round in circles. `targets` is by path, both well-formed."""
    n_steps = 0
    for path in targets:
        n_steps += _follow(path, targets)
        if n_steps > MAX_STEPS:
            raise InputError(Where("the folder to ship"), "its links are too tangled to be checked")


def _follow(path: str, targets: Mapping[str, str]) -> int:
    """The work that it took: a step costs as much as the path it is made on is deep."""
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
            hint = "remove it, or leave it out by a line in .rotaignore"
            raise InputError(Where(repr(path)), "it is a link that leads round in circles", hint)
        ahead += _names(there, targets[there])
    return n_steps


def _names(path: str, target: str) -> list[str]:
    """The names of a target, the first one last."""
    if target.startswith("/"):
        raise _leads_out(path, target)
    return [name for name in reversed(target.split("/")) if name not in ("", ".")]


def _leads_out(path: str, target: str) -> InputError:
    hint = (
        "make it a relative link to something inside, or leave it out by a line in .rotaignore "
        "and mount what it leads to into the job"
    )
    words = f"it is a link that leads out of the folder, to {target!r}"
    return InputError(Where(repr(path)), words, hint)
