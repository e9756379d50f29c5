"""Kinds of Kubernetes objects, their URL paths, and helpers to read plain JSON objects. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

from rota.errors import UserError, shown

Object = dict[str, Any]
"""One object, as the API server sends or receives it."""
Listing = tuple[list[Object], str]
"""All objects of a kind, and the resource version to start a watch from."""

MANAGER = "rota"
"""The field manager of everything that rota writes."""
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class ResourceKind:
    """`is_command`: a write of this kind acts on the cluster and needs the leader lease. Leases
    and TokenReviews do not: a daemon without the lease has to write them too."""

    group_version: str
    plural: str
    kind: str
    is_namespaced: bool = True
    is_command: bool = True


PODS = ResourceKind("v1", "pods", "Pod")
NODES = ResourceKind("v1", "nodes", "Node", is_namespaced=False)
EVENTS = ResourceKind("v1", "events", "Event")
SECRETS = ResourceKind("v1", "secrets", "Secret")
PVCS = ResourceKind("v1", "persistentvolumeclaims", "PersistentVolumeClaim")
LEASES = ResourceKind("coordination.k8s.io/v1", "leases", "Lease", is_command=False)
TRAINING_JOBS = ResourceKind("rota.dev/v1alpha1", "trainingjobs", "TrainingJob")
TOKEN_REVIEWS = ResourceKind(
    "authentication.k8s.io/v1", "tokenreviews", "TokenReview", is_namespaced=False, is_command=False
)


@dataclass(frozen=True, slots=True)
class ResourceScope:
    """Selects objects of a kind. Without a namespace: objects of all namespaces."""

    namespace: str | None
    labels: str = ""
    fields: str = ""

    @property
    def query(self) -> dict[str, str]:
        selectors = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {key: value for key, value in selectors.items() if value}


class WatchEvent(NamedTuple):
    """One event of a watch. A bookmark carries only a resourceVersion."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: Object


def collection_path(kind: ResourceKind, namespace: str | None) -> str:
    """The path of all objects of a kind, in a namespace or in all namespaces."""
    root = "/apis" if "/" in kind.group_version else "/api"
    namespace_path = ""
    if kind.is_namespaced and namespace is not None:
        namespace_path = f"/namespaces/{_checked(namespace, _NAMESPACE, what='namespace')}"
    return f"{root}/{kind.group_version}{namespace_path}/{kind.plural}"


def object_path(
    kind: ResourceKind, name: str, *, namespace: str | None, subresource: str = ""
) -> str:
    """The path of one object, or of its subresource."""
    checked = _checked(name, _NAME, what=f"name of a {kind.kind}")
    suffix = f"/{subresource}" if subresource else ""
    return f"{collection_path(kind, namespace)}/{checked}{suffix}"


def part(whole: Object, *keys: str) -> Object:
    """The mapping at the path `keys`, or an empty one if it is missing or is not a mapping."""
    for key in keys:
        found = whole.get(key)
        whole = cast(Object, found) if isinstance(found, dict) else {}
    return whole


def parts(whole: Object, key: str) -> list[Object]:
    """The list at `key`, or an empty one if it is missing or is not a list."""
    found = whole.get(key)
    return cast(list[Object], found) if isinstance(found, list) else []


def with_type_meta(kind: ResourceKind, body: Object) -> Object:
    """Add `apiVersion` and `kind` to a body."""
    return {"apiVersion": kind.group_version, "kind": kind.kind} | body


def _checked(name: str, pattern: re.Pattern[str], *, what: str) -> str:
    """Reject names that could change the path of a request."""
    if not pattern.fullmatch(name) or ".." in name:
        hint = "use lower-case letters, digits, '-' and '.'"
        raise UserError(f"{shown(name)!r} is not a valid {what}", hint)
    return name
