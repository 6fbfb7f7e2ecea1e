"""The terminal channel frame by frame: what is refused, how, and in which order things happen."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.phone import OLDER
from tests.relay import RunningRelay, running, settings_for
from tests.terminal import conftest
from tests.terminal.seat import seat

home, no_tmux, tmux_server = conftest.home, conftest.no_tmux, conftest.tmux_server
bare, with_tmux = conftest.bare, conftest.with_tmux

TYPES = ("attach", "input", "resize", "detach", "kill", "list", "rename", "scrollback")


@pytest.mark.parametrize(
    ("type_", "payload", "code"),
    [
        ("terminal.attach", {"cols": "abc"}, "payload_invalid"),
        ("terminal.attach", {"cols": True}, "payload_invalid"),
        ("terminal.attach", {"session_name": 7}, "payload_invalid"),
        ("terminal.attach", {"session_name": "a b"}, "terminal_name_invalid"),
        ("terminal.attach", {"session_name": "x:1.0"}, "terminal_name_invalid"),
        ("terminal.attach", {"session_name": "=x"}, "terminal_name_invalid"),
        ("terminal.attach", {"session_name": "-t"}, "terminal_name_invalid"),
        ("terminal.attach", {"session_name": "x\n"}, "terminal_name_invalid"),
        ("terminal.attach", {"session_name": "#{pid}"}, "terminal_name_invalid"),
        ("terminal.attach", {"session_name": "é"}, "terminal_name_invalid"),
        ("terminal.attach", {"session_name": "x" * 101}, "terminal_name_invalid"),
        ("terminal.input", {}, "payload_invalid"),
        ("terminal.input", {"data": 7}, "payload_invalid"),
        ("terminal.input", {"data": "x", "n": -1}, "payload_invalid"),
        ("terminal.input", {"data": "x"}, "terminal_not_attached"),
        ("terminal.input", {"data": "x", "session_name": "none"}, "terminal_not_attached"),
        ("terminal.resize", {"cols": 80}, "payload_invalid"),
        ("terminal.resize", {"cols": 80, "rows": 24}, "terminal_not_attached"),
        ("terminal.detach", {}, "terminal_not_attached"),
        ("terminal.kill", {}, "terminal_not_attached"),
        ("terminal.kill", {"session_name": "none"}, "terminal_unknown"),
        ("terminal.kill", {"session_name": "x;y"}, "terminal_name_invalid"),
        ("terminal.rename", {"session_name": "none"}, "payload_invalid"),
        ("terminal.rename", {"session_name": "none", "new_name": "other"}, "terminal_unknown"),
        ("terminal.rename", {"session_name": "none", "new_name": "a.b"}, "terminal_name_invalid"),
        ("terminal.scrollback", {"session_name": "none"}, "terminal_unknown"),
        ("terminal.scrollback", {"lines": 0}, "payload_invalid"),
        ("terminal.reboot", {}, "unknown_type"),
    ],
)
async def test_what_is_refused(bare: RunningRelay, type_: str, payload: dict[str, Any], code: str) -> None:
    phone = await bare.connect()
    answer = await phone.ask("terminal", type_, payload)
    assert (answer.channel, answer.type, answer.payload["code"]) == ("system", "error", code)
    await phone.ping()


async def test_older_clients_are_told_in_the_words_they_know(bare: RunningRelay) -> None:
    phone = await bare.connect(supports=OLDER)
    answer = await phone.ask("terminal", "terminal.kill", session_name="none")
    assert (answer.channel, answer.type) == ("terminal", "terminal.error")
    assert answer.payload == {
        "session_name": "none", "reason": "client kill", "message": "There is no terminal session of that name.",
        "code": "terminal_unknown", "ref": answer.id,
    }  # fmt: skip
    for n in range(4):
        await phone.ask("terminal", "terminal.attach", session_name=f"s{n}")
    capped = await phone.ask("terminal", "terminal.attach", session_name="s4")
    assert capped.type == "terminal.error"
    assert capped.payload["message"] == "Session cap reached (4). Detach an existing session first."
    unknown = await phone.ask("terminal", "terminal.reboot")
    assert (unknown.channel, unknown.type) == ("system", "error")


async def test_switched_off_is_said(tmp_path: Path) -> None:
    async with running(settings_for(tmp_path, TERMINAL_BACKEND="off")) as relay:
        phone = await relay.connect()
        payload = {"session_name": "x", "data": "x", "cols": 80, "rows": 24, "new_name": "y"}
        for type_ in TYPES:
            answer = await phone.ask("terminal", f"terminal.{type_}", payload)
            assert answer.payload["code"] == "terminal_off", type_


async def test_without_the_grant_nothing_is_answered(bare: RunningRelay) -> None:
    offer = await bare.relay.pairing.mint(grants={"terminal": 1})
    phone = await bare.connect(pairing_code=offer.code)
    for peer in bare.relay.hub:
        peer.regrant({"chat": None})
    for type_ in TYPES:
        answer = await phone.ask("terminal", f"terminal.{type_}", {"data": "x"})
        assert answer.payload["code"] == "grant_missing", type_


async def test_what_follows_an_attach_waits_for_it_and_other_frames_do_not(with_tmux: RunningRelay) -> None:
    phone = await with_tmux.connect()
    for id, type_, payload in (
        ("a", "terminal.attach", {"session_name": "one"}), ("b", "terminal.input", {"data": "x", "n": 1}),
        ("c", "terminal.attach", {"session_name": "two"}), ("d", "terminal.input", {"data": "x", "n": 2}),
        ("e", "terminal.detach", {}), ("f", "terminal.input", {"data": "x", "n": 3}),
    ):  # fmt: skip
        await phone.send("terminal", type_, payload, id=id)
    await phone.send("system", "ping", {"ts": 1}, id="ping")
    last = await phone.until("terminal.input_ack", lambda frame: frame.id == "f")
    answers = [frame.id for frame in phone.frames if frame.id in set("abcdef")]
    assert answers == list("abcdef")
    names = [frame.payload["session_name"] for frame in phone.frames if frame.type == "terminal.input_ack"]
    assert names == ["one", "two", "one"]
    assert last.payload == {"session_name": "one", "n": 3}


async def test_too_much_input_is_refused_whole(bare: RunningRelay) -> None:
    it = await seat(bare)
    await it.type("stty raw -echo; echo rea''dy; sleep 1; head -c 3000000 | wc -c; stty sane; echo do''ne\r")
    await it.until("ready")
    await it.type("a" * 3_000_000, n=1)
    await it.type("b" * 3_000_000, n=2)
    said = await it.until("done")
    assert "3000000" in said
    acks = [frame.payload["n"] for frame in it.others if frame.type == "terminal.input_ack"]
    errors = [frame.payload["code"] for frame in it.others if frame.type == "error"]
    assert (acks, errors) == ([1], ["terminal_input_full"])
    assert "b" not in await it.run("true")


async def test_a_kill_that_is_repeated_kills_no_successor(bare: RunningRelay) -> None:
    await seat(bare)
    phone = await bare.connect()
    kill = {"channel": "terminal", "type": "terminal.kill", "id": "once", "payload": {"session_name": "work"}}
    await phone.raw(json.dumps(kill))
    first = await phone.until("terminal.detached")
    fresh = await seat(bare)
    await phone.raw(json.dumps(kill))
    assert (await phone.until("terminal.detached")).payload == first.payload
    assert "alive-2" in await fresh.run("echo alive-$((1+1))")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        name: JSON | st.sampled_from(["work", "a", "", 0, 80, 10**20, -1])
        for name in ("session_name", "cols", "rows", "data", "n", "new_name", "before", "lines")
    },
)


async def test_any_payload_is_answered_or_refused_and_the_socket_lives(bare: RunningRelay) -> None:
    phone = await bare.connect()
    loop = asyncio.get_running_loop()

    @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(TYPES), FIELDS)
    def check(type_: str, payload: dict[str, Any]) -> None:
        asyncio.run_coroutine_threadsafe(said(type_, payload), loop).result(20)

    async def said(type_: str, payload: dict[str, Any]) -> None:
        silent = type_ in ("input", "resize")
        id = await phone.send("terminal", f"terminal.{type_}", payload)
        await phone.ping()
        while not silent and not any(frame.id == id for frame in phone.frames):
            await phone.next()
        errors = [frame.payload for frame in phone.frames if frame.id == id and frame.type == "error"]
        assert all(error["code"] != "internal_error" for error in errors), errors

    await asyncio.to_thread(check)
    await phone.ping()
