"""What is in a cluster, as plain JSON, and where the API server keeps it. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

from rota.errors import UserError, shown

Object = dict[str, Any]
"""One object, just as the API server gave it or is to be given it."""
Listing = tuple[list[Object], str]
"""All of a kind, and the version to watch them from."""

MANAGER = "rota"
"""Who we are to the API server: the owner of the fields that we set."""
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Kind:
    """`is_command` tells whether writing one acts upon the cluster: who has lost the lease may
    still ask who somebody is, and for the lease."""

    group_version: str
    plural: str
    kind: str
    is_namespaced: bool = True
    is_command: bool = True


PODS = Kind("v1", "pods", "Pod")
NODES = Kind("v1", "nodes", "Node", is_namespaced=False)
EVENTS = Kind("v1", "events", "Event")
SECRETS = Kind("v1", "secrets", "Secret")
PVCS = Kind("v1", "persistentvolumeclaims", "PersistentVolumeClaim")
LEASES = Kind("coordination.k8s.io/v1", "leases", "Lease", is_command=False)
TRAINING_JOBS = Kind("rota.dev/v1alpha1", "trainingjobs", "TrainingJob")
TOKEN_REVIEWS = Kind(
    "authentication.k8s.io/v1", "tokenreviews", "TokenReview", is_namespaced=False, is_command=False
)


@dataclass(frozen=True, slots=True)
class Scope:
    """Which objects are meant. Without a namespace: those everywhere."""

    namespace: str | None
    labels: str = ""
    fields: str = ""

    @property
    def query(self) -> dict[str, str]:
        wanted = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {key: value for key, value in wanted.items() if value}


class Change(NamedTuple):
    """What a watch tells. Of a bookmark only the object's resourceVersion counts."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: Object


def collection(kind: Kind, namespace: str | None) -> str:
    """The path of all objects of a kind, in a namespace or everywhere."""
    root = "/apis" if "/" in kind.group_version else "/api"
    within = ""
    if kind.is_namespaced and namespace is not None:
        within = f"/namespaces/{_checked(namespace, _NAMESPACE, what='namespace')}"
    return f"{root}/{kind.group_version}{within}/{kind.plural}"


def place(kind: Kind, name: str, *, namespace: str | None, subresource: str = "") -> str:
    """The path of one object, or of a part of it."""
    checked = _checked(name, _NAME, what=f"name of a {kind.kind}")
    behind = f"/{subresource}" if subresource else ""
    return f"{collection(kind, namespace)}/{checked}{behind}"


def part(whole: Object, *keys: str) -> Object:
    """What an object holds there: nothing, where somebody left it out or wrote something else."""
    for key in keys:
        found = whole.get(key)
        whole = cast(Object, found) if isinstance(found, dict) else {}
    return whole


def parts(whole: Object, key: str) -> list[Object]:
    found = whole.get(key)
    return cast(list[Object], found) if isinstance(found, list) else []


def named(kind: Kind, body: Object) -> Object:
    """With the words that say what it is."""
    return {"apiVersion": kind.group_version, "kind": kind.kind} | body


def _checked(word: str, form: re.Pattern[str], *, what: str) -> str:
    """Whatever comes from outside is a word here, never a part of a path."""
    if not form.fullmatch(word) or ".." in word:
        hint = "small letters, digits, '-' and '.' are right"
        raise UserError(f"{shown(word)!r} is no {what}", hint)
    return word
