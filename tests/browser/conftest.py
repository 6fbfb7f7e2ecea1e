"""The real relay, the stand-in agent and Debian's Chromium, on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, async_playwright

from app.demo.stand_in import StandIn, serve_stand_in
from tests.browser.cable import Cable, laid
from tests.browser.phone_page import PhonePage
from tests.browser.watch import Watch
from tests.relay import RunningRelay, running, settings_for
from tests.requires import requires

KEY = "stand-in-key-0123456789"
ARGUMENTS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking")
PHONE = {"width": 390, "height": 844}


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    chromium = requires("chromium")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield browser
        await browser.close()


@pytest.fixture
async def cable() -> AsyncIterator[Cable]:
    async with laid() as cable:
        yield cable


@pytest.fixture
async def hermes() -> AsyncIterator[StandIn]:
    async with serve_stand_in(KEY, delay_s=0.004) as stand_in:
        yield stand_in


@pytest.fixture
async def relay(tmp_path: Path, cable: Cable, hermes: StandIn) -> AsyncIterator[RunningRelay]:
    """Behind the cable, whose origin is the one that pages are served from."""
    settings = settings_for(tmp_path, HERMES_API_URL=hermes.url, HERMES_API_KEY=KEY, PUBLIC_URL=cable.url)
    async with running(settings) as relay:
        cable.plug_into(relay.url)
        yield relay


@pytest.fixture
async def phone(browser: Browser, relay: RunningRelay, cable: Cable) -> AsyncIterator[PhonePage]:
    """A page of a phone that has nothing stored. Afterwards: no error, no violation, no request elsewhere."""
    context = await browser.new_context(
        viewport=PHONE, device_scale_factor=2, is_mobile=True, has_touch=True, color_scheme="light"
    )
    page = await context.new_page()
    watch = Watch(cable.url)
    await watch.over(page)
    yield PhonePage(page, relay, cable.url, watch)
    await context.close()
    watch.verdict()
