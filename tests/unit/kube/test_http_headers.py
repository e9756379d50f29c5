"""Sockets that a client leaves open are closed with it."""

import asyncio
import socket

from rota.engines.kubernetes.wires import Wires


def test_a_socket_that_is_left_open_is_gone_when_they_are_cut() -> None:
    async def run() -> None:
        async def stay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        server = await asyncio.start_server(stay, "127.0.0.1", 0)
        place = server.sockets[0].getsockname()
        wires, loop = Wires(), asyncio.get_running_loop()
        made = wires((socket.AF_INET, socket.SOCK_STREAM, 0, "", place))
        made.setblocking(False)
        await loop.sock_connect(made, place)
        await loop.create_connection(asyncio.Protocol, sock=made)
        await wires.cut()
        assert made.fileno() == -1
        server.close()

    asyncio.run(run())
