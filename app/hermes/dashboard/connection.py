"""The one socket to the dashboard: JSON-RPC calls out, answers and events in."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import orjson
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed
from websockets.protocol import State

from app.errors import RelayError
from app.hermes.dashboard.errors import Unanswered, call_error
from app.hermes.errors import StreamBroken, UpstreamAuthRequired, UpstreamBusy, UpstreamInvalid, UpstreamUnreachable
from app.wire.depth import shallow

log = logging.getLogger("talaria.hermes.dashboard")

Json = dict[str, Any]

CALL_S = 30.0  # Hermes builds an agent within some calls; above it is stuck
MAX_PENDING = 256  # calls without an answer; a further one is refused as busy
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
LONGEST_WAIT_S = 600.0  # whatever Hermes asks for: its owner may have changed what it minds meanwhile
STEADY_S = 30.0  # a socket that stayed open for so long was of use, although nobody called


class Listener(Protocol):
    """Who hears the events of one live session. Called in the read loop: nothing here may wait."""

    def heard(self, kind: str, payload: Json) -> None: ...

    def lost(self, error: Exception) -> None:
        """Nothing more will be heard."""


class Connection:
    """`connect` gives an open socket, or raises RelayError; it is called again after each loss.

    After a loss the first try is at once, if the socket had been of use; then after 1 to 30 s, longer each time.
    `became` hears what each try came to, and of each loss. `observe` sees every event of a session before its
    listener does.
    """

    def __init__(
        self, connect: Callable[[], Awaitable[ClientConnection]], *, became: Callable[[RelayError | None], None],
        observe: Callable[[str, str, Json], None], sleep: Callable[[float], Awaitable[None]],
    ) -> None:  # fmt: skip
        self._connect, self._became, self._observe, self._sleep = connect, became, observe, sleep
        self._socket: ClientConnection | None = None
        self._pending: dict[str, asyncio.Future[Any]] = {}
        self._listeners: dict[str, Listener] = {}
        self._last = 0
        self._useful = False

    @property
    def is_open(self) -> bool:
        return self._socket is not None and self._socket.state is State.OPEN

    @property
    def is_idle(self) -> bool:
        """Nobody waits for an answer, and nobody listens."""
        return not self._pending and not self._listeners

    async def renew(self) -> None:
        """Close the socket; `connect` is asked for another at once."""
        if (socket := self._socket) is not None:
            self._is_useful()
            await socket.close()

    async def run(self) -> None:
        """Until it is cancelled."""
        pause = FIRST_PAUSE_S
        try:
            while True:
                try:
                    self._socket = await self._connect()
                except RelayError as exc:
                    self._became(exc)
                    await self._sleep(self._jittered(max(pause, _at_least(exc))))
                    pause = min(pause * 2, LONGEST_PAUSE_S)
                    continue
                self._useful = False
                self._became(None)
                steady = asyncio.get_running_loop().call_later(STEADY_S, self._is_useful)
                await self._read(self._socket)
                steady.cancel()
                self._lose()
                self._became(UpstreamUnreachable("the dashboard of Hermes has closed its socket"))
                if self._useful:
                    pause = FIRST_PAUSE_S
                else:  # it opens and breaks: at once again would be a storm
                    await self._sleep(self._jittered(pause))
                    pause = min(pause * 2, LONGEST_PAUSE_S)
        finally:
            if (socket := self._socket) is not None:
                self._lose()
                await socket.close()

    async def call(self, method: str, params: Json, *, timeout_s: float = CALL_S) -> Any:
        """Its result. Raises UpstreamUnreachable and UpstreamBusy if it was not sent, Unanswered if it was, and the
        error that Hermes answers with.
        """
        if (socket := self._socket) is None or socket.state is not State.OPEN:
            raise UpstreamUnreachable("the socket to the dashboard of Hermes is not open")
        if len(self._pending) >= MAX_PENDING:
            raise UpstreamBusy("too many requests to the dashboard wait for an answer")
        self._last += 1
        id, answer = str(self._last), asyncio.get_running_loop().create_future()
        self._pending[id] = answer
        request = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        try:
            async with asyncio.timeout(timeout_s):
                await socket.send(orjson.dumps(request), text=True)
                return await answer
        except (TimeoutError, ConnectionClosed) as exc:
            raise Unanswered(detail=f"{method}: {type(exc).__name__}") from exc
        finally:
            self._pending.pop(id, None)
            if not answer.cancel() and not answer.cancelled():
                answer.exception()  # looked at, though nobody waits for it any more

    def listen(self, live_id: str, listener: Listener) -> None:
        """Raises UpstreamBusy if another turn of this session is listened to."""
        if live_id in self._listeners:
            raise UpstreamBusy("another turn of this conversation is running")
        self._listeners[live_id] = listener

    def unlisten(self, live_id: str, listener: Listener) -> None:
        if self._listeners.get(live_id) is listener:
            del self._listeners[live_id]

    async def _read(self, socket: ClientConnection) -> None:
        while True:
            try:
                raw = await socket.recv(decode=False)
            except ConnectionClosed:
                return
            self._take(raw)

    def _take(self, raw: bytes) -> None:
        try:
            frame = orjson.loads(raw)
        except orjson.JSONDecodeError:
            frame = None
        if not isinstance(frame, dict):
            log.debug("hermes sent a frame that cannot be read", extra={"bytes": len(raw)})
        elif frame.get("method") == "event":
            self._event(frame.get("params"), len(raw))
        elif isinstance(id := frame.get("id"), str) and (answer := self._pending.get(id)) is not None:
            self._is_useful()
            if answer.done():
                return
            if "error" in frame:
                answer.set_exception(call_error(frame["error"]))
            else:
                answer.set_result(frame.get("result"))

    def _event(self, params: Any, length: int) -> None:
        if not isinstance(params, dict):
            return
        kind, live_id, payload = params.get("type"), params.get("session_id"), params.get("payload")
        if not isinstance(kind, str) or not isinstance(live_id, str) or not live_id:
            return
        payload = shallow(payload, length) if isinstance(payload, dict) else {}
        try:
            self._observe(kind, live_id, payload)
        except Exception:  # it costs one event, not the socket that all turns share
            log.exception("an event of the dashboard was not understood", extra={"kind": kind[:64]})
        if (listener := self._listeners.get(live_id)) is None:
            return
        try:
            listener.heard(kind, payload)
        except Exception as exc:  # the turn fails, not the socket that all turns share
            del self._listeners[live_id]
            listener.lost(exc)

    def _lose(self) -> None:
        self._socket = None
        pending, self._pending = self._pending, {}
        listeners, self._listeners = self._listeners, {}
        for answer in pending.values():
            if not answer.done():
                answer.set_exception(Unanswered())
        for listener in listeners.values():
            listener.lost(StreamBroken())

    def _is_useful(self) -> None:
        self._useful = True

    def _jittered(self, seconds: float) -> float:
        return seconds * random.uniform(0.8, 1.2)  # noqa: S311 - spreads retries, hides nothing


def _at_least(exc: RelayError) -> float:
    """Seconds before another try can help."""
    wants_the_owner = isinstance(exc, UpstreamAuthRequired | UpstreamInvalid)
    return max(min(exc.retry_after or 0.0, LONGEST_WAIT_S), LONGEST_PAUSE_S if wants_the_owner else 0.0)
