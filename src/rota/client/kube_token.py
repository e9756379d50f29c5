"""The token that `kubectl` would show, for a daemon that knows people by their cluster.

Only contexts that were added with `--kubernetes` come here. A token is read anew for each command,
because most of them are good for an hour or less.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from rota.errors import InputError, UnavailableError, UserError, Where, meant, shown

MOST_BYTES = 4 * 1024**2
PLUGIN_S = 60.0
"""How long a program that fetches a token may take: some ask a person to log in."""

Table = Mapping[str, Any]


def token_of(kubeconfig: str, kube_context: str) -> str:
    """Of the person that a context of a kubeconfig stands for; empty means kubectl's own choice."""
    paths = files(kubeconfig)
    found = _merged(paths)
    name = kube_context or found["current-context"]
    place = ", ".join(map(str, paths))
    if not name:
        raise UserError(f"{place}: no context is chosen", "name one by --kube-context")
    context = found["contexts"].get(name)
    if context is None:
        hint = meant(name, found["contexts"]) or "'kubectl config get-contexts' shows them"
        raise UserError(f"{place}: there is no context '{shown(name)}'", hint)
    user = found["users"].get(str(context.get("user", "")))
    if user is None:
        raise UserError(f"{place}: context '{shown(name)}' has no user", "mend the kubeconfig")
    return _token(*user)


def files(kubeconfig: str) -> list[Path]:
    """Where kubectl would look."""
    if kubeconfig:
        return [Path(kubeconfig)]
    listed = [Path(each) for each in os.environ.get("KUBECONFIG", "").split(":") if each]
    return listed or [Path.home() / ".kube" / "config"]


def _merged(paths: list[Path]) -> dict[str, Any]:
    """Of two with the same name, the first counts. Users come with the file that they stand in."""
    merged: dict[str, Any] = {"current-context": "", "contexts": {}, "users": {}}
    is_there = False
    for path in paths:
        content = _yaml(path)
        is_there |= content is not None
        if content is None:
            continue
        merged["current-context"] = merged["current-context"] or content.get("current-context", "")
        for name, each in _named(path, content, kind="contexts"):
            merged["contexts"].setdefault(name, each.get("context") or {})
        for name, each in _named(path, content, kind="users"):
            merged["users"].setdefault(name, (path, each.get("user") or {}))
    if not is_there:
        what = f"there is no kubeconfig at {', '.join(map(str, paths))}"
        raise UserError(what, "name it by --kubeconfig, or set KUBECONFIG")
    return merged


def _yaml(path: Path) -> Table | None:
    import yaml  # noqa: PLC0415 - every other command does without

    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    try:
        if len(text) > MOST_BYTES:
            raise ValueError
        found = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise InputError(Where(str(path)), "it is not a kubeconfig") from None
    if not isinstance(found, dict):
        raise InputError(Where(str(path)), "it is not a kubeconfig")
    return cast("Table", found)


def _named(path: Path, content: Table, *, kind: str) -> list[tuple[str, Table]]:
    listed = _listed(content, kind)
    if not all(isinstance(each, dict) for each in listed):
        raise InputError(Where(str(path), field=kind), "it is not a list of tables")
    tables = cast("list[dict[str, Any]]", listed)
    return [(str(each.get("name", "")), each) for each in tables]


def _listed(content: Table, name: str) -> list[object]:
    found: object = content.get(name) or []
    return cast("list[object]", found) if isinstance(found, list) else [found]


def _token(path: Path, user: Table) -> str:
    if user.get("token"):
        return str(user["token"])
    if user.get("tokenFile"):
        file = path.parent / str(user["tokenFile"])
        try:
            return file.read_text(encoding="ascii", errors="replace").strip()
        except OSError as error:
            raise UserError(f"{file}: {(error.strerror or str(error)).lower()}") from None
    if isinstance(user.get("exec"), dict):
        return _fetched(path, cast("Table", user["exec"]))
    what = f"{path}: this user has a certificate or a password, and no token to show"
    raise UserError(what, "give one by --token-file; 'kubectl create token NAME' makes one")


def _fetched(path: Path, plugin: Table) -> str:
    """By the program that kubectl would run, too: it comes from the user's own kubeconfig."""
    program = str(plugin.get("command", ""))
    command = [str(path.parent / program) if "/" in program else program]
    command += map(str, _listed(plugin, "args"))
    version = str(plugin.get("apiVersion", "client.authentication.k8s.io/v1"))
    info = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False}}
    given = {name: str(each.get("value", "")) for name, each in _named(path, plugin, kind="env")}
    env = {**os.environ, **given, "KUBERNETES_EXEC_INFO": json.dumps(info)}
    try:
        done = subprocess.run(
            command, env=env, stdout=subprocess.PIPE, timeout=PLUGIN_S, check=True
        )
        return str(json.loads(done.stdout)["status"]["token"])
    except (OSError, subprocess.SubprocessError) as error:
        words = getattr(error, "strerror", None) or type(error).__name__
        raise UnavailableError(f"'{shown(program)}' gave no token: {words}") from None
    except (ValueError, KeyError, TypeError):
        raise UnavailableError(f"'{shown(program)}' answered something else than a token") from None
