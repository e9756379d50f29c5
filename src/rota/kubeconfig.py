"""Read kubeconfig files as kubectl does. Commands and the daemon use this module.

`load_context` returns the cluster and the user of a context, `read_token` the user's token. Files
of the variable KUBECONFIG are merged: the first file that sets a value wins. Relative paths in a
file start at the directory of that file.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from rota.errors import InputError, InputLocation, UnavailableError, UserError, did_you_mean, shown

MOST_BYTES = 4 * 1024**2
PLUGIN_S = 60.0
"""Timeout of a credential plugin: some plugins ask the user to log in."""
KINDS = {"contexts": "context", "clusters": "cluster", "users": "user"}
"""The lists of a kubeconfig -> the key of the content in their entries."""

Table = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class KubeconfigEntry:
    """A named context, cluster or user, and the file that it comes from."""

    name: str
    path: Path
    fields: Table

    def text(self, field: str) -> str:
        return str(self.fields.get(field) or "")

    def file(self, field: str) -> Path | None:
        """The file that a field names."""
        name = self.text(field)
        return self.path.parent / name if name else None


@dataclass(frozen=True, slots=True)
class KubeContext:
    cluster: KubeconfigEntry
    """Without fields if no file describes the cluster."""
    user: KubeconfigEntry
    namespace: str


def load_context(kubeconfig: str | Path = "", name: str = "") -> KubeContext:
    """Load a context. Without arguments, use kubectl's defaults."""
    paths = _paths(kubeconfig)
    current, entries = _merged(paths)
    where, name = ", ".join(map(str, paths)), name or current
    if not name:
        hint = "name a context, or run 'kubectl config use-context'"
        raise UserError(f"{where}: no current context", hint)
    context = entries["contexts"].get(name)
    if context is None:
        hint = did_you_mean(name, entries["contexts"]) or "run 'kubectl config get-contexts'"
        raise UserError(f"{where}: unknown context '{shown(name)}'", hint)
    user, cluster = entries["users"].get(context.text("user")), context.text("cluster")
    if user is None:
        raise UserError(f"{where}: context '{shown(name)}' has no user", "fix the kubeconfig")
    no_cluster = KubeconfigEntry(cluster, context.path, {})
    return KubeContext(
        cluster=entries["clusters"].get(cluster, no_cluster),
        user=user,
        namespace=context.text("namespace") or "default",
    )


def read_token(user: KubeconfigEntry) -> str:
    """Read the user's token, or run the user's credential plugin; empty if the user has neither.
    Blocks as long as the plugin takes."""
    if file := user.file("tokenFile"):
        try:
            return file.read_text(encoding="ascii", errors="replace").strip()
        except OSError as error:
            raise UserError(f"{file}: {(error.strerror or str(error)).lower()}") from None
    if user.text("token"):
        return user.text("token")
    plugin = user.fields.get("exec")
    return _fetched(user.path, cast("Table", plugin)) if isinstance(plugin, dict) else ""


def _paths(kubeconfig: str | Path) -> list[Path]:
    if kubeconfig:
        return [Path(kubeconfig).expanduser()]
    listed = [Path(each) for each in os.environ.get("KUBECONFIG", "").split(":") if each]
    return listed or [Path.home() / ".kube" / "config"]


def _merged(paths: list[Path]) -> tuple[str, dict[str, dict[str, KubeconfigEntry]]]:
    """The current context, and the entries by kind and name. The first entry of a name wins."""
    current, is_there = "", False
    entries: dict[str, dict[str, KubeconfigEntry]] = {kind: {} for kind in KINDS}
    for path in paths:
        content = _yaml(path)
        if content is None:
            continue
        is_there = True
        current = current or str(content.get("current-context") or "")
        for kind, key in KINDS.items():
            for name, each in _named(path, content, kind=kind):
                fields: object = each.get(key)
                found = cast("dict[str, Any]", fields if isinstance(fields, dict) else {})
                entries[kind].setdefault(name, KubeconfigEntry(name, path, found))
    if not is_there:
        what = f"no kubeconfig at {', '.join(map(str, paths))}"
        raise UserError(what, "give its path with --kubeconfig, or set KUBECONFIG")
    return current, entries


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
