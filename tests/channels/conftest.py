"""The chat channel as a link's worker drives it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from app.channels.base import Dispatch, refusal_to
from app.channels.chat import Chat
from app.channels.conversations import Conversations
from app.delivery.news import News
from app.errors import RelayError
from app.once.outward import Outward
from app.wire.envelope import Envelope
from tests.turns.rooms import Frame, Phone, Rooms, open_house

Say = Callable[..., Awaitable[Frame]]


@pytest.fixture
async def rooms(tmp_path: Path) -> AsyncIterator[Rooms]:
    async with open_house(tmp_path) as (rooms, _):
        yield rooms


@pytest.fixture
def dispatch(rooms: Rooms) -> Dispatch:
    outward, news = Outward(rooms.db, rooms.clock, rooms.tasks), News(rooms.hub, rooms.clock)
    conversations = Conversations(rooms.hermes, outward, news, rooms.tasks, rooms.turns.busy)
    return Dispatch([Chat(rooms.turns, rooms.tasks), conversations], rooms.clock)


@pytest.fixture
def say(dispatch: Dispatch) -> Say:
    """Sends a frame as a link's worker does and returns the first frame with its id."""

    async def say(phone: Phone, type_: str, payload: Any = None, id: str = "f1") -> Frame:
        begun = len(phone.frames)
        sent = Envelope("chat", type_, id, payload or {})
        try:
            waiting = dispatch(sent, phone)
            if waiting is not None:
                await waiting
        except RelayError as exc:
            phone.send(refusal_to(phone, exc, sent))
        async with asyncio.timeout(10):
            while True:
                for frame in phone.frames[begun:]:
                    if frame.get("id") == id:
                        return frame
                phone._news.clear()
                await phone._news.wait()

    return say
