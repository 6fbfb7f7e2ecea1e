"""What uvicorn really does, and that our server does something about each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from app.bootstrap import open_relay
from app.channels.base import Call, receives
from app.channels.system import System
from app.errors import Misconfigured, StorageFailed
from app.gateway.limits import Limits
from app.server.serving import PING_SECONDS, PONG_SECONDS, config
from app.server.websocket import WebSocketProtocol
from app.wire.envelope import encode
from tests.logs.conftest import configured
from tests.phone import authenticate
from tests.relay import RunningRelay, running, settings_for
from tests.server.wire import CLOSE, frame


async def test_clients_are_told_before_their_sockets_close(tmp_path: Path) -> None:
    """uvicorn sends 1012 to every socket first thing; the notice has to come before it."""
    async with running(settings_for(tmp_path)) as relay:
        phone = await relay.connect()
        await phone.until("synced")
        relay.server.should_exit = True
        assert await phone.closed() == (1012, "")
        last = phone.frames[-1]
        assert (last.channel, last.type) == ("system", "drain")
        assert last.payload["retry_after_ms"] > 0


async def test_a_draining_relay_takes_no_new_sockets_and_says_when_to_come_back(relay: RunningRelay) -> None:
    phone = await relay.connect()
    await relay.relay.drain()
    with pytest.raises(InvalidStatus) as refused:
        await relay.open()
    assert refused.value.response.status_code == 503
    assert int(refused.value.response.headers["Retry-After"]) >= 1
    async with httpx.AsyncClient(base_url=relay.url) as http:
        assert (await http.get("/readyz")).status_code == 503
        assert (await http.get("/livez")).status_code == 200
    await phone.ping()  # what is open goes on until the server ends it


async def test_who_authenticates_while_the_relay_drains_is_told_too(relay: RunningRelay) -> None:
    phone = await relay.open()
    code = (await relay.relay.pairing.mint()).code
    await relay.relay.drain()
    await authenticate(phone, pairing_code=code)
    assert (await phone.until("drain")).payload["retry_after_ms"] > 0


async def test_what_is_written_together_comes_in_order(relay: RunningRelay) -> None:
    """The first frame of a pass of the loop goes at once, those behind it together, below and above what that takes."""
    phone = await relay.connect()
    await phone.until("synced")
    peer = relay.relay.hub.of_device(phone.auth["device_id"])[0]
    sizes = [1, 200, 70_000, 2, 30_000, 30_000, 30_000, 3]
    for size in sizes:
        peer.send(encode("system", "sized", {"filling": "x" * size}))
    assert [len((await phone.until("sized")).payload["filling"]) for _ in sizes] == sizes


@pytest.mark.parametrize(("ends", "code"), [("client", 1000), ("server", 1012)])
async def test_a_close_frame_comes_behind_what_is_written_together(relay: RunningRelay, ends: str, code: int) -> None:
    phone = await relay.connect()
    await phone.until("synced")
    peer = relay.relay.hub.of_device(phone.auth["device_id"])[0]
    (protocol,) = relay.server.server_state.connections
    for n in range(3):
        peer.send(encode("system", "numbered", {"n": n}))
    if ends == "client":
        protocol.data_received(frame(CLOSE, b"\x03\xe8"))  # in the same pass of the loop
    else:
        protocol.shutdown()
    assert await phone.closed() == (code, "")
    assert [one.payload["n"] for one in phone.frames if one.type == "numbered"] == [0, 1, 2]


async def test_a_stopped_reader_does_not_hold_up_the_end(tmp_path: Path) -> None:
    """It blocks `send` and `close` alike: only abort() ends it."""
    async with running(settings_for(tmp_path), limits=Limits(close_seconds=0.2)) as relay:
        phone = await relay.connect()
        phone.socket.transport.pause_reading()
        peer = relay.relay.hub.of_device(phone.auth["device_id"])[0]
        gone = asyncio.Event()
        peer.when_closed(lambda clean: gone.set())
        while peer.outbound.idle:  # type: ignore[attr-defined]
            peer.send(b'"' + b"x" * 100_000 + b'"')
        peer.end(4401, "revoked")
        async with asyncio.timeout(15):
            await gone.wait()


class Busy(System):
    """A channel whose handler does not come back until it is let."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.entered, self.leave = asyncio.Event(), asyncio.Event()

    @receives("wait", None)
    async def wait(self, payload: Mapping[str, Any], call: Call) -> None:
        self.entered.set()
        await self.leave.wait()
        call.answer("waited", {})


class CountingPongs(WebSocketProtocol):
    seen: asyncio.Semaphore

    def handle_pong(self, event: Any) -> None:
        super().handle_pong(event)
        CountingPongs.seen.release()


async def test_pongs_are_read_while_a_handler_is_busy(tmp_path: Path) -> None:
    """Reading pauses after each message until the app takes it: the reader must never wait for a handler."""
    CountingPongs.seen = asyncio.Semaphore(0)

    def hasty(chosen: Any) -> None:
        chosen.ws, chosen.ws_ping_interval, chosen.ws_ping_timeout = CountingPongs, 0.05, 60

    async with running(settings_for(tmp_path), tune=hasty) as relay:
        busy = Busy(relay.relay.clock, relay.relay.push, relay.relay.tasks, relay.relay.renewals)
        relay.relay.gateway.dispatch.replace(busy)
        phone = await relay.connect()
        await phone.send("system", "wait", id="w")
        await busy.entered.wait()
        for i in range(10):  # behind the busy handler; left unread, they would hide the pongs behind them
            await phone.send("system", "ping", id=f"p{i}")
        async with asyncio.timeout(15):
            for _ in range(10):
                await CountingPongs.seen.acquire()
        busy.leave.set()
        assert (await phone.until("waited")).id == "w"
        assert [(await phone.until("pong")).id for _ in range(10)] == [f"p{i}" for i in range(10)]


def test_heartbeats_survive_a_long_stall() -> None:
    chosen = config(lambda: None)
    assert chosen.ws_ping_interval == PING_SECONDS
    assert chosen.ws_ping_timeout == PONG_SECONDS >= 3 * 20


async def test_no_forwarding_header_is_believed_by_the_server(relay: RunningRelay) -> None:
    """proxy_headers is on by default and believes any loopback peer, also about the scheme."""
    phone = await relay.open(additional_headers={"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "https"})
    stranger = next(iter(relay.relay.gateway._strangers.values()))
    assert (stranger.address.host, stranger.secure) == ("127.0.0.1", False)
    await phone.hang_up()


async def test_nothing_of_a_url_is_logged(tmp_path: Path) -> None:
    """It logs path and query of every upgrade, whatever access_log says."""
    with configured("text", "debug") as written:
        async with running(settings_for(tmp_path)) as relay:
            async with connect(relay.url.replace("http", "ws") + "/ws?token=hunter2", proxy=None) as socket:
                await socket.close()
            async with httpx.AsyncClient() as http:
                await http.get(relay.url + "/health?token=hunter2")
        logging.getLogger("talaria.test").debug("this is")
    assert "this is" in written.text
    assert "hunter2" not in written.text


async def test_compression_is_not_taken_up(relay: RunningRelay) -> None:
    """58 KiB an idle socket against 20."""
    async with connect(relay.url.replace("http", "ws") + "/ws", compression="deflate", proxy=None) as socket:
        assert socket.response is not None
        assert "Sec-WebSocket-Extensions" not in socket.response.headers


async def test_small_answers_do_not_wait_for_more(relay: RunningRelay) -> None:
    """TCP_NODELAY: asyncio sets it only on sockets whose protocol is named."""
    import socket

    await relay.connect()
    protocol = next(iter(relay.server.server_state.connections))
    raw = protocol.transport.get_extra_info("socket")
    assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


async def test_of_two_relays_on_one_data_directory_the_second_refuses(relay: RunningRelay) -> None:
    phone = await relay.connect()
    with pytest.raises(Misconfigured, match="another Talaria"):
        async with open_relay(relay.relay.settings):
            pass
    await phone.ping()


async def test_a_relay_that_cannot_store_is_not_ready(relay: RunningRelay) -> None:
    await relay.relay.db.write(lambda tx: tx.execute(text("PRAGMA query_only=ON")).close())
    with pytest.raises(StorageFailed):
        await relay.relay.pairing.mint()
    async with httpx.AsyncClient(base_url=relay.url) as http:
        refused = await http.get("/readyz")
    assert (refused.status_code, refused.json()["database"]) == (503, "storage_failed")


async def test_a_connection_is_kept_for_longer_than_a_proxy_does(relay: RunningRelay) -> None:
    """Caddy's idle connections end after 120 s: who closes first must not be us."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(relay.url.rpartition(":")[2]))
    writer.write(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert relay.server.config.timeout_keep_alive > 120
    writer.close()
