"""The Hermes API through the relay: what reaches Hermes, what comes back, and what neither may be made to do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api import passed as route
from app.db import Tx
from app.hermes.passing import pool
from app.sessions import opaque
from app.sessions.service import Principal
from tests.api.conftest import client_of
from tests.api.passing import GREETING, KEY, Passed, before_played, let_alone, over_stand_in, passing
from tests.hermes_client.canned import END, STREAM, Canned, answer, canned, chunk
from tests.relay import running, settings_for

OK = answer("200 OK", b"{}", "Content-Type: application/json")
WAIT_S = 15.0


@asynccontextmanager
async def before(hermes: Canned, tmp_path: Path, **environ: str) -> AsyncIterator[Passed]:
    script, stays, in_turn = hermes.pieces, hermes.stays, hermes.in_turn
    hermes.pieces, hermes.stays, hermes.in_turn = (GREETING,), False, False
    async with passing(f"http://127.0.0.1:{hermes.port}", tmp_path, **environ) as passed:
        await let_alone(passed)
        await hermes.idle()
        hermes.pieces, hermes.stays, hermes.in_turn = script, stays, in_turn
        hermes.requests.clear()
        yield passed


@asynccontextmanager
async def scripted(tmp_path: Path, *pieces: bytes, **options: Any) -> AsyncIterator[tuple[Passed, Canned]]:
    """The relay looks at Hermes when it starts; after that each connection gets `pieces`."""
    async with canned(*pieces, **options) as hermes, before(hermes, tmp_path) as passed:
        yield passed, hermes


async def test_the_request_arrives_as_it_was_under_the_relays_key(tmp_path: Path) -> None:
    async with scripted(tmp_path, OK) as (passed, hermes):
        said = await passed.http.request(
            "PATCH", "/api/sessions/a%20b?x=1&y=%2F&x=2", content=b'{"title": 1}',
            headers={
                "X-Hermes-Session-Key": "k", "Cookie": "a=b", "X-Forwarded-For": "1.2.3.4", "Connection": "X-Mine",
                "X-Mine": "1", "Content-Type": "application/json",
            },
        )  # fmt: skip
        assert said.status_code == 200
        head, _, body = hermes.requests[0].partition(b"\r\n\r\n")
        first, *lines = head.decode().lower().split("\r\n")
        assert first == "patch /api/sessions/a%20b?x=1&y=%2f&x=2 http/1.1"
        names = {line.partition(":")[0] for line in lines}
        assert f"authorization: bearer {KEY}" in lines
        assert "x-hermes-session-key: k" in lines
        assert "content-length: 12" in lines
        assert names.isdisjoint({"cookie", "x-forwarded-for", "x-mine", "connection", "origin"})
        assert body == b'{"title": 1}'
        assert passed.phone.token.encode() not in hermes.requests[0]


async def test_a_request_of_unsaid_length_is_passed_on_as_it_comes(tmp_path: Path) -> None:
    taken = asyncio.Event()

    async def hermes(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert b"transfer-encoding: chunked" in head.lower()
        assert await reader.readuntil(b"first\r\n") == b"5\r\nfirst\r\n"
        taken.set()
        assert await reader.readuntil(END) == b"6\r\nsecond\r\n" + END
        writer.write(OK)

    async def body() -> AsyncIterator[bytes]:
        yield b"first"
        await asyncio.wait_for(taken.wait(), WAIT_S)  # it is there before the rest is sent
        yield b"second"

    async with before_played(hermes, tmp_path) as passed:
        assert (await passed.http.post("/v1/runs", content=body())).status_code == 200


async def test_an_answer_comes_piece_by_piece_with_the_relays_headers(tmp_path: Path) -> None:
    head = STREAM.replace(b"\r\n\r\n", b"\r\nSet-Cookie: a=b\r\nX-Hermes-Session-Id: s\r\nServer: x\r\n\r\n")
    async with scripted(tmp_path, head + chunk(b"data: 1\n\n"), stays=True) as (passed, hermes):
        async with passed.http.stream("GET", "/v1/runs/r/events") as said:
            assert await anext(said.aiter_raw()) == b"data: 1\n\n"
            assert said.headers["x-accel-buffering"] == "no"
            assert said.headers["x-hermes-session-id"] == "s"
            assert said.headers["x-content-type-options"] == "nosniff"
            assert said.headers["referrer-policy"] == "no-referrer"
            assert said.headers["content-security-policy"] == "sandbox; default-src 'none'"
            assert not {"set-cookie", "server", "content-encoding"} & said.headers.keys()
            assert hermes.open == 1
        await asyncio.wait_for(hermes.idle(), WAIT_S)  # who hangs up takes the request at Hermes along


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
async def test_an_answer_that_has_no_body_may_have_a_length(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, status: str
) -> None:
    piece = answer(status, b"", "ETag: x").replace(b": 0", b": 5")
    async with scripted(tmp_path, piece, piece, in_turn=True) as (passed, _):
        for _ in range(2):
            said = await passed.http.get("/v1/models", headers={"If-None-Match": "x"})
            assert (said.status_code, said.headers["etag"], said.content) == (int(status[:3]), "x", b"")
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_head_is_passed_on_and_its_connection_is_not_used_again(tmp_path: Path) -> None:
    body = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong"
    async with scripted(tmp_path, body, stays=True) as (passed, hermes):
        said = await passed.http.head("/v1/models")
        assert (said.status_code, said.headers["content-length"], said.content) == (200, "5", b"")
        assert hermes.requests[0].startswith(b"HEAD /v1/models ")
        assert (await passed.http.get("/v1/models")).text == "wrong"


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS"])
async def test_methods_are_passed_on(tmp_path: Path, method: str) -> None:
    async with scripted(tmp_path, answer("405 Method Not Allowed", b"405: Method Not Allowed")) as (passed, hermes):
        said = await passed.http.request(method, "/api/jobs/1")
        assert (said.status_code, said.text) == (405, "405: Method Not Allowed")
        assert hermes.requests[0].startswith(method.encode())


async def test_a_kept_connection_that_was_closed_costs_a_reader_nothing(tmp_path: Path) -> None:
    async with scripted(tmp_path, OK, b"", in_turn=True) as (passed, hermes):
        assert (await passed.http.get("/v1/models")).status_code == 200
        assert (await passed.http.get("/v1/models")).status_code == 200  # the second on a new one
        assert len(hermes.requests) == 3


async def test_what_changes_something_is_not_sent_twice(tmp_path: Path) -> None:
    async with scripted(tmp_path, OK, b"", in_turn=True) as (passed, hermes):
        assert (await passed.http.get("/v1/models")).status_code == 200
        said = await passed.http.post("/v1/runs", json={"input": "x"})
        assert (said.status_code, said.json()["error"]["code"]) == (502, "upstream_unanswered")
        assert sum(request.startswith(b"POST") for request in hermes.requests) == 1


async def test_connections_are_kept(tmp_path: Path) -> None:
    async with scripted(tmp_path, OK, OK, OK, in_turn=True, stays=True) as (passed, hermes):
        for _ in range(3):
            await passed.http.get("/v1/models")
        assert hermes.open == 1


@pytest.mark.parametrize(
    ("said", "status", "code"),
    [
        (answer("401 Unauthorized", b"{}"), 502, "upstream_auth_required"),
        (answer("302 Found", b"", "Location: http://127.0.0.1/x"), 502, "upstream_refused"),
        (b"SSH-2.0-OpenSSH\r\n", 502, "upstream_invalid"),
        (b"HTTP/1.1 700 Odd\r\n\r\n", 502, "upstream_invalid"),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", 502, None),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000, 502, "upstream_invalid"),
        (b"", 502, "upstream_unanswered"),
    ],
)
async def test_answers_that_are_not_for_the_caller(tmp_path: Path, said: bytes, status: int, code: str | None) -> None:
    async with scripted(tmp_path, said) as (passed, _):
        found = await passed.http.post("/v1/chat/completions", json={})
        assert found.status_code == status
        error = found.json()["error"]
        assert error["layer"] == "upstream"
        assert error["code"] == found.headers["x-talaria-error"]
        assert code in (None, error["code"])
        assert "location" not in found.headers


async def test_an_answer_that_breaks_off_is_seen_to(tmp_path: Path) -> None:
    async with scripted(tmp_path, b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf") as (passed, _):
        with pytest.raises(httpx.RemoteProtocolError):
            await passed.http.get("/v1/models")


async def test_an_answer_without_a_length_ends_with_its_connection(tmp_path: Path) -> None:
    async with scripted(tmp_path, b"HTTP/1.1 200 OK\r\n\r\nall of it") as (passed, _):
        assert (await passed.http.get("/v1/models")).text == "all of it"


async def test_hermes_is_away(tmp_path: Path) -> None:
    async with passing("http://127.0.0.1:9", tmp_path) as passed:
        said = await passed.http.get("/v1/models")
        assert (said.status_code, said.json()["error"]["code"]) == (503, "upstream_unreachable")
        assert said.headers["retry-after"] == "5"
        said = await passed.http.post("/api/sessions/x/chat/stream", json={"message": "hi"})
        assert (said.status_code, said.headers["retry-after"]) == (503, "5")


async def test_hermes_is_switched_off(tmp_path: Path) -> None:
    async with passing("", tmp_path) as passed:
        assert (await passed.http.get("/v1/models")).json()["error"]["code"] == "upstream_off"


async def test_hermes_says_nothing(tmp_path: Path) -> None:
    async with canned(stays=True) as hermes, before(hermes, tmp_path, HERMES_ANSWER_TIMEOUT="1s") as passed:
        said = await passed.http.get("/v1/models")
        assert (said.status_code, said.json()["error"]["code"]) == (504, "upstream_timeout")


async def test_a_body_has_a_limit_whether_its_length_is_said_or_not(tmp_path: Path) -> None:
    async def body() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"x" * 500_000

    async with canned(stays=True) as hermes, before(hermes, tmp_path, HERMES_BODY_MAX_MB="1") as passed:
        for content in (b"x" * 1_500_000, body()):
            said = await passed.http.post("/v1/runs", content=content)
            assert (said.status_code, said.json()["error"]["code"]) == (413, "body_too_large")


async def test_a_request_that_stops_in_the_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route, "STALLED_S", 0.05)
    never = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield b"x"
        await never.wait()

    async with canned(stays=True) as hermes, before(hermes, tmp_path) as passed:
        said = await asyncio.wait_for(_answer_to(passed, body()), WAIT_S)
        assert said.startswith(b"HTTP/1.1 408 ")
        assert b"request_stalled" in said


async def _answer_to(passed: Passed, body: AsyncIterator[bytes]) -> bytes:
    """httpx reads no answer before it has sent everything."""
    host, _, port = passed.relay.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        f"POST /v1/runs HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {passed.phone.token}\r\n"
        "Connection: close\r\nContent-Length: 10\r\n\r\n".encode()
        + await anext(body)
    )
    try:
        return await reader.read()
    finally:
        writer.close()


async def test_a_refusal_that_comes_before_the_end_of_the_request_is_passed_on(tmp_path: Path) -> None:
    refused = answer("413 Request Entity Too Large", b'{"error": "too large"}', "Connection: close")

    async def hermes(_: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(refused)
        await writer.drain()
        await reader.read()

    async with before_played(hermes, tmp_path) as passed:
        said = await passed.http.post("/v1/runs", content=b"x" * 12_000_000)
        assert (said.status_code, said.json()) == (413, {"error": "too large"})


# who may


async def test_who_may_not(tmp_path: Path) -> None:
    async with over_stand_in(tmp_path) as (passed, hermes), client_of(passed.relay) as nobody:
        link = passed.relay.relay.link.read()
        for headers, status, code in (
            ({}, 401, "session_required"),
            ({"Authorization": "Bearer nonsense"}, 401, "session_unknown"),
            ({"Authorization": f"Bearer {hermes.key}"}, 401, "session_unknown"),
            ({"Authorization": f"Bearer {link}"}, 403, "device_required"),
            (passed.relay.operator(), 403, "device_required"),
        ):  # fmt: skip
            said = await nobody.get("/v1/models", headers=headers)
            assert (said.status_code, said.json()["error"]["code"]) == (status, code)
            assert said.json()["error"]["layer"] == "relay"


async def test_a_device_without_the_grant_may_not(tmp_path: Path) -> None:
    async with over_stand_in(tmp_path) as (passed, _):
        code = (await passed.relay.relay.pairing.mint(grants={"terminal": None})).code
        other = await passed.relay.connect(pairing_code=code)
        said = await passed.http.get("/v1/models", headers={"Authorization": f"Bearer {other.token}"})
        assert (said.status_code, said.json()["error"]["code"]) == (403, "grant_missing")


async def test_revoking_a_session_ends_its_requests(tmp_path: Path) -> None:
    async with scripted(tmp_path, STREAM + chunk(b"data: 1\n\n"), stays=True) as (passed, hermes):
        async with passed.http.stream("GET", "/v1/runs/r/events") as said:
            pieces = said.aiter_raw()
            assert await anext(pieces)
            await revoke(passed)
            with pytest.raises(httpx.RemoteProtocolError):
                await anext(pieces)
        await asyncio.wait_for(hermes.idle(), WAIT_S)
        assert (await passed.http.get("/v1/models")).status_code == 401


async def test_a_request_that_waits_for_its_answer_ends_with_its_session_too(tmp_path: Path) -> None:
    asked = asyncio.Event()

    async def hermes(_: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()

    async with before_played(hermes, tmp_path) as passed, asyncio.TaskGroup() as group:
        waiting = group.create_task(passed.http.get("/v1/models"))
        await asyncio.wait_for(asked.wait(), WAIT_S)
        await revoke(passed)
        said = await waiting
        assert (said.status_code, said.json()["error"]["code"]) == (401, "session_revoked")


async def revoke(passed: Passed) -> None:
    sessions = passed.relay.relay.sessions
    await sessions.revoke((await sessions.list())[0].prefix, actor="operator")


async def test_a_restart_does_not_wait_for_streams(tmp_path: Path) -> None:
    async with scripted(tmp_path, STREAM + chunk(b"data: 1\n\n"), stays=True) as (passed, hermes):
        async with passed.http.stream("GET", "/v1/runs/r/events") as said:
            assert await anext(said.aiter_raw())
            passed.relay.relay.passing.running.drain()
            await asyncio.wait_for(hermes.idle(), WAIT_S)
        said = await passed.http.get("/v1/models")
        assert (said.status_code, said.json()["error"]["code"]) == (503, "draining")


async def test_too_many_at_once_are_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "MAX_OPEN", 1)
    one = STREAM + chunk(b"data: 1\n\n")
    async with scripted(tmp_path, one, stays=True) as (passed, hermes):
        first = passed.http.stream("GET", "/v1/runs/r/events")
        async with first as said:
            assert await anext(said.aiter_raw())
            assert hermes.open == 1
            refused = await passed.http.get("/v1/models")
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")


# pages of a browser


async def test_only_pages_of_an_accepted_origin_may_read(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, PUBLIC_URL="https://relay.example")
    async with running(settings) as relay, client_of(relay, headers={"Authorization": "Bearer x"}) as http:
        ask = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
        allowed = await http.options("/v1/models", headers={"Origin": "https://relay.example"} | ask)
        assert allowed.status_code == 204
        assert allowed.headers["access-control-allow-origin"] == "https://relay.example"
        assert allowed.headers["access-control-allow-headers"] == "authorization"
        refused = await http.options("/v1/models", headers={"Origin": "https://other.example"} | ask)
        assert refused.status_code == 403
        for origin, shown in (("https://relay.example", "https://relay.example"), ("https://other.example", None)):
            said = await http.get("/v1/models", headers={"Origin": origin})
            assert said.headers.get("access-control-allow-origin") == shown
            assert said.headers["vary"] == "Origin"
        said = await http.post("/v1/runs", headers={"Origin": "https://other.example"})
        assert (said.status_code, said.json()["error"]["code"]) == (403, "origin_refused")


async def test_an_origin_is_not_passed_on(tmp_path: Path) -> None:
    async with over_stand_in(tmp_path) as (passed, _):  # which refuses any, as the real one does
        assert (await passed.http.get("/v1/models", headers={"Origin": passed.relay.url})).status_code == 200


async def test_the_api_token_of_a_pairing_opens_these_paths_and_no_other(tmp_path: Path) -> None:
    async with over_stand_in(tmp_path) as (passed, _):
        relay, token = passed.relay.relay, opaque.new(opaque.API)

        def work(tx: Tx) -> Principal:
            device = str(passed.phone.auth["device_id"])
            return relay.sessions.issue(tx, device, None, 600, relay.clock.now(), api_hash=opaque.digest(token))[0]

        session = await relay.db.write(work)
        bearer = {"Authorization": f"Bearer {token}"}
        assert (await passed.http.get("/v1/models", headers=bearer)).status_code == 200
        misplaced = await passed.http.get("/sessions", headers=bearer)
        assert (misplaced.status_code, misplaced.headers["x-talaria-error"]) == (403, "api_token_misplaced")
        await relay.sessions.revoke(session.prefix, actor="operator")
        assert (await passed.http.get("/v1/models", headers=bearer)).status_code == 401
