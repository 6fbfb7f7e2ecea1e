"""What Hermes does by itself comes to the phone: cron, to each kind of target, with a file, and after an outage."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.hermes.gateway_lab import GatewayLab, Owner

pytestmark = pytest.mark.hermes

TICK_S = 150  # Hermes looks once a minute


async def test_cron_reaches_each_of_its_targets(gateway: GatewayLab, owner: Owner) -> None:
    """In one test: each tick of Hermes's clock takes a minute."""
    device = owner.phone.auth["device_id"]
    elsewhere = gateway.lab.root / "elsewhere.txt"
    elsewhere.write_text("stays")
    report = gateway.home / "cache" / "documents" / "report.txt"
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text("what was found")
    made = {"action": "create", "name": "from the chat", "schedule": "1m", "prompt": "SAY:news where it was made"}
    await owner.says(f"TOOL:cronjob:{json.dumps(made)}")
    await owner.hears("done after")
    await gateway.job("to home", "talaria", "SAY:news for the home chat")
    await gateway.job("to a thread", "talaria:home:plans", "SAY:news for a thread")
    await gateway.job("to one device", f"talaria:device:{device}", "SAY:news for one device")
    nobody = await gateway.job("to nobody", "talaria:nowhere", "SAY:news for nobody")
    await gateway.job("with a file", "talaria", f"SAY:MEDIA:{elsewhere}")
    await gateway.job("with a report", "talaria", f"SAY:MEDIA:{report}")
    home = await owner.hears("news for the home chat", within=TICK_S)
    assert home.payload["chat_id"] == "home"
    assert home.payload["source"] == "cron"
    assert home.payload["title"] == "to home"
    assert "job_id" in home.payload
    thread = await owner.hears("news for a thread", within=TICK_S)
    assert (thread.payload["chat_id"], thread.payload["thread_id"]) == ("home", "plans")
    await owner.hears("news for one device", within=TICK_S)
    refused = await owner.hears("elsewhere.txt was not sent", within=TICK_S)
    assert "TALARIA_MEDIA_ROOTS" in refused.payload["text"]
    file = await owner.hears(lambda frame: bool(frame.payload.get("media")), within=TICK_S)
    (sent,) = file.payload["media"]
    assert sent["name"].endswith("report.txt")
    async with httpx.AsyncClient(base_url=gateway.command.url, trust_env=False) as http:
        headers = {"Authorization": f"Bearer {owner.phone.token}"}
        assert (await http.get(f"/media/{sent['token']}", headers=headers)).content == b"what was found"
    made_here = await owner.hears("news where it was made", within=TICK_S)
    assert made_here.payload["chat_id"] == "home"
    ran = await gateway.ran(nobody, within=TICK_S)
    assert "There is no such chat" in ran["last_delivery_error"]


async def test_cron_waits_for_a_relay_that_is_away(gateway: GatewayLab, owner: Owner) -> None:
    job = await gateway.job("meanwhile", "talaria", "SAY:news that came meanwhile")
    gateway.kill_relay()
    ran = await gateway.ran(job, within=TICK_S)
    assert ran["last_delivery_error"] is None
    gateway.begin_relay()
    await gateway.linked()
    async with gateway.phone(session_token=owner.phone.token) as back:
        await back.hears("news that came meanwhile")
