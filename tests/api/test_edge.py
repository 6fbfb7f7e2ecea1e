from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from app.api.edge import allowed_hosts, allowed_origins, names_us
from app.cli.client import RelayClient, own_url
from tests.api.conftest import PROXY, client_of
from tests.phone import credentials
from tests.relay import RunningRelay, running, settings_for

PUBLIC = "https://home.tailnet.ts.net"
HEALTH_CHECK = Path(__file__).parents[2] / "deploy" / "healthcheck.py"


async def raw(relay: RunningRelay, *headers: str, target: str = "/health") -> tuple[int, bytes]:
    """A request as no client library sends it."""
    port = int(relay.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = [f"GET {target} HTTP/1.1", "Connection: close", *headers, "", ""]
    writer.write("\r\n".join(lines).encode("latin-1"))
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    return int(answer.split()[1]), answer


def test_which_hosts(tmp_path: Path) -> None:
    server = settings_for(
        tmp_path, PUBLIC_URL="https://Home.tailnet.ts.net:10443", ALLOWED_HOSTS="nas.lan, nas.lan2:9000, [fd00::5]"
    ).server
    allowed = allowed_hosts(server)
    for host in (
        "127.0.0.1", "localhost:8767", "LOCALHOST:1", "[::1]:8767", "localhost.", "home.tailnet.ts.net:10443",
        "nas.lan", "nas.lan:8767", "NAS.lan", "nas.lan2:9000", "[fd00::5]:8767",
    ):  # fmt: skip
        assert names_us(host, allowed), host
    for host in (
        "", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "evil.example:8767", "127.0.0.2",
        "0.0.0.0", "::1", "[::1", "nas.lan2", "nas.lan2:8767", "localhost:", "localhost:x", "localhost:123456",
        "user@localhost", "localhost/", "localhost, evil.example", "localhost\t", "http://localhost",
    ):  # fmt: skip
        assert not names_us(host, allowed), host


def test_where_it_listens_is_a_name_of_its(tmp_path: Path) -> None:
    for host, named in (("192.168.1.5", "192.168.1.5:8767"), ("fd00::5", "[fd00::5]:8767"), ("NAS", "nas:8767")):
        assert names_us(named, allowed_hosts(settings_for(tmp_path, HOST=host).server))
    for host in ("0.0.0.0", "::"):
        assert not names_us(host, allowed_hosts(settings_for(tmp_path, HOST=host).server))


async def test_the_operator_and_the_health_check_reach_a_relay_on_one_address(tmp_path: Path) -> None:
    async with running(settings_for(tmp_path, HOST="127.0.0.2")) as relay:
        server = relay.relay.settings.server
        with RelayClient(server.data_dir, own_url(server)) as client:
            assert await asyncio.to_thread(client.get, "/devices") == {"devices": []}
        environ = {"TALARIA_HOST": server.host, "TALARIA_PORT": str(server.port)}
        check = await asyncio.create_subprocess_exec(sys.executable, HEALTH_CHECK, env=environ)
        assert await check.wait() == 0


def test_which_origins(tmp_path: Path) -> None:
    local = settings_for(tmp_path, PORT="8767").server
    assert allowed_origins(local) == {"http://127.0.0.1:8767", "http://localhost:8767", "http://[::1]:8767"}
    assert allowed_origins(settings_for(tmp_path, PORT="80").server) >= {"http://localhost"}
    for url, origin in (
        (f"{PUBLIC}:443", PUBLIC),
        (f"{PUBLIC}:10443", f"{PUBLIC}:10443"),
        ("http://nas.lan", "http://nas.lan"),
    ):
        assert allowed_origins(settings_for(tmp_path, PUBLIC_URL=url).server) == {origin}


async def test_another_host_is_misdirected(relay: RunningRelay, http: httpx.AsyncClient) -> None:
    answer = await http.get("/health", headers={"Host": "evil.example"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (421, "host_unknown")
    assert answer.headers["x-talaria-error"] == "host_unknown"
    assert (await http.get("/health", headers={"Host": "localhost:9999"})).status_code == 200
    assert (await raw(relay))[0] in (400, 421)  # HTTP/1.1 without a Host
    assert (await raw(relay, "Host: localhost", "Host: evil.example"))[0] in (400, 421)
    assert (await raw(relay, "Host: localhost"))[0] == 200
    with pytest.raises(InvalidStatus) as caught:
        await relay.open(additional_headers={"Host": "evil.example"})
    assert caught.value.response.status_code in (400, 421)


async def test_an_upgrade_to_another_host_is_misdirected(relay: RunningRelay) -> None:
    status, answer = await raw(
        relay, "Host: evil.example", "Upgrade: websocket", "Connection: Upgrade",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13", target="/ws",
    )  # fmt: skip
    assert status == 421
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "host_unknown"


@pytest.mark.parametrize("path", ["/ws", "/ws?x=1", "/agent/link"])
async def test_an_upgrade_that_a_proxy_drops_is_named(http: httpx.AsyncClient, path: str) -> None:
    answer = await http.get(path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (426, "upgrade_required")
    assert answer.headers["upgrade"] == "websocket"


@pytest.mark.parametrize("path", ["/ws", "/"])
async def test_a_page_of_another_origin_gets_no_socket(tmp_path: Path, path: str) -> None:
    async with running(settings_for(tmp_path, PUBLIC_URL=PUBLIC)) as relay:
        for origin in (
            "https://evil.example", "null", "http://home.tailnet.ts.net", f"{PUBLIC}.evil.example", f"{PUBLIC}:8443",
            relay.url, "", "https://home.tailnet.ts.net@evil.example",
        ):  # fmt: skip
            with pytest.raises(InvalidStatus) as caught:
                await relay.open(path, additional_headers={"Origin": origin})
            assert caught.value.response.status_code == 403
            assert caught.value.response.headers["X-Talaria-Error"] == "origin_refused"
            assert json.loads(caught.value.response.body or b"")["error"]["code"] == "origin_refused"
        for origin in (PUBLIC, f"{PUBLIC}:443", "HTTPS://Home.Tailnet.TS.net"):
            await relay.open(path, additional_headers={"Origin": origin})
        await relay.open(path)  # not a browser


async def test_without_a_public_url_our_own_loopback_pages_may(relay: RunningRelay) -> None:
    port = relay.url.rpartition(":")[2]
    await relay.open(additional_headers={"Origin": f"http://localhost:{port}"})
    for origin in ("http://localhost:3000", f"https://localhost:{port}"):
        with pytest.raises(InvalidStatus) as caught:
            await relay.open(additional_headers={"Origin": origin})
        assert caught.value.response.status_code == 403


async def test_a_page_of_another_origin_changes_nothing(relay: RunningRelay, operator: httpx.AsyncClient) -> None:
    for method, path in (("POST", "/pairing/mint"), ("DELETE", "/sessions/a"), ("PATCH", "/sessions/a"), ("PUT", "/x")):
        answer = await operator.request(method, path, json={}, headers={"Origin": "https://evil.example"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "origin_refused")
    assert (await operator.post("/pairing/mint", json={}, headers={"Origin": relay.url})).status_code == 200
    reading = await operator.get("/sessions", headers={"Origin": "https://evil.example"})
    assert reading.status_code == 200
    assert not [name for name in reading.headers if name.startswith("access-control")]  # the page cannot see it


async def test_every_answer_has_the_headers(http: httpx.AsyncClient, operator: httpx.AsyncClient) -> None:
    ids = set()
    for answer in (
        await http.get("/health"), await http.get("/nosuch"), await http.get("/sessions"),
        await http.get("/health", headers={"Host": "evil.example"}), await operator.get("/devices"),
    ):  # fmt: skip
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["x-frame-options"] == "DENY"
        ids.add(answer.headers["x-request-id"])
        if answer.headers["content-type"] == "application/json":
            assert answer.headers["cache-control"] == "no-store"
    assert len(ids) == 5


async def test_a_failure_of_ours_is_answered_without_its_cause(
    relay: RunningRelay, operator: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(_: object) -> None:
        raise ZeroDivisionError("the secret cause")

    monkeypatch.setattr(type(relay.relay.sessions), "devices", broken)
    answer = await operator.get("/devices")
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "internal_error"
    assert answer.json()["error"]["request_id"] == answer.headers["x-request-id"]
    assert "secret" not in answer.text
    assert answer.headers["x-frame-options"] == "DENY"
    assert [record.exc_info is not None for record in caplog.records if record.name == "talaria.http"] == [True]


async def test_a_blocked_address_gets_no_upgrade(tmp_path: Path) -> None:
    them, other = {"X-Forwarded-For": "203.0.113.7"}, {"X-Forwarded-For": "203.0.113.8"}
    async with running(settings_for(tmp_path, **PROXY)) as relay, client_of(relay) as http:
        token = (await relay.connect()).token
        for n in range(5):
            stranger = await relay.open(additional_headers=them)
            answer = await stranger.ask("system", "auth", credentials(session_token=f"guess{n}"))
            assert answer.payload["code"] == "session_unknown"
        with pytest.raises(InvalidStatus) as caught:
            await relay.open(additional_headers=them)
        assert caught.value.response.status_code == 429
        assert 0 < int(caught.value.response.headers["Retry-After"]) <= 300
        assert caught.value.response.headers["X-Talaria-Error"] == "rate_limited"
        refused = await http.get("/session", headers={"Authorization": f"Bearer {token}"} | them)
        assert refused.status_code == 429
        assert (await http.get("/health", headers=them)).status_code == 200
        phone = await relay.open(additional_headers=other)
        assert (await phone.ask("system", "auth", credentials(session_token=token))).type == "auth.ok"


async def test_a_token_of_the_host_is_the_wrong_one_elsewhere_and_no_guess(tmp_path: Path) -> None:
    them = {"X-Forwarded-For": "203.0.113.7"}
    async with running(settings_for(tmp_path, **PROXY)) as relay, client_of(relay, headers=them) as http:
        link = {"Authorization": f"Bearer {relay.relay.link.read()}"}
        for _ in range(3):
            answers = [await http.get(path, headers=link) for path in ("/session", "/relay/info", "/devices")]
            codes = [answer.headers["X-Talaria-Error"] for answer in answers]
            assert codes == ["device_required", "device_required", "operator_required"]
        assert (await http.get("/phone/replies", headers=link)).status_code == 200
        guessed = [await http.get("/session", headers={"Authorization": f"Bearer guess{n}"}) for n in range(6)]
        assert [answer.status_code for answer in guessed] == [401] * 5 + [429]


async def test_a_peer_that_may_be_many_keeps_its_upgrades(relay: RunningRelay) -> None:
    token = (await relay.connect()).token
    offer = await relay.relay.pairing.mint()
    for n in range(10):
        stranger = await relay.open()
        answer = await stranger.ask("system", "auth", credentials(pairing_code=f"WRONG{n:03}"))
        assert answer.payload["code"] == "pairing_code_rejected"
    for n in range(6):
        stranger = await relay.open()
        answer = await stranger.ask("system", "auth", credentials(session_token=f"guess{n}"))
        assert answer.payload["code"] == "session_unknown"
    stranger = await relay.open()
    answer = await stranger.ask("system", "auth", credentials(pairing_code=offer.code))
    assert (answer.type, answer.payload["code"]) == ("error", "rate_limited")
    assert (await stranger.closed())[0] == 4429
    await (await relay.connect(session_token=token)).ping()


async def test_a_spoofed_forwarding_header_changes_nothing(relay: RunningRelay) -> None:
    """No proxy is trusted here: all of these are the same peer."""
    for n in range(10):
        stranger = await relay.open(
            additional_headers={"X-Forwarded-For": f"203.0.113.{n}", "Forwarded": "for=1.1.1.1"}
        )
        await stranger.ask("system", "auth", credentials(pairing_code=f"WRONG{n:03}"))
    stranger = await relay.open(additional_headers={"X-Forwarded-For": "203.0.113.99"})
    answer = await stranger.ask("system", "auth", credentials(pairing_code="WRONG999"))
    assert answer.payload["code"] == "rate_limited"
