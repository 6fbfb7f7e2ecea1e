"""The routes of hermes-relay, as its own tools and its app find them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import older
from tests.api.conftest import client_of
from tests.phone import Phone
from tests.relay import RunningRelay, running, settings_for

QUEUED = {"chat_id": "c1", "title": "Hermes", "surfacing": "notification", "metadata": {"k": "v"}}


async def away(relay: RunningRelay) -> Phone:
    """A phone that has subscribed once and left."""
    phone = await older.connect(relay)
    await older.subscribe(phone)
    await phone.hang_up()
    return phone


def bearer(phone: Phone) -> dict[str, str]:
    return {"Authorization": f"Bearer {phone.token}"}


async def queued(http: httpx.AsyncClient) -> list[dict[str, Any]]:
    found = (await http.get("/phone/outbound")).json()
    assert found["queued"] == len(found["messages"])
    messages: list[dict[str, Any]] = found["messages"]
    return messages


async def test_a_message_waits_is_listed_and_taken_back(relay: RunningRelay, operator: httpx.AsyncClient) -> None:
    await away(relay)
    ids = []
    for number in range(3):
        answer = await operator.post("/phone/message", json={"text": f"queued {number}"} | QUEUED)
        assert answer.status_code == 200
        ids.append(answer.json()["message_id"])
        assert answer.json() == {"delivered": False, "queued": True, "message_id": ids[-1], "buffered": number + 1}
    fixed = await operator.post("/phone/message", json={"text": "with id", "message_id": "m-fixed"})
    assert fixed.json() == {"delivered": False, "queued": True, "message_id": "m-fixed", "buffered": 4}
    listed = await queued(operator)
    assert [one["message_id"] for one in listed] == [*ids, "m-fixed"]
    assert listed[0] == {"message_id": ids[0], "chat_id": "c1", "text": "queued 0", "sent_at": listed[0]["sent_at"]}
    assert listed[3]["chat_id"] is None
    assert type(listed[0]["sent_at"]) is int
    assert (await operator.delete("/phone/outbound?message_id=m-fixed")).json() == {"cancelled": 1}
    assert (await operator.delete("/phone/outbound?message_id=m-fixed")).json() == {"cancelled": 0}
    assert (await operator.delete("/phone/outbound?message_id=zzz")).json() == {"cancelled": 0}
    assert [one["message_id"] for one in await queued(operator)] == ids
    assert (await operator.delete("/phone/outbound")).json() == {"cancelled": 3}
    assert await queued(operator) == []


async def test_the_frames_are_those_the_app_knows(relay: RunningRelay, operator: httpx.AsyncClient) -> None:
    phone = await away(relay)
    first = (await operator.post("/phone/message", json={"text": "queued 0"} | QUEUED)).json()["message_id"]
    back = await older.connect(relay, session_token=phone.token)
    (frame,) = await older.subscribe(back)
    assert (frame.channel, frame.id, frame.seq) == ("proactive", first, None)
    assert frame.payload == {
        "message_id": first, "chat_id": "c1", "text": "queued 0", "title": "Hermes", "surfacing": "notification",
        "reply_to": None, "metadata": {"k": "v"}, "sent_at": frame.payload["sent_at"], "queued_delivery": True,
    }  # fmt: skip
    assert type(frame.payload["sent_at"]) is int
    live = await operator.post("/phone/message", json={"text": "live", "chat_id": "c1", "reply_to": "m0"})
    assert live.json() == {"delivered": True, "message_id": live.json()["message_id"]}
    frame = await back.until("phone.message")
    assert frame.payload == {
        "message_id": live.json()["message_id"], "chat_id": "c1", "text": "live", "title": None, "surfacing": None,
        "reply_to": "m0", "metadata": {}, "sent_at": frame.payload["sent_at"],
    }  # fmt: skip


async def test_delivered_is_said_only_while_a_socket_takes_messages(
    relay: RunningRelay, operator: httpx.AsyncClient
) -> None:
    phone = await older.connect(relay)
    await older.subscribe(phone)
    await phone.send("proactive", "proactive.unsubscribe", {})
    await phone.ping()
    answer = await operator.post("/phone/message", json={"text": "after unsub", "message_id": "m-c"})
    assert answer.json() == {"delivered": False, "queued": True, "message_id": "m-c", "buffered": 1}
    await phone.send("proactive", "proactive.cancel", {"message_id": "m-c"})
    await phone.ping()
    assert await queued(operator) == []
    ours = await relay.connect()
    answer = await operator.post("/phone/message", json={"text": "x"})
    assert answer.json()["delivered"] is True
    assert (await ours.until("message", lambda frame: frame.seq == 1)).payload["text"] == "x"


@pytest.mark.parametrize(
    ("body", "error"),
    [({"text": "  "}, "text is required"), ([1], "body must be a JSON object"), ({}, "text is required")],
)
async def test_refusals_have_its_bodies(
    relay: RunningRelay, operator: httpx.AsyncClient, body: Any, error: str
) -> None:
    await away(relay)
    answer = await operator.post("/phone/message", json=body)
    assert (answer.status_code, answer.json()) == (400, {"error": error})
    assert answer.headers["x-talaria-error"] == "payload_invalid"


async def test_a_copy_is_one_message(relay: RunningRelay, operator: httpx.AsyncClient) -> None:
    await away(relay)
    for _ in range(3):
        answer = await operator.post("/phone/message", json={"text": "x", "message_id": "m"})
        assert answer.json()["buffered"] == 1


async def test_who_may(tmp_path: Path) -> None:
    async with running(settings_for(tmp_path, TRUST_LOOPBACK="1")) as relay, client_of(relay) as tool:
        phone = await away(relay)
        mute = await relay.connect(pairing_code=(await relay.relay.pairing.mint(grants={"terminal": None})).code)
        link = {"Authorization": f"Bearer {relay.relay.link.read()}"}
        for headers in ({}, link, relay.operator()):
            assert (await tool.post("/phone/message", json={"text": "x"}, headers=headers)).status_code == 200
            assert (await tool.get("/phone/replies", headers=headers)).json() == {"replies": []}
            assert (await tool.get("/phone/outbound", headers=headers)).status_code == 200
        assert (await tool.get("/phone/outbound", headers=bearer(phone))).json()["queued"] == 3
        assert (await tool.get("/phone/outbound", headers=bearer(mute))).status_code == 403
        for headers in (bearer(phone), {"Authorization": "Bearer nonsense"}, {"Origin": "http://evil.example"}):
            for method, path in (("POST", "/phone/message"), ("GET", "/phone/replies")):
                answer = await tool.request(method, path, json={"text": "x"}, headers=headers)
                assert answer.status_code in (401, 403), (path, headers)


# replies


async def reply(phone: Phone, text: str, **fields: Any) -> dict[str, Any]:
    """Returns the payload of the acknowledgement."""
    await phone.send("proactive", "proactive.reply", {"text": text} | fields)
    return (await phone.until("proactive.reply.ack")).payload


async def test_a_reply_is_acknowledged_and_fetched_once(relay: RunningRelay, operator: httpx.AsyncClient) -> None:
    phone = await older.connect(relay)
    said = {"chat_id": "c1", "reply_to": "m0", "message_id": "r-1", "ts": 1740000000000}
    metadata = {"a": "x" * 600, "o": {"no": 1}, "l": [1, "2", {}]}
    ack = await reply(phone, "my reply", **said, metadata=metadata)
    assert ack == {"client_msg_id": "r-1", "status": "received", "ts": ack["ts"]}
    assert type(ack["ts"]) is int
    assert await reply(phone, "my reply", **said, metadata=metadata) == ack
    found = await operator.get("/phone/replies?timeout=1")
    kept = {"a": "x" * 512, "l": [1, "2"]}
    assert found.json() == {"replies": [{"text": "my reply"} | said | {"metadata": kept}]}
    assert (await operator.get("/phone/replies")).json() == {"replies": []}
    assert await reply(phone, "my reply", **said, metadata=metadata) == ack  # fetched or not, it was said once
    assert (await operator.get("/phone/replies")).json() == {"replies": []}


async def test_a_waiting_caller_is_woken_and_only_one_gets_it(relay: RunningRelay, operator: httpx.AsyncClient) -> None:
    phone = await older.connect(relay)
    waiting = [asyncio.ensure_future(operator.get("/phone/replies?timeout=30")) for _ in range(2)]
    await waits(relay, phone, 2)
    await reply(phone, "one", message_id="r-1")
    (first,), rest = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    assert [one["text"] for one in first.result().json()["replies"]] == ["one"]
    await waits(relay, phone, 1)
    await reply(phone, "two", message_id="r-2")
    assert [one["text"] for one in (await rest.pop()).json()["replies"]] == ["two"]


async def test_a_caller_that_left_takes_nothing_with_it(relay: RunningRelay, operator: httpx.AsyncClient) -> None:
    phone = await older.connect(relay)
    async with client_of(relay, headers=relay.operator()) as leaving:
        gone = asyncio.ensure_future(leaving.get("/phone/replies?timeout=30"))
        await waits(relay, phone, 1)
        gone.cancel()
    await waits(relay, phone, 0)
    await reply(phone, "still here", message_id="r-1")
    found = (await operator.get("/phone/replies")).json()["replies"]
    assert [one["text"] for one in found] == ["still here"]


async def test_a_restart_ends_the_waiting(tmp_path: Path) -> None:
    async with running(settings_for(tmp_path)) as relay:
        phone = await older.connect(relay)
        async with client_of(relay, headers=relay.operator()) as operator:
            asking = asyncio.ensure_future(operator.get("/phone/replies?timeout=30"))
            await waits(relay, phone, 1)
            relay.relay.replies.close()
            assert (await asking).json() == {"replies": []}
        await reply(phone, "for later", message_id="r-1")
    async with running(settings_for(tmp_path)) as relay, client_of(relay, headers=relay.operator()) as operator:
        found = (await operator.get("/phone/replies")).json()["replies"]
        assert [one["text"] for one in found] == ["for later"]


async def waits(relay: RunningRelay, phone: Phone, count: int) -> None:
    """Until so many callers hold the question open; each look costs a round trip of the phone's."""
    async with asyncio.timeout(10):
        while relay.relay.replies.waiting != count:
            await phone.ping()
