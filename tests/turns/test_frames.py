"""Frames as bytes: whole envelopes, never longer than promised."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.turns.events import MAX_KEPT, MAX_TOOLS, TAIL, Encoder, end_payload, head, snapshot_frame, timestamp
from app.turns.fold import end
from app.turns.state import TurnState
from app.turns.watchers import joined
from app.wire.envelope import MAX_FRAME

IDS = st.text(min_size=1, max_size=20)


@given(IDS, IDS, IDS, IDS, st.dictionaries(st.text(max_size=5), st.text(max_size=20), max_size=3))
def test_a_joined_frame_is_one_envelope(
    frame_id: str, turn_id: str, session_id: str, name: str, payload: dict[str, str]
) -> None:
    frame = head(frame_id) + Encoder(turn_id, session_id).body(7, name, payload, timestamp(1_800_000_000.25)) + TAIL
    assert orjson.loads(frame) == {
        "channel": "chat", "type": "stream.event", "id": frame_id,
        "payload": {
            "type": "stream.event", "schema_version": 1, "session_id": session_id, "run_id": turn_id,
            "turn_id": turn_id, "seq": 7, "event": name, "ts": "2027-01-15T08:00:00.250Z", "payload": payload,
        },
    }  # fmt: skip


@given(st.floats(0, 4e9))
def test_a_timestamp_is_iso_8601(now: float) -> None:
    stamp = timestamp(now).decode()
    assert abs(datetime.fromisoformat(stamp).timestamp() - now) < 0.0011
    assert len(stamp) == len("2027-01-15T08:00:00.250Z")


@pytest.mark.parametrize("payload", [{"content": "ü" * 9_000_000}, {"args": {"x": "y" * 9_000_000}}])
def test_an_event_fits_into_a_frame(payload: dict[str, Any]) -> None:
    body = Encoder("t", "s").body(1, "assistant.completed", payload | {"small": 1}, timestamp(0))
    assert len(body) < MAX_FRAME - 1000
    assert orjson.loads(body)["payload"] | {"content": 0, "args": 0} == {
        "small": 1, "truncated": True, "content": 0, "args": 0,
    }  # fmt: skip


def state_of(text: str = "", reasoning: str = "") -> TurnState:
    state = TurnState("s", 0.0)
    state.text.add(text)
    state.reasoning = [reasoning] if reasoning else []
    end(state, "completed")
    return state


@pytest.mark.parametrize("letter", ["x", "ü", "🎉", "\n", '"', "\x01"])
def test_a_kept_end_is_cut_and_says_so(letter: str) -> None:
    text = letter * (2 * MAX_KEPT)
    payload = end_payload("t", state_of(text, text), 1.5)
    assert MAX_KEPT * 0.9 < len(orjson.dumps(payload)) <= MAX_KEPT
    assert payload["truncated"] is True
    assert text.startswith(payload["text"])
    assert (payload["turn_id"], payload["finish"]) == ("t", "completed")


def test_reasoning_is_cut_before_the_text() -> None:
    text = "x" * (MAX_KEPT // 2)
    payload = end_payload("t", state_of(text, "y" * MAX_KEPT), 1.5)
    assert payload["text"] == text
    assert 0 < len(payload["reasoning"]) < MAX_KEPT // 2


def test_an_end_that_fits_is_whole() -> None:
    payload = end_payload("t", state_of("hello"), 1.5)
    assert payload == {"turn_id": "t", "session_id": "s", "text": "hello", "duration_s": 1.5, "finish": "completed"}


def test_a_snapshot_fits_into_a_frame() -> None:
    state = state_of("🎉" * 3_000_000, "y" * 3_000_000)
    for n in range(2000):
        state.tools.ended({"tool_name": f"tool{n}", "result": "r" * 10_000}, 0.0, failed=False)
    frame = snapshot_frame("t", state)
    assert len(frame) <= MAX_FRAME
    said = orjson.loads(frame)["payload"]["state"]
    assert said["truncated"] is True
    assert len(said["tools"]) == MAX_TOOLS


def test_a_snapshot_of_tools_that_say_too_much_fits_into_a_frame() -> None:
    state, endless = state_of("\x01" * 600_000), "\x01" * 5_000_000
    for n in range(500):
        body = {"tool_id": f"{n} {endless}", "tool_name": endless, "preview": endless, "error": endless}
        state.tools.started(body, 0.0)
        state.tools.ended(body, 0.0, failed=True)
    assert len(state.tools.all) == 500
    assert len(snapshot_frame("t", state)) <= MAX_FRAME


def test_deltas_in_a_row_are_joined() -> None:
    events = [
        (1, "assistant.delta", {"delta": "a"}), (2, "assistant.delta", {"delta": "b", "message_id": "m"}),
        (3, "tool.started", {"tool_id": "t1"}), (4, "assistant.delta", {"delta": "c"}), (5, "done", {}),
    ]  # fmt: skip
    once = joined(events)
    assert once == [
        (2, "assistant.delta", {"delta": "ab", "message_id": "m"}), (3, "tool.started", {"tool_id": "t1"}),
        (4, "assistant.delta", {"delta": "c"}), (5, "done", {}),
    ]  # fmt: skip
    assert joined(once) == once
