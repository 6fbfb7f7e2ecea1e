"""Who sees a turn, and that snapshot and tail always lead to the same state as all events."""

from __future__ import annotations

from typing import Any

import pytest

from app.errors import RateLimited
from app.turns import watching
from app.turns.errors import TurnUnknown
from app.wire.payloads import Supports
from tests.turns.rooms import OLDER, Phone, Rooms


def text_seen(frames: list[dict[str, Any]]) -> str:
    """What a client that only appends deltas, and replaces all by a snapshot, shows."""
    shown, n = "", 0
    for frame in frames:
        payload = frame["payload"]
        if frame["type"] == "turn.snapshot":
            shown, n = payload["state"]["text"], payload["n"]
        elif frame["type"] == "stream.event":
            assert payload["seq"] == n + 1, "a jump in n"
            n = payload["seq"]
            shown += payload["payload"].get("delta", "") if payload["event"] == "assistant.delta" else ""
    return shown


async def test_every_link_of_the_device_watches_what_it_began(rooms: Rooms) -> None:
    phone, second = rooms.phone(instance="a"), rooms.phone(instance="b")
    other, ungranted = rooms.phone("tablet"), rooms.phone(instance="c", grants={"terminal": None})
    turn = await rooms.send(phone, "WORDS:5", "f1")
    await rooms.ended(turn["turn_id"])
    await second.event("done")
    assert phone.events() == second.events()
    assert {frame["id"] for frame in second.frames if frame["type"] == "stream.event"} == {"f1"}
    assert other.frames == []
    assert ungranted.frames == []


async def test_coming_back_in_mid_turn_gives_a_snapshot_and_then_the_tail(rooms: Rooms) -> None:
    phone, whole = rooms.phone(), rooms.phone("tablet")
    session = await rooms.session()
    await rooms.turns.watch(whole, session, None, None)
    rooms.agent.gate.clear()
    turn = await rooms.send(phone, "WORDS:9 gated", session_id=session)
    await rooms.agent.gated()
    await phone.event("assistant.delta")
    rooms.hang_up(phone)

    back = rooms.phone()
    snapshot = (await back.until("turn.snapshot"))["payload"]
    assert snapshot["turn_id"] == turn["turn_id"]
    assert snapshot["n"] == 3
    assert snapshot["state"] == {
        "text": "w1", "reasoning": "", "tools": [], "approvals": [], "started_at": rooms.clock.now(),
    }  # fmt: skip
    assert rooms.turns.running("phone") == [{"turn_id": turn["turn_id"], "session_id": session, "n": 3}]
    rooms.agent.gate.set()
    await back.event("done")
    assert text_seen(back.frames) == text_seen(whole.frames) == "w1 w2 w3 w4 w5 w6 w7 w8 w9"
    assert phone.types()[-1] == "stream.event"


async def test_attaching_twice_shows_once(rooms: Rooms) -> None:
    rooms.agent.gate.clear()
    phone = rooms.phone()
    await rooms.send(phone, "gated")
    rooms.turns.attach(phone)
    back = rooms.phone()
    rooms.turns.attach(back)
    assert phone.types().count("turn.snapshot") == 0
    assert back.types().count("turn.snapshot") == 1


async def test_two_watchers_see_the_same(rooms: Rooms) -> None:
    phone, tablet = rooms.phone(), rooms.phone("tablet")
    rooms.agent.gate.clear()
    turn = await rooms.send(phone, "tools gated", "f1")
    await rooms.agent.gated()
    await rooms.turns.watch(tablet, None, turn["turn_id"], "w1")
    assert (tablet.frames[0]["type"], tablet.frames[0]["id"]) == ("turn.snapshot", "w1")
    rooms.agent.gate.set()
    await tablet.event("done")
    assert text_seen(tablet.frames) == text_seen(phone.frames)
    tail = [frame["payload"] for frame in tablet.frames if frame["type"] == "stream.event"]
    assert tail == [frame["payload"] for frame in phone.frames if frame["type"] == "stream.event"][-len(tail) :]
    assert {frame["id"] for frame in tablet.frames if frame["type"] == "stream.event"} == {turn["turn_id"]}


async def test_a_watched_session_shows_later_turns_until_it_is_left(rooms: Rooms) -> None:
    phone, tablet, session = rooms.phone(), rooms.phone("tablet"), await rooms.session()
    await rooms.turns.watch(tablet, session, None, None)
    assert tablet.frames == []
    await rooms.ended((await rooms.send(phone, "SAY:one", session_id=session))["turn_id"])
    assert tablet.events()[-1] == "done"
    rooms.turns.unwatch(tablet, session, None)
    seen = len(tablet.frames)
    await rooms.ended((await rooms.send(phone, "SAY:two", session_id=session))["turn_id"])
    assert len(tablet.frames) == seen


async def test_an_ended_turn_is_answered_by_its_end_without_a_number(rooms: Rooms) -> None:
    tablet = rooms.phone("tablet")
    turn = await rooms.send(rooms.phone(), "SAY:over")
    end = await rooms.ended(turn["turn_id"])
    await rooms.turns.watch(tablet, None, turn["turn_id"], "w1")
    assert tablet.frames == [{"channel": "chat", "type": "turn.completed", "id": "w1", "payload": end}]
    with pytest.raises(TurnUnknown):
        await rooms.turns.watch(tablet, None, "none", None)


async def test_a_slow_reader_gets_a_snapshot_when_it_reads_again(rooms: Rooms) -> None:
    phone, other = rooms.phone(), rooms.phone("tablet")
    rooms.agent.gate.clear()
    turn = await rooms.send(phone, "WORDS:9 gated")
    await rooms.turns.watch(other, None, turn["turn_id"], None)
    phone.full = True
    await rooms.agent.gated()
    await other.event("assistant.delta")
    missed = len(phone.frames)
    phone.reads_again()
    assert [frame["type"] for frame in phone.frames[missed:]] == ["turn.snapshot"]
    assert phone.frames[-1]["payload"]["state"]["text"] == "w1"
    rooms.agent.gate.set()
    await other.event("done")
    assert text_seen(phone.frames[missed:]) == "w1 w2 w3 w4 w5 w6 w7 w8 w9"
    assert phone.types().count("turn.snapshot") == 1


async def test_one_who_reads_again_after_the_end_has_it_in_the_mailbox(rooms: Rooms) -> None:
    phone, bare = rooms.phone(), rooms.phone("tablet", Supports(turns=1))
    turn = await rooms.send(phone, "WORDS:9")
    await rooms.turns.watch(bare, None, turn["turn_id"], None)
    phone.full = bare.full = True
    end = await rooms.ended(turn["turn_id"])
    missed = len(phone.frames)
    phone.reads_again()
    bare.reads_again()
    assert len(phone.frames) == missed
    assert bare.frames[-1]["payload"] == end
    assert "seq" not in bare.frames[-1]


async def test_a_slow_older_client_gets_its_deltas_joined(rooms: Rooms) -> None:
    cli, other = rooms.phone(supports=OLDER), rooms.phone("tablet")
    rooms.agent.gate.clear()
    turn = await rooms.send(cli, "tools gated", "f1")
    await rooms.turns.watch(other, None, turn["turn_id"], None)
    await rooms.agent.gated()
    await cli.event("assistant.delta")
    cli.full = True
    rooms.agent.gate.set()
    await other.event("done")
    missed = len(cli.events())
    cli.reads_again()
    assert cli.events()[missed:] == [
        "assistant.delta", "tool.started", "tool.completed", "assistant.delta", "tool.started", "tool.completed",
        "assistant.delta", "assistant.completed", "tool.completed", "tool.completed", "run.completed", "done",
    ]  # fmt: skip
    shown = [f["payload"]["payload"]["delta"] for f in cli.frames if f["payload"].get("event") == "assistant.delta"]
    assert "".join(shown) == (await rooms.ended(turn["turn_id"]))["text"]
    assert cli.numbers() == sorted(set(cli.numbers()))
    assert {frame["id"] for frame in cli.frames} == {"f1"}


async def test_an_older_client_that_stays_slow_loses_nothing_and_repeats_nothing(rooms: Rooms) -> None:
    class Narrow(Phone):
        """Takes two frames after each pause."""

        room = 0

        def offer(self, frame: bytes) -> bool:
            if self.full or not self.room:
                return False
            self.room -= 1
            self.send(frame)
            return True

    cli = Narrow("phone", OLDER)
    rooms.hub.join(cli)
    turn = await rooms.send(cli, "tools")
    end = await rooms.ended(turn["turn_id"])
    while not cli.events() or cli.events()[-1] != "done":
        cli.room = 2
        cli.reads_again()
    shown = [f["payload"]["payload"]["delta"] for f in cli.frames if f["payload"].get("event") == "assistant.delta"]
    assert "".join(shown) == end["text"]
    assert cli.numbers() == sorted(set(cli.numbers()))


async def test_a_link_that_closes_is_forgotten(rooms: Rooms) -> None:
    tablet, session = rooms.phone("tablet"), await rooms.session()
    await rooms.turns.watch(tablet, session, None, None)
    rooms.hang_up(tablet)
    assert rooms.turns._watching._sessions == {}
    assert rooms.turns._watching._links == {}
    turn = await rooms.send(rooms.phone(), "SAY:x", session_id=session)
    assert (await rooms.ended(turn["turn_id"]))["finish"] == "completed"


async def test_a_link_follows_so_many_conversations_and_no_more(rooms: Rooms, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "MAX_SESSIONS", 2)
    phone = rooms.phone()
    for session in ("a", "b", "a"):
        await rooms.turns.watch(phone, session, None, None)
    with pytest.raises(RateLimited):
        await rooms.turns.watch(phone, "c", None, None)
    rooms.turns.unwatch(phone, "a", None)
    await rooms.turns.watch(phone, "c", None, None)
