"""The relay as a phone reaches it: each step from the name to a stream, so that the first that fails is named."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from app import container
from app.clock import Clock
from app.doctor.finding import Finding
from app.doctor.probe import Probe
from app.settings import ServerSettings

STEP_S = 10.0
FILE_S = 30.0  # for a file, up a slow line
RENEW_DAYS = 14
BODY_BYTES = 12 * 1024 * 1024  # more than the defaults of proxies let through, less than a phone's picture may have
FOREIGN = "https://origin.invalid"
PROXIES = "deploy/proxies/"
UPGRADE = {
    "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGFsYXJpYSBkb2N0b3IuLg==",
}  # fmt: skip

Pins = Callable[
    [str, str], Awaitable[str | None]
]  # (host, key) → the key that was seen there first, stored if none was


@dataclass(frozen=True, slots=True)
class Outside:
    """`trust` is what certificates are checked against."""

    server: ServerSettings
    clock: Clock
    probe: Probe
    pins: Pins
    trust: ssl.SSLContext

    async def look(self) -> list[Finding]:
        """Ends with the first step that fails: those after it would only fail as well."""
        if (url := self.server.public_url) is None:
            return [
                Finding(
                    "public URL", "warn", "none is set: only this machine can reach the relay",
                    f"`tailscale serve --bg {self.server.port}`, then set TALARIA_PUBLIC_URL to what it prints",
                )
            ]  # fmt: skip
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        findings = [await self._names(host)]
        if findings[0].state == "skip":
            return findings
        if not _broken(findings):
            findings.append(await self._connects(host, port))
        if not _broken(findings):
            findings.append(await self._secured(host, port, is_https=parts.scheme == "https"))
        return findings if _broken(findings) else findings + await self._asks(url)

    async def _asks(self, url: str) -> list[Finding]:
        findings: list[Finding] = []
        async with httpx.AsyncClient(base_url=url, verify=self.trust, timeout=STEP_S, trust_env=False) as http:
            for name, check in (
                ("way in", self._is_us), ("WebSocket", self._upgrades), ("Origin", self._refuses),
                ("streams", self._streams), ("files", self._takes),
            ):  # fmt: skip
                if name == "Origin" and findings[-1].state != "ok":
                    continue  # without upgrades nothing is to be learned of it
                try:
                    async with asyncio.timeout(FILE_S if name == "files" else STEP_S):  # drops make no whole answer
                        findings.append(await check(http))
                except (httpx.HTTPError, TimeoutError) as exc:
                    findings.append(Finding(name, "fail", f"no answer came back: {_reason(exc)}", _SEE))
                if name == "way in" and _broken(findings):
                    break
        return findings

    async def _names(self, host: str) -> Finding:
        try:
            async with asyncio.timeout(STEP_S):
                found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, TimeoutError) as exc:
            if host.endswith(".ts.net") and container.is_inside():  # as with the sidecar, which has no DNS for others
                return Finding(
                    "name", "skip", f"in this container {host} has no address: the devices of the tailnet know it",
                    f"on one of them: `curl {self.server.public_url}/livez`",
                )  # fmt: skip
            return Finding(
                "name", "fail", f"{host} has no address here: {_reason(exc)}",
                "look at TALARIA_PUBLIC_URL; for a name of Tailscale, at `tailscale status` and MagicDNS",
            )  # fmt: skip
        return Finding("name", "ok", f"{host} is {', '.join(sorted({str(one[4][0]) for one in found}))}")

    async def _connects(self, host: str, port: int) -> Finding:
        try:
            async with asyncio.timeout(STEP_S):
                _, writer = await asyncio.open_connection(host, port)
        except (OSError, TimeoutError) as exc:
            return Finding(
                "connection", "fail", f"nothing listens at port {port} of {host}: {_reason(exc)}",
                "start what provides HTTPS: `tailscale serve status`, or your proxy. Behind a router that does not lead"
                " its own network back in this fails although phones outside get through",
            )  # fmt: skip
        writer.close()
        return Finding("connection", "ok", f"port {port} is open")

    async def _secured(self, host: str, port: int, *, is_https: bool) -> Finding:
        if not is_https:
            return Finding(
                "TLS", "warn", "the public URL is plain http: everybody on the way can read and change what is said",
                f"`tailscale serve --bg {self.server.port}` gives it https; then set TALARIA_PUBLIC_URL",
            )  # fmt: skip
        try:
            async with asyncio.timeout(STEP_S):
                _, writer = await asyncio.open_connection(host, port, ssl=self.trust)
        except ssl.SSLCertVerificationError as exc:
            return Finding(
                "TLS", "fail", f"phones refuse the certificate of {host}: {exc.verify_message}",
                "renew it, or use one that phones know: Tailscale Serve, Caddy and certbot get one by themselves",
            )  # fmt: skip
        except (OSError, TimeoutError) as exc:
            return Finding("TLS", "fail", f"{host} speaks no TLS there: {_reason(exc)}", _SEE)
        encoded = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        return await self._certificate(host, x509.load_der_x509_certificate(encoded))

    async def _certificate(self, host: str, certificate: x509.Certificate) -> Finding:
        days = int((certificate.not_valid_after_utc.timestamp() - self.clock.now()) // 86400)
        public = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        key = hashlib.sha256(public).hexdigest()
        first = await self.pins(host, key)
        if first is not None and first != key:
            return Finding(
                "TLS", "warn",
                "the key of the certificate is another one than at first: clients that pinned it (Hermes-Relay does)"
                " refuse the relay until they are paired again",
                "let renewals keep the key: `certbot renew --reuse-key`, `reuse_private_keys` in Caddy",
            )  # fmt: skip
        if days < RENEW_DAYS:
            return Finding("TLS", "warn", f"the certificate ends in {days} days", "look why it is not renewed")
        return Finding("TLS", "ok", f"the certificate is good for {days} days, and its key is the one seen at first")

    async def _is_us(self, http: httpx.AsyncClient) -> Finding:
        answer = await http.get("/doctor/probe", headers=self.probe.headers())
        if self.probe.is_ours(answer.headers):
            return Finding("way in", "ok", "requests to the public URL reach this relay")
        if answer.status_code == 421:
            return Finding(
                "way in", "fail", "the proxy asks the relay for another Host than the public one",
                f"let it pass Host on ({PROXIES} shows how), or add that name to TALARIA_ALLOWED_HOSTS",
            )  # fmt: skip
        if answer.status_code >= 500:
            return Finding(
                "way in", "fail", f"the proxy does not reach the relay (HTTP {answer.status_code})",
                f"let it lead to {self.server.host}:{self.server.port}",
            )  # fmt: skip
        kind = answer.headers.get("content-type", "").partition(";")[0]
        if answer.is_redirect or kind == "text/html":
            where = f"sends callers on (HTTP {answer.status_code})" if answer.is_redirect else "answers with a web page"
            return Finding(
                "way in", "fail", f"something in front of the relay {where}: a login page, which no phone can pass",
                "exempt this name from the access proxy, or protect it by Tailscale instead",
            )  # fmt: skip
        return Finding(
            "way in", "fail", f"something else answers at the public URL (HTTP {answer.status_code})",
            "look what TALARIA_PUBLIC_URL and the proxy lead to; another Talaria is not this one",
        )  # fmt: skip

    async def _upgrades(self, http: httpx.AsyncClient) -> Finding:
        origin = str(self.server.public_url)
        status = await _handshake(http, origin)
        if status == 101:
            return Finding("WebSocket", "ok", "an upgrade with the relay's own Origin passes")
        if status == 403:
            return Finding(
                "WebSocket", "fail", "the relay refuses its own Origin: something on the way changes it",
                "let the proxy pass Origin on as it is",
            )  # fmt: skip
        if status == 429:
            return Finding(
                "WebSocket", "warn", "this host is refused for a while: wrong codes or tokens came from its address",
                "wait five minutes, then `talaria doctor` again; `talaria pair` lifts it for codes",
            )  # fmt: skip
        return Finding(
            "WebSocket", "fail", f"the upgrade comes back as HTTP {status}: something on the way drops it",
            f"let the proxy pass Upgrade and Connection on: {PROXIES} shows how",
        )  # fmt: skip

    async def _refuses(self, http: httpx.AsyncClient) -> Finding:
        status = await _handshake(http, FOREIGN)
        if status == 403:
            return Finding("Origin", "ok", "a page of another origin gets no socket")
        return Finding(
            "Origin", "fail", f"a page of another origin is not refused (HTTP {status}): Origin is changed on the way",
            "let the proxy pass Origin on as it is",
        )  # fmt: skip

    async def _streams(self, http: httpx.AsyncClient) -> Finding:
        self.probe.begin()
        said = b""
        async with http.stream("GET", "/doctor/probe/stream", headers=self.probe.headers()) as answer:
            async for piece in answer.aiter_bytes():
                said = (said + piece)[-100:]
                self.probe.saw()
        if not self.probe.is_ours(answer.headers):
            return _intercepted("streams", answer)
        if b"data: seen" in said:
            return Finding("streams", "ok", "the pieces of an answer come one by one")
        return Finding(
            "streams", "fail", "an answer is held back until it is whole: something on the way buffers it",
            f"switch buffering off: {PROXIES} shows how",
        )  # fmt: skip

    async def _takes(self, http: httpx.AsyncClient) -> Finding:
        answer = await http.post("/doctor/probe", headers=self.probe.headers(), content=bytes(BODY_BYTES))
        if answer.status_code == 413:
            return Finding(
                "files", "fail", f"a file of {BODY_BYTES >> 20} MiB is refused on the way",
                f"raise the proxy's limit (client_max_body_size in nginx): {PROXIES} shows how",
            )  # fmt: skip
        if not self.probe.is_ours(answer.headers):
            return _intercepted("files", answer)
        said: dict[str, Any] = answer.json()
        if said.get("bytes") != BODY_BYTES:
            return Finding("files", "fail", f"a file of {BODY_BYTES >> 20} MiB does not arrive whole", _SEE)
        if said.get("forwarded") and not said.get("trusted"):
            return Finding(
                "files", "warn",
                f"requests come from {said.get('peer')} with X-Forwarded-For, which is not believed: all phones look"
                " like one, and one that guesses codes locks out the others",
                f"set TALARIA_TRUSTED_PROXIES={said.get('peer')} (what the proxy comes from) and restart the relay",
            )  # fmt: skip
        return Finding("files", "ok", f"{BODY_BYTES >> 20} MiB pass, from {said.get('client')}")


_SEE = f"look at the proxy's log, and at {PROXIES}"


def _intercepted(name: str, answer: httpx.Response) -> Finding:
    says = f"something on the way answers in the relay's place (HTTP {answer.status_code})"
    return Finding(name, "fail", says, _SEE)


def _broken(findings: list[Finding]) -> bool:
    return any(finding.state == "fail" for finding in findings)


def _reason(exc: BaseException) -> str:
    return str(exc) or type(exc).__name__


async def _handshake(http: httpx.AsyncClient, origin: str) -> int:
    """The status; an upgraded connection is dropped."""
    async with http.stream("GET", "/ws", headers=UPGRADE | {"Origin": origin}) as answer:
        return answer.status_code
