"""A client of the Hermes API that nobody here wrote: the `openai` package, which knows the relay's address alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import openai
import pytest
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from tests.hermes.hermes_lab import Lab
from tests.relay import RunningRelay, running, settings_for

pytestmark = pytest.mark.hermes
MODEL = "hermes-agent"


@pytest.fixture
async def client(relay: RunningRelay) -> AsyncIterator[AsyncOpenAI]:
    phone = await relay.connect()
    async with made(relay, phone.token) as client:
        yield client


def made(relay: RunningRelay, key: str) -> AsyncOpenAI:
    return AsyncOpenAI(
        base_url=f"{relay.url}/v1", api_key=key, max_retries=0, http_client=DefaultAsyncHttpxClient(trust_env=False)
    )


async def test_models(client: AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == [MODEL]


async def test_a_completion(client: AsyncOpenAI) -> None:
    said = await client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "SAY:héllo 日本"}])
    assert said.choices[0].message.content == "héllo 日本"
    assert said.choices[0].finish_reason == "stop"
    assert said.usage is not None
    assert said.usage.total_tokens > 0


async def test_a_streamed_completion(client: AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "WORDS:12 DELAY:20"}], stream=True
    )
    pieces = [chunk async for chunk in stream]
    words = [piece.choices[0].delta.content or "" for piece in pieces if piece.choices]
    assert "".join(words) == " ".join(f"w{n}" for n in range(1, 13))
    assert len([word for word in words if word]) > 1  # it came in pieces, and not at the end
    assert pieces[-1].choices[0].finish_reason == "stop"


async def test_a_conversation_goes_on_by_its_header(client: AsyncOpenAI) -> None:
    ask = client.chat.completions.with_raw_response.create
    first = await ask(model=MODEL, messages=[{"role": "user", "content": "SAY:one"}])
    session = first.headers["x-hermes-session-id"]
    second = await ask(
        model=MODEL, messages=[{"role": "user", "content": "SAY:two"}], extra_headers={"X-Hermes-Session-Id": session}
    )
    assert second.headers["x-hermes-session-id"] == session


async def test_a_response(client: AsyncOpenAI) -> None:
    said = await client.responses.create(model=MODEL, input="SAY:first")
    assert (said.status, said.output_text) == ("completed", "first")
    again = await client.responses.create(model=MODEL, input="SAY:second", previous_response_id=said.id)
    assert again.output_text == "second"
    assert (await client.responses.retrieve(said.id)).id == said.id
    await client.responses.delete(said.id)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(said.id)


async def test_a_streamed_response(client: AsyncOpenAI) -> None:
    stream = await client.responses.create(model=MODEL, input="WORDS:12 DELAY:20", stream=True)
    events = [event async for event in stream]
    assert events[0].type == "response.created"
    assert events[-1].type == "response.completed"
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == " ".join(f"w{n}" for n in range(1, 13))
    assert events[-1].response.output_text == "".join(deltas)


async def test_errors_are_those_the_client_knows(client: AsyncOpenAI, relay: RunningRelay, lab: Lab) -> None:
    with pytest.raises(openai.BadRequestError):
        await client.chat.completions.create(model=MODEL, messages=[])
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve("resp_nobody")
    async with made(relay, lab.key) as stranger:  # Hermes' own key opens nothing here
        with pytest.raises(openai.AuthenticationError) as refused:
            await stranger.models.list()
    assert refused.value.code == "session_unknown"


async def test_a_key_of_the_relay_that_hermes_refuses_is_not_the_callers_fault(lab: Lab, tmp_path: Path) -> None:
    settings = settings_for(tmp_path, HERMES_API_URL=lab.url, HERMES_API_KEY="another-key-0123456789")
    async with running(settings) as relay, made(relay, (await relay.connect()).token) as client:
        with pytest.raises(openai.APIStatusError) as failed:
            await client.models.list()
    assert (failed.value.status_code, failed.value.code) == (502, "upstream_auth_required")


async def test_hermes_is_away(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, HERMES_API_URL="http://127.0.0.1:9")
    async with running(settings) as relay, made(relay, (await relay.connect()).token) as client:
        with pytest.raises(openai.InternalServerError) as failed:
            await client.models.list()
    assert (failed.value.status_code, failed.value.code) == (503, "upstream_unreachable")
    assert failed.value.response.headers["retry-after"] == "5"
