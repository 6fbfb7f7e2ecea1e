"""A paired phone at the relay, raw and quick: what it is sent goes to whoever measures."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Any

import orjson

from deploy.bench.processes import Broken, Server
from deploy.bench.websocket import Socket, connect, ignore

SUPPORTS = {"delivery": 1, "turns": 1, "typed_stream_events": True, "event_schema_version": 1}
ANSWER_SECONDS = 15
AT_ONCE = 16


def envelope(channel: str, type_: str, payload: dict[str, Any], id: str = "") -> bytes:
    """With an id of its own unless one is given: what happens once happens once for each id."""
    id = id or secrets.token_hex(8)
    return orjson.dumps({"channel": channel, "type": type_, "id": id, "payload": payload})


async def pair(relay: Server, count: int) -> list[str]:
    """That many new devices; their session tokens."""
    gate = asyncio.Semaphore(AT_ONCE)
    async with relay.http() as http:

        async def one(number: int) -> str:
            async with gate:
                minted = await http.post("/pairing/mint", json={})
                code = minted.raise_for_status().json()["code"]
                body = {"pairing_code": code, "device_id": f"bench-{number}", "supports": SUPPORTS}
                return str((await http.post("/pairing/redeem", json=body)).raise_for_status().json()["session_token"])

        return await asyncio.gather(*map(one, range(count)))


class Phone:
    """An authenticated socket. `auth` is the payload of auth.ok."""

    def __init__(self, socket: Socket, auth: dict[str, Any]) -> None:
        self.socket = socket
        self.auth = auth

    def send(self, channel: str, type_: str, payload: dict[str, Any]) -> None:
        self.socket.send(envelope(channel, type_, payload))

    def hang_up(self) -> None:
        self.socket.transport.abort()


async def dial(
    relay: Server,
    token: str,
    on_text: Callable[[bytes], None] = ignore,
    *,
    deflate: bool = False,
    resume: dict[str, Any] | None = None,
) -> Phone:
    """`on_text` gets every frame after auth.ok."""
    socket = await connect(relay.host, relay.port, deflate=deflate)
    answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def first(text: bytes) -> None:
        socket.on_text = on_text
        answer.set_result(text)

    socket.on_text = first
    payload: dict[str, Any] = {"session_token": token, "supports": SUPPORTS, "instance": "bench"}
    if resume is not None:
        payload["resume"] = resume
    socket.send(envelope("system", "auth", payload))
    async with asyncio.timeout(ANSWER_SECONDS):
        frame = orjson.loads(await answer)
    if frame["type"] != "auth.ok":
        raise Broken(f"the relay did not take a token: {frame}")
    return Phone(socket, frame["payload"])
