"""From the offer to the end of a session, by the command alone."""

from __future__ import annotations

import asyncio
import io
import json
import re
import sys
from pathlib import Path

import pytest

from app.cli import devices
from app.cli.client import CommandFailed, RelayClient
from app.cli.pair import promise, show_offer, wait_for_phone
from app.clock import ManualClock
from tests.relay import running, settings_for

from .conftest import Talaria


def paired(relay: Talaria, name: str, *args: str) -> str:
    """The session token of a new device."""
    offer = json.loads(relay.run("pair", "--json", "--name", name, *args).stdout)
    return str(relay.redeem(offer["code"])["session_token"])


def test_from_pairing_to_revoking(relay: Talaria) -> None:
    with relay.started("pair", "--wait", "--grant", "chat,terminal", "--ttl", "12h") as pairing:
        link = pairing.until("Link  ")
        code = pairing.until("Code  ").split(",")[0]
        assert link == f"{relay.url}/pair#code={code}&fp={pairing.until('Relay ').split(',')[0]}"
        assert re.fullmatch(r"[A-Z0-9]{8}", code)
        token = relay.redeem(code, device_name="Pixel\x1b[2J", device_id="dev-84c1")["session_token"]
        assert pairing.end() == 0
        assert "tailscale serve" in pairing.errors()
    assert "Paired: Pixel�[2J" in pairing.said
    said = " ".join(pairing.said.split())
    assert (
        "The phone gets chat and terminal for 12 hours, and as long again whenever it renews; take it back with" in said
    )
    assert relay.status_of(token) == 200

    listed = relay.run("devices").stdout
    assert "NAME" in listed
    assert re.search(r"^Pixel�\[2J +dev-84c1 +.*chat, terminal$", listed, re.MULTILINE)
    (device,) = [d for d in json.loads(relay.run("devices", "list", "--json").stdout) if d["device_id"] == "dev-84c1"]
    assert set(device["sessions"][0]["grants"]) == {"chat", "terminal"}

    assert relay.run("devices", "rename", "dev-84", "Ann's phone").stdout == "Pixel�[2J is now called Ann's phone\n"
    assert relay.run("devices", "revoke", "Ann's phone").stdout == "Ann's phone is no longer paired\n"
    assert relay.status_of(token) == 401
    assert "must be paired again" in " ".join(relay.run("devices", "revoke", "dev-84c1", status=1).stderr.split())


def test_grants_are_given_and_taken(relay: Talaria) -> None:
    paired(relay, "giver", "--grant", "chat", "--ttl", "never")
    said = relay.run("devices", "grant", "giver", "terminal", "bridge=2h", "chat=off").stdout
    assert said == "giver may now use terminal and bridge and may no longer use chat\n"
    (device,) = [d for d in json.loads(relay.run("devices", "--json").stdout) if d["name"] == "giver"]
    grants = device["sessions"][0]["grants"]
    assert grants["terminal"] is None
    assert grants["bridge"] - grants["chat"] == pytest.approx(2 * 3600 - 1, abs=5)


def test_who_is_meant_must_be_clear(relay: Talaria) -> None:
    paired(relay, "twin")
    paired(relay, "twin")
    assert "more than one device" in relay.run("devices", "revoke", "twin", status=1).stderr
    assert "no device is called nobody" in relay.run("devices", "revoke", "nobody", status=1).stderr


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (("pair", "--ttl", "soon"), "a duration is a number"),
        (("pair", "--grant", "chat,magic"), "unknown grant 'magic': there are chat, terminal"),
        (("devices", "grant", "x", "magic=7d"), "unknown grant 'magic': there are chat, terminal"),
        (("pair", "--name", "x" * 200), "name must be a text of at most 120"),
        (("pair", "--nothing"), "No such option"),
        (("devices", "grant", "x"), "Missing argument"),
        (("nothing",), "No such command"),
    ],
)
def test_wrong_use_is_status_2(relay: Talaria, args: tuple[str, ...], complaint: str) -> None:
    done = relay.run(*args, status=2)
    assert complaint in " ".join(done.stderr.split())
    assert done.stdout == ""


def test_for_programs_each_line_is_a_document(relay: Talaria) -> None:
    with relay.started("pair", "--wait", "--json") as pairing:
        offer = json.loads("{" + pairing.until("{"))
        relay.redeem(offer["code"], device_name="by program")
        assert pairing.end() == 0
        assert pairing.errors() == ""
    assert json.loads(pairing.said.splitlines()[-1])["device_name"] == "by program"
    assert offer["public"] is False


async def test_waiting_ends_with_the_offer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clock = ManualClock()
    async with running(settings_for(tmp_path), clock=clock) as server:
        offer = await server.relay.pairing.mint()
        clock.advance(601)
        with RelayClient(tmp_path, server.url) as client:
            assert not await asyncio.to_thread(wait_for_phone, client, offer.offer_id)
    assert capsys.readouterr().out == ""


async def test_a_device_whose_session_is_over_is_shown_and_can_be_revoked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = ManualClock()
    async with running(settings_for(tmp_path), clock=clock) as server:
        phone = await server.connect(device_id="dev-1")
        clock.advance(31 * 86400)
        monkeypatch.setattr(RelayClient, "of_settings", lambda: RelayClient(tmp_path, server.url))
        monkeypatch.setattr(devices, "Clock", lambda: clock)
        await asyncio.to_thread(devices.list_devices)
        assert "over, may renew" in capsys.readouterr().out
        with pytest.raises(CommandFailed, match="has no session any more"):
            await asyncio.to_thread(devices.grant, "dev-1", ["terminal"])
        await asyncio.to_thread(devices.revoke, "dev-1")
        again = await (await server.open()).ask("system", "auth", refresh_token=phone.auth["refresh_token"])
        assert (again.type, again.payload["code"]) == ("auth.fail", "session_revoked")
        with pytest.raises(CommandFailed, match="has no session any more"):
            await asyncio.to_thread(devices.revoke, "dev-1")


def test_an_operator_token_that_is_exchanged_ends_at_once(relay: Talaria) -> None:
    old = relay.run("token", "operator").stdout.strip()
    assert relay.status_of(old, "/devices") == 200
    new = relay.run("token", "--rotate").stdout.strip()
    assert new not in ("", old)
    assert (relay.status_of(old, "/devices"), relay.status_of(new, "/devices")) == (401, 200)
    assert (relay.data / "operator-token").stat().st_mode & 0o777 == 0o600
    relay.run("devices")


def test_another_data_directory_is_told(relay: Talaria, tmp_path: Path) -> None:
    (tmp_path / "operator-token").write_text("talaria-op-" + "x" * 43)
    done = relay.run("devices", status=1, DATA_DIR=str(tmp_path))
    assert "does not accept the operator token of" in " ".join(done.stderr.split())
    assert "x" * 43 not in done.stderr


def test_the_sentence() -> None:
    grants = {"chat": None, "terminal": 3600, "tui": 3600, "bridge": 7 * 86400}
    offer = {"name": "Ann", "ttl_seconds": None, "grants": grants}
    assert promise(offer).startswith(
        "“Ann” gets chat for good, and terminal and tui for 1 hour, and bridge for 7 days;"
    )


@pytest.mark.parametrize(("encoding", "drawn"), [("utf-8", True), ("latin-1", False), ("ascii", False)])
def test_a_terminal_without_the_characters_of_a_qr_code_gets_link_and_code(
    encoding: str, drawn: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, encoding, errors="replace"))
    show_offer(
        {
            "web_url": "https://home.example/pair#code=AZUB7O89", "code": "AZUB7O89", "expires_at": 1_800_000_000,
            "fingerprint": "f", "name": None, "ttl_seconds": None, "grants": {"chat": None}, "public": True,
        }
    )  # fmt: skip
    text = shown.getvalue().decode(encoding)
    assert "Link  https://home.example/pair#code=AZUB7O89\nCode  AZUB7O89" in text
    assert ("█▀" in text) is drawn
    assert ("no characters for a QR code" in capsys.readouterr().err) is not drawn
    assert "??" not in text
