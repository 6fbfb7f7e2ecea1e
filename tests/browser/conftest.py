"""The real relay, the stand-in agent and Debian's Chromium, on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, async_playwright

from app.demo.stand_in import StandIn, serve_stand_in
from tests.browser.cable import KEY, Cable, behind, laid
from tests.browser.phone_page import PhonePage, opened
from tests.browser.scripted import ScriptedPage, scripted
from tests.relay import RunningRelay
from tests.requires import requires

ARGUMENTS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking")


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
    async with behind(cable, hermes, tmp_path) as relay:
        yield relay


@pytest.fixture
async def phone(browser: Browser, relay: RunningRelay, cable: Cable) -> AsyncIterator[PhonePage]:
    async with opened(browser, relay, cable.url) as phone:
        yield phone


@pytest.fixture
async def paired(browser: Browser) -> AsyncIterator[ScriptedPage]:
    """The page of a phone that is paired with a relay of the test's own words."""
    async with scripted(browser) as page:
        yield page
