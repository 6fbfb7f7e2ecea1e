"""What the server below us takes from anyone without a bound, and does not end by itself."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from app.gateway.limits import Limits
from app.server.http import MAX_HEAD
from app.server.websocket import MAX_PIECES
from tests.gateway.held import held_writer
from tests.phone import Phone
from tests.relay import RunningRelay, running, settings_for
from tests.server.wire import CLOSE, CONTINUATION, PING, PONG, TEXT, connected, frame, upgraded


def protocol(relay: RunningRelay) -> Any:
    """The server's side of the only connection."""
    (found,) = relay.server.server_state.connections
    return found


async def stop(relay: RunningRelay, phone: Phone) -> asyncio.Event:
    """The phone reads no more, and more is on its way than the network takes. The event says that its link is gone."""
    await phone.until("synced")
    phone.socket.transport.pause_reading()
    peer = relay.relay.hub.of_device(phone.auth["device_id"])[0]
    gone = asyncio.Event()
    peer.when_closed(lambda clean: gone.set())
    while peer.offer(b'"' + b"x" * 20_000 + b'"'):
        pass
    return gone


@pytest.mark.parametrize("goodbye", ["close", "half-close"])
async def test_a_stopped_reader_that_takes_its_leave_is_let_go(relay: RunningRelay, goodbye: str) -> None:
    """A transport that closes waits until its buffer is empty: for this one it would wait for ever."""
    phone = await relay.connect()
    gone = await stop(relay, phone)
    if goodbye == "close":
        phone.socket.transport.write(frame(CLOSE, b"\x03\xe8"))
    else:
        phone.socket.transport.write_eof()
    async with asyncio.timeout(5):
        await gone.wait()
    assert len(relay.relay.hub) == 0


async def test_a_stopped_reader_that_answers_no_ping_is_let_go(tmp_path: Path) -> None:
    """What may be dropped evicts nobody, so the heartbeat has to."""

    def hasty(chosen: Any) -> None:
        chosen.ws_ping_interval = chosen.ws_ping_timeout = 0.2

    async with running(settings_for(tmp_path), tune=hasty) as relay:
        gone = await stop(relay, await relay.connect())
        async with asyncio.timeout(5):
            await gone.wait()


async def test_a_stopped_reader_does_not_hold_up_the_end_of_the_relay(tmp_path: Path) -> None:
    def patient(chosen: Any) -> None:
        chosen.timeout_graceful_shutdown = 60

    async with running(settings_for(tmp_path), limits=Limits(drain_seconds=0.1), tune=patient) as relay:
        gone = await stop(relay, await relay.connect())
        relay.server.should_exit = True
        async with asyncio.timeout(15):
            await gone.wait()


async def test_the_end_waits_for_the_clients_answer(tmp_path: Path) -> None:
    """Closing over frames that were not read resets the connection, and then the code may never be seen."""
    async with running(settings_for(tmp_path)) as relay, upgraded(relay.url) as wire:
        relay.server.should_exit = True
        opcode, data = await wire.next()
        while opcode != CLOSE:
            opcode, data = await wire.next()
        assert int.from_bytes(data[:2], "big") == 1012
        assert len(relay.server.server_state.connections) == 1
        await wire.send(frame(CLOSE, data))
        assert await wire.rest() == b""


async def test_a_flood_of_pings_that_reads_no_pongs_costs_no_memory(relay: RunningRelay) -> None:
    async with upgraded(relay.url) as wire:
        wire.stop_reading()
        flood, held = frame(PING, b"x" * 125) * 2000, 0
        for _ in range(60):  # 16 MB: more than the network takes
            await wire.send(flood)
            held = max(held, protocol(relay).transport.get_write_buffer_size())
        assert held < 1_000_000


async def test_a_message_of_countless_fragments_costs_no_more_than_its_size(relay: RunningRelay) -> None:
    async with upgraded(relay.url) as wire:
        await wire.send(frame(TEXT, b"no ", fin=False))
        seen = 0
        for _ in range(10):
            await wire.send(frame(CONTINUATION, fin=False) * MAX_PIECES + frame(PING))
            await wire.next()
            seen = max(seen, len(protocol(relay).frames))
        assert seen <= MAX_PIECES
        await wire.send(frame(CONTINUATION, b"frame"))
        assert b"frame_invalid" in (await wire.next())[1]


async def test_few_frames_are_read_behind_a_credential_that_is_being_checked(relay: RunningRelay) -> None:
    auth = {"channel": "system", "type": "auth", "payload": {"pairing_code": "ABCD1234"}}
    async with upgraded(relay.url) as wire:
        async with held_writer(relay):
            waiting = frame(TEXT, b"{}") * Limits().waiting_frames
            await wire.send(frame(TEXT, json.dumps(auth).encode()) + waiting + frame(PING))
            assert await wire.next() == (PONG, b"")
            assert protocol(relay).read_paused
        assert b"auth.fail" in (await wire.next())[1]


async def test_an_upgrade_with_too_much_in_its_head_is_refused(relay: RunningRelay) -> None:
    """The library refuses it; the server left the connection open and said nothing."""
    with pytest.raises(InvalidStatus) as refused:
        await relay.open(additional_headers={"X-Long": "y" * 10_000})
    assert refused.value.response.status_code == 431
    assert relay.server.server_state.connections == set()


async def test_the_head_of_a_request_is_bounded(relay: RunningRelay) -> None:
    async with connected(relay.url) as wire:
        await wire.send(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: " + b"y" * (MAX_HEAD + 1))
        assert error_of(await wire.rest()) == (431, "head_too_large")


@pytest.mark.parametrize("begins", [b"X-Long: ", b"1;long="], ids=["trailers", "extension"])
async def test_what_is_of_no_body_is_bounded_after_the_head_too(relay: RunningRelay, begins: bytes) -> None:
    """The parser keeps a header until it ends, and the answer to a stranger has long been given."""
    async with connected(relay.url) as wire:
        last = b"" if b";" in begins else b"0\r\n"
        await wire.send(b"POST /messages HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n" + last)
        await wire.send(begins)
        with suppress(ConnectionError):
            await wire.send(b"y" * (8 * MAX_HEAD))  # what comes in one read with the head is not counted
            await wire.rest()
        assert wire.reader.at_eof() or wire.reader.exception() is not None


@pytest.mark.parametrize(
    "lines",
    [
        b"hello",
        b"GET /health HTTP/9.9",
        b"POST /v1/runs HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked",
        b"POST /v1/runs HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6",
        b"POST /v1/runs HTTP/1.1\r\nContent-Length: -1",
        b"POST /v1/runs HTTP/1.1\r\nTransfer-Encoding: gzip, chunked",
        b"GET /health HTTP/1.1\r\nX-Folded: a\r\n Authorization: b",
        b"GET /health HTTP/1.1\r\nX-Bare: a\rAuthorization: b",
        b"GET /health HTTP/1.1\r\nX-Nul: a\x00b",
        b"POST /v1/runs HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 5",
        b"POST /v1/runs HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nTransfer-Encoding: chunked",
    ],
)
async def test_what_is_no_http_is_refused_by_a_code(relay: RunningRelay, lines: bytes) -> None:
    """Two readers could take it for different requests, so nothing of it is passed on."""
    async with connected(relay.url) as wire:
        await wire.send(lines + b"\r\nHost: 127.0.0.1\r\n\r\nabcde")
        assert error_of(await wire.rest()) == (400, "request_invalid")


def error_of(answer: bytes) -> tuple[int, str]:
    """Status and code of the only answer on a connection."""
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    error = json.loads(body)["error"]
    assert headers["x-talaria-error"] == error["code"]
    assert headers["x-request-id"] == error["request_id"]
    assert (headers["connection"], headers["x-content-type-options"]) == ("close", "nosniff")
    assert int(headers["content-length"]) == len(body)
    return int(status.split()[1]), error["code"]


async def test_the_head_of_a_request_has_to_come_in_time(relay: RunningRelay, monkeypatch: pytest.MonkeyPatch) -> None:
    async with connected(relay.url) as again:
        await again.send(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert b'"ok"' in await again.reader.readuntil(b"}")
        monkeypatch.setattr("app.server.http.HEAD_SECONDS", 0.1)
        async with connected(relay.url) as silent, connected(relay.url) as slow:
            await slow.send(b"GET /health HTTP/1.1\r\n")
            for wire in (silent, slow):
                assert await wire.rest() == b""
        await again.send(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert b'"ok"' in await again.reader.readuntil(b"}")  # its first head came in time: nothing cuts it


async def test_a_refused_upgrade_is_no_error_of_ours(relay: RunningRelay, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for path in ("/nowhere", "/ws/"):
            with pytest.raises(InvalidStatus):
                await relay.open(path)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_link_that_goes_while_it_is_closed_is_no_error_of_ours(
    relay: RunningRelay, caplog: pytest.LogCaptureFixture
) -> None:
    phone = await relay.connect()
    gone = await stop(relay, phone)
    peer = relay.relay.hub.of_device(phone.auth["device_id"])[0]
    with caplog.at_level(logging.WARNING):
        peer.end(4401, "revoked")
        closing = [task for task in relay.relay.tasks._tasks if task.get_name() == "close"]
        await phone.hang_up()
        await gone.wait()
        await asyncio.wait(closing)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
