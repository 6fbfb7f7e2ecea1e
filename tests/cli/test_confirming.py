"""`talaria pair` where the operator confirms each device, `talaria confirm`, and new keys."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.cli.client import RelayClient
from app.cli.pair import pair, promise
from tests.cli.conftest import Talaria
from tests.relay import running, settings_for


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Talaria]:
    """Confirmation is on."""
    command = Talaria(tmp_path_factory.mktemp("relay"), {"HERMES_API_URL": "", "PAIRING_CONFIRM": "1"})
    with command.started("serve", PORT="0") as serving:
        command.url = serving.until("Talaria 0.1.0 listens on ")
        command.settings["PORT"] = command.url.rpartition(":")[2]
        yield command
        assert serving.stop() == 0, serving.errors()


def redeem(relay: Talaria, code: str, **fields: Any) -> httpx.Response:
    body = {"pairing_code": code, "device_id": "dev-1", "device_name": "Pixel\x1b[2J"} | fields
    return httpx.post(f"{relay.url}/pairing/redeem", json=body, trust_env=False)


def offer_that_waits(relay: Talaria, digits: str) -> str:
    with RelayClient(relay.data, relay.url) as client:
        pending = client.get("/pairing/pending")["pending"]
    return str(next(one["offer_id"] for one in pending if one["confirm"] == digits))


def answered(relay: Talaria, offer_id: str) -> None:
    """Returns when the operator has said yes or no."""
    with RelayClient(relay.data, relay.url) as client:
        status = client.get(f"/pairing/offers/{offer_id}", wait=25, seen="confirming", timeout=30)
    assert status["state"] != "confirming"


def test_without_a_terminal_it_says_which_command_lets_the_phone_in(relay: Talaria) -> None:
    with relay.started("pair", "--wait", stdin=subprocess.DEVNULL) as pairing:
        code = pairing.until("Code  ").split(",")[0]
        asked = redeem(relay, code)
        assert asked.status_code == 202
        digits = asked.json()["confirm"]
        line = pairing.until("Pixel�[2J wants to pair")
        assert line.endswith(f"talaria confirm {digits}")
        assert "`talaria confirm` lets it in" in " ".join(pairing.said.split())
        waiting = relay.run("confirm").stdout
        assert digits in waiting
        assert "Pixel�[2J" in waiting
        assert relay.run("confirm", digits).stdout == "It is let in.\n"
        assert redeem(relay, code).status_code == 200
        assert pairing.end() == 0
    assert "Paired: Pixel�[2J" in pairing.said
    assert relay.run("confirm").stdout == "No device waits.\n"
    assert "No device waits with these" in relay.run("confirm", digits, status=1).stderr


@pytest.mark.parametrize(("answer", "state"), [("y", "redeemed"), ("n", "denied")])
def test_in_a_terminal_it_asks(relay: Talaria, answer: str, state: str) -> None:
    ours, theirs = pty.openpty()
    try:
        with relay.started("pair", "--wait", stdin=theirs) as pairing:
            code = pairing.until("Code  ").split(",")[0]
            digits = redeem(relay, code).json()["confirm"]
            offer_id = offer_that_waits(relay, digits)
            os.write(ours, f"{answer}\n".encode())  # typed ahead, as a terminal keeps it
            if state == "denied":
                assert pairing.end() == 1
                assert redeem(relay, code).json()["error"]["code"] == "pairing_denied"
            else:
                answered(relay, offer_id)
                assert redeem(relay, code).status_code == 200
                assert pairing.end() == 0
            assert f"Does yours show {digits}?" in pairing.errors()
    finally:
        os.close(ours)
        os.close(theirs)


def test_no_ends_the_code(relay: Talaria) -> None:
    offer = json.loads(relay.run("pair", "--json").stdout)
    digits = redeem(relay, offer["code"]).json()["confirm"]
    assert relay.run("confirm", digits, "--deny").stdout == "Its code has ended.\n"
    assert redeem(relay, offer["code"]).status_code == 401


def test_a_code_of_the_app_is_approved_before_it_is_shown(relay: Talaria) -> None:
    refused = relay.run("pair", "--for", "hermes-relay", status=1)
    assert refused.stdout == ""
    assert "--yes" in refused.stderr
    shown = relay.run("pair", "--for", "hermes-relay", "--yes", "--json")
    offer = json.loads(shown.stdout)
    assert redeem(relay, offer["code"], device_id="dev-2").status_code == 200


def test_a_new_key_and_everybody_stays_paired(relay: Talaria) -> None:
    offer = json.loads(relay.run("pair", "--for", "hermes-relay", "--yes", "--json").stdout)
    token = redeem(relay, offer["code"], device_id="dev-3").json()["session_token"]
    for _ in range(2):
        assert relay.run("keys", "rotate").stdout.startswith("Key ")
    assert relay.status_of(token) == 200
    assert len(json.loads((relay.data / "session-keys.json").read_bytes())) >= 2


def test_for_the_app(tmp_path: Path) -> None:
    relay = Talaria(tmp_path, {"HERMES_API_URL": ""})
    with relay.started("serve", PORT="0") as serving:
        relay.url = serving.until("Talaria 0.1.0 listens on ")
        relay.settings["PORT"] = relay.url.rpartition(":")[2]
        made = relay.run("pair", "--for", "hermes-relay", "--endpoint", "http://192.168.1.5:8767", "--grant", "chat")
        assert "Link  hermes-relay://pair?payload=" in made.stdout
        assert max(map(len, made.stdout.split("Link")[0].splitlines())) <= 100
        said = " ".join((made.stdout + made.stderr).split())
        assert "Whoever photographs this QR code can chat" in said
        assert "No phone can reach this code from afar yet" in said
        bare = relay.run("pair", "--for", "hermes-relay", "--no-api-token", "--json")
        assert json.loads(json.loads(bare.stdout)["qr_payload"])["key"] == ""
        assert "must look like" in relay.run("pair", "--for", "hermes-relay", "--endpoint", "x", status=2).stderr
        assert "--for hermes-relay" in " ".join(relay.run("pair", "--no-api-token", status=2).stderr.split())
        assert serving.stop() == 0


async def test_what_no_qr_code_can_hold_is_shown_as_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running(settings_for(tmp_path)) as server:
        monkeypatch.setattr(RelayClient, "of_settings", lambda: RelayClient(tmp_path, server.url))
        ways = [f"https://relay-{n}.some-long-tailnet-name.ts.net:8443" for n in range(16)]
        await asyncio.to_thread(pair, purpose="hermes-relay", endpoint=ways)
    shown = capsys.readouterr()
    assert shown.out.startswith("Link  hermes-relay://pair?payload=")
    assert "Too much for a QR code" in shown.err


def test_the_sentence_says_that_it_renews() -> None:
    offer = {"name": None, "ttl_seconds": 43200, "grants": {"chat": None}}
    assert promise(offer).startswith("The phone gets chat for 12 hours, and as long again whenever it renews; take it")
