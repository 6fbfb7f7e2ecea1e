"""What an idle authenticated socket weighs when the client offers compression, which the relay declines."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from deploy.bench import processes
from deploy.bench.lab import Lab
from deploy.bench.machine import resident_kib
from deploy.bench.phone import dial, envelope
from deploy.bench.processes import Server
from deploy.bench.report import Row, at_most, compared
from deploy.bench.websocket import Socket, connect

SOCKETS = 1000
AT_ONCE = 50
SETTLE_SECONDS = 2.0
RUNS = 2  # each on a new process: a heap that has held a thousand sockets has room for the next thousand
MESSAGE = envelope("system", "ping", {"ts": 1})


async def measure(lab: Lab) -> list[Row]:
    paired = await lab.paired(SOCKETS)
    ours, bare = [], []
    for _ in range(RUNS):
        async with lab.bare_echo() as server:
            bare.append(await _weigh(server, [partial(_bare, server)] * SOCKETS))
        async with processes.relay(paired.scratch) as relay:
            (await dial(relay, paired.tokens[0])).hang_up()  # what is made once is not what a socket weighs
            ours.append(await _weigh(relay, [partial(_phone, relay, token) for token in paired.tokens]))
    return [
        compared(
            f"idle socket, {SOCKETS:,} open, deflate offered", "KiB", ours, bare, "bare", aim=at_most(38)
        )
    ]  # fmt: skip


async def _weigh(server: Server, openers: list[Callable[[], Awaitable[Socket]]]) -> float:
    """KiB of the server's resident memory to a socket."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(opener: Callable[[], Awaitable[Socket]]) -> Socket:
        async with gate:
            return await opener()

    await asyncio.sleep(0.5)
    before = resident_kib(server.pid)
    sockets = await asyncio.gather(*map(one, openers))
    await asyncio.sleep(SETTLE_SECONDS)
    after = resident_kib(server.pid)
    lost = sum(socket.closed.done() for socket in sockets)
    for socket in sockets:
        socket.transport.abort()
    if lost:
        raise processes.Broken(f"{lost} of {len(sockets)} idle sockets were closed")
    return (after - before) / len(sockets)


async def _phone(relay: Server, token: str) -> Socket:
    return (await dial(relay, token, deflate=True)).socket


async def _bare(server: Server) -> Socket:
    """After one message each way, which is what authenticating is."""
    socket = await connect(server.host, server.port, deflate=True)
    echoed: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    socket.on_text = echoed.set_result
    socket.send(MESSAGE)
    await echoed
    return socket
