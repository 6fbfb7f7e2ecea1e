"""The relay looks at itself through a real nginx: as we ship it, and spoilt in the ways that people spoil it."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import httpx
import pytest

from app.doctor.finding import Finding
from app.doctor.outside import Outside
from tests.deploy.front import PROXIES, Place, free_port, in_front, nginx
from tests.relay import RunningRelay, running, settings_for


@asynccontextmanager
async def looking(
    tmp_path: Path, *, proxy: str = "nginx", spoil: dict[str, str] | None = None, trusted: str = "127.0.0.1/32",
    trust: ssl.SSLContext | None = None,
) -> AsyncIterator[tuple[Outside, RunningRelay]]:  # fmt: skip
    """`spoil` replaces lines of nginx.conf."""

    def spoilt(at: Place) -> list[str]:
        arguments = nginx(at)
        file = at.home / "nginx.conf"
        text = file.read_text()
        for old, new in (spoil or {}).items():
            assert old in text, f"nginx.conf has no {old!r}"
            text = text.replace(old, new)
        file.write_text(text)
        return arguments

    port = free_port()
    async with AsyncExitStack() as stack:
        stack.enter_context(pytest.MonkeyPatch.context()).setitem(PROXIES, "nginx", spoilt)
        settings = settings_for(
            tmp_path / "data", PUBLIC_URL=f"https://localhost:{port}", TRUSTED_PROXIES=trusted
        )  # fmt: skip
        relay = await stack.enter_async_context(running(settings))
        front = await stack.enter_async_context(in_front(proxy, tmp_path, port, int(relay.url.rpartition(":")[2])))
        doctor = relay.relay.doctor
        yield (
            Outside(relay.relay.settings.server, relay.relay.clock, doctor.probe, doctor._pin, trust or front.trust),
            relay,
        )


def by_name(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.name: finding for finding in findings}


@pytest.mark.parametrize("proxy", ["nginx", "caddy", "haproxy"])
async def test_with_the_configuration_that_we_ship_all_is_well(tmp_path: Path, proxy: str) -> None:
    async with looking(tmp_path, proxy=proxy) as (outside, _):
        findings = by_name(await outside.look())
    names = ["name", "connection", "TLS", "way in", "WebSocket", "Origin", "streams", "files"]
    assert list(findings) == names
    assert {name: finding.state for name, finding in findings.items() if name != "TLS"} == {
        name: "ok" for name in names if name != "TLS"
    }
    assert "ends in 0 days" in findings["TLS"].says, "the test's certificate lives for an hour"


@pytest.mark.parametrize(
    ("spoil", "broken", "says"),
    [
        ({"proxy_set_header Upgrade $http_upgrade;": ""}, "WebSocket", "drops it"),
        ({"proxy_set_header Host $http_host;": "proxy_set_header Host evil.example;"}, "way in", "another Host"),
        ({"client_max_body_size 0;": "client_max_body_size 1m;"}, "files", "is refused on the way"),
        ({"proxy_buffering off;": "proxy_ignore_headers X-Accel-Buffering;"}, "streams", "held back"),
        ({"location / {": "location / { return 302 https://login.example/;"}, "way in", "login page"),
        ({"location / {": "location / { default_type text/html; return 200 '<html>';"}, "way in", "web page"),
        ({"location / {": "location / { return 502;"}, "way in", "does not reach the relay"),
        ({"location / {": "location = /doctor/probe/stream { return 504; } location / {"}, "streams", "HTTP 504"),
        ({"location / {": "location / { if ($request_method = POST) { return 200 '<html>'; }"}, "files", "HTTP 200"),
        ({"proxy_set_header X-Forwarded-Proto": 'proxy_set_header Origin ""; proxy_set_header X-Forwarded-Proto'},
         "Origin", "not refused"),
    ],
    ids=["upgrade", "host", "body", "buffer", "redirect", "page", "other", "no stream", "no post", "origin"],
)  # fmt: skip
async def test_what_is_spoilt_is_named(tmp_path: Path, spoil: dict[str, str], broken: str, says: str) -> None:
    async with looking(tmp_path, spoil=spoil) as (outside, _):
        findings = by_name(await outside.look())
    assert findings[broken].state == "fail"
    assert says in findings[broken].says
    assert findings[broken].do
    others = [finding for finding in findings.values() if finding.state == "fail" and finding.name != broken]
    assert not others, "one fault is named once"


async def test_a_proxy_that_is_not_trusted_is_named_with_its_address(tmp_path: Path) -> None:
    async with looking(tmp_path, trusted="") as (outside, _):
        finding = by_name(await outside.look())["files"]
    assert finding.state == "warn"
    assert "TALARIA_TRUSTED_PROXIES=127.0.0.1" in (finding.do or "")


async def test_a_certificate_that_phones_refuse(tmp_path: Path) -> None:
    async with looking(tmp_path, trust=ssl.create_default_context()) as (outside, _):
        findings = await outside.look()
    assert (findings[-1].name, findings[-1].state) == ("TLS", "fail")
    assert "refuse the certificate" in findings[-1].says


async def test_a_renewal_with_another_key_is_noticed(tmp_path: Path) -> None:
    async with looking(tmp_path) as (outside, relay):
        await relay.relay.doctor._pin("localhost", "another key, seen before")
        finding = by_name(await outside.look())["TLS"]
    assert finding.state == "warn"
    assert "--reuse-key" in (finding.do or "")


async def test_nobody_listens(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, PUBLIC_URL=f"https://localhost:{free_port()}")
    async with running(settings) as relay:
        found = await relay.relay.doctor.examine()
    assert by_name(found)["connection"].state == "fail"
    assert "TLS" not in by_name(found)


async def test_a_name_that_does_not_exist(tmp_path: Path) -> None:
    async with running(settings_for(tmp_path, PUBLIC_URL="https://no.such.name.invalid")) as relay:
        found = by_name(await relay.relay.doctor.examine())
    assert found["name"].state == "fail"


@pytest.mark.parametrize(("inside", "state"), [(True, "skip"), (False, "fail")])
async def test_a_name_of_tailscale_that_a_container_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: bool, state: str
) -> None:
    """In the sidecar's network nothing looks up names of the tailnet, and phones reach the relay all the same."""

    def unknown(*args: object, **_: object) -> None:
        raise socket.gaierror(f"nobody knows {args[0]}")

    monkeypatch.setattr("app.container.MARKS", ("/",) if inside else ())
    async with running(settings_for(tmp_path, PUBLIC_URL="https://talaria.tail1234.ts.net")) as relay:
        doctor, here = relay.relay.doctor, relay.relay
        outside = Outside(here.settings.server, here.clock, doctor.probe, doctor._pin, ssl.create_default_context())
        monkeypatch.setattr("socket.getaddrinfo", unknown)
        (finding,) = await outside.look()
        monkeypatch.undo()
    assert (finding.name, finding.state) == ("name", state)


async def test_an_answer_that_never_ends_is_named_by_its_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each drop is in time, the whole is not."""

    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        with suppress(OSError, asyncio.CancelledError):
            while not writer.is_closing():
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0)

    monkeypatch.setattr("app.doctor.outside.STEP_S", 0.2)
    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, running(settings_for(tmp_path, PUBLIC_URL=url)) as relay:
        doctor, here = relay.relay.doctor, relay.relay
        outside = Outside(here.settings.server, here.clock, doctor.probe, doctor._pin, ssl.create_default_context())
        (finding,) = await outside._asks(url)
    assert (finding.name, finding.state) == ("way in", "fail")


async def test_an_address_that_guessed_is_not_taken_for_a_proxy_that_drops_upgrades(tmp_path: Path) -> None:
    """Somebody at home typed wrong codes: this host comes from the same address."""
    async with looking(tmp_path) as (outside, relay), httpx.AsyncClient(base_url=relay.url) as http:
        for _ in range(10):
            await http.post(
                "/pairing/redeem", json={"pairing_code": "WRONGWRG"}, headers={"X-Forwarded-For": "127.0.0.1"}
            )
        finding = by_name(await outside.look())["WebSocket"]
    assert finding.state == "warn"
    assert "wrong codes" in finding.says
