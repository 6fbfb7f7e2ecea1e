"""The agent's dashboard, read straight: one socket for all streams, as the relay has it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

import orjson

from deploy.bench.processes import Broken, Server
from deploy.bench.streams import STREAM_SECONDS, Flow, Stream
from deploy.bench.websocket import connect, ignore

KIND = b'"params":{"type":"message.delta","session_id":"'
HEAD = 128  # bytes of a frame that hold its kind and its session


class _Board:
    """Calls, their results in order, and deltas by the live session that they belong to."""

    def __init__(self) -> None:
        self.streams: dict[bytes, Stream] = {}  # by live session
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.send: Callable[[bytes], None] = ignore
        self._results: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._running = 0

    def on_text(self, text: bytes) -> None:
        at = text.find(KIND, 0, HEAD)
        if at >= 0:
            start = at + len(KIND)
            self.streams[text[start : text.index(b'"', start)]].scan(text)
            return
        frame = orjson.loads(text)
        if frame.get("method") != "event":
            self._results.put_nowait(frame)
        elif frame["params"]["type"] == "message.complete":
            self._end(frame["params"]["payload"])

    def _end(self, payload: dict[str, Any]) -> None:
        self._running -= 1
        if self.ended.done():
            return
        if payload["status"] != "complete":
            self.ended.set_exception(Broken(f"a turn on the dashboard failed: {payload}"))
        elif not self._running:
            self.ended.set_result(None)

    async def open(self, session: str) -> str:
        """Name of the live session."""
        self._call("session.resume", {"session_id": session})
        frame = await self._results.get()
        if "result" not in frame:
            raise Broken(f"the dashboard did not open a session: {frame}")
        live_id = str(frame["result"]["session_id"])
        self.streams[live_id.encode()] = Stream()
        return live_id

    def submit(self, live_id: str, message: str) -> None:
        self._running += 1
        self._call("prompt.submit", {"session_id": live_id, "text": message})

    def _call(self, method: str, params: dict[str, Any]) -> None:
        self.send(orjson.dumps({"jsonrpc": "2.0", "id": "1", "method": method, "params": params}))


async def direct_dashboard(agent: Server, sessions: Sequence[str], message: str) -> Flow:
    assert agent.dashboard is not None
    at, board = urlsplit(agent.dashboard.url), _Board()
    target = f"/api/ws?token={agent.dashboard.token}"
    socket = await connect(at.hostname or "", at.port or 0, target=target)
    socket.on_text, board.send = board.on_text, socket.send
    try:
        async with asyncio.timeout(STREAM_SECONDS):
            opened = [await board.open(session) for session in sessions]
            started = time.perf_counter()
            for live_id in opened:
                board.submit(live_id, message)
            await board.ended
    finally:
        socket.transport.abort()
    return Flow(list(board.streams.values()), started)
