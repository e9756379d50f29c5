"""The TCPStore that each worker serves, so that a generation can meet at its first member."""

# torch has incomplete type hints.
# pyright: basic, reportPrivateImportUsage=false
from __future__ import annotations

import os
import socket
from datetime import timedelta

from torch.distributed import TCPStore

from rota_trainer.elastic.abortable_sockets import AbortableSockets, open_sockets, opened_since

CONNECT_S = 2.0


def host() -> str:
    """The host name or address under which the other workers of the job reach this one."""
    return os.environ.get("ROTA_HOST", "") or "127.0.0.1"


def serve() -> tuple[TCPStore, str]:
    """Serve a store at this worker's own address only; returns the store and the address."""
    listening = socket.create_server((host(), 0), family=_family(host()))
    port = listening.getsockname()[1]
    store = TCPStore(
        host(),
        port,
        is_master=True,
        wait_for_workers=False,
        timeout=timedelta(seconds=CONNECT_S),
        master_listen_fd=listening.detach(),
    )
    return store, f"{host()}:{port}"


def connect(address: str) -> tuple[TCPStore, AbortableSockets]:
    """Connect to a store; returns it with its sockets. Shutting the sockets down ends every wait
    for the store. Raises RuntimeError if the address cannot be reached."""
    name, _, port = address.rpartition(":")
    try:
        # TCPStore itself would retry for a long time if nothing listens at the address.
        socket.create_connection((name, int(port)), CONNECT_S).close()
    except OSError as error:
        raise RuntimeError(f"cannot connect to {address}: {error}") from None
    before = open_sockets()
    store = TCPStore(
        name,
        int(port),
        is_master=False,
        wait_for_workers=False,
        timeout=timedelta(seconds=CONNECT_S),
    )
    return store, opened_since(before, belongs=lambda _, there: there == int(port))


def use_loopback() -> None:
    """Let gloo use the loopback interface if all workers are on this machine; otherwise it resolves
    the host name."""
    if host() in ("127.0.0.1", "localhost"):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def _family(name: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in name else socket.AF_INET
