"""Every refusal of Hermes' API, straight and through the relay: status, body and kind are the same."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.hermes.hermes_lab import Lab
from tests.relay import RunningRelay

pytestmark = pytest.mark.hermes
MADE_UP = re.compile(rb"(?:chatcmpl-|resp_|run_|api-|msg_)[0-9a-f]+")  # a name of this request alone


@dataclass(frozen=True)
class Ask:
    method: str
    path: str
    status: int
    json: Any = None
    content: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.status} {self.method} {self.path} {str(self.json)[:30]}"


LONG = {"X-Hermes-Session-Id": "x" * 257}
CHAT, STREAM = "/api/sessions/refused/chat", "/api/sessions/refused/chat/stream"
FILE = [{"role": "user", "content": [{"type": "file", "file": {"file_id": "x"}}]}]
REFUSED = [
    Ask("GET", "/v1/nothing", 404),
    Ask("GET", "/v1/models/", 404),
    Ask("POST", "/v1/models", 405),
    Ask("HEAD", "/v1/models", 405),
    Ask("OPTIONS", "/v1/models", 403),
    Ask("PUT", "/api/sessions", 405),
    Ask("POST", "/api/sessions", 409, {"id": "refused"}),
    Ask("POST", "/api/sessions", 400, {"id": "a\nb"}),
    Ask("POST", "/api/sessions", 500, {"title": "x" * 101}),
    Ask("POST", "/api/sessions", 400, content=b"{nonsense"),
    Ask("POST", "/api/sessions", 413, content=b"x" * 10_000_001),
    Ask("GET", "/api/sessions/nobody", 404),
    Ask("PATCH", "/api/sessions/nobody", 404, {"title": "x"}),
    Ask("PATCH", "/api/sessions/refused", 400, {"model": "x"}),
    Ask("DELETE", "/api/sessions/nobody", 404),
    Ask("GET", "/api/sessions/nobody/messages", 404),
    Ask("POST", "/api/sessions/nobody/fork", 404, {}),
    Ask("POST", "/api/sessions/nobody/chat", 404, {"message": "hi"}),
    Ask("POST", "/api/sessions/nobody/chat/stream", 404, {"message": "hi"}),
    Ask("POST", CHAT, 400, {}),
    Ask("POST", STREAM, 400, {}),
    Ask("POST", STREAM, 400, {"message": "   "}),
    Ask("POST", STREAM, 400, {"message": [{"type": "file", "file": {"file_id": "x"}}]}),
    Ask("POST", STREAM, 400, {"message": "hi", "system_message": 7}),
    Ask("POST", STREAM, 400, {"message": "hi"}, headers={"X-Hermes-Session-Key": "x" * 257}),
    Ask("POST", STREAM, 400, content=b"nonsense"),
    Ask("POST", STREAM, 413, content=b"x" * 10_000_001),
    Ask("POST", "/v1/chat/completions", 400, {"messages": []}),
    Ask("POST", "/v1/chat/completions", 400, {"messages": FILE}),
    Ask("POST", "/v1/chat/completions", 500, {"messages": ["x"]}),
    Ask("POST", "/v1/chat/completions", 400, {"messages": [{"role": "user", "content": "hi"}]}, headers=LONG),
    Ask("POST", "/v1/chat/completions", 400, content=b"nonsense"),
    Ask("POST", "/v1/responses", 400, {}),
    Ask("POST", "/v1/responses", 404, {"input": "hi", "previous_response_id": "resp_nobody"}),
    Ask("GET", "/v1/responses/resp_nobody", 404),
    Ask("DELETE", "/v1/responses/resp_nobody", 404),
    Ask("POST", "/v1/runs", 400, {}),
    Ask("GET", "/v1/runs/run_nobody", 404),
    Ask("GET", "/v1/runs/run_nobody/events", 404),
    Ask("POST", "/v1/runs/run_nobody/stop", 404),
    Ask("POST", "/v1/runs/run_nobody/approval", 404, {"choice": "once"}),
    Ask("GET", "/api/jobs/nonsense", 400),
    Ask("GET", "/api/jobs/0123456789ab", 404),
    Ask("POST", "/api/jobs", 400, {}),
    Ask("POST", "/api/jobs/0123456789ab/run", 404),
    Ask("GET", "/p/work/v1/nothing", 404),
    Ask("POST", "/p/work/api/sessions/nobody/chat/stream", 404, {"message": "hi"}),
]  # fmt: skip


@pytest.fixture
async def direct(lab: Lab) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=lab.url, headers={"Authorization": f"Bearer {lab.key}"}) as http:
        await http.post("/api/sessions", json={"id": "refused"})
        yield http


@pytest.mark.parametrize("ask", REFUSED, ids=str)
async def test_a_refusal_is_the_same_through_the_relay(
    relay: RunningRelay, direct: httpx.AsyncClient, ask: Ask
) -> None:
    phone = await relay.connect()
    request = {"json": ask.json} if ask.content is None else {"content": ask.content}
    request = {} if ask.json is None and ask.content is None else request
    async with httpx.AsyncClient(base_url=relay.url, headers={"Authorization": f"Bearer {phone.token}"}) as http:
        said = await http.request(ask.method, ask.path, headers=ask.headers, **request)
    straight = await direct.request(ask.method, ask.path, headers=ask.headers, **request)
    assert straight.status_code == ask.status  # as HERMES documents it; else this table is out of date
    assert said.status_code == straight.status_code
    assert MADE_UP.sub(b"", said.content) == MADE_UP.sub(b"", straight.content)
    for name in ("content-type", "retry-after", "allow"):
        assert said.headers.get(name) == straight.headers.get(name)


async def test_a_full_hermes_says_when_to_come_again(
    relay: RunningRelay, direct: httpx.AsyncClient, tmp_path: Path
) -> None:
    """Ten run at once; the eleventh is refused, whichever way it came."""
    phone = await relay.connect()
    runs = []
    async with httpx.AsyncClient(base_url=relay.url, headers={"Authorization": f"Bearer {phone.token}"}) as http:
        try:
            for _ in range(10):
                begun = await http.post("/v1/runs", json={"input": f"HOLD:{tmp_path / 'free'}"})
                assert begun.status_code == 202
                runs.append(begun.json()["run_id"])
            for full in (
                await http.post("/v1/runs", json={"input": "hi"}),
                await direct.post("/v1/runs", json={"input": "hi"}),
            ):
                assert full.status_code == 429
                assert full.json()["error"]["code"] == "rate_limit_exceeded"
                assert full.headers["retry-after"] == "1"
        finally:
            (tmp_path / "free").touch()
            for run in runs:
                await http.post(f"/v1/runs/{run}/stop")
