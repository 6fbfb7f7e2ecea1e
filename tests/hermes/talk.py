"""What tests do with a phone on a real Hermes: send, wait for the end, look at what was shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.phone import Frame, Phone

ENDS = ("turn.completed", "turn.failed")


async def send(phone: Phone, message: Any, **fields: Any) -> dict[str, Any]:
    """The chat.accepted payload."""
    answer = await phone.ask("chat", "chat.send", {"message": message, **fields})
    assert answer.type == "chat.accepted", answer
    return answer.payload


async def ended(phone: Phone, turn_id: str) -> dict[str, Any]:
    """The kept end of a turn."""
    return (await end_frame(phone, turn_id)).payload


async def end_frame(phone: Phone, turn_id: str) -> Frame:
    return await find(phone, *ENDS, match=lambda frame: frame.payload["turn_id"] == turn_id and frame.seq is not None)


async def find(phone: Phone, *types: str, match: Callable[[Frame], bool] = lambda frame: True) -> Frame:
    """The first frame of these types that matches, of those that came and those to come."""
    seen = 0
    while True:
        for frame in phone.frames[seen:]:
            if frame.type in types and match(frame):
                return frame
        seen = len(phone.frames)
        phone.read = seen
        await phone.next()


async def say(phone: Phone, message: Any, **fields: Any) -> dict[str, Any]:
    """Send, and wait for the end."""
    return await ended(phone, (await send(phone, message, **fields))["turn_id"])


def shown(frames: list[Frame]) -> str:
    """What a client shows that takes snapshots and appends deltas."""
    text, n = "", 0
    for frame in frames:
        if frame.type == "turn.snapshot":
            text, n = frame.payload["state"]["text"], frame.payload["n"]
        elif frame.type == "stream.event":
            assert frame.payload["seq"] == n + 1
            n = frame.payload["seq"]
            text += frame.payload["payload"].get("delta", "") if frame.payload["event"] == "assistant.delta" else ""
    return text


def events(phone: Phone, name: str) -> list[dict[str, Any]]:
    return [f.payload["payload"] for f in phone.frames if f.type == "stream.event" and f.payload["event"] == name]


def kept(phone: Phone, type_: str) -> list[dict[str, Any]]:
    """Payloads of the kept frames of a type, in order."""
    return [frame.payload for frame in phone.frames if frame.type == type_ and frame.seq is not None]
