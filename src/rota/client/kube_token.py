"""Read the token that `kubectl` would use, for a daemon that authenticates users by their cluster.

Only contexts with `--kubernetes` use this module. The token is read again for each command, because
most tokens expire within an hour.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from rota.errors import InputError, InputLocation, UnavailableError, UserError, did_you_mean, shown

MOST_BYTES = 4 * 1024**2
PLUGIN_S = 60.0
"""Timeout of a credential plugin: some plugins ask the user to log in."""

Table = Mapping[str, Any]


def token_of(kubeconfig: str, kube_context: str) -> str:
    """Return the token of the user of a kubeconfig context. Empty arguments: kubectl's defaults."""
    paths = files(kubeconfig)
    found = _merged(paths)
    name = kube_context or found["current-context"]
    where = ", ".join(map(str, paths))
    if not name:
        raise UserError(f"{where}: no current context", "choose one with --kube-context")
    context = found["contexts"].get(name)
    if context is None:
        hint = did_you_mean(name, found["contexts"]) or "run 'kubectl config get-contexts'"
        raise UserError(f"{where}: unknown context '{shown(name)}'", hint)
    user = found["users"].get(str(context.get("user", "")))
    if user is None:
        raise UserError(f"{where}: context '{shown(name)}' has no user", "fix the kubeconfig")
    return _token(*user)


def files(kubeconfig: str) -> list[Path]:
    """Return the kubeconfig files in the order of kubectl."""
    if kubeconfig:
        return [Path(kubeconfig)]
    listed = [Path(each) for each in os.environ.get("KUBECONFIG", "").split(":") if each]
    return listed or [Path.home() / ".kube" / "config"]


def _merged(paths: list[Path]) -> dict[str, Any]:
    """Merge the files as kubectl does: the first entry of a name wins. Each user comes with the
    path of its file."""
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
        what = f"no kubeconfig at {', '.join(map(str, paths))}"
        raise UserError(what, "give its path with --kubeconfig, or set KUBECONFIG")
    return merged


def _yaml(path: Path) -> Table | None:
    import yaml  # noqa: PLC0415 - other commands must not pay for this import

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
        raise InputError(InputLocation(str(path)), "not a valid kubeconfig") from None
    if not isinstance(found, dict):
        raise InputError(InputLocation(str(path)), "not a valid kubeconfig")
    return cast("Table", found)


def _named(path: Path, content: Table, *, kind: str) -> list[tuple[str, Table]]:
    listed = _listed(content, kind)
    if not all(isinstance(each, dict) for each in listed):
        raise InputError(InputLocation(str(path), field=kind), "must be a list of tables")
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
    what = f"{path}: the user has no token, only a certificate or a password"
    hint = "create a token with 'kubectl create token NAME' and give its file with --token-file"
    raise UserError(what, hint)


def _fetched(path: Path, plugin: Table) -> str:
    """Run the credential plugin that the user's own kubeconfig names, as kubectl does."""
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
        reason = getattr(error, "strerror", None) or type(error).__name__
        what = f"credential plugin '{shown(program)}' failed: {reason}"
        raise UnavailableError(what) from None
    except (ValueError, KeyError, TypeError):
        what = f"credential plugin '{shown(program)}' returned no token"
        raise UnavailableError(what) from None
