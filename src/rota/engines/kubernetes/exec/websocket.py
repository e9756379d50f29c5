"""Open a WebSocket to a pod through the API server; it carries several streams.

The first byte of every message is the number of its stream. Protocol v5 can end one direction of
a stream, v4 cannot; the server chooses the newest version that it knows.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import cast
from urllib.parse import urlencode, urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidStatus
from websockets.typing import Subprotocol

from rota.errors import UnavailableError, shown
from rota.kube.auth import ClusterAccess
from rota.kube.client import KubeClient
from rota.kube.errors import UNAUTHORIZED, error_from_response
from rota.kube.resources import PODS, object_path

V5, V4 = Subprotocol("v5.channel.k8s.io"), Subprotocol("v4.channel.k8s.io")
CLOSE = 255
"""Messages on this stream name a stream that has ended (v5)."""
OPEN_TIMEOUT_S = 15.0
CLOSE_TIMEOUT_S = 2.0
MAX_MESSAGE_BYTES = 1024 * 1024
"""Servers send 32 KiB at most."""
MAX_QUEUED_MESSAGES = 4

Query = Sequence[tuple[str, str]]


async def open_websocket(
    client: KubeClient, pod: str, *, verb: str, query: Query, protocols: Sequence[Subprotocol]
) -> ClientConnection:
    """Open a connection; renew rejected credentials once."""
    access = client.access
    path = object_path(PODS, pod, namespace=client.namespace, subresource=verb)
    url = f"ws{access.url.removeprefix('http')}{path}?{urlencode(query)}"
    try:
        try:
            return await _open(url, access, protocols=protocols)
        except InvalidStatus as error:
            if error.response.status_code != UNAUTHORIZED:
                raise
            # The credentials may have expired; read them again.
            return await _open(url, access, protocols=protocols, is_refused=True)
    except InvalidStatus as error:
        raise error_from_response(
            error.response.status_code, bytes(error.response.body or b"")
        ) from None
    except (OSError, TimeoutError, InvalidHandshake) as error:
        why = shown(str(error) or type(error).__name__, 200)
        hint = "the pod may be starting or ending, or the API server denies access"
        raise UnavailableError(f"pod {pod} cannot be reached: {why}", hint) from None


async def _open(
    url: str, access: ClusterAccess, *, protocols: Sequence[Subprotocol], is_refused: bool = False
) -> ClientConnection:
    connection = await connect(
        url,
        subprotocols=protocols,
        additional_headers=await access.headers(is_refused=is_refused),
        ssl=access.tls if urlsplit(url).scheme == "wss" else None,
        proxy=True if access.uses_proxy else None,
        compression=None,
        max_size=MAX_MESSAGE_BYTES,
        max_queue=MAX_QUEUED_MESSAGES,
        open_timeout=OPEN_TIMEOUT_S,
        close_timeout=CLOSE_TIMEOUT_S,
        # A server whose pod reads no input does not answer pings.
        ping_interval=None,
    )
    _keep_alive(connection)
    return connection


def _keep_alive(connection: ClientConnection) -> None:
    """The kernel detects a silent loss of the cluster within minutes."""
    transport = connection.transport
    connected = cast("socket.socket | None", transport.get_extra_info("socket"))
    if connected is not None:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
