"""What plays Hermes' API server where bytes are passed on: bare ASGI that costs as little as it can.

`python -m deploy.bench.origin` prints where it listens.
"""

from __future__ import annotations

import asyncio
import time

import orjson
from starlette.types import Receive, Scope, Send

from deploy.bench.bare import listening

MB = 1_000_000
BLOCK = bytes(MB // 4)
MODELS = orjson.dumps({"object": "list", "data": [{"id": "hermes-agent", "object": "model", "owned_by": "hermes"}]})
JSON, EVENTS = b"application/json", b"text/event-stream"


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """`/v1/bytes/N` gives or takes N MB, `/v1/events/N/MS` gives N stamped events; anything else is a small answer."""
    match scope["path"].split("/")[2:]:
        case ["bytes", count] if scope["method"] == "GET":
            await _start(send, b"application/octet-stream", int(count) * MB)
            for _ in range(int(count) * MB // len(BLOCK)):
                await send({"type": "http.response.body", "body": BLOCK, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        case ["bytes", _]:
            await _answer(send, orjson.dumps({"taken": await _taken(receive)}))
        case ["events", count, interval_ms]:
            await _start(send, EVENTS)
            for number in range(int(count)):
                await asyncio.sleep(int(interval_ms) / 1000)
                event = b'data: {"delta":"t=%d ","seq":%d}\n\n' % (time.monotonic_ns(), number)
                await send({"type": "http.response.body", "body": event, "more_body": True})
            await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})
        case _:
            await _answer(send, MODELS)


async def _taken(receive: Receive) -> int:
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    return size


async def _answer(send: Send, body: bytes) -> None:
    await _start(send, JSON, len(body))
    await send({"type": "http.response.body", "body": body})


async def _start(send: Send, kind: bytes, length: int | None = None) -> None:
    headers = [(b"content-type", kind)] + ([] if length is None else [(b"content-length", b"%d" % length)])
    await send({"type": "http.response.start", "status": 200, "headers": headers})


if __name__ == "__main__":
    listening(app)
