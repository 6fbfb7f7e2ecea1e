"""The Hermes API is passed on by the route that turns take: local first, the other at once where that is away."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

from app.demo.stand_in import serve_stand_in
from tests.api.passing import KEY, passing
from tests.hermes.line import laid


async def test_the_remote_url_is_used_where_the_local_one_is_away(tmp_path: Path) -> None:
    async with serve_stand_in(KEY) as hermes, AsyncExitStack() as stack:
        async with laid(hermes.url) as local:
            passed = await stack.enter_async_context(passing(local.url, tmp_path, HERMES_API_REMOTE_URL=hermes.url))
            assert (await passed.http.post("/api/sessions", json={"id": "here"})).status_code == 201
            assert passed.relay.relay.hermes.api.route().base == local.url
        assert (await passed.http.post("/api/sessions", json={"id": "there"})).status_code == 201
        assert passed.relay.relay.hermes.api.route().base == hermes.url
        assert {hermes.agent.history.get(name).id for name in ("here", "there")} == {"here", "there"}
