"""The web app in a real browser, as its owner uses it."""

from __future__ import annotations

from dataclasses import dataclass

from playwright.async_api import Locator, Page, expect

from tests.browser.watch import Watch
from tests.relay import RunningRelay


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
