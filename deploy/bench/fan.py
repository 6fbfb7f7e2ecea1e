"""The floor of a fan-out: a loop and raw sockets. `python -m deploy.bench.fan` prints where it listens.

A line of JSON from any client, {frame, count, stride}, sends the frame that often to every client; after each `stride`
of them others run, as between two reads of a stream.
"""

from __future__ import annotations

import asyncio
import json
import socket
from typing import cast

import uvloop


class Client(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(self, clients: list[Client], asked: asyncio.Queue[bytes]) -> None:
        self._clients, self._asked = clients, asked
        self.has_room = asyncio.Event()
        self.has_room.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._clients.append(self)

    def data_received(self, data: bytes) -> None:
        self._asked.put_nowait(data)

    def pause_writing(self) -> None:
        self.has_room.clear()

    def resume_writing(self) -> None:
        self.has_room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._clients.remove(self)
        self.has_room.set()


async def main() -> None:
    # With the protocol named, asyncio sets TCP_NODELAY on what it accepts.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(2048)
    clients: list[Client] = []
    asked: asyncio.Queue[bytes] = asyncio.Queue()
    await asyncio.get_running_loop().create_server(lambda: Client(clients, asked), sock=listener)
    print(json.dumps({"url": f"http://127.0.0.1:{listener.getsockname()[1]}"}), flush=True)
    while True:
        order = json.loads(await asked.get())
        frame, count, stride = order["frame"].encode(), order["count"], order["stride"]
        for begin in range(0, count, stride):
            for _ in range(min(stride, count - begin)):
                for client in clients:
                    client.transport.write(frame)
            await asyncio.sleep(0)
            for client in clients.copy():
                await client.has_room.wait()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
