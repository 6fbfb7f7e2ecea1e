"""What devices hear of the ways to Hermes: when they connect, and when that changes."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

from app.demo.stand_in import serve_stand_in
from tests.phone import OLDER, Frame
from tests.relay import running, settings_for

KEY = "stand-in-key-0123456789"


def both_down(frame: Frame) -> bool:
    return {frame.payload[way]["state"] for way in ("api", "dashboard")} == {"down"}


async def test_devices_hear_when_hermes_goes(tmp_path: Path) -> None:
    async with AsyncExitStack() as hermes:
        stand_in = await hermes.enter_async_context(serve_stand_in(KEY))
        settings = settings_for(
            tmp_path,
            HERMES_API_URL=stand_in.url, HERMES_API_KEY=KEY, HERMES_DASHBOARD_URL=stand_in.dashboard_url,
        )  # fmt: skip
        async with running(settings) as relay:
            await relay.relay.hermes.probe()
            phone, older = await relay.connect(), await relay.connect(supports=OLDER)
            assert phone.auth["upstream"]["api"] == {"state": "up", "version": "0.19.0", "route": "local"}
            await hermes.aclose()
            await relay.relay.hermes.probe()
            await phone.until("upstream", both_down)
            said = (await relay.connect()).auth["upstream"]
            assert "TALARIA_HERMES_API_URL" in said["api"]["message"]
            assert said["dashboard"]["message"]
            await older.ping()
            assert "upstream" not in {frame.type for frame in older.frames}


async def test_a_key_that_is_refused_is_named(tmp_path: Path) -> None:
    async with serve_stand_in(KEY) as stand_in:
        settings = settings_for(tmp_path, HERMES_API_URL=stand_in.url, HERMES_API_KEY="short")
        async with running(settings) as relay:
            await relay.relay.hermes.probe()
            said = (await relay.connect()).auth["upstream"]
            assert (said["api"]["state"], said["api"]["code"]) == ("auth_required", "upstream_key_short")
            assert said["dashboard"] == {"state": "off"}
