"""Sessions through a real relay and a real socket, whoever holds the shell: tmux, or the relay."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.phone import OLDER
from tests.relay import RunningRelay, running, settings_for
from tests.terminal.conftest import PROMPT, SHELL
from tests.terminal.seat import Seat, seat, sit

_AUDIT = text("SELECT action, subject, actor FROM audit WHERE action LIKE 'terminal.%' ORDER BY rowid")


async def test_a_shell_says_who_it_is_and_answers(relay: RunningRelay, either: str) -> None:
    it = await seat(relay, cols=90, rows=20)
    has_tmux = either == "with_tmux"
    assert it.attached | {"pid": 0} == {
        "session_name": "work", "pid": 0, "shell": SHELL, "cols": 90, "rows": 20, "tmux_available": has_tmux,
        "reattach": False,
    }  # fmt: skip
    assert "hi-42 héllo" in await it.run("echo hi-$((40+2)) héllo")
    assert await it.size() == (90, 20)
    os.kill(it.attached["pid"], 0)


async def test_a_session_without_a_name_gets_one_and_is_the_default(relay: RunningRelay) -> None:
    phone = await relay.connect()
    first = (await phone.ask("terminal", "terminal.attach")).payload["session_name"]
    second = (await phone.ask("terminal", "terminal.attach")).payload["session_name"]
    assert first != second
    await phone.send("terminal", "terminal.input", data="echo here-$((1+1))\r")
    found = await phone.until("terminal.output", lambda frame: "here-2" in frame.payload["data"])
    assert found.payload["session_name"] == second


async def test_it_outlives_its_socket(relay: RunningRelay) -> None:
    it = await seat(relay)
    await it.run("marked=still-here")
    await it.phone.hang_up()
    again = await seat(relay)
    assert again.attached["reattach"] is True
    assert again.attached["pid"] == it.attached["pid"]
    await again.until("still-here")  # what was on the screen is there again
    assert "still-here" in await again.run("echo $marked")


async def test_attaching_again_draws_again_and_counts_once(relay: RunningRelay) -> None:
    it = await seat(relay)
    await it.run("echo before")
    for _ in range(6):
        it = await sit(it.phone, cols=70)
        assert it.attached["reattach"] is True
        await it.until("before")
    assert await it.size() == (70, 24)


async def test_two_devices_see_the_same(relay: RunningRelay) -> None:
    one, two = await seat(relay), await seat(relay)
    await one.type("echo from-$((1+0))\r")
    await two.until("from-1")
    await two.type("echo from-$((1+1))\r")
    await one.until("from-2")


async def test_the_size_is_that_of_who_typed_last(relay: RunningRelay) -> None:
    laptop = await seat(relay, cols=120, rows=40)
    phone = await seat(relay, cols=50, rows=20)
    await _settled(phone, (50, 20))
    await _settled(laptop, (120, 40))
    await _settled(phone, (50, 20))
    await phone.phone.send("terminal", "terminal.detach", session_name="work")
    assert (await phone.detached())["reason"] == "client detach"
    await _settled(laptop, (120, 40))


async def test_a_program_that_asks_its_terminal_gets_one_answer(bare: RunningRelay) -> None:
    """Every device shows the question, and answers it by itself: that is no typing."""
    laptop = await seat(bare, cols=120, rows=40)
    phone = await seat(bare, cols=50, rows=20)
    await phone.type(
        "stty -echo -icanon; printf '\\033[6n'; IFS= read -r line; printf %s \"$line\" | tr '\\033' @; echo :asked\r"
    )
    await laptop.until("\x1b[6n")
    await phone.until("\x1b[6n")
    n = await laptop.phone.ask("terminal", "terminal.input", session_name="work", data="\x1b[7;7R", n=1)
    assert (n.type, n.payload["n"]) == ("terminal.input_ack", 1)
    await phone.type("\x1b[9;9R\r")
    assert (await phone.until(":asked")).strip() == "@[9;9R:asked"


async def test_a_phone_that_is_lost_gives_the_size_back(relay: RunningRelay) -> None:
    laptop = await seat(relay, cols=120, rows=40)
    phone = await seat(relay, cols=50, rows=20)
    await laptop.type("trap 'echo now: $(stty size)' WINCH\r")
    await _settled(phone, (50, 20))
    await phone.phone.hang_up()
    await laptop.until("now: 40 120")


async def test_sizes_that_change_nothing_or_too_fast_are_swallowed(relay: RunningRelay) -> None:
    it = await seat(relay)
    await it.run("changes=0; trap 'changes=$((changes+1))' WINCH")
    for _ in range(50):
        await it.phone.send("terminal", "terminal.resize", session_name="work", cols=80, rows=24)
    for cols in range(81, 141):
        await it.phone.send("terminal", "terminal.resize", session_name="work", cols=cols, rows=24)
    await it.phone.ping()
    await _settled(it, (140, 24))
    told = (await it.run("echo changes=$changes.")).rsplit("changes=", 1)[1]
    assert 1 <= int(told.split(".")[0]) <= 20


async def _settled(it: Seat, size: tuple[int, int]) -> None:
    """tmux lets a pane's size rest for a quarter of a second."""
    async with asyncio.timeout(10):
        while await it.size() != size:
            pass


async def test_a_megabyte_arrives_whole_and_each_piece_is_acknowledged_in_order(
    relay: RunningRelay, home: Path
) -> None:
    it = await seat(relay)
    paste = "".join(f"{n:07} {'é' if n % 9 else '日'}\n" for n in range(100_000))
    size = len(paste.encode())
    assert size > 1_000_000
    await it.type(f"stty raw -echo; echo rea''dy; head -c {size} > pasted; stty sane; echo do''ne\r")
    await it.until("ready")
    pieces = [paste[at : at + 50_000] for at in range(0, len(paste), 50_000)]
    for n, piece in enumerate(pieces):
        await it.type(piece, n=n)
    await it.until("done")
    acks = [frame.payload for frame in it.others if frame.type == "terminal.input_ack"]
    assert acks == [{"session_name": "work", "n": n} for n in range(len(pieces))]
    assert hashlib.sha256((home / "pasted").read_bytes()).digest() == hashlib.sha256(paste.encode()).digest()


async def test_one_frame_of_a_megabyte_arrives_whole(relay: RunningRelay, home: Path) -> None:
    it = await seat(relay)
    await it.type("stty raw -echo; echo rea''dy; head -c 1000000 > pasted; stty sane; echo do''ne\r")
    await it.until("ready")
    await it.type("0123456789" * 100_000)
    await it.until("done")
    assert (home / "pasted").read_text() == "0123456789" * 100_000


async def test_characters_are_never_cut(relay: RunningRelay) -> None:
    it = await seat(relay, cols=200, rows=50)
    said = await it.run("for i in $(seq 3000); do printf '日本語のテキスト'; done; echo")
    assert "日本語" in said
    assert "\ufffd" not in said


@pytest.mark.parametrize(("command", "status"), [("exit 7", 7), ("exit 0", 0)])
async def test_a_dead_shell_is_reported_with_its_status(relay: RunningRelay, command: str, status: int) -> None:
    one, two = await seat(relay), await seat(relay)
    await two.until(PROMPT.strip())  # its tmux client is there
    await one.type(f"{command}\r")
    for it in (one, two):
        detached = await it.detached()
        assert (detached["reason"], detached["status"]) == ("pty closed", status)
    answer = await one.phone.ask("terminal", "terminal.input", data="x")
    assert answer.payload["code"] == "terminal_not_attached"
    listed = await one.phone.ask("terminal", "terminal.list")
    assert listed.payload["sessions"] == []


async def test_what_was_written_last_comes_before_the_end(relay: RunningRelay, either: str) -> None:
    it = await seat(relay)
    await it.type("seq 1 20000; exit\r")
    await it.detached()
    if either == "bare":  # tmux shows a screen, not all that was on it
        assert "19999\r\n20000\r\n" in it.text


async def test_killing_tells_everyone_once(relay: RunningRelay, either: str) -> None:
    one, two = await seat(relay), await seat(relay)
    await one.phone.send("terminal", "terminal.kill", session_name="work", id="k1")
    killed = await one.phone.until("terminal.detached")
    assert (killed.id, killed.payload) == ("k1", {"session_name": "work", "reason": "client kill"})
    assert (await two.detached())["reason"] == "client kill"
    again = await one.phone.ask("terminal", "terminal.kill", session_name="work", id="k1")
    assert again.payload == killed.payload
    await one.phone.ping()
    assert [f.id for f in one.phone.frames if f.type == "terminal.detached"] == ["k1", "k1"]
    unknown = await one.phone.ask("terminal", "terminal.kill", session_name="work")
    assert unknown.payload["code"] == "terminal_unknown"


async def test_a_shell_that_ignores_hanging_up_is_killed(bare: RunningRelay) -> None:
    it = await seat(bare)
    await it.run("trap '' HUP")
    await it.phone.ask("terminal", "terminal.kill", session_name="work")
    with pytest.raises(ProcessLookupError):
        os.kill(it.attached["pid"], 0)


async def test_the_list_says_what_there_is(relay: RunningRelay, either: str) -> None:
    it = await seat(relay)
    other = await seat(relay, "other")
    await other.phone.hang_up()
    is_tmux = either == "with_tmux"
    async with asyncio.timeout(10):
        while True:
            listed = (await it.phone.ask("terminal", "terminal.list")).payload
            rows = {row["name"]: row for row in listed["sessions"]}
            if rows["other"]["attached"] == 0:
                break
    assert listed["tmux_available"] is is_tmux
    assert rows["work"] | {"created_at": 0} == {
        "name": "work", "tmux_name": "hermes-work" if is_tmux else None, "attached": 1, "windows": 1, "created_at": 0,
        "pid": it.attached["pid"], "shell": SHELL, "live": True, "owned_by_client": True,
    }  # fmt: skip
    assert isinstance(rows["work"]["created_at"], int)
    assert rows["other"]["owned_by_client"] is False


async def test_a_session_gets_another_name(relay: RunningRelay) -> None:
    one, two, older = await seat(relay), await seat(relay), await seat(relay, supports=OLDER)
    await seat(relay, "taken")
    refused = await one.phone.ask("terminal", "terminal.rename", session_name="work", new_name="taken")
    assert refused.payload["code"] == "terminal_exists"
    renamed = await one.phone.ask("terminal", "terminal.rename", session_name="work", new_name="play")
    assert (renamed.type, renamed.payload) == ("terminal.renamed", {"session_name": "work", "new_name": "play"})
    assert (await two.phone.until("terminal.renamed")).payload == renamed.payload
    one.name = two.name = "play"
    assert "ok-2" in await one.run("echo ok-$((1+1))")
    await two.until("ok-2")
    await older.until("ok-2")  # by the name it knows
    assert "old-3" in await older.run("echo old-$((1+2))")
    third = await seat(relay, "play")
    assert third.attached["pid"] == one.attached["pid"]
    names = {row["name"] for row in (await one.phone.ask("terminal", "terminal.list")).payload["sessions"]}
    assert names == {"play", "taken"}


async def test_scrollback_is_read_by_line(relay: RunningRelay) -> None:
    it = await seat(relay)
    await it.run("for i in $(seq 1 300); do echo line-$i-é; done")
    newest = (await it.phone.ask("terminal", "terminal.scrollback", session_name="work", lines=50)).payload
    assert len(newest["lines"]) == 50
    assert newest["first"] + 50 == newest["total"]
    assert "line-300-é" in newest["lines"]
    older = (await it.phone.ask("terminal", "terminal.scrollback", before=newest["first"], lines=100)).payload
    assert older["first"] + 100 == newest["first"]
    lines = [line for line in older["lines"] + newest["lines"] if line.startswith("line-")]
    assert lines == [f"line-{n}-é" for n in range(301 - len(lines), 301)]
    start = (await it.phone.ask("terminal", "terminal.scrollback", before=0)).payload
    assert start["lines"] == []


async def test_at_most_four_sessions_on_a_socket(relay: RunningRelay) -> None:
    phone = await relay.connect()
    for n in range(4):
        assert (await phone.ask("terminal", "terminal.attach", session_name=f"s{n}")).type == "terminal.attached"
    fifth = await phone.ask("terminal", "terminal.attach", session_name="s4")
    assert fifth.payload["code"] == "terminal_limit"
    assert fifth.payload["message"] == "Session cap reached (4). Detach an existing session first."
    await phone.ask("terminal", "terminal.detach", session_name="s0")
    assert (await phone.ask("terminal", "terminal.attach", session_name="s4")).type == "terminal.attached"


async def test_at_most_so_many_sessions_in_all(relay: RunningRelay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.terminal.shells.MAX_SESSIONS", 2)
    phone = await relay.connect()
    for n in range(2):
        await phone.ask("terminal", "terminal.attach", session_name=f"s{n}")
        await phone.ask("terminal", "terminal.detach", session_name=f"s{n}")
    third = await phone.ask("terminal", "terminal.attach", session_name="s2")
    assert third.payload["code"] == "terminal_limit"
    assert (await phone.ask("terminal", "terminal.attach", session_name="s0")).payload["reattach"] is True


async def test_nothing_of_the_relay_is_in_the_environment(relay: RunningRelay) -> None:
    it = await seat(relay)
    said = await it.run("env | grep -c -i talaria; echo TERM=$TERM")
    assert "\n0\r\n" in said.replace("\r\r", "\r")
    assert "TERM=" in said


async def test_attaching_and_killing_are_in_the_audit(relay: RunningRelay) -> None:
    it = await seat(relay)
    await it.phone.ask("terminal", "terminal.kill", session_name="work")
    rows = await relay.relay.db.read(lambda tx: tx.execute(_AUDIT, {}).fetchall())
    assert [tuple(row)[:2] for row in rows] == [("terminal.attached", "work"), ("terminal.killed", "work")]
    assert all(len(row[2]) == 8 for row in rows)


async def test_a_screen_without_a_size_changes_nobodys(relay: RunningRelay) -> None:
    it = await seat(relay, cols=90, rows=20)
    await it.phone.send("terminal", "terminal.resize", session_name="work", cols=0, rows=0)
    assert await it.size() == (90, 20)
    blank = await (await relay.connect()).ask("terminal", "terminal.attach", session_name="work", cols=0, rows=0)
    assert (blank.payload["cols"], blank.payload["rows"]) == (80, 24)


async def test_a_name_that_is_given_twice_on_a_link_leaves_the_older_session(bare: RunningRelay) -> None:
    old = await seat(bare, "one", supports=OLDER)  # it is not told of renaming
    await sit(old.phone, "two")
    other = await bare.connect()
    await other.ask("terminal", "terminal.rename", session_name="one", new_name="elsewhere")
    await old.phone.ask("terminal", "terminal.rename", session_name="two", new_name="one")
    rows = (await other.ask("terminal", "terminal.list")).payload["sessions"]
    assert {row["name"]: row["attached"] for row in rows} == {"elsewhere": 0, "one": 1}


@pytest.fixture
def around_tmux(
    home: Path, tmux_server: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], None]:
    """Lines of sh that run in place of tmux; in them it is `$tmux`."""

    def write(lines: str) -> None:
        script = tmp_path / "bin" / "tmux"
        script.parent.mkdir()
        script.write_text(f"#!/bin/sh\ntmux={shutil.which('tmux')}\n{lines}\n")
        script.chmod(0o700)
        monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")

    return write


async def test_a_name_is_free_when_its_end_is_told(around_tmux: Callable[[str], None], tmp_path: Path) -> None:
    around_tmux('$tmux "$@"; s=$?; [ "$1" != detach-client ] || sleep 2; exit $s')
    async with running(settings_for(tmp_path, TERMINAL_SHELL=SHELL)) as relay:
        it = await seat(relay)
        await it.type("exit 3\r")
        assert (await it.detached())["status"] == 3
        assert not (await sit(it.phone)).attached["reattach"]


async def test_a_session_begins_while_the_server_ends_with_its_last(
    around_tmux: Callable[[str], None], tmp_path: Path
) -> None:  # fmt: skip
    fails_once = f'mkdir {tmp_path}/once 2>/dev/null && echo "server exited unexpectedly" && exit 1'
    around_tmux(f'case "$*" in *new-session*) {fails_once} ;; esac; exec $tmux "$@"')
    async with running(settings_for(tmp_path, TERMINAL_SHELL=SHELL)) as relay:
        await seat(relay)
    assert (tmp_path / "once").exists()


async def test_a_loop_ends_with_its_session(relay: RunningRelay) -> None:
    """What runs in the foreground of a loop is a group of its own: a hang-up of that alone leaves the loop running."""
    it = await seat(relay)
    shell = int(re.findall(r"\d+", await it.run("echo $$"))[-1])
    await it.type("while :; do echo tick; sleep 0.05; done\r")
    await it.until("tick\r\ntick")
    await it.phone.ask("terminal", "terminal.kill", session_name="work")
    async with asyncio.timeout(10):
        while Path(f"/proc/{shell}").exists():  # noqa: ASYNC110 - the kernel tells nobody but its parent
            await asyncio.sleep(0.02)
