"""A phone with hermes-relay's own app: it knows nothing of acknowledgements, and answers pings with its own clock."""

from __future__ import annotations

from typing import Any

from tests.phone import Frame, Phone
from tests.relay import RunningRelay

SUPPORTS = {"typed_stream_events": True, "event_schema_version": 1}
_CLOCK = 1_740_000_000_000


async def connect(relay: RunningRelay, **fields: Any) -> Phone:
    return await relay.connect("/", supports=SUPPORTS, client_surface="android", **fields)


async def subscribe(phone: Phone, *, answers: bool = True) -> list[Frame]:
    """Returns the backlog. A client that answers has confirmed it."""
    await phone.send("proactive", "proactive.subscribe", {})
    answer = await phone.until("proactive.subscribed")
    assert list(answer.payload) == ["ts"]
    backlog: list[Frame] = []
    while (frame := await phone.next()).type != "proactive.backlog.complete":
        if frame.type == "phone.message":
            assert frame.payload["queued_delivery"] is True
            backlog.append(frame)
        elif answers:
            await answer_ping(phone, frame)
    assert frame.payload["count"] == len(backlog)
    if answers:
        await phone.ping()
    return backlog


async def answer_ping(phone: Phone, frame: Frame) -> None:
    """With an id and a time of its own, as the app does."""
    assert (frame.channel, frame.type) == ("system", "ping"), frame
    await phone.send("system", "pong", {"ts": _CLOCK})


async def confirm(phone: Phone) -> None:
    """Answer the ping that follows what was sent."""
    await answer_ping(phone, await phone.until("ping"))
    await phone.ping()
