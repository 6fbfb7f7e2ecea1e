"""Notifications as a phone posts them, and as the relay gives them."""

from __future__ import annotations

from typing import Any

from tests.phone import Phone
from tests.relay import RunningRelay

BEGAN = 1_740_000_000_000


def note(number: int = 0, **fields: Any) -> dict[str, Any]:
    """The payload of a post, as the recorded phone sends it."""
    return {
        "package_name": "com.example.mail", "title": f"Mail {number}", "text": "body", "sub_text": None,
        "posted_at": BEGAN + number, "key": f"0|com.example.mail|{number}",
    } | fields  # fmt: skip


async def post(phone: Phone, *payloads: dict[str, Any]) -> None:
    """Returns when the relay has taken them."""
    for payload in payloads:
        await phone.send("notifications", "notification.posted", payload)
    await phone.ping()


async def remove(phone: Phone, key: str) -> None:
    await phone.send("notifications", "notification.removed", {"key": key})
    await phone.ping()


async def listed(phone: Phone, **asked: Any) -> list[dict[str, Any]]:
    answer = await phone.ask("notifications", "notifications.list", asked)
    assert (answer.channel, answer.type) == ("notifications", "notifications.list"), answer
    found: list[dict[str, Any]] = answer.payload["notifications"]
    return found


async def titles(phone: Phone, **asked: Any) -> list[str]:
    return [one["title"] for one in await listed(phone, **asked)]


async def with_grants(relay: RunningRelay, *grants: str) -> Phone:
    code = (await relay.relay.pairing.mint(grants=dict.fromkeys(grants))).code
    return await relay.connect(pairing_code=code)
