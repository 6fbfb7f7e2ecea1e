"""POST, GET and DELETE /messages: who may, what is refused, what a copy gets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.outbox import store
from tests.api.conftest import client_of
from tests.phone import Phone
from tests.relay import RunningRelay, running, settings_for


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def code(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["x-talaria-error"] == answer.json()["error"]["code"]
    return answer.status_code, answer.json()["error"]["code"]


async def receipts(http: httpx.AsyncClient, message_id: str) -> dict[str, Any]:
    found = (await http.get(f"/messages/{message_id}")).json()
    return {one["device_id"]: (one["state"], one.get("reason")) for one in found["deliveries"]}


def id_of(phone: Phone) -> str:
    return str(phone.auth["device_id"])


async def test_a_message_reaches_every_device_and_is_numbered_in_each_mailbox(
    relay: RunningRelay, operator: httpx.AsyncClient
) -> None:
    one, two = await relay.connect(), await relay.connect()
    sent = await operator.post("/messages", json={"text": "hello", "title": "Hi", "chat_id": "c1", "thread_id": "t1"})
    assert (sent.status_code, sent.headers["content-type"]) == (202, "application/json")
    assert sent.headers["cache-control"] == "no-store"
    message_id = sent.json()["message_id"]
    deliveries = sorted(sent.json()["deliveries"], key=lambda one: one["device_id"])
    assert deliveries == [{"device_id": id, "seq": 1} for id in sorted([id_of(one), id_of(two)])]
    for phone in (one, two):
        frame = await phone.until("message")
        assert (frame.channel, frame.id, frame.seq) == ("messages", message_id, 1)
        assert frame.payload == {
            "message_id": message_id, "chat_id": "c1", "thread_id": "t1", "text": "hello", "title": "Hi",
            "source": "script", "sent_at": frame.payload["sent_at"],
        }  # fmt: skip
        assert abs(frame.payload["sent_at"] - relay.relay.clock.now()) < 60


async def test_one_device_alone_and_a_cron_message(relay: RunningRelay, operator: httpx.AsyncClient) -> None:
    one, two = await relay.connect(), await relay.connect()
    body = {"text": "daily", "device_id": id_of(one), "kind": "cron", "message_id": "daily-1", "metadata": {"a": 1}}
    sent = (await operator.post("/messages", json=body)).json()
    assert sent == {"message_id": "daily-1", "deliveries": [{"device_id": id_of(one), "seq": 1}]}
    assert (await one.until("message")).payload["source"] == "cron"
    await two.ping()
    assert "message" not in [frame.type for frame in two.frames]
    found = (await operator.get("/messages/daily-1")).json()
    assert (found["kind"], found["sender"], found["message"]["metadata"]) == ("cron", "operator", {"a": 1})


async def test_a_device_sends_to_the_others(relay: RunningRelay, http: httpx.AsyncClient) -> None:
    one, two = await relay.connect(), await relay.connect()
    sent = await http.post("/messages", json={"text": "from one"}, headers=bearer(one.token))
    assert [delivery["device_id"] for delivery in sent.json()["deliveries"]] == [id_of(two)]
    assert (await two.until("message")).payload["text"] == "from one"
    looked = await http.get(f"/messages/{sent.json()['message_id']}", headers=bearer(two.token))
    assert looked.json()["sender"] == id_of(one)


async def test_who_may(relay: RunningRelay, http: httpx.AsyncClient) -> None:
    await relay.connect()
    mute = await relay.connect(pairing_code=(await relay.relay.pairing.mint(grants={"terminal": None})).code)
    body = {"text": "hello"}
    link = bearer(relay.relay.link.read())
    assert (await http.post("/messages", json=body, headers=link)).status_code == 202
    assert (await http.get("/sessions", headers=link)).status_code == 403  # it opens nothing else of the operator's
    assert code(await http.post("/messages", json=body)) == (401, "session_required")
    assert code(await http.post("/messages", json=body, headers=bearer("nonsense"))) == (401, "session_unknown")
    assert code(await http.post("/messages", json=body, headers=bearer(mute.token))) == (403, "grant_missing")
    for method in ("GET", "DELETE"):
        answer = await http.request(method, "/messages/x", headers=bearer(mute.token))
        assert code(answer) == (403, "grant_missing")
        assert code(await http.request(method, "/messages/x")) == (401, "session_required")
    assert (await http.post("/messages", json=body, headers=bearer(mute.token[:-1] + "x"))).status_code == 401
    origin = {"Origin": "https://elsewhere.example"} | link
    assert (await http.post("/messages", json=body, headers=origin)).status_code == 403


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"{", (400, "payload_invalid")),
        (b"[1]", (400, "payload_invalid")),
        (b'{"text": "  "}', (400, "payload_invalid")),
        (b'{"text": 7}', (400, "payload_invalid")),
        (b'{"text": "x", "kind": "turn"}', (400, "payload_invalid")),
        (b'{"text": "x", "ttl_seconds": 1.5}', (400, "payload_invalid")),
        (b'{"text": "x", "metadata": []}', (400, "payload_invalid")),
        (b'{"text": "x", "metadata": {"a": ' + b"[" * 300 + b"]" * 300 + b"}}", (400, "payload_invalid")),
        (b'{"text": "x", "message_id": "' + b"m" * 129 + b'"}', (400, "payload_invalid")),
        (b'{"text": "x", "ttl_seconds": 0}', (400, "message_expired")),
        (b'{"text": "x", "ttl_seconds": -5}', (400, "message_expired")),
        (b'{"text": "x", "device_id": "nobody"}', (404, "device_unknown")),
        (b'{"text": "' + b"x" * (1024 * 1024 + 1) + b'"}', (413, "message_too_big")),
        (b'{"text": "x", "metadata": {"a": "' + b"x" * 20_000 + b'"}}', (413, "message_too_big")),
        (b'{"text": "' + b"x" * (4 * 1024 * 1024) + b'"}', (413, "body_too_large")),
    ],
)
async def test_what_is_refused(
    relay: RunningRelay, operator: httpx.AsyncClient, body: bytes, expected: tuple[int, str]
) -> None:
    await relay.connect()
    answer = await operator.post("/messages", content=body)
    assert code(answer) == expected
    assert "xxxx" not in answer.text


async def test_without_a_device_there_is_nobody_to_keep_it_for(operator: httpx.AsyncClient) -> None:
    assert code(await operator.post("/messages", json={"text": "x"})) == (409, "no_devices")
    assert code(await operator.get("/messages/x")) == (404, "message_unknown")
    assert code(await operator.delete("/messages/x")) == (404, "message_unknown")
    assert (await operator.get("/messages")).status_code == 405


async def test_copies_with_one_key_make_one_message(relay: RunningRelay, operator: httpx.AsyncClient) -> None:
    phone = await relay.connect()
    key = {"Idempotency-Key": "run-17"}
    sending = (operator.post("/messages", json={"text": "once"}, headers=key) for _ in range(64))
    answers = await asyncio.gather(*sending)
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.text for answer in answers}) == 1
    assert answers[0].json()["deliveries"] == [{"device_id": id_of(phone), "seq": 1}]
    other = await operator.post("/messages", json={"text": "twice"}, headers=key)
    assert code(other) == (409, "id_reused")
    box = await relay.relay.db.read(lambda tx: store.mailbox(tx, id_of(phone)))
    assert box is not None
    assert box.head == 1


async def test_a_message_id_is_a_key_too_and_belongs_to_one_message(
    relay: RunningRelay, operator: httpx.AsyncClient, http: httpx.AsyncClient
) -> None:
    await relay.connect()
    sender = await relay.connect()
    body = {"text": "once", "message_id": "m-1"}
    first, copy = [(await operator.post("/messages", json=body)).json() for _ in range(2)]
    assert first == copy
    assert code(await operator.post("/messages", json=body | {"text": "other"})) == (409, "id_reused")
    assert code(await operator.post("/messages", json=body, headers={"Idempotency-Key": "k"})) == (409, "id_reused")
    assert code(await http.post("/messages", json=body, headers=bearer(sender.token))) == (409, "id_reused")
    long = await operator.post("/messages", json=body, headers={"Idempotency-Key": "k" * 129})
    assert code(long) == (400, "payload_invalid")


async def test_the_key_of_one_sender_is_not_that_of_another(
    relay: RunningRelay, operator: httpx.AsyncClient, http: httpx.AsyncClient
) -> None:
    """Also not for a device that calls itself as a host is called."""
    posing = await relay.connect(device_id="operator")
    other = await relay.connect()
    key = {"Idempotency-Key": "k"}
    host = (await operator.post("/messages", json={"text": "x"}, headers=key)).json()
    device = (await http.post("/messages", json={"text": "x"}, headers=key | bearer(posing.token))).json()
    assert host["message_id"] != device["message_id"]
    assert [one["device_id"] for one in device["deliveries"]] == [id_of(other)]


async def test_a_text_that_no_frame_holds_is_cut_and_fetched_whole(
    relay: RunningRelay, operator: httpx.AsyncClient
) -> None:
    phone = await relay.connect()
    for text in ("x" * 300_000, "\x01é漢" * 60_000, "🦉" * 262_144):
        sent = (await operator.post("/messages", json={"text": text})).json()
        frame = await phone.until("message")
        assert frame.payload["truncated"] is True
        assert text.startswith(frame.payload["text"])
        assert len(frame.payload["text"]) > 20_000
        assert (await operator.get(f"/messages/{sent['message_id']}")).json()["message"]["text"] == text
    small = "x" * 200_000
    await operator.post("/messages", json={"text": small})
    frame = await phone.until("message")
    assert frame.payload["text"] == small
    assert "truncated" not in frame.payload


async def test_receipts_follow_a_message(relay: RunningRelay, operator: httpx.AsyncClient) -> None:
    awake, asleep = await relay.connect(), await relay.connect()
    await asleep.hang_up()
    message_id = (await operator.post("/messages", json={"text": "x"})).json()["message_id"]
    frame = await awake.until("message")
    await relay.relay.acks.flush()
    assert await receipts(operator, message_id) == {id_of(awake): ("sent", None), id_of(asleep): ("kept", None)}
    await awake.ack(frame.seq or 0)
    await awake.ping()
    assert await receipts(operator, message_id) == {id_of(awake): ("acked", None), id_of(asleep): ("kept", None)}
    cancelled = await operator.delete(f"/messages/{message_id}")
    assert cancelled.json() == {"message_id": message_id, "cancelled": [id_of(asleep)]}
    assert (await receipts(operator, message_id))[id_of(asleep)] == ("void", "cancelled")
    assert (await operator.delete(f"/messages/{message_id}")).json()["cancelled"] == []


async def test_what_was_taken_back_is_void_and_stays_so(relay: RunningRelay, operator: httpx.AsyncClient) -> None:
    phone = await relay.connect()
    await phone.hang_up()
    first, second = [
        (await operator.post("/messages", json={"text": text})).json()["message_id"] for text in ("one", "two")
    ]
    await operator.delete(f"/messages/{first}")
    back = await relay.connect(session_token=phone.token)
    void = await back.next()
    assert (void.type, void.payload) == ("void", {"from": 1, "to": 1, "reason": "cancelled"})
    frame = await back.next()
    assert (frame.id, frame.seq) == (second, 2)
    await back.ack(2)
    await back.ping()
    assert (await receipts(operator, first))[id_of(phone)] == ("void", "cancelled")
    assert (await receipts(operator, second))[id_of(phone)] == ("acked", None)


async def test_a_full_mailbox_takes_no_more_and_other_devices_still_get_it(tmp_path: Path) -> None:
    async with (
        running(settings_for(tmp_path, MAILBOX_MAX_COUNT="100")) as relay,
        client_of(relay, headers=relay.operator()) as operator,
    ):
        away = await relay.connect()
        await away.hang_up()
        for _ in range(100):
            assert (await operator.post("/messages", json={"text": "x"})).status_code == 202
        assert code(await operator.post("/messages", json={"text": "x"})) == (507, "mailbox_full")
        one = await operator.post("/messages", json={"text": "x", "device_id": id_of(away)})
        assert code(one) == (507, "mailbox_full")
        here = await relay.connect()
        sent = (await operator.post("/messages", json={"text": "y"})).json()
        assert sent["refused"] == [id_of(away)]
        assert [delivery["device_id"] for delivery in sent["deliveries"]] == [id_of(here)]
        back = await relay.connect(session_token=away.token)
        await back.until("synced")
        await back.ack(100)
        await back.ping()
        await relay.relay.acks.flush()
        assert (await operator.post("/messages", json={"text": "x"})).json()["deliveries"][0]["seq"] in (2, 101)


async def test_a_device_may_send_so_many_a_minute(relay: RunningRelay, http: httpx.AsyncClient) -> None:
    one, two = await relay.connect(), await relay.connect()
    answers = [
        await http.post("/messages", json={"text": "x"}, headers=bearer(one.token) | {"Idempotency-Key": str(n)})
        for n in range(121)
    ]
    assert {answer.status_code for answer in answers[:120]} == {202}
    assert code(answers[120]) == (429, "quota_exceeded")
    assert 0 < int(answers[120].headers["retry-after"]) <= 61
    assert (await http.post("/messages", json={"text": "x"}, headers=bearer(two.token))).status_code == 202


async def test_the_route_is_described(operator: httpx.AsyncClient) -> None:
    post = (await operator.get("/openapi.json")).json()["paths"]["/messages"]["post"]
    schema = post["requestBody"]["content"]["application/json"]["schema"]
    assert {"text", "title", "device_id", "ttl_seconds", "wake", "kind"} <= schema["properties"].keys()
    assert "202" in post["responses"]
