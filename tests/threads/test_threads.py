"""Lists, history, and what is unread: per device, and from our own store."""

from __future__ import annotations

from typing import Any

import httpx

from app.threads.store import sweep
from tests import older
from tests.api.conftest import client_of
from tests.link import Plugin
from tests.phone import Phone
from tests.relay import RunningRelay


async def threads(phone: Phone, **asked: Any) -> dict[str, Any]:
    answer = await phone.ask("messages", "threads.list", asked)
    assert answer.type == "threads.list", answer
    return answer.payload


async def history(phone: Phone, **asked: Any) -> dict[str, Any]:
    answer = await phone.ask("messages", "threads.history", asked)
    assert answer.type == "threads.history", answer
    return answer.payload


def unread(page: dict[str, Any]) -> dict[tuple[str, str | None], int]:
    return {(one["chat_id"], one.get("thread_id")): one["unread"] for one in page["threads"]}


async def test_home_is_there_from_the_first_pairing_on(phone: Phone) -> None:
    (home,) = (await threads(phone))["threads"]
    assert (home["chat_id"], home["name"], home["unread"]) == ("home", "Home", 0)
    assert (await history(phone))["messages"] == []
    refused = await phone.ask("messages", "threads.history", chat_id="nowhere")
    assert refused.payload["code"] == "chat_unknown"


async def test_history_is_paged_from_the_newest_back(phone: Phone, plugin: Plugin) -> None:
    for number in range(7):
        await plugin.message(f"t{number}")
    await plugin.message("elsewhere", thread_id="x")
    pages: list[list[str]] = []
    cursor: dict[str, str] = {}
    while True:
        page = await history(phone, limit=3, **cursor)
        pages.append([one["text"] for one in page["messages"]])
        await plugin.message(f"new {len(pages)}")  # what comes meanwhile moves no page
        if "cursor" not in page:
            break
        cursor = {"cursor": page["cursor"]}
    assert pages == [["t4", "t5", "t6"], ["t1", "t2", "t3"], ["t0"]]
    for wrong in ("x", "-1", "9" * 30):
        refused = await phone.ask("messages", "threads.history", cursor=wrong)
        assert refused.payload["code"] == "payload_invalid"


async def test_unread_is_counted_for_each_device(relay: RunningRelay, phone: Phone, plugin: Plugin) -> None:
    await plugin.message("one")
    tablet = await relay.connect()
    second = await plugin.message("two")
    await plugin.message("three")
    await plugin.message("aside", thread_id="x")
    await phone.ask("messages", "message.send", text="what I say is read")
    assert unread(await threads(phone)) == {("home", None): 3, ("home", "x"): 1}
    assert unread(await threads(tablet)) == {("home", None): 2, ("home", "x"): 1}  # it was not there for the first
    read = await phone.ask("messages", "threads.read", message_id=second["message_id"])
    assert read.payload == {"chat_id": "home", "unread": 1}
    await phone.ask("messages", "threads.read", message_id="never seen")
    assert unread(await threads(phone)) == {("home", None): 1, ("home", "x"): 1}
    assert (await phone.ask("messages", "threads.read", thread_id="x")).payload["unread"] == 0
    assert unread(await threads(tablet)) == {("home", None): 2, ("home", "x"): 1}


async def test_threads_are_listed_newest_first_in_pages(phone: Phone, plugin: Plugin) -> None:
    for number in range(5):
        await plugin.message("x" * 500, thread_id=f"t{number}")
    first = await threads(phone, limit=4)
    second = await threads(phone, limit=4, cursor=first["cursor"])
    found = [one.get("thread_id") for one in first["threads"] + second["threads"]]
    assert found == ["t4", "t3", "t2", "t1", "t0", None]
    assert "cursor" not in second
    assert first["threads"][0]["last"]["text"] == "x" * 200
    for cursor in (
        "!",
        "WzFd",
        "eA==",
        "NQ==",
        "WzE4NDQ2NzQ0MDczNzA5NTUxNjE1LCJhIiwiYiJd",
    ):  # 5 and [2**64 - 1, "a", "b"]
        refused = await phone.ask("messages", "threads.list", cursor=cursor)
        assert refused.payload["code"] == "payload_invalid"


async def test_a_chat_with_one_device_is_no_others_business(relay: RunningRelay, phone: Phone, plugin: Plugin) -> None:
    tablet = await relay.connect()
    await tablet.until("synced")
    chat_id = f"device:{phone.auth['device_id']}"
    await plugin.update("m1", "just ▉", chat_id=chat_id, reply_to="u1")
    await plugin.message("just you", chat_id=chat_id, local_id="m1", reply_to="u1")
    assert (await phone.until("message")).payload["text"] == "just you"
    assert {one["chat_id"] for one in (await threads(phone))["threads"]} == {"home", chat_id}
    assert {one["chat_id"] for one in (await threads(tablet))["threads"]} == {"home"}
    for type_ in ("message.send", "threads.history", "threads.read"):
        refused = await tablet.ask("messages", type_, chat_id=chat_id, text="x")
        assert refused.payload["code"] == "chat_unknown"
    await tablet.send("system", "sync", after=0)
    await tablet.until("synced")
    assert not [frame for frame in tablet.frames if frame.type in ("message", "message.start")]


async def test_the_chat_of_a_device_ends_with_its_pairing(relay: RunningRelay, phone: Phone, plugin: Plugin) -> None:
    chat_id = f"device:{phone.auth['device_id']}"
    assert (await plugin.message("hi", chat_id=chat_id))["type"] == "ok"
    async with client_of(relay, headers={"Authorization": f"Bearer {phone.token}"}) as http:
        prefix = (await http.get("/session")).json()["token_prefix"]
        assert (await http.delete(f"/sessions/{prefix}")).status_code == 200
    refused = await plugin.message("still there?", chat_id=chat_id)
    assert (refused["type"], refused["code"]) == ("no", "chat_unknown")


async def test_a_device_makes_a_chat_and_hermes_may_write_there(phone: Phone, plugin: Plugin) -> None:
    assert (await plugin.message("hi", chat_id="work"))["code"] == "chat_unknown"
    await phone.ask("messages", "message.send", chat_id="work", text="hello")
    assert (await plugin.take())["chat_name"] == "work"
    await plugin.update("m1", "hi ▉", chat_id="work", reply_to="u1")
    assert (await phone.until("message.start")).payload["chat_id"] == "work"
    assert (await plugin.message("hi", chat_id="work", local_id="m1"))["type"] == "ok"


async def test_the_list_over_http(relay: RunningRelay, phone: Phone, plugin: Plugin) -> None:
    await plugin.message("one")
    async with client_of(relay) as http:
        assert (await http.get("/phone/threads")).status_code == 401
        answer = await http.get("/phone/threads", headers={"Authorization": f"Bearer {phone.token}"})
        assert answer.json() == {"threads": (await threads(phone))["threads"]}
        (home,) = (await http.get("/phone/threads", headers=relay.operator())).json()["threads"]
        assert (home["chat_id"], home["unread"]) == ("home", 0)


async def test_an_older_phone_gets_what_is_said_in_chats(relay: RunningRelay, plugin: Plugin) -> None:
    phone = await older.connect(relay)
    await older.subscribe(phone)
    await plugin.update("m1", "hel ▉", reply_to="u1")
    verdict = await plugin.message("hello", local_id="m1", reply_to="u1")
    frame = await phone.until("phone.message")
    assert (frame.payload["text"], frame.payload["message_id"]) == ("hello", verdict["message_id"])
    assert frame.payload["chat_id"] == "home"
    assert not [frame for frame in phone.frames if frame.channel == "messages"]


async def test_receipts_of_what_hermes_said(relay: RunningRelay, phone: Phone, plugin: Plugin) -> None:
    verdict = await plugin.message("hello")
    await phone.until("message")
    await phone.ack(1)
    await phone.ping()
    async with client_of(relay, headers=relay.operator()) as operator:
        found: httpx.Response = await operator.get(f"/messages/{verdict['message_id']}")
        (receipt,) = found.json()["deliveries"]
        assert (receipt["state"], found.json()["message"]["text"]) == ("acked", "hello")


async def test_what_is_old_goes(relay: RunningRelay, phone: Phone, plugin: Plugin) -> None:
    await plugin.message("old")
    now = relay.relay.clock.now()
    assert await relay.relay.db.write(lambda tx: sweep(tx, now + 1)) is False
    assert (await history(phone))["messages"] == []
    assert unread(await threads(phone)) == {("home", None): 0}
    assert (await plugin.message("new"))["type"] == "ok"  # the spool of a link that is open is not forgotten
    assert [one["text"] for one in (await history(phone))["messages"]] == ["new"]
    await plugin.hang_up()


async def test_what_is_said_to_nobody_is_in_the_history(relay: RunningRelay, plugin: Plugin, phone: Phone) -> None:
    """Somebody has to read it some day: a full mailbox, or none, refuses nothing of the agent's."""
    await phone.hang_up()
    relay.relay.messages._most = 0
    assert (await plugin.message("for later"))["type"] == "ok"
    back = await relay.connect(session_token=phone.token)
    assert [one["text"] for one in (await history(back))["messages"]] == ["for later"]
