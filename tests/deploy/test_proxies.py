"""Chat, shells, files and the client's address through the proxies whose configuration we ship."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from sqlalchemy import text

from app.demo.stand_in import StandIn, serve_stand_in
from tests.phone import Phone, authenticate, open_socket
from tests.relay import RunningRelay, running, settings_for
from tests.terminal import conftest
from tests.terminal.seat import sit

from .front import PROXIES, Front, free_port, in_front

home, tmux_server = conftest.home, conftest.tmux_server

KEY = "stand-in-key-0123456789"
BIG = bytes(range(256)) * 4096 * 24  # 24 MiB: more than any proxy keeps in memory by itself


@dataclass(frozen=True, slots=True)
class House:
    relay: RunningRelay
    front: Front
    hermes: StandIn
    stack: AsyncExitStack

    async def phone(self) -> Phone:
        """Paired, through the proxy."""
        socket = await self.stack.enter_async_context(open_socket(self.front.url, ssl=self.front.trust))
        return await authenticate(socket, pairing_code=(await self.relay.relay.pairing.mint()).code)

    async def http(self) -> httpx.AsyncClient:
        client = httpx.AsyncClient(base_url=self.front.url, verify=self.front.trust, trust_env=False, timeout=60)
        return await self.stack.enter_async_context(client)


@pytest.fixture(params=PROXIES)
async def house(request: pytest.FixtureRequest, tmp_path: Path, tmux_server: Path, home: Path) -> AsyncIterator[House]:
    port = free_port()
    async with AsyncExitStack() as stack:
        hermes = await stack.enter_async_context(serve_stand_in(KEY, delay_s=0))
        settings = settings_for(
            tmp_path / "data", PUBLIC_URL=f"https://localhost:{port}", TRUSTED_PROXIES="127.0.0.1/32",
            HERMES_API_URL=hermes.url, HERMES_API_KEY=KEY, TERMINAL_SHELL=conftest.SHELL,
        )  # fmt: skip
        relay = await stack.enter_async_context(running(settings))
        behind = int(relay.url.rpartition(":")[2])
        front = await stack.enter_async_context(in_front(request.param, tmp_path, port, behind))
        yield House(relay, front, hermes, await stack.enter_async_context(AsyncExitStack()))


async def test_each_piece_of_an_answer_comes_when_it_is_said(house: House) -> None:
    house.hermes.agent.gate.clear()
    phone = await house.phone()
    await phone.send("chat", "chat.send", message="gated hello")
    first = await phone.event("assistant.delta")
    assert first.payload["payload"]["delta"]
    assert house.hermes.agent.turns_ended == 0, "the proxy held the first piece back until the end"
    house.hermes.agent.gate.set()
    end = await phone.until("turn.completed")
    assert end.payload["finish"] == "completed"


async def test_a_terminal(house: House) -> None:
    sitting = await sit(await house.phone(), cols=100, rows=30)
    assert await sitting.size() == (100, 30)
    assert "20000" in await sitting.run("seq 20000")
    assert "still there" in await sitting.run("echo still there")


async def test_a_large_file_passes_both_ways(house: House) -> None:
    phone, http = await house.phone(), await house.http()
    bearer = {"Authorization": f"Bearer {phone.token}"}
    answer = await http.post("/media/upload", files={"file": ("big.bin", BIG)}, headers=bearer)
    assert answer.status_code == 200, answer.text
    token = answer.json()["token"]
    whole = await http.get(f"/media/{token}", headers=bearer)
    assert hashlib.sha256(whole.content).digest() == hashlib.sha256(BIG).digest()
    part = await http.get(f"/media/{token}", headers=bearer | {"Range": "bytes=5-9"})
    assert (part.status_code, part.content) == (206, BIG[5:10])


async def test_nobody_is_believed_who_says_to_be_somebody_else(house: House) -> None:
    http = await house.http()
    for number in range(3):
        spoofed = f"203.0.113.{number}"
        headers = {"X-Forwarded-For": spoofed, "Forwarded": f"for={spoofed}"}
        answer = await http.post("/pairing/redeem", json={"pairing_code": "WRONGWRG"}, headers=headers)
        assert answer.status_code == 401
    addresses = await house.relay.relay.db.read(
        lambda tx: tx.all(text("SELECT DISTINCT address FROM attempts WHERE kind = 'code'"))
    )
    assert list(addresses) == [("127.0.0.1",)]


async def test_a_page_of_another_origin_gets_no_socket(house: House) -> None:
    phone = await house.phone()
    await phone.ping()
    http = await house.http()
    upgrade = {
        "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Origin": "https://evil.example",
    }  # fmt: skip
    refused = await http.get("/ws", headers=upgrade)
    assert refused.status_code == 403


@pytest.mark.nightly
async def test_a_socket_that_is_silent_for_ten_minutes_stays(house: House) -> None:
    phone = await house.phone()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(605):
            await phone.socket.recv()
    await phone.ping()
