"""Requests that end in the middle: nothing of one may reach the next, and nobody waits for who has gone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest
from starlette.types import Scope

from app.api import passed as route
from app.api.deps import device_with_chat
from app.bootstrap import Relay
from app.hermes.passing import pool
from app.hermes.passing.connection import MAX_HEAD, Connection
from app.hermes.routes import Route
from app.sessions.service import Principal
from tests.api.passing import Passed, before_played
from tests.api.test_passed import OK, WAIT_S, revoke, scripted
from tests.hermes_client.canned import answer
from tests.relay import RunningRelay
from tests.server.wire import connected


async def opened(passed: Passed, request: str, *lines: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = passed.relay.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = (f"{request} HTTP/1.1", f"Host: {host}", f"Authorization: Bearer {passed.phone.token}", *lines, "", "")
    writer.write("\r\n".join(head).encode())
    return reader, writer


async def test_a_request_that_was_answered_early_is_not_followed_by_another(tmp_path: Path) -> None:
    """Hermes would read the next one, of another device perhaps, as the rest of the first one's body."""
    heard: list[bytes] = []
    first_ended = asyncio.Event()

    async def hermes(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer("404 Not Found", b"{}"))
        if head.startswith(b"POST"):
            heard.append(await reader.read())
            first_ended.set()

    async with before_played(hermes, tmp_path) as passed:
        reader, writer = await opened(passed, "POST /v1/nothing", "Content-Length: 1000")
        writer.write(b"x" * 10)
        assert (await asyncio.wait_for(reader.readline(), WAIT_S)).startswith(b"HTTP/1.1 404 ")
        assert (await asyncio.wait_for(passed.http.get("/v1/models"), WAIT_S)).status_code == 404
        await asyncio.wait_for(first_ended.wait(), WAIT_S)
        assert b"".join(heard).strip(b"x") == b""
        writer.close()


async def test_who_is_gone_before_the_token_was_looked_at_asks_hermes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream that nobody reads would stay open for as long as Hermes has something to say."""
    gone = asyncio.Event()

    async def slowly(relay: Relay, scope: Scope) -> Principal:
        if scope["raw_path"].endswith(b"/events"):
            scope["extensions"]["talaria"].when_gone = gone.set
            await gone.wait()
        return await device_with_chat(relay, scope)

    monkeypatch.setattr(route, "device_with_chat", slowly)
    async with scripted(tmp_path, OK) as (passed, hermes):
        _, writer = await opened(passed, "GET /v1/runs/r/events")
        await writer.drain()
        writer.close()
        await asyncio.wait_for(gone.wait(), WAIT_S)
        assert (await passed.http.get("/v1/models")).status_code == 200
        assert [request.split()[1] for request in hermes.requests] == [b"/v1/models"]


async def test_a_session_that_ends_while_hermes_is_dialled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dialled, answered = asyncio.Event(), asyncio.Event()
    connect = pool._connected

    async def slowly(where: Route) -> Connection:
        dialled.set()
        await answered.wait()
        return await connect(where)

    async with scripted(tmp_path, OK, stays=True) as (passed, hermes), asyncio.TaskGroup() as group:
        monkeypatch.setattr(pool, "_connected", slowly)
        waiting = group.create_task(passed.http.get("/v1/models"))
        await asyncio.wait_for(dialled.wait(), WAIT_S)
        await revoke(passed)
        answered.set()
        said = await asyncio.wait_for(waiting, WAIT_S)
        assert (said.status_code, said.json()["error"]["code"]) == (401, "session_revoked")
        await asyncio.wait_for(hermes.idle(), WAIT_S)


async def test_who_hangs_up_is_counted_as_no_failure(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    asked, left = asyncio.Event(), asyncio.Event()

    async def hermes(_: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()
        left.set()

    async with before_played(hermes, tmp_path) as passed:
        _, writer = await opened(passed, "GET /v1/models")
        await asyncio.wait_for(asked.wait(), WAIT_S)
        writer.close()
        await asyncio.wait_for(left.wait(), WAIT_S)
    assert ("hermes", "500") not in passed.relay.relay.metrics.requests
    assert "request failed" not in caplog.messages


async def test_trailers_of_a_request_are_no_headers(tmp_path: Path) -> None:
    """A proxy in front takes away what a caller may not say of itself, but lets trailers pass."""
    async with scripted(tmp_path, OK) as (passed, hermes):
        reader, writer = await opened(passed, "POST /v1/runs", "Transfer-Encoding: chunked")
        writer.write(b"2\r\n{}\r\n0\r\nX-Late: 1\r\n\r\n")
        assert (await asyncio.wait_for(reader.readline(), WAIT_S)).startswith(b"HTTP/1.1 200 ")
        assert hermes.requests[0].endswith(b"\r\n\r\n{}")
        assert b"x-late" not in hermes.requests[0]
        writer.close()


async def test_a_credential_in_the_trailers_is_none(relay: RunningRelay) -> None:
    phone = await relay.connect()
    late = f"0\r\nAuthorization: Bearer {phone.token}\r\n\r\n"
    async with connected(relay.url) as wire:
        await wire.send(
            f"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n{late}".encode()
        )
        assert (await asyncio.wait_for(wire.reader.readline(), WAIT_S)).startswith(b"HTTP/1.1 401 ")


async def test_trailers_without_end_break_an_answer_off(tmp_path: Path) -> None:
    async def hermes(_: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX-Late: ")
        writer.write(b"y" * (8 * MAX_HEAD))  # what comes in one read with a body is not counted
        await reader.read()  # until the relay hangs up

    async with before_played(hermes, tmp_path) as passed:
        with pytest.raises(httpx.RemoteProtocolError):
            await asyncio.wait_for(passed.http.get("/v1/models"), WAIT_S)


async def test_trailers_are_no_headers(tmp_path: Path) -> None:
    said = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX-Late: 1\r\n\r\n"
    async with scripted(tmp_path, said) as (passed, _):
        found = await passed.http.get("/v1/models")
        assert found.text == "{}"
        assert "x-late" not in found.headers
