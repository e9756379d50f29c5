"""The store that each worker serves, so that a generation can meet at any of its members."""

# torch is typed in parts only.
# pyright: basic, reportPrivateImportUsage=false
from __future__ import annotations

import os
import socket
from datetime import timedelta

from torch.distributed import TCPStore

from rota_trainer.live.sockets import Connections, open_sockets, opened_since

CONNECT_S = 2.0


def host() -> str:
    """The name under which the others of the job reach this worker."""
    return os.environ.get("ROTA_HOST", "") or "127.0.0.1"


def serve() -> tuple[TCPStore, str]:
    """A store that listens at this worker's own address only, and that address."""
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


def connect(address: str) -> tuple[TCPStore, Connections]:
    """A store, and the way to it: whoever waits for the store fails at once when that is ended.
    Raises RuntimeError if nobody answers."""
    name, _, port = address.rpartition(":")
    try:
        # The store's own client would try again and again where nobody listens.
        socket.create_connection((name, int(port)), CONNECT_S).close()
    except OSError as error:
        raise RuntimeError(f"nobody answers at {address}: {error}") from None
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
    """Where all workers are on this machine, gloo need not ask for the machine's name."""
    if host() in ("127.0.0.1", "localhost"):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def _family(name: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in name else socket.AF_INET
