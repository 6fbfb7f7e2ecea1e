from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.hermes_plugin import hermes_stub
from tests.hermes_plugin.hermes_stub import Asks, PlatformConfig
from tests.hermes_plugin.scripted import TOKEN, ScriptedRelay, scripted_relay

Connect = Callable[..., Any]


@pytest.fixture
async def relay() -> AsyncIterator[ScriptedRelay]:
    async with scripted_relay() as relay:
        yield relay


@pytest.fixture
def asks() -> Asks:
    return Asks()


@pytest.fixture
def home(tmp_path: Path, asks: Asks, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A Hermes home, in a process that looks like Hermes."""
    for name in ("TALARIA_LINK_URL", "TALARIA_LINK_TOKEN", "TALARIA_HOME_CHANNEL", "TALARIA_MEDIA_ROOTS"):
        monkeypatch.delenv(name, raising=False)
    with hermes_stub.installed(tmp_path, asks):
        yield tmp_path


@pytest.fixture
def gateway(home: Path, relay: ScriptedRelay) -> Connect:
    """`async with gateway() as adapter`: a gateway's life with the plugin in it."""

    @asynccontextmanager
    async def running(**extra: Any) -> AsyncIterator[Any]:
        module = importlib.import_module("deploy.hermes_plugin.adapter")
        config = PlatformConfig({"url": relay.url, "token": TOKEN} | extra)
        adapter = module.TalariaAdapter(config)
        async with AsyncExitStack() as stack:
            assert await adapter.connect()
            stack.push_async_callback(adapter.disconnect)
            yield adapter

    return running


@pytest.fixture
async def adapter(gateway: Connect, relay: ScriptedRelay) -> AsyncIterator[Any]:
    """Linked to the scripted relay."""
    async with gateway() as adapter:
        await relay.until(lambda: relay.socket)
        await adapter._link.up.wait()
        yield adapter
