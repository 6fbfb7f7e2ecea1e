"""`python -m tests.browser.screenshot [FILE]`: the picture of the README, of the real page in Chromium."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from playwright.async_api import async_playwright, expect

from app.demo.stand_in import serve_stand_in
from tests.browser.cable import KEY, behind, laid
from tests.browser.conftest import ARGUMENTS
from tests.browser.phone_page import opened

FILE = Path(__file__).parents[2] / "deploy" / "screenshots" / "chat.png"


async def take(file: Path, chromium: str = "/usr/bin/chromium") -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as data_dir:
        async with (
            serve_stand_in(KEY, delay_s=0.01) as hermes,
            laid() as cable,
            behind(cable, hermes, Path(data_dir), HERMES_DASHBOARD_URL=hermes.dashboard_url) as relay,
            async_playwright() as playwright,
        ):
            browser = await playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
            async with opened(browser, relay, cable.url) as phone:
                await phone.pair()
                await phone.say("Clean up the old logs")
                await expect(phone.page.locator(".ask")).to_be_visible()
                await phone.page.screenshot(path=file)
            await browser.close()


if __name__ == "__main__":
    asyncio.run(take(Path(sys.argv[1]) if len(sys.argv) > 1 else FILE))
