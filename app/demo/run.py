"""The real relay with the stand-in behind it, in one process."""

from __future__ import annotations

import asyncio
import secrets
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress

from pydantic import SecretStr
from uvicorn.loops.auto import auto_loop_factory

from app.demo.stand_in import serve_stand_in
from app.errors import Misconfigured
from app.server.serving import listen, serve
from app.settings import HermesSettings, Settings
from app.tasks import Supervisor

CONNECTS_WITHIN = 5  # seconds for the relay to reach the dashboard: before that, nothing could be asked
Ready = Callable[[str], Awaitable[None]]  # gets the relay's base URL


def run_demo(settings: Settings, ready: Ready, *, once: bool = False) -> None:
    """Until a signal, or with `once` until `ready` has returned. Raises Misconfigured, and whatever `ready` raised."""
    with asyncio.Runner(loop_factory=auto_loop_factory()) as runner:
        runner.run(_demo(settings, ready, once))


async def _demo(settings: Settings, ready: Ready, once: bool) -> None:
    failures: list[BaseException] = []

    async def welcome(url: str) -> None:
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(CONNECTS_WITHIN):
                    await stand_in.dashboard.until(lambda: stand_in.dashboard.sockets)
            await ready(url)
        except Exception as exc:
            failures.append(exc)
        if once or failures:
            signal.raise_signal(signal.SIGTERM)  # as an operator would end it

    async with Supervisor() as tasks, serve_stand_in(secrets.token_urlsafe(24)) as stand_in:
        hermes = HermesSettings(
            hermes_api_url=stand_in.url,
            hermes_api_key=SecretStr(stand_in.key),
            hermes_dashboard_url=stand_in.dashboard_url,
            hermes_dashboard_token=SecretStr(stand_in.dashboard_token),
        )
        behind = settings.model_copy(update={"hermes": hermes})

        def listening(url: str) -> None:
            tasks.start(welcome(url), "demo")

        await serve(behind, listening)
    if failures:
        raise failures[0]


def is_free(host: str, port: int) -> bool:
    """Whether a relay could listen there now."""
    try:
        listen(host, port).close()
    except Misconfigured:
        return False
    return True
