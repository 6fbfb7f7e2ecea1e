"""Texts as Hermes 0.19 sent them to a platform, and what they mean."""

from __future__ import annotations

import pytest

from app.threads.policy import (
    Step,
    is_progress,
    is_silence,
    may_be_silence,
    shown,
    split_cron,
    split_reasoning,
    steps,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("echo: hello relay world ▉", "echo: hello relay world"),
        ("\n\ntool said: ▉", "tool said:"),
        ("w1 w2 ", "w1 w2 "),
        ("a ▉ in the middle", "a ▉ in the middle"),
        ("(Response formatting failed, plain text:)\n\n📊 **Hermes Gateway Status**", "📊 **Hermes Gateway Status**"),
    ],
)
def test_a_text_as_people_read_it(text: str, expected: str) -> None:
    assert shown(text) == expected


@pytest.mark.parametrize("text", ["NO_REPLY", "no_reply\n", "*NO_REPLY*", ".NO_REPLY", "[SILENT]", "no  reply"])
def test_silence(text: str) -> None:
    assert is_silence(text)
    assert may_be_silence(text)


@pytest.mark.parametrize("text", ["No reply came from the server.", "[SILENT", "NO", "silent night", "NO_REPLY_"])
def test_what_is_said_is_no_silence(text: str) -> None:
    assert not is_silence(text)


@pytest.mark.parametrize(
    ("text", "held"), [("N", True), ("NO_REP", True), ("[SI", True), ("Now", False), ("No.", True)]
)
def test_the_beginning_of_a_silence_is_held_back(text: str, held: bool) -> None:
    assert may_be_silence(text) is held


@pytest.mark.parametrize(
    ("text", "thought"),
    [
        ("💭 **Reasoning:**\n```\nfirst this\nthen that\n```\n\nthe answer is 42", "first this\nthen that"),
        ("> 💭 **Reasoning:**\n> first this\n>\n> then that\n\nthe answer is 42", "first this\n\nthen that"),
        ("-# 💭 Reasoning\n-# first this\n\nthe answer is 42", "first this"),
        ("the answer is 42", None),
    ],
)
def test_reasoning_is_split_off(text: str, thought: str | None) -> None:
    assert split_reasoning(text) == (thought, "the answer is 42")


def test_a_report_loses_its_wrapper() -> None:
    wrapped = (
        "Cronjob Response: renamed\n(job_id: 813dbe975485)\n-------------\n\ncron\n\nsays hi\n\n"
        'To stop or manage this job, send me a new message (e.g. "stop reminder renamed").'
    )
    assert split_cron(wrapped) == ("renamed", "cron\n\nsays hi")
    assert split_cron("cron says hi") == (None, "cron says hi")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("💻 terminal\n```\necho hi\n```", [Step("terminal", "echo hi")]),
        (
            "💻 terminal\n```\nsleep 2; echo one\n```\n```\nsleep 2; echo two\n```\n📖 Reading hostname",
            [
                Step("terminal", "sleep 2; echo one"),
                Step("terminal", "sleep 2; echo two"),
                Step("read_file", "hostname"),
            ],
        ),
        ("💻 terminal\n```\n📖 Reading is no step here\n```", [Step("terminal", "📖 Reading is no step here")]),
        ("⏰ Scheduling create", [Step("cronjob", "create")]),
        ("❓ Asking Which one?", [Step("clarify", "Which one?")]),
        ("🔍 Searching the web for cats (×3)", [Step("web_search", "cats")]),
        ('🔧 my_tool: "abc"', [Step("my_tool", "abc")]),
        ("⚙️ other.tool...", [Step("other.tool", "")]),
        ('🔧 deploy([\'to\'])\n{"to": "x"}', [Step("deploy", '{"to": "x"}')]),
        ("💬 let me think", [Step(None, "let me think")]),
        ("⚠️ The model provider failed", [Step(None, "⚠️ The model provider failed")]),
        ("let me run it\nright now", [Step(None, "let me run it\nright now")]),
    ],
)
def test_the_steps_of_a_bubble(text: str, expected: list[Step]) -> None:
    assert steps(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("💻 terminal\n```\necho hi\n```", True),
        ("📖 Reading hostname", True),
        ("📬 No home channel is set for Talaria.", False),
        ("⚡ Interrupting current task.", False),
        ("Reading hostname", False),
        ("```\necho hi\n```", False),
    ],
)
def test_a_bubble_that_nothing_else_marks(text: str, expected: bool) -> None:
    assert is_progress(text) is expected
