"""The floor of a fan-out: a loop and raw sockets. `python -m deploy.bench.fan` prints where it listens.

JSON from any client, {frame, count, stride, clients}, sends the frame that often to every client, once there are so
many: `stride` of them in one write, and then others run, as between two reads of a stream.
"""

from __future__ import annotations

import asyncio
import json
import socket
from typing import cast

import uvloop


class Fan:
    def __init__(self) -> None:
        self.clients: list[Client] = []
        self.asked: asyncio.Queue[bytes] = asyncio.Queue()
        self.changed = asyncio.Event()  # who is connected

    async def send(self, frame: bytes, count: int, stride: int, clients: int) -> None:
        while len(self.clients) != clients:
            self.changed.clear()
            await self.changed.wait()
        for begin in range(0, count, stride):
            block = frame * min(stride, count - begin)
            for client in self.clients:
                client.transport.write(block)
            await asyncio.sleep(0)
            for client in self.clients.copy():
                await client.has_room.wait()


class Client(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(self, fan: Fan) -> None:
        self._fan = fan
        self.has_room = asyncio.Event()
        self.has_room.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._fan.clients.append(self)
        self._fan.changed.set()

    def data_received(self, data: bytes) -> None:
        self._fan.asked.put_nowait(data)

    def pause_writing(self) -> None:
        self.has_room.clear()

    def resume_writing(self) -> None:
        self.has_room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fan.clients.remove(self)
        self._fan.changed.set()
        self.has_room.set()


async def main() -> None:
    # With the protocol named, asyncio sets TCP_NODELAY on what it accepts.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(2048)
    fan = Fan()
    await asyncio.get_running_loop().create_server(lambda: Client(fan), sock=listener)
    print(json.dumps({"url": f"http://127.0.0.1:{listener.getsockname()[1]}"}), flush=True)
    while True:
        asked = json.loads(await fan.asked.get())
        await fan.send(asked["frame"].encode(), asked["count"], asked["stride"], asked["clients"])


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
