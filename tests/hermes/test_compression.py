"""A conversation that Hermes compresses in mid-turn goes on in another session, and everybody with it."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tests.hermes.hermes_lab import Lab
from tests.hermes.talk import ended, say, send, shown
from tests.hermes.ways import running_over

pytestmark = pytest.mark.hermes

PADDING = "lorem ipsum dolor sit amet " * 230  # of four messages of this size there is something to compress
CLAIMED = 60_000  # tokens: what the model says the request took, above the threshold of the lab's context


@pytest.mark.parametrize("way", ["dashboard", "session_stream"])
async def test_the_end_arrives_and_later_sends_go_to_the_new_session(lab: Lab, tmp_path: Path, way: str) -> None:
    marker = uuid.uuid4().hex
    async with running_over(way, lab, tmp_path) as relay:
        phone, tablet = await relay.connect(), await relay.connect()
        old = (await say(phone, f"{PADDING}\n\nSAY:first"))["session_id"]
        for n in range(3):
            await say(phone, f"{PADDING}\n\nSAY:answer {n}", session_id=old)
        await tablet.send("chat", "chat.watch", session_id=old)
        await tablet.ping()

        turn = await send(phone, f"PRE:let me look {marker}\nTOOL:terminal:echo hi\nUSED:{CLAIMED}", session_id=old)
        behind = await send(phone, f"SAY:behind {marker}", session_id=old)  # waits, while the conversation moves
        end = await ended(phone, turn["turn_id"])
        new = end["session_id"]
        assert end["finish"] == "completed"
        assert new != old
        assert end["text"].startswith(f"let me look {marker}\n\ntool said:")
        assert await ended(tablet, turn["turn_id"]) == end
        for watcher in (phone, tablet):
            moves = [frame.payload for frame in watcher.frames if frame.type == "chat.session.moved"]
            assert [(move["from"], move["to"]) for move in moves] == [(old, new)]

        second = await ended(phone, behind["turn_id"])
        assert (second["finish"], second["text"], second["session_id"]) == ("completed", f"behind {marker}", new)
        third = await say(phone, f"SAY:and later {marker}", session_id=new)
        assert (third["text"], third["session_id"]) == (f"and later {marker}", new)
        assert await ended(tablet, third["turn_id"]) == third  # who watched the old one watches the new one
        for text in ("let me look", "behind", "and later"):
            assert lab.times_run(f"{text} {marker}") == 1

        rows = (await phone.ask("chat", "chat.sessions.messages", {"session_id": new})).payload["messages"]
        assert [row["content"] for row in rows if row["role"] == "user"][-2:] == [
            f"SAY:behind {marker}", f"SAY:and later {marker}",
        ]  # fmt: skip
        of_the_turn = [f for f in phone.frames if f.payload.get("turn_id") == turn["turn_id"]]
        assert shown(of_the_turn) == end["text"]


async def test_a_send_to_the_old_session_after_the_move(lab: Lab, tmp_path: Path) -> None:
    """A device that missed the move: Hermes follows the conversation, and so does the end."""
    async with running_over("dashboard", lab, tmp_path) as relay:
        phone = await relay.connect()
        old = (await say(phone, f"{PADDING}\n\nSAY:first"))["session_id"]
        for n in range(3):
            await say(phone, f"{PADDING}\n\nSAY:answer {n}", session_id=old)
        new = (await say(phone, f"TOOL:terminal:echo hi\nUSED:{CLAIMED}", session_id=old))["session_id"]
        assert new != old
        late = await say(phone, "SAY:from one who slept", session_id=old)
        assert (late["finish"], late["text"], late["session_id"]) == ("completed", "from one who slept", new)
