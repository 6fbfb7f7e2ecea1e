"""Events that a real Hermes 0.19.0 sent, in the words of every upstream."""

from __future__ import annotations

from typing import Any

import pytest

from app.hermes.dashboard.events import MAX_PASSED, Translation, Usage
from app.hermes.upstream import Event
from tests.hermes_client.dashboard_server import RECORDED


def translated(name: str, start: Usage = Usage(), *, reasoned: bool = False) -> list[Event]:  # noqa: B008 - frozen
    translation = Translation(60.0, reasoned=reasoned)
    translation.start = start
    frames = RECORDED[name]["frames"]
    return [event for frame in frames for event in translation.events(frame["type"], frame.get("payload", {}))]


def joined(events: list[Event], name: str) -> str:
    return "".join(body["delta"] for found, body in events if found == name and body)


def test_an_answer_comes_as_deltas_and_an_end() -> None:
    assert translated("text") == [
        ("message.started", {}),
        *[("assistant.delta", {"delta": word}) for word in ("echo:", " hello", " over", " websocket")],
        ("assistant.completed", {"content": "echo: hello over websocket"}),
        (
            "run.completed",
            {
                "completed": True, "interrupted": False,
                "usage": {"input_tokens": 13573, "output_tokens": 4, "total_tokens": 13577},
            },
        ),
    ]  # fmt: skip


def test_thoughts_words_on_the_way_and_a_tool_with_its_result() -> None:
    events = translated("tool", Usage(13573, 4, 13577))
    names = [name for name, _ in events if not name.endswith(".delta")]
    assert names == [
        "message.started", "tool.generating", "assistant.commentary", "tool.started", "tool.completed",
        "assistant.completed", "run.completed",
    ]  # fmt: skip
    assert joined(events, "reasoning.delta") == "first this then that" * 2  # once a call of the model, not thrice
    bodies = {name: body or {} for name, body in events}
    assert bodies["assistant.commentary"] == {"text": "let me run it", "already_streamed": True}
    assert bodies["tool.started"] == {
        "tool_id": "call_4cdf7c8eff03", "tool_name": "terminal", "preview": "Running echo hi"
    }  # fmt: skip
    assert bodies["tool.completed"] == {
        "tool_id": "call_4cdf7c8eff03", "tool_name": "terminal", "args": {"command": "echo hi"},
        "result": {"output": "hi", "exit_code": 0, "error": None}, "duration_s": 0.036347389221191406,
    }  # fmt: skip
    assert bodies["assistant.completed"]["content"].startswith("tool said:")
    assert bodies["run.completed"]["usage"] == {"input_tokens": 27303, "output_tokens": 30, "total_tokens": 27333}


def test_an_approval_names_the_tool_that_asks_and_how_long_it_waits() -> None:
    asked = next(body for name, body in translated("approval") if name == "approval.request")
    assert asked == {
        "command": "rm -rf /home/hermes/wsdir", "description": "delete in root path", "timeout_s": 60.0,
        "choices": ["once", "session", "always", "deny"], "tool_id": "call_5e91adb36c54",
    }  # fmt: skip


def test_of_two_tools_the_one_with_the_command_asks() -> None:
    translation = Translation(60.0)
    for id, preview in (("a", "Running rm -rf /x"), ("b", "Running echo hi")):
        translation.events("tool.start", {"tool_id": id, "name": "terminal", "context": preview})
    for command, id in (("rm -rf /x", "a"), ("something long that was cut", "b"), (None, "b")):
        ((_, body),) = translation.events("approval.request", {"command": command})
        assert body is not None
        assert body["tool_id"] == id
        assert body["choices"] == ["once", "deny"]
    translation.events("tool.complete", {"tool_id": "b"})
    translation.events("tool.complete", {"tool_id": "a"})
    assert "tool_id" not in (translation.events("approval.request", {"command": "x"})[0][1] or {})


def test_a_question() -> None:
    asked = next(body for name, body in translated("clarify") if name == "clarify.request")
    assert asked == {"request_id": "684c026c", "question": "Which?", "choices": ["red", "blue"], "timeout_s": 300}


def test_a_stopped_turn_keeps_what_was_said() -> None:
    events = dict(translated("interrupted", Usage(27264, 19, 27283)))
    assert events["assistant.completed"] == {"content": "w1"}
    assert events["run.completed"] == {"completed": False, "interrupted": True}  # nothing was counted for it


def test_a_failure_of_the_model_is_one() -> None:
    assert translated("error")[-1] == ("run.failed", {"error": "HTTP 400: fake failure 400"})
    assert Translation(60).events("error", {"message": "agent init failed"}) == [
        ("error", {"message": "agent init failed"})
    ]


def test_a_tool_that_failed_says_so() -> None:
    ((name, body),) = Translation(60).events("tool.complete", {"tool_id": "a", "name": "x", "result": {"error": "no"}})
    assert (name, (body or {})["error"]) == ("tool.failed", "no")


def test_thoughts_at_the_end_are_said_unless_they_were_streamed() -> None:
    end = {"text": "hi", "status": "complete", "reasoning": "because"}
    assert ("reasoning.delta", {"delta": "because"}) in Translation(60).events("message.complete", end)
    streamed = Translation(60)
    streamed.events("reasoning.delta", {"text": "because"})
    for translation in (streamed, Translation(60, reasoned=True)):
        assert "reasoning.delta" not in dict(translation.events("message.complete", end))


@pytest.mark.parametrize("kind", ["sudo.request", "secret.request", "secret.expire"])
def test_of_a_secret_only_its_name_is_passed_on(kind: str) -> None:
    assert Translation(60).events(kind, {"prompt": "API_KEY", "value": "x", "request_id": "1"}) == [(kind, {})]


def test_what_is_not_known_passes_under_its_own_name_and_bounded() -> None:
    translation = Translation(60)
    assert translation.events("subagent.start", {"goal": "x"}) == [("subagent.start", {"goal": "x"})]
    assert translation.events("moa.reference", {"text": "x" * MAX_PASSED}) == [("moa.reference", None)]
    for kind in ("run.completed", "done", "assistant.delta", "x" * 65, "thinking.delta", "session.info"):
        assert translation.events(kind, {"completed": True}) == []


@pytest.mark.parametrize("payload", [{}, {"text": 5, "tool_id": [], "result": "x", "usage": 1, "choices": 2}])
def test_no_payload_breaks_it(payload: dict[str, Any]) -> None:
    for kind in {frame["type"] for turn in RECORDED.values() for frame in turn["frames"]}:
        Translation(60).events(kind, payload)


def test_the_usage_of_a_new_agent_begins_at_zero() -> None:
    assert Usage(5, 1, 6).since(Usage(100, 10, 110)) == {"input_tokens": 5, "output_tokens": 1, "total_tokens": 6}
