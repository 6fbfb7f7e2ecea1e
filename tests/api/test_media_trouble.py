"""/media/… and those who leave, stop, or are killed in the middle."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from app.api import media as routes
from app.api import served
from app.media import service
from app.media.files import Draft
from app.media.slots import Slots
from tests.api.conftest import client_of
from tests.crash.relay_process import RelayProcess
from tests.relay import RunningRelay, running, settings_for

MB = 1024 * 1024
MORE_THAN_BUFFERS = 90 * MB  # what the kernel holds for one connection is less, so that the relay must have read some


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


class WatchedSlots(Slots):
    """Tells when a transfer begins and when it has ended."""

    def __init__(self) -> None:
        super().__init__(*service.DOWNLOADS)
        self.now = 0
        self._changed = asyncio.Event()

    @contextmanager
    def taken(self, sender: str) -> Iterator[None]:
        with super().taken(sender):
            self._change(1)
            try:
                yield
            finally:
                self._change(-1)

    def _change(self, by: int) -> None:
        self.now += by
        self._changed.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(20):
            while self.now != count:
                self._changed.clear()
                await self._changed.wait()


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[RunningRelay]:
    (tmp_path / "shown").mkdir()
    settings = settings_for(tmp_path / "data", MEDIA_ROOTS=str(tmp_path / "shown"))
    async with running(settings) as relay:
        yield relay


@pytest.fixture
def uploads(relay: RunningRelay) -> WatchedSlots:
    relay.relay.media._uploads = slots = WatchedSlots()
    return slots


@pytest.fixture
def downloads(relay: RunningRelay) -> WatchedSlots:
    relay.relay.media._downloads = slots = WatchedSlots()
    return slots


@pytest.fixture
async def written(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set once a block of an upload is on disk."""
    done, loop, write = asyncio.Event(), asyncio.get_running_loop(), Draft.write

    def tell(draft: Draft, data: bytes) -> None:
        write(draft, data)
        loop.call_soon_threadsafe(done.set)

    monkeypatch.setattr(Draft, "write", tell)
    return done


def on_disk(data_dir: Path) -> int:
    return len(list((data_dir / "media").iterdir()))


async def upload(http: httpx.AsyncClient, size: int) -> str:
    answer = await http.post("/media/upload", files={"file": ("a", bytes(size), "text/plain")})
    return str(answer.json()["token"])


@asynccontextmanager
async def requesting(url: str, token: str, head: str) -> AsyncIterator[socket.socket]:
    """A client that has sent the head of a request, and reads as little as it likes."""
    with socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(raw, ("127.0.0.1", int(url.rpartition(":")[2])))
        await loop.sock_sendall(raw, f"{head}\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
        yield raw


@asynccontextmanager
async def half_an_upload(url: str, token: str, size: int) -> AsyncIterator[socket.socket]:
    head = (
        "POST /media/upload HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=b\r\n"
        f"Content-Length: {size + 10_000}"
    )
    async with requesting(url, token, head) as raw:
        part = b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\n' + bytes(size)
        await asyncio.get_running_loop().sock_sendall(raw, part)
        yield raw


async def read_until_cut(raw: socket.socket) -> int:
    """Bytes that came before the connection ended, however it did."""
    got = 0
    with suppress(ConnectionResetError):
        while part := await asyncio.get_running_loop().sock_recv(raw, MB):
            got += len(part)
    return got


async def test_who_leaves_in_the_middle_of_an_upload_leaves_nothing(
    relay: RunningRelay, uploads: WatchedSlots, written: asyncio.Event
) -> None:
    data_dir = relay.relay.settings.server.data_dir
    async with half_an_upload(relay.url, relay.relay.operator.read(), 4 * MB):
        await written.wait()
        assert on_disk(data_dir) == 1
    await uploads.until(0)
    assert on_disk(data_dir) == 0


async def test_who_stops_in_the_middle_of_an_upload_is_told_so(
    relay: RunningRelay, uploads: WatchedSlots, written: asyncio.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "STALLED_S", 1.0)  # between two pieces: no less, or the first counts as late
    async with half_an_upload(relay.url, relay.relay.operator.read(), 2 * MB) as raw:
        answer = await asyncio.get_running_loop().sock_recv(raw, 4096)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"upload_stalled" in answer
    assert written.is_set()
    assert (uploads.now, on_disk(relay.relay.settings.server.data_dir)) == (0, 0)


async def test_a_kill_in_the_middle_of_an_upload_leaves_nothing(tmp_path: Path) -> None:
    relay = RelayProcess(tmp_path / "data", HERMES_DASHBOARD_URL="")
    await relay.start()
    try:
        async with httpx.AsyncClient(base_url=relay.url, headers=bearer(relay.operator), trust_env=False) as http:
            token = await upload(http, 1000)
        async with half_an_upload(relay.url, relay.operator, MORE_THAN_BUFFERS):
            await relay.kill()
        assert on_disk(relay.data_dir) == 2
        await relay.start()
        assert on_disk(relay.data_dir) == 1
        async with httpx.AsyncClient(base_url=relay.url, headers=bearer(relay.operator), trust_env=False) as http:
            assert (await http.get(f"/media/{token}")).content == bytes(1000)
    finally:
        await relay.stop()


async def test_who_does_not_read_is_cut_off(
    relay: RunningRelay, downloads: WatchedSlots, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "STALLED_S", 0.2)
    operator = relay.relay.operator.read()
    async with client_of(relay, headers=bearer(operator)) as http:
        token = await upload(http, MORE_THAN_BUFFERS)
    async with requesting(relay.url, operator, f"GET /media/{token} HTTP/1.1") as raw:
        await downloads.until(1)
        await downloads.until(0)
        assert await read_until_cut(raw) < MORE_THAN_BUFFERS


async def test_who_leaves_in_the_middle_of_a_file_holds_nothing(relay: RunningRelay, downloads: WatchedSlots) -> None:
    operator = relay.relay.operator.read()
    async with client_of(relay, headers=bearer(operator)) as http:
        token = await upload(http, MORE_THAN_BUFFERS)
    async with requesting(relay.url, operator, f"GET /media/{token} HTTP/1.1"):
        await downloads.until(1)
    await downloads.until(0)


async def test_so_many_files_at_once_and_no_more(
    relay: RunningRelay, downloads: WatchedSlots, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "_each", 2)
    operator, link = relay.relay.operator.read(), relay.relay.link.read()
    async with client_of(relay, headers=bearer(operator)) as http:
        token = await upload(http, MORE_THAN_BUFFERS)
        head = f"GET /media/{token} HTTP/1.1"
        async with requesting(relay.url, operator, head), requesting(relay.url, operator, head):
            await downloads.until(2)
            refused = await http.get(f"/media/{token}")
            assert (refused.status_code, refused.headers["x-talaria-error"]) == (503, "overloaded")
            assert refused.headers["content-security-policy"].startswith("sandbox")
            other = await http.get(f"/media/{token}", headers=bearer(link) | {"Range": "bytes=0-9"})
            assert other.status_code == 206
            assert (await http.head(f"/media/{token}")).status_code == 200
        await downloads.until(0)
        assert (await http.get(f"/media/{token}", headers={"Range": "bytes=0-9"})).status_code == 206


async def test_a_file_that_shrinks_while_it_is_sent_is_cut_off(
    relay: RunningRelay, downloads: WatchedSlots, tmp_path: Path
) -> None:
    file = tmp_path / "shown/log"
    file.write_bytes(bytes(MORE_THAN_BUFFERS))
    head = f"GET /media/by-path?path={file} HTTP/1.1"
    async with requesting(relay.url, relay.relay.operator.read(), head) as raw:
        await downloads.until(1)
        os.truncate(file, 10)
        assert await read_until_cut(raw) < MORE_THAN_BUFFERS
    await downloads.until(0)
