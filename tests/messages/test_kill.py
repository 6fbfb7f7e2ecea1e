"""kill -9 at the worst moments, in a real process: what was stored stays, and happens once."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import older
from tests.phone import WAIT, Phone, authenticate, open_socket

ROOT = Path(__file__).parents[2]


@dataclass
class Doomed:
    url: str
    code: str
    process: asyncio.subprocess.Process
    http: httpx.AsyncClient

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def doomed(data_dir: Path, *when: str) -> AsyncIterator[Doomed]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.messages.doomed", str(data_dir), *when),
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        said = json.loads(await asyncio.wait_for(process.stdout.readline(), WAIT))
        async with httpx.AsyncClient(base_url=said["url"], headers=said["headers"], trust_env=False) as http:
            yield Doomed(said["url"], said["code"], process, http)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def phone_of(relay: Doomed, **fields: Any) -> AsyncIterator[Phone]:
    fields = fields or {"pairing_code": relay.code}
    async with open_socket(relay.url) as phone:
        yield await authenticate(phone, **fields)


@pytest.mark.parametrize("named", ["header", "message_id"])
async def test_killed_between_commit_and_answer_a_retry_gets_the_same_message(tmp_path: Path, named: str) -> None:
    key = {"Idempotency-Key": "run-1"} if named == "header" else {}
    body = {"text": "once"} | ({} if key else {"message_id": "run-1"})
    async with doomed(tmp_path) as relay, phone_of(relay) as phone:
        token = phone.token
        await relay.kill()
    async with doomed(tmp_path, "committed") as relay:
        with pytest.raises(httpx.TransportError):
            await relay.http.post("/messages", json=body, headers=key)
        assert await relay.process.wait() == -9
    async with doomed(tmp_path) as relay, phone_of(relay, session_token=token) as phone:
        answers = [await relay.http.post("/messages", json=body, headers=key) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [202, 202]
        assert answers[0].json() == answers[1].json()
        await phone.until("synced")
        assert [(frame.id, frame.seq) for frame in phone.frames if frame.type == "message"] == [
            (answers[0].json()["message_id"], 1)
        ]
        assert phone.auth["head"] == 1


async def test_an_acknowledged_reply_survives_and_a_repeated_one_is_not_doubled(tmp_path: Path) -> None:
    said = {"text": "yes", "chat_id": "c1", "message_id": "r-1", "ts": 1}
    async with doomed(tmp_path) as relay, phone_of(relay, pairing_code=relay.code, supports=older.SUPPORTS) as phone:
        ack = await phone.ask("proactive", "proactive.reply", said, id="f")
        token = phone.token
        await relay.kill()
    async with doomed(tmp_path) as relay, phone_of(relay, session_token=token, supports=older.SUPPORTS) as phone:
        again = await phone.ask("proactive", "proactive.reply", said, id="g")
        assert (again.type, again.payload) == ("proactive.reply.ack", ack.payload)
        found = (await relay.http.get("/phone/replies?timeout=5")).json()["replies"]
        assert [(one["text"], one["message_id"]) for one in found] == [("yes", "r-1")]
        assert (await relay.http.get("/phone/replies")).json() == {"replies": []}
        await relay.kill()
    async with doomed(tmp_path) as relay:  # what was fetched is gone for good
        assert (await relay.http.get("/phone/replies")).json() == {"replies": []}


async def test_an_older_phone_misses_nothing_and_sees_no_doubles_over_kills(tmp_path: Path) -> None:
    seen: list[str] = []
    token: str | None = None
    for round_ in range(4):
        async with doomed(tmp_path) as relay:
            fields = {"session_token": token} if token else {"pairing_code": relay.code}
            async with phone_of(relay, supports=older.SUPPORTS, **fields) as phone:
                token = phone.token
                seen += [frame.payload["text"] for frame in await older.subscribe(phone)]
                await relay.http.get("/phone/outbound")  # stores the acknowledgement
                await phone.hang_up()
            for number in range(5):
                answer = await relay.http.post("/phone/message", json={"text": f"{round_}.{number}"})
                assert answer.json()["queued"] is True
            await relay.kill()
    assert seen == [f"{round_}.{number}" for round_ in range(3) for number in range(5)]
