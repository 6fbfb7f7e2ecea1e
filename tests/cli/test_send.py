"""`talaria send` and `talaria token link`, against a running relay."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import httpx

from tests.phone import authenticate, open_socket

from .conftest import Talaria


def paired(relay: Talaria, name: str) -> tuple[str, str]:
    """(device_id, session token) of a new device that acknowledges."""
    offer = json.loads(relay.run("pair", "--json", "--name", name).stdout)
    found = relay.redeem(offer["code"], supports={"delivery": 1})
    return found["device_id"], found["session_token"]


def test_it_says_for_whom_a_message_is_kept(relay: Talaria) -> None:
    device, _ = paired(relay, "Kitchen")
    said = relay.run("send", "The washing is done", "--title", "Home", "--device", "Kitchen").stdout
    message_id = said.strip().rpartition(" ")[2]
    assert said == f"Kept for Kitchen as {message_id}\n"
    found = look(relay, message_id)
    assert found["message"]["text"] == "The washing is done"
    assert found["message"]["title"] == "Home"
    assert found["deliveries"] == [{"device_id": device, "seq": 1, "state": "kept"}]
    assert found["expires_at"] is None


def look(relay: Talaria, message_id: str) -> dict:
    headers = {"Authorization": f"Bearer {relay.run('token', 'link').stdout.strip()}"}
    return httpx.get(f"{relay.url}/messages/{message_id}", headers=headers, trust_env=False).json()


def test_the_text_may_come_from_standard_input_and_every_option_counts(relay: Talaria) -> None:
    device, _ = paired(relay, "Office")
    done = subprocess.run(
        [sys.executable, "-m", "app", "send", "-", "--device", device, "--ttl", "1h", "--kind", "cron", "--json"],
        cwd=relay.home, env=relay.environ(), input="line one\nline two", capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = look(relay, json.loads(done.stdout)["message_id"])
    assert (found["kind"], found["message"]["text"]) == ("cron", "line one\nline two")
    assert round(found["expires_at"] - found["created_at"]) == 3600


def test_the_same_key_is_one_message(relay: Talaria) -> None:
    paired(relay, "Hall")
    args = ("send", "Backup done", "--device", "Hall", "--key", "backup-1", "--json")
    assert relay.run(*args).stdout == relay.run(*args).stdout
    again = relay.run("send", "Backup failed", "--device", "Hall", "--key", "backup-1", status=1)
    assert again.stderr == "talaria: This key was used before with another payload.\n"


async def test_it_waits_for_the_receipts(relay: Talaria) -> None:
    _, token = paired(relay, "Pocket")

    async def arrive() -> None:
        async with open_socket(relay.url) as phone:
            await authenticate(phone, session_token=token)
            frame = await phone.until("message")
            await phone.ack(frame.seq or 0)
            await phone.ping()

    with relay.started("send", "Hello", "--device", "Pocket", "--wait") as sending:
        await asyncio.to_thread(sending.until, "Pocket: waits")
        await arrive()
        assert await asyncio.to_thread(sending.until, "Pocket: has it") == ""
        assert await asyncio.to_thread(sending.end) == 0


def test_what_cannot_be_sent_is_said(relay: Talaria) -> None:
    paired(relay, "Attic")
    assert "no device is called Nobody" in relay.run("send", "x", "--device", "Nobody", status=1).stderr
    assert "text is required" in relay.run("send", " ", status=2).stderr
    for args in (("send", "\udcff"), ("send", "x", "--title", "\udcff"), ("send", "x", "--key", "schlüssel")):
        assert "UTF-8" in relay.run(*args, status=2).stderr
    piped = [sys.executable, "-m", "app", "send", "-"]
    done = subprocess.run(piped, cwd=relay.home, env=relay.environ(), input=b"\xff\xfe", capture_output=True)
    assert (done.returncode, b"no UTF-8 text" in done.stderr) == (2, True)
    assert "a duration is a number" in relay.run("send", "x", "--ttl", "soon", status=2).stderr


def test_the_link_token_is_another_than_the_operators_and_can_be_exchanged(relay: Talaria) -> None:
    operator, link = (relay.run("token", which).stdout.strip() for which in ("operator", "link"))
    assert operator.startswith("talaria-op-")
    assert link.startswith("talaria-link-")
    paired(relay, "Cellar")
    assert status(relay, link) == 202
    newer = relay.run("token", "link", "--rotate").stdout.strip()
    assert (status(relay, link), status(relay, newer), status(relay, operator)) == (401, 202, 202)
    assert (relay.data / "link-token").stat().st_mode & 0o777 == 0o600


def status(relay: Talaria, token: str) -> int:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.post(f"{relay.url}/messages", json={"text": "x"}, headers=headers, trust_env=False).status_code
