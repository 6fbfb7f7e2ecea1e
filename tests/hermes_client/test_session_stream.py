"""The streamed chat of a session, where what is said must be read with care."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from app.hermes.api import HermesApi
from app.hermes.lease import Lease
from app.hermes.session_stream import SessionStream
from app.hermes.upstream import Order
from app.wire.sse import SseEvent
from tests.hermes_client.dashboard_server import Heard, lease


class Api:
    """Each stream begins at once, and ends when its event is set."""

    def __init__(self) -> None:
        self.ends = {"a": asyncio.Event(), "b": asyncio.Event()}

    async def stream(
        self, lease: Lease, body: Any, sink: Callable[[list[SseEvent]], None], opened: Callable[[], None]
    ) -> None:
        opened()
        said = b'{"run_id":"%b"}' % lease.session_id.encode()
        sink([("run.started", said)])
        await self.ends[lease.session_id].wait()
        sink([("run.completed", said), ("done", b"{}")])

    async def stop_run(self, lease: Lease) -> bool:
        return True


async def test_the_end_of_another_turn_does_not_hide_that_this_one_was_stopped() -> None:
    """A version that stops says that a stopped turn completed: the relay must remember that it asked."""
    api = Api()
    upstream, heard = SessionStream(cast(HermesApi, api)), {name: Heard() for name in api.ends}
    leases = {name: replace(lease(name), run_id=name, drop_interrupts=True) for name in api.ends}
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        runs = {name: group.create_task(upstream.run(leases[name], Order("hi"), heard[name])) for name in api.ends}
        assert await upstream.stop(leases["a"])
        api.ends["b"].set()
        await runs["b"]
        api.ends["a"].set()
    ends = [heard[name].body("run.completed").get("interrupted") for name in "ab"]
    assert ends == [True, None]
    assert not upstream._stopped
