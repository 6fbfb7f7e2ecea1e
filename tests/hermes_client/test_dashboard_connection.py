"""The one socket: calls, events, losses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.hermes.dashboard.connection import LONGEST_WAIT_S, MAX_PENDING, Connection, _at_least
from app.hermes.dashboard.dashboard import Dashboard
from app.hermes.dashboard.errors import CallRefused, Unanswered
from app.hermes.errors import (
    SessionNotFound,
    StreamBroken,
    UpstreamBusy,
    UpstreamFailed,
    UpstreamUnreachable,
    UpstreamUnsupported,
)
from app.server.serving import listen
from tests.hermes_client.dashboard_server import FakeDashboard, Refusal, Silence, Waits, faked, is_ready, opened, soon


@pytest.fixture
async def fake() -> AsyncIterator[FakeDashboard]:
    async with faked() as fake:
        yield fake


@pytest.fixture
def waits() -> Waits:
    return Waits()


@pytest.fixture
async def dashboard(fake: FakeDashboard, waits: Waits) -> AsyncIterator[Dashboard]:
    async with opened(fake, sleep=waits) as dashboard:
        yield dashboard


@pytest.fixture
def connection(dashboard: Dashboard) -> Connection:
    return dashboard._link.connection


class Ear:
    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.errors: list[Exception] = []

    def heard(self, kind: str, payload: dict[str, Any]) -> None:
        if kind == "explode":
            raise ValueError(kind)
        self.events.append((kind, payload))

    def lost(self, error: Exception) -> None:
        self.errors.append(error)


async def through(connection: Connection) -> None:
    """Everything that Hermes sent before this was heard."""
    await connection.call("session.active_list", {})


def silence(params: dict[str, Any]) -> None:
    raise Silence


async def test_answers_may_come_in_another_order(fake: FakeDashboard, connection: Connection) -> None:
    fake.answers["first"] = silence
    fake.answers["second"] = lambda params: {"is": params["n"]}
    first = soon(connection.call("first", {}))
    await fake.called("first")
    assert await connection.call("second", {"n": 2}) == {"is": 2}
    await fake.sockets[-1].send_text(json.dumps({"id": "1", "result": 1}))
    assert await first == 1


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (4001, SessionNotFound), (4007, SessionNotFound), (4090, UpstreamBusy), (5032, UpstreamFailed),
        (-32603, UpstreamFailed), (-32601, UpstreamUnsupported), (4018, CallRefused),
    ],
)  # fmt: skip
async def test_refusals_have_types(
    fake: FakeDashboard, connection: Connection, code: int, error: type[Exception]
) -> None:
    def refuse(params: dict[str, Any]) -> None:
        raise Refusal(code, "as I say")

    fake.answers["x"] = refuse
    with pytest.raises(error) as caught:
        await connection.call("x", {})
    assert type(caught.value) is error


async def test_garbage_and_strangers_harm_nothing(fake: FakeDashboard, connection: Connection) -> None:
    socket = fake.sockets[-1]
    for text in ("not json", "[]", '"x"', '{"id":"77","result":1}', '{"id":null,"error":{"code":-32700}}', "{}"):
        await socket.send_text(text)
    await socket.send_bytes(b"\xff\x00")
    strange: list[Any] = [None, [], {"type": 5, "session_id": "a"}, {"type": "x", "session_id": {}}, {"type": "x"}]
    for params in strange:
        await fake.send(params)
    connection.listen("a", ear := Ear())
    await fake.send({"type": "x", "session_id": "a", "payload": "no object"})
    await through(connection)
    assert ear.events == [("x", {})]


async def test_an_event_that_an_observer_fails_on_costs_no_more_than_itself(
    fake: FakeDashboard, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def observe(kind: str, live_id: str, payload: dict[str, Any]) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(connection, "_observe", observe)
    connection.listen("a", ear := Ear())
    await fake.event("x", "a")
    await through(connection)
    assert ear.events == [("x", {})]


async def test_what_is_nested_too_deeply_for_a_frame_is_left_out(fake: FakeDashboard, connection: Connection) -> None:
    connection.listen("a", ear := Ear())
    deep: list[Any] = []
    for _ in range(300):
        deep = [deep]
    await fake.event("x", "a", id="t1", result=deep)
    await fake.event("y", "a")
    await through(connection)
    assert ear.events == [("x", {"id": "t1"}), ("y", {})]


async def test_events_go_to_their_session_in_order_however_many(fake: FakeDashboard, connection: Connection) -> None:
    ears = {name: Ear() for name in ("a", "b")}
    for name, ear in ears.items():
        connection.listen(name, ear)
    for n in range(3000):
        await fake.event("x", "abc"[n % 3], n=n)
    await through(connection)
    assert [payload["n"] for _, payload in ears["a"].events] == list(range(0, 3000, 3))
    assert [payload["n"] for _, payload in ears["b"].events] == list(range(1, 3000, 3))


async def test_a_listener_that_fails_fails_alone(fake: FakeDashboard, connection: Connection) -> None:
    connection.listen("a", bad := Ear())
    connection.listen("b", good := Ear())
    await fake.event("explode", "a")
    await fake.event("x", "b")
    await through(connection)
    assert [type(error) for error in bad.errors] == [ValueError]
    assert good.events == [("x", {})]


async def test_one_turn_of_a_session_is_heard_at_a_time(connection: Connection) -> None:
    connection.listen("a", ear := Ear())
    with pytest.raises(UpstreamBusy):
        connection.listen("a", Ear())
    connection.unlisten("a", Ear())
    with pytest.raises(UpstreamBusy):
        connection.listen("a", Ear())
    connection.unlisten("a", ear)
    connection.listen("a", Ear())


async def test_a_loss_is_told_to_all_and_the_first_try_is_at_once(
    fake: FakeDashboard, dashboard: Dashboard, connection: Connection, waits: Waits
) -> None:
    fake.answers["x"] = silence
    connection.listen("a", ear := Ear())
    await through(connection)
    call = soon(connection.call("x", {}))
    await fake.called("x")
    await fake.drop()
    with pytest.raises(Unanswered):
        await call
    assert [type(error) for error in ear.errors] == [StreamBroken]
    await fake.until(lambda: len(fake.sockets) == 2)
    await is_ready(dashboard)
    assert waits.asked == []
    await through(connection)


async def test_what_was_not_sent_is_said_to_be_so(
    fake: FakeDashboard, dashboard: Dashboard, connection: Connection
) -> None:
    await through(connection)
    fake.socket_refused = True
    await fake.drop()
    await is_ready(dashboard, "auth_required")
    with pytest.raises(UpstreamUnreachable):
        await connection.call("x", {})
    assert "x" not in [method for method, _ in fake.calls]


async def test_one_that_opens_and_breaks_is_left_alone_for_longer_and_longer(
    fake: FakeDashboard, connection: Connection, waits: Waits
) -> None:
    for n, pause in enumerate((1, 2, 4, 8, 16, 30, 30), start=1):
        await fake.until(lambda n=n: len(fake.sockets) == n)  # type: ignore[misc]
        await fake.drop()
        await waits.over(pause, within=pause * 0.21)
    await fake.until(lambda: len(fake.sockets) == 8)


async def test_one_that_is_not_there_is_looked_for_less_and_less_often(fake: FakeDashboard, waits: Waits) -> None:
    nobody = listen("127.0.0.1", 0)
    port = nobody.getsockname()[1]
    nobody.close()
    async with opened(fake, ready=False, sleep=waits, hermes_dashboard_url=f"http://127.0.0.1:{port}") as dashboard:
        for pause in (1, 2, 4, 8, 16, 30, 30):
            await waits.over(pause, within=pause * 0.21)
        said = dashboard.state()
        assert (said["state"], said["code"]) == ("down", "upstream_unreachable")
        assert str(port) not in said["message"]  # where it is, the settings know
        assert "TALARIA_HERMES_DASHBOARD_URL" in said["message"]


def test_no_answer_of_hermes_keeps_it_away_for_good() -> None:
    assert _at_least(UpstreamBusy(retry_after=60)) == 60
    assert _at_least(UpstreamBusy(retry_after=999_999_999)) == LONGEST_WAIT_S


async def test_one_that_stayed_open_was_of_use(
    fake: FakeDashboard, connection: Connection, waits: Waits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.hermes.dashboard.connection.STEADY_S", 0)
    await through(connection)
    await fake.drop()
    await fake.until(lambda: len(fake.sockets) == 2)
    await asyncio.sleep(0)
    await fake.drop()
    await fake.until(lambda: len(fake.sockets) == 3)
    assert waits.asked == []


async def test_calls_that_wait_are_bounded(fake: FakeDashboard, connection: Connection) -> None:
    fake.answers["x"] = silence
    calls = [soon(connection.call("x", {})) for _ in range(MAX_PENDING)]
    await fake.called("x", MAX_PENDING)
    with pytest.raises(UpstreamBusy):
        await connection.call("x", {})
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    await through(connection)


async def test_an_answer_that_does_not_come_in_time(fake: FakeDashboard, connection: Connection) -> None:
    fake.answers["x"] = silence
    with pytest.raises(Unanswered):
        await connection.call("x", {}, timeout_s=0.01)
    await through(connection)
