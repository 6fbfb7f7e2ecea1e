"""The streamed chat of a session, where what is said must be read with care."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from app.hermes.api import HermesApi
from app.hermes.lease import Lease
from app.hermes.listener import Listener
from app.hermes.session_stream import SessionStream
from app.hermes.upstream import Order, Passed
from app.settings import HermesSettings
from app.wire.sse import SseEvent
from tests.hermes_client.canned import END, STREAM, canned, chunk
from tests.hermes_client.dashboard_server import Heard, lease


class Api:
    """Each stream begins at once, and ends when its event is set."""

    def __init__(self) -> None:
        self.ends = {"a": asyncio.Event(), "b": asyncio.Event()}

    async def stream(
        self, lease: Lease, body: Any, sink: Callable[[list[SseEvent]], None], opened: Callable[[], None], *_: object
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


async def test_what_a_client_of_the_api_asked_besides_its_message_goes_along() -> None:
    async with canned(STREAM + chunk(b"event: done\ndata: {}\n\n") + END) as hermes:
        settings = HermesSettings(hermes_api_url=f"http://127.0.0.1:{hermes.port}", hermes_dashboard_url="")
        stream, listener = SessionStream(HermesApi(settings)), Listener()
        bound = replace(lease("s"), endpoint="/api/sessions/s/chat/stream")
        order = Order("hi", passed=Passed({"system_message": "be brief"}, "key", listener))
        await stream.run(bound, order, Heard())
        assert b"\r\nX-Hermes-Session-Key: key\r\n" in hermes.requests[0]
        assert hermes.requests[0].endswith(b'{"system_message":"be brief","message":"hi"}')
        assert (await listener.head()).status == 200
        assert [await listener.read(), await listener.read()] == [b"event: done\ndata: {}\n\n", b""]
