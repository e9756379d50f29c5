"""Finds a policy by the text that a user writes: a name, optionally with parameters, or a class in
a file.

    tiresias    Tiresias    tiresias:threshold_gpu_s=1800,knob=4    ./mine.py:MyPolicy:patience_s=60

Only this module loads foreign code. An installed package offers policies as entry points in the
group `rota.policies`.
"""

from __future__ import annotations

import difflib
import importlib.util
import sys
from collections.abc import Callable, Iterable
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import cast

from rota.core.scheduling.policy_api import Policy
from rota.errors import MAX_SHOWN_PATH_CHARS, PolicyError, shown
from rota.policies.afs_l import AfsL
from rota.policies.elastic_fifo import ElasticFifo
from rota.policies.elastic_srjf import ElasticSrjf
from rota.policies.elastic_tiresias import ElasticTiresias
from rota.policies.ffdl import Ffdl
from rota.policies.fifo import Fifo
from rota.policies.parameters import Value, describe_error, parameters, show
from rota.policies.srjf import Srjf
from rota.policies.tiresias import Tiresias

GROUP = "rota.policies"

POLICIES: dict[str, type[Policy]] = {
    "fifo": Fifo,
    "elastic-fifo": ElasticFifo,
    "srjf": Srjf,
    "elastic-srjf": ElasticSrjf,
    "tiresias": Tiresias,
    "elastic-tiresias": ElasticTiresias,
    "ffdl": Ffdl,
    "afs-l": AfsL,
}

ALIASES = {
    "elasticfifo": "elastic-fifo",
    "elasticsrjf": "elastic-srjf",
    "elastictiresias": "elastic-tiresias",
    "ffdloptimizer": "ffdl",
}
"""Voda's names in lower case, where they differ from ours by more than case."""


def names() -> list[str]:
    """All policy names: the built-in ones, then those of installed packages."""
    return [*POLICIES, *sorted(_entry_points().keys() - POLICIES.keys())]


def find(name: str) -> type[Policy]:
    """The policy class for a name, an alias or `./file.py:Class`."""
    if _is_file(name):
        return _from_file(name)
    key = ALIASES.get(name.lower(), name.lower())
    if key in POLICIES:
        return POLICIES[key]
    offered = _entry_points()
    if name in offered:
        return _as_policy(_loaded(offered[name].load, name), name)
    raise PolicyError(
        f"no policy '{shown(name)}'{_did_you_mean(name.lower(), [*names(), *ALIASES])}",
        f"known: {', '.join(names())}, or ./file.py:Class",
    )


def parse(text: str) -> Policy:
    """The policy for `name[:parameter=value,...]`."""
    name, separator, settings = _split(text)
    kind = find(name)
    if separator and not settings:
        raise PolicyError(f"'{_shown(text)}' has no parameters after ':'", _takes(name, kind))
    values = _read(settings, kind, name=name)
    for each in parameters(kind):
        if each.default is None and not each.may_be_none and each.name not in values:
            raise PolicyError(
                f"policy '{_shown(name)}' requires parameter '{shown(each.name)}'",
                _takes(name, kind),
            )
    make = cast("Callable[..., Policy]", kind)
    try:
        return make(**values)
    except (ValueError, PolicyError) as error:
        raise PolicyError(f"policy '{_shown(name)}': {error}") from error
    except (Exception, SystemExit) as error:  # a policy may be foreign code
        raise PolicyError(
            f"cannot create policy '{_shown(text)}': {describe_error(error)}"
        ) from error


def with_absolute_path(text: str) -> str:
    """The same policy for a process in another folder: the path of a file becomes absolute."""
    if not _is_file(text):
        return text
    path, colon, rest = text.partition(":")
    return f"{Path(path).absolute()}{colon}{rest}"


def parse_many(texts: Iterable[str]) -> list[Policy]:
    """Several policies, each once. `all` means every built-in policy. A text without parameters may
    be a comma-separated list."""
    parts = [part for text in texts for part in _parts(text)]
    found: dict[str, Policy] = {}
    for part in map(str.strip, parts):
        for policy in map(parse, POLICIES if part.lower() == "all" else [part]):
            found.setdefault(describe(policy), policy)
    return list(found.values())


def _parts(text: str) -> list[str]:
    if "=" not in text:
        return text.split(",")
    name, _, settings = _split(text)
    first, comma, _ = name.partition(",")
    followers = (setting.strip().partition(":")[0] for setting in settings.split(","))
    if (comma and not _is_file(first)) or any(each in POLICIES for each in followers):
        raise PolicyError(
            f"'{_shown(text)}' is a comma-separated list, which allows no parameters",
            "repeat --policy instead",
        )
    return [text]


def is_built_in(policy: Policy) -> bool:
    """Whether the policy belongs to rota, so that its rounds are known to end."""
    return type(policy).__module__.startswith("rota.policies.")


def describe(policy: Policy) -> str:
    """The text that `parse` turns into this policy: its name, and the parameters that are not
    default."""
    kind = type(policy)
    path = f"{kind.__module__}:{kind.__qualname__}"
    known = [name for name, each in POLICIES.items() if each is kind]
    offered = [name for name, each in _entry_points().items() if each.value == path]
    values = [(each, cast("Value", getattr(policy, each.name))) for each in parameters(kind)]
    changed = [f"{each.name}={show(value)}" for each, value in values if value != each.default]
    return ":".join([[*known, *offered, path][0], *([",".join(changed)] if changed else [])])


def _split(text: str) -> tuple[str, str, str]:
    """Name, colon and parameters. The name of a policy in a file contains a colon itself."""
    if not _is_file(text):
        return text.partition(":")
    path, _, rest = text.partition(":")
    kind, separator, settings = rest.partition(":")
    return f"{path}:{kind}", separator, settings


def _is_file(text: str) -> bool:
    path = text.partition(":")[0]
    return path.endswith(".py") or "/" in path


def _read(settings: str, kind: type[Policy], *, name: str) -> dict[str, Value]:
    known = {each.name: each for each in parameters(kind)}
    values: dict[str, Value] = {}
    for setting in settings.split(",") if settings else []:
        key, separator, text = (part.strip() for part in setting.partition("="))
        if key not in known:
            wrong = f"policy '{_shown(name)}' has no parameter '{shown(key)}'"
            raise PolicyError(f"{wrong}{_did_you_mean(key, known)}", _takes(name, kind))
        if not separator or key in values:
            wrong = "is given twice" if key in values else "has no value"
            raise PolicyError(f"parameter '{key}' of '{_shown(name)}' {wrong}", _takes(name, kind))
        try:
            values[key] = known[key].read(text)
        except PolicyError as error:
            raise PolicyError(f"policy '{_shown(name)}': {error}") from error
    return values


def _takes(name: str, kind: type[Policy]) -> str:
    return f"{_shown(name)} takes {', '.join(map(str, parameters(kind))) or 'no parameters'}"


def _shown(text: str) -> str:
    """The policy as the user named it, which may be a path."""
    return shown(text, MAX_SHOWN_PATH_CHARS)


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1)
    return f", did you mean '{close[0]}'?" if close else ""


def _entry_points() -> dict[str, EntryPoint]:
    return {each.name: each for each in entry_points(group=GROUP)}


def _from_file(text: str) -> type[Policy]:
    """Load a class from a file. The module gets the path as its name, which `describe` shows."""
    path, _, name = text.partition(":")
    if not name:
        raise PolicyError(
            f"no class given for policy file '{_shown(path)}'", f"write {_shown(path)}:MyPolicy"
        )
    spec = importlib.util.spec_from_file_location(path, path) if _exists(path) else None
    if spec is None or spec.loader is None:
        raise PolicyError(f"no Python file '{_shown(path)}' for policy '{shown(name)}'")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path] = module
    _loaded(partial(spec.loader.exec_module, module), path)
    return _as_policy(getattr(module, name, None), text)


def _exists(path: str) -> bool:
    try:
        return Path(path).is_file()
    except (OSError, ValueError):  # a path that is too long or invalid
        return False


def _loaded(load: Callable[[], object], source: str) -> object:
    try:
        return load()
    except (Exception, SystemExit) as error:  # foreign code can fail in any way
        raise PolicyError(
            f"cannot load policy '{_shown(source)}': {describe_error(error)}"
        ) from error


def _as_policy(found: object, source: str) -> type[Policy]:
    if isinstance(found, type) and callable(getattr(found, "size", None)):
        return cast("type[Policy]", found)
    raise PolicyError(
        f"'{_shown(source)}' is not a policy", "a policy is a class with a method 'size'"
    )
