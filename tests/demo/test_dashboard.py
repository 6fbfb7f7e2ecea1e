"""The dashboard around the turns: who gets in, what it says of itself, and its methods."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from app.demo.stand_in import StandIn, serve_stand_in
from tests.demo.board import Board, Fault, address, board
from tests.demo.client import Client
from tests.demo.conftest import KEY


@pytest.fixture
async def phone(stand_in: StandIn) -> AsyncIterator[Board]:
    async with board(stand_in) as opened:
        await opened.create()
        yield opened


@pytest.fixture
async def http(stand_in: StandIn) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=stand_in.dashboard_url) as opened:
        yield opened


async def test_every_rejection_of_the_socket_is_a_403(stand_in: StandIn) -> None:
    token = {"x-hermes-session-token": stand_in.dashboard_token}
    for url, options in [
        (address(stand_in, "x"), {}),
        (address(stand_in, ""), {"additional_headers": token}),
        (address(stand_in), {"origin": "http://evil.test"}),
    ]:
        with pytest.raises(InvalidStatus) as refused:
            await connect(url, proxy=None, **options)  # type: ignore[arg-type]
        assert refused.value.response.status_code == 403
    async with connect(address(stand_in), proxy=None, origin=stand_in.dashboard_url) as socket:  # type: ignore[arg-type]
        assert json.loads(await socket.recv())["params"]["type"] == "gateway.ready"


async def test_the_page_holds_the_token(http: httpx.AsyncClient, stand_in: StandIn) -> None:
    found = re.search(r'window\.__HERMES_SESSION_TOKEN__="([^"]+)"', (await http.get("/")).text)
    assert found is not None
    assert found.group(1) == stand_in.dashboard_token
    assert (await http.get("/", headers={"Host": "evil.test"})).status_code == 400


async def test_what_is_public_and_what_is_not(http: httpx.AsyncClient, stand_in: StandIn, client: Client) -> None:
    status = (await http.get("/api/status")).json()
    assert (status["version"], status["auth_required"], status["gateway_running"]) == ("0.19.0", False, True)
    rows = f"/api/sessions/{client.session_id}/messages"
    for path in ("/api/config", rows):
        refused = await http.get(path, headers={"X-Hermes-Session-Token": "x"})
        assert (refused.status_code, refused.json()) == (401, {"detail": "Unauthorized"})
    await client.ask("SAY:hello")
    for headers in (
        {"X-Hermes-Session-Token": stand_in.dashboard_token},
        {"Authorization": f"Bearer {stand_in.dashboard_token}"},
    ):
        assert (await http.get("/api/config", headers=headers)).json()["approvals"]["timeout"] == 60
        body = (await http.get(rows, headers=headers)).json()
        assert body["messages"] == await client.rows()
        assert (await http.get("/api/sessions/none/messages", headers=headers)).status_code == 404


async def test_how_long_approvals_wait_can_be_said() -> None:
    async with serve_stand_in(KEY, delay_s=0, approval_timeout_s=7.5, dashboard_token="secret-0123456789") as served:
        headers = {"X-Hermes-Session-Token": "secret-0123456789"}
        async with httpx.AsyncClient(base_url=served.dashboard_url, headers=headers) as http:
            assert (await http.get("/api/config")).json()["approvals"] == {"mode": "manual", "timeout": 7.5}


@pytest.mark.parametrize(
    ("frame", "code", "id_"),
    [
        ("not json", -32700, None),
        ("[]", -32600, None),
        ('{"id": 1}', -32600, 1),
        ('{"id": 2, "method": "nope.method"}', -32601, 2),
        ('{"id": 3, "method": "session.create", "params": []}', -32602, 3),
        ('{"id": "4", "method": "session.resume"}', 4006, "4"),
    ],
)
async def test_frames_that_cannot_be_served(phone: Board, frame: str, code: int, id_: object) -> None:
    await phone.socket.send(frame)
    answer = json.loads(await phone.socket.recv())
    assert (answer["error"]["code"], answer["id"]) == (code, id_)


async def test_sessions_that_are_not_there(phone: Board) -> None:
    for method in (
        "prompt.submit", "session.interrupt", "session.history", "session.title", "session.usage", "approval.respond",
    ):  # fmt: skip
        with pytest.raises(Fault) as refused:
            await phone.call(method, session_id="nope")
        assert refused.value.code == 4001, method
    with pytest.raises(Fault) as refused:
        await phone.call("session.resume", session_id="nope")
    assert refused.value.code == 4007
    with pytest.raises(Fault) as refused:
        await phone.call("clarify.respond", request_id="nope", answer="x")
    assert refused.value.code == 4009
    assert await phone.call("session.close", session_id="nope") == {"closed": False}
    assert await phone.call("approval.respond", choice="once") == {"resolved": 0}


async def test_a_conversation_is_stored_with_its_first_turn(phone: Board, client: Client) -> None:
    at = f"/api/sessions/{phone.stored_id}"
    assert (await client.http.get(at)).status_code == 404
    await phone.ask("SAY:one")
    session = (await client.http.get(at)).json()["session"]
    assert (session["source"], session["message_count"]) == ("tui", 2)
    assert (await client.http.get("/api/sessions", params={"source": "tui"})).json()["data"][0]["id"] == phone.stored_id
    assert (await phone.call("session.history"))["messages"] == [
        {"role": "user", "text": "SAY:one"},
        {"role": "assistant", "text": "one"},
    ]


async def test_titles(phone: Board, stand_in: StandIn, client: Client) -> None:
    await phone.ask("SAY:one")
    named = await phone.until("session.title")
    assert named == {"session_id": phone.stored_id, "title": "one"}
    assert await phone.call("session.title") == {"title": "one", "session_key": phone.stored_id}
    assert await phone.call("session.title", title=" Mine ") == {"pending": False, "title": "Mine"}
    assert (await client.http.get(f"/api/sessions/{phone.stored_id}")).json()["session"]["title"] == "Mine"
    async with board(stand_in) as other:
        await other.create(title="Mine")
        await other.ask("SAY:two")
        assert (await other.call("session.title"))["title"] == "two"  # the wish was taken by another
        for title, code in (("Mine", 4022), ("  ", 4021)):
            with pytest.raises(Fault) as refused:
                await other.call("session.title", title=title)
            assert refused.value.code == code
    async with board(stand_in) as third:
        await third.create(title="Wished for")
        await third.ask("SAY:three")
        assert (await third.call("session.title"))["title"] == "Wished for"
        assert "session.title" not in {event["type"] for event in third.events}


async def test_a_closed_conversation_is_gone_from_the_dashboard_only(phone: Board, client: Client) -> None:
    await phone.ask("SAY:one")
    assert [live["id"] for live in (await phone.call("session.active_list"))["sessions"]] == [phone.session_id]
    assert await phone.call("session.close") == {"closed": True}
    assert await phone.call("session.active_list") == {"sessions": []}
    with pytest.raises(Fault):
        await phone.call("session.history")
    assert len(await client.rows(phone.stored_id)) == 2


async def test_a_turn_that_is_refused(phone: Board, stand_in: StandIn) -> None:
    with pytest.raises(Fault, match="429"):
        await phone.submit("http429")
    assert stand_in.agent.turns_started == [(phone.stored_id, "http429")]
    await stand_in.agent.idle()
    assert (await phone.ask("SAY:after"))["text"] == "after"
