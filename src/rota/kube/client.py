"""One cluster's API server, in the few words that we need. Nothing else speaks to it.

Objects are plain JSON: a typed client makes every pod several times as expensive.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec

from rota.engines.kubernetes import kubeconfig as kubeconfigs
from rota.engines.kubernetes.kubeconfig import Access
from rota.engines.kubernetes.objects import (
    EVENTS,
    LEASES,
    MANAGER,
    NODES,
    PODS,
    PVCS,
    SECRETS,
    TOKEN_REVIEWS,
    TRAINING_JOBS,
    Change,
    Kind,
    Object,
    Scope,
    collection,
    named,
    part,
    place,
)
from rota.engines.kubernetes.transport import NOT_FOUND, ApiError, Ask, Transport, of_status

__all__ = [
    "EVENTS",
    "LEASES",
    "NODES",
    "PODS",
    "PVCS",
    "SECRETS",
    "TOKEN_REVIEWS",
    "TRAINING_JOBS",
    "Access",
    "ApiError",
    "Change",
    "Cluster",
    "Kind",
    "Object",
    "Scope",
    "connect",
]

PAGE = 500
WATCH_S = 40
"""A watch is ended by the server and begun anew so often: one that broke without a word is
noticed by then."""
WATCH_SILENCE_S = WATCH_S + 10.0
WHOLE = "application/json"
BRIEF = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
BRIEF_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
APPLY, MERGE, STRATEGIC, JSON_PATCH = (
    "application/apply-patch+yaml",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/json-patch+json",
)

BY_US = {"fieldManager": MANAGER, "fieldValidation": "Ignore"}
"""Nobody reads the warnings about what we wrote, for which all would be looked through twice."""


class Cluster:
    def __init__(self, access: Access, *, namespace: str = "") -> None:
        self.access = access
        self.namespace = namespace or access.namespace
        """Ours: where everything is that does not say where it is."""
        self._transport = Transport(access)

    async def lull(self) -> None:
        """Until nobody waits to be heard, or for a while: for what can wait."""
        await self._transport.lull()

    @property
    def gate(self) -> Callable[[], None]:
        """Called before everything that acts upon the cluster; raises when we may not."""
        return self._transport.gate

    @gate.setter
    def gate(self, gate: Callable[[], None]) -> None:
        self._transport.gate = gate

    async def close(self) -> None:
        await self._transport.close()

    # -- reading --------------------------------------------------------------------------------

    async def get(self, kind: Kind, name: str, *, namespace: str = "") -> Object:
        return await self._transport.ask(Ask("GET", self._place(kind, name, namespace=namespace)))

    async def list(
        self, kind: Kind, scope: Scope, *, is_brief: bool = False
    ) -> tuple[list[Object], str]:
        """All of them, and the version to watch from. In brief: only their metadata."""
        path, query = collection(kind, scope.namespace), scope.query | {"limit": str(PAGE)}
        form = BRIEF_LIST if is_brief else WHOLE
        found: list[Object] = []
        while True:
            page = await self._transport.ask(Ask("GET", path, query, accept=form))
            found += page["items"] or ()
            meta = page["metadata"]
            if not meta.get("continue"):
                return found, meta["resourceVersion"]
            query["continue"] = meta["continue"]

    async def definition(self, kind: Kind) -> Object:
        """What such an object may hold, as the cluster tells everybody: a schema; nothing where it
        does not say."""
        path = f"/openapi/v3/apis/{kind.group_version}"
        group, _, version = kind.group_version.partition("/")
        name = ".".join([*reversed(group.split(".")), version, kind.kind])
        try:
            told = await self._transport.ask(Ask("GET", path))
        except ApiError as error:
            if error.is_passing:
                raise
            return {}
        return part(told, "components", "schemas", name)

    async def watch(self, kind: Kind, scope: Scope, *, version: str) -> AsyncIterator[Change]:
        """What changes after this version, until the server ends it. ApiError 410: the version is
        too old, and everything has to be listed anew."""
        query = scope.query | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_S),
        }
        ask = Ask("GET", collection(kind, scope.namespace), query)
        async with self._transport.stream(ask, silence_s=WATCH_SILENCE_S) as content:
            async for line in _lines(content.iter_any()):
                told = msgspec.json.decode(line)
                if told["type"] == "ERROR":
                    raise of_status(told["object"])
                yield Change(told["type"], told["object"])

    async def pod_log(
        self, pod: str, *, container: str = "", since: str = "", follow: bool = False
    ) -> AsyncGenerator[bytes]:
        """What a pod wrote, each line with its moment before it; since a moment, if one is
        given."""
        query = {"timestamps": "true", "follow": str(follow).lower()}
        query |= {"container": container} if container else {}
        query |= {"sinceTime": since} if since else {}
        ask = Ask("GET", place(PODS, pod, namespace=self.namespace, subresource="log"), query)
        silence_s = None if follow else WATCH_SILENCE_S
        async with self._transport.stream(ask, silence_s=silence_s) as content:
            async for chunk in content.iter_any():
                yield chunk

    # -- writing --------------------------------------------------------------------------------

    async def create(
        self, kind: Kind, body: Object, *, subresource: str = "", is_brief: bool = False
    ) -> Object:
        """Where a body has a name and a subresource is meant, it is that of this object. In brief:
        only its metadata is answered."""
        path = collection(kind, self._namespace(kind, body))
        if subresource:
            path = self._place_of(kind, body, subresource=subresource)
        accept = BRIEF if is_brief else WHOLE
        ask = Ask("POST", path, BY_US, named(kind, body), accept=accept)
        return await self._write(kind, ask)

    async def apply(
        self, kind: Kind, body: Object, *, subresource: str = "", force: bool = True
    ) -> Object:
        """Server-side apply: made if it is not there, and our fields made so if it is."""
        query = BY_US | {"force": str(force).lower()}
        path = self._place_of(kind, body, subresource=subresource)
        return await self._write(kind, Ask("PATCH", path, query, named(kind, body), APPLY))

    async def patch(
        self,
        kind: Kind,
        name: str,
        *,
        body: Object | list[Object],
        subresource: str = "",
        namespace: str = "",
    ) -> Object:
        """A merge patch; a list is a JSON patch. With a resourceVersion in the body's metadata it
        is refused (Conflict) if somebody was faster."""
        form = JSON_PATCH if isinstance(body, list) else MERGE
        path = self._place(kind, name, namespace=namespace, subresource=subresource)
        return await self._write(kind, Ask("PATCH", path, BY_US, body, form))

    async def amend(self, kind: Kind, name: str, *, body: Object) -> None:
        """A merge patch. What came of it is for watches to tell: the answer is in brief."""
        path = self._place(kind, name, namespace="")
        await self._write(kind, Ask("PATCH", path, BY_US, body, MERGE, accept=BRIEF))

    async def let_go(self, kind: Kind, name: str, *, uid: str, finalizer: str) -> None:
        """Hold this very object no longer; who else holds it goes on to. Not for custom kinds."""
        body = {"metadata": {"uid": uid, "$deleteFromPrimitiveList/finalizers": [finalizer]}}
        path = self._place(kind, name, namespace="")
        await self._write(kind, Ask("PATCH", path, BY_US, body, STRATEGIC, accept=BRIEF))

    async def replace(self, kind: Kind, body: Object, *, subresource: str = "") -> Object:
        """With the resourceVersion that was read: Conflict if somebody was faster."""
        path = self._place_of(kind, body, subresource=subresource)
        ask = Ask("PUT", path, BY_US, named(kind, body))
        return await self._write(kind, ask)

    async def delete(
        self,
        kind: Kind,
        name: str,
        *,
        grace_s: int | None = None,
        uid: str = "",
        namespace: str = "",
    ) -> None:
        """What is gone already is fine. With a `uid`: this very object and no namesake of it."""
        body: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        body |= {} if grace_s is None else {"gracePeriodSeconds": grace_s}
        body |= {"preconditions": {"uid": uid}} if uid else {}
        try:
            ask = Ask("DELETE", self._place(kind, name, namespace=namespace), body=body)
            await self._write(kind, ask)
        except ApiError as error:
            is_namesake = uid and error.reason == "Conflict"
            if error.status != NOT_FOUND and not is_namesake:
                raise

    async def bind(self, pod: Object, *, node: str) -> None:
        """Give a pod that no other scheduler cares for to a node."""
        meta = {key: pod["metadata"][key] for key in ("name", "namespace", "uid")}
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
        await self._write(
            PODS, Ask("POST", self._place_of(PODS, body, subresource="binding"), body=body)
        )

    async def _write(self, kind: Kind, ask: Ask) -> Any:
        return await self._transport.ask(ask, is_command=kind.is_command)

    # -- places ---------------------------------------------------------------------------------

    def _namespace(self, kind: Kind, body: Object) -> str | None:
        return (body["metadata"].get("namespace") or self.namespace) if kind.is_namespaced else None

    def _place_of(self, kind: Kind, body: Object, *, subresource: str = "") -> str:
        namespace = self._namespace(kind, body)
        name = body["metadata"]["name"]
        return place(kind, name, namespace=namespace, subresource=subresource)

    def _place(self, kind: Kind, name: str, *, namespace: str, subresource: str = "") -> str:
        within = namespace or self.namespace
        return place(kind, name, namespace=within, subresource=subresource)


def connect(kubeconfig: Path | None = None, context: str = "", *, namespace: str = "") -> Cluster:
    """The cluster that a kubeconfig names. Without any: the one that we run in, else what kubectl
    would use."""
    return Cluster(kubeconfigs.read(kubeconfig, context), namespace=namespace)


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if line:
                yield line
