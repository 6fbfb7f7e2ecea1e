"""TALARIA_TRUST_LOOPBACK: who counts as a tool on this host. Each condition alone decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api.deps import is_host_tool
from app.settings import ServerSettings
from tests.api.conftest import client_of
from tests.relay import running, settings_for

JSON = ("content-type", "application/json")


TRUSTING = ServerSettings(trust_loopback=True)


def scope(
    *headers: tuple[str, str], peer: Any = ("127.0.0.1", 5), host: str | None = "127.0.0.1:8767"
) -> dict[str, Any]:
    named = [*([("host", host)] if host is not None else []), *headers]
    return {"type": "http", "client": peer, "headers": [(k.encode(), v.encode()) for k, v in named]}


@pytest.mark.parametrize(
    "given",
    [
        scope(), scope(peer=("::1", 5)), scope(host="localhost"), scope(host="[::1]:8767"),
        scope(("content-length", "0")), scope(JSON, ("content-length", "2")),
        scope(JSON, ("transfer-encoding", "chunked")),
        scope(("content-type", "application/json; charset=utf-8"), ("content-length", "2")),
        scope(("user-agent", "python"), ("accept", "*/*")),
    ],
)  # fmt: skip
def test_a_plain_request_from_this_host_is_a_tool(given: dict[str, Any]) -> None:
    assert is_host_tool(TRUSTING, given)
    assert not is_host_tool(ServerSettings(), given)


@pytest.mark.parametrize(
    "given",
    [
        scope(peer=None), scope(peer=("127.0.0.2", 5)), scope(peer=("192.168.1.5", 5)), scope(peer=("", 0)),
        scope(peer=("::ffff:127.0.0.1", 5)), scope(peer=("203.0.113.7", 5)),
        scope(host=None), scope(host="home.tailnet.ts.net"), scope(host="evil.example:8767"), scope(host="192.168.1.5"),
        scope(("host", "localhost")),  # two of them
        scope(("content-length", "2")), scope(("content-type", "text/plain"), ("content-length", "2")),
        scope(("content-type", "application/x-www-form-urlencoded"), ("content-length", "2")),
        scope(("transfer-encoding", "chunked")), scope(JSON, JSON, ("content-length", "2")),
        *(
            scope((name, value))
            for name, value in (
                ("origin", "http://127.0.0.1:8767"), ("origin", "null"), ("origin", ""),
                ("sec-fetch-site", "same-origin"), ("sec-fetch-mode", "cors"),
                ("tailscale-user-login", "owner@example.com"), ("tailscale-user-name", "Owner"),
                ("x-forwarded-for", "127.0.0.1"), ("x-forwarded-for", ""), ("x-forwarded-host", "localhost"),
                ("x-forwarded-proto", "https"), ("x-forwarded-port", "443"), ("forwarded", "for=127.0.0.1"),
                ("x-real-ip", "127.0.0.1"), ("via", "1.1 caddy"), ("x-client-ip", "::1"), ("true-client-ip", "::1"),
                ("cf-connecting-ip", "::1"), ("x-envoy-external-address", "::1"),
            )
        ),
    ],
)  # fmt: skip
def test_any_one_sign_of_something_between_is_enough(given: dict[str, Any]) -> None:
    assert not is_host_tool(TRUSTING, given)


async def test_it_is_off_unless_asked_for(http: httpx.AsyncClient) -> None:
    assert (await http.post("/pairing/register", json={"code": "ABC123"})).status_code == 401
    assert (await http.get("/sessions")).status_code == 401


async def test_host_tools_do_what_hermes_relay_lets_them_do_and_no_more(tmp_path: Path) -> None:
    async with running(settings_for(tmp_path, TRUST_LOOPBACK="1")) as trusting, client_of(trusting) as tool:
        assert (await tool.post("/pairing/register", json={"code": "ABC123"})).json() == {"ok": True, "code": "ABC123"}
        assert (await tool.post("/pairing/mint", json={})).status_code == 200
        phone = await trusting.connect(pairing_code="ABC123")
        (entry,) = (await tool.get("/sessions")).json()["sessions"]
        assert entry["is_current"] is False
        refused = await tool.patch(f"/sessions/{entry['token_prefix']}", json={"ttl_seconds": 60})
        assert (refused.status_code, refused.text) == (401, "Authorization: Bearer <session_token> required")
        assert (await tool.get("/devices")).status_code == 401
        assert (await tool.get("/session")).status_code == 401
        # a bearer that is none is not downgraded to "no bearer", and no browser gets in
        for headers in ({"Authorization": "Bearer nonsense"}, {"Authorization": ""}, {"Sec-Fetch-Site": "same-origin"}):
            assert (await tool.get("/sessions", headers=headers)).status_code == 401
        answer = await tool.post("/pairing/mint", content=b"{}", headers={"Content-Type": "text/plain"})
        assert answer.status_code == 401
        assert (await tool.delete(f"/sessions/{entry['token_prefix']}")).json()["ok"] is True
        assert await phone.closed() == (4401, "revoked")
