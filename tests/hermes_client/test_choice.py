"""Which way a turn is run, by what recorded versions advertise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from app.hermes.capabilities import Capabilities, parse_capabilities
from app.hermes.choice import over_api, suits_dashboard
from app.hermes.errors import UpstreamAuthRequired, UpstreamError, UpstreamOff, UpstreamUnreachable, UpstreamUnsupported
from app.hermes.hermes import Dashboard, Hermes
from app.hermes.upstream import Order
from app.settings import HermesSettings
from app.tasks import Supervisor
from tests.hermes_client.canned import answer
from tests.hermes_client.routed import capabilities, routed, said

PICTURE = [{"type": "image_url", "image_url": {"url": "https://x/y.png"}}]


def advertised(version: str, **changed: Any) -> Capabilities:
    """That version's capabilities with some features changed."""
    recorded = parse_capabilities(capabilities(version), None)
    return replace(recorded, features={**recorded.features, **changed})


@pytest.mark.parametrize("version", ["0.19", "0.20", "0.22"])
@pytest.mark.parametrize(
    ("missing", "ask_approvals", "kind"),
    [
        ([], False, "session_stream"),
        ([], True, "runs"),
        (["session_chat_streaming"], False, "runs"),
        (["run_approval_response"], True, "session_stream"),
        (["run_submission"], True, "session_stream"),
        (["session_chat_streaming", "run_submission"], False, "completions"),
        (["session_chat_streaming", "run_status"], True, "completions"),
        (["session_chat_streaming", "run_events_sse"], True, "completions"),
        (["session_chat_streaming", "session_resources"], True, "completions"),
    ],
)
def test_what_is_advertised_decides(version: str, missing: list[str], ask_approvals: bool, kind: str) -> None:
    offered = advertised(version, **dict.fromkeys(missing, False))
    assert over_api(offered, ask_approvals=ask_approvals) == kind


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ({"supported": True, "durable": True}, "session_stream"),
        ({"protocol_version": 1}, "session_stream"),
        ({"supported": False}, "runs"),
        ({"enabled": False, "protocol_version": 1}, "runs"),
        (None, "runs"),
        ("", "runs"),
    ],
)
def test_a_feature_may_be_described_by_more_than_a_boolean(value: Any, kind: str) -> None:
    assert over_api(advertised("0.22", session_chat_streaming=value), ask_approvals=False) == kind


@pytest.mark.parametrize("ask_approvals", [True, False])
def test_nothing_is_used_that_is_not_advertised(ask_approvals: bool) -> None:
    too_old = Capabilities(known=False, version="0.9.0")
    only_plain = advertised("0.19", **dict.fromkeys(capabilities()["features"], False) | {"chat_completions": True})
    for offered in (too_old, only_plain):
        with pytest.raises(UpstreamUnsupported, match=r"0\.19"):
            over_api(offered, ask_approvals=ask_approvals)


def test_the_dashboard_takes_text_only() -> None:
    assert suits_dashboard(Order("hi"))
    assert not suits_dashboard(Order(PICTURE))
    assert suits_dashboard(Order("hi", profile="default"))
    assert not suits_dashboard(Order("hi", profile="work"))


@dataclass
class Socket:
    """As much of a dashboard as is asked before a turn runs."""

    ready: bool
    failure: UpstreamError | None = None
    kind: str = "dashboard"

    async def settled(self) -> None: ...

    async def messages(self, session_id: str, profile: str | None = None) -> list[dict[str, Any]]:
        return [{"id": 7, "session_id": session_id, "role": "user", "content": "hi"}]


async def chosen(
    url: str, order: Order, *, ready: bool | None = None, failure: UpstreamError | None = None,
    ask_approvals: bool = False,
) -> str:  # fmt: skip
    settings = HermesSettings(hermes_api_url=url, hermes_ask_approvals=ask_approvals)
    socket = None if ready is None else cast(Dashboard, Socket(ready, failure))
    async with Supervisor() as tasks, Hermes(settings, tasks, socket) as hermes:
        upstream = await hermes.choose(order)
        assert hermes.upstream(upstream.kind) is upstream
        return upstream.kind


async def test_the_dashboard_comes_first_where_it_is_open_and_the_message_is_text() -> None:
    async with routed({}) as server:
        assert await chosen(server.url, Order("hi"), ready=True) == "dashboard"
        assert await chosen(server.url, Order("hi"), ready=True, ask_approvals=True) == "dashboard"
        assert await chosen(server.url, Order(PICTURE), ready=True) == "session_stream"
        assert await chosen(server.url, Order("hi"), ready=False) == "session_stream"
        assert await chosen(server.url, Order("hi"), ready=False, ask_approvals=True) == "runs"
        assert await chosen(server.url, Order("hi")) == "session_stream"


async def test_the_dashboard_needs_no_api_server() -> None:
    async with routed({}) as server:
        pass
    assert await chosen(server.url, Order("hi"), ready=True) == "dashboard"
    with pytest.raises(UpstreamUnreachable):
        await chosen(server.url, Order(PICTURE), ready=True)


async def test_where_there_is_only_a_dashboard_its_failure_is_the_turns() -> None:
    refused = UpstreamAuthRequired("the dashboard wants a login")
    with pytest.raises(UpstreamAuthRequired, match="wants a login"):
        await chosen("", Order("hi"), ready=False, failure=refused)
    for order, failure in ((Order(PICTURE), refused), (Order("hi"), None)):
        with pytest.raises(UpstreamOff, match="TALARIA_HERMES_API_URL"):
            await chosen("", order, ready=False, failure=failure)
    async with routed({}) as server:
        assert await chosen(server.url, Order("hi"), ready=False, failure=refused) == "session_stream"


async def test_an_api_server_that_is_known_to_be_away_is_not_waited_for() -> None:
    route = "GET /api/sessions/s1/messages"
    async with routed({route: [said({"error": "no"}, "500 No")]}) as server, Supervisor() as tasks:
        hermes = Hermes(HermesSettings(hermes_api_url=server.url), tasks, cast(Dashboard, Socket(ready=True)))
        assert [row["id"] for row in await hermes.messages("s1")] == [7]
        assert not server.bodies(route)
        await hermes.probe()
        assert [row["id"] for row in await hermes.messages("s1")] == [7]
        assert len(server.bodies(route)) == 1
        await hermes.api.close()


async def test_a_hermes_that_does_not_say_what_it_can_runs_nothing() -> None:
    async with routed({"GET /v1/capabilities": [answer("404 Not Found", b"404: Not Found")]}) as server:
        with pytest.raises(UpstreamUnsupported):
            await chosen(server.url, Order("hi"))


async def test_what_another_hermes_offers_after_a_failure_is_asked_anew() -> None:
    older = capabilities()
    older["features"]["session_chat_streaming"] = False
    answers = {"GET /v1/capabilities": [said(capabilities()), said(older)]}
    async with routed(answers) as server, Supervisor() as tasks:
        hermes = Hermes(HermesSettings(hermes_api_url=server.url), tasks)
        assert (await hermes.choose(Order("hi"))).kind == "session_stream"
        hermes.api.forget()
        assert (await hermes.choose(Order("hi"))).kind == "runs"
        await hermes.api.close()
