"""Files cross the link as tokens: bytes go over HTTP, each way with the caller's own credential."""

from __future__ import annotations

import httpx

from tests.link import Plugin
from tests.phone import Phone
from tests.relay import RunningRelay

PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)


async def upload(relay: RunningRelay, token: str, name: str, content: bytes) -> str:
    async with httpx.AsyncClient(base_url=relay.url, headers={"Authorization": f"Bearer {token}"}) as http:
        answer = await http.post("/media/upload", files={"file": (name, content)})
        return str(answer.json()["token"])


async def fetched(relay: RunningRelay, token: str, file: str) -> bytes:
    async with httpx.AsyncClient(base_url=relay.url, headers={"Authorization": f"Bearer {token}"}) as http:
        return (await http.get(f"/media/{file}")).content


async def test_a_file_from_the_phone_reaches_hermes(relay: RunningRelay, phone: Phone, plugin: Plugin) -> None:
    file = await upload(relay, phone.token, "cat.png", PNG)
    await phone.send("messages", "message.send", chat_id="home", text="", media=[file])
    inbound = await plugin.take()
    assert inbound["media"] == [{"token": file, "name": "cat.png", "mime": "image/png", "size": len(PNG)}]
    assert await fetched(relay, relay.relay.link.read(), file) == PNG


async def test_a_file_from_hermes_reaches_the_phone(relay: RunningRelay, phone: Phone, plugin: Plugin) -> None:
    file = await upload(relay, relay.relay.link.read(), "paper.pdf", b"%PDF-1.7")
    verdict = await plugin.message("Here it is.", media=[file])
    assert verdict["type"] == "ok"
    message = await phone.until("message")
    assert message.payload["media"] == [{"token": file, "name": "paper.pdf", "mime": "application/pdf", "size": 8}]
    assert await fetched(relay, phone.token, file) == b"%PDF-1.7"


async def test_a_file_that_is_gone_is_refused_both_ways(relay: RunningRelay, phone: Phone, plugin: Plugin) -> None:
    id = await phone.send("messages", "message.send", chat_id="home", text="look", media=["nope"])
    refused = await phone.until("error")
    assert (refused.id, refused.payload["code"]) == (id, "media_unknown")
    verdict = await plugin.message("Here it is.", media=["nope"])
    assert (verdict["type"], verdict["code"]) == ("no", "media_unknown")
