"""Which rows of a conversation are a turn's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from app.turns.events import snapshot_frame
from app.turns.history import judge, restate
from app.turns.state import TurnState
from tests.turns.captured import rows as captured


def rows(*said: tuple[str, str] | tuple[str, str, str]) -> list[dict[str, Any]]:
    """(role, content, finish_reason?) with ids from 11."""
    return [
        {"id": 11 + n, "role": row[0], "content": row[1], "finish_reason": row[2] if len(row) > 2 else None}
        for n, row in enumerate(said)
    ]


BEFORE = [{"id": 10, "role": "assistant", "content": "before", "finish_reason": "stop"}]
ANSWERED = rows(("user", "hi"), ("assistant", "hello", "stop"))


@pytest.mark.parametrize(
    ("stored", "sent", "found", "completed"),
    [
        (ANSWERED, "hi", True, True),
        (ANSWERED, "  hi\n", True, True),
        (ANSWERED, "other", False, False),
        (ANSWERED, "h", False, False),
        ([], "hi", False, False),
        (rows(("user", "hi")), "hi", True, False),
        (rows(("user", "hi"), ("assistant", "", "tool_calls"), ("tool", "r")), "hi", True, False),
        (rows(("user", "hi"), ("assistant", "par", "length")), "hi", True, False),
        (rows(("user", "hi"), ("assistant", "x", "stop"), ("assistant", "y", "tool_calls")), "hi", True, False),
        (rows(("user", "failed before\n\nhi"), ("assistant", "hello", "stop")), "hi", True, True),
        (rows(("user", "ahi"), ("assistant", "hello", "stop")), "hi", False, False),
        (rows(("user", "hi"), ("user", "other"), ("assistant", "hello", "stop")), "hi", True, False),
        (rows(("user", "hi"), ("user", "[System: go on]"), ("assistant", "x", "stop")), "hi", True, True),
        (rows(("assistant", "hi", "stop")), "hi", False, False),
        ([{"role": "user", "content": "hi"}, {"id": "x", "role": "user", "content": "hi"}], "hi", False, False),
        (rows(("user", None), ("user", 7), ("user", "hi")), "hi", True, False),  # type: ignore[arg-type]
    ],
)
def test_our_row_and_its_answer(stored: Sequence[Any], sent: str, found: bool, completed: bool) -> None:
    verdict = judge(BEFORE + list(stored), 10, [], sent)
    assert (verdict.rows is not None, verdict.completed) == (found, completed)


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        ("look @file:a.txt,  please", "look, please\n\n--- Attached Context ---\n\nfile a.txt\nhello"),
        ("@diff", "--- Context Warnings ---\n- @diff: not a git repository"),
        ("see @url:`http://a b` and\n\n@staged", "see and\n\n--- Context Warnings ---\n- no"),
        ("x [200~pasted[201~ y", "x pasted y"),
    ],
)
def test_a_message_that_hermes_changed_is_found(sent: str, stored: str) -> None:
    said = rows(("user", stored), ("assistant", "done", "stop"))
    assert judge(said, 0, [], sent).completed
    assert judge(said, 0, [], f"not {sent}").rows is None
    assert judge(said, 0, [], sent.replace("@", "at ").replace("[20", "")).rows is None


def test_rows_known_before_are_not_ours() -> None:
    assert judge(ANSWERED, 11, [], "hi").rows is None
    assert judge(BEFORE + ANSWERED, 10, [], "hi").last_row == 12


@pytest.mark.parametrize(
    ("earlier", "found"), [([], 12), (["hi"], 14), (["hi", "hi"], 0), (["lost", "hi"], 14), (["again"], 12)]
)
def test_each_message_accounts_for_one_row(earlier: list[str], found: int) -> None:
    stored = BEFORE + ANSWERED + [row | {"id": row["id"] + 2} for row in ANSWERED]
    assert judge(stored, 10, earlier, "hi").last_row == found


def test_in_a_conversation_that_was_compressed_ours_is_the_last() -> None:
    """All rows were written anew, older ones with the same text too."""
    anew = rows(("user", "yes"), ("assistant", "one", "stop"), ("user", "yes"), ("assistant", "two", "stop"))
    found = judge(anew, 10, ["yes"], "yes")
    assert (found.completed, [row["content"] for row in found.rows or ()]) == (True, ["two"])
    assert judge(anew, 10, [], "no").rows is None


def test_a_message_with_a_picture() -> None:
    parts: list[dict[str, Any]] = [
        {"type": "text", "text": "describe"},
        {"type": "image_url", "image_url": {"url": "data:x"}},
    ]
    assert judge(captured("image_part"), 0, [], parts).completed
    alone = [{"type": "image_url", "image_url": {"url": "data:x"}}]
    assert judge(rows(("user", "[screenshot]"), ("assistant", "a cat", "stop")), 0, [], alone).completed


def test_what_is_stored_replaces_what_was_streamed() -> None:
    state = TurnState("s", 0.0)
    state.text.add("let me ru")
    stored = [row for row in captured("two_tools") if row["role"] != "user"]
    restate(state, stored, completed=True)
    assert str(state.text).startswith("tool said:")
    assert [(tool.tool_id, tool.tool_name, tool.args) for tool in state.tools.all] == [
        ("t1", "terminal", {"command": "echo one"}),
        ("t2", "read_file", {"path": "/etc/hostname"}),
    ]
    assert "one" in state.tools.all[0].result


def test_of_an_interrupted_turn_the_longer_text_stands() -> None:
    state = TurnState("s", 0.0)
    state.text.add("as far as it was streamed")
    restate(state, rows(("assistant", "as far")), completed=False)
    assert str(state.text) == "as far as it was streamed"
    restate(state, rows(("assistant", "as far")), completed=True)
    assert str(state.text) == "as far"


@pytest.mark.parametrize("place", ["arguments", "content"])
def test_what_is_nested_too_deeply_for_a_frame_is_left_out(place: str) -> None:
    deep = "[" * 249 + "]" * 249
    call = {"function": {"name": "x", "arguments": deep if place == "arguments" else "{}"}}
    content = orjson.loads(deep) if place == "content" else "result"
    stored: list[dict[str, Any]] = [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_name": "x", "content": content},
        {"role": "assistant", "content": "done"},
    ]
    state = TurnState("s", 0.0)
    restate(state, stored, completed=True)
    assert (str(state.text), state.tools.all[0].truncated) == ("done", True)
    assert snapshot_frame("t", state)
