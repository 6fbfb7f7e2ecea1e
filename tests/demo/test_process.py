"""The stand-in in a process of its own, steered over HTTP."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from tests.demo.client import Client
from tests.demo.conftest import KEY


@asynccontextmanager
async def process() -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """The process and its URL; it is killed at the end if it still runs."""
    command = [sys.executable, "-m", "app.demo", "--port", "0", "--key", KEY, "--delay", "0"]
    running = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        assert running.stdout is not None
        async with asyncio.timeout(20):
            line = await running.stdout.readline()
        yield running, json.loads(line)["url"]
    finally:
        if running.returncode is None:
            running.kill()
        await running.wait()


async def test_it_is_steered_over_http_and_stops_at_sigterm() -> None:
    async with (
        process() as (running, url),
        httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {KEY}"}) as http,
    ):
        client = await Client.with_session(http)
        state = (await http.post("/__stand_in/gate", json={"open": False})).json()
        assert state["gate_open"] is False
        async with client.begin("gated SAY:one two") as pieces:
            async for piece in pieces:
                if b'"delta":"one"' in piece:
                    break
            state = (await http.get("/__stand_in")).json()
            assert state["turns_started"] == [{"session_id": client.session_id, "message": "gated SAY:one two"}]
            assert (state["open"], state["aborted"], state["turns_running"]) == (1, 0, 1)
            await http.post("/__stand_in/gate", json={"open": True})
            assert b"event: run.completed" in b"".join([piece async for piece in pieces])
        await http.post("/__stand_in/gate", json={"open": False})
        asking = asyncio.ensure_future(client.ask("gated SAY:three four"))
        while not (await http.get("/__stand_in")).json()["at_gate"]:
            pass
        running.send_signal(signal.SIGTERM)
        stream = await asking
        assert (stream.names[-1], stream.broken) == ("done", None)
        assert not stream.all("run.completed")
        assert await running.wait() == 0
