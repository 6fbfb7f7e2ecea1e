"""A turn from chat.send to its end: stored first, run once, in order, and shown to who watches."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from app.demo.agent import Agent
from app.errors import IdReused
from app.turns import runner
from app.turns.errors import MediaUnsupported, MessageTooLong, TurnQueueFull, TurnUnknown
from tests.turns.rooms import OLDER, Rooms, open_house


async def test_a_turn_in_a_new_conversation(rooms: Rooms) -> None:
    phone = rooms.phone()
    accepted = await rooms.send(phone, "SAY:hello", "f1", client_msg_id="m1")
    turn_id = accepted["turn_id"]
    assert accepted == {"client_msg_id": "m1", "turn_id": turn_id, "session_id": None, "position": 0}

    session = await phone.until("chat.session")
    done = await phone.event("done")
    assert session["payload"]["turn_id"] == turn_id
    session_id = session["payload"]["session_id"]
    assert (done["id"], done["payload"]["turn_id"], done["payload"]["run_id"]) == ("f1", turn_id, turn_id)
    assert (done["payload"]["session_id"], done["payload"]["schema_version"]) == (session_id, 1)
    assert phone.numbers() == list(range(1, len(phone.numbers()) + 1))
    assert phone.events()[-3:] == ["assistant.completed", "run.completed", "done"]

    end = await rooms.ended(turn_id)
    assert (end["text"], end["finish"], end["session_id"]) == ("hello", "completed", session_id)
    assert end["usage"]["total_tokens"] > 0
    for device in ("phone", "tablet"):
        assert [(seq, type_) for seq, type_, _ in await rooms.kept(device)] == [(1, "turn.completed")]
    assert await rooms.state_of(turn_id) == "ended"
    assert rooms.turns.running("phone") == []


async def test_it_is_stored_before_anything_is_submitted(tmp_path: Path) -> None:
    async with open_house(tmp_path, Agent(delay_s=0)) as (rooms, hermes):
        phone, states = rooms.phone(), []
        seen = hermes.agent.submitted
        loop = asyncio.get_running_loop()

        def submitted(session_id: str, message: str) -> None:
            states.append(loop.create_task(rooms.stored(turn_id)))
            seen(session_id, message)

        hermes.agent.submitted = submitted  # type: ignore[method-assign]
        turn_id = (await rooms.send(phone, "gated"))["turn_id"]
        assert await rooms.state_of(turn_id) in ("accepted", "submitting")
        await hermes.agent.started()
        stored = await states[0]
        assert stored[0] in ("submitting", "running")
        assert '"route":"session_stream"' in stored[3]


async def test_the_same_key_starts_one_turn(rooms: Rooms) -> None:
    phone = rooms.phone()
    first, again = await asyncio.gather(
        rooms.send(phone, "hi", "f1", client_msg_id="m"), rooms.send(phone, "hi", "f2", client_msg_id="m")
    )
    assert first == again
    await rooms.ended(first["turn_id"])
    assert await rooms.send(phone, "hi", "f3", client_msg_id="m") == first
    assert len(rooms.agent.turns_started) == 1
    with pytest.raises(IdReused):
        await rooms.send(phone, "something else", "f4", client_msg_id="m")


async def test_the_frame_id_is_the_key_where_there_is_no_other_and_keys_are_per_device(rooms: Rooms) -> None:
    phone, tablet = rooms.phone(), rooms.phone("tablet")
    first = await rooms.send(phone, "hi", "f1")
    assert await rooms.send(phone, "hi", "f1") == first
    assert await rooms.send(tablet, "hi", "f1") != first
    assert await rooms.send(phone, "hi") != await rooms.send(phone, "hi")


async def test_one_at_a_time_in_a_session_and_in_order(rooms: Rooms) -> None:
    phone, session = rooms.phone(), await rooms.session()
    turns = [await rooms.send(phone, f"SAY:{n}", session_id=session) for n in range(3)]
    ends = [await rooms.ended(turn["turn_id"]) for turn in turns]
    assert [end["text"] for end in ends] == ["0", "1", "2"]
    assert rooms.agent.turns_started == [(session, f"SAY:{n}") for n in range(3)]


async def test_eight_wait_and_the_ninth_is_refused(rooms: Rooms) -> None:
    phone, session = rooms.phone(), await rooms.session()
    rooms.agent.gate.clear()
    first = await rooms.send(phone, "gated", session_id=session)
    await rooms.agent.gated()
    waiting = [await rooms.send(phone, f"SAY:{n}", session_id=session) for n in range(8)]
    assert [turn["position"] for turn in waiting] == list(range(1, 9))
    with pytest.raises(TurnQueueFull):
        await rooms.send(phone, "one more", "f9", session_id=session)
    assert len(rooms.turns.running("phone")) == 9
    assert len(rooms.agent.turns_started) == 1
    other = await rooms.send(phone, "SAY:elsewhere", session_id=await rooms.session())
    assert (await rooms.ended(other["turn_id"]))["text"] == "elsewhere"

    rooms.agent.gate.set()
    assert (await rooms.ended(waiting[-1]["turn_id"]))["text"] == "7"
    assert await rooms.send(phone, "SAY:now", "f9", session_id=session)
    assert first["position"] == 0


async def test_one_device_cannot_fill_the_house(rooms: Rooms, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "MAX_OF_DEVICE", 2)
    rooms.agent.gate.clear()
    phone = rooms.phone()
    first, _ = [await rooms.send(phone, "gated", f"f{n}") for n in range(2)]
    with pytest.raises(TurnQueueFull):
        await rooms.send(phone, "gated", "f2")
    assert await rooms.send(phone, "gated", "f0") == first
    await rooms.send(rooms.phone("tablet"), "gated")


async def test_media_and_what_hermes_would_cut_are_refused(rooms: Rooms) -> None:
    phone = rooms.phone()
    with pytest.raises(MediaUnsupported):
        await rooms.send(phone, [{"type": "media", "media_id": "m1"}])
    with pytest.raises(MessageTooLong):
        await rooms.send(phone, "x" * 65_537)
    await rooms.send(phone, "SAY:x")


async def test_a_picture_reaches_hermes_as_it_is(rooms: Rooms) -> None:
    parts = [
        {"type": "text", "text": "SAY:seen"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,A"}},
    ]
    turn = await rooms.send(rooms.phone(), parts)
    assert (await rooms.ended(turn["turn_id"]))["text"] == "seen"


async def test_tools_reasoning_and_text_of_one_turn(rooms: Rooms) -> None:
    phone = rooms.phone()
    turn = await rooms.send(phone, "tools reasoning")
    end = await rooms.ended(turn["turn_id"])
    assert end["text"].count("\n\n") == 2
    assert "reasoning" in end["reasoning"]
    assert phone.events().count("tool.started") == 2
    assert phone.events().count("reasoning.delta") == 1


async def test_characters_are_never_cut(rooms: Rooms) -> None:
    turn = await rooms.send(rooms.phone(), "split")
    text = (await rooms.ended(turn["turn_id"]))["text"]
    assert "日本語" in text
    assert "👩‍🚀" in text
    assert "�" not in text


@pytest.mark.parametrize(
    ("message", "code", "layer", "retryable"),
    [
        ("fail", "model_failed", "agent", False),
        ("error", "agent_failed", "agent", False),
        ("http429", "upstream_busy", "upstream", True),
        ("http500", "upstream_failed", "upstream", True),
        ("http503", "upstream_restarting", "upstream", True),
    ],
)
async def test_every_failure_says_which_layer_failed(
    rooms: Rooms, message: str, code: str, layer: str, retryable: bool
) -> None:
    phone = rooms.phone()
    end = await rooms.ended((await rooms.send(phone, message))["turn_id"])
    assert (end["finish"], end["error"]["code"], end["error"]["layer"]) == ("failed", code, layer)
    assert end["error"]["retryable"] is retryable
    assert phone.events()[-2:] == ["error", "done"]
    assert [type_ for _, type_, _ in await rooms.kept()] == ["turn.failed"]


async def test_a_session_that_does_not_exist(rooms: Rooms) -> None:
    end = await rooms.ended((await rooms.send(rooms.phone(), "hi", session_id="none"))["turn_id"])
    assert end["error"]["code"] == "session_not_found"
    assert rooms.agent.turns_started == []


async def test_a_conversation_that_moves_takes_those_who_wait_and_watch_along(rooms: Rooms) -> None:
    phone, tablet, session = rooms.phone(), rooms.phone("tablet"), await rooms.session()
    await rooms.turns.watch(tablet, session, None, "w")
    rooms.agent.gate.clear()
    first = await rooms.send(phone, "moved gated", session_id=session)
    await rooms.agent.gated()
    second = await rooms.send(phone, "SAY:after", session_id=session)
    rooms.agent.gate.set()

    moved = (await phone.until("chat.session.moved"))["payload"]
    assert moved["from"] == session
    end = await rooms.ended(second["turn_id"])
    assert end["session_id"] == moved["to"]
    assert (await rooms.ended(first["turn_id"]))["session_id"] == moved["to"]
    assert [s for s, _ in rooms.agent.turns_started] == [session, moved["to"]]
    assert tablet.events() == phone.events()


@pytest.mark.parametrize("waits", [False, True])
async def test_who_has_not_heard_that_it_moved_sends_to_where_it_is(rooms: Rooms, waits: bool) -> None:
    phone, tablet, session = rooms.phone(), rooms.phone("tablet"), await rooms.session()
    first = await rooms.send(phone, "moved", session_id=session)
    now = (await rooms.ended(first["turn_id"]))["session_id"]
    assert now != session
    sent = []
    if waits:  # behind another that is in the right place
        rooms.agent.gate.clear()
        sent.append(await rooms.send(phone, "gated", session_id=now))
        await rooms.agent.gated()
    sent += [await rooms.send(tablet, "SAY:late", session_id=session) for _ in range(2)]
    rooms.agent.gate.set()
    ends = [await rooms.ended(turn["turn_id"]) for turn in sent]
    assert {(end["finish"], end["session_id"]) for end in ends} == {("completed", now)}
    assert [where for where, _ in rooms.agent.turns_started] == [session, *[now] * len(sent)]
    assert (await tablet.until("chat.session.moved"))["payload"]["to"] == now


async def test_a_waiting_turn_can_be_stopped_and_is_never_sent(rooms: Rooms) -> None:
    phone, session = rooms.phone(), await rooms.session()
    rooms.agent.gate.clear()
    first = await rooms.send(phone, "gated", session_id=session)
    await rooms.agent.gated()
    second = await rooms.send(phone, "SAY:never", session_id=session)
    answer = await rooms.turns.stop(phone, second["turn_id"], "s1")
    assert answer == {"turn_id": second["turn_id"], "stopped": True}
    assert await rooms.turns.stop(phone, second["turn_id"], "s1") == answer
    assert (await rooms.turns.stop(phone, second["turn_id"], "s2"))["stopped"] is False
    assert (await rooms.ended(second["turn_id"]))["finish"] == "stopped"

    running = await rooms.turns.stop(phone, first["turn_id"], "s3")
    assert running["stopped"] is False
    assert running["reason"]
    rooms.agent.gate.set()
    assert (await rooms.ended(first["turn_id"]))["finish"] == "completed"
    assert len(rooms.agent.turns_started) == 1
    with pytest.raises(TurnUnknown):
        await rooms.turns.stop(phone, "none", None)


async def test_an_older_client_gets_only_the_turns_of_its_socket(rooms: Rooms) -> None:
    cli, other = rooms.phone(supports=OLDER), rooms.phone(supports=OLDER)
    turn = await rooms.send(cli, "SAY:hello", "f1")
    done = await cli.event("done")
    assert done["id"] == "f1"
    assert cli.types()[0] == "chat.session"
    await rooms.ended(turn["turn_id"])
    assert other.frames == []


@pytest.mark.parametrize(("others", "code"), [(3, "model_slow"), (4, "upstream_capacity")])
async def test_a_turn_of_which_nothing_is_heard_says_that_it_waits(
    rooms: Rooms, monkeypatch: pytest.MonkeyPatch, others: int, code: str
) -> None:
    rooms.agent.gate.clear()
    phone = rooms.phone()
    for _ in range(others):
        await rooms.send(phone, "WORDS:2 gated")
    await rooms.agent.gated(others)
    monkeypatch.setattr("app.turns.course.WAITING_S", 0.0)
    last = rooms.phone("tablet")
    await rooms.send(last, "SAY:late")
    waiting = await last.event("run.waiting")
    assert waiting["payload"]["payload"]["code"] == code
    rooms.agent.gate.set()


async def test_a_hermes_that_is_full_is_asked_again(rooms: Rooms) -> None:
    turn = await rooms.send(rooms.phone(), "http429")
    end = await rooms.ended(turn["turn_id"])
    assert (end["finish"], end["error"]["code"]) == ("failed", "upstream_busy")
    assert rooms.pauses.slept == [1, 2, 4]
    assert len(rooms.agent.turns_started) == 4
