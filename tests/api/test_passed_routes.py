"""The Hermes API is passed on by the route that turns take: local first, the other at once where that is away."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

from app.demo.stand_in import serve_stand_in
from tests.api.passing import KEY, passing
from tests.hermes.line import laid
from tests.hermes_client.canned import answer, canned


async def test_the_remote_url_is_used_where_the_local_one_is_away(tmp_path: Path) -> None:
    async with serve_stand_in(KEY) as hermes, AsyncExitStack() as stack:
        async with laid(hermes.url) as local:
            passed = await stack.enter_async_context(passing(local.url, tmp_path, HERMES_API_REMOTE_URL=hermes.url))
            assert (await passed.http.post("/api/sessions", json={"id": "here"})).status_code == 201
            assert passed.relay.relay.hermes.api.route().base == local.url
        assert (await passed.http.post("/api/sessions", json={"id": "there"})).status_code == 201
        assert passed.relay.relay.hermes.api.route().base == hermes.url
        assert {hermes.agent.history.get(name).id for name in ("here", "there")} == {"here", "there"}


async def test_no_key_goes_to_what_has_not_said_that_it_is_hermes(tmp_path: Path) -> None:
    async with (
        canned(answer("200 OK", b'{"status":"ok","platform":"another"}')) as stranger,
        passing(f"http://127.0.0.1:{stranger.port}", tmp_path) as passed,
    ):
        assert (await passed.http.get("/v1/models")).status_code == 502
        assert stranger.requests
        assert not [request for request in stranger.requests if KEY.encode() in request]
