"""`talaria push test`, against a relay and a push server that run in the test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.cli.conftest import Talaria
from tests.contracts.services import NtfyService, Reply
from tests.relay import RunningRelay, running, settings_for
from tests.servers import serving


@dataclass
class Rig:
    relay: RunningRelay
    ntfy: NtfyService
    command: Talaria

    async def run(self, *args: str, status: int = 0) -> CompletedProcess[str]:
        return await asyncio.to_thread(self.command.run, "push", "test", *args, status=status)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    ntfy, data = NtfyService(), tmp_path / "data"
    data.mkdir()
    async with serving(ntfy) as port:
        settings = settings_for(data, NTFY_URL=f"http://127.0.0.1:{port}", NTFY_TOKEN=ntfy.token)
        async with running(settings) as relay:
            port = relay.relay.settings.server.port
            command = Talaria(tmp_path, {"PORT": str(port), "HERMES_API_URL": "", "DATA_DIR": str(data)})
            yield Rig(relay, ntfy, command)


def lines(done: CompletedProcess[str]) -> list[str]:
    return [line.strip() for line in done.stdout.splitlines()]


async def test_a_phone_that_wakes_up_and_answers(rig: Rig) -> None:
    phone = await rig.relay.connect(device_name="Ann’s phone")
    await phone.ask("system", "push.register", provider="ntfy")
    await phone.hang_up()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(rig.run("Ann’s phone"))
        await rig.ntfy.asked.acquire()
        back = await rig.relay.connect(session_token=phone.token)
        await back.ack((await back.until("message")).seq or 0)
    said = lines(running.result())
    assert said[0] == "Push to Ann’s phone"
    assert [line.partition(" ")[0] for line in said[1:]] == ["ok"] * 4
    assert said[1].endswith("a target is registered: 1 registered: ntfy")
    assert said[-1].endswith("the device answers: it woke up, connected and acknowledged")


async def test_the_hop_that_fails_is_named_with_what_to_do(rig: Rig) -> None:
    phone = await rig.relay.connect(device_name="Ann’s phone")
    done = await rig.run("Ann’s phone", status=1)
    assert lines(done)[1:3] == [
        "FAILED  a target is registered: the device never registered one",
        "Open the app on it and switch push on.",
    ]
    assert lines(done)[3] == "-       the device answers"
    assert "where it stopped" in " ".join(done.stderr.split())

    await phone.ask("system", "push.register", provider="ntfy")
    rig.ntfy.replies = [Reply(401, b'{"error":"unauthorized"}')]
    done = await rig.run("Ann’s phone", status=1)
    assert "FAILED  the provider takes it (ntfy): HTTP 401, auth_refused: unauthorized" in lines(done)

    await phone.hang_up()
    done = await rig.run("Ann’s phone", "--wait", "0", status=1)
    assert any(line.startswith("FAILED  the device answers: nothing came back") for line in lines(done))
    assert "waiting up to 0 s" in done.stderr


async def test_for_programs_it_is_one_document(rig: Rig) -> None:
    phone = await rig.relay.connect()
    await phone.ask("system", "push.register", provider="ntfy")
    done = await rig.run(phone.auth["device_id"], "--json", "--wait", "0", status=1)
    trial = json.loads(done.stdout)
    assert [(hop["hop"], hop["ok"]) for hop in trial["hops"]] == [
        ("target", True), ("reached", True), ("accepted", True), ("answered", False),
    ]  # fmt: skip
    assert "nobody" in (await rig.run("nobody", status=1)).stderr


async def test_devices_show_how_push_stands(rig: Rig) -> None:
    phone = await rig.relay.connect(device_name="Ann")
    await phone.ask("system", "push.register", provider="ntfy")
    rig.ntfy.replies = [Reply(403)]
    await phone.ask("system", "push.test")
    done = await asyncio.to_thread(rig.command.run, "devices")
    assert "PUSH" in done.stdout
    assert "failing:" in done.stdout
