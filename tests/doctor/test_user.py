"""Whose process Hermes is. It is looked up in /proc, so it is a process here too."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from tests.relay import running, settings_for

KEY = "key-of-a-hermes-0123456789"  # its command line has to tell that it is Hermes


async def test_a_hermes_that_can_read_the_relays_keys_is_warned_of(tmp_path: Path) -> None:
    hermes = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "app.demo", "--key", KEY, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert hermes.stdout is not None
        async with asyncio.timeout(20):
            url = json.loads(await hermes.stdout.readline())["url"]
        async with running(settings_for(tmp_path, HERMES_API_URL=url, HERMES_API_KEY=KEY)) as relay:
            found = {finding.name: finding for finding in await relay.relay.doctor.examine()}
    finally:
        hermes.kill()
        await hermes.wait()
    assert found["user"].state == "warn"
    assert "can read the relay's keys" in found["user"].says
    assert "Under which user" in (found["user"].do or "")
