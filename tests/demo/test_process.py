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
async def process(*options: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, dict[str, str]]]:
    """The process and where it listens; it is killed at the end if it still runs."""
    command = [sys.executable, "-m", "app.demo", "--port", "0", "--key", KEY, "--delay", "0", *options]
    running = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        assert running.stdout is not None
        async with asyncio.timeout(20):
            line = await running.stdout.readline()
        yield running, json.loads(line)
    finally:
        if running.returncode is None:
            running.kill()
        await running.wait()


async def test_it_is_steered_over_http_and_stops_at_sigterm() -> None:
    async with (
        process() as (running, urls),
        httpx.AsyncClient(base_url=urls["url"], headers={"Authorization": f"Bearer {KEY}"}) as http,
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


async def test_its_dashboard_asks_for_the_token_that_was_given() -> None:
    token = "token-0123456789"
    async with (
        process("--dashboard-token", token, "--approval-timeout", "9") as (_, urls),
        httpx.AsyncClient(base_url=urls["dashboard_url"]) as http,
    ):
        assert (await http.get("/api/config")).status_code == 401
        config = (await http.get("/api/config", headers={"X-Hermes-Session-Token": token})).json()
        assert config["approvals"]["timeout"] == 9
