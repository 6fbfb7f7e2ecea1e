"""The pure parts of the page, called in the browser that runs them."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Page

from tests.browser.phone_page import PhonePage

pytestmark = pytest.mark.browser


@pytest.fixture
async def page(phone: PhonePage) -> Page:
    """On our origin, so that modules can be imported."""
    await phone.page.goto(f"{phone.url}/pair")
    return phone.page


FOLD = """async (steps) => {
    const turns = await import("/static/js/turns.js");
    const kinds = await import("/static/js/parts.js");
    let turn = turns.newTurn({ id: "t", session: "s" });
    let gaps = 0;
    for (const [type, payload] of steps) {
        if (type === "stream.event") {
            const folded = turns.applyEvent(turn, { turn_id: "t", session_id: "s", ...payload });
            turn = folded.turn;
            gaps += folded.gap;
        } else if (type === "turn.snapshot") turn = turns.applySnapshot(turn, { turn_id: "t", ...payload });
        else turn = turns.applyEnd(turn, type, { turn_id: "t", ...payload });
    }
    const parts = turn.parts.map((part) => {
        if (part.kind === "text") return kinds.segment(part.text);
        return part.kind === "thought" ? { thought: part.text } : [part.id, part.state];
    });
    return { parts, gaps, n: turn.n, text: turns.answerText(turn) };
}"""


def event(n: int, name: str, **payload: Any) -> tuple[str, dict[str, Any]]:
    return "stream.event", {"seq": n, "event": name, "payload": payload}


def delta(n: int, text: str) -> tuple[str, dict[str, Any]]:
    return event(n, "assistant.delta", delta=text)


def snapshot(n: int, text: str, *tools: str) -> tuple[str, dict[str, Any]]:
    running = [{"tool_id": tool, "tool_name": "x", "state": "running"} for tool in tools]
    return "turn.snapshot", {"n": n, "session_id": "s", "state": {"text": text, "reasoning": "", "tools": running}}


def end(text: str, finish: str = "completed") -> tuple[str, dict[str, Any]]:
    return "turn.completed", {"session_id": "s", "text": text, "finish": finish}


def tool(n: int, name: str, tool_id: str = "t1") -> tuple[str, dict[str, Any]]:
    return event(n, f"tool.{name}", tool_id=tool_id, tool_name="x")


FOLDS: list[tuple[list[Any], list[Any], str]] = [
    ([delta(1, "Hel"), delta(2, "lo")], ["Hello"], "Hello"),
    ([delta(1, "a"), delta(1, "a"), delta(2, "b"), delta(1, "a")], ["ab"], "ab"),
    (
        [delta(1, "a"), tool(2, "started"), delta(3, "\n\n"), delta(4, "b"), tool(5, "completed")],
        ["a", ["t1", "completed"], "b"],
        "a\n\nb",
    ),
    ([tool(1, "started"), tool(2, "failed")], [["t1", "failed"]], ""),
    ([tool(1, "completed")], [["t1", "completed"]], ""),
    # What the agent says in the end replaces the last segment only.
    (
        [delta(1, "a"), tool(2, "started"), delta(3, "b"), event(4, "assistant.completed", content="B")],
        ["a", ["t1", "running"], "B"],
        "a\n\nB",
    ),
    ([event(1, "assistant.completed", content="x")], ["x"], "x"),
    ([event(1, "of.the.future", x=1), delta(2, "a")], ["a"], "a"),
    # A snapshot replaces, also by less; what follows goes on from it.
    ([delta(1, "abc"), snapshot(7, "xyz"), delta(8, "!"), delta(3, "?")], ["xyz!"], "xyz!"),
    ([delta(1, "abc"), delta(2, "def"), snapshot(1, "abc"), delta(2, "d")], ["abcd"], "abcd"),
    # It lacks the order of text and tools: what is known of it stays.
    (
        [delta(1, "a"), tool(2, "started"), snapshot(9, "a\n\nb", "t1"), delta(10, "c")],
        ["a", ["t1", "running"], "bc"],
        "a\n\nbc",
    ),
    ([delta(1, "a"), snapshot(9, "aa\n\nb", "t1")], ["aa", ["t1", "running"], "b"], "aa\n\nb"),
    ([snapshot(9, "a\n\nb", "t1")], [["t1", "running"], "a\n\nb"], "a\n\nb"),
    # An end is final.
    ([delta(1, "a"), end("a"), delta(2, "b"), end("c"), snapshot(9, "d")], ["a"], "a"),
    ([delta(1, "a"), tool(2, "started"), end("a\n\nb")], ["a", ["t1", "ended"], "b"], "a\n\nb"),
    ([delta(1, "lost"), end("other")], ["other"], "other"),
]


def told(n: int, text: str, *tools: tuple[str, int], reasoning: str = "") -> tuple[str, dict[str, Any]]:
    """A snapshot that says after how many characters each tool began."""
    running = [{"tool_id": tool, "tool_name": "x", "state": "running", "at": at} for tool, at in tools]
    return "turn.snapshot", {
        "n": n,
        "session_id": "s",
        "state": {"text": text, "reasoning": reasoning, "tools": running},
    }


def thought(n: int, text: str) -> tuple[str, dict[str, Any]]:
    return event(n, "reasoning.delta", delta=text)


def aside(n: int, text: str) -> tuple[str, dict[str, Any]]:
    return event(n, "assistant.commentary", text=text)


def broken(n: int, text: str, *tools: str, reasoning: str = "") -> tuple[str, dict[str, Any]]:
    """A snapshot of a relay that has not heard all."""
    type_, payload = snapshot(n, text, *tools)
    return type_, payload | {"state": payload["state"] | {"gap": True, "reasoning": reasoning}}


RUNS, ENDED = ["t1", "running"], ["t1", "ended"]
SEEN = [thought(1, "hm"), delta(2, "abc"), tool(3, "started")]
FOLDS += [
    # After a break the relay knows less than the page has shown: that stays, where it was.
    (
        [*SEEN, broken(1, ""), broken(1, "abc"), tool(2, "completed")],
        [{"thought": "hm"}, "abc", ["t1", "completed"]],
        "abc",
    ),
    ([*SEEN, broken(1, "a", "t2")], [{"thought": "hm"}, "abc", RUNS, ["t2", "running"]], "abc"),
    ([*SEEN, broken(1, "abc\n\nd", reasoning="h")], [{"thought": "hm"}, "abc", RUNS, "d"], "abc\n\nd"),
    ([*SEEN, broken(1, "xyz", reasoning="so")], [{"thought": "so"}, "xyz", RUNS], "xyz"),
    # Where the relay says it, tools stand where they began; it counts characters, not UTF-16 units.
    ([told(9, "a\n\nb", ("t1", 1), ("t2", 4))], ["a", RUNS, "b", ["t2", "running"]], "a\n\nb"),
    ([told(9, "😀😀\n\nb", ("t1", 2))], ["😀😀", RUNS, "b"], "😀😀\n\nb"),
    ([told(9, "a\n\nb", ("t1", 0), ("t2", 0))], [RUNS, ["t2", "running"], "a\n\nb"], "a\n\nb"),
    ([delta(1, "a"), told(9, "a\n\nb\n\nc", ("t1", 4))], ["a\n\nb", RUNS, "c"], "a\n\nb\n\nc"),
    ([told(9, "a", ("t1", 1)), delta(10, "\n\n"), delta(11, "b"), end("a\n\nB")], ["a", ENDED, "B"], "a\n\nB"),
    # Thoughts stand where they were thought, and do not end a segment of the text.
    (
        [thought(1, "hm"), delta(2, "a"), tool(3, "started"), thought(4, "so"), delta(5, "b"), end("a\n\nb")],
        [{"thought": "hm"}, "a", ENDED, {"thought": "so"}, "b"],
        "a\n\nb",
    ),
    ([delta(1, "Hel"), thought(2, "?"), delta(3, "lo"), end("Hello")], ["Hel", {"thought": "?"}, "lo"], "Hello"),
    (
        [delta(1, "Hel"), thought(2, "?"), delta(3, "o"), event(4, "assistant.completed", content="Hello")],
        [{"thought": "?"}, "Hello"],
        "Hello",
    ),
    (
        [thought(1, "a"), told(4, "x", reasoning="abc"), thought(5, "d")],
        [{"thought": "abc"}, "x", {"thought": "d"}],
        "x",
    ),
    ([thought(1, "abc"), told(0, "")], [], ""),
    (
        [
            thought(1, "ab"),
            delta(2, "x"),
            tool(3, "started"),
            thought(4, "cd"),
            told(9, "y\n\nz", ("t1", 1), reasoning="abcd"),
        ],
        [{"thought": "ab"}, "y", RUNS, {"thought": "cd"}, "z"],
        "y\n\nz",
    ),
    # Interim words stand for themselves, whether the relay counts them as text or not.
    ([delta(1, "a"), aside(2, "b"), delta(3, "c"), end("a\n\nb\n\nc")], ["a", "b", "c"], "a\n\nb\n\nc"),
    ([aside(1, "b"), tool(2, "started"), delta(3, "c"), end("c")], ["b", ENDED, "c"], "b\n\nc"),
    ([aside(1, "b"), tool(2, "started"), delta(3, "c"), end("d")], ["b", ENDED, "d"], "b\n\nd"),
]


async def test_a_turn_is_folded(page: Page) -> None:
    for steps, parts, text in FOLDS:
        folded = await page.evaluate(FOLD, steps)
        assert (folded["parts"], folded["text"], folded["gaps"]) == (parts, text, 0), steps


async def test_missed_events_wait_for_a_snapshot(page: Page) -> None:
    folded = await page.evaluate(FOLD, [delta(1, "a"), delta(3, "c"), delta(4, "d")])
    assert (folded["gaps"], folded["text"], folded["n"]) == (1, "a", 1)
    folded = await page.evaluate(FOLD, [delta(1, "a"), delta(3, "c"), snapshot(4, "abcd"), delta(5, "e")])
    assert (folded["gaps"], folded["text"], folded["n"]) == (1, "abcde", 5)


async def test_a_mailbox_takes_each_frame_once(page: Page) -> None:
    seen = await page.evaluate(
        """async () => {
            const { Mailbox } = await import("/static/js/mailbox.js");
            const kept = new Map();
            const shelf = { get: (name) => kept.get(name), set: (name, value) => kept.set(name, value) };
            const box = new Mailbox(shelf);
            const out = [box.resume() ?? null];
            box.opened("e1");
            const take = (seq) => {
                out.push(box.look(seq));
                if (out.at(-1) === "new") box.handled(seq);
            };
            [5, 6, 6, 5, 8, 7, 8].forEach(take);
            out.push(box.ack(), box.ack(), new Mailbox(shelf).resume());
            box.reset({ epoch: "e2", after: 2 });
            take(2); take(3);
            out.push(box.ack());
            return out;
        }"""
    )
    assert seen == [
        None, "new", "new", "seen", "seen", "gap", "new", "new",
        {"epoch": "e1", "seq": 8}, None, {"epoch": "e1", "after": 8},
        "seen", "new", {"epoch": "e2", "seq": 3},
    ]  # fmt: skip


async def test_a_mailbox_holds_back_what_was_not_stored(page: Page) -> None:
    seen = await page.evaluate(
        """async () => {
            const { Mailbox } = await import("/static/js/mailbox.js");
            const kept = new Map([["mailbox", { epoch: "e", seq: 1 }]]);
            const shelf = { get: (name) => kept.get(name), set: (name, value) => kept.set(name, value) };
            const box = new Mailbox(shelf);
            const out = [];
            const take = (seq, isStored) => {
                out.push(box.look(seq));
                if (out.at(-1) !== "new") return;
                if (!isStored) box.hold();
                box.handled(seq);
            };
            take(2, true); take(3, false); take(4, true); take(3, true);
            out.push(box.ack().seq, box.resume().after, new Mailbox(shelf).resume().after);
            box.opened("e");
            take(3, true); take(4, true);
            out.push(box.ack().seq, new Mailbox(shelf).resume().after);
            return out;
        }"""
    )
    assert seen == ["new", "new", "new", "seen", 2, 2, 2, "new", "new", 4, 4]


ROWS = [
    {"id": 1, "role": "user", "content": "hi"},
    {"id": 2, "role": "assistant", "content": "one", "finish_reason": "stop"},
    {"id": 3, "role": "user", "content": "again"},
    {"id": 4, "role": "assistant", "content": "look", "finish_reason": "tool_calls",
     "tool_calls": [{"id": "c", "function": {"name": "x", "arguments": "{}"}}]},
    {"id": 5, "role": "tool", "content": "done", "tool_call_id": "c"},
]  # fmt: skip


DONE = [*ROWS, {"id": 6, "role": "assistant", "content": "the end", "finish_reason": "stop"}]
TRANSCRIPTS: list[tuple[list[Any], dict[str, Any] | None, list[str]]] = [
    (ROWS, None, ["hi", "again"]),
    (ROWS, {"said": "again"}, ["hi", "again:t"]),  # the end of the history is this turn's beginning
    (ROWS, {"said": None}, ["hi", "again:t"]),  # begun by another device
    (ROWS, {"said": "new"}, ["hi", "again", "new:t"]),
    (DONE, {"said": "again"}, ["hi", "again", "again:t"]),  # said a second time
    (DONE, {"said": "again", "parts": [{"kind": "text", "text": "look"}]}, ["hi", "again:t"]),
    (DONE, {"said": None}, ["hi", "again", "null:t"]),
    ([], {"said": "new"}, ["new:t"]),
]


async def test_a_turn_is_not_shown_twice(page: Page) -> None:
    for rows, turn, shown in TRANSCRIPTS:
        items = await page.evaluate(
            """async ([rows, about]) => {
                const { exchanges, transcript } = await import("/static/js/transcript.js");
                const { newTurn } = await import("/static/js/turns.js");
                const turns = about ? [newTurn({ id: "t", session: "s", ...about })] : [];
                return transcript(exchanges(rows), turns).map((it) => it.said + (it.id === "t" ? ":t" : ""));
            }""",
            [rows, turn],
        )
        assert items == shown, (rows, turn)


ASKS: list[tuple[list[Any], dict[str, Any]]] = [
    ([("take", {"state": "open"})], {"outcome": None, "isWaiting": False}),
    # The last request counts; an end is an end, whatever is heard before or after it.
    ([("take", {"state": "waiting"}), ("take", {"state": "open"})], {"outcome": None, "isWaiting": False}),
    ([("take", {}), ("closed", {"outcome": "denied"}), ("take", {})], {"outcome": "denied", "asked": True}),
    ([("closed", {"outcome": "expired"}), ("take", {})], {"outcome": "expired", "text": "ls"}),
    ([("closed", {"outcome": "expired"})], {"outcome": "expired", "asked": False}),
    # What the relay does not list is over; the frame that says how comes later.
    ([("take", {}), ("opened", {})], {"outcome": "closed"}),
    ([("take", {}), ("opened", {}), ("closed", {"outcome": "allowed", "choice": "once"})], {"outcome": "allowed"}),
    ([("take", {}), ("ended", "t")], {"outcome": "closed"}),
]


async def test_an_approval_is_folded(page: Page) -> None:
    for steps, expected in ASKS:
        found = await page.evaluate(
            """async (steps) => {
                const { AskList } = await import("/static/js/asklist.js");
                const shelf = { names: () => [], get: () => {}, set: () => true, remove: () => {} };
                const asks = new AskList({ shelf, wire: null, changed: () => {} });
                for (const [act, payload] of steps) {
                    const about = { approval_id: "a", turn_id: "t", session_id: "s", summary: "ls", ...payload };
                    asks[act](act === "take" || act === "closed" ? about : payload);
                }
                return asks.all;
            }""",
            steps,
        )
        assert [{name: ask[name] for name in expected} for ask in found] == [expected], steps


async def test_waiting_grows_and_is_spread(page: Page) -> None:
    waits = await page.evaluate(
        """async () => {
            const { delay } = await import("/static/js/backoff.js");
            const most = [0, 1, 2, 10, 500].map((attempt) => delay(attempt, { random: () => 1 }));
            return [...most, delay(9, { random: () => 0 }), delay(0, { random: () => 0.5, floor: 2000 })];
        }"""
    )
    assert waits == [1000, 2000, 4000, 30000, 30000, 0, 2500]
