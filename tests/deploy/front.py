"""The proxies that deploy/proxies/ describes, really running, with TLS, before a relay of the test."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from app.tasks import Supervisor
from tests.requires import requires
from tests.servers import Authority

SNIPPETS = Path(__file__).parents[2] / "deploy" / "proxies"
NAME = "localhost"
ASKED_FOR = "talaria.example.net"
STARTS_WITHIN_S = 20


@dataclass(frozen=True, slots=True)
class Front:
    url: str
    trust: ssl.SSLContext


@dataclass(frozen=True, slots=True)
class Place:
    home: Path
    port: int  # where the proxy listens
    relay: int
    certificate: str
    key: str


def caddy(at: Place) -> list[str]:
    site = (SNIPPETS / "Caddyfile").read_text().replace(ASKED_FOR, f"https://{NAME}:{at.port}")
    site = site.replace("\treverse_proxy", f"\ttls {at.certificate} {at.key}\n\treverse_proxy")
    options = "{\n\tadmin off\n\tauto_https off\n\tstorage file_system " + str(at.home) + "\n}\n"
    file = _write(at.home / "Caddyfile", options + _relay(site, at))
    return ["run", "--config", str(file), "--adapter", "caddyfile"]


def nginx(at: Place) -> list[str]:
    """The lines around the snippet are those of Debian's nginx.conf, as far as a user's own directory allows."""
    server = (SNIPPETS / "nginx.conf").read_text().replace("listen 443", f"listen 127.0.0.1:{at.port}")
    server = server.replace(ASKED_FOR, NAME)
    server = server.replace(f"/etc/letsencrypt/live/{NAME}/fullchain.pem", at.certificate)
    server = server.replace(f"/etc/letsencrypt/live/{NAME}/privkey.pem", at.key)
    temporary = "".join(
        f"{kind}_temp_path {at.home}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    main = f"daemon off; user root; pid {at.home}/nginx.pid; error_log stderr;\nevents {{}}\n"
    file = _write(at.home / "nginx.conf", f"{main}http {{\naccess_log off;\n{temporary}{_relay(server, at)}}}\n")
    return ["-c", str(file), "-p", str(at.home), "-e", "stderr"]


def haproxy(at: Place) -> list[str]:
    both = _write(at.home / "both.pem", Path(at.certificate).read_text() + Path(at.key).read_text())
    config = (SNIPPETS / "haproxy.cfg").read_text().replace("bind :443", f"bind 127.0.0.1:{at.port}")
    config = config.replace("/etc/haproxy/certs/talaria.pem", str(both))
    return ["-db", "-f", str(_write(at.home / "haproxy.cfg", _relay(config, at)))]


PROXIES: dict[str, Callable[[Place], list[str]]] = {"caddy": caddy, "nginx": nginx, "haproxy": haproxy}


@asynccontextmanager
async def in_front(name: str, home: Path, port: int, relay: int) -> AsyncIterator[Front]:
    """The proxy listens on `port` until the block ends; `relay` is the port behind it."""
    program = requires(name)
    authority = Authority(home)
    arguments = PROXIES[name](Place(home, port, relay, *authority.issue(NAME)))
    with (home / "proxy.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(str(program), *arguments, stdout=log, stderr=log)
        async with Supervisor() as tasks:
            ended = tasks.start(process.wait(), "proxy")
            try:
                await _listens(port, ended, home / "proxy.log")
                yield Front(f"https://{NAME}:{port}", authority.trust())
            finally:
                if process.returncode is None:
                    process.terminate()
                await ended


async def _listens(port: int, ended: asyncio.Task[int], log: Path) -> None:
    async with asyncio.timeout(STARTS_WITHIN_S):
        while not ended.done():
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.wait([ended], timeout=0.05)  # there is no event to wait for
                continue
            writer.close()
            return
    raise AssertionError(f"the proxy has ended: {log.read_text()}")


def _relay(text: str, at: Place) -> str:
    assert "127.0.0.1:8767" in text
    return text.replace("127.0.0.1:8767", f"127.0.0.1:{at.relay}")


def _write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path
