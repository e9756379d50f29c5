"""The Kubernetes API: get, list, watch, create, apply, patch, replace, delete, bind and logs.

Objects are plain JSON. Typed objects would make every pod several times as expensive.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec

from rota.kube import auth as kubeconfigs
from rota.kube.auth import ClusterAccess
from rota.kube.errors import (
    NOT_FOUND,
    UNREACHABLE,
    ApiError,
    error_from_status,
    unreadable_response,
)
from rota.kube.http import ApiRequest, Transport, allow_always
from rota.kube.json_parser import parse_json
from rota.kube.resources import (
    MANAGER,
    PODS,
    Object,
    ResourceKind,
    ResourceScope,
    WatchEvent,
    collection_path,
    object_path,
    part,
    with_type_meta,
)

PAGE_SIZE = 500
WATCH_S = 40
"""The server ends a watch after this time, and the next one starts. A connection that broke
silently is found by then."""
WATCH_READ_TIMEOUT_S = WATCH_S + 10.0
FULL_OBJECT = "application/json"
METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_ONLY_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
APPLY, MERGE, STRATEGIC, JSON_PATCH = (
    "application/apply-patch+yaml",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/json-patch+json",
)

FIELD_MANAGER_QUERY = {"fieldManager": MANAGER, "fieldValidation": "Ignore"}
"""Field validation is off: rota does not read its warnings, and it costs a second pass over the
object."""


class KubeClient:
    """Talks to one cluster. Objects without a namespace are in `namespace`."""

    def __init__(
        self,
        access: ClusterAccess,
        *,
        namespace: str = "",
        gate: Callable[[], None] = allow_always,
    ) -> None:
        """The `gate` is called before every write, and raises if the client may not write."""
        self.access = access
        self.namespace = namespace or access.namespace
        self._transport = Transport(access, gate)

    async def wait_idle(self) -> None:
        """Wait until no request waits for its turn, or until a timeout. For work that is not
        urgent."""
        await self._transport.wait_idle()

    async def close(self) -> None:
        await self._transport.close()

    # -- read -----------------------------------------------------------------------------------

    async def get(self, kind: ResourceKind, name: str, *, namespace: str = "") -> Object:
        return await self._transport.request(
            ApiRequest("GET", self._path_of_name(kind, name, namespace=namespace))
        )

    async def list(
        self, kind: ResourceKind, scope: ResourceScope, *, is_metadata_only: bool = False
    ) -> tuple[list[Object], str]:
        """All objects, and the version to watch from. `is_metadata_only`: request only their
        metadata."""
        path, query = (
            collection_path(kind, scope.namespace),
            scope.query | {"limit": str(PAGE_SIZE)},
        )
        form = METADATA_ONLY_LIST if is_metadata_only else FULL_OBJECT
        found: list[Object] = []
        while True:
            page = await self._transport.request(ApiRequest("GET", path, query, accept=form))
            found += page["items"] or ()
            meta = page["metadata"]
            if not meta.get("continue"):
                return found, meta["resourceVersion"]
            query["continue"] = meta["continue"]

    async def definition(self, kind: ResourceKind) -> Object:
        """The OpenAPI schema of a kind; empty if the cluster does not publish one."""
        path = f"/openapi/v3/apis/{kind.group_version}"
        group, _, version = kind.group_version.partition("/")
        name = ".".join([*reversed(group.split(".")), version, kind.kind])
        try:
            response = await self._transport.request(ApiRequest("GET", path))
        except ApiError as error:
            if error.is_transient:
                raise
            return {}
        return part(response, "components", "schemas", name)

    async def watch(
        self, kind: ResourceKind, scope: ResourceScope, *, version: str
    ) -> AsyncIterator[WatchEvent]:
        """The changes after `version`, until the server ends the watch. ApiError 410: the
        version has expired, and the caller has to list again."""
        query = scope.query | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_S),
        }
        request = ApiRequest("GET", collection_path(kind, scope.namespace), query)
        async with self._transport.stream(request, read_timeout_s=WATCH_READ_TIMEOUT_S) as content:
            async for line in _lines(content.iter_any()):
                event = _watch_event(line)
                if event["type"] == "ERROR":
                    raise error_from_status(event["object"])
                yield WatchEvent(event["type"], event["object"])

    async def pod_log(
        self, pod: str, *, container: str = "", since: str = "", follow: bool = False
    ) -> AsyncGenerator[bytes]:
        """The output of a pod, each line with its timestamp; only lines after `since` if it is
        given."""
        query = {"timestamps": "true", "follow": str(follow).lower()}
        query |= {"container": container} if container else {}
        query |= {"sinceTime": since} if since else {}
        request = ApiRequest(
            "GET", object_path(PODS, pod, namespace=self.namespace, subresource="log"), query
        )
        read_timeout_s = None if follow else WATCH_READ_TIMEOUT_S
        async with self._transport.stream(request, read_timeout_s=read_timeout_s) as content:
            async for chunk in content.iter_any():
                yield chunk

    # -- write ----------------------------------------------------------------------------------

    async def create(
        self,
        kind: ResourceKind,
        body: Object,
        *,
        subresource: str = "",
        is_metadata_only: bool = False,
    ) -> Object:
        """Create an object, or a subresource of the object that the body names.
        `is_metadata_only`: the answer has only metadata."""
        path = collection_path(kind, self._namespace(kind, body))
        if subresource:
            path = self._path_of_body(kind, body, subresource=subresource)
        accept = METADATA_ONLY if is_metadata_only else FULL_OBJECT
        request = ApiRequest(
            "POST", path, FIELD_MANAGER_QUERY, with_type_meta(kind, body), accept=accept
        )
        return await self._write(kind, request)

    async def apply(
        self, kind: ResourceKind, body: Object, *, subresource: str = "", force: bool = True
    ) -> Object:
        """Server-side apply: create the object, or set the fields that rota manages."""
        query = FIELD_MANAGER_QUERY | {"force": str(force).lower()}
        path = self._path_of_body(kind, body, subresource=subresource)
        return await self._write(
            kind, ApiRequest("PATCH", path, query, with_type_meta(kind, body), APPLY)
        )

    async def patch(
        self,
        kind: ResourceKind,
        name: str,
        *,
        body: Object | list[Object],
        subresource: str = "",
        namespace: str = "",
    ) -> Object:
        """A merge patch, or a JSON patch if `body` is a list. With a resourceVersion in the
        body's metadata, the server answers Conflict if the object has changed."""
        form = JSON_PATCH if isinstance(body, list) else MERGE
        path = self._path_of_name(kind, name, namespace=namespace, subresource=subresource)
        return await self._write(kind, ApiRequest("PATCH", path, FIELD_MANAGER_QUERY, body, form))

    async def amend(self, kind: ResourceKind, name: str, *, body: Object) -> None:
        """A merge patch. The answer has only metadata: the result arrives through a watch."""
        path = self._path_of_name(kind, name, namespace="")
        await self._write(
            kind, ApiRequest("PATCH", path, FIELD_MANAGER_QUERY, body, MERGE, accept=METADATA_ONLY)
        )

    async def remove_finalizer(
        self, kind: ResourceKind, name: str, *, uid: str, finalizer: str
    ) -> None:
        """Remove one finalizer from the object with this uid. Custom resources do not support
        this patch."""
        body = {"metadata": {"uid": uid, "$deleteFromPrimitiveList/finalizers": [finalizer]}}
        path = self._path_of_name(kind, name, namespace="")
        await self._write(
            kind,
            ApiRequest("PATCH", path, FIELD_MANAGER_QUERY, body, STRATEGIC, accept=METADATA_ONLY),
        )

    async def replace(self, kind: ResourceKind, body: Object, *, subresource: str = "") -> Object:
        """Needs the resourceVersion that was read. Conflict if the object has changed since."""
        path = self._path_of_body(kind, body, subresource=subresource)
        request = ApiRequest("PUT", path, FIELD_MANAGER_QUERY, with_type_meta(kind, body))
        return await self._write(kind, request)

    async def delete(
        self,
        kind: ResourceKind,
        name: str,
        *,
        grace_s: int | None = None,
        uid: str = "",
        namespace: str = "",
    ) -> None:
        """Delete an object; a missing object is not an error. `uid`: delete only the object with
        this uid, not a later object of the same name."""
        body: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        body |= {} if grace_s is None else {"gracePeriodSeconds": grace_s}
        body |= {"preconditions": {"uid": uid}} if uid else {}
        try:
            request = ApiRequest(
                "DELETE", self._path_of_name(kind, name, namespace=namespace), body=body
            )
            await self._write(kind, request)
        except ApiError as error:
            is_other_object = uid and error.reason == "Conflict"
            if error.status != NOT_FOUND and not is_other_object:
                raise

    async def bind(self, pod: Object, *, node: str) -> None:
        """Bind a pod to a node. Only for pods that no other scheduler handles."""
        meta = {key: pod["metadata"][key] for key in ("name", "namespace", "uid")}
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
        await self._write(
            PODS,
            ApiRequest("POST", self._path_of_body(PODS, body, subresource="binding"), body=body),
        )

    async def _write(self, kind: ResourceKind, request: ApiRequest) -> Any:
        return await self._transport.request(request, is_command=kind.is_command)

    # -- paths ----------------------------------------------------------------------------------

    def _namespace(self, kind: ResourceKind, body: Object) -> str | None:
        return (body["metadata"].get("namespace") or self.namespace) if kind.is_namespaced else None

    def _path_of_body(self, kind: ResourceKind, body: Object, *, subresource: str = "") -> str:
        namespace = self._namespace(kind, body)
        name = body["metadata"]["name"]
        return object_path(kind, name, namespace=namespace, subresource=subresource)

    def _path_of_name(
        self, kind: ResourceKind, name: str, *, namespace: str, subresource: str = ""
    ) -> str:
        effective = namespace or self.namespace
        return object_path(kind, name, namespace=effective, subresource=subresource)


def connect(
    kubeconfig: Path | None = None,
    context: str = "",
    *,
    namespace: str = "",
    gate: Callable[[], None] = allow_always,
) -> KubeClient:
    """A client for the cluster of a kubeconfig. Without one: the cluster that this process runs
    in, else the cluster that kubectl would use."""
    access = kubeconfigs.load_access(kubeconfig, context)
    return KubeClient(access, namespace=namespace, gate=gate)


def _watch_event(line: bytes) -> Any:
    try:
        return parse_json(line)
    except msgspec.DecodeError:
        raise unreadable_response(UNREACHABLE, line) from None


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if line:
                yield line
