"""The fold over what real streams hold, and over what they might."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.hermes.events import read
from app.turns.events import end_payload
from app.turns.fold import end, fold
from app.turns.history import judge
from app.turns.rows import text_of_rows
from app.turns.state import MAX_SAID, Event, TurnState
from app.turns.tools import MAX_RESULT
from tests.turns.captured import NAMES, NOW, folded, rows, stream

WITH_ROWS = [name for name in NAMES if not name.startswith("later_")]


def play(state: TurnState, *events: tuple[str, dict[str, Any]]) -> list[Event]:
    return [out for name, body in events for out in fold(state, name, copy.deepcopy(body), NOW)]


def new(session_id: str = "s") -> TurnState:
    return TurnState(session_id, NOW)


def names(events: list[Event]) -> list[str]:
    return [name for _, name, _ in events]


# what real streams hold


@pytest.mark.parametrize("name", NAMES)
def test_a_real_stream_has_one_end_and_dense_numbers(name: str) -> None:
    state, events = folded(stream(name))
    assert [n for n, _, _ in events] == list(range(1, len(events) + 1))
    assert state.n == len(events)
    assert names(events)[-1] == "done"
    assert state.done
    assert state.dropped == 0
    assert state.finish == ("failed" if "upstream_40" in name else "completed")


@pytest.mark.parametrize("name", NAMES)
def test_nothing_of_hermes_own_frame_is_passed_on(name: str) -> None:
    _, events = folded(stream(name))
    assert not any({"session_id", "run_id", "seq", "ts"} & payload.keys() for _, _, payload in events)


@pytest.mark.parametrize("name", WITH_ROWS)
def test_the_stream_and_the_stored_rows_tell_the_same(name: str) -> None:
    state, _ = folded(stream(name))
    stored = [row for row in rows(name) if row["role"] != "user"]
    assert str(state.text) == text_of_rows(stored)
    assert [tool.result for tool in state.tools.all] == [row["content"] for row in stored if row["role"] == "tool"]


@pytest.mark.parametrize("name", NAMES)
def test_the_deltas_put_together_are_the_text(name: str) -> None:
    """So that a client which only appends shows the same; what is replaced at the end aside."""
    state, events = folded(stream(name))
    shown = "".join(payload["delta"] for _, event, payload in events if event == "assistant.delta")
    assert shown.strip() == str(state.text)


@given(name=st.sampled_from(NAMES), cuts=st.lists(st.integers(0, 10_000), max_size=40))
def test_no_chunking_changes_the_state_or_the_frames(name: str, cuts: list[int]) -> None:
    assert folded(stream(name), cuts)[1] == folded(stream(name))[1]


def test_a_tool_turn() -> None:
    state, events = folded(stream("two_tools"))
    assert [tool.as_json("preview", "args") for tool in state.tools.all] == [
        {
            "tool_id": "t1", "tool_name": "terminal", "preview": "echo one", "args": {"command": "echo one"},
            "state": "completed",
        },
        {
            "tool_id": "t2", "tool_name": "read_file", "preview": "hostname", "args": {"path": "/etc/hostname"},
            "state": "completed",
        },
    ]  # fmt: skip
    assert "_thinking" not in str(events)
    late = [p for _, name, p in events if name == "tool.completed"][2:]
    assert [(p["tool_id"], p["state"]) for p in late] == [("t1", "completed"), ("t2", "completed")]
    told = [p for _, name, p in events if name in ("tool.started", "tool.completed")]
    assert all(p["call_id"] == p["tool_id"] for p in told)  # by which hermes-relay's command tells them apart
    assert json.loads(late[0]["result"])["output"] == "one"


def test_reasoning_comes_from_the_transcript() -> None:
    state, events = folded(stream("reasoning"))
    assert state.snapshot()["reasoning"] == "first I consider the options"
    assert [p for _, name, p in events if name == "reasoning.delta"] == [{"delta": "first I consider the options"}]
    assert names(events).index("reasoning.delta") < names(events).index("run.completed")


def test_an_error_of_the_model_comes_as_a_success_and_is_none() -> None:
    state, events = folded(stream("upstream_400"))
    assert state.finish == "failed"
    assert state.error == {
        "code": "model_failed", "message": "HTTP 400: fake failure 400 (check the model in Hermes' settings)",
        "layer": "agent", "retryable": False,
    }  # fmt: skip
    assert str(state.text) == ""
    assert names(events) == ["run.started", "message.started", "error", "done"]


def test_a_later_version_says_so_itself() -> None:
    state, events = folded(stream("later_upstream_400"))
    assert state.finish == "failed"
    assert "fake failure 400" in str(state.error)
    assert names(events)[-2:] == ["error", "done"]


def test_a_later_version_repeats_what_it_streamed_and_that_is_dropped() -> None:
    state, events = folded(stream("later_tool"))
    assert "assistant.commentary" not in names(events)
    assert str(state.text).startswith("let me run\n\ntool said:")
    assert names(play(new(), ("assistant.commentary", {"text": "hm"}))) == ["assistant.commentary"]


def test_pictures_of_the_message_are_not_sent_back() -> None:
    _, events = folded(stream("image_part"))
    assert events[0][1:] == ("run.started", {"user_message": {"role": "user", "content": "describe"}})


# the text rule


def test_segments_are_joined_by_a_blank_line_and_lose_their_own() -> None:
    state = new()
    events = play(
        state,
        ("assistant.delta", {"delta": "\n\nfirst"}),
        ("tool.started", {"tool_name": "a"}),
        ("tool.started", {"tool_name": "b"}),
        ("assistant.delta", {"delta": "\n\n  second \n"}),
    )
    assert str(state.text) == "first\n\n  second \n"
    assert [p["delta"] for _, name, p in events if name == "assistant.delta"] == ["first", "\n\n  second \n"]


def test_a_blank_line_in_two_deltas_is_one() -> None:
    state = new()
    events = play(state, *(("assistant.delta", {"delta": d}) for d in ("\n", "\n", "a", "\n\n", "b")))
    assert str(state.text) == "a\n\nb"
    assert [p["delta"] for _, _, p in events] == ["a", "\n\n", "b"]


def test_half_a_blank_line_is_text() -> None:
    state = new()
    play(state, ("assistant.delta", {"delta": "\n"}), ("assistant.delta", {"delta": "a"}))
    assert str(state.text) == "\na"
    state = new()
    events = play(state, ("assistant.delta", {"delta": "\n"}), ("tool.started", {"tool_name": "a"}))
    assert str(state.text) == "\n"
    assert names(events) == ["assistant.delta", "tool.started"]


def test_the_completed_content_replaces_the_last_segment_only() -> None:
    state = new()
    play(
        state,
        ("assistant.delta", {"delta": "look"}),
        ("tool.started", {"tool_name": "a"}),
        ("assistant.delta", {"delta": "\n\nfuond"}),
        ("assistant.completed", {"content": "found"}),
        ("run.completed", {"messages": [{"role": "assistant", "content": "found"}]}),
    )
    assert str(state.text) == "look\n\nfound"


def test_an_empty_content_takes_nothing_away() -> None:
    state = new()
    events = play(
        state,
        ("assistant.delta", {"delta": "half an ans"}),
        ("assistant.completed", {"content": ""}),
        ("run.completed", {"messages": [{"role": "assistant", "content": "half an ans"}], "interrupted": True}),
    )
    assert str(state.text) == "half an ans"
    assert state.finish == "interrupted"
    assert ("assistant.completed", {}) in [(name, payload) for _, name, payload in events]


def test_text_that_was_never_streamed_comes_from_the_transcript() -> None:
    state = new()
    play(state, ("run.completed", {"messages": [{"role": "assistant", "content": "only here"}]}))
    assert str(state.text) == "only here"


# tools


def test_a_completion_without_id_closes_the_oldest_running_tool_of_its_name() -> None:
    state = new()
    events = play(
        state,
        ("tool.started", {"tool_name": "web"}),
        ("tool.started", {"tool_name": "terminal"}),
        ("tool.started", {"tool_name": "web"}),
        ("tool.completed", {"tool_name": "web"}),
        ("tool.failed", {"tool_name": "web", "error": "no net"}),
    )
    assert [(p["tool_id"], p["state"]) for _, _, p in events[3:]] == [("t1", "completed"), ("t3", "failed")]
    assert [tool.state for tool in state.tools.all] == ["completed", "running", "failed"]


def test_an_upstream_id_is_kept_and_counts() -> None:
    state = new()
    play(
        state,
        ("tool.started", {"tool_name": "web", "call_id": "c1"}),
        ("tool.started", {"tool_name": "web", "call_id": "c2"}),
        ("tool.completed", {"tool_name": "web", "call_id": "c2", "result": {"ok": 1}}),
    )
    assert [(tool.tool_id, tool.state) for tool in state.tools.all] == [("c1", "running"), ("c2", "completed")]


def test_a_completion_nobody_saw_start_is_shown() -> None:
    state = new()
    ((_, name, payload),) = play(state, ("tool.failed", {"tool_name": "web", "error": "no net"}))
    assert (name, payload) == (
        "tool.failed",
        {"tool_id": "t1", "tool_name": "web", "error": "no net", "state": "failed", "call_id": "t1"},
    )


def test_the_time_a_tool_took_is_measured() -> None:
    state = new()
    fold(state, "tool.started", {"tool_name": "web"}, NOW)
    ((_, _, payload),) = fold(state, "tool.completed", {"tool_name": "web"}, NOW + 1.5)
    assert payload["duration_s"] == 1.5


def test_a_long_result_is_cut_and_says_so() -> None:
    state = new()
    ((_, _, payload),) = play(state, ("tool.completed", {"tool_name": "cat", "result": "x" * (MAX_RESULT + 1)}))
    assert len(payload["result"]) == MAX_RESULT
    assert payload["truncated"] is True


# the end


@pytest.mark.parametrize(
    ("events", "finish"),
    [
        ([("run.completed", {"messages": [], "usage": {"total_tokens": 0}})], "failed"),
        ([("run.completed", {"messages": [], "usage": {"total_tokens": 9}})], "completed"),
        ([("run.completed", {"messages": [{"role": "tool"}], "usage": {"total_tokens": 0}})], "completed"),
        ([("run.completed", {})], "completed"),
        ([("run.completed", {"messages": "nonsense", "usage": "nonsense"})], "completed"),
        ([("error", {"message": "boom"})], "failed"),
        ([("error", {})], "failed"),
        ([("run.failed", {"error": {"message": "boom"}})], "failed"),
        ([("run.cancelled", {})], None),
        ([("done", {})], None),
        ([("assistant.completed", {"content": "x"}), ("done", {})], None),
        ([], None),
    ],
)
def test_how_a_turn_ends(events: list[tuple[str, dict[str, Any]]], finish: str | None) -> None:
    state = new()
    out = play(state, ("assistant.delta", {"delta": "x"}), *events)
    assert state.finish == finish
    assert "done" not in names(out)


def test_a_run_that_its_owner_cancelled_is_stopped() -> None:
    state = new()
    state.stopping = True
    play(state, ("assistant.delta", {"delta": "x"}), ("run.cancelled", {}))
    assert state.finish == "stopped"


def test_what_follows_the_end_is_ignored() -> None:
    state = new()
    play(state, ("error", {"message": "boom"}))
    assert names(play(state, ("assistant.delta", {"delta": "late"}), ("error", {}), ("done", {}))) == ["done"]
    assert play(state, ("done", {}), ("run.completed", {})) == []
    assert str(state.text) == ""


def test_done_may_be_said_in_two_ways_but_is_given_out_once() -> None:
    state = new()
    play(state, ("run.completed", {}))
    assert names([*fold(state, "done", {}, NOW), *fold(state, *read(("message", b"[DONE]")), NOW)]) == ["done"]


def test_an_end_that_no_stream_brought() -> None:
    state = new()
    assert names(end(state, "interrupted", {"code": "x"})) == ["run.completed", "done"]
    assert end(state, "completed") == []
    state = new()
    assert names(end(state, "uncertain", {"code": "x"})) == ["error", "done"]


# whose events


def test_a_conversation_may_move_on_its_last_events_only() -> None:
    state = new("old")
    out = play(
        state,
        ("assistant.delta", {"delta": "foreign", "session_id": "new"}),
        ("assistant.delta", {"delta": "ours", "session_id": "old"}),
        ("assistant.completed", {"content": "ours", "session_id": "new"}),
        ("run.completed", {"session_id": "new"}),
        ("done", {"session_id": "old"}),
    )
    assert (state.session_id, str(state.text), state.dropped) == ("new", "ours", 1)
    assert names(out) == ["assistant.delta", "assistant.completed", "run.completed", "done"]


def test_events_of_another_run_are_dropped() -> None:
    state = new()
    play(
        state,
        ("assistant.delta", {"delta": "a", "run_id": "r1"}),
        ("assistant.delta", {"delta": "b", "run_id": "r2"}),
        ("run.completed", {"run_id": "r2"}),
    )
    assert (str(state.text), state.finish, state.dropped) == ("a", None, 2)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b'"x"', b"\xff", b'{"delta": 1}', b'{"delta": null}'])
def test_nonsense_changes_nothing(data: bytes) -> None:
    state = new()
    assert list(fold(state, *read(("assistant.delta", data)), NOW)) == []
    assert state.n == 0


def test_unknown_events_are_passed_on_with_their_name() -> None:
    out = play(new(), ("memory.updated", {"name": "MEMORY.md", "session_id": "s", "run_id": "r", "seq": 4, "ts": 1.0}))
    assert out == [(1, "memory.updated", {"name": "MEMORY.md"})]


def test_an_unknown_event_that_is_too_long_is_named_only() -> None:
    out = play(new(), ("memory.updated", {"blob": "x" * 2_000_000}))
    assert out == [(1, "memory.updated", {"truncated": True})]


@pytest.mark.parametrize("name", ["assistant.delta", "tool.started", "tool.completed", "run.started", "other"])
def test_what_is_nested_too_deeply_for_a_frame_is_dropped(name: str) -> None:
    nested = b"[" * 300 + b"]" * 300
    state = new()
    body = b'{"delta": "a", "message_id": %b, "args": %b, "result": %b}' % (nested, nested, nested)
    assert list(fold(state, *read((name, body)), NOW)) == []
    assert (state.n, state.dropped) == (0, 1)


def test_a_turn_without_end_is_bounded() -> None:
    state = new()
    piece = "x" * (1024 * 1024)
    for name in ("assistant.delta", "reasoning.delta"):
        play(state, *[(name, {"delta": piece})] * 12)
    assert len(str(state.text)) + len("".join(state.reasoning)) == MAX_SAID
    assert state.snapshot()["truncated"]
    play(state, ("run.completed", {"completed": True}))
    assert (state.finish, end_payload("t", state, NOW)["truncated"]) == ("completed", True)


def test_a_session_whose_id_is_no_id_is_not_moved_to() -> None:
    state = new()
    play(state, ("run.completed", {"session_id": "x" * 1_000_000}))
    assert (state.session_id, state.dropped) == ("s", 1)


SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.text(max_size=8))
BODIES = st.dictionaries(
    st.sampled_from(
        ["delta", "content", "tool_name", "call_id", "messages", "usage", "message", "session_id", "run_id", "args"]
    ),
    st.one_of(SCALARS, st.lists(SCALARS, max_size=2), st.dictionaries(st.text(max_size=4), SCALARS, max_size=2)),
)
EVENTS = [
    "assistant.delta", "tool.started", "tool.completed", "tool.failed", "tool.progress", "assistant.completed",
    "run.started", "message.started", "reasoning.delta", "run.completed", "run.failed", "error", "done", "other",
]  # fmt: skip


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)  # how busy the machine is proves nothing
@given(st.lists(st.tuples(st.sampled_from(EVENTS), BODIES), max_size=12))
def test_no_sequence_of_events_breaks_the_fold(events: list[tuple[str, dict[str, Any]]]) -> None:
    state = new()
    out = [*play(state, *events), *end(state, "uncertain", {"code": "turn_uncertain"})]
    assert [n for n, _, _ in out] == list(range(1, len(out) + 1))
    assert names(out).count("done") <= 1
    assert state.finish is not None
    assert sum(name in ("run.completed", "error") for name in names(out)) == 1
    json.dumps(state.snapshot())


# history


def test_the_history_of_a_real_turn_that_hermes_had_to_continue() -> None:
    """It puts a user row of its own into the turn."""
    found = judge(rows("upstream_cut"), 0, [], "CUT:3\nWORDS:8")
    assert found.completed
    assert text_of_rows(found.rows or ()).startswith("w1 w2 w3echo: [System: The previous")
