"""A WebSocket to a pod through the API server, which carries several streams at once.

The first byte of every message is the number of its stream. Protocol v5 can end one direction of
a stream, v4 cannot; the server chooses the newest that it knows.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import cast
from urllib.parse import urlencode, urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidStatus
from websockets.typing import Subprotocol

from rota.engines.kubernetes.api import PODS, Access, Cluster
from rota.engines.kubernetes.objects import place
from rota.engines.kubernetes.transport import UNAUTHORIZED, refusal
from rota.errors import UnavailableError, shown

V5, V4 = Subprotocol("v5.channel.k8s.io"), Subprotocol("v4.channel.k8s.io")
CLOSE = 255
"""The stream whose messages name another one that has ended (v5)."""
OPEN_S = 15.0
CLOSE_S = 2.0
MOST_BYTES = 1024 * 1024
"""Of one message; servers send 32 KiB."""
READ_AHEAD = 4
"""Messages."""

Query = Sequence[tuple[str, str]]


async def dial(
    cluster: Cluster, pod: str, *, verb: str, query: Query, protocols: Sequence[Subprotocol]
) -> ClientConnection:
    access = cluster.access
    path = place(PODS, pod, namespace=cluster.namespace, subresource=verb)
    url = f"ws{access.url.removeprefix('http')}{path}?{urlencode(query)}"
    try:
        try:
            return await _opened(url, access, protocols=protocols)
        except InvalidStatus as error:
            if error.response.status_code != UNAUTHORIZED:
                raise
            # Credentials end, and others have come by then.
            return await _opened(url, access, protocols=protocols, is_refused=True)
    except InvalidStatus as error:
        raise refusal(error.response.status_code, bytes(error.response.body or b"")) from None
    except (OSError, TimeoutError, InvalidHandshake) as error:
        why = shown(str(error) or type(error).__name__, 200)
        hint = "it is just starting or ending, or the API server does not let us"
        raise UnavailableError(f"pod {pod} cannot be reached: {why}", hint) from None


async def _opened(
    url: str, access: Access, *, protocols: Sequence[Subprotocol], is_refused: bool = False
) -> ClientConnection:
    connection = await connect(
        url,
        subprotocols=protocols,
        additional_headers=await access.headers(is_refused=is_refused),
        ssl=access.tls if urlsplit(url).scheme == "wss" else None,
        proxy=True if access.uses_proxy else None,
        compression=None,
        max_size=MOST_BYTES,
        max_queue=READ_AHEAD,
        open_timeout=OPEN_S,
        close_timeout=CLOSE_S,
        # A server whose pod takes no input answers no ping, and is well all the same.
        ping_interval=None,
    )
    _keep_alive(connection)
    return connection


def _keep_alive(connection: ClientConnection) -> None:
    """A cluster that vanished without a word is noticed by the kernel, in minutes."""
    transport = connection.transport
    wire = cast("socket.socket | None", transport.get_extra_info("socket"))
    if wire is not None:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
