"""`talaria backup` and `talaria restore`: the round trip of a relay at work."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import sqlite3
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import httpx

from tests.phone import Frame, authenticate, open_socket

from .conftest import WAIT_S, Running, Talaria


@contextmanager
def served(talaria: Talaria) -> Iterator[Running]:
    with talaria.started("serve", PORT="0") as serving:
        talaria.url = serving.until("Talaria 0.1.0 listens on ")
        talaria.settings["PORT"] = talaria.url.rpartition(":")[2]
        yield serving


def paired(talaria: Talaria, name: str) -> dict:
    offer = json.loads(talaria.run("pair", "--json", "--name", name).stdout)
    return talaria.redeem(offer["code"], supports={"delivery": 1})


@contextmanager
def load(talaria: Talaria) -> Iterator[list[str]]:
    """Messages without a pause, twenty before it begins; the list holds those that the relay said it has kept."""
    kept: list[str] = []
    headers = {"Authorization": f"Bearer {talaria.run('token', 'operator').stdout.strip()}"}
    stop, begun = threading.Event(), threading.Event()

    def send() -> None:
        try:
            with httpx.Client(base_url=talaria.url, headers=headers, trust_env=False, timeout=WAIT_S) as http:
                while not stop.is_set():
                    answer = http.post("/messages", json={"text": f"number {len(kept)}"})
                    assert answer.status_code == 202
                    kept.append(answer.json()["message_id"])
                    if len(kept) == 20:
                        begun.set()
        finally:
            begun.set()

    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send)
        begun.wait()
        try:
            yield kept
        finally:
            stop.set()
            sending.result()


async def everything(url: str, token: str, **auth: object) -> list[Frame]:
    """What the relay sends a device that comes back, up to `synced`."""
    async with open_socket(url) as phone:
        await authenticate(phone, session_token=token, **auth)
        await phone.until("synced")
        return phone.frames


def test_what_was_kept_before_the_backup_is_there_after_it(talaria: Talaria, tmp_path: Path) -> None:
    file = tmp_path / "talaria.backup"
    with served(talaria) as serving:
        phone = paired(talaria, "Kitchen")
        with load(talaria) as kept:
            before = list(kept)
            talaria.run("backup", str(file))
        assert file.stat().st_mode & 0o777 == 0o600
        before_ids = set(before)
        seen = asyncio.run(everything(talaria.url, phone["session_token"]))
        head = max(frame.seq or 0 for frame in seen)
        said = talaria.run("restore", str(file), "--yes").stderr
        assert serving.end() == 0, "the relay was not stopped in peace"
    assert "not alive before" not in said
    assert "talaria.db.before-restore" in said
    with served(talaria) as serving:
        resume = {"epoch": seen[0].payload["epoch"], "after": head}
        again = asyncio.run(everything(talaria.url, phone["session_token"], resume=resume))
        reset = next(frame for frame in again if frame.type == "reset")
        assert reset.payload["reason"] == "epoch_changed"
        messages = [frame.payload["message_id"] for frame in again if frame.type == "message"]
        assert before_ids <= set(messages), "a message that was kept before the backup is gone"
        assert messages == kept[: len(messages)], "doubled or out of order"
        assert serving.stop() == 0


def test_what_was_revoked_since_stays_revoked_and_codes_are_void(talaria: Talaria, tmp_path: Path) -> None:
    file = tmp_path / "talaria.backup"
    with served(talaria) as serving:
        lost, here = paired(talaria, "Lost"), paired(talaria, "Here")
        code = json.loads(talaria.run("pair", "--json").stdout)["code"]
        talaria.run("backup", str(file))
        talaria.run("devices", "revoke", "Lost")
        operator = talaria.run("token", "operator", "--rotate").stdout
        talaria.run("restore", str(file), "--yes")
        assert serving.end() == 0
    with served(talaria) as serving:
        assert talaria.status_of(lost["session_token"]) == 401
        assert talaria.status_of(here["session_token"]) == 200
        answer = httpx.post(f"{talaria.url}/pairing/redeem", json={"pairing_code": code}, trust_env=False)
        assert answer.status_code == 401
        assert talaria.run("token", "operator").stdout == operator, "the token that was given up is back"
        assert serving.stop() == 0


def test_on_a_new_machine_the_old_relay_comes_back(talaria: Talaria, tmp_path: Path) -> None:
    file = tmp_path / "talaria.backup"
    with served(talaria) as serving:
        phone = paired(talaria, "Kitchen")
        operator = talaria.run("token", "operator").stdout
        with file.open("wb") as to:
            subprocess.run(
                [sys.executable, "-m", "app", "backup", "-"],
                cwd=talaria.home, env=talaria.environ(), stdout=to, check=True,
            )  # fmt: skip
        assert serving.stop() == 0
    (tmp_path / "new").mkdir()
    new = Talaria(tmp_path / "new", {"PORT": "1", "HERMES_API_URL": ""})
    with served(new) as serving:  # somebody started it there before
        assert serving.stop() == 0
    said = new.run("restore", str(file), "--yes").stderr
    assert "Kitchen" in said, "a session that comes back was not named"
    with served(new) as serving:
        assert new.status_of(phone["session_token"]) == 200
        assert new.run("token", "operator").stdout == operator
        assert serving.stop() == 0


def test_what_was_under_way_ends_as_uncertain(talaria: Talaria, tmp_path: Path) -> None:
    file = tmp_path / "talaria.backup"
    with served(talaria) as serving:
        phone = paired(talaria, "Kitchen")
        assert serving.stop() == 0
    with closing(sqlite3.connect(talaria.data / "talaria.db")) as db, db:
        db.execute(
            "INSERT INTO turns (turn_id, device_id, session_id, state, message, created_at, updated_at) VALUES "
            "('t1', ?, 's', 'accepted', '{\"message\": \"Hello\"}', 4e9, 4e9)", (phone["device_id"],),
        )  # fmt: skip
    talaria.run("backup", str(file))
    talaria.run("restore", str(file), "--yes")
    with served(talaria) as serving:
        frames = asyncio.run(everything(talaria.url, phone["session_token"], supports={"delivery": 1, "turns": 1}))
        end = next(frame for frame in frames if frame.type == "turn.failed")
        assert (end.payload["turn_id"], end.payload["finish"]) == ("t1", "uncertain")
        assert serving.stop() == 0


def test_nothing_is_touched_by_half_a_backup_or_something_else(talaria: Talaria, tmp_path: Path) -> None:
    file, half = tmp_path / "talaria.backup", tmp_path / "half"
    with served(talaria) as serving:
        phone = paired(talaria, "Kitchen")
        talaria.run("backup", str(file))
        refused = talaria.run("backup", str(file), status=1)
        assert "there already" in refused.stderr
        whole = file.read_bytes()
        half.write_bytes(whole[: len(whole) // 2])
        for spoilt in (half, Path(sys.executable)):
            said = talaria.run("restore", str(spoilt), "--yes", status=1).stderr
            assert "not a whole backup of Talaria" in said, said
        assert talaria.status_of(phone["session_token"]) == 200, "the relay was stopped for nothing"
        assert not list(talaria.data.glob(".backup-*"))
        assert serving.stop() == 0


def test_a_path_in_a_backup_leads_nowhere(talaria: Talaria, tmp_path: Path) -> None:
    file = tmp_path / "evil"
    (tmp_path / "x").write_text("x")
    with tarfile.open(file, "w:gz") as tar:
        tar.add(tmp_path / "x", "../../x")
    said = talaria.run("restore", str(file), "--yes", status=1).stderr
    assert "not a backup of Talaria" in said


def test_before_the_first_start_there_is_nothing_to_back_up(talaria: Talaria) -> None:
    assert "nothing to back up" in talaria.run("backup", "x", status=1).stderr


def test_a_relay_that_runs_and_cannot_be_reached_is_not_to_be_started(talaria: Talaria, tmp_path: Path) -> None:
    """In another container it holds the directory, and listens on another loopback."""
    file = tmp_path / "talaria.backup"
    with served(talaria) as serving:
        talaria.run("backup", str(file))
        said = " ".join(talaria.run("restore", str(file), "--yes", status=1, PORT="1").stderr.split())
        assert "no relay of that directory can be reached" in said
        assert "docker compose stop relay" in said
        assert "talaria serve" not in said
        assert serving.stop() == 0


def test_a_directory_is_no_file(talaria: Talaria) -> None:
    with served(talaria) as serving:
        assert "there already" in talaria.run("backup", ".", status=1).stderr
        assert "cannot be read" in talaria.run("restore", "--yes", ".", status=1).stderr
        assert serving.stop() == 0


def test_a_terminal_that_would_spoil_it_gets_no_backup(talaria: Talaria) -> None:
    """`docker compose exec` without -T makes one, and turns line ends into two bytes, on the way to the host's file."""
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "app", "backup", "-"],
            cwd=talaria.home, env=talaria.environ(), stdout=theirs, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 1
    assert "exec -T" in done.stderr
