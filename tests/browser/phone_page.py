"""The web app in a real browser, as its owner uses it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from playwright.async_api import Browser, Locator, Page, expect

from tests.browser.watch import Watch
from tests.relay import RunningRelay


async def soon(event: Awaitable[None]) -> None:
    """Wait for something that the agent does, and fail rather than hang."""
    await asyncio.wait_for(event, 15)


@dataclass(slots=True)
class PhonePage:
    page: Page
    relay: RunningRelay
    url: str
    watch: Watch

    async def pair(self) -> None:
        """As after scanning the QR code."""
        offer = await self.relay.relay.pairing.mint()
        await self.page.goto(f"{self.url}/pair#code={offer.code}")
        await self.page.get_by_role("button", name="Pair this").click()
        await self.connected()

    async def connected(self) -> None:
        await expect(self.status).to_contain_text("Connected")

    async def say(self, text: str) -> None:
        await self.page.get_by_label("Message", exact=True).fill(text)
        await self.page.get_by_role("button", name="Send").click()

    @property
    def status(self) -> Locator:
        return self.page.locator(".status")

    @property
    def bubbles(self) -> Locator:
        """What the owner said."""
        return self.page.locator(".bubble")

    @property
    def answers(self) -> Locator:
        return self.page.locator(".answer")

    @property
    def tools(self) -> Locator:
        return self.page.locator("details.tool")


@asynccontextmanager
async def opened(browser: Browser, relay: RunningRelay, url: str, **options: Any) -> AsyncIterator[PhonePage]:
    """A page of a phone that has nothing stored. Afterwards: no error, no violation, no request elsewhere."""
    context = await browser.new_context(
        viewport={"width": 390, "height": 844}, device_scale_factor=2, is_mobile=True, has_touch=True, **options
    )
    page = await context.new_page()
    watch = Watch(url)
    await watch.over(page)
    yield PhonePage(page, relay, url, watch)
    await context.close()
    watch.verdict()
