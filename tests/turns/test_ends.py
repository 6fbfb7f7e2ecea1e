"""The end of a turn is known for what it is, whether the stream breaks, Hermes restarts, or the relay."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from app.demo.agent import Agent
from app.demo.stand_in import serve_stand_in
from tests.turns.rooms import KEY, OLDER, Rooms, open_devices, open_rooms

Row = dict[str, Any]

DEAD = "http://127.0.0.1:9"  # nothing listens on the discard port


async def polled(rooms: Rooms) -> None:
    """Wait until the turn has lost its stream and is about to look at the history."""
    async with asyncio.timeout(10):
        await rooms.pauses.sleeping.wait()


# the stream breaks, Hermes goes on


@pytest.mark.parametrize("message", ["tools cut:3", "tools nodone", "tools done-only", "tools cut:0"])
async def test_a_stream_without_an_end_is_settled_by_the_history(rooms: Rooms, message: str) -> None:
    phone, cli = rooms.phone(), rooms.phone(supports=OLDER)
    turn = await rooms.send(phone, message)
    end = await rooms.ended(turn["turn_id"])
    assert end["finish"] == "completed"
    assert end["text"].startswith("Let me look")
    assert end["text"].endswith("no hands).")
    assert phone.events()[-2:] == ["run.completed", "done"]
    last = [frame for frame in phone.frames if frame["type"] == "turn.snapshot"][-1]["payload"]["state"]
    assert last["text"] == end["text"]
    assert [(tool["tool_id"], tool["state"]) for tool in last["tools"]] == [("t1", "completed"), ("t2", "completed")]
    assert len(rooms.agent.turns_started) == 1
    assert cli.frames == []


async def test_an_older_client_gets_the_rest_as_one_delta(rooms: Rooms) -> None:
    cli = rooms.phone(supports=OLDER)
    turn = await rooms.send(cli, "WORDS:9 cut:3", "f1")
    end = await rooms.ended(turn["turn_id"])
    shown = [f["payload"]["payload"]["delta"] for f in cli.frames if f["payload"].get("event") == "assistant.delta"]
    assert "".join(shown) == end["text"] == "w1 w2 w3 w4 w5 w6 w7 w8 w9"
    assert cli.events()[-2:] == ["run.completed", "done"]


async def test_what_never_gets_news_is_uncertain_after_half_an_hour(rooms: Rooms) -> None:
    turn = await rooms.send(rooms.phone(), "WORDS:9 cut:3 lost")
    end = await rooms.ended(turn["turn_id"])
    assert (end["finish"], end["text"]) == ("uncertain", "w1 w2 w3")
    assert 30 * 60 <= sum(rooms.pauses.slept) < 31 * 60
    assert rooms.pauses.slept[0] == 2
    assert max(rooms.pauses.slept) == 10


async def test_the_session_takes_the_next_turn_only_after_that(rooms: Rooms) -> None:
    phone, session = rooms.phone(), await rooms.session()
    rooms.pauses.gate.clear()
    first = await rooms.send(phone, "WORDS:9 cut:3 lost", session_id=session)
    await polled(rooms)
    second = await rooms.send(phone, "SAY:next", session_id=session)
    assert second["position"] == 1
    rooms.pauses.gate.set()
    assert (await rooms.ended(second["turn_id"]))["text"] == "next"
    assert (await rooms.ended(first["turn_id"]))["finish"] == "uncertain"


# Hermes restarts or is away


async def test_nobody_listens(tmp_path: Path) -> None:
    async with open_rooms(tmp_path, DEAD) as rooms:
        await open_devices(rooms.db)
        phone = rooms.phone()
        turn = await rooms.send(phone, "hi")
        end = await rooms.ended(turn["turn_id"])
    assert (end["finish"], end["error"]["code"], end["error"]["retryable"]) == ("failed", "upstream_unreachable", True)
    assert phone.events() == ["error", "done"]


async def restarted(
    tmp_path: Path, message: str, change: Callable[[list[Row]], None] = lambda _: None, *, sent_before: int = 0
) -> tuple[dict[str, Any], Agent]:
    """The end of a turn under which Hermes was restarted, and changed its rows on the way."""
    agent = Agent(delay_s=0)
    async with asyncio.timeout(20), AsyncExitStack() as before:
        hermes = await before.enter_async_context(serve_stand_in(KEY, agent=agent))
        async with open_rooms(tmp_path, hermes.url) as rooms:
            await open_devices(rooms.db)
            session, phone = await rooms.session(), rooms.phone()
            rooms.pauses.gate.clear()
            for _ in range(sent_before):
                await rooms.ended((await rooms.send(phone, message, session_id=session))["turn_id"])
            agent.gate.clear()
            turn = await rooms.send(phone, message, session_id=session)
            await agent.gated()
            await before.aclose()
            await polled(rooms)
            change(agent.history.get(session).rows)
            async with serve_stand_in(KEY, int(hermes.url.rpartition(":")[2]), agent=agent):
                rooms.pauses.gate.set()
                return await rooms.ended(turn["turn_id"]), agent


async def test_a_restarted_hermes_leaves_the_turn_interrupted_with_what_was_seen(tmp_path: Path) -> None:
    end, agent = await restarted(tmp_path, "WORDS:9 gated")
    assert (end["finish"], end["text"], end["error"]["code"]) == ("interrupted", "w1", "turn_interrupted")
    assert len(agent.turns_started) == 1


async def test_a_turn_that_a_restarting_hermes_never_stored_is_uncertain(tmp_path: Path) -> None:
    end, _ = await restarted(tmp_path, "WORDS:9 gated", list.clear)
    assert (end["finish"], end["text"]) == ("uncertain", "w1")


async def test_the_second_of_two_equal_messages_is_not_taken_for_the_first(tmp_path: Path) -> None:
    message = "gated\nSAY:x y"

    def lose_the_second(rows: list[Row]) -> None:
        assert [row["content"] for row in rows] == [message, "x y", message]
        del rows[2:]

    end, _ = await restarted(tmp_path, message, lose_the_second, sent_before=1)
    assert (end["finish"], end["text"]) == ("uncertain", "x")
    (tmp_path / "talaria.db").unlink()
    end, _ = await restarted(tmp_path, message, sent_before=1)
    assert end["finish"] == "interrupted"


async def test_a_turn_that_a_restarting_hermes_still_finished_is_completed(tmp_path: Path) -> None:
    def finish(rows: list[Row]) -> None:
        rows.append(rows[0] | {"id": rows[0]["id"] + 1, "role": "assistant", "content": "all", "finish_reason": "stop"})

    end, _ = await restarted(tmp_path, "WORDS:9 gated", finish)
    assert (end["finish"], end["text"]) == ("completed", "all")


async def test_where_a_dropped_stream_interrupts_its_turn_nobody_waits_for_more(rooms: Rooms) -> None:
    """So from 0.20 on."""
    api = rooms.hermes.api
    api._capabilities = replace(await api.capabilities(), version="0.20.1")
    turn = await rooms.send(rooms.phone(), "WORDS:9 cut:3 lost", session_id="any-1")
    end = await rooms.ended(turn["turn_id"])
    assert (end["finish"], end["text"]) == ("interrupted", "w1 w2 w3")
    assert rooms.pauses.slept == [2]


# the disk


async def test_a_full_disk_costs_no_end(rooms: Rooms) -> None:
    phone = rooms.phone()
    rooms.agent.gate.clear()
    turn = await rooms.send(phone, "long gated")
    await rooms.agent.gated()
    await phone.event("assistant.delta")
    await limit_pages(rooms, 0)
    rooms.pauses.gate.clear()
    rooms.agent.gate.set()
    await phone.event("done")
    await polled(rooms)
    assert await rooms.kept() == []
    await limit_pages(rooms, 100_000)
    rooms.pauses.gate.set()
    assert (await rooms.ended(turn["turn_id"]))["finish"] == "completed"
    assert len(await rooms.kept()) == 1


async def limit_pages(rooms: Rooms, more: int) -> None:
    """SQLite answers as on a full disk when the file may not grow."""

    def work(tx: Any) -> None:
        pages = tx.one(text("PRAGMA page_count"))[0]
        tx.execute(text(f"PRAGMA max_page_count={pages + more}")).close()

    await rooms.db.write(work)
