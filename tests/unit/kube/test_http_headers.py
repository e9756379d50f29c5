"""Open sockets are closed together with the client."""

import asyncio
import socket

from rota.kube.http import SocketTracker


def test_close_all_closes_open_sockets() -> None:
    async def run() -> None:
        async def stay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        server = await asyncio.start_server(stay, "127.0.0.1", 0)
        place = server.sockets[0].getsockname()
        sockets, loop = SocketTracker(), asyncio.get_running_loop()
        made = sockets((socket.AF_INET, socket.SOCK_STREAM, 0, "", place))
        made.setblocking(False)
        await loop.sock_connect(made, place)
        await loop.create_connection(asyncio.Protocol, sock=made)
        await sockets.close_all()
        assert made.fileno() == -1
        server.close()

    asyncio.run(run())
