"""The floor: uvicorn and nothing else, echoing text. `python -m deploy.bench.bare` prints where it listens."""

from __future__ import annotations

import asyncio
import json
import socket

import uvicorn
import uvloop
from starlette.types import ASGIApp, Receive, Scope, Send


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "text": message["text"]})


def listening(app: ASGIApp) -> None:
    """Serve on a free port, which is printed, until the process is told to end."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(app))


async def _serve(app: ASGIApp) -> None:
    # With the protocol named, asyncio sets TCP_NODELAY on what it accepts.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(2048)
    config = uvicorn.Config(
        app,
        ws="websockets-sansio",
        http="httptools",
        lifespan="off",
        ws_per_message_deflate=False,
        access_log=False,
        log_level="warning",
        timeout_keep_alive=75,
    )
    print(json.dumps({"url": f"http://127.0.0.1:{listener.getsockname()[1]}"}), flush=True)
    await uvicorn.Server(config).serve(sockets=[listener])


if __name__ == "__main__":
    listening(echo)
